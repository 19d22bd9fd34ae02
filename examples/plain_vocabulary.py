"""Texts to ids and back without TensorFlow: symbols, or subwords by sentencepiece.

Ids are those of a SymbolTokenizer of the same symbols, or of a SentencePieceTokenizer of the same
model with the same normalization and case.
"""

import collections
import io
import os
import tempfile
import unicodedata
from pathlib import Path

PAD_ID, UNK_ID, BOS_ID, EOS_ID = range(4)
SPECIAL_PIECES = ["", "\ufffd", "", ""]
FORMS = ("identity", "nfc", "nfkc")  # of Unicode; other rules are sentencepiece's own
WHITE_SPACE = "\t\n\v\f\r"  # of ASCII, which the model reads as a space


class Symbols:
    """Symbols between spaces, ids from the last to the first with `reverse`."""

    suffix = ".symbols"

    def __init__(self, symbols, reverse=False):
        self.pieces = [*SPECIAL_PIECES, *symbols]
        self.ids = {piece: number for number, piece in enumerate(symbols, start=4)}
        self.step = -1 if reverse else 1

    @classmethod
    def train(cls, texts):
        """All symbols of the texts, the most frequent first, then by code point."""
        counts = collections.Counter(symbol for text in texts for symbol in symbols_of(text))
        return cls(sorted(counts, key=lambda symbol: (-counts[symbol], symbol)))

    @classmethod
    def load(cls, path, reverse=False):
        """Reads what `save` wrote."""
        return cls(symbols_of(path.read_text(encoding="utf-8")), reverse)

    def save(self, path):
        """Writes the symbols to a file."""
        write(path, " ".join(self.pieces[4:]).encode())

    @property
    def size(self):
        """The number of ids."""
        return len(self.pieces)

    def encode(self, text):
        """The ids of a text."""
        return [self.ids.get(symbol, UNK_ID) for symbol in symbols_of(text)][:: self.step]

    def decode(self, ids):
        """The text of ids."""
        return " ".join(self.pieces[number] for number in ids[:: self.step] if number not in (0, 2))


class Subwords:
    """The pieces of a sentencepiece model of type BPE.

    A text gets the normal form `normalization`, then its lower case where that is wanted, and then
    what the model's own rule makes of it.
    """

    suffix = ".model"

    def __init__(self, model, normalization="identity", lowercase=False):
        import sentencepiece

        self.model = model
        self.options = {}
        if normalization in FORMS[1:]:
            self.options["normalization"] = normalization
        if lowercase:
            self.options["lowercase"] = True
        self.processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        self.size = self.processor.get_piece_size()
        self.decode = self.processor.decode

    @classmethod
    def train(cls, texts, vocab_size, normalization="identity", lowercase=False):
        """Learns a vocabulary of at most `vocab_size` pieces."""
        import sentencepiece

        model = io.BytesIO()
        with tempfile.TemporaryDirectory() as folder:
            rule = {"normalization_rule_name": normalization}
            if normalization in FORMS:
                file = Path(folder, "rules.tsv")
                rules = "".join(f"{ord(space):X}\t20\n" for space in WHITE_SPACE)
                file.write_text(rules, encoding="utf-8")
                rule = {"normalization_rule_tsv": str(file)}
            try:
                sentencepiece.SentencePieceTrainer.train(
                    sentence_iterator=(fold(text, normalization, lowercase) for text in texts),
                    model_writer=model,
                    vocab_size=vocab_size,
                    hard_vocab_limit=False,
                    model_type="bpe",
                    character_coverage=1.0,
                    pad_id=PAD_ID,
                    unk_id=UNK_ID,
                    bos_id=BOS_ID,
                    eos_id=EOS_ID,
                    minloglevel=2,
                    **rule,
                )
            except RuntimeError as error:
                raise ValueError(
                    f"--vocab-size must leave room for every character of the texts: {error}"
                ) from error
        return cls(model.getvalue(), normalization, lowercase)

    @classmethod
    def load(cls, path, normalization="identity", lowercase=False):
        """Reads what `save` wrote; the file holds the model alone."""
        return cls(path.read_bytes(), normalization, lowercase)

    def save(self, path):
        """Writes the model to a file."""
        write(path, self.model)

    def encode(self, text):
        """The ids of a text."""
        return self.processor.encode(fold(text, **self.options))


def fold(text, normalization="identity", lowercase=False):
    """A text in its normal form and, where that is wanted, in lower case."""
    if normalization in FORMS[1:]:
        text = unicodedata.normalize(normalization.upper(), text)
    return text.lower() if lowercase else text


def symbols_of(text):
    """The symbols of a text: white space is that of ASCII."""
    return [symbol.decode() for symbol in text.encode().split()]


def write(path, data):
    """Writes a file whole or not at all."""
    scratch = path.with_name(f".{path.name}")
    scratch.write_bytes(data)
    os.replace(scratch, path)
