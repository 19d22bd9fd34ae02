"""Models that the library of sentencepiece trains, its own reading of them, and vocabularies."""

import io
import random

import sentencepiece

from tests.text.small_tokenizers import SENTENCES


def train(lines=SENTENCES, **options):
    model = io.BytesIO()
    size = {"vocab_size": 370 if options.get("byte_fallback") else 110}
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines),
        model_writer=model,
        minloglevel=2,
        hard_vocab_limit=False,
        **{"model_type": "bpe", **size, **options},
    )
    return model.getvalue()


MODEL = train(vocab_size=180)


def processor(model):
    return sentencepiece.SentencePieceProcessor(model_proto=model)


def texts_of(tokenizer, ids):
    return [text.decode() for text in tokenizer.detokenize(ids).numpy()]


def shuffled_vocabulary(model, lacking=()):
    """A vocabulary of the model's pieces in another order, and of some that it lacks."""
    pieces = list(processor(model).id_to_piece(list(range(180))))
    pieces = [piece for piece in pieces if piece not in ("<s>", *lacking)]
    pieces += ["\u2581zork", "ing-zork", ">>deu<<", ">>fra<<", "<pad>"]
    random.Random(1).shuffle(pieces)
    return {piece: index for index, piece in enumerate(pieces)}
