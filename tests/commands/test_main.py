import os
import re
import signal
import subprocess
import sys
import time

import pytest

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
    assert command("info", tmp_path) == (130, "", "Interrupted.\n")


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
