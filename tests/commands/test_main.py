import argparse
import ast
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import keras
import pytest

import keras_transformer
from keras_transformer.commands import main as command_line
from keras_transformer.commands import program
from keras_transformer.decoding.search import LARGEST_LENGTH_PENALTY
from keras_transformer.recipes.settings import Settings

REPOSITORY = Path(__file__).resolve().parents[2]
COMMAND = (sys.executable, "-m", "keras_transformer")


@pytest.mark.parametrize("name", command_line.COMMANDS)
def test_the_help_of_a_command_has_three_examples_that_can_be_run(name, command):
    status, out, _ = command(name, "--help")
    assert status == 0
    lines = out.split("examples:\n")[1].strip().splitlines()
    assert len(lines) == 3
    for line in lines:
        program, given = line.split(maxsplit=1)
        assert program == "keras-transformer"
        words = re.findall(r'"[^"]*"|\S+', given.split("<<<")[0])
        args = command_line.make_parser().parse_args([word.strip('"') for word in words])
        module = command_line.MODULES.get(name, name)
        assert args.run.__module__ == f"keras_transformer.commands.{module}"


def test_the_largest_length_penalty_is_that_of_a_search():
    assert program.length_penalty(str(LARGEST_LENGTH_PENALTY)) == LARGEST_LENGTH_PENALTY
    with pytest.raises(argparse.ArgumentTypeError, match=r"from 0 to 10. Received: 10\.1"):
        program.length_penalty(str(LARGEST_LENGTH_PENALTY + 0.1))


@pytest.fixture
def files(tmp_path):
    """The files of a run with its export, and of texts."""
    run = tmp_path / "run"
    (run / "export" / "1").mkdir(parents=True)
    settings = Settings.from_preset(train="words.tsv", format="characters", beam_size=2)
    (run / "settings.toml").write_text(settings.to_toml(), encoding="utf-8")
    for name in ("model.keras", "export/1/saved_model.pb"):
        (run / name).touch()
    (tmp_path / "one").write_text("a\n", encoding="utf-8")
    (tmp_path / "two").write_text("a\nb\n", encoding="utf-8")
    return tmp_path


# What each command refuses, and how its line begins.
REFUSED = [
    ("translate run one --n-best 0", "argument --n-best: must be a whole number of at least 1"),
    ("translate nowhere", "nowhere: there is no such directory"),
    ("translate .", ". must be the directory of a run, with settings.toml and model.keras"),
    ("translate run nothing", "nothing: there is no such file"),
    ("translate run run", "run: is a directory. Give a file"),
    ("translate run one --output no/where", "--output must be in a directory that exists"),
    ("translate run one --output run", "--output must be a file. Received: run, a directory"),
    ("translate run one --n-best 3", "--n-best must be at most 2, the beam of the model. Receiv"),
    ("translate run one --alignments", "--alignments needs --raw for a model of the format char"),
    ("translate run one --beam-size 1 --length-penalty 1", "a length penalty needs a beam"),
    ("translate run/export one --beam-size 3", "run/export must be the directory of a run to"),
    ("evaluate --reference x", "give either MODEL or --translations"),
    ("evaluate run", "run has no predictions.tsv of a run. Give --source and --reference"),
    ("evaluate run --source one --reference two", "one has 1 lines, and there are 2 references"),
    ("score run one two", "one has 1 lines and two has 2. Line n of one must translate line n"),
    ("export run/export", "run/export must be the directory of a run"),
    ("export run --output one/below", "--output must be in a directory. Received: one/below"),
    ("serve nowhere", "nowhere: there is no such directory"),
    ("explore run a --output no/where", "--output must be in a directory that exists"),
    ("explore run   ", "SENTENCE must have at least one word"),
    ("info .", ". must be the directory of a run"),
    ("train --start-from nowhere", "nowhere: there is no such directory"),
]


def test_help_and_refusals_come_before_keras_is_imported(files):
    code = """
import sys
given = sys.argv[1:]
sys.argv = ["keras-transformer"]
from keras_transformer.commands.main import main
for line in given:
    arguments = line.split(" ") if line.strip() == line else [*line.split(), " "]
    try:
        print("status", main(arguments))
    except SystemExit as ended:
        print("status", ended.code)
print([name for name in ("keras", "tensorflow", "numpy") if name in sys.modules])
"""
    lines = [line for line, _ in REFUSED]
    done = subprocess.run(
        [sys.executable, "-c", code, "--help", "translate --help", *lines],
        capture_output=True, encoding="utf-8", check=True, cwd=files,
        env=os.environ | {"PYTHONPATH": str(REPOSITORY)},
    )  # fmt: skip
    assert done.stdout.endswith("[]\n"), done.stdout
    assert re.findall(r"status (\d)", done.stdout) == ["0", "0"] + ["1"] * len(REFUSED)
    errors = done.stderr.splitlines()
    assert len(errors) == len(REFUSED)
    for error, (line, beginning) in zip(errors, REFUSED, strict=True):
        assert error.startswith(f"error: {beginning}"), line


@pytest.mark.slow
def test_a_process_of_a_command_knows_every_class_that_a_model_may_hold():
    code = """
import sys
sys.argv = ["keras-transformer"]
import contextlib, keras_transformer, keras
from keras_transformer.recipes.runs import load_model
with contextlib.suppress(ValueError):
    load_model("nowhere.keras")
assert not hasattr(keras_transformer, "Transformer")
print(sorted(keras.saving.get_custom_objects()))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, encoding="utf-8", check=True
    )
    kinds = (keras.Layer, keras.Loss, keras.Metric, keras.optimizers.Optimizer)
    kinds += (keras.optimizers.schedules.LearningRateSchedule,)
    public = [getattr(keras_transformer, name) for name in keras_transformer.__all__]
    public = [one for one in public if isinstance(one, type) and issubclass(one, kinds)]
    names = {f"keras_transformer>{one.__name__}" for one in public}
    assert names <= set(ast.literal_eval(done.stdout.splitlines()[-1]))
    assert len(names) > 20


@pytest.mark.slow
def test_the_names_of_the_package_are_there_in_a_package_run_by_m(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "__init__.py").write_text(
        "from keras_transformer import Transformer", encoding="utf-8"
    )
    (tmp_path / "mine" / "train.py").write_text("print('trained')", encoding="utf-8")
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-m", "mine.train"], env=os.environ | {"PYTHONPATH": path},
        capture_output=True, encoding="utf-8", check=False, cwd=tmp_path,
    )  # fmt: skip
    assert done.stdout == "trained\n", done.stderr


def test_a_reader_that_has_seen_enough_is_no_error(run_directory, command, monkeypatch):
    def run(args, program):
        raise BrokenPipeError

    monkeypatch.setattr("keras_transformer.commands.info.run", run)
    monkeypatch.setattr("keras_transformer.commands.program.Program.give_up_output", print)
    assert command("info", run_directory)[0] == 0


@pytest.mark.parametrize("given", [["-m", "keras_transformer"], ["-Bmkeras_transformer"]])
def test_python_runs_the_command_line_as_a_module(given):
    done = subprocess.run(
        [sys.executable, *given, "--help"], capture_output=True, encoding="utf-8", check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("usage: keras-transformer ")


def test_it_tells_its_version(command):
    status, out, _ = command("--version")
    assert (status, out) == (0, f"keras-transformer {keras_transformer.__version__}\n")


def test_an_unknown_command_is_refused_in_one_line(command):
    status, out, err = command("fly")
    assert (status, out) == (1, "")
    assert err.startswith("error: argument COMMAND: invalid choice: 'fly'")
    assert err.count("\n") == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_a_command_with_130(number, tmp_path, command, monkeypatch):
    def run(args, program):
        os.kill(os.getpid(), number)
        time.sleep(10)

    monkeypatch.setattr("keras_transformer.commands.info.run", run)
    # A process that a shell starts in the background ignores Ctrl-C.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        assert command("info", tmp_path) == (130, "", "Interrupted.\n")
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_a_process_with_130(run_directory, number):
    process = subprocess.Popen(
        [*COMMAND, "translate", run_directory / "export" / "1", "--batch-size", "5"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    process.stdin.write(b"abc\n" * 8)  # a whole batch, and one that waits for more
    process.stdin.flush()
    assert process.stdout.readline() == b"CBA\n"
    process.send_signal(number)
    _, errors = process.communicate(timeout=100)
    assert process.returncode == 130
    assert errors == b"Interrupted.\n"


def run_as_users_do(*given):
    """Runs a command in a process that says nothing of what TensorFlow may write."""
    environment = {name: os.environ[name] for name in os.environ if name != "TF_CPP_MIN_LOG_LEVEL"}
    return subprocess.run(
        [*COMMAND, *map(str, given)], capture_output=True, encoding="utf-8", env=environment
    )


@pytest.mark.slow
def test_a_command_prints_nothing_of_tensorflow(run_directory):
    done = run_as_users_do("info", run_directory)
    assert "Transformer of" in done.stdout
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["jax", "torch"])
def test_training_on_another_backend_prints_nothing_of_tensorflow(tmp_path, backend):
    pytest.importorskip(backend)
    files = tmp_path / "a.en", tmp_path / "a.de"
    files[0].write_text("one\ntwo\n", encoding="utf-8")
    files[1].write_text("eins\n", encoding="utf-8")
    output = tmp_path / "run"
    done = run_as_users_do("train", "--train", *files, "--backend", backend, "--output", output)
    assert done.returncode == 1
    assert done.stderr.startswith(f"error: {files[0]} has 2 lines")  # read after the seed is set
    assert done.stderr.count("\n") == 1
