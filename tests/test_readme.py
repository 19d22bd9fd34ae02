"""The README and the pages keep their word: Python blocks run, the two commands are there."""

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.backends import on_tensorflow

REPOSITORY = Path(__file__).resolve().parents[1]
FOLDERS = ("docs", "docs/how-to", "docs/lab")  # the guide's pages run in test_guide.py
PAGES = sorted(
    f"{name}/{path.name}" for name in FOLDERS for path in (REPOSITORY / name).glob("*.md")
)
HOW_TOS = [page for page in PAGES if page.startswith("docs/how-to/")]
PAGES = [page for page in PAGES if "```python" in (REPOSITORY / page).read_text(encoding="utf-8")]
FENCE = re.compile(r"^```(?P<language>\w+)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)


def code_blocks(text, language):
    """Gives the bodies of the fenced blocks of one language, in order."""
    return [match["body"] for match in FENCE.finditer(text) if match["language"] == language]


def test_code_blocks_finds_the_blocks_of_one_language():
    text = "a\n```bash\nls\n```\nb\n```python\nx = 1\n```\n\n```python\ny = x\n```\n"
    assert code_blocks(text, "python") == ["x = 1\n", "y = x\n"]
    assert code_blocks(text, "bash") == ["ls\n"]
    assert code_blocks("```text\nno code\n```\n", "python") == []


@pytest.mark.parametrize("name", ["run", "test"])
def test_readme_holds_the_command(name):
    text = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    assert text.count(f"<!-- command: {name} -->\n") == 1
    _, after = text.split(f"<!-- command: {name} -->\n")
    assert after.lstrip("\n").startswith("```bash\n")
    assert code_blocks(after, "bash")[0].startswith('pip install -e ".[')


RUN_EACH = """
import json, os, runpy, sys, traceback
said = {}
for script in sys.argv[1:]:
    os.chdir(os.path.dirname(script))
    try:
        runpy.run_path(script, run_name="__main__")
    except BaseException:
        said[script] = traceback.format_exc()
with open(__file__ + ".json", "w", encoding="utf-8") as file:
    json.dump(said, file)
"""


@pytest.fixture(scope="module")
def errors(tmp_path_factory):
    """What the script of each page raised, by its page: one process runs one after the other."""
    folder, scripts = tmp_path_factory.mktemp("pages"), {}
    for page in ["README.md", *PAGES]:
        blocks = code_blocks((REPOSITORY / page).read_text(encoding="utf-8"), "python")
        scripts[page] = folder / page.removesuffix(".md").replace("/", "-") / "page.py"
        scripts[page].parent.mkdir()
        scripts[page].write_text("\n".join(blocks), encoding="utf-8")
    (folder / "run_each.py").write_text(RUN_EACH, encoding="utf-8")
    environment = {
        **os.environ,
        "KERAS_BACKEND": "tensorflow",
        "PYTHONPATH": os.pathsep.join([str(REPOSITORY), os.environ.get("PYTHONPATH", "")]),
    }
    done = subprocess.run(
        [sys.executable, str(folder / "run_each.py"), *map(str, scripts.values())],
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        timeout=1800,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    said = json.loads((folder / "run_each.py.json").read_text(encoding="utf-8"))
    return {page: said.get(str(script)) for page, script in scripts.items()}


def test_the_readme_shows_the_interface():
    text = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    assert code_blocks(text, "python"), "README.md must have at least one ```python block"


def test_the_readme_is_short_and_its_tables_are_narrow():
    lines = (REPOSITORY / "README.md").read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 120
    cells = [cell.strip() for line in lines if line.startswith("|") for cell in line.split("|")]
    assert [cell for cell in cells if len(cell) > 60] == []


def test_the_readme_names_tests_that_are_there():
    text = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    named = re.findall(r"\]\((tests/[\w/]+\.py)\)", text)
    assert len(named) >= 4
    assert [path for path in named if not (REPOSITORY / path).exists()] == []


def test_every_task_is_linked_in_the_readme():
    text = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    assert [page for page in HOW_TOS if f"({page})" not in text] == []


@pytest.mark.parametrize("page", HOW_TOS)
def test_a_how_to_has_at_most_100_lines(page):
    assert len((REPOSITORY / page).read_text(encoding="utf-8").splitlines()) <= 100


@on_tensorflow  # the process is on TensorFlow whatever the backend
@pytest.mark.slow
@pytest.mark.parametrize("page", ["README.md", *PAGES])
def test_python_blocks_run_one_after_the_other(page, errors):
    assert errors[page] is None, errors[page]


@pytest.fixture(scope="module")
def directories(tmp_path_factory):
    """Where the commands of the pages have written the directories that their programs read."""
    from keras_transformer import Transformer
    from keras_transformer.interop import save_hugging_face
    from keras_transformer.serving import Translator, export_onnx
    from keras_transformer.text import SentencePieceTokenizer

    folder = tmp_path_factory.mktemp("written")
    texts = ["two dogs play in the snow", "a man rides a horse"] * 5
    tokenizer = SentencePieceTokenizer.train(texts, vocab_size=60, shrink_to_fit=True)
    model = Transformer(tokenizer.vocab_size, num_layers=1, d_model=16, num_heads=2, d_ff=32)
    translator = Translator(model, tokenizer, max_length=8)
    save_hugging_face(translator, folder / "en-de-hf")
    export_onnx(translator, folder / "runs" / "en-de" / "onnx", strings=True)
    return folder


@on_tensorflow
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of the converters
@pytest.mark.parametrize(
    ("page", "needs"),
    [
        ("docs/how-to/leave-for-ctranslate2.md", ("transformers", "torch")),
        ("docs/how-to/onnx.md", ("onnxruntime_extensions", "onnx")),
    ],
)
def test_programs_of_other_libraries_read_what_is_written(page, needs, request):
    for name in needs:
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"needs {name}")
    (program,) = code_blocks((REPOSITORY / page).read_text(encoding="utf-8"), "py")
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=request.getfixturevalue("directories"),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        timeout=600,
    )
    assert done.returncode == 0, done.stderr[-4000:]
