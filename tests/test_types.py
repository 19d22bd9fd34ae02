"""Public names are annotated, tensors by their shapes, and a user's type checker sees the types."""

import ast
import functools
import inspect
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import keras
import pytest

from keras_transformer.decoding.search import Search, SearchOptions
from keras_transformer.layers.block import Block, BlockOptions
from keras_transformer.layers.composite import Composite, LayerOptions
from tests.public_modules import MODULES, load

REPOSITORY = Path(__file__).resolve().parents[1]
PACKAGE = REPOSITORY / "keras_transformer"
ON_TENSORFLOW = keras.backend.backend() == "tensorflow"

TENSOR_ROOMS = ("decoding", "layers", "losses", "masking", "metrics", "models")
ALIASES = {  # of `arguments.py`: the names of parameters that have the alias's shape there
    "AttentionMask": {"attention_mask", "memory_attention_mask"},
    "BeamPaths": {"paths"},
    "Ids": {"prefix_ids", "source_ids", "target_ids"},
    "Logits": {"logits"},
    "PaddingMask": {
        *("inputs_mask", "key_mask", "label_mask", "memory_mask", "memory_padding_mask"),
        *("padding_mask", "query_mask", "source_mask", "value_mask"),
    },
}

IMPORTS = """
import numpy as np

from keras_transformer import BeamSearch, Encoder, MultiHeadAttention, Transformer, WarmupSchedule
from keras_transformer.batches import PairDataset
from keras_transformer.callbacks import AverageCheckpoints, TranslationQuality
from keras_transformer.checks import check_causality
from keras_transformer.plots import head_statistics, learning_curve
from keras_transformer.recipes import load_translator
from keras_transformer.serving import Translator
from keras_transformer.text import SentencePieceTokenizer, load_tokenizer, translation_dataset

ids = np.ones((2, 3), "int32")
model = Transformer(vocab_size=50)
tokenizer = SentencePieceTokenizer.train(["one", "two"], vocab_size=50)
translator = Translator(model, tokenizer)
quality = TranslationQuality(translator, ["one"], ["two"])
"""
REVEALED = {  # an expression, and its type; what is TensorFlow's is Any, as it ships no types
    "BeamSearch(4)": "BeamSearch",
    "BeamSearch(4).beam_size": "int",
    "BeamSearch(4).slots_per_sentence": "int",
    "model": "Transformer",
    "model.num_layers": "int",
    "model.num_encoder_layers": "int",
    "model.step_class(model, ids, ids, 5)": "TransformerStep",
    "model.target_embedding": "TokenEmbedding",
    "model.generate(ids)": "DecodeResult",
    "model.score(ids, ids)": "ScoreResult",
    "WarmupSchedule(512).d_model": "int",
    "WarmupSchedule(512).get_config()": "dict[str, Any]",
    "check_causality(model, ids)": "float",
    "tokenizer": "SentencePieceTokenizer",
    "tokenizer.vocab_size": "int",
    "tokenizer.pieces([4, 5])": "list[str]",
    "tokenizer.tokenize(['one'])": "Any",
    "tokenizer.tokenize_with_offsets(['one'])": "TokensWithOffsets",
    "tokenizer.detokenize_with_offsets(ids)": "TextsWithOffsets",
    "SentencePieceTokenizer.load('a')": "SentencePieceTokenizer",
    "load_tokenizer('a')": "Tokenizer",
    "translation_dataset(['one'], ['two'], tokenizer)": "Any",
    "PairDataset([[5, 6]], [[7]]).report.num_tokens": "tuple[int, int]",
    "AverageCheckpoints('folder').files()": "list[pathlib.Path]",
    "quality.measure()": "dict[str, float]",
    "head_statistics(ids).entropy": "numpy.ndarray[tuple[Any, ...], numpy.dtype[Any]]",
    "learning_curve({'loss': [1.0]})": "matplotlib.figure.Figure",
    "translator": "Translator",
    "translator(['one'])": "list[str]",
    "translator.model": "SequenceToSequence",
    "translator.n_best(['one'])": "list[list[Hypothesis]]",
    "translator.align(['one'])": "list[Alignment]",
    "translator.score(['one'], ['eins'])": "list[PairScore]",
}
MISUSES = {  # a line that a checker must refuse, and the code of its error
    "BeamSearch(beam_size='4')": "arg-type",
    "BeamSearch(min_length='4')": "arg-type",
    "BeamSearch(4)(lambda tokens: tokens, (), batch_size=1, max_length=4, bos_id=1, eos_id=2)": (
        "arg-type"
    ),
    "WarmupSchedule('512')": "arg-type",
    "Transformer(vocab_size=50, num_layers=None)": "arg-type",
    "BeamSearch(4, 0.6, 1, 0.25)": "call-arg",
    "Transformer(vocab_size=50, activation=3)": "arg-type",
    "Transformer(vocab_size=50, position='rotary')": "arg-type",
    "MultiHeadAttention(2, 4, attention_axes='all')": "arg-type",
    "Encoder(2, 2, 32, windo=3)": "call-arg",
    "model.generate(ids, BeamSearch(4), 20, ids)": "call-arg",
    "load_translator('run').translate_all(['one'])": "attr-defined",
    "translator.translate_all(['one'])": "attr-defined",
    "tokenizer.pieces([4]).lower()": "attr-defined",
    "SentencePieceTokenizer.train([b'one'])": "list-item",
    "translation_dataset(['one'], ['two'], 'a tokenizer')": "arg-type",
}


def function_inside(value):
    """Gives the function of a method, a property or another descriptor; None without one."""
    if isinstance(value, (classmethod, staticmethod)):
        value = value.__func__
    elif isinstance(value, property):
        value = value.fget
    elif isinstance(value, functools.cached_property):
        value = value.func
    value = inspect.unwrap(value) if callable(value) else value
    return value if inspect.isfunction(value) else None


def is_ours(function):
    """Tells whether a function stands in a file of the package: `dataclass` makes others."""
    return Path(function.__code__.co_filename).is_relative_to(PACKAGE)


def public_functions(name, value):
    """Gives the function itself, or the public methods of a class and of its bases of ours."""
    if inspect.isfunction(value):
        return {name: inspect.unwrap(value)}
    if not inspect.isclass(value):
        return {}
    found = {}
    for owner in reversed(value.__mro__):
        for key, attribute in vars(owner).items():
            function = function_inside(attribute)
            is_public = not key.startswith("_") or (key.startswith("__") and key.endswith("__"))
            if function is not None and is_public and is_ours(function):
                found[f"{name}.{key}"] = function
    return found


def without_annotation(function):
    """Gives the parameters that have no annotation, and "return" where the result has none."""
    signature = inspect.signature(function)
    parameters = [p for p in signature.parameters.values() if p.name not in ("self", "cls")]
    missing = [p.name for p in parameters if p.annotation is p.empty]
    return missing + ["return"] * (signature.return_annotation is signature.empty)


@pytest.mark.parametrize("name", MODULES)
def test_public_names_are_annotated(name):
    module, faults = load(name), {}
    for key in module.__all__:
        for place, function in public_functions(key, getattr(module, key)).items():
            if missing := without_annotation(function):
                faults[place] = missing
    assert faults == {}


def plain_anys(function):
    """Gives the parameters, and "return", that are annotated as `Any` and nothing more.

    Aliases of tensors are `Any` to a checker, but their names say the dtype and the shape. What is
    handed on, `*args` and `**kwargs`, is left out.
    """
    node = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
    places = (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
    annotations = {place.arg: place.annotation for place in places} | {"return": node.returns}
    return [
        name
        for name, annotation in annotations.items()
        if annotation is not None
        and {"Any", "object"} & set(re.split(r"\s*\|\s*", ast.unparse(annotation)))
    ]


@pytest.mark.parametrize("name", MODULES)
def test_no_public_parameter_or_result_is_plain_any(name):
    module, faults = load(name), {}
    for key in module.__all__:
        for place, function in public_functions(key, getattr(module, key)).items():
            if not place.endswith(".__setattr__") and (found := plain_anys(function)):
                faults[place] = found
    assert faults == {}


@pytest.mark.parametrize("name", MODULES)
def test_no_public_result_is_a_tuple_of_three_without_names(name):
    module, faults = load(name), {}
    for key in module.__all__:
        for place, function in public_functions(key, getattr(module, key)).items():
            tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
            if bare_tuples(tree):
                faults[place] = ast.unparse(tree.body[0].returns)
    assert faults == {}


def test_plain_any_is_found():
    def bad(first: Any, second: Any | None = None, *, third: dict[str, Any], **more: Any) -> Any:
        return None

    assert plain_anys(bad) == ["first", "second", "return"]


def test_modules_are_those_with_public_names():
    files = [*PACKAGE.glob("*.py"), *PACKAGE.glob("*/__init__.py")]
    public = [path for path in files if "\n__all__ = " in path.read_text(encoding="utf-8")]
    names = {path.parent.name if path.stem == "__init__" else path.stem for path in public}
    names -= {PACKAGE.name}
    assert {f"keras_transformer.{name}" for name in names} == {*MODULES} - {"keras_transformer"}


def test_missing_annotations_are_found(monkeypatch):
    class Base:
        def inherited(self, value):
            return value

    class Example(Base):
        def __init__(self, size: int, name="a") -> None:
            self.size = size

        @property
        def width(self):
            return self.size

        @classmethod
        def load(cls, path) -> "Example":
            return cls(path)

        def _private(self, value):
            return value

        def complete(self, *values: int, **options: str) -> None:
            return None

    monkeypatch.setitem(globals(), "PACKAGE", REPOSITORY / "tests")
    functions = public_functions("Example", Example)
    faults = {place: without_annotation(function) for place, function in functions.items()}
    assert faults == {
        "Example.inherited": ["value", "return"],
        "Example.__init__": ["name"],
        "Example.width": ["return"],
        "Example.load": ["path"],
        "Example.complete": [],
    }


HANDED_ON = {  # a `TypedDict` of keyword arguments, and the classes whose constructors take them
    SearchOptions: (Search,),
    LayerOptions: (keras.layers.Layer, Composite),
    BlockOptions: (keras.layers.Layer, Composite, Block),
}


@pytest.mark.parametrize("options", HANDED_ON)
def test_what_a_constructor_hands_on_has_the_names_and_types_of_its_base(options):
    parameters = [
        parameter
        for owner in HANDED_ON[options]
        for parameter in inspect.signature(owner.__init__).parameters.values()
        if parameter.kind is parameter.KEYWORD_ONLY
    ]
    assert {parameter.name for parameter in parameters} == set(options.__annotations__)
    for parameter in parameters:
        if parameter.annotation is not parameter.empty:  # Keras annotates none
            assert parameter.annotation == options.__annotations__[parameter.name]


def parameters_of(tree):
    """Gives (name, annotation, default) of each parameter of each function; "" for none."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef):
            continue
        given = node.args
        places = [*given.posonlyargs, *given.args]
        defaults = [None] * (len(places) - len(given.defaults)) + given.defaults
        pairs = [*zip(places, defaults, strict=True)]
        pairs += zip(given.kwonlyargs, given.kw_defaults, strict=True)
        for place, default in pairs:
            annotation = "" if place.annotation is None else ast.unparse(place.annotation)
            yield place.arg, annotation, "" if default is None else ast.unparse(default)


def fields_of(tree):
    """Gives (name, annotation, default) of each field of each `NamedTuple`; "" for none."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.ClassDef) or "NamedTuple" not in map(ast.unparse, node.bases):
            continue
        for line in node.body:
            if isinstance(line, ast.AnnAssign):
                default = "" if line.value is None else ast.unparse(line.value)
                yield ast.unparse(line.target), ast.unparse(line.annotation), default


def other_aliases(tree):
    """Names the parameters that are annotated with another alias than their name says."""
    of_name = {name: alias for alias, names in ALIASES.items() for name in names}
    return [
        f"{name}: {annotation}"
        for name, annotation, _ in parameters_of(tree)
        if name in of_name and annotation not in (of_name[name], f"{of_name[name]} | None")
    ]


def vague_fields(tree):
    """Names the fields that may be anything."""
    return [name for name, kind, _ in fields_of(tree) if kind in ("Any", "list[Any]")]


def unsaid_nones(tree):
    """Names what is None by default, and may not be None by its annotation."""
    return [
        f"{name}: {annotation}"
        for name, annotation, default in (*parameters_of(tree), *fields_of(tree))
        if default == "None" and annotation and not re.search(r"\b(None|Any)\b", annotation)
    ]


def bare_tuples(tree):
    """Names the functions and methods that return a tuple of three or more without names."""
    owners = [tree, *(node for node in tree.body if isinstance(node, ast.ClassDef))]
    functions = [node for owner in owners for node in owner.body if hasattr(node, "returns")]
    return [
        node.name
        for node in functions
        for part in ast.walk(node.returns or ast.Constant(None))
        if isinstance(part, ast.Subscript) and ast.unparse(part.value) == "tuple"
        if isinstance(part.slice, ast.Tuple) and len(part.slice.elts) > 2
    ]


ANNOTATION_RULES = (  # a rule, a bad source, and what the rule says of it
    (other_aliases, "def f(x: Tensor, paths: Ids | None = None): ...", ["paths: Ids | None"]),
    (vague_fields, "class A(NamedTuple):\n  x: Tensor\n  states: list[Any]", ["states"]),
    (unsaid_nones, "def f(x: int, *, y: Tensor = None): ...", ["y: Tensor"]),
    (bare_tuples, "def f() -> tuple[int, int]: ...\ndef g() -> tuple[int, str, int]: ...", ["g"]),
    (bare_tuples, "class A:\n  def step(self) -> list[tuple[int, int, int]]: ...", ["step"]),
    (unsaid_nones, "class A(NamedTuple):\n  x: Tensor = None\n  y: Any = None", ["x: Tensor"]),
)


@pytest.mark.parametrize("rule", dict.fromkeys(rule for rule, _, _ in ANNOTATION_RULES))
def test_annotations_of_tensors_keep_the_rule(rule):
    files = [path for room in TENSOR_ROOMS for path in (PACKAGE / room).glob("*.py")]
    files += [path for room in TENSOR_ROOMS if (path := PACKAGE / f"{room}.py").exists()]
    assert len(files) > 40
    found = {path.name: rule(ast.parse(path.read_text(encoding="utf-8"))) for path in files}
    assert {name: faults for name, faults in found.items() if faults} == {}


@pytest.mark.parametrize(("rule", "source", "faults"), ANNOTATION_RULES)
def test_a_bad_annotation_is_found(rule, source, faults):
    assert rule(ast.parse(source)) == faults


def test_aliases_are_those_of_the_package():
    from keras_transformer import arguments

    assert set(ALIASES) < set(vars(arguments))


@pytest.fixture(scope="module")
def checked_lines(tmp_path_factory):
    """Gives what mypy says of each expression of a user's file, in a dict."""
    pytest.importorskip("mypy")
    pytest.importorskip("matplotlib")
    if not ON_TENSORFLOW:
        pytest.skip("a checker says the same on every backend")
    statements = [*(f"reveal_type({expression})" for expression in REVEALED), *MISUSES]
    path = tmp_path_factory.mktemp("user") / "user.py"
    path.write_text("\n".join([*IMPORTS.splitlines(), *statements]) + "\n", encoding="utf-8")
    options = ["--config-file=", f"--cache-dir={os.devnull}", "--show-error-codes"]
    # The package is found in the clone; the errors of what is imported are none of the user's.
    quiet = ["--ignore-missing-imports", "--follow-imports=silent", "--no-error-summary"]
    done = subprocess.run(
        [sys.executable, "-m", "mypy", *options, *quiet, path.name],
        cwd=path.parent,
        env={**os.environ, "MYPYPATH": str(REPOSITORY)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        timeout=300,
    )
    assert done.returncode in (0, 1), done.stdout + done.stderr
    lines = re.findall(r"^user\.py:(\d+): (.*)$", done.stdout, re.MULTILINE)
    said = {}
    for number, text in lines:
        text = re.sub(r"tuple\[[^\"]*, fallback=([\w.]+)\]", r"\1", text)  # of a NamedTuple
        text = re.sub(r"keras_transformer\.[a-z_.]*\.|builtins\.", "", text)
        said.setdefault(int(number), []).append(text)
    first = len(IMPORTS.splitlines()) + 1
    told = {
        statement: said.pop(number, []) for number, statement in enumerate(statements, start=first)
    }
    assert said == {}  # nothing is said of the lines before
    return told


@pytest.mark.slow
@pytest.mark.parametrize(("expression", "expected"), REVEALED.items())
def test_a_users_checker_sees_the_type(expression, expected, checked_lines):
    assert checked_lines[f"reveal_type({expression})"] == [f'note: Revealed type is "{expected}"']


@pytest.mark.slow
@pytest.mark.parametrize(("line", "code"), MISUSES.items())
def test_a_users_checker_refuses_the_misuse(line, code, checked_lines):
    errors = [text for text in checked_lines[line] if text.startswith("error: ")]
    assert len(errors) == 1
    assert errors[0].endswith(f"[{code}]")
