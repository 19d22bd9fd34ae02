"""Small tokenizers of each kind, and the sentences that they are trained on."""

KINDS = ["character", "symbol", "bpe", "unigram", "lossless", "folded", "wordpiece", "lower_case"]
SENTENCES = [
    "a man rides a brown horse.",
    "two dogs play in the snow!",
    "ein Mann reitet auf einem Pferd.",
    "zwei Hunde spielen im Schnee, nicht wahr?",
    'she said: "don\'t (ever) do that"',
    "3 men, 14 horses and 159 dogs",
    "un café très cher à Genève",
] * 6


def train(kind):
    """Trains the tokenizer of a kind, the same each time."""
    from keras_transformer.text import (
        CharacterTokenizer,
        SentencePieceTokenizer,
        SymbolTokenizer,
        WordPieceTokenizer,
    )

    unigram = {"model_type": "unigram", "shrink_to_fit": True}
    trainer, options = {
        "character": (CharacterTokenizer, {}),
        "symbol": (SymbolTokenizer, {}),
        "bpe": (SentencePieceTokenizer, {"vocab_size": 110}),
        "unigram": (SentencePieceTokenizer, {"vocab_size": 110, **unigram}),
        "lossless": (SentencePieceTokenizer, {"vocab_size": 360, "lossless": True}),
        "wordpiece": (WordPieceTokenizer, {"vocab_size": 120}),
        "folded": (
            SentencePieceTokenizer,
            {"vocab_size": 100, "normalization": "nfkc", "lowercase": True},
        ),
        "lower_case": (WordPieceTokenizer, {"vocab_size": 120, "lower_case": True}),
    }[kind]
    return trainer.train(iter(SENTENCES), **options)
