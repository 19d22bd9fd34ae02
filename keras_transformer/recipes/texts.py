"""What a training run asks of its texts, with TensorFlow and without it."""

import abc
from typing import Any

import keras

from keras_transformer.decoding import Search
from keras_transformer.recipes.corpus import Corpus
from keras_transformer.recipes.settings import Settings


class Texts(abc.ABC):
    """The vocabularies of a run, its batches, and translations by its model.

    Args:
        settings: of the run.
        corpus: its pairs.
        source: the tokenizer of the sources, or their vocabulary without TensorFlow.
        target: that of the targets.
    """

    def __init__(self, settings: Settings, corpus: Corpus, source: Any, target: Any) -> None:
        self.settings, self.corpus = settings, corpus
        self.source, self.target = source, target

    @property
    def vocab_sizes(self) -> dict[str, int]:
        """The arguments of a model that tell it the vocabularies."""
        if self.settings.separate_vocabularies:
            return {
                "source_vocab_size": self.source.vocab_size,
                "target_vocab_size": self.target.vocab_size,
            }
        return {"vocab_size": self.source.vocab_size}

    @property
    def special_ids(self) -> dict[str, int]:
        """The arguments of a model that tell it the special ids."""
        return {name: getattr(self.target, name) for name in ("pad_id", "bos_id", "eos_id")}

    @abc.abstractmethod
    def training_batches(self, first_epoch: int, turned_too: bool = False) -> Any:
        """The batches of training from an epoch on; with `turned_too` of both directions."""

    @abc.abstractmethod
    def validation_batches(self) -> Any:
        """The batches of validation."""

    @abc.abstractmethod
    def translator(self, model: keras.Model, search: Search, **options: Any) -> Any:
        """A function from a list of texts to their translations by the model."""

    @abc.abstractmethod
    def tokenize(self, side: str, text: str) -> list[int]:
        """The ids of a text of one side, "source" or "target": behind its tag, before `eos_id`."""

    def pieces(self, side: str, ids: list[int]) -> list[str]:
        """The printable pieces of the ids of one side."""
        return getattr(self, side).pieces(ids)
