"""A collection: rows keep order and count, what is finished stays, and deaths are survived."""

import fcntl
import gzip
import itertools
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from keras_transformer.serving import shard_files, shard_inputs, shards, translate_shards
from tests.serving.trained import translator, words

REPOSITORY = Path(__file__).resolve().parents[2]
OWN = {"translate_shards.json", "translate_shards.inputs"}  # beside the translations


@pytest.fixture(scope="module")
def texts():
    return [*words(40, seed=9), "", "\u00e9", *words(3, seed=8)]


@pytest.fixture(scope="module")
def expected(texts):
    return translator()(texts)


@pytest.fixture(scope="module")
def opened():
    """What was opened before: an export is loaded once for all tests."""
    return {}


@pytest.fixture
def translate(exported, tmp_path, opened, monkeypatch):
    """Translates files of `tmp_path` into its folder `out`."""
    open_export = shards.open_export

    def open_once(job):
        options = job[5:]
        if options not in opened:
            opened[options] = open_export(job)
        return opened[options]

    monkeypatch.setattr(shards, "open_export", open_once)

    def run(*names, **options):
        files = [tmp_path / name for name in names]
        options = {"batch_size": np.int64(7), "verbose": np.bool_(False), **options}
        return translate_shards(exported, files, tmp_path / "out", **options)

    return run


def test_progress_tells_the_time_that_files_of_the_same_size_will_take(monkeypatch, capsys):
    clock = iter([0.0, 60.0, 120.0, 180.0])
    monkeypatch.setattr(shards.time, "monotonic", lambda: next(clock))
    progress = shards.Progress(4, verbose=True)  # begun at 0
    progress.rows = 30
    assert progress.line() == "0 of 4 files, 30 rows, 0 a second"
    progress.rows = 100
    progress.count_file()
    # 4 files have 400 rows: 300 more take three times the 120 seconds of the first 100.
    assert progress.line() == "1 of 4 files, 100 rows, 1 a second, about 6 min left"
    progress.done = 4
    assert progress.line() == "4 of 4 files, 100 rows, 1 a second"


def lines_of(path):
    data = path.read_bytes()
    data = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
    assert data == b"" or data.endswith(b"\n")
    return data.decode().split("\n")[:-1]


def names_of(folder):
    return {path.name for path in folder.iterdir()}


def objects_of(path):
    return [json.loads(line) for line in lines_of(path)]


def test_text_keeps_its_order_and_bad_lines_their_place(translate, texts, expected, tmp_path):
    bad = b"ab\xff", b"a" * 2000
    data = b"\n".join([*(text.encode() for text in texts), *bad, b"abc\r"])
    (tmp_path / "a.txt").write_bytes(data)
    (tmp_path / "b.txt.gz").write_bytes(gzip.compress(b"\xef\xbb\xbf" + data + b"\n"))
    (tmp_path / "c.txt").write_bytes(b"")
    report = translate("a.txt", "b.txt.gz", "c.txt")
    count = len(texts) + 3
    assert report == (3, 0, 0, 2 * count, 4)
    for name in ("a.txt", "b.txt.gz"):
        assert lines_of(tmp_path / "out" / name) == [*expected, "", "", "CBA"]
        wrong = objects_of(tmp_path / "out" / f"{name}.wrong.jsonl")
        assert [(row["row"], row["reason"]) for row in wrong] == [
            (count - 2, "is not valid UTF-8"),
            (count - 1, "is longer than the model reads"),
        ]
        assert wrong[0]["input"] == "ab\\xff"
    assert (tmp_path / "out" / "c.txt").read_bytes() == b""
    sides = {"a.txt.wrong.jsonl", "b.txt.gz.wrong.jsonl"}
    assert names_of(tmp_path / "out") == {"a.txt", "b.txt.gz", "c.txt", *OWN, *sides}


def test_json_keeps_its_other_fields(translate, tmp_path):
    rows = [
        ({"id": 1, "text": "abc", "more": ["é"]}, "CBA"),
        ({"text": 5}, None),
        ({"id": 2}, None),
        ({"id": "\ud800", "text": "ab\ncd"}, translator()(["ab\ncd"])[0]),
        ({"text": "\ud800"}, None),
    ]
    lines = [json.dumps(row) for row, _ in rows] + ["{", "[1]", "", ""]
    (tmp_path / "a.jsonl").write_text("\n".join(lines), encoding="utf-8")
    report = translate("a.jsonl", field="text", output_field="done")
    assert report[3:] == (8, 6)
    found = objects_of(tmp_path / "out" / "a.jsonl")
    assert found[:5] == [{**row, "done": translation} for row, translation in rows]
    assert found[5:] == [{"done": None}] * 3
    wrong = objects_of(tmp_path / "out" / "a.jsonl.wrong.jsonl")
    assert [row["row"] for row in wrong] == [2, 3, 5, 6, 7, 8]
    assert [row["reason"] for row in wrong[:2]] == [
        "its field 'text' is not a string",
        "its field 'text' is missing",
    ]


EXACT = [  # the object up to its last brace, and why it has no translation
    (b'{"a": 1e400, "b": 0.1000000000000000055511, "c": -0, "text": "abc"', ""),
    (b' {"a":1,"a":{"b":1,"b":2},"text":"abc" , "c":[1.50, NaN, -Infinity] ', ""),
    (b'{"a": %b, "text": "abc", "\\u00e9": "\xc3\xa9\\/"' % (b"9" * 5000), ""),
    (b'{"text": "abc", "a": "\\ud800"', ""),
    (b'{"text": "abc", "text": "abd"', "its field 'text' is there 2 times"),
    (b'{"text": 1e400', "its field 'text' is not a string"),
    (b'{"text": {"text": "a"}', "its field 'text' is not a string"),
    (b"{ ", "its field 'text' is missing"),
]


def test_json_keeps_its_other_members_as_they_are_written(translate, tmp_path):
    ends = itertools.cycle([b"}", b"}\t \r"])
    (tmp_path / "a.jsonl").write_bytes(
        b"".join(line + end + b"\n" for (line, _), end in zip(EXACT, ends, strict=False))
        + b"[" * 200_000
    )
    report = translate("a.jsonl", field="text", output_field="\u00e9\udc80")
    assert report[3:] == (len(EXACT) + 1, 5)
    lines = (tmp_path / "out" / "a.jsonl").read_bytes().split(b"\n")
    for line, (kept, reason) in zip(lines, EXACT, strict=False):
        comma = b"" if kept == b"{ " else b", "
        found = b"null" if reason else b'"CBA"'
        assert line == kept + comma + b'"\xc3\xa9\\udc80": ' + found + b"}"
    wrong = objects_of(tmp_path / "out" / "a.jsonl.wrong.jsonl")
    reasons = [reason for _, reason in EXACT if reason]
    assert [row["reason"] for row in wrong] == [*reasons, "is nested too deeply"]


def test_parquet_keeps_its_other_columns(
    translate, exported, texts, expected, tmp_path, monkeypatch
):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    monkeypatch.setattr(shard_files, "ROWS_PER_GROUP", 20)
    table = pyarrow.table({"n": range(len(texts) + 1), "text": [None, *texts]})
    parquet.write_table(table, tmp_path / "a.parquet", row_group_size=11)
    report = translate("a.parquet", field="text")
    assert report[3:] == (len(texts) + 1, 1)
    found = parquet.read_table(tmp_path / "out" / "a.parquet")
    assert found.drop_columns("translation").equals(table)
    assert found.column("translation").to_pylist() == [None, *expected]
    for field, said in (("n", "must hold strings"), ("m", "has no column 'm'. Its columns are n")):
        with pytest.raises(ValueError, match=said):
            translate_shards(
                exported, [tmp_path / "a.parquet"], tmp_path / field, field=field, verbose=False
            )


@pytest.mark.parametrize("kind", ["string", "large_string", "string_view"])
def test_a_text_of_parquet_that_is_no_utf_8_costs_its_row_alone(translate, tmp_path, kind):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    column = pyarrow.array([b"abc", b"ab\xff", None, b"bc"], kind.replace("string", "binary"))
    column = column.view(kind)  # without a check, as other writers of Parquet do
    parquet.write_table(pyarrow.table({"text": column}), tmp_path / "a.parquet")
    assert translate("a.parquet", field="text")[3:] == (4, 2)
    found = parquet.read_table(tmp_path / "out" / "a.parquet")
    assert found.column("translation").to_pylist() == ["CBA", None, None, "CB"]
    assert found.column("text").cast(kind.replace("string", "binary")).to_pylist()[1] == b"ab\xff"
    wrong = objects_of(tmp_path / "out" / "a.parquet.wrong.jsonl")
    assert [(row["row"], row["reason"], row["input"]) for row in wrong] == [
        (2, "is not valid UTF-8", "ab\\xff"),
        (3, "is null", ""),
    ]


def test_rows_of_parquet_are_read_and_written_by_their_bytes(tmp_path):
    """One group of 80 MB: rows of 100 KB, and short ones."""
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    page = np.random.default_rng(1).bytes(100_000)
    table = {"page": [page] * 800 + [b"a"] * 3000, "text": [f"a{n}" for n in range(3800)]}
    path = tmp_path / "a.parquet"
    options = dict(use_dictionary=False, compression="none", write_batch_size=8)
    parquet.write_table(pyarrow.table(table), path, **options)
    before = pyarrow.total_allocated_bytes()
    shard = shard_files.open_shard(str(path), "text", "translation")
    rows, largest = [], 0
    with open(tmp_path / "b.parquet", "wb") as stream, shard.writer(stream) as write:
        for batch in shard.batches(512):
            assert len(batch.rows) <= 512
            assert batch.table.nbytes < 8 * shard_files.BATCH_BYTES
            rows += batch.rows
            largest = max(largest, pyarrow.total_allocated_bytes() - before)
            write(batch, [row.text.decode() for row in batch.rows])
    assert [row.text.decode() for row in rows] == table["text"]
    assert largest < 60e6
    metadata = parquet.read_metadata(tmp_path / "b.parquet")
    sizes = [metadata.row_group(n).num_rows for n in range(metadata.num_row_groups)]
    assert len(sizes) == 3
    found = parquet.read_table(tmp_path / "b.parquet")
    assert found.column("translation").to_pylist() == table["text"]
    assert found.column("page").to_pylist() == table["page"]


def test_an_input_with_other_contents_is_refused(translate, tmp_path, capsys, monkeypatch):
    for year, text in (("2023", "abc"), ("2024", "abd"), ("copied", "abc")):
        (tmp_path / year).mkdir()
        (tmp_path / year / "a.txt").write_text(f"{text}\n", encoding="utf-8")
    assert translate("2023/a.txt").files == 1
    with pytest.raises(ValueError, match=r"under the name of .*2024/a\.txt: the contents differ"):
        translate("2024/a.txt")
    # Moved, copied or downloaded again it is the same; then it is read once.
    assert translate("copied/a.txt").finished == 1
    with monkeypatch.context() as patch:
        patch.setattr(shard_inputs, "read_input", None)
        assert translate("copied/a.txt").finished == 1
    with open(tmp_path / "2023" / "a.txt", "a", encoding="utf-8") as file:
        file.write("g\n")
    with pytest.raises(ValueError, match=r"Give another directory, or delete .*out/a\.txt") as said:
        translate("2023/a.txt")
    assert "\n" not in str(said.value)
    assert lines_of(tmp_path / "out" / "a.txt") == ["CBA"]
    (tmp_path / "out" / "a.txt").unlink()
    assert translate("2023/a.txt").rows == 2
    assert translate("2023/a.txt", verbose=True).finished == 1
    assert "earlier version" not in capsys.readouterr().err


def test_a_record_that_a_crash_has_cut_off_loses_its_own_line_alone(translate, tmp_path, capsys):
    for name in ("a", "b", "c"):
        (tmp_path / name).write_text(f"{name}\n", encoding="utf-8")
    assert translate("a", "b").files == 2
    record = tmp_path / "out" / "translate_shards.inputs"
    record.write_bytes(record.read_bytes()[:-9])
    assert translate("c").files == 1
    assert shard_inputs.read_inputs(str(tmp_path / "out")).keys() == {"a", "c"}
    record.unlink()  # as earlier versions left a directory
    assert translate("a", "b", "c", verbose=True).finished == 3
    assert "3 finished files, as " in capsys.readouterr().err


def test_an_input_that_changes_meanwhile_is_refused(translate, tmp_path, monkeypatch):
    path = tmp_path / "a"
    path.write_text("abc\n", encoding="utf-8")
    add = shards.Progress.add

    def change(self, rows):
        with open(path, "a", encoding="utf-8") as file:
            file.write("abd\n")
        add(self, rows)

    monkeypatch.setattr(shards.Progress, "add", change)
    with pytest.raises(ValueError, match="a: has changed while it was translated"):
        translate("a")
    assert names_of(tmp_path / "out") == {"translate_shards.json"}


def test_files_that_ended_the_process_come_last(translate, tmp_path, monkeypatch):
    """The first two end it each time. What such an end leaves is the file that was begun."""
    for name in "abcd":
        (tmp_path / name).write_text("abc\n", encoding="utf-8")
    translate_shard, tried = shards.translate_shard, []

    def end(shard, target, *given):
        tried.append(Path(target).name)
        if tried[-1] in "ab":
            Path(f"{target}.part").write_bytes(b"")
            raise KeyboardInterrupt
        return translate_shard(shard, target, *given)

    monkeypatch.setattr(shards, "translate_shard", end)
    for _ in range(4):
        with pytest.raises(KeyboardInterrupt):
            translate(*"abcd")
    assert "".join(tried) == "abcdab"


def test_finished_files_are_left_alone_and_others_settings_refused(translate, tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).write_text("abc\n", encoding="utf-8")
    assert translate("a").files == 1
    (tmp_path / "out" / "a").write_text("mine\n", encoding="utf-8")
    (tmp_path / "out" / "b.part").write_text("of a call that died", encoding="utf-8")
    (tmp_path / "out" / "b.wrong.jsonl").write_text("too", encoding="utf-8")
    assert translate("a", "b") == (1, 1, 0, 1, 0)
    assert lines_of(tmp_path / "out" / "a") == ["mine"]
    assert lines_of(tmp_path / "out" / "b") == ["CBA"]
    assert not (tmp_path / "out" / "b.part").exists()
    assert not (tmp_path / "out" / "b.wrong.jsonl").exists()
    with pytest.raises(ValueError, match="split_sentences was None and is True"):
        translate("a", split_sentences=True)


def test_files_of_others_are_not_taken_for_finished(exported, translate, tmp_path):
    (tmp_path / "a").write_text("abc\n", encoding="utf-8")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "a").write_text("mine\n", encoding="utf-8")
    with pytest.raises(ValueError, match="out/a exists"):
        translate("a")
    with pytest.raises(ValueError, match="another directory than that of"):
        translate_shards(exported, [tmp_path / "a"], tmp_path)
    assert (tmp_path / "a").read_text(encoding="utf-8") == "abc\n"


def test_a_damaged_file_does_not_stop_the_others(translate, tmp_path):
    (tmp_path / "a.gz").write_bytes(gzip.compress(os.urandom(3000).hex().encode())[:-9])
    (tmp_path / "b").write_text("abc\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"1 of 2 files .*a\.gz: cannot be read") as caught:
        translate("a.gz", "b")
    assert "\n" not in str(caught.value)
    assert lines_of(tmp_path / "out" / "b") == ["CBA"]
    assert names_of(tmp_path / "out") == {"b", *OWN}


def test_a_row_too_many_is_found(translate, tmp_path, monkeypatch):
    (tmp_path / "a").write_text("abc\ng\n", encoding="utf-8")
    end = shard_files.ONE_LINE
    monkeypatch.setattr(shard_files, "ONE_LINE", {**end, ord("G"): "\n"})
    with pytest.raises(ValueError, match="2 rows were read and 3 written"):
        translate("a")
    assert not (tmp_path / "out" / "a").exists()
    monkeypatch.setattr(shard_files, "ONE_LINE", end)
    assert translate("a").files == 1


def test_a_file_that_another_call_has_is_left_to_it(translate, tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).write_text("abc\n", encoding="utf-8")
    (tmp_path / "out").mkdir()
    with open(tmp_path / "out" / "a.part", "wb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert translate("a", "b") == (1, 0, 1, 1, 0)
        assert not (tmp_path / "out" / "a").exists()
    assert translate("a", "b") == (1, 1, 0, 1, 0)


def test_what_does_not_fit_is_refused_in_one_line(translate, exported, tmp_path):
    for name in ("a", "a.part", "b.jsonl", "x/a"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("{}\n", encoding="utf-8")
    cases = [
        (("none",), {}, "none: there is no such file"),
        ((), {}, r"`files` must be a list of files. Received: files=\[\]"),
        (("a", "x/a"), {}, "must have names of their own"),
        (("a", "a.part"), {}, r"must not have the name of a file that .* Received: .*a\.part"),
        (("a",), {"field": "text"}, "`field` must be left out for plain text"),
        (("b.jsonl",), {}, "`field` must name the field of the texts. Received: field=None"),
        (("a",), {"workers": 0}, "`workers` must be a positive integer. Received: workers=0"),
        (("a",), {"source_tag": "<en>"}, "`source_tag` must be one of none: its vocabulary has no"),
    ]
    for names, options, said in cases:
        with pytest.raises(ValueError, match=said):
            translate(*names, **options)
    (tmp_path / "c.jsonl").write_text('{"t": "a", "translation": 1}\n', encoding="utf-8")
    with pytest.raises(ValueError, match="line 1 has a field 'translation' already"):
        translate("c.jsonl", field="t")


def test_progress_tells_files_rows_and_speed(translate, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(shards, "SECONDS_BETWEEN_LINES", 0.0)
    (tmp_path / "a").write_text("abc\n" * 20, encoding="utf-8")
    translate("a", verbose=True)
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(" rows")[0] for line in lines] == [
        "0 of 1 files, 7",
        "0 of 1 files, 14",
        "0 of 1 files, 20",
        "1 of 1 files, 20",
    ]


PROGRAM = """
import sys
from keras_transformer.serving import translate_shards
print(translate_shards(sys.argv[1], sys.argv[3:], sys.argv[2], workers=2, batch_size=64))
"""


def children_of(pid):
    """Gives the processes that a process has started."""
    found = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for path in found for child in path.read_text(encoding="utf-8").split()]


def start(exported, output, files):
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, exported, output, *files],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
    )


@pytest.mark.slow
def test_a_killed_process_costs_its_file_and_the_next_call_goes_on(exported, translate, tmp_path):
    files = [f"part-{number}.txt" for number in range(6)]
    for number, name in enumerate(files):
        lines = words(1500, seed=number)
        (tmp_path / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    output = tmp_path / "killed"
    paths = [tmp_path / name for name in files]
    running = start(exported, output, paths)
    killer = threading.Thread(target=kill_one, args=(running.pid, output), daemon=True)
    killer.start()
    printed, error = running.communicate(timeout=300)
    assert running.returncode == 1, printed
    assert "1 of 6 files have no translation" in error
    (line,) = [line for line in error.splitlines() if line.startswith(f"{tmp_path}/part-")]
    assert line.endswith(": its process ended by signal 9")  # when it happens
    assert error.index(line) < error.index("6 of 6 files")
    done = [name for name in files if (output / name).exists()]
    assert len(done) == 5
    times = {name: (output / name).stat().st_mtime_ns for name in done}
    report = translate_shards(exported, paths, output, batch_size=64, verbose=False)
    assert report == (1, 5, 0, 1500, 0)
    assert times == {name: (output / name).stat().st_mtime_ns for name in done}
    assert translate(*files, batch_size=300).files == 6  # in this process
    for name in files:
        assert (output / name).read_bytes() == (tmp_path / "out" / name).read_bytes()
    assert names_of(output) == {*files, *OWN}


def kill_one(pid, output):
    """Kills one of the two processes that translate, once it has begun a file."""
    while len(list(output.glob("*.part"))) < 2:
        time.sleep(0.05)
    time.sleep(0.5)
    os.kill(children_of(pid)[0], signal.SIGKILL)
