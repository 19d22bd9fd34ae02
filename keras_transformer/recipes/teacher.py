"""What a student learns from: training sources with translations by another run, its teacher."""

import itertools
import os
import shutil
from collections.abc import Iterable, Iterator
from os import PathLike
from pathlib import Path

from keras_transformer.atomic_files import new_directory, new_file
from keras_transformer.line_files import LONGEST_LINE, each_line
from keras_transformer.recipes.corpus import Corpus, split_sides
from keras_transformer.recipes.parallel_text import read_lines, without_empty
from keras_transformer.recipes.run_directory import say
from keras_transformer.recipes.run_files import newest_export

LINES_PER_PART = 5_000


def translate_corpus(teacher: str | PathLike[str], corpus: Corpus, folder: Path) -> Corpus:
    """Returns the corpus with translations by the teacher in place of the targets of training.

    Validation and test stay as they are. The teacher's newest export translates, with its search.
    The sources are files of some thousand lines. After a stop the same call goes on with the files
    that are not finished. What is finished is in `folder`, and needs the teacher no more.

    Args:
        teacher: the directory of a run with an export.
        corpus: its pairs; large files stay on disk.
        folder: where translations are kept.

    Raises:
        ValueError: when the teacher has no export, or translates nothing.

    Reference: Kim and Rush 2016, "Sequence-Level Knowledge Distillation", section 3.2.
    """
    whole = folder / f"teacher-{corpus.digest}.txt"
    if not whole.exists():
        translate_sources(newest_export(teacher), corpus, whole)
    if corpus.large:
        ((source_file, _),) = corpus.large.files
        return corpus._replace(large=corpus.large._replace(files=[(source_file, str(whole))]))
    sources, _ = split_sides(corpus.train)
    pairs, num_empty = without_empty(list(zip(sources, read_lines(whole), strict=True)))
    if not pairs:
        raise ValueError(f"{teacher} has an empty translation of every source. Train it longer.")
    if num_empty:
        say(f"  {num_empty:,} sources have no translation by the teacher and are left out")
    return corpus._replace(train=pairs)


def translate_sources(export: Path, corpus: Corpus, whole: Path) -> None:
    """Writes the translations of the training sources, a line each."""
    from keras_transformer.serving import translate_shards
    from keras_transformer.serving.shards import digest_export

    folder = whole.with_name(f"{whole.stem}-{digest_export(os.fspath(export))}")
    sources, translations = folder / "sources", folder / "translations"
    if not sources.exists():
        with new_directory(sources) as written:
            write_parts(read_sources(corpus), Path(written))
    parts = sorted(sources.iterdir())
    say(
        f"{export} translates {corpus.num_train:,} training sources, in parts of "
        f"{LINES_PER_PART:,} ..."
    )
    if translate_shards(export, parts, translations).busy:
        raise ValueError(f"{folder} must not be in use. Received: another command writes there")
    with new_file(whole) as scratch, open(scratch, "wb") as joined:
        for part in parts:
            with open(translations / part.name, "rb") as stream:
                shutil.copyfileobj(stream, joined)
    for left in whole.parent.glob(f"{whole.stem}-*"):  # another teacher may have begun too
        shutil.rmtree(left)


def read_sources(corpus: Corpus) -> Iterator[bytes]:
    """Yields the training sources; of large files those of every line."""
    if corpus.large:
        yield from each_line(corpus.large.files[0][0], LONGEST_LINE)
    for source, _ in () if corpus.large else corpus.train:
        yield source.encode("utf-8")


def write_parts(lines: Iterable[bytes], folder: Path) -> None:
    """Writes lines to files of `LINES_PER_PART` lines, whose names are in their order."""
    left = iter(lines)
    parts = iter(lambda: list(itertools.islice(left, LINES_PER_PART)), [])
    for number, part in enumerate(parts):
        text = b"".join(line + b"\n" for line in part)
        (folder / f"{number:08}.txt").write_bytes(text)
