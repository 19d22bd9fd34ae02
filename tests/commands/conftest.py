"""One small run for all tests of commands that only read it."""

import io
import json
import sys

import pytest


@pytest.fixture(scope="session")
def run_directory(tmp_path_factory, exported):
    """The directory of a run of the trained translator of letters, with its export."""
    # Only here: other backends collect this folder too, and have no TensorFlow.
    from keras_transformer.recipes.run_directory import RunDirectory
    from keras_transformer.recipes.settings import Settings
    from tests.serving.trained import Exported, translator

    path = tmp_path_factory.mktemp("commands") / "letters"
    directory = RunDirectory(path)
    options = dict(beam_size=3, max_length=32, xla_export=False, split_sentences=False)
    directory.open(Settings(train=("letters.low", "letters.up"), seed=5, **options))
    directory.save_model(translator().model, "model.keras")
    translator().source_tokenizer.save(path / "source.tokenizer")
    directory.export(Exported(exported), "Exact match: 98 %")
    directory.write_translations([("abc", "CBA"), ("g", "G")], ["CBA", "G"])
    directory.write("summary.txt", "Exact match: 98 %\n")
    return path


def stream(text):
    return io.TextIOWrapper(io.BufferedReader(io.BytesIO(text)), encoding="utf-8")


@pytest.fixture(scope="session")
def opened():
    """What was opened before: an export is loaded, and compiles, once for all tests."""
    return {}


@pytest.fixture
def command(capsys, monkeypatch, opened):
    """Runs a command in this process: its status, what it prints, and what beside it."""
    from keras_transformer.commands.main import main
    from keras_transformer.recipes import runs

    open_signatures = runs.open_signatures

    def open_once(path, **options):
        key = (str(path), *sorted(options.items()))
        if key not in opened:
            opened[key] = open_signatures(path, **options)
        return opened[key]

    monkeypatch.setattr(runs, "open_signatures", open_once)

    def run(*arguments, text=b""):
        monkeypatch.setattr(sys, "stdin", stream(text))
        capsys.readouterr()
        try:
            status = main([*map(str, arguments)])
        except SystemExit as ended:
            status = ended.code
        printed = capsys.readouterr()
        return status, printed.out, printed.err

    return run


@pytest.fixture
def figures(command):
    """What a command prints with `--json`."""

    def run(*arguments):
        status, out, err = command(*arguments, "--json")
        assert status == 0, err
        return json.loads(out)

    return run
