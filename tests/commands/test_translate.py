import gzip
import json
import os
import shutil

import numpy as np
import pytest

from keras_transformer.text import SentencePieceTokenizer
from tests.serving.trained import translator, words


@pytest.fixture(scope="module")
def texts():
    return [*words(5, seed=9), "", "\u00e9"]


@pytest.fixture(scope="module")
def expected(texts):
    return translator()(texts)


def test_a_file_and_standard_input_are_answered_in_order(
    run_directory, texts, expected, tmp_path, command
):
    data = "".join(f"{text}\r\n" for text in texts).encode()
    (tmp_path / "texts.gz").write_bytes(gzip.compress(b"\xef\xbb\xbf" + data))
    status, out, err = command("translate", run_directory, tmp_path / "texts.gz", "--batch-size", 3)
    assert (status, out.splitlines()) == (0, expected)
    assert err.endswith(f"{len(texts)} lines translated\n")
    status, out, _ = command("translate", run_directory / "export", text=data.rstrip())
    assert (status, out.splitlines()) == (0, expected)


def test_an_output_file_is_there_once_whole(run_directory, texts, expected, tmp_path, command):
    (tmp_path / "texts").write_text("\n".join(texts), encoding="utf-8")
    for name, read in (("out", open), ("out.gz", gzip.open)):
        status, out, _ = command(
            "translate", run_directory, tmp_path / "texts", "--output", tmp_path / name
        )
        assert (status, out) == (0, "")
        with read(tmp_path / name, "rt", encoding="utf-8") as file:
            assert file.read().splitlines() == expected
    (tmp_path / "bad").write_bytes("abc".encode("utf-16"))
    status, _, err = command(
        "translate", run_directory, tmp_path / "bad", "--output", tmp_path / "never"
    )
    assert status == 1
    assert err.startswith("error: ")
    assert "UTF-16" in err
    assert not (tmp_path / "never").exists()
    (tmp_path / "cut.gz").write_bytes(gzip.compress(b"abc\n" * 3000)[:40])
    status, _, err = command("translate", run_directory, tmp_path / "cut.gz")
    assert status == 1
    assert "cut.gz: cannot be read" in err


def test_an_output_is_written_where_its_name_leads(run_directory, tmp_path, command):
    """Through a link, into an open file of /proc, and never over the file that is read."""
    source, target, link = (tmp_path / name for name in ("env", "first.up", "latest.up"))
    source.write_text("abc\n", encoding="utf-8")
    target.write_text("old", encoding="utf-8")
    link.symlink_to(target.name)
    status, _, err = command("translate", run_directory, source, "--output", link)
    assert (status, link.is_symlink(), target.read_text(encoding="utf-8")) == (0, True, "CBA\n"), (
        err
    )
    with open(tmp_path / "opened", "w", encoding="utf-8") as opened_file:
        device = f"/proc/self/fd/{opened_file.fileno()}"
        status, _, err = command("translate", run_directory, source, "--output", device)
        assert (status, os.stat(device).st_size) == (0, 4), err
    link.unlink()
    link.symlink_to(source.name)
    for output in (source, link):
        status, _, err = command("translate", run_directory, source, "--output", output)
        assert status == 1
        assert f"--output must be another file than FILE. Received: {output}" in err
        assert source.read_text(encoding="utf-8") == "abc\n"


@pytest.mark.slow
def test_hypotheses_scores_and_alignments(run_directory, command):
    hypotheses = translator().n_best(["abc", "g"])
    given = ("translate", run_directory)
    status, out, _ = command(*given, "--n-best", 2, "--scores", text=b"abc\ng\n")
    assert status == 0
    rows = [line.split("\t") for line in out.splitlines()]
    assert [row[0] for row in rows] == ["1", "1", "2", "2"]
    flat = [pair for found in hypotheses for pair in found[:2]]
    assert [row[2] for row in rows] == [text for text, _ in flat]
    assert [float(row[1]) for row in rows] == pytest.approx([s for _, s in flat], abs=2e-4)
    status, out, _ = command(*given, "--alignments", text=b"abc\n")
    text, pieces = out.rstrip("\n").split("\t")
    assert text == "CBA"
    assert pieces.split() == ["0-1:2-3", "1-2:1-2", "2-3:0-1"]
    status, out, err = command(*given, "--n-best", 9, text=b"abc\n")
    assert status == 1
    assert "--n-best must be at most 3" in err
    assert command(*given, "--alignments", "--scores")[0] == 1


def test_json_has_a_line_for_each_text(run_directory, command):
    status, out, _ = command("translate", run_directory, "--json", "--n-best", 2, text=b"abc\ng\n")
    found = [json.loads(line) for line in out.splitlines()]
    assert status == 0
    assert [answer["source"] for answer in found] == ["abc", "g"]
    assert [len(answer["translations"]) for answer in found] == [2, 2]
    assert found[0]["translations"][0] == "CBA"


@pytest.mark.slow
def test_another_search_needs_the_model_of_a_run(run_directory, command):
    status, out, _ = command("translate", run_directory, "--beam-size", 1, text=b"abc\n")
    assert (status, out) == (0, "CBA\n")
    status, _, err = command("translate", run_directory / "export", "--beam-size", 1, text=b"a\n")
    assert status == 1
    assert "an export keeps its own" in err


def test_a_text_that_is_too_long_is_counted(run_directory, command):
    status, out, err = command("translate", run_directory, text=b"a" * 2000 + b"\nabc\n")
    assert (status, out) == (0, "\nCBA\n")
    assert "2 lines translated; too long for the model, without a translation: 1" in err


class Answering:
    """A `translate` that writes the tags it was called with."""

    inputs = frozenset({"text", "source_tag", "target_tag"})

    def __call__(self, text, source_tag, target_tag, **options):
        assert set(options) == {
            "prefix", "length_penalty", "max_length", "num_hypotheses", "split_sentences",
        }  # fmt: skip
        columns = zip(source_tag.numpy(), text.numpy(), target_tag.numpy(), strict=True)
        return {
            "translations": np.array([[b" ".join(row)] for row in columns], object),
            "scores": np.zeros([len(text), 1], "float32"),
            "truncated": np.zeros(len(text), bool),
        }


def test_tags_go_to_the_signature(tmp_path, command, opened):
    (tmp_path / "saved_model.pb").touch()
    opened[str(tmp_path), ("beam_size", None), ("length_penalty", None)] = {
        "translate": Answering()
    }
    options = ("--source-tag", "<en>", "--target-tag", "<de>")
    status, out, err = command("translate", tmp_path, *options, text=b"a\nb\n")
    assert (status, out) == (0, "<en> a <de>\n<en> b <de>\n"), err
    _, out, _ = command("translate", tmp_path, "--target-tag", "<de>", text=b"a\n")
    assert out == " a <de>\n"
    status, _, err = command("translate", tmp_path, "--alignments", *options, text=b"a\n")
    assert status == 1
    assert "--alignments goes without" in err


def test_a_model_without_tags_takes_none(run_directory, command):
    status, _, err = command("translate", run_directory, "--source-tag", "<en>", text=b"a\n")
    assert status == 1
    assert "--source-tag needs a model whose vocabularies have tags" in err


def test_a_tag_that_a_run_does_not_have_is_named(run_directory, tmp_path, command, opened):
    """There is no export whose card could tell the tags: the tokenizers do."""
    (tmp_path / "model.keras").touch()
    shutil.copy(run_directory / "settings.toml", tmp_path)
    letters = SentencePieceTokenizer.train(["a b c"] * 9, vocab_size=11).model
    for side, tags in (("source", ["<en>", "<fr>"]), ("target", ["<de>"])):
        SentencePieceTokenizer(letters, tags=tags).save(tmp_path / f"{side}.tokenizer")
    opened[str(tmp_path), ("beam_size", None), ("length_penalty", None)] = {
        "translate": Answering()
    }
    for side, tag, known in (("source", "<de>", "<en>, <fr>"), ("target", "<dee>", "<de>")):
        status, out, err = command("translate", tmp_path, f"--{side}-tag", tag, text=b"a\n")
        assert (status, out) == (1, "")
        assert f"--{side}-tag must be one of {known}. Received: '{tag}'" in err
    options = ("--source-tag", "<fr>", "--target-tag", "<de>")
    status, out, err = command("translate", tmp_path, *options, text=b"a\n")
    assert (status, out) == (0, "<fr> a <de>\n"), err
    (tmp_path / "target.tokenizer").unlink()  # both sides have the tokenizer of the sources
    status, out, err = command("translate", tmp_path, *options, text=b"a\n")
    assert status == 1
    assert "--target-tag must be one of <en>, <fr>. Received: '<de>'" in err


@pytest.mark.slow
def test_a_collection_has_the_lines_of_the_single_file(
    run_directory, texts, expected, tmp_path, command
):
    data = "".join(f"{text}\n" for text in texts).encode()
    (tmp_path / "a.txt").write_bytes(data)
    (tmp_path / "b.txt.gz").write_bytes(gzip.compress(data[:-1] + b"\xff\n"))
    files = (tmp_path / "a.txt", tmp_path / "b.txt.gz")
    output = ("--output", tmp_path / "out")
    status, out, err = command("translate", run_directory, "--shards", *files, *output)
    assert (status, out) == (0, ""), err
    assert err.endswith(
        f"{2 * len(texts)} rows of 2 files translated; rows without a translation, see "
        "*.wrong.jsonl: 1\n"
    )
    assert (tmp_path / "out" / "a.txt").read_text(encoding="utf-8").splitlines() == expected
    status, out, err = command("translate", run_directory, "--shards", *files, *output, "--json")
    assert json.loads(out) == dict(files=0, finished=2, busy=0, rows=0, wrong=0)
    assert err.endswith("0 rows of 0 files translated; finished before: 2\n")


def test_what_a_collection_does_not_have_is_refused(run_directory, tmp_path, command):
    (tmp_path / "a").write_text("abc\n", encoding="utf-8")
    shards = ("--shards", tmp_path / "a")
    cases = [
        ((*shards,), "--shards needs --output, a directory"),
        ((*shards, "--scores", "--output", tmp_path / "out"), "--shards goes without --scores"),
        ((*shards, "--beam-size", 2, "--output", tmp_path / "out"), "without --beam-size"),
        (
            (*shards, "--length-penalty", 0, "--output", tmp_path / "out"),
            "without --length-penalty",
        ),
        ((tmp_path / "a", *shards, "--output", tmp_path / "out"), "--shards goes without FILE"),
        (("--workers", 2), "--workers needs --shards"),
        (("--shards", tmp_path / "b", "--output", tmp_path / "out"), "there is no such file"),
    ]
    for arguments, said in cases:
        status, out, err = command("translate", run_directory, *arguments)
        assert (status, out) == (1, "")
        assert said in err
        assert err.count("\n") == 1


def test_an_onnx_file_translates_as_its_run(tmp_path, command):
    from keras_transformer.serving import export_onnx

    for package in ("onnx", "onnxruntime"):
        pytest.importorskip(package)
    export_onnx(translator(), tmp_path / "onnx")
    given = ("translate", tmp_path / "onnx", "--n-best", 2, "--scores")
    status, out, err = command(*given, text=f"abc\n{'a' * 40}\ng\n".encode())
    assert status == 0
    assert err.endswith("3 lines translated; too long for the model, without a translation: 1\n")
    rows = [line.split("\t") for line in out.splitlines()]
    hypotheses = translator().n_best(["abc", "g"])
    wanted = [("1", one) for one in hypotheses[0][:2]] + [("3", one) for one in hypotheses[1][:2]]
    assert rows[2] == ["2", "-1000000000.0000", ""]
    assert [(row[0], row[2]) for row in rows if row[0] != "2"] == [(n, t) for n, (t, _) in wanted]
    scores = [float(row[1]) for row in rows if row[0] != "2"]
    np.testing.assert_allclose(scores, [score for _, (_, score) in wanted], atol=1e-4)
    for option in ("--alignments", "--beam-size=2", "--length-penalty=0", "--split-sentences"):
        status, _, err = command("translate", tmp_path / "onnx", option, text=b"abc")
        assert status == 1
        assert f"{option.partition('=')[0]} needs a run or a SavedModel" in err
    status, _, err = command("translate", tmp_path / "onnx", "--n-best", 4, text=b"abc")
    assert (status, "at most 3" in err) == (1, True)
