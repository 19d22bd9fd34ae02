"""The transduction example: its readers, and a run that is stopped and goes on."""

import csv
import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

import transduce
from keras_transformer.recipes.run_directory import RunDirectory
from keras_transformer.text import load_tokenizer
from symbol_pairs import read_pairs
from tests.event_files import names_in_tensorboard
from transduce import finish, tokenizers_of
from transduce_options import parse_arguments
from transduce_training import compiled_model

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def run(*arguments):
    return subprocess.run(
        [sys.executable, str(EXAMPLES / "transduce.py"), *map(str, arguments)],
        capture_output=True,
        encoding="utf-8",
        env={**os.environ, "PYTHONPATH": str(EXAMPLES.parent)},
        check=False,
    )


@pytest.mark.parametrize(
    ("form", "line", "expected"),
    [
        ("inflection", "go on\twent\tV;PST", ("g o ▁ o n <V> <PST>", "w e n t")),
        ("inflection", "ház\tházban\tN;IN+ESS", ("h á z <N> <IN> <ESS>", "h á z b a n")),
        ("inflection", "ab\tabom\tN;SG;PSS1S", ("a b <N> <SG> <PSS> <1> <S>", "a b o m")),
        ("inflection", "a\tb\tARGAC3P+ARGNO1S", ("a <ARGAC> <3> <P> <ARGNO> <1> <S>", "b")),
        ("inflection", "a\tb\tLGSPEC02;IN+ABL", ("a <LGSPEC02> <IN> <ABL>", "b")),
        ("g2p", "ab\tɒ  pː", ("a b", "ɒ pː")),
        ("scan", "IN: run twice OUT: I_RUN I_RUN", ("run twice", "I_RUN I_RUN")),
        ("scan", "IN: run  twice  OUT:  I_RUN I_RUN ", ("run twice", "I_RUN I_RUN")),
        ("pairs", "ab c\tx", ("a b ▁ c", "x")),
        ("pairs", "a\u00a0b\tx", ("a ▁ b", "x")),
        ("pairs", "e\u0301\tx", ("\u00e9", "x")),  # NFC
    ],
)
def test_each_format_is_read(tmp_path, form, line, expected):
    file = tmp_path / "pairs"
    file.write_text(f"{line}\n\n{line}\n", encoding="utf-8")
    assert read_pairs(file, form) == [expected] * 2


@pytest.mark.parametrize(
    ("form", "line"),
    [("inflection", "go\twent"), ("g2p", "ab"), ("scan", "OUT: x"), ("pairs", "a\t")],
)
def test_a_bad_line_is_named(tmp_path, form, line):
    file = tmp_path / "pairs"
    file.write_text(f"\n{line}\n", encoding="utf-8")
    with pytest.raises(ValueError, match=f"line 2 must .*, in the format '{form}'. Received: '"):
        read_pairs(file, form)


def test_an_empty_file_is_refused(tmp_path):
    (tmp_path / "pairs").write_text("\n", encoding="utf-8")
    with pytest.raises(ValueError, match="no line has a pair"):
        read_pairs(tmp_path / "pairs", "pairs")


@pytest.mark.parametrize(
    ("form", "name", "number"),
    [
        ("inflection", "inflection/kat.dev", 1000),
        ("g2p", "g2p/hun_dev.tsv", 1000),
        ("scan", "scan/tasks_test_simple.txt", 4182),
    ],
)
def test_real_files_are_read(shared, form, name, number):
    found = read_pairs(shared(f"data/{name}"), form)
    assert len(found) == number
    for source, target in found:
        if form == "inflection":
            assert "<" in source
            assert "<" not in target
        elif form == "scan":
            assert "I_" not in source
            assert "I_" in target
        else:
            assert max(map(len, source.split())) == 1
    if form == "g2p":
        assert max(len(phone) for _, target in found for phone in target.split()) > 1


@pytest.mark.slow
def test_a_run_learns_goes_on_and_is_exported(tmp_path):
    """Words read backwards: a small model learns them nearly all."""
    words = [f"{a}{b}{c}" for a in "abcdefgh" for b in "ijklmnop" for c in "qrstuvwx"]
    random.Random(1).shuffle(words)
    for name, part in (("train", words[:400]), ("test", words[400:])):
        text = "".join(f"{word}\t{word[::-1]}\n" for word in part)
        (tmp_path / name).write_text(text, encoding="utf-8")
    job = ["--format", "pairs", "--train", tmp_path / "train", "--test", tmp_path / "test"]
    job += ["--size", "small", "--dropout", 0.1, "--warmup", 100, "--tokens-per-batch", 512]
    job += ["--output", tmp_path / "run", "--seed", 3]
    first = run(*job, "--epochs", 5, "--tensorboard")
    assert first.returncode == 0, first.stderr
    shown = set(names_in_tensorboard(tmp_path / "run" / "tensorboard" / "train"))
    assert {"epoch_padding_ratio", "epoch_learning_rate", "epoch_tokens_per_second"} <= shown
    again = run(*job, "--epochs", 60)
    assert again.returncode == 0, again.stderr
    assert "Going on from epoch 5" in again.stdout
    # As if killed while the last epoch was measured, before any model was kept.
    for file in (tmp_path / "run").glob("model.keras*"):
        file.unlink()
    again = run(*job, "--epochs", 60)
    assert again.returncode == 0, again.stderr
    assert again.stdout.splitlines()[-1].startswith("Exact match: ")
    with open(tmp_path / "run" / "predictions.tsv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    right = sum(row["output"] == row["reference"] for row in rows)
    assert f"({right} of {len(rows)} test pairs are right)" in again.stdout
    assert right / len(rows) > 0.8
    assert (tmp_path / "run" / "export" / "1" / "saved_model.pb").exists()
    other = run(*job, "--epochs", 60, "--dropout", 0.2)
    assert other.returncode == 1
    assert "holds another run: dropout was 0.1 and is 0.2" in other.stderr
    (tmp_path / "train").write_text(
        (tmp_path / "train").read_text(encoding="utf-8").replace("ciq", "qic"), encoding="utf-8"
    )
    other = run(*job, "--epochs", 60)
    assert other.returncode == 1
    assert "holds another run: pairs_digest was" in other.stderr


@pytest.mark.slow
def test_the_files_of_a_run_say_that_symbols_have_spaces_between_them(tmp_path, monkeypatch):
    job = ["--format", "g2p", "--train", "a", "--test", "b", "--output", tmp_path / "run"]
    args = arguments_of(*job)
    directory = RunDirectory(tmp_path / "run")
    directory.open({"format": "g2p", "train": "a"})
    pairs = [("t o o l", "t uː l"), ("l o t", "l o t")]
    tokenizers = tokenizers_of(directory, pairs, right_to_left=True)
    directory.save_model(compiled_model(args, tokenizers[0].vocab_size), "model.keras")
    monkeypatch.setattr(RunDirectory, "draw_learning_curve", lambda self: None)
    finish(directory, args, tokenizers, pairs, longest=5)
    readme = (directory.path / "README.txt").read_text(encoding="utf-8")
    assert "What goes in, one text a line:\n    - Symbols with a space between any two: " in readme
    assert "    t o o l\n    t uː l\n" in readme
    assert "The end is written first" in readme
    assert "predictions.tsv" in readme
    card = directory.path / "export" / "1" / "assets.extra" / "model_card.json"
    texts = json.loads(card.read_text(encoding="utf-8"))["texts"]
    assert all(texts[side][0].startswith("Symbols with a space") for side in texts)


@pytest.mark.slow
def test_words_to_phones_with_outputs_longer_than_any_in_training(tmp_path):
    """Each letter becomes two phones; the test has longer words than the training."""
    random.seed(2)

    def write(name, lengths):
        words = {"".join(random.choices("abcdef", k=random.choice(lengths))) for _ in range(600)}
        lines = (f"{word}\t{' '.join(c + x for c in word for x in 'ːʰ')}\n" for word in words)
        (tmp_path / name).write_text("".join(sorted(lines)), encoding="utf-8")

    for name, lengths in (("train", [3, 4]), ("validation", [5]), ("test", [6])):
        write(name, lengths)
    job = ["--format", "g2p", "--beam", 2, "--inner-dropout", 0, "--post-norm", "--seed", 1]
    job += [
        "--right-to-left",
        "--r-drop",
        1,
        "--average",
        2,
        "--validate-every",
        2,
        "--peak",
        0.001,
        "--position",
        "relative",
    ]
    for part in ("train", "validation", "test"):
        job += [f"--{part}", tmp_path / part]
    job += ["--size", "small", "--dropout", 0.1, "--warmup", 100, "--tokens-per-batch", 1024]
    done = run(*job, "--output", tmp_path / "run", "--epochs", 6)
    assert done.returncode == 0, done.stderr
    summary = done.stdout.splitlines()[-1]
    assert summary.startswith("Word error rate: "), summary
    with open(tmp_path / "run" / "predictions.tsv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    wrong = sum(row["output"] != row["reference"] for row in rows)
    assert f"Word error rate: {wrong / len(rows):.2%} ({len(rows) - wrong:,} of" in summary
    # The longest output in training and validation has 10 phones and its end.
    assert max(len(row["output"].split()) for row in rows) > 10
    assert load_tokenizer(tmp_path / "run" / "target.tokenizer").reverse
    job.remove("--right-to-left")
    other = run(*job, "--output", tmp_path / "run", "--epochs", 6)
    assert "holds another run: right_to_left was True and is None" in other.stderr
    figures = json.loads((tmp_path / "run" / "model.keras.json").read_text(encoding="utf-8"))
    with open(tmp_path / "run" / "history.csv", newline="", encoding="utf-8") as file:
        rates = {
            int(row["epoch"]): float(row["val_word_error_rate"])
            for row in csv.DictReader(file)
            if row["val_word_error_rate"]
        }
    assert list(rates) == [1, 2, 4, 6]  # the first too
    best = min(rates, key=rates.get)  # the first of several
    assert (figures["epoch"], figures["word_error_rate"]) == (best, pytest.approx(rates[best]))


def test_a_missing_file_gives_one_clear_line(tmp_path, monkeypatch):
    job = ["--format", "pairs", "--train", tmp_path / "no", "--test", tmp_path / "no"]
    given = ["transduce.py", *map(str, job), "--output", str(tmp_path / "run")]
    monkeypatch.setattr(sys, "argv", given)
    with pytest.raises(SystemExit, match="^error: .*there is no such file. Check the path.$"):
        transduce.main()


def arguments_of(*given):
    files = ["--format", "pairs", "--train", "a", "--test", "b", "--output", "c"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["transduce.py", *files, *map(str, given)])
        return parse_arguments("")


@pytest.mark.parametrize(
    ("given", "rule"),
    [
        (["--peak", "inf"], "--peak must be a number"),
        (["--peak", "0"], "--peak must be above 0"),
        (["--minutes", "nan"], "--minutes must be above 0"),
        (["--epochs", "0"], "--epochs must be above 0"),
        (["--average", "-1"], "--average must be at least 0"),
        (["--inner-dropout", "1"], "--inner-dropout must be at least 0 and below 1"),
        (["--r-drop", "nan"], "--r-drop must be at least 0"),
        (["--seed", str(2**32)], "--seed must be at least 0 and below 2**32"),
    ],
)
def test_a_bad_number_is_refused(given, rule, capsys):
    with pytest.raises(SystemExit) as stopped:
        arguments_of(*given)
    assert stopped.value.code == 2
    assert capsys.readouterr().err.splitlines()[-1].endswith(f"error: {rule}")


@pytest.mark.parametrize(
    ("size", "widths"),
    # "paper": Wu et al. 2021, "Applying the Transformer to Character-level Transduction", table 1.
    [("small", (2, 128, 4, 512)), ("paper", (4, 256, 4, 1024))],
)
def test_every_size_is_the_published_one(size, widths):
    model = compiled_model(arguments_of("--size", size), vocab_size=20)
    assert (model.num_layers, model.d_model, model.num_heads, model.d_ff) == widths
    rates = [float(model.optimizer._learning_rate(step)) for step in (499, 999, 3999)]
    # Up to 0.003 after 1,000 updates, then as 1 / sqrt.
    assert rates == pytest.approx([0.0015, 0.003, 0.0015], rel=1e-5)
    assert model.optimizer.global_clipnorm == 1.0
