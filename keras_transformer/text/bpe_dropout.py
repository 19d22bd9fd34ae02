"""BPE dropout of Provilkov et al. 2020, section 3: words are split anew, with merges left out."""

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from random import Random

import numpy as np

from keras_transformer.text.sentencepiece_library import SPACE_MARK, import_sentencepiece

WORDS_KEPT = 2**17  # with their texts; frequent words soon come back to an empty store


class BpeDropout:
    """Splits what a BPE model of sentencepiece has split once more, some merges left out.

    BPE starts from the characters of a word and merges, step by step, the two neighbours that
    make the piece of the highest score. With dropout each possible merge is left out of each
    step with probability `rate`, and a word is done when all of a step's are.

    sentencepiece can sample such pieces too, but other ones in each process for the same seed.

    Args:
        model: bytes, a serialized sentencepiece model of type BPE.
        numbers: int array (pieces,), the id of each piece; None takes the model's own. Words are
            not split into pieces that have no id.
        unk_id: the id of `numbers` that stands for none.
    """

    def __init__(
        self, model: bytes, numbers: np.ndarray | None = None, unk_id: int | None = None
    ) -> None:
        import_sentencepiece("BPE dropout")
        from sentencepiece import sentencepiece_model_pb2

        proto = sentencepiece_model_pb2.ModelProto.FromString(model)
        trainer = proto.trainer_spec
        if trainer.model_type != trainer.BPE:
            raise ValueError(
                "BPE dropout needs a tokenizer trained with `model_type='bpe'`. "
                f"Received: one of type {trainer.ModelType.Name(trainer.model_type).lower()!r}"
            )
        numbers = np.arange(len(proto.pieces)) if numbers is None else numbers
        entries = zip(numbers.tolist(), proto.pieces, strict=True)
        normal = [(index, entry) for index, entry in entries if entry.type == entry.NORMAL]
        self._ranks = {entry.piece: -entry.score for _, entry in normal}
        normal = [(index, entry) for index, entry in normal if index != unk_id]
        self._pieces = {index: entry.piece for index, entry in normal}
        self._ids = {entry.piece: index for index, entry in normal}
        self._starts = {index for index, piece in self._pieces.items() if piece[0] == SPACE_MARK}
        if any(SPACE_MARK in piece[1:] for piece in self._ranks):
            self._starts = set()  # a merge may join two words: a text is one word
        self._texts: dict[tuple[int, ...], str] = {}

    def split(self, ids: Iterable[int], rate: float, random: Random) -> list[int]:
        """Returns the ids of a text in other pieces.

        Args:
            ids: list of the text's ids, as the model splits it.
            rate: in [0, 1), the share of the merges left out.
            random: a `random.Random`, which draws alike in every process.
        """
        found: list[int] = []
        for word in self._split_words(ids):
            found += self._split_word(word, rate, random.random)
        return found

    def _split_words(self, ids: Iterable[int]) -> Iterator[tuple[int, ...]]:
        """Yields the ids word by word; what no merge makes, such as a byte, is one by itself."""
        word: tuple[int, ...] = ()
        for index in ids:
            if word and (index in self._starts or index not in self._pieces):
                yield word
                word = ()
            if index in self._pieces:
                word += (index,)
            else:
                yield (index,)
        if word:
            yield word

    def _split_word(
        self, word: tuple[int, ...], rate: float, draw: Callable[[], float]
    ) -> Sequence[int]:
        if word not in self._texts:
            text = "".join(self._pieces.get(index, "") for index in word)
            known = all(character in self._ids for character in text)
            if len(self._texts) >= WORDS_KEPT:
                self._texts.clear()
            self._texts[word] = text if known else ""
        text = self._texts[word]
        # Most words keep all their merges: one number a merge tells.
        draws = [draw() for _ in range(len(text) - len(word))]
        if not draws or min(draws) >= rate:
            return word
        symbols = self._merge(list(text), rate, itertools.chain(draws, iter(draw, None)))
        if not all(symbol in self._ids for symbol in symbols):
            return word
        return [self._ids[symbol] for symbol in symbols]

    def _merge(self, symbols: list[str], rate: float, draws: Iterator[float]) -> list[str]:
        while True:
            pairs = enumerate(itertools.pairwise(symbols))
            possible = [(left + right, place) for place, (left, right) in pairs]
            ranked = sorted(
                (self._ranks[piece], place) for piece, place in possible if piece in self._ranks
            )
            # The best one not left out; those after it need no draw, as none of them is taken.
            place = next((place for _, place in ranked if next(draws) >= rate), None)
            if place is None:
                return symbols
            symbols[place : place + 2] = [symbols[place] + symbols[place + 1]]
