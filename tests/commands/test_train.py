"""The command `train`: its options, and runs in processes that are killed and go on."""

import csv
import importlib.util
import json
import os
import random
import re
import signal
import subprocess
import time

import numpy as np
import pytest

from keras_transformer.commands import main as command_line
from keras_transformer.commands import train
from keras_transformer.recipes.settings import FIELDS, Settings
from tests.backends import quick_compilation
from tests.commands.train_processes import COMMAND, REPOSITORY, SMALL, start, weights, write_words


def parse(*given):
    return command_line.make_parser().parse_args(["train", *map(str, given)])


def make(*given):
    return train.make_settings(parse(*given))


def test_every_setting_has_an_option_with_a_help():
    assert set(train.read_helps()) == set(FIELDS)
    args = vars(parse())
    others = {"config", "output", "json", "run", "refuse"}
    assert {*FIELDS, *others, "processes", "process_id", "coordinator"} == set(args)
    assert all(args[name] is None for name in FIELDS)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("num_layers", "4; dates, mini, symbols 2; small, base, big, fast-tiny 6; fast-small, "),
        ("learning_rate", "0.004; dates, mini, fast-dates, fast-mini 0.002; small, symbols-paper"),
        ("norm_first", "yes; base, big, fast-base, fast-big no"),
        ("minutes", "no limit; symbols, symbols-paper 60"),
        ("format", "text with --train, else dates"),
        ("backend", "tensorflow"),
        ("remat", ""),
    ],
)
def test_the_help_shows_the_values_of_presets(name, told):
    assert train.describe_default(name).startswith(f" (default: {told}" if told else "")
    assert bool(train.describe_default(name)) is bool(told)


def test_options_are_the_settings():
    found = make(
        *("--train", "a.en", "b.de", "--dropout", 0.2, "--no-norm-first", "--epochs", 3),
        *("--norm-epsilon", "1e-5"),
        *("--subword-dropout", 0.1, 0, "--position", "rotary", "--split-sentences"),
        *("--user-defined-symbols", "<2de>", "__NUM__", "--input-sentence-size", 1000),
    )
    assert found == Settings.from_preset(
        "tiny", train=("a.en", "b.de"), dropout=0.2, norm_first=False, norm_epsilon=1e-5, epochs=3,
        subword_dropout=(0.1, 0.0), position="rotary", split_sentences=True,
        user_defined_symbols=("<2de>", "__NUM__"), input_sentence_size=1000,
    )  # fmt: skip


def test_options_win_over_the_file_and_the_file_over_the_preset(tmp_path):
    file = tmp_path / "settings.toml"
    file.write_text(
        Settings.from_preset("small", train=("a", "b"), seed=9).to_toml(run={"pairs_digest": "x"}),
        encoding="utf-8",
    )
    found = make("--config", file, "--seed", 4)
    assert found == Settings.from_preset("small", train=("a", "b"), seed=4)
    file.write_text('preset = "base"\ntrain = ["a", "b"]\nepochs = 7\n', encoding="utf-8")
    found = make("--config", file, "--dropout", 0.3)
    assert found == Settings.from_preset("base", train=("a", "b"), epochs=7, dropout=0.3)


def test_another_preset_or_model_takes_the_place_of_that_of_the_file(tmp_path):
    file = tmp_path / "settings.toml"
    settings = Settings.from_preset("small", train=("a", "b"), seed=9)
    file.write_text(settings.to_toml(), encoding="utf-8")
    found = make("--config", file, "--preset", "base")
    assert found == Settings.from_preset("base", train=("a", "b"), seed=9)
    found = make("--config", file, "--model", "recurrent")
    assert found == Settings.from_preset("small", train=("a", "b"), model="recurrent", seed=9)
    file.write_text(Settings.from_preset(seed=9).to_toml(), encoding="utf-8")
    found = make("--config", file, "--format", "text", "--train", "a", "b")
    assert found == Settings.from_preset("dates", format="text", train=("a", "b"), seed=9)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["--epochs", 0], "--epochs must be at least 1. Received: epochs=0"),
        (["--epochs", "x"], "argument --epochs: must be a whole number. Received: x"),
        (["--model", "recurrent", "--r-drop", 1], "--r-drop needs --model 'transformer'"),
        (["--lowercase"], "--lowercase, --normalization and --source-normalization need --format"),
        (["--train", "a", "b"], "a: there is no such file. Check the path"),
        (["--train", __file__, "--normalization", "no.tsv"], "no.tsv: there is no such file"),
        (["--config", "nowhere"], "nowhere: there is no such file"),
        (["--train", __file__, "--teacher", "nowhere"], "nowhere: there is no such directory"),
        (
            ["--size", "tiny"],
            "--size tiny. `keras-transformer train --help` shows",
        ),
    ],
)
def test_what_is_wrong_is_refused_in_one_line(given, message, command):
    status, out, err = command("train", *given)
    assert (status, out) == (1, "")
    assert err.startswith("error: ")
    assert message in err
    assert err.count("\n") == 1


def test_a_setting_of_the_file_that_is_unknown_is_refused(command, tmp_path):
    (tmp_path / "my.toml").write_text("speed = 3\n", encoding="utf-8")
    status, _, err = command("train", "--config", tmp_path / "my.toml")
    assert status == 1
    assert err.startswith("error: `speed` is not a setting. The settings are preset, format, ")


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ([], "dates-en-fr"),
        (["--model", "recurrent"], "dates-en-fr-recurrent-lstm-additive"),
        (["--train", "data/train.en", "data/train.de"], "train-en-de-tiny"),
        (["--train", "train.en.gz", "train.de.gz", "--preset", "base"], "train-en-de-base"),
        (["--train", "kat.train", "--format", "inflection"], "kat-symbols"),
    ],
)
def test_the_name_of_a_run_tells_its_languages_and_preset(given, name):
    assert train.default_name(make(*given)) == name


def test_it_ends_with_the_figures_and_json_has_them(command, tmp_path, monkeypatch):
    from keras_transformer.recipes import training
    from keras_transformer.recipes.evaluation import Score
    from keras_transformer.recipes.testing import Run

    def run(settings, output):
        print("from Keras")
        return Run(None, [Score("exact_match", 50.0, "texts:2")], "Exact match: 50.00%")

    monkeypatch.setattr(training, "train", run)
    status, out, _ = command("train", "--output", tmp_path / "run")
    assert (status, out.splitlines()) == (0, ["from Keras", "Exact match: 50.00%"])
    status, out, err = command("train", "--output", tmp_path / "run", "--json")
    found = json.loads(out)
    assert found["scores"]["exact_match"]["value"] == 50.0
    assert found["settings"]["preset"] == "dates"
    assert found["output"] == str(tmp_path / "run")
    assert "from Keras" in err


@pytest.mark.parametrize("option", ["--start-from", "--teacher"])
def test_a_run_needs_another_one_only_to_begin(option, command, monkeypatch, tmp_path):
    trained = []
    monkeypatch.setattr(train, "train_here", lambda program, *given: trained.append(given) or {})
    given = ["--train", __file__, option, tmp_path / "gone", "--output", tmp_path / "run"]
    status, _, err = command("train", *given)
    assert (status, len(trained)) == (1, 0)
    assert "gone: there is no such directory" in err
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "state.npz").touch()  # of an epoch, before a model is chosen
    status, _, err = command("train", *given)
    assert (status, len(trained)) == (0, 1), err


def test_ctrl_c_says_how_to_go_on(command, tmp_path, monkeypatch):
    from keras_transformer.recipes import training

    def run(settings, output):
        raise KeyboardInterrupt

    monkeypatch.setattr(training, "train", run)
    status, out, err = command("train", "--output", tmp_path / "run")
    assert (status, err) == (130, "Interrupted.\n")
    assert f"What was finished is in {tmp_path / 'run'}; run the same command to go on." in out


# Processes.


RECURRENT = ["--model", "recurrent", "--num-layers", 1, "--d-model", 16, "--max-shapes", 1]
RECURRENT += ["--tokens-per-batch", 256, "--average", 0, "--no-xla-export"]


def finish(*given, **environment):
    """Runs the command; returns its status and all that it printed."""
    process = start(*given, **environment)
    printed = process.communicate(timeout=500)[0]
    return process.returncode, printed


def stop(output, number, *given, **environment):
    """Runs the command and sends it a signal soon after it saved an epoch."""
    state = output / "state.npz"
    before = state.stat().st_mtime_ns if state.exists() else None
    process = start(*given, "--output", output, **environment)
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline and process.poll() is None:
        if state.exists() and state.stat().st_mtime_ns != before:
            break
        time.sleep(0.02)
    process.send_signal(number)
    printed = process.communicate(timeout=300)[0]
    return process.returncode, printed


@pytest.mark.slow
def test_killed_and_stopped_it_goes_on_and_ends_with_the_bits_of_a_whole_run(tmp_path):
    job = [*write_words(tmp_path, 300), *SMALL, "--measure-every", 3, "--epochs", 6]
    job += ["--beam-size", 1]
    status, printed_at_once = finish(*job, "--output", tmp_path / "whole")
    assert status == 0, printed_at_once
    for number in (signal.SIGKILL, signal.SIGTERM):
        status, printed = stop(tmp_path / "run", number, *job)
        assert status == (-number if number == signal.SIGKILL else 130), printed
        assert "Traceback" not in printed
    assert re.search("Going on from epoch [1-5]", printed)
    assert "run the same command to go on" in printed
    status, again = finish(*job, "--output", tmp_path / "run")
    assert status == 0, again
    assert re.search("Going on from epoch [1-6]|Already trained", again)
    ours, theirs = weights(tmp_path / "run"), weights(tmp_path / "whole")
    assert all(np.array_equal(ours[name], theirs[name]) for name in theirs)
    assert again.splitlines()[-1] == printed_at_once.splitlines()[-1]
    assert not [file.name for file in (tmp_path / "run").iterdir() if file.name.startswith(".")]


@pytest.mark.long
def test_words_read_backwards_are_learned(tmp_path):
    words = [f"{a}{b}{c}" for a in "abcdefgh" for b in "ijklmnop" for c in "qrstuvwx"]
    random.Random(1).shuffle(words)
    for name, part in (("train", words[:400]), ("test", words[400:])):
        text = "".join(f"{word}\t{word[::-1]}\n" for word in part)
        (tmp_path / name).write_text(text, encoding="utf-8")
    job = ["--format", "characters", "--train", tmp_path / "train", "--test", tmp_path / "test"]
    job += ["--dropout", 0.1, "--warmup-steps", 100, "--tokens-per-batch", 512, "--seed", 3]
    job += ["--max-shapes", 1, "--no-xla-export"]
    status, printed = finish(*job, "--epochs", 50, "--output", tmp_path / "run")
    assert status == 0, printed
    figure = re.fullmatch(r"Exact match: (.+)% of 112 held-out pairs\.", printed.splitlines()[-1])
    assert float(figure[1]) > 80


@pytest.fixture
def no_tensorflow(tmp_path):
    """The environment of a process where importing TensorFlow fails."""
    folder = tmp_path / "modules"
    folder.mkdir()
    for name in ("tensorflow", "tensorflow_text"):
        (folder / f"{name}.py").write_text("raise ImportError('not here')", encoding="utf-8")
    return dict(
        PYTHONPATH=os.pathsep.join([str(folder), str(REPOSITORY)]),
        **quick_compilation(tmp_path / "jax"),
    )


@pytest.fixture
def without_tensorflow(no_tensorflow):
    """Runs the command there on a backend."""
    return lambda backend, *given: finish(*given, **no_tensorflow, KERAS_BACKEND=backend)


@pytest.mark.parametrize(
    "backend",
    [pytest.param("jax", marks=pytest.mark.slow), pytest.param("torch", marks=pytest.mark.long)],
)
def test_a_run_without_tensorflow_goes_on_and_is_exported_with_it(
    tmp_path, without_tensorflow, backend
):
    pytest.importorskip(backend)
    from keras_transformer.recipes.runs import load_translator

    output = tmp_path / "run"
    # On JAX, whose loop is fast, a word longer than what a Translator reads unless it is told.
    files = write_words(tmp_path, 240, longest="abcd" * {"jax": 60, "torch": 5}[backend])
    options = [*files, *SMALL, "--right-to-left", "--average", 2, "--output", output]
    status, printed = without_tensorflow(backend, *options, "--epochs", 1)
    assert status == 0, printed
    assert f"Export it where TensorFlow is: keras-transformer export {output}" in printed
    steps = {"jax": 2, "torch": 1}[backend]
    more = ("--epochs", 2, "--steps-per-execution", steps)
    status, printed = without_tensorflow(backend, *options, *more)
    assert status == 0, printed
    assert "Going on from epoch 1" in printed
    with open(output / "history.csv", newline="", encoding="utf-8") as file:
        assert [row["epoch"] for row in csv.DictReader(file)] == ["1", "2"]
    if backend == "jax" and importlib.util.find_spec("torch"):
        status, printed = without_tensorflow("torch", *options, "--epochs", 3)
        assert status == 1
        assert "backend was 'jax' and is 'torch'" in printed
    with open(output / "predictions.tsv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    found = load_translator(output)([row["source"] for row in rows])
    same = [ours == row["output"] for ours, row in zip(found, rows, strict=True)]
    assert sum(same) >= 0.9 * len(same)  # of a model that knows little, two tokens may tie
    if backend == "jax":  # a file has nothing of a backend: what loads one loads the other's
        status, printed = finish_export(output)
        assert status == 0, printed
        assert (output / "export" / "1" / "saved_model.pb").exists()
        readme = (output / "README.txt").read_text(encoding="utf-8")
        assert f"keras-transformer translate {output} FILE" in readme
        assert (output / "summary.txt").read_text(encoding="utf-8").strip() in readme


@pytest.mark.slow
def test_a_run_on_four_devices_goes_on_and_learns_as_on_one(tmp_path, no_tensorflow):
    pytest.importorskip("jax")
    environment = dict(no_tensorflow, KERAS_BACKEND="jax")
    flag = "--xla_force_host_platform_device_count=4"
    environment["XLA_FLAGS"] = f"{environment.get('XLA_FLAGS', '')} {flag}"
    job = [*write_words(tmp_path, 240), *SMALL, "--dropout", 0]
    parts = ["--data-parallel", 2, "--model-parallel", 2]
    runs = {"one": [], "four": parts}
    for name, options in runs.items():
        for epochs in (1, 2) if options else (2,):
            more = [*options, "--output", tmp_path / name, "--epochs", epochs]
            status, printed = finish(*job, *more, **environment)
            assert status == 0, printed
    assert "Going on from epoch 1" in printed
    losses = []
    for name in runs:
        with open(tmp_path / name / "history.csv", newline="", encoding="utf-8") as file:
            losses.append([float(row["val_loss"]) for row in csv.DictReader(file)])
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-3)  # rows of padding, other sums


EIGHT = ["--data-parallel", 2, "--model-parallel", 4, "--num-heads", 4]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("devices", "parts"), [pytest.param(1, [], marks=pytest.mark.long), (8, EIGHT)]
)
def test_killed_within_a_pass_on_jax_it_ends_with_the_bits_of_a_whole_run(
    tmp_path, no_tensorflow, devices, parts
):
    """A pass has eight batches, an epoch three."""
    pytest.importorskip("jax")
    environment = dict(no_tensorflow, KERAS_BACKEND="jax")
    flag = f"--xla_force_host_platform_device_count={devices}"
    environment["XLA_FLAGS"] = f"{environment.get('XLA_FLAGS', '')} {flag}"
    job = [*write_words(tmp_path, 300), *SMALL, *parts, "--dropout", 0.1, "--epochs", 12]
    job += ["--batches-per-epoch", 3, "--measure-every", 6]
    status, whole = finish(*job, "--output", tmp_path / "whole", **environment)
    assert status == 0, whole
    status, printed = stop(tmp_path / "run", signal.SIGKILL, *job, **environment)
    assert status == -signal.SIGKILL, printed
    status, printed = finish(*job, "--output", tmp_path / "run", **environment)
    assert status == 0, printed
    assert re.search("Going on from epoch ([1-9]|1[01]) ", printed)
    ours, theirs = weights(tmp_path / "run"), weights(tmp_path / "whole")
    assert all(np.array_equal(ours[name], theirs[name]) for name in theirs)
    assert printed.splitlines()[-1] == whole.splitlines()[-1]


@pytest.mark.long
def test_a_run_on_jax_starts_from_another(tmp_path, without_tensorflow):
    """At a rate next to none, its only epoch ends with the loss that the other began with."""
    pytest.importorskip("jax")
    job = ["jax", *write_words(tmp_path, 240), *SMALL]
    status, printed = without_tensorflow(*job, "--output", tmp_path / "one", "--epochs", 2)
    assert status == 0, printed
    more = ("--start-from", tmp_path / "one", "--learning-rate", 1e-9, "--epochs", 1)
    status, printed = without_tensorflow(*job, "--output", tmp_path / "two", *more)
    assert status == 0, printed
    assert f"Starting from the model of {tmp_path / 'one'}" in printed
    losses = []
    for name in ("one", "two"):
        with open(tmp_path / name / "history.csv", newline="", encoding="utf-8") as file:
            losses.append([float(row["val_loss"]) for row in csv.DictReader(file)])
    assert min(abs(losses[1][0] - loss) for loss in losses[0]) < 1e-3


@pytest.mark.long
@pytest.mark.parametrize("backend", ["tensorflow", "jax", "torch"])
def test_a_recurrent_run_is_stopped_by_a_signal_and_goes_on(tmp_path, no_tensorflow, backend):
    pytest.importorskip(backend)
    environment = {"KERAS_BACKEND": backend}
    if backend != "tensorflow":
        environment |= no_tensorflow
    job = [*write_words(tmp_path, 240), *RECURRENT]
    output = tmp_path / "run"
    status, printed = stop(output, signal.SIGTERM, *job, "--epochs", 500, **environment)
    assert status == 130, printed
    assert "Traceback" not in printed
    assert "run the same command to go on" in printed
    status, printed = finish(*job, "--epochs", 3, "--output", output, **environment)
    assert status == 0, printed
    assert re.search("Going on from epoch [12]|Already trained", printed)
    assert re.fullmatch(r"Exact match: .*% of 40 held-out pairs\.", printed.splitlines()[-1])
    with open(output / "history.csv", newline="", encoding="utf-8") as file:
        epochs = [int(row["epoch"]) for row in csv.DictReader(file)]
    assert epochs == list(range(1, len(epochs) + 1))


def finish_export(output):
    done = subprocess.run(
        [*COMMAND, "export", str(output)],
        capture_output=True,
        encoding="utf-8",
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.slow
def test_subwords_on_jax_have_bleu(tmp_path, without_tensorflow):
    pytest.importorskip("jax")
    pytest.importorskip("sacrebleu")
    sentences = ["A man rides a horse.", "Ein Mann reitet auf einem Pferd.", "Two DOGS run."]
    lines = [f"{sentences[n % 3]} {n}\t{sentences[(n + 1) % 3]} {n}\n" for n in range(60)]
    (tmp_path / "pairs").write_text("".join(lines), encoding="utf-8")
    status, printed = without_tensorflow(
        *("jax", "--train", tmp_path / "pairs", "--test", tmp_path / "pairs", *SMALL),
        *("--output", tmp_path / "run", "--lowercase", "--vocab-size", 100, "--epochs", 1),
        *("--normalization", "nfkc", "--beam-size", 3, "--length-penalty", 1),
    )
    assert status == 0, printed
    assert printed.splitlines()[-1].startswith("lower-cased BLEU: ")
