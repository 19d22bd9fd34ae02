"""The pairs of a training run: for training, for validation and for the test."""

import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from keras_transformer.process_group import first_alone, tell_others
from keras_transformer.recipes.large_files import (
    LargeFiles,
    are_large,
    explain_lists,
    read_large_files,
    stay_on_disk,
)
from keras_transformer.recipes.pair_formats import read_file
from keras_transformer.recipes.parallel_text import Pair, hold_out, read_pairs, without_empty
from keras_transformer.recipes.run_directory import say
from keras_transformer.recipes.settings import Settings

NUM_DATE_PAIRS = 30_000


class Corpus(NamedTuple):
    """Pairs of texts: `train`, `validation` and `test`.

    With `large` files, `train` is a sample of their pairs, and `held_out` are sources that are
    not trained on.
    """

    train: list[Pair]
    validation: list[Pair]
    test: list[Pair]
    large: LargeFiles | None = None
    held_out: tuple[str, ...] = ()

    @property
    def num_train(self) -> int:
        """The number of pairs for training."""
        return self.large.num_pairs if self.large else len(self.train)

    @property
    def digest(self) -> str:
        """16 characters that tell the pairs for training and validation from others."""
        train = [(self.large.digest, *self.held_out)] if self.large else self.train
        return digest_pairs([*train, *self.validation])


def read_corpus(settings: Settings, folder: Path | None = None) -> Corpus:
    """Reads or makes the pairs, and says how many there are; large files stay on disk.

    What has no file is held out of the training pairs: 1 % of texts and 5 % of other formats, at
    most 1,000.

    Args:
        settings: of the run.
        folder: where large files are kept as arrays; None reads them into lists too.

    Raises:
        ValueError: for a file that is not there, or is not in the format.
    """
    say("Reading the texts ...")
    if settings.format == "dates":
        corpus = make_dates(settings)
    else:
        large = None
        if folder is not None and tell_others(stay_on_disk(settings)):
            say("  the training files are large, several or filtered: they stay on disk")
            told = settings, folder
            large = first_alone(lambda: read_large_files(*told)) or read_large_files(*told)
            train = large.sample
        else:
            if folder is not None and are_large(settings):
                why = explain_lists(settings)
                say(f"  the training files are large, and are read into lists: {why}")
            train = read_part(settings.train, settings.format, "training")
        given = train
        share = 0.01 if settings.format == "text" else 0.05
        if settings.test:
            test = read_part(settings.test, settings.format, "test")
        else:
            train, test = hold_out(train, share, seed=settings.seed)
            say("  no test files: held out some training pairs")
        if settings.validation:
            validation = read_part(settings.validation, settings.format, "validation")
        else:
            train, validation = hold_out(train, share, seed=settings.seed + 1)
            say("  no validation files: held out some training pairs")
        corpus = Corpus(train, validation, test)
        if large:
            left = {source for source, _ in train}
            held_out = sorted({source for source, _ in given} - left)
            corpus = Corpus(train, validation, test, large, tuple(held_out))
    say(
        f"  {corpus.num_train:,} pairs to train, {len(corpus.validation):,} to validate, "
        f"{len(corpus.test):,} to test"
    )
    return corpus


def make_dates(settings: Settings) -> Corpus:
    """Dates, times and numbers of two locales."""
    from keras_transformer.recipes.dates import date_pairs, split_pairs

    locales = settings.source_locale, settings.target_locale
    pairs = date_pairs(NUM_DATE_PAIRS, *locales, seed=settings.seed)
    return Corpus(*split_pairs(pairs, num_validation=1000, num_test=2000, seed=settings.seed))


def read_part(files: Sequence[str], format: str, part: str) -> list[Pair]:
    """The pairs of one or two files; pairs with an empty side are left out but of a test."""
    if len(files) == 1:
        return read_file(files[0], format)
    pairs = read_pairs(*files)
    if part == "test":  # its translations are line by line those of the file
        return pairs
    pairs, num_empty = without_empty(pairs)
    if num_empty:
        say(f"  {num_empty:,} {part} pairs have an empty line and are left out")
    if not pairs:
        raise ValueError(f"{files[0]}: no pair has text on both sides. Check both files.")
    return pairs


def split_sides(pairs: Iterable[Pair]) -> tuple[list[str], list[str]]:
    """The sources and the targets of pairs."""
    pairs = list(pairs)
    return [source for source, _ in pairs], [target for _, target in pairs]


def digest_pairs(pairs: Iterable[Sequence[str]]) -> str:
    """Returns 16 characters that tell these pairs of texts from others."""
    digest = hashlib.sha256()
    for pair in pairs:
        digest.update(repr(tuple(pair)).encode("utf-8", "backslashreplace"))
    return digest.hexdigest()[:16]
