"""Files that stay on disk: a sample of their pairs, read once, and what is held out of them."""

import gzip
import importlib.util
import os
from pathlib import Path

import pytest

from keras_transformer.recipes import large_files
from keras_transformer.recipes.corpus import read_corpus
from keras_transformer.recipes.large_files import filter_pairs, read_large_files, stay_on_disk
from keras_transformer.recipes.settings import Settings


@pytest.fixture
def files(corpus):
    return str(corpus / "text.en"), str(corpus / "text.xx")


@pytest.fixture
def settings(files):
    return Settings.from_preset(train=files, backend="tensorflow", on_disk_from=0)


def test_files_are_large_by_their_bytes_where_a_corpus_serves(
    settings, files, monkeypatch, tmp_path
):
    assert stay_on_disk(settings)
    assert stay_on_disk(Settings.from_preset(train=files, backend="jax", on_disk_from=0))
    other = Settings.from_preset(train=files, both_directions=1, on_disk_from=0)
    assert not stay_on_disk(other)
    packed = [str(tmp_path / f"{side}.gz") for side in ("en", "xx")]
    for file in packed:
        with gzip.open(file, "wb") as opened:
            opened.write(b"a\n")
    # Of each of the two; gzip is taken for four times as long.
    for given, mebibytes in ((files, 128), (packed, 32)):
        for size, is_large in ((mebibytes - 1, False), (mebibytes, True)):
            monkeypatch.setattr(os.path, "getsize", lambda file: size * 2**20)  # noqa: B023
            assert stay_on_disk(Settings.from_preset(train=given)) == is_large
    monkeypatch.undo()
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert not stay_on_disk(settings)
    monkeypatch.undo()
    for backend in ("tensorflow", "jax"):
        assert stay_on_disk(Settings.from_preset(train=files, backend=backend, max_ratio=3))
    with pytest.raises(ValueError, match="nowhere: there is no such file"):
        stay_on_disk(Settings.from_preset(train=("nowhere", files[1]), backend="tensorflow"))


def test_several_corpora_stay_on_disk_and_their_lines_stay_in_each(files, tmp_path):
    given = {"backend": "tensorflow"}
    with pytest.raises(ValueError, match="nowhere: there is no such file"):
        stay_on_disk(Settings.from_preset(train=(*files, files[0], "nowhere"), **given))
    digests = set()
    for cut in (80, 120):  # the same lines in the same order
        parts = []
        for number, bounds in enumerate((slice(cut), slice(cut, None))):
            for side, file in zip("ab", files, strict=True):
                parts.append(str(tmp_path / f"{cut}-{number}.{side}"))
                lines = [*open_lines(file)][bounds]
                Path(parts[-1]).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        settings = Settings.from_preset(train=parts, **given)
        assert stay_on_disk(settings)
        found = read_large_files(settings, tmp_path / str(cut))
        assert (found.num_pairs, len(found.files)) == (200, 2)
        digests.add(found.digest)
    assert len(digests) == 2


def test_large_files_that_are_read_into_lists_say_why(files, tmp_path, capsys, monkeypatch):
    table = str(tmp_path / "pairs.tsv")
    Path(table).write_text("".join(f"a {n}\tb {n}\n" for n in range(200)), encoding="utf-8")
    given = {"backend": "tensorflow", "on_disk_from": 0}
    said = "the training files are large, and are read into lists: "

    def read(**options):
        read_corpus(Settings.from_preset(**{**given, **options}), tmp_path)
        return capsys.readouterr().out

    assert f"{said}one file has both sides. Give a file for each side" in read(train=table)
    assert f"{said}`both_directions` reads lists alone" in read(train=files, both_directions=1)
    assert said not in read(train=table, on_disk_from=1)
    assert said not in read(train=files)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert f"{said}TensorFlow and TF Text, which" in read(train=files)


def test_a_sample_is_read_once_and_tells_other_texts(files, tmp_path, monkeypatch):
    monkeypatch.setattr(large_files, "SAMPLE_SIZE", 50)

    def read(*files, **filters):
        return read_large_files(Settings.from_preset(train=files, **filters), tmp_path)

    first = read(*files)
    assert (first.num_pairs, len(first.sample)) == (200, 50)
    sources, targets = ([*open_lines(file)] for file in files)
    places = [sources.index(source) for source, _ in first.sample]
    assert all(
        targets[place] == target for place, (_, target) in zip(places, first.sample, strict=True)
    )
    with monkeypatch.context() as patch:
        patch.setattr(large_files, "_Reader", None)
        assert read(*files) == first
    assert read(*files, drop_duplicates=True, target_scripts=["Latin"])[:3] == first[:3]
    packed = tmp_path / "packed.gz"
    with open(files[0], "rb") as opened:
        packed.write_bytes(gzip.compress(opened.read()))
    again = read(packed, files[1])
    assert again[1:] == first[1:]
    changed = tmp_path / "changed"
    changed.write_text("".join(f"{line}!\n" for line in sources), encoding="utf-8")
    other = read(changed, files[1])
    assert other.digest != first.digest
    changed.write_text("a\n", encoding="utf-8")
    with pytest.raises(ValueError, match="changed has 1 lines and .* has 200"):
        read(changed, files[1])


def test_a_sample_of_long_pairs_is_smaller_and_that_of_others_the_same(
    files, tmp_path, monkeypatch
):
    settings = Settings.from_preset(train=files)
    monkeypatch.setattr(large_files, "SAMPLE_SIZE", 50)
    first = read_large_files(settings, tmp_path / "first").sample
    characters = sum(map(large_files.count_characters, first))
    monkeypatch.setattr(large_files, "SAMPLE_CHARACTERS", characters)
    half = read_large_files(settings, tmp_path / "second").sample
    assert sum(map(large_files.count_characters, half)) <= characters
    assert 10 < len(half) <= 50
    monkeypatch.setattr(large_files, "SAMPLE_CHARACTERS", 3 * characters)
    assert read_large_files(settings, tmp_path / "third").sample == first


def open_lines(file):
    with open(file, encoding="utf-8") as opened:
        yield from opened.read().split("\n")[:-1]


def test_what_is_held_out_has_no_source_in_common_with_the_rest(settings, tmp_path):
    found, lists = read_corpus(settings, tmp_path), read_corpus(settings)
    assert found[:3] == lists[:3]
    assert found.num_train == 200
    held_out = {source for source, _ in [*found.test, *found.validation]}
    assert set(found.held_out) == held_out
    assert found.digest != lists.digest
    assert read_corpus(settings, tmp_path).digest == found.digest


def test_a_sample_has_no_duplicates_and_no_other_scripts_where_they_are_filtered(files):
    pairs = [
        ("a", "b"),
        ("\u03b1", "b"),
        ("a", "\u03b2 c d"),
        ("a", "b"),
        ("1", "2"),
        ("a", "\u03b2 \u03b3 c"),
    ]
    given = {"train": files, "backend": "tensorflow"}
    latin = {"source_scripts": ("Latin",), "target_scripts": ("Latin",)}
    expected = {
        (): pairs,
        ("drop_duplicates",): [*pairs[:3], *pairs[4:]],
        ("source_scripts",): [pairs[0], *pairs[2:]],
        ("source_scripts", "target_scripts", "drop_duplicates"): [pairs[0], pairs[2], pairs[4]],
    }
    for names, kept in expected.items():
        options = {name: latin.get(name, True) for name in names}
        assert filter_pairs(pairs, Settings.from_preset(**given, **options)) == kept
    for scripts, rule in ((("Greek",), "must leave some pairs"), (("Lating",), "names of scripts")):
        settings = Settings.from_preset(**given, source_scripts=scripts)
        with pytest.raises(ValueError, match=rule):
            filter_pairs(pairs[:1], settings)
