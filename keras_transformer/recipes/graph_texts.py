"""Texts of a training run on TensorFlow: tokenizers in the graph, batches, and a `Translator`."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras

from keras_transformer.decoding import Search
from keras_transformer.recipes.corpus import Corpus, split_sides
from keras_transformer.recipes.large_files import LargeFiles, prepare_files
from keras_transformer.recipes.parallel_text import Pair, normalize
from keras_transformer.recipes.run_directory import say
from keras_transformer.recipes.run_files import TAGS_AND_ENDS, read_imported
from keras_transformer.recipes.settings import Settings
from keras_transformer.recipes.texts import Texts
from keras_transformer.serving import Translator
from keras_transformer.text import (
    SentencePieceTokenizer,
    SymbolTokenizer,
    load_tokenizer,
    translation_dataset,
)
from keras_transformer.text.tokenization import TaggedTokenizer
from keras_transformer.text.tokenizer import Tokenizer


class GraphTexts(Texts):
    """Texts with TensorFlow.

    Args:
        path: the directory of the run, which keeps the tokenizers.
        settings: of the run.
        corpus: its pairs; the tokenizers are learned from those for training, once.
    """

    def __init__(self, path: Path, settings: Settings, corpus: Corpus) -> None:
        learn = learn_subwords if settings.has_subwords else learn_symbols
        if settings.model == "imported":
            learn = copy_both
        super().__init__(settings, corpus, *learn(path, settings, corpus.train))
        self.imported: dict[str, Any] = read_imported(path).get("options", {})
        self.path = path

    def training_batches(self, first_epoch: int, turned_too: bool = False) -> Any:
        """The batches of training from an epoch on; with `turned_too` of both directions."""
        pairs = self.corpus.train
        if turned_too:
            pairs = pairs + [(target, source) for source, target in pairs]
        rates = self.settings.subword_dropout or (0.0,)
        large = self.corpus.large
        sides, options = self._prepared(large) if large else (split_sides(pairs), {})
        return self._dataset(
            sides,
            self.settings.max_shapes,
            shuffle=True,
            seed=self.settings.seed,
            first_epoch=first_epoch,
            batches_per_update=self.settings.accumulate,
            subword_dropout=rates if len(set(rates)) > 1 else rates[0],
            batches_per_epoch=self.settings.batches_per_epoch or None,
            **options,
        )

    def _prepared(self, large: LargeFiles) -> tuple[Any, dict[str, Any]]:
        """The sides of files that stay on disk, tokenized there, and options of their dataset."""
        found = prepare_files(
            self.path,
            large.files,
            self.corpus.held_out,
            self.settings,
            (self.source, self.target),
            source_tags=self.imported.get("source_tag"),
            target_tags=self.imported.get("target_tag"),
        )
        return (found.sources, found.targets), {"source_tag": None, "target_tag": None}

    def validation_batches(self) -> Any:
        """The batches of validation."""
        return self._dataset(
            split_sides(self.corpus.validation), max(1, self.settings.max_shapes // 2)
        )

    def _dataset(self, sides: tuple[Any, Any], max_shapes: int, **options: Any) -> Any:
        return translation_dataset(
            *sides,
            self.source,
            self.target,
            tokens_per_batch=self.settings.tokens_per_batch,
            max_length=self.settings.max_length,
            max_shapes=max_shapes,
            **{**self._tags_and_ends(), **options},
        )

    def _tags_and_ends(self) -> dict[str, Any]:
        """What the batches of an import have beside their ids, which its translator has too."""
        return {name: self.imported[name] for name in TAGS_AND_ENDS if name in self.imported}

    def translator(self, model: keras.Model, search: Search, **options: Any) -> Translator:
        """A `Translator` of the model."""
        options = {"max_source_length": self.settings.max_length, **self.imported, **options}
        return Translator(model, self.source, self.target, search=search, **options)

    def tokenize(self, side: str, text: str) -> list[int]:
        """The ids of a text of one side, "source" or "target": behind its tag, before `eos_id`."""
        tokenizer, tag = getattr(self, side), self.imported.get(f"{side}_tag")
        if tag is not None:
            tokenizer = TaggedTokenizer(tokenizer, tag)
        ids = tokenizer.tokenize([text])[0].numpy().tolist()
        has_end = side == "target" or self.imported.get("source_eos", True)
        return [*ids, tokenizer.eos_id] if has_end else ids


def learn_symbols(path: Path, settings: Settings, train: list[Pair]) -> tuple[Tokenizer, Tokenizer]:
    """The tokenizers of symbols of both sides together; that of the targets may reverse."""
    file = path / "source.tokenizer"
    if not file.exists():
        copy_or(settings, file, lambda: SymbolTokenizer.train(t for pair in train for t in pair))
    source = load_tokenizer(file)
    if not settings.right_to_left or not isinstance(source, SymbolTokenizer):
        return source, source
    target = SymbolTokenizer(source.symbols, reverse=True)
    target.save(path / "target.tokenizer")
    return source, target


def learn_subwords(
    path: Path, settings: Settings, train: list[Pair]
) -> tuple[Tokenizer, Tokenizer]:
    """The tokenizers of subwords: one of both sides, or two.

    Where only the sources are normalized more, both have the same pieces.
    """
    files = [path / "source.tokenizer", path / "target.tokenizer"]
    rules = [settings.source_normalization or settings.normalization, settings.normalization]
    texts = list(split_sides(train))
    if not settings.separate_vocabularies:
        if rules[0] == rules[1]:
            files = files[:1]
        elif rules[0] != "identity":
            texts[0] = [normalize(rules[0], text) for text in texts[0]]
        texts = [texts[0] + texts[1]]
    count = len(texts)  # of vocabularies, which the last files hold
    for file, side, rule in zip(files[-count:], texts, rules[-count:], strict=True):
        if not file.exists():
            copy_or(settings, file, lambda: train_subwords(side, rule, settings))  # noqa: B023
    if not files[0].exists():  # the pieces of the targets, and more that is replaced
        target: Any = load_tokenizer(files[1])
        options: dict[str, Any] = dict(normalization=rules[0], lowercase=settings.lowercase)
        copy_or(settings, files[0], lambda: SentencePieceTokenizer(target.model, **options))
    learned = [load_tokenizer(file) for file in files]
    for tokenizer in learned[:count]:
        if tokenizer.vocab_size < settings.vocab_size:
            say(
                f"  the texts allow {tokenizer.vocab_size:,} pieces, fewer than the "
                f"{settings.vocab_size:,} asked for: going on with these"
            )
    return learned[0], learned[-1]


def train_subwords(texts: list[str], rule: str, settings: Settings) -> SentencePieceTokenizer:
    """Learns a vocabulary of subwords."""
    count = min(len(texts), settings.input_sentence_size or len(texts))
    say(f"Learning a vocabulary of {settings.vocab_size:,} pieces from {count:,} texts ...")
    options: dict[str, Any] = {
        "lowercase": settings.lowercase,
        "normalization": rule,
        "user_defined_symbols": settings.user_defined_symbols,
        "input_sentence_size": settings.input_sentence_size or None,
    }
    if settings.format == "dates":
        options = {"lossless": True, "split_digits": True}
    return SentencePieceTokenizer.train(texts, settings.vocab_size, shrink_to_fit=True, **options)


def copy_both(path: Path, settings: Settings, train: list[Pair]) -> tuple[Tokenizer, Tokenizer]:
    """The tokenizers of an imported model, which learn nothing from the pairs."""
    files = [path / f"{side}.tokenizer" for side in ("source", "target")]
    for file in files:
        if not file.exists():
            load_tokenizer(Path(settings.start_from) / file.name).save(file)
    source, target = map(load_tokenizer, files)
    return source, target


def copy_or(settings: Settings, file: Path, make: Callable[[], Tokenizer]) -> None:
    """Saves the tokenizer of the run to start or learn from, or else what `make` returns."""
    other = settings.start_from or settings.teacher
    made = load_tokenizer(Path(other) / file.name) if other else make()
    made.save(file)
