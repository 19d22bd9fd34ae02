"""A prepared corpus gives what lists give, is found again, and goes on where it was stopped."""

import errno
import fcntl
import gzip
import itertools
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import keras
import numpy as np
import pytest

from keras_transformer import processes
from keras_transformer.batches import PairDataset, PreparedCorpus
from keras_transformer.batches.prepared_corpus import write_array
from keras_transformer.line_files import each_line
from keras_transformer.text import (
    CharacterTokenizer,
    SentencePieceTokenizer,
    corpus,
    corpus_parts,
    prepare_corpus,
    translation_dataset,
)
from tests.text.small_tokenizers import train

REPOSITORY = Path(__file__).resolve().parents[2]


def pairs_of(sentences, count, seed=1):
    """Gives pairs of word salads of several lengths."""
    draws = random.Random(seed)
    words = sorted({word for sentence in sentences for word in sentence.split()})

    def text():
        return " ".join(draws.choices(words, k=draws.randint(1, 9)))

    return [(text(), text()) for _ in range(count)]


def write(path, texts, pack=bytes):
    path.write_bytes(pack("".join(f"{text}\n" for text in texts).encode()))
    return path


def write_both(folder, pairs):
    """Writes pairs to two files."""
    sides = zip("uv", zip(*pairs, strict=True), strict=True)
    return [write(folder / name, side) for name, side in sides]


@pytest.fixture(scope="module")
def tokenizer():
    return train("bpe")


@pytest.fixture
def pairs(sentences):
    return pairs_of(sentences, 150)


@pytest.fixture
def files(pairs, tmp_path):
    sources, targets = zip(*pairs, strict=True)
    return write(tmp_path / "a.en", sources), write(tmp_path / "a.de.gz", targets, gzip.compress)


@pytest.fixture
def prepare(tmp_path, tokenizer):
    def run(*files, **options):
        options = {"workers": 1, "verbose": False, **options}
        return prepare_corpus(tmp_path / "corpora", *files, tokenizer, **options)

    return run


def arrays_of(dataset, epochs=2):
    """Gives all arrays of some epochs, as nested lists."""
    return [
        [part.tolist() for part in (source, target_in, target_out)]
        for _ in range(epochs)
        for (source, target_in), target_out in dataset.as_numpy_iterator()
    ]


def test_numpy_numbers_find_the_corpus_of_python_numbers(prepare, files):
    numbers = {"max_length": 9, "max_ratio": 2.5, "temperature": 1.0, "drop_duplicates": True}
    made = prepare(*files, **numbers)
    numpy_numbers = {name: np.asarray(value)[()] for name, value in numbers.items()}
    found = prepare(*files, **numpy_numbers, workers=np.int64(1), verbose=np.bool_(False))
    assert found.path == made.path


@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_batches_are_those_of_lists_to_the_bit(
    prepare, files, pairs, tokenizer, dropout, monkeypatch
):
    monkeypatch.setattr(corpus_parts, "LINES_PER_PART", 40)
    prepared = prepare(*files)
    assert (prepared.report.num_pairs, prepared.report.num_kept) == (150, 150)
    options = dict(
        tokens_per_batch=200,
        shuffle=True,
        seed=3,
        subword_dropout=dropout,
        max_shapes=3,
        verbose=False,
    )
    lists = translation_dataset(*zip(*pairs, strict=True), tokenizer, **options)
    from_disk = translation_dataset(prepared.sources, prepared.targets, tokenizer, **options)
    assert lists.report == from_disk.report
    assert lists.element_spec == from_disk.element_spec
    expected = arrays_of(lists)
    assert arrays_of(from_disk) == expected
    later = translation_dataset(
        prepared.sources, prepared.targets, tokenizer, first_epoch=1, **options
    )
    assert arrays_of(later, 1) == expected[len(expected) // 2 :]


def test_a_pair_dataset_reads_it_without_the_tokenizer(prepare, files, pairs, tokenizer):
    prepared = PreparedCorpus(prepare(*files).path)
    options = dict(tokens_per_batch=200, shuffle=True, seed=3, max_shapes=3, verbose=False)
    ids = [tokenizer.tokenize(list(side)).to_list() for side in zip(*pairs, strict=True)]
    lists, from_disk = (
        PairDataset(*ids, **options),
        PairDataset(prepared.sources, prepared.targets, **options),
    )
    assert lists.report == from_disk.report
    for index in range(len(lists)):
        for one, other in zip(*map(flat, (lists[index], from_disk[index])), strict=True):
            np.testing.assert_array_equal(one, other)
    assert isinstance(prepared.sources.flat.base, np.memmap)


def flat(batch):
    return [*batch[0], batch[1]]


def test_what_does_not_belong_together_is_refused(prepare, files, tokenizer):
    one, other = prepare(*files), prepare(*files, max_length=9)
    given = one.sources, one.targets
    with pytest.raises(ValueError, match=f"of corpus {one.digest} and another list"):
        translation_dataset(one.sources, ["a"] * 150, tokenizer)
    with pytest.raises(
        ValueError, match=f"of corpus {one.digest} and one of corpus {other.digest}"
    ):
        PairDataset(one.sources, other.targets)
    with pytest.raises(ValueError, match="must be prepared with the tokenizer that is given"):
        translation_dataset(*given, CharacterTokenizer("abc"))
    with pytest.raises(ValueError, match=r"other special ids .* Received: \(0, 3, 2\)"):
        PairDataset(*given, bos_id=3, eos_id=2)
    tagged = SentencePieceTokenizer(tokenizer.model, tags=["<x>"])
    with pytest.raises(ValueError, match="`source_tag` must be None for a prepared corpus"):
        translation_dataset(*given, tagged, source_tag="<x>")


def test_it_is_found_again_until_something_changes(prepare, files, monkeypatch):
    first = prepare(*files)
    monkeypatch.setattr(corpus.Tokenize, "__call__", None)
    assert prepare(*files).path == first.path
    os.utime(files[0], ns=(1, 1))  # the same contents at another time
    assert prepare(*files).path == first.path
    contents = first.path.with_name("contents.json")  # of an earlier version, without line counts
    known = json.loads(contents.read_text(encoding="utf-8"))
    older = json.dumps({path: found[:3] for path, found in known.items()})
    contents.write_text(older, encoding="utf-8")
    assert prepare(*files).path == first.path
    assert json.loads(contents.read_text(encoding="utf-8")) == known
    monkeypatch.undo()
    changes = [{"max_length": 20}, {"drop_duplicates": True}, {"held_out": ["x"]}, {"max_ratio": 9}]
    digests = {first.digest, *(prepare(*files, **change).digest for change in changes)}
    data = files[0].read_bytes()
    files[0].write_bytes(data[:-2] + b"!\n")
    digests.add(prepare(*files).digest)
    assert len(digests) == 6


def test_each_filter_counts_what_it_leaves_out(prepare, tmp_path, sentences):
    good = pairs_of(sentences, 5)
    kept = [*good, ("12", "34")]
    bad = [
        ("a\ud800", "b"),
        (" \u2003", "b"),
        ("a", ""),
        ("ein", "μια γλώσσα a"),
        ("secret", "b"),
        ("a man " * 40, "a man"),
        ("a man " * 9, "a"),
        good[0],
    ]
    sources, targets = zip(*kept, *bad, strict=True)
    files = [tmp_path / "s", tmp_path / "t"]
    for path, texts in zip(files, (sources, targets), strict=True):
        path.write_bytes("".join(f"{text}\n" for text in texts).encode("utf-8", "surrogatepass"))
    found = prepare(
        *files,
        max_length=60,
        max_ratio=4.5,
        target_scripts=["Latin"],
        drop_duplicates=True,
        held_out=["secret"],
    )
    assert found.report.left_out == {
        "no UTF-8": 1,
        "empty": 2,
        "of another script": 1,
        "held out": 1,
        "too long": 1,
        "uneven": 1,
        "duplicate": 1,
    }
    assert found.report.num_kept == len(kept)
    plain = prepare(*write_both(tmp_path, kept))
    np.testing.assert_array_equal(found.sources.flat, plain.sources.flat)
    np.testing.assert_array_equal(found.targets.lengths, plain.targets.lengths)


def test_a_line_longer_than_memory_bears_is_too_long(prepare, files, monkeypatch):
    monkeypatch.setattr(corpus_parts, "LONGEST_LINE", 30)
    report = prepare(*files).report
    lines = zip(*(lines_of(path) for path in files), strict=True)
    expected = sum(max(map(len, pair)) > 30 for pair in lines)
    assert report.left_out["too long"] == expected > 0


def lines_of(path):
    data = path.read_bytes()
    return (gzip.decompress(data) if path.suffix == ".gz" else data).splitlines()


def test_weights_and_temperature_say_how_often_a_pass_has_a_pair(
    prepare, tmp_path, sentences, tokenizer
):
    names = ("big", "small")
    parts = {"big": pairs_of(sentences, 90, seed=4), "small": pairs_of(sentences, 10, seed=5)}
    files = [
        [write(tmp_path / f"{name}{side}", [pair[side] for pair in parts[name]]) for name in names]
        for side in range(2)
    ]
    mixed = prepare(*files, weights=[1, 2.5])
    rows = [*parts["big"], *parts["small"], *parts["small"]]
    counts = [len(mixed.sources), mixed.report.num_rows, mixed.report.num_kept]
    assert counts == [115, 115, 100]
    ids = tokenizer.tokenize([source for source, _ in rows]).to_list()
    assert [mixed.sources[n] for n in range(110)] == ids
    small = {tuple(row) for row in ids[90:100]}
    assert all(tuple(mixed.sources[n]) in small for n in range(110, 115))
    # Of 90 and 10 pairs the shares are as 3 to 1 at temperature 2: 90 and 30.
    assert len(prepare(*files, temperature=2).sources) == 120
    assert len(prepare(*files).sources) == 100


def test_files_may_have_tags_of_their_own(tmp_path, sentences):
    plain = train("bpe")
    tagged = SentencePieceTokenizer(plain.model, tags=["<a>", "<b>"])
    pairs = pairs_of(sentences, 3)
    files = [
        [write(tmp_path / f"{name}{end}", side) for name in "ab"]
        for end, side in zip("st", zip(*pairs, strict=True), strict=True)
    ]
    found = prepare_corpus(
        tmp_path / "c", *files, tagged, target_tags=["<a>", "<b>"], workers=1, verbose=False
    )
    firsts = [found.targets[n][0] for n in range(6)]
    assert firsts == [tagged.tag_id("<a>")] * 3 + [tagged.tag_id("<b>")] * 3


@pytest.mark.parametrize("target_tag", [None, "<b>"])
def test_a_tag_before_an_empty_text_is_no_text_in_lists_and_in_files(
    tmp_path, sentences, target_tag
):
    model = train("bpe").model
    tokenizer = SentencePieceTokenizer(model, tags=["<a>", "<b>"], leading_tags=True)
    kept = pairs_of(sentences, 3)
    empty = [("", "a man"), ("a man", " "), ("<b>", "a man"), ("<b> ", "a man"), ("", "")]
    sides = [*zip(*kept[:1], *empty, *kept[1:], strict=True)]
    tags = {"source_tag": "<a>", "target_tag": target_tag}
    options = {"tokens_per_batch": 256, "seed": 1, "verbose": False}
    lists = translation_dataset(*sides, tokenizer, **options, **tags)
    files = write_both(tmp_path, [*kept[:1], *empty, *kept[1:]])
    given = {f"{name}s": tag for name, tag in tags.items() if tag}
    found = prepare_corpus(tmp_path / "c", *files, tokenizer, **given, workers=1, verbose=False)
    prepared = translation_dataset(found.sources, found.targets, tokenizer, **options)
    assert (lists.report.num_kept, lists.report.num_empty) == (3, 5)
    assert found.report.left_out["empty"] == 5
    for one, other in zip(lists, prepared, strict=True):
        for ids, same in zip(keras.tree.flatten(one), keras.tree.flatten(other), strict=True):
            np.testing.assert_array_equal(ids, same)


def test_bad_arguments_are_refused_in_one_line(prepare, files, tmp_path):
    short = write(tmp_path / "short", ["a"] * 7)
    cases = [
        ((files[0], tmp_path / "none"), {}, "there is no such file"),
        ((files[0], short), {}, r"a\.en has 150 lines and .*short has 7"),
        (files, {"max_ratio": 0.5}, "`max_ratio` must be a number from 1 to inf"),
        (files, {"temperature": 0}, "`temperature` must be a number from 1"),
        (files, {"weights": [1, 2]}, r"`weights` must be one for each of 1 files"),
        (files, {"weights": [1], "temperature": 2}, "give `weights` or `temperature`, not both"),
        (files, {"source_scripts": ["Lating"]}, "names of scripts in Unicode.*'Lating'"),
        (files, {"source_scripts": "Latin"}, "must be a list of names"),
        (files, {"source_tags": ["a", "b"]}, "`source_tags` must be one for each of 1 files"),
        (files, {"max_length": 1}, r"at least one pair must be left.*150 too long"),
        (files, {"workers": 0}, "`workers` must be a positive integer"),
        (files, {"held_out": "a man"}, "`held_out` must be a list of texts. Received: .*'a man'"),
        (files, {"held_out": b"a man"}, "`held_out` must be a list of texts"),
        (files, {"held_out": [b"a man"]}, "`held_out` must be a list of texts"),
    ]
    for given, options, said in cases:
        with pytest.raises(ValueError, match=said):
            prepare(*given, **options)
    left = names_of(tmp_path / "corpora")
    assert [name for name in left if name.endswith(".parts")] == []


def test_what_was_done_before_an_error_is_not_done_again(prepare, files, monkeypatch):
    monkeypatch.setattr(corpus_parts, "LINES_PER_PART", 40)
    tokenize, calls = corpus.Tokenize.__call__, []

    def fail_at_third(self, part, tell):
        calls.append(part.start)
        if len(calls) == 3:
            raise KeyboardInterrupt
        tokenize(self, part, tell)

    monkeypatch.setattr(corpus.Tokenize, "__call__", fail_at_third)
    with pytest.raises(KeyboardInterrupt):
        prepare(*files)
    found = prepare(*files)
    assert calls == [0, 40, 80, 80, 120]
    assert names_of(found.path.parent) == {found.digest, f"{found.digest}.lock", "contents.json"}


def test_files_of_other_lengths_are_refused_before_anything_is_tokenized(
    prepare, files, tmp_path, monkeypatch
):
    monkeypatch.setattr(corpus.Tokenize, "__call__", None)
    data = gzip.decompress(files[1].read_bytes())
    cases = {
        "short": (gzip.compress(data.partition(b"\n")[2]), "has 150 lines and .* has 149"),
        "long": (data + b"x", "has 150 lines and .* has 151"),
        "damaged": (gzip.compress(data)[:-9], "damaged: cannot be read"),
    }
    for name, (written, said) in cases.items():
        (tmp_path / name).write_bytes(written)
        with pytest.raises(ValueError, match=said):
            prepare(files[0], tmp_path / name)
    assert names_of(tmp_path / "corpora") == {"contents.json"}


@pytest.mark.parametrize("data", [b"", b"\n", b"a", b"a\r\nb", b"\n\n", b"a\rb\x0c\n", b"a\n" * 99])
def test_lines_are_counted_as_they_are_read(tmp_path, data, monkeypatch):
    monkeypatch.setattr(corpus, "BLOCK_BYTES", 7)
    path = tmp_path / "file"
    for pack in (bytes, gzip.compress):
        for mark in (b"", b"\xef\xbb\xbf"):
            path.write_bytes(pack(mark + data))
            assert corpus._count_lines(path) == len(list(each_line(path, 10)))


def test_long_lines_make_small_parts_and_the_same_corpus(prepare, files, monkeypatch, tmp_path):
    whole = prepare(*files)
    tokenize, sizes = corpus_parts.Tokenize.__call__, []

    def measured(self, part, tell):
        sizes.append(sum(map(len, [*part.sources, *part.targets])))
        tokenize(self, part, tell)

    monkeypatch.setattr(corpus_parts.Tokenize, "__call__", measured)
    monkeypatch.setattr(corpus_parts, "PART_BYTES", 900)
    whole.path.rename(tmp_path / "whole")
    parts = prepare(*files)
    assert parts.path == whole.path
    assert len(sizes) > 5
    assert max(sizes) < 900 + 2 * 100
    assert names_of(parts.path) == names_of(tmp_path / "whole")
    for name in names_of(parts.path):
        assert (parts.path / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_a_part_that_another_size_has_made_is_not_taken(prepare, files, monkeypatch):
    """A call is stopped, and the next one, perhaps of another version, reads other parts."""
    expected = prepare(*files, max_length=99).sources.flat
    monkeypatch.setattr(corpus, "_join", None)
    with pytest.raises(TypeError):
        prepare(*files)
    monkeypatch.undo()
    monkeypatch.setattr(corpus_parts, "PART_BYTES", 900)
    found = prepare(*files)
    np.testing.assert_array_equal(found.sources.flat, expected)


def test_a_full_disk_is_told_and_the_next_call_goes_on(prepare, sentences, tmp_path, monkeypatch):
    monkeypatch.setattr(corpus_parts, "LINES_PER_PART", 40)
    files = write_both(tmp_path, pairs_of(sentences, 2000))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, hard))
    try:
        with pytest.raises(OSError, match=r"source\.ids\.npy: cannot be written .* call goes on"):
            prepare(*files)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    (parts,) = tmp_path.glob("corpora/*.parts")
    assert len(names_of(parts)) == 50
    monkeypatch.setattr(corpus_parts.Tokenize, "__call__", None)
    assert prepare(*files).report.num_kept == 2000


FULL_DISK = """
import pathlib, sys
from keras_transformer.batches.prepared_corpus import write_array
import numpy as np
try:
    write_array(pathlib.Path(sys.argv[1], "a.npy"), (10**6,), "uint16", [np.ones(10**6)])
except OSError as error:
    print(error.errno, error)
"""


@pytest.mark.slow
def test_an_array_on_a_full_disk_is_an_error_and_no_signal(tmp_path):
    """An array mapped into memory would end the process by SIGBUS there."""
    mount = ["unshare", "-r", "-m", "sh", "-c"]
    script = 'mount -t tmpfs -o size=1m tmpfs "$0" && exec "$@"'
    if subprocess.run([*mount, script, tmp_path, "true"], check=False).returncode:
        pytest.skip("no file system can be mounted")
    command = [*mount, script, tmp_path, sys.executable, "-c", FULL_DISK, tmp_path]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    done = subprocess.run(
        command, env=environment, capture_output=True, encoding="utf-8", check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"{errno.ENOSPC} ")
    assert "a.npy: cannot be written (No space left on device)" in done.stdout


def test_an_array_is_written_as_numpy_writes_it(tmp_path):
    array = np.arange(1000, dtype="int32")
    np.save(tmp_path / "whole.npy", array)
    write_array(tmp_path / "parts.npy", array.shape, array.dtype, np.split(array, [3, 3, 900]))
    assert (tmp_path / "parts.npy").read_bytes() == (tmp_path / "whole.npy").read_bytes()


def names_of(output):
    return {path.name for path in output.iterdir()}


def test_what_is_left_behind_the_join_is_removed(prepare, files, monkeypatch, tmp_path):
    """A call that is killed between the last two steps leaves the parts and the whole corpus."""
    remove = shutil.rmtree

    def stop(path, ignore_errors):
        if path.suffix == ".parts":
            raise KeyboardInterrupt
        remove(path, ignore_errors=ignore_errors)

    monkeypatch.setattr(shutil, "rmtree", stop)
    with pytest.raises(KeyboardInterrupt):
        prepare(*files)
    (digest,) = (path.stem for path in (tmp_path / "corpora").glob("*.parts"))
    kept = {digest, f"{digest}.lock", "contents.json"}
    assert names_of(tmp_path / "corpora") == {*kept, f"{digest}.parts"}
    monkeypatch.undo()
    assert prepare(*files).digest == digest
    assert names_of(tmp_path / "corpora") == kept


def test_a_call_that_waits_for_another_says_so(prepare, files, capsys):
    made = prepare(*files)
    lock = made.path.with_suffix(".lock")
    with ThreadPoolExecutor() as pool, open(lock, "wb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        waiting = pool.submit(prepare, *files, verbose=True)
        printed, deadline = "", time.monotonic() + 60
        while "\n" not in printed and time.monotonic() < deadline:
            time.sleep(0.01)
            printed += capsys.readouterr().err
        expected = "another process prepares this corpus: waiting until it ends"
        assert printed == f"{expected} ({lock})\n"
        assert not waiting.done()
        fcntl.flock(held, fcntl.LOCK_UN)
        assert waiting.result().path == made.path
    prepare(*files, verbose=True)
    assert expected not in capsys.readouterr().err


def test_a_process_that_dies_leaves_no_short_corpus(prepare, files, monkeypatch):
    monkeypatch.setattr(corpus_parts, "LINES_PER_PART", 40)
    start = processes.start

    def start_dying(*given):
        process = start(*given)
        process.kill()
        process.wait()
        return process

    monkeypatch.setattr(processes, "start", start_dying)
    with pytest.raises(ValueError, match=r"prepares .* ended by signal 9.* same call goes on"):
        prepare(*files, workers=2)
    assert prepare(*files).report.num_pairs == 150


PROGRAM = """
import os, signal, sys
from keras_transformer.text import corpus, corpus_parts, load_tokenizer
corpus_parts.LINES_PER_PART = 300
if sys.argv[5:]:
    corpus.write_corpus = lambda *given: os.kill(os.getpid(), signal.SIGKILL)
corpus.prepare_corpus(*sys.argv[1:4], load_tokenizer(sys.argv[4]), workers=2)
"""


@pytest.mark.slow
def test_a_call_that_is_killed_while_it_joins_leaves_nothing(
    prepare, files, tokenizer, tmp_path, monkeypatch
):
    monkeypatch.setattr(corpus_parts, "LINES_PER_PART", 300)  # as in the program: the digest has it
    tokenizer.save(tmp_path / "tokenizer")
    output = tmp_path / "corpora"
    command = [sys.executable, "-c", PROGRAM, output, *files, tmp_path / "tokenizer", "join"]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    for _ in range(2):
        killed = subprocess.run(command, env=environment, check=False, stderr=subprocess.DEVNULL)
        assert killed.returncode == -signal.SIGKILL
        assert len(list(output.glob("*.parts/joined/source.ids.npy"))) == 1
        (digest,) = (path.stem for path in output.glob("*.parts"))
        assert names_of(output) == {f"{digest}.parts", f"{digest}.lock", "contents.json"}
    made = prepare(*files)
    assert made.report.num_kept == 150
    assert names_of(output) == {made.digest, f"{made.digest}.lock", "contents.json"}


@pytest.mark.slow
def test_processes_that_are_killed_cost_what_they_were_doing(
    tmp_path, sentences, tokenizer, monkeypatch
):
    """The program is killed in the middle; another call makes the rest, equal to one process's."""
    pairs = pairs_of(sentences, 6000)
    files = write_both(tmp_path, pairs)
    tokenizer.save(tmp_path / "tokenizer")
    output = tmp_path / "killed"
    command = [sys.executable, "-c", PROGRAM, output, *files, tmp_path / "tokenizer"]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    with subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL) as running:
        while len(done := list(output.glob("*.parts/*.npz"))) < 2:
            assert running.poll() is None
            time.sleep(0.02)
        running.send_signal(signal.SIGKILL)
    assert len(done) < 20
    times = {path.name: path.stat().st_mtime_ns for path in output.glob("*.parts/*.npz")}
    monkeypatch.setattr(corpus_parts, "LINES_PER_PART", 300)
    tokenize, calls = corpus.Tokenize.__call__, itertools.count()

    def counted(self, part, tell):
        assert self.locate(part).name not in times
        next(calls)
        tokenize(self, part, tell)

    monkeypatch.setattr(corpus.Tokenize, "__call__", counted)
    options = dict(workers=1, verbose=False)
    found = prepare_corpus(output, *files, tokenizer, **options)
    assert next(calls) == 20 - len(times)
    monkeypatch.setattr(corpus.Tokenize, "__call__", tokenize)
    other = prepare_corpus(tmp_path / "whole", *files, tokenizer, **options)
    for name in ("ids", "starts", "lengths"):
        for side in ("source", "target"):
            file = f"{side}.{name}.npy"
            assert (found.path / file).read_bytes() == (other.path / file).read_bytes()
