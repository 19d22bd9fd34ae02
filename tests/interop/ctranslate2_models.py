"""Random models of ours and of CTranslate2's own, and what CTranslate2 makes of them.

Sizes are different primes, or times the number of heads, where they can be.
"""

import ctranslate2
import numpy as np
import tensorflow as tf
from keras import ops

from keras_transformer import BeamSearch, Transformer
from keras_transformer.serving import Translator
from keras_transformer.text import CharacterTokenizer

SOURCE, TARGET = "abcdefghijklm", "nopqrstuvwx"
D_MODEL, HEADS, D_FF, LENGTH = 24, 4, 34, 11
BEAMS = 3
# One that CTranslate2 has, so that a model leaves without a warning.
SEARCH = BeamSearch(BEAMS, 1.0, num_hypotheses=1, early_stopping=True, length_formula="power")


def randomised(model, seed):
    """Gives a model weights so large that its outputs differ from input to input."""
    model.build()
    random = np.random.default_rng(seed)
    for weight in model.weights:
        values = random.normal(size=weight.shape)
        if weight.path.endswith(("kernel", "reverse_embeddings")):
            values *= 1.7 / np.sqrt(weight.shape[0])
        elif weight.path.endswith(("gamma", "scale")):
            values = 1 + values / 5
        elif weight.path.endswith("/embeddings"):
            values *= D_MODEL**-0.5
        else:
            values /= 4
        weight.assign(values)
    return model


def our_translator(seed=0, joint=True, target=None, **options):
    """A translator of characters with random weights."""
    source = CharacterTokenizer(SOURCE)
    target = source if joint else CharacterTokenizer(TARGET) if target is None else target
    sizes = {"source_vocab_size": source.vocab_size, "target_vocab_size": target.vocab_size}
    if joint:
        sizes = {"vocab_size": source.vocab_size}
    sizes |= {"num_layers": 2, "d_model": D_MODEL, "num_heads": HEADS, "d_ff": D_FF}
    model = randomised(Transformer(**{**sizes, **options}), seed)
    for weight in model.weights:
        if weight.name == "logits_bias":  # as it is written: both never come
            bias = np.array(weight)
            bias[[model.pad_id, model.bos_id]] = -1e9
            weight.assign(bias)
    return Translator(model, source, target, SEARCH, jit_compile=False)


def some_texts(seed, letters=SOURCE, count=40, longest=9):
    """Random texts of 1 to `longest` characters."""
    random = np.random.default_rng(seed)
    return [
        "".join(random.choice(list(letters), n)) for n in random.integers(1, longest + 1, count)
    ]


def engine(directory, compute_type="float32"):
    """Opens a directory in CTranslate2."""
    return ctranslate2.Translator(
        str(directory), compute_type=compute_type, intra_threads=1, inter_threads=1
    )


def ids_of(tokenizer, texts, eos=True):
    """Ids (texts, length) of texts, padded, with `eos_id` or without."""
    rows = [[*row, *[tokenizer.eos_id] * eos] for row in tokenizer.tokenize(texts).to_list()]
    longest = max(map(len, rows))
    return np.array([row + [tokenizer.pad_id] * (longest - len(row)) for row in rows], "int32")


def our_scores(translator, sources, targets):
    """The log-probabilities of the tokens of targets, a list for each, `eos_id` included."""
    result = translator.model.score(
        ids_of(translator.source_tokenizer, sources, translator.source_eos),
        ids_of(translator.target_tokenizer, targets),
    )
    rows = zip(ops.convert_to_numpy(result.token_log_probs), np.array(result.lengths), strict=True)
    return [row[:length] for row, length in rows]


def their_scores(opened, sources, targets):
    """The log-probabilities by CTranslate2, which gets characters."""
    found = opened.score_batch([list(text) for text in sources], [list(text) for text in targets])
    return [np.array(result.log_probs) for result in found]


def largest_difference(ours, theirs):
    """How far two lists of rows of numbers are apart."""
    return max(np.abs(np.asarray(a) - b).max() for a, b in zip(ours, theirs, strict=True))


def our_search(translator, sources, forbidden=()):
    """The best (text, score) of each source, as CTranslate2 searches."""
    search = BeamSearch(
        BEAMS,
        1.0,
        num_hypotheses=1,
        early_stopping=True,
        length_formula="power",
        renormalize=True,
        suppressed_ids=forbidden,
    )
    ids = ids_of(translator.source_tokenizer, sources, translator.source_eos)
    generate = tf.function(translator.model.generate, autograph=False)
    result = generate(ids, search, max_length=LENGTH)
    texts = translator.target_tokenizer.detokenize(result.ids[:, 0])
    return [text.decode() for text in texts.numpy()], result.scores.numpy()[:, 0]


def their_search(opened, sources, forbidden=()):
    """The best (text, score) of each source by CTranslate2, which may not write `forbidden`."""
    found = opened.translate_batch(
        [list(text) for text in sources],
        beam_size=BEAMS,
        length_penalty=1,
        max_decoding_length=LENGTH,
        min_decoding_length=0,
        return_scores=True,
        suppress_sequences=[[token] for token in forbidden] or None,
    )
    # What is not a character reads as U+FFFD.
    texts = [
        "".join(token if len(token) == 1 else "\ufffd" for token in result.hypotheses[0])
        for result in found
    ]
    return texts, np.array([result.scores[0] for result in found])
