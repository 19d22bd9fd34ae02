"""Small models with random weights, and what the explorer tells of them."""

from keras_transformer import BeamSearch, LearnedPositionalEncoding, Transformer
from keras_transformer.recipes.attention_explorer import explore
from keras_transformer.serving import Translator
from keras_transformer.text import CharacterTokenizer
from tests.backends import randomise

SENTENCE = "fab"
LAYERS, HEADS, BEAM, LONGEST = 2, 3, 5, 7
TOKENIZER = CharacterTokenizer.train(["abcdefg"])


def transformer(seed=0, **options):
    sizes = {"num_layers": LAYERS, "d_model": 6 * HEADS, "num_heads": HEADS, "d_ff": 13}
    # No search goes on beyond the positions that there are.
    position = LearnedPositionalEncoding(LONGEST)
    model = Transformer(TOKENIZER.vocab_size, **sizes, position=position, **options)
    model.build()
    return randomise(model, seed, scale=0.5)


def explored(model=None, sentence=SENTENCE, **options):
    search = BeamSearch(**{"beam_size": BEAM, **options})
    translator = Translator(model or transformer(), TOKENIZER, search=search, jit_compile=False)
    return explore(translator, sentence)
