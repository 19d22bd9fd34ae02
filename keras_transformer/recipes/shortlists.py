"""Learns the shortlist of a run from pairs of texts, for an export with a large vocabulary."""

from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from keras_transformer import arguments
from keras_transformer.decoding import Shortlist
from keras_transformer.recipes.corpus import split_sides
from keras_transformer.recipes.parallel_text import read_pairs
from keras_transformer.recipes.run_files import check_run
from keras_transformer.recipes.runs import load_tokenizers
from keras_transformer.reservoir import sample_evenly

if TYPE_CHECKING:
    from keras_transformer.text.tokenizer import Tokenizer

MOST_PAIRS = 100_000
TEXTS_AT_ONCE = 10_000


def learn_shortlist(
    path: str | PathLike[str],
    source_file: str | PathLike[str],
    target_file: str | PathLike[str],
    most_pairs: int = MOST_PAIRS,
) -> Shortlist:
    """Returns the `Shortlist` of a run's vocabularies, learned from the lines of two files.

    Args:
        path: the directory of a run.
        source_file: source texts, one a line, plain or gzip.
        target_file: their translations.
        most_pairs: how many of the pairs are read, a sample.

    Raises:
        ValueError: when `path` is not a run, or for files of other lengths.

    Example:

    >>> learn_shortlist("nowhere", "train.en", "train.de")
    Traceback (most recent call last):
        ...
    ValueError: nowhere: there is no such directory. Check the path
    """
    path = Path(path)
    check_run(path)
    most_pairs = arguments.positive_integer("most_pairs", most_pairs)
    source, target = load_tokenizers(path)
    pairs = sample_evenly(read_pairs(source_file, target_file), most_pairs)
    sources, targets = split_sides(pairs)
    sizes = source.vocab_size, target.vocab_size
    return Shortlist.learn(tokenize_texts(source, sources), tokenize_texts(target, targets), *sizes)


def tokenize_texts(tokenizer: "Tokenizer", texts: list[str]) -> list[list[int]]:
    """The ids of each text."""
    rows: list[list[int]] = []
    for start in range(0, len(texts), TEXTS_AT_ONCE):
        rows += tokenizer.tokenize(texts[start : start + TEXTS_AT_ONCE]).to_list()
    return rows
