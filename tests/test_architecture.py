"""The layout holds: imports point down, TensorFlow stays behind the fence, files stay small.

Each rule is a function from (path, tree) to a list of complaints. It is run over the package. It is
also run over a small bad source of its own, so that a rule that can no longer fail is noticed.
"""

import ast
import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path, PurePosixPath

import pytest

REPOSITORY = Path(__file__).resolve().parents[1]
PACKAGE = "keras_transformer"
MAX_LINES = 400
LONG_FILES = {  # those of one idea that takes more lines, and how many it may take
    # The arguments of Keras and of ours with their rules, and attention whole, in blocks, in steps.
    "layers/multi_head_attention.py": 460,
}

# (level, order within the level): a unit imports only what is strictly lower, and itself.
LEVELS = {
    "arguments": (0, 0),
    "atomic_files": (0, 0),
    "card_file": (0, 0),
    "command_process": (0, 0),
    "line_files": (0, 0),
    "processes": (0, 0),
    "processor": (0, 0),
    "reservoir": (0, 0),
    "subwords": (0, 0),
    "symbols": (0, 0),
    "tokenizer_file": (0, 0),
    "integer_ids": (0, 1),
    "process_group": (0, 1),
    "replicas": (0, 1),
    "masking": (0, 2),
    "schedules": (0, 3),
    "losses": (0, 3),
    "optimizers": (0, 3),
    "decoding": (0, 3),
    "metrics": (0, 4),
    "batches": (1, 0),
    "layers": (1, 0),
    "checks": (2, 0),
    "distribution": (1, 0),
    "lora": (1, 1),
    "models": (2, 0),
    "callbacks": (2, 0),
    "plots": (2, 0),
    "text": (3, 0),
    "serving": (4, 0),
    "interop": (4, 1),
    "recipes": (5, 0),
    "commands": (6, 0),
    "__main__": (7, 0),
}
MAX_BY_POSITION = 5
# Whose order of arguments is not ours: Keras's attention has it, or TensorFlow's operations and
# signatures do.
ORDER_OF_OTHERS = {
    "layers/multi_head_attention.py": {"__init__", "call"},
    "serving/onnx_operations.py": {"one_hot"},
    "serving/onnx_shapes.py": {"strided_slice"},
    "serving/string_functions.py": {"translate", "translate_tagged"},
}
FENCED_UNITS = {"text", "serving", "interop"}
FENCED_MODULES = {"tensorflow", "tensorflow_text", "sentencepiece"}
CORE_MODULES = {"keras", "numpy"}
WHEN_CALLED = {
    "callbacks": {"sacrebleu"},
    "commands": {"tensorflow", "rich"},
    "optimizers": {"tensorflow"},  # where it is the backend
    "plots": {"matplotlib"},
    "process_group": {"jax"},  # where it is the backend
    "recipes": {"tensorflow", "tensorflow_text", "sacrebleu", "sentencepiece"},
    "replicas": {"tensorflow"},  # where it is the backend
}  # imported inside a function, by those who ask for it
OPTIONAL_FILES = {"recipes/dates.py": {"babel"}}  # that nothing imports but who needs them
TEXT_METHODS = {"read_text", "write_text", "TextIOWrapper"}
TEXT_MODES = {f"{mode}{kind}" for mode in ("r", "w", "x", "a") for kind in ("", "t", "+", "t+")}


def unit_of(path):
    """Gives the module or subpackage of the package a file belongs to; "" is `__init__.py`."""
    first = PurePosixPath(path).parts[0]
    return "" if first == "__init__.py" else first.removesuffix(".py")


def imports_of(tree):
    """Gives (line, dotted name) of everything imported; `from a import b` gives "a.b"."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            found += [(node.lineno, f"{node.module}.{alias.name}") for alias in node.names]
    return found


def for_types(node):
    """Tells whether a node is an `if TYPE_CHECKING:` without an `else`."""
    return (
        isinstance(node, ast.If)
        and isinstance(node.test, ast.Name)
        and node.test.id == "TYPE_CHECKING"
        and not node.orelse
    )


def imports_while_loading(tree):
    """Gives the imports that run when the module is imported.

    Those inside a function do not, and those under `if TYPE_CHECKING:` are for a type checker.
    """
    functions = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
    nodes = [node for node in ast.walk(tree) if isinstance(node, functions) or for_types(node)]
    inside = {id(child) for node in nodes for child in ast.walk(node)}
    outside = [node for node in ast.walk(tree) if id(node) not in inside]
    statements = [node for node in outside if isinstance(node, ast.Import | ast.ImportFrom)]
    return imports_of(ast.Module(body=statements))


def complain(path, line, text):
    return f"{PACKAGE}/{path}:{line}: {text}"


def layout_is_known(path, tree):
    """Every file belongs to a module or folder of the layout."""
    if unit_of(path) in {"", *LEVELS}:
        return []
    return [complain(path, 1, f"{unit_of(path)!r} has no level: add it to LEVELS")]


def imports_point_down(path, tree):
    """A file imports from its own folder and from lower levels only."""
    own, complaints = unit_of(path), []
    for line, name in imports_of(tree):
        parts = name.split(".")
        if parts[0] != PACKAGE:
            continue
        other = parts[1] if len(parts) > 1 else ""
        if own and other not in LEVELS:
            complaints.append(complain(path, line, f"imports {name} from the top of the package"))
        elif own and other != own and own in LEVELS and LEVELS[other] >= LEVELS[own]:
            complaints.append(complain(path, line, f"{own} may not import {other}: not below it"))
    return complaints


def text_knows_no_model(path, tree):
    """Text is strings and ids: no layer, no model, no search."""
    known = {f"{PACKAGE}.{unit}" for unit in ("layers", "models", "decoding", "callbacks")}
    return [
        complain(path, line, f"text may not import {name}: it knows no model")
        for line, name in imports_of(tree)
        if unit_of(path) == "text" and ".".join(name.split(".")[:2]) in known
    ]


def tensorflow_stays_behind_the_fence(path, tree):
    """TensorFlow and its text libraries are imported in text, serving and interop only.

    A unit of `WHEN_CALLED` may import it inside a function.
    """
    if unit_of(path) in FENCED_UNITS:
        return []
    loading = set(imports_while_loading(tree))
    allowed = WHEN_CALLED.get(unit_of(path), set())
    return [
        complain(path, line, f"imports {name} outside {', '.join(sorted(FENCED_UNITS))}")
        for line, name in imports_of(tree)
        if (root := name.split(".")[0]) in FENCED_MODULES
        and (root not in allowed or (line, name) in loading)
    ]


def core_needs_only_keras_and_numpy(path, tree):
    """Below the fence: keras, numpy, the standard library, and what is imported when called."""
    if unit_of(path) in FENCED_UNITS:
        return []
    loading = set(imports_while_loading(tree))
    complaints = []
    for line, name in imports_of(tree):
        root = name.split(".")[0]
        if root in CORE_MODULES | FENCED_MODULES | {PACKAGE} | sys.stdlib_module_names:
            continue
        if root in OPTIONAL_FILES.get(path, set()):
            continue
        if root not in WHEN_CALLED.get(unit_of(path), set()):
            complaints.append(complain(path, line, f"imports {name}: the core needs keras, numpy"))
        elif (line, name) in loading:
            complaints.append(complain(path, line, f"imports {name} on loading, not when called"))
    return complaints


def private_keras_is_left_alone(path, tree):
    """`keras.src` is not an interface."""
    return [
        complain(path, line, f"imports {name}: use the public keras names")
        for line, name in imports_of(tree)
        if f"{name}.".startswith("keras.src.")
    ]


def top_of_the_package_imports_only_the_core(path, tree):
    """`import keras_transformer` works without TensorFlow."""
    if path != "__init__.py":
        return []
    fenced = {f"{PACKAGE}.{unit}" for unit in FENCED_UNITS | {"recipes", "commands"}}
    return [
        complain(path, line, f"imports {name}: users import it themselves")
        for line, name in imports_of(tree)
        if ".".join(name.split(".")[:2]) in fenced
    ]


def nothing_is_asserted(path, tree):
    """`assert` is for tests: the package raises errors that say what to do."""
    return [
        complain(path, node.lineno, "assert statement")
        for node in ast.walk(tree)
        if isinstance(node, ast.Assert)
    ]


def imports_are_absolute(path, tree):
    """No relative import."""
    return [
        complain(path, node.lineno, "relative import")
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.level
    ]


def few_arguments_go_by_position(path, tree):
    """Beyond five a caller names the argument: `f(1, 2, 3, 4, 5, sixth=6)`."""
    complaints = []
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        name = getattr(node, "name", "lambda")
        places = [place.arg for place in (*node.args.posonlyargs, *node.args.args)]
        count = len([place for place in places if place not in ("self", "cls")])
        if count > MAX_BY_POSITION and name not in ORDER_OF_OTHERS.get(path, ()):
            complaints.append(
                complain(path, node.lineno, f"{name} takes {count} arguments by position")
            )
    return complaints


def names_do_not_end_in_of(path, tree):
    """`count_tokens`, not `tokens_of`, which begins with a noun."""
    return [
        complain(path, node.lineno, f"{node.name} ends in _of: begin with a verb")
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.name.endswith("_of")
        and node.name != "one_of"  # reads as what it checks: `one_of(name, value, choices)`
    ]


def lines_of_code(source):
    """Counts the lines of a file without docstrings and blank lines."""
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    docstrings = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, documented) and ast.get_docstring(node) is not None:
            docstrings.update(range(node.body[0].lineno, node.body[0].end_lineno + 1))
    lines = enumerate(source.splitlines(), start=1)
    return sum(bool(line.strip()) and number not in docstrings for number, line in lines)


def file_is_short(path, source):
    """A file over the limit may hold two ideas. An idea is never cut in two to fit."""
    count, most = lines_of_code(source), LONG_FILES.get(path, MAX_LINES)
    return [complain(path, 1, f"{count} lines of code, over {most}")] * (count > most)


RULES = [
    layout_is_known,
    imports_point_down,
    text_knows_no_model,
    tensorflow_stays_behind_the_fence,
    core_needs_only_keras_and_numpy,
    private_keras_is_left_alone,
    top_of_the_package_imports_only_the_core,
    nothing_is_asserted,
    imports_are_absolute,
    few_arguments_go_by_position,
    names_do_not_end_in_of,
]

BAD_SOURCES = [
    (layout_is_known, "helpers.py", "x = 1"),
    (layout_is_known, "utils/shapes.py", "x = 1"),
    (imports_point_down, "layers/encoder.py", "from keras_transformer.models import Transformer"),
    (imports_point_down, "layers/encoder.py", "import keras_transformer.serving.translator"),
    (imports_point_down, "masking.py", "from keras_transformer import losses"),
    (imports_point_down, "losses.py", "def f():\n    from keras_transformer.metrics import M"),
    (imports_point_down, "models/transformer.py", "from keras_transformer.callbacks import C"),
    (imports_point_down, "serving/translator.py", "import keras_transformer.interop"),
    (imports_point_down, "models/transformer.py", "from keras_transformer import Encoder"),
    (imports_point_down, "models/transformer.py", "import keras_transformer"),
    (text_knows_no_model, "text/dataset.py", "from keras_transformer.models import Transformer"),
    (text_knows_no_model, "text/dataset.py", "from keras_transformer import layers"),
    (tensorflow_stays_behind_the_fence, "masking.py", "import tensorflow as tf"),
    (tensorflow_stays_behind_the_fence, "plots/rates.py", "def f():\n    import tensorflow_text"),
    (tensorflow_stays_behind_the_fence, "__init__.py", "from sentencepiece import x"),
    (tensorflow_stays_behind_the_fence, "optimizers.py", "import tensorflow as tf"),
    (tensorflow_stays_behind_the_fence, "optimizers.py", "class A:\n  import tensorflow as tf"),
    (tensorflow_stays_behind_the_fence, "losses.py", "def f():\n    import tensorflow as tf"),
    (tensorflow_stays_behind_the_fence, "optimizers.py", "def f():\n    import tensorflow_text"),
    (core_needs_only_keras_and_numpy, "layers/encoder.py", "import torch"),
    (core_needs_only_keras_and_numpy, "plots/rates.py", "from matplotlib.figure import Figure"),
    (core_needs_only_keras_and_numpy, "losses.py", "def f():\n    import matplotlib"),
    (core_needs_only_keras_and_numpy, "losses.py", "if TYPE_CHECKING:\n    import matplotlib"),
    (core_needs_only_keras_and_numpy, "plots/rates.py", "if 1:\n    import matplotlib"),
    (private_keras_is_left_alone, "layers/encoder.py", "from keras.src import backend"),
    (private_keras_is_left_alone, "layers/encoder.py", "import keras.src.ops as ops"),
    (top_of_the_package_imports_only_the_core, "__init__.py", "from keras_transformer import text"),
    (
        top_of_the_package_imports_only_the_core,
        "__init__.py",
        "from keras_transformer.serving import Translator",
    ),
    (nothing_is_asserted, "losses.py", "def f(x):\n    assert x"),
    (imports_are_absolute, "layers/encoder.py", "from . import attention"),
    (imports_are_absolute, "layers/encoder.py", "from ..masking import causal_mask"),
    (few_arguments_go_by_position, "losses.py", "def f(a, b, c, d, e, f=0): ..."),
    (few_arguments_go_by_position, "losses.py", "class A:\n  def f(self, a, b, c, d, e, f): ..."),
    (names_do_not_end_in_of, "losses.py", "class A:\n  def _tokens_of(self): ..."),
]

GOOD_SOURCES = [
    ("__init__.py", "from keras_transformer.models import Transformer"),
    ("metrics.py", "import keras\nfrom keras_transformer.losses import token_weights"),
    ("layers/encoder.py", "import math\nfrom keras_transformer.layers.encoder_layer import E"),
    ("layers/encoder.py", "from keras import ops\nfrom keras_transformer import masking"),
    ("plots/rates.py", "import numpy as np\ndef f():\n    from matplotlib.figure import Figure"),
    ("plots/rates.py", "if TYPE_CHECKING:\n    from matplotlib.figure import Figure"),
    ("optimizers.py", "class A:\n  def f(self):\n    import tensorflow as tf"),
    ("text/dataset.py", "import tensorflow as tf\nfrom keras_transformer.arguments import one_of"),
    ("losses.py", "class A:\n  def f(self, a, b, c, d, e, *more, f=0): ..."),
    ("serving/export.py", "import tensorflow_text\nfrom keras_transformer.text import vocabulary"),
]


def package_files():
    folder = REPOSITORY / PACKAGE
    return {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*.py"))}


FILES = package_files()


@pytest.fixture(scope="module")
def trees():
    return {path: ast.parse(file.read_text(encoding="utf-8")) for path, file in FILES.items()}


def named(values):
    return [getattr(value, "__name__", str(value)) for value in values]


@pytest.mark.parametrize("rule", RULES, ids=named(RULES))
def test_package_keeps_the_rule(rule, trees):
    assert [complaint for path, tree in trees.items() for complaint in rule(path, tree)] == []


def test_files_are_short():
    sources = {path: file.read_text(encoding="utf-8") for path, file in FILES.items()}
    assert [c for path, source in sources.items() for c in file_is_short(path, source)] == []
    assert [path for path in LONG_FILES if lines_of_code(sources[path]) <= MAX_LINES] == []


def rooms_of_page(text):
    """Gives (level, room) of each room in the table of docs/architecture.md."""
    rows = re.findall(r"^\| (\d) \| ([^|]*) \|", text, re.MULTILINE)
    names = ((int(level), re.findall(r"`(\w+)(?:/|\.py)`", rooms)) for level, rooms in rows)
    return sorted((level, name) for level, found in names for name in found)


def test_the_page_names_every_room_with_its_level():
    text = (REPOSITORY / "docs" / "architecture.md").read_text(encoding="utf-8")
    assert rooms_of_page(text) == sorted((level, name) for name, (level, _) in LEVELS.items())


def journeys_of_page(text):
    """Gives (number, links) of each row in the table of journeys of docs/architecture.md."""
    section = text.partition("## Journeys")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| [^|]*\? \|(?: (\d+) \|)? ([^|]*) \|$", section, re.MULTILINE)
    return [(int(number or 0), re.findall(r"\]\((\S+)\)", files)) for number, files in rows]


def test_each_journey_says_how_many_files_it_has():
    page = REPOSITORY / "docs" / "architecture.md"
    journeys = journeys_of_page(page.read_text(encoding="utf-8"))
    assert len(journeys) >= 8
    assert [number for number, _ in journeys] == [len({*links}) for _, links in journeys]
    links = [link for _, links in journeys for link in links]
    assert [link for link in links if not (page.parent / link).is_file()] == []


def test_a_journey_without_its_number_is_found():
    rows = "| Where? | 2 | [a](x), then [b](y) |\n| How? | [a](x), for c [b](y) |\n"
    text = f"## Journeys\n\n| question | number | files |\n|---|---|---|\n{rows}\n## Next\n"
    assert journeys_of_page(text) == [(2, ["x", "y"]), (0, ["x", "y"])]


def test_there_are_files_to_check():
    assert "__init__.py" in FILES
    assert {unit_of(path) for path in FILES} >= {"masking", "layers", "models", "decoding"}


@pytest.mark.parametrize(("rule", "path", "source"), BAD_SOURCES)
def test_rule_finds_the_bad_source(rule, path, source):
    complaints = rule(path, ast.parse(source))
    assert len(complaints) == 1
    assert complaints[0].startswith(f"{PACKAGE}/{path}:")


def test_every_rule_has_a_bad_source():
    assert {rule for rule, _, _ in BAD_SOURCES} == set(RULES)


@pytest.mark.parametrize(("path", "source"), GOOD_SOURCES)
def test_no_rule_minds_the_good_source(path, source):
    assert [c for rule in RULES for c in rule(path, ast.parse(source))] == []


def test_length_rule_counts_lines_without_docstrings_and_blank_lines():
    documented = '"""One.\n\nTwo."""\n\n\ndef f():\n    """Three.\n\n    Four."""\n    return 1\n'
    assert lines_of_code(documented) == 2
    assert file_is_short("masking.py", documented + "x = 1\n" * (MAX_LINES - 2)) == []
    assert file_is_short("masking.py", documented + "x = 1\n" * (MAX_LINES - 1)) == [
        f"keras_transformer/masking.py:1: {MAX_LINES + 1} lines of code, over {MAX_LINES}"
    ]


def bases_of_one(trees):
    """Names the classes of a package that one other class inherits, and nothing else reads.

    Such a base is a part of its subclass, or an object beside it. An annotation does not read it,
    except `Unpack`, which takes its fields.
    """
    heirs, read = {}, set()
    for tree in trees.values():
        aside = set()
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                aside.update(id(base) for base in node.bases)
                for base in node.bases:
                    if isinstance(base, ast.Name):
                        heirs.setdefault(base.id, set()).add(node.name)
            annotation = getattr(node, "annotation", None) or getattr(node, "returns", None)
            if isinstance(annotation, ast.AST) and "Unpack[" not in ast.unparse(annotation):
                aside.update(id(part) for part in ast.walk(annotation))
        nodes = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
        read.update(node.id for node in nodes if id(node) not in aside)
    own = {n.name for t in trees.values() for n in ast.walk(t) if isinstance(n, ast.ClassDef)}
    return sorted(name for name, found in heirs.items() if len(found) == 1 and name in own - read)


def test_a_base_class_has_two_subclasses_or_is_used(trees):
    assert bases_of_one(trees) == []


def test_a_base_class_with_one_subclass_is_found():
    sources = {
        "a.py": "class Base: ...\nclass Made: ...\nMade()\nclass Of(Base): ...",
        "b.py": "class B(Made): ...\ndef f(base: Base) -> Base: ...",
        "c.py": "class Names: ...\nclass More(Names): ...\ndef f(**names: Unpack[Names]): ...",
    }
    assert bases_of_one({path: ast.parse(text) for path, text in sources.items()}) == ["Base"]


def reshapes_without_arrow(source):
    """Gives the lines of `reshape(tensor, shape)` calls without the shape that results.

    The arrow, `# -> (batch, beam, d_model)`, stands in a line of the call's statement, or in the
    line before the call. Methods of NumPy arrays, which readers of files call, are left out.
    """
    lines, found = source.splitlines(), []
    for statement in ast.walk(ast.parse(source)):
        if not isinstance(statement, ast.stmt) or hasattr(statement, "body"):
            continue
        for node in ast.walk(statement):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                continue
            if node.func.attr != "reshape" or not isinstance(node.func.value, ast.Name):
                continue
            if node.func.value.id not in ("ops", "tf", "numpy_api"):
                continue
            near = lines[node.lineno - 2 : node.end_lineno]
            near += [lines[statement.lineno - 2]] if statement.lineno > 1 else []
            near += [lines[statement.end_lineno - 1]]
            if not any("->" in line.partition("#")[2] for line in near):
                found.append(node.lineno)
    return found


def test_the_shape_follows_each_reshape():
    sources = {path: file.read_text(encoding="utf-8") for path, file in FILES.items()}
    found = {path: reshapes_without_arrow(source) for path, source in sources.items()}
    assert {path: lines for path, lines in found.items() if lines} == {}


def test_a_reshape_without_its_shape_is_found():
    bare = "def f(x):\n    y = 1\n    x = ops.reshape(x, (-1,))\n    return x"
    assert reshapes_without_arrow(bare) == [3]
    assert reshapes_without_arrow(bare.replace("y = 1", "# -> (rows,)")) == []
    assert reshapes_without_arrow(bare.replace("(-1,))", "(-1,))  # -> (rows,)")) == []


def text_without_encoding(source):
    """Gives the lines that read or write text in the locale's encoding.

    Ruff's PLW1514 finds `open`, and the paths whose type it can see. This finds the methods of any
    object that have a path's names, and the processes whose output is read as text.
    """
    found = []
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        name, given = node.func.attr, {word.arg: word.value for word in node.keywords}
        values = {arg.value for arg in node.args if isinstance(arg, ast.Constant)}
        is_process = isinstance(given.get("text"), ast.Constant)
        opens_text = name in TEXT_METHODS or (name == "open" and values & TEXT_MODES)
        if "encoding" not in given and (opens_text or is_process):
            found.append(node.lineno)
    return found


def python_files():
    """Gives every Python file of the repository, with its path."""
    folders = (PACKAGE, "benchmarks", "docs", "examples", "tests")
    return [path for folder in folders for path in sorted((REPOSITORY / folder).rglob("*.py"))]


def test_names_of_scripts_do_not_end_in_of():
    folders = ("benchmarks", "docs", "examples")
    files = [path for folder in folders for path in (REPOSITORY / folder).rglob("*.py")]
    assert len(files) > 30
    trees = {path: ast.parse(path.read_text(encoding="utf-8")) for path in files}
    found = {str(path): names_do_not_end_in_of(path.name, tree) for path, tree in trees.items()}
    assert {path: complaints for path, complaints in found.items() if complaints} == {}


def test_text_is_read_and_written_with_its_encoding_named():
    found = {
        path: text_without_encoding(path.read_text(encoding="utf-8")) for path in python_files()
    }
    assert len(found) > 300
    assert {str(path): lines for path, lines in found.items() if lines} == {}


@pytest.mark.parametrize(
    "source",
    [
        "path.read_text(errors='replace')",
        "path.write_text(text)",
        "path.open('w')",
        "gzip.open(name, 'rt')",
        "io.TextIOWrapper(stream)",
        "subprocess.run(command, text=True)",
    ],
)
def test_text_without_its_encoding_is_found(source):
    assert text_without_encoding(source) == [1]
    assert text_without_encoding(source.replace(")", ", encoding='utf-8')")) == []


def names_of_tests(source):
    """Gives the `test_*` modules and `conftest` files that a source imports.

    Programs that it holds as text, for other processes, are searched too.
    """
    tree = ast.parse(source)
    texts = [str(node.value) for node in ast.walk(tree) if isinstance(node, ast.Constant)]
    names = [name for _, name in imports_of(tree)]
    names += [name for text in texts for name in re.findall(r"\btests(?:\.\w+)+", text)]
    return [name for name in names if re.search(r"\b(test_\w+|conftest)\b", name)]


def test_nothing_imports_a_file_of_tests():
    files = [path for path in python_files() if path != Path(__file__).resolve()]
    found = {path: names_of_tests(path.read_text(encoding="utf-8")) for path in files}
    assert {str(path): names for path, names in found.items() if names} == {}


@pytest.mark.parametrize(
    "source",
    [
        "from tests.models.test_transformer import built",
        "from tests.models import (\n    test_transformer,\n)",
        "import tests.conftest",
        "def f():\n    from tests.text.conftest import train",
        "PROGRAM = '''\nfrom tests.batches.test_pair_dataset import model\n'''",
    ],
)
def test_an_import_of_a_file_of_tests_is_found(source):
    assert len(names_of_tests(source)) == 1
    assert names_of_tests(source.replace("test_", "small_").replace("conftest", "cases")) == []


# Tests of the whole repository, and of several modules of their room.
OF_NO_ONE_MODULE = {
    "examples/test_examples_small.py",
    "layers/test_layers_contracts.py",
    "layers/test_layers_lecture_properties.py",
    "layers/test_layers_signatures.py",
    "plots/test_plots_page.py",
    "test_architecture.py",
    "test_configuration.py",
    "test_figures.py",
    "test_guide.py",
    "test_numpy_arguments.py",
    "test_prose.py",
    "test_public_api.py",
    "test_readme.py",
    "test_selection.py",
    "test_site.py",
    "test_types.py",
    "text/test_text_multi30k.py",
}


def modules_of(room):
    """Gives the names of the modules that the tests of a room test."""
    outside = room in ("benchmarks", "examples")
    folder = REPOSITORY / room if outside else REPOSITORY / PACKAGE / room
    return {path.stem for path in folder.glob("*.py")} - {"__init__"}


def is_named_by(file, modules):
    """Whether the name of a file of tests is that of a module, or begins with it and `_`."""
    name = file.removeprefix("test_").removesuffix(".py")
    return any(f"{name}_".startswith(f"{module}_") for module in modules)


def test_a_file_of_tests_is_named_by_a_module_of_its_room():
    tests = REPOSITORY / "tests"
    files = [path.relative_to(tests) for path in tests.rglob("test_*.py")]
    assert {file.parent.as_posix() for file in files} >= {".", "layers", "benchmarks", "text"}
    others = {
        file.as_posix()
        for file in files
        if not is_named_by(file.name, modules_of(file.parent.as_posix()))
    }
    assert others == OF_NO_ONE_MODULE


# Modules without a file of tests of their name, and the file whose tests run them. It is that of
# their only user, of what they are a part of, or of several modules with one contract. Many tests
# run a module through its user and never name it, so only that the file exists is checked.
TESTED_IN = {
    "__main__": "commands/test_main.py",
    "batches/dataset_report": "text/test_dataset.py",
    "batches/plan": "batches/test_passes.py",
    "batches/token_store": "batches/test_passes.py",
    "callbacks/array_file": "callbacks/test_exact_resume.py",
    "commands/program": "commands/test_main.py",
    "commands/serve": "serving/test_local_server.py",
    "commands/together": "commands/test_train_processes.py",
    "decoding/call_arguments": "decoding/test_search_arguments.py",
    "decoding/hypotheses": "decoding/test_beam_search_stopping.py",
    "interop/ctranslate2_form": "interop/test_ctranslate2_save.py",
    "interop/ctranslate2_settings": "interop/test_ctranslate2.py",
    "interop/hugging_face_form": "interop/test_hugging_face.py",
    "interop/hugging_face_search": "interop/test_hugging_face.py",
    "interop/hugging_face_writer": "interop/test_hugging_face_round_trip.py",
    "layers/alibi": "layers/test_positions.py",
    "layers/attention_axes": "layers/test_multi_head_attention_options.py",
    "layers/decoder": "layers/test_stack.py",
    "layers/encoder": "layers/test_stack.py",
    "layers/learned_positional_encoding": "layers/test_positions.py",
    "layers/relative_position_bias": "layers/test_positions.py",
    "layers/residual": "layers/test_block_torch_parity.py",
    "layers/rotary_positional_encoding": "layers/test_positions.py",
    "layers/sinusoids": "layers/test_positions_far_out.py",
    "models/recurrent_step": "models/test_recurrent.py",
    "models/transformer_step": "models/test_transformer.py",
    "models/vocabularies": "models/test_sequence_to_sequence_token_ids.py",
    "recipes/imported": "commands/test_import_model.py",
    "recipes/presets": "recipes/test_settings.py",
    "recipes/shortlists": "commands/test_export.py",
    "recipes/teacher": "recipes/test_distillation.py",
    "recipes/texts": "recipes/test_plain_texts.py",
    "recipes/watched_search": "recipes/test_attention_explorer.py",
    "serving/litert_export": "serving/test_portable_translator.py",
    "serving/onnx_graph": "serving/test_onnx_loop.py",
    "serving/onnx_integers": "serving/test_onnx_export.py",
    "serving/onnx_shapes": "serving/test_onnx_operations.py",
    "serving/portable_files": "serving/test_portable_translator.py",
    "serving/shard_files": "serving/test_shards.py",
    "serving/shard_inputs": "serving/test_shards.py",
    "subwords": "text/test_sentencepiece_tokenizer.py",
    "text/bpe_dropout": "text/test_subword_dropout.py",
    "text/corpus_parts": "text/test_corpus.py",
    "text/scripts": "text/test_corpus.py",
    "text/sentencepiece_library": "text/test_piece_ids.py",
    "text/strings": "text/test_tokenizer.py",
    "text/vocabulary": "text/test_character_tokenizer.py",
    "tokenizer_file": "text/test_loading.py",
}


def untested_modules(modules, files):
    """Gives the modules of a room that name no file of its tests, in order.

    A file is named by the longest of the modules whose names it begins with.
    """
    named = {max((m for m in modules if is_named_by(f, {m})), key=len, default="") for f in files}
    return sorted(modules - named)


def test_a_module_names_a_file_of_tests_or_has_its_tests_in_one_that_is_listed():
    tests = REPOSITORY / "tests"
    rooms = {PurePosixPath(path).parent for path in FILES}
    untested = [
        (room / module).as_posix()
        for room in rooms
        for module in untested_modules(
            modules_of(room.as_posix()), [file.name for file in (tests / room).glob("test_*.py")]
        )
    ]
    assert sorted(untested) == sorted(TESTED_IN)
    assert [file for file in TESTED_IN.values() if not (tests / file).is_file()] == []


def test_a_module_without_a_file_of_tests_is_found():
    modules = {"attention", "attention_axes", "dense"}
    files = ["test_attention_axes.py", "test_attention_axes_options.py", "test_dense.py"]
    assert untested_modules(modules, files) == ["attention"]
    assert untested_modules(modules, [*files, "test_attention_masks.py"]) == []


def test_a_name_of_no_module_is_found():
    modules = {"attention", "keras_attention"}
    for name in ("attention", "attention_masks", "keras_attention"):
        assert is_named_by(f"test_{name}.py", modules)
    for name in ("attentions", "keras", "layers_attention", "masks"):
        assert not is_named_by(f"test_{name}.py", modules)


@pytest.mark.parametrize("backend", ["jax", pytest.param("torch", marks=pytest.mark.slow)])
def test_importing_the_core_leaves_tensorflow_alone(backend):
    if importlib.util.find_spec(backend) is None:
        pytest.skip(f"needs {backend}")
    code = (
        "import sys, keras_transformer, keras_transformer.plots\n"
        f"assert 'keras_transformer.layers' in sys.modules and '{backend}' in sys.modules\n"
        f"loaded = {sorted(FENCED_MODULES)!r}\n"
        "print([name for name in loaded if name in sys.modules])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=REPOSITORY,
        env={**os.environ, "KERAS_BACKEND": backend},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"
