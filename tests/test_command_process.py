import pytest

from keras_transformer.command_process import is_command


@pytest.mark.parametrize(
    ("arguments", "original", "expected"),
    [
        (["/usr/bin/keras-transformer", "train"], [], True),
        (["keras-transformer.exe"], [], True),
        (["/lib/keras_transformer/__main__.py"], [], True),
        (["/lib/other/__main__.py"], [], False),
        (["-m"], ["python", "-m", "keras_transformer", "info"], True),
        (["-m"], ["python", "-Bmkeras_transformer"], True),
        (["-m"], ["python", "-m", "keras_transformer_tools"], False),
        (["-m"], ["python", "-m", "pytest"], False),
        (["train.py"], ["python", "train.py"], False),
        ([], ["python"], False),
    ],
)
def test_the_command_line_is_told_from_other_programs(monkeypatch, arguments, original, expected):
    monkeypatch.setattr("sys.argv", arguments)
    monkeypatch.setattr("sys.orig_argv", original)
    assert is_command() is expected
