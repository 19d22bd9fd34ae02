"""Texts to ids and back without TensorFlow: symbols, or subwords by sentencepiece.

Ids are those of a SymbolTokenizer of the same symbols, or of a SentencePieceTokenizer of the same
model.
"""

import collections
import io
import os

PAD_ID, UNK_ID, BOS_ID, EOS_ID = range(4)
SPECIAL_PIECES = ["", "\ufffd", "", ""]


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
    """The pieces of a sentencepiece model of type BPE."""

    suffix = ".model"

    def __init__(self, model):
        import sentencepiece

        self.model = model
        self.processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        self.size = self.processor.get_piece_size()
        self.encode, self.decode = self.processor.encode, self.processor.decode

    @classmethod
    def train(cls, texts, vocab_size, lowercase=False):
        """Learns a vocabulary of at most `vocab_size` pieces."""
        import sentencepiece

        model = io.BytesIO()
        try:
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=iter(texts),
                model_writer=model,
                vocab_size=vocab_size,
                hard_vocab_limit=False,
                model_type="bpe",
                character_coverage=1.0,
                normalization_rule_name="nmt_nfkc_cf" if lowercase else "nmt_nfkc",
                pad_id=PAD_ID,
                unk_id=UNK_ID,
                bos_id=BOS_ID,
                eos_id=EOS_ID,
                minloglevel=2,
            )
        except RuntimeError as error:
            raise ValueError(
                f"--vocab-size must leave room for every character of the texts: {error}"
            ) from error
        return cls(model.getvalue())

    @classmethod
    def load(cls, path):
        """Reads what `save` wrote."""
        return cls(path.read_bytes())

    def save(self, path):
        """Writes the model to a file."""
        write(path, self.model)


def symbols_of(text):
    """The symbols of a text: white space is that of ASCII."""
    return [symbol.decode() for symbol in text.encode().split()]


def write(path, data):
    """Writes a file whole or not at all."""
    scratch = path.with_name(f".{path.name}")
    scratch.write_bytes(data)
    os.replace(scratch, path)
