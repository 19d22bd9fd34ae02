"""README.txt of a run: its commands run as they are printed, and it says what texts are."""

import ast
import shlex
import subprocess

import pytest

from keras_transformer.commands.main import make_parser
from keras_transformer.recipes.run_directory import RunDirectory
from keras_transformer.recipes.run_readme import FILES
from keras_transformer.recipes.settings import Settings

CARD = """{"languages": {"source": "en", "target": "de"}, "jit_compile": true,
"texts": {"input": ["Text {as} it is."], "output": ["Small letters alone."]}}"""
SERVER_OPTIONS = {"rest_api_port", "model_name", "model_base_path", "xla_cpu_compilation_enabled"}
# Each command of the file prints its arguments, each on a line.
PRINTS = """{ printf '%s\\n' "$@"; }"""
SHELL = f"keras-transformer() {PRINTS}; tensorflow_model_server() {PRINTS}"


def readme(path, card=CARD, pair=("two\tdogs\n{}", 'zwei "Hunde"')):
    """The text of README.txt of a run in `path`, and the run's directory."""
    extra = path / "export" / "1" / "assets.extra"
    extra.mkdir(parents=True)
    (extra / "model_card.json").write_text(card, encoding="utf-8")
    (path / "export" / "1" / "saved_model.pb").touch()
    directory = RunDirectory(path)
    directory.write("settings.toml", Settings(train=("a.en", "b.de")).to_toml())
    directory.write("summary.txt", "BLEU: 1\n")
    directory.write_translations([pair], ["zwei"])
    directory.write_readme()
    return (path / "README.txt").read_text(encoding="utf-8")


def blocks(text):
    """The indented blocks: commands, code and the pair."""
    found, block = [], []
    for line in [*text.splitlines(), ""]:
        if line.startswith("    "):
            block.append(line.removeprefix("    "))
        elif block:
            found.append("\n".join(block))
            block = []
    return found


def commands(text):
    return [
        block
        for block in blocks(text)
        if block.startswith(("keras-transformer ", "tensorflow_model_"))
    ]


@pytest.mark.parametrize("name", ["run", "a run's $HOME", "de–en; ls"])
@pytest.mark.parametrize("xla", [True, False])
def test_a_shell_runs_each_command_as_it_is_printed(tmp_path, name, xla):
    text = readme(tmp_path / name, CARD if xla else CARD.replace("true", "false"))
    export = str(tmp_path / name / "export")
    found = commands(text)
    assert len(found) == 3
    for command in found:
        assert "  " not in command.replace("\\\n    ", "").replace(name, "")
        assert subprocess.run(["bash", "-n", "-c", command], check=False).returncode == 0
        shell = ["bash", "-c", f"{SHELL}\n{command}"]
        lines = subprocess.run(shell, capture_output=True, encoding="utf-8", check=True).stdout
        given = lines.splitlines()
        if command.startswith("keras-transformer "):
            assert make_parser().parse_args(given).model == str(tmp_path / name)
        else:
            options = dict(option.removeprefix("--").split("=", 1) for option in given)
            assert set(options) <= SERVER_OPTIONS
            assert options["model_base_path"] == export
            assert ("xla_cpu_compilation_enabled" in options) == xla
            assert ("XLA" in text) == xla


def test_the_python_in_it_is_code_with_the_path_and_the_text(tmp_path):
    (code,) = (block for block in blocks(readme(tmp_path / "it's")) if "import " in block)
    tree = ast.parse(code)
    strings = [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)]
    assert str(tmp_path / "it's" / "export" / "1") in strings
    assert "two\tdogs {}" in strings


def test_it_says_what_goes_in_what_comes_out_and_what_files_there_are(tmp_path):
    text = readme(tmp_path / "run")
    assert "What goes in (from en to de), one text a line:\n    - Text {as} it is.\n" in text
    assert "What comes out:\n    - Small letters alone.\n" in text
    assert '    two\tdogs {}\n    zwei "Hunde"\n' in text
    listed = [line.split()[0] for line in text.splitlines() if line.split()[:1]]
    files = {"export", "predictions.tsv", "settings.toml", "summary.txt", "translations.txt"}
    assert {name for name in FILES if name in listed} == files
    assert "Model: Transformer, preset tiny\n\nBLEU: 1\n" in text
    given = [shlex.split(command)[1:] for command in commands(text)]
    run = str(tmp_path / "run")
    assert given[0] == ["translate", run, "FILE"]
    assert given[2] == ["serve", run]


def test_languages_that_nobody_knows_are_not_named(tmp_path):
    text = readme(tmp_path / "run", CARD.replace('"de"', '""'))
    assert "What goes in, one text a line:\n" in text
