import ast
import os
import re
import signal
import subprocess
import sys
import time

import keras
import pytest

import keras_transformer
from keras_transformer.commands import main as command_line

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
        assert args.run.__module__ == f"keras_transformer.commands.{name}"


def test_help_and_refusals_come_before_keras_is_imported():
    code = """
import sys
sys.argv = ["keras-transformer"]
from keras_transformer.commands.main import main
for arguments in (["--help"], ["translate", "--help"], ["translate", "--n-best", "0"],
                  ["translate", "nowhere"], ["serve", "nowhere"],
                  ["evaluate", "--reference", "x"]):
    try:
        print("status", main(arguments))
    except SystemExit as ended:
        print("status", ended.code)
print([name for name in ("keras", "tensorflow", "numpy") if name in sys.modules])
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, encoding="utf-8", check=True
    )
    assert done.stdout.endswith("[]\n"), done.stdout
    assert re.findall(r"status (\d)", done.stdout) == ["0", "0", "1", "1", "1", "1"]
    errors = done.stderr.splitlines()
    assert len(errors) == 4
    assert all(line.startswith("error: ") for line in errors)


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
    assert b"Traceback" not in errors
