"""Copies of models with transposed matrices: the same numbers, one copy of each, its own file."""

import json

import keras
import numpy as np
import pytest

from keras_transformer import GreedySearch, Transformer
from keras_transformer.lora import enable_lora
from keras_transformer.serving import Translator, load
from keras_transformer.serving.stored_copy import processor_layout, stored_copy
from keras_transformer.text import CharacterTokenizer
from tests.backends import randomise

SOURCES = np.array([[5, 6, 9, 3], [7, 3, 0, 0], [8, 8, 10, 3], [4, 3, 0, 0]], "int32")
TARGETS = np.array([[2, 9, 4], [2, 8, 8], [2, 11, 5], [2, 6, 0]], "int32")
SIZES = {"num_layers": 1, "d_model": 16, "num_heads": 2, "d_ff": 24}
OPTIONS = {
    "as in the paper": {},
    "untied, gated": {"tie_output": False, "logits_bias": True, "activation": "swiglu"},
    "grouped, rotary": {"num_key_value_heads": 1, "position": "rotary", "norm_first": True},
}


def model_of(**options):
    keras.utils.set_random_seed(1)
    if options.get("position") == "rotary":
        from keras_transformer.layers import RotaryPositionalEncoding

        options["position"] = RotaryPositionalEncoding()
    model = Transformer(14, **SIZES, **options)
    model.build(None)
    return randomise(model)


@pytest.mark.parametrize(
    ("name", "quantize"),
    [
        ("as in the paper", None),
        ("untied, gated", None),
        pytest.param("grouped, rotary", None, marks=pytest.mark.slow),
        pytest.param("untied, gated", "int8", marks=pytest.mark.slow),
        ("grouped, rotary", "int8"),
    ],
)
def test_columns_compute_what_rows_compute(name, quantize):
    model = model_of(**OPTIONS[name])
    rows, columns = (stored_copy(model, quantize, layout) for layout in ("rows", "columns"))
    expected, found = rows((SOURCES, TARGETS)).numpy(), columns((SOURCES, TARGETS)).numpy()
    np.testing.assert_allclose(found, expected, atol=2e-5)
    # The steps of a search multiply in their own way.
    expected, found = (part.generate(SOURCES, GreedySearch(), 2) for part in (rows, columns))
    np.testing.assert_array_equal(found.ids, expected.ids)
    np.testing.assert_allclose(found.scores, expected.scores, atol=2e-5)
    sizes = [sorted(int(np.prod(w.shape)) for w in part.weights) for part in (rows, columns)]
    assert sizes[0] == sizes[1]
    kernel = "encoder/layer_0/feed_forward/inner/kernel"
    shapes = [
        next(tuple(w.shape) for w in part.weights if w.path.endswith(kernel))
        for part in (rows, columns)
    ]
    assert shapes == [(16, 24), (24, 16)]


@pytest.mark.slow
def test_an_export_has_the_layout_of_its_translator(tmp_path, export_only):
    export_only("n_best")
    tokenizer = CharacterTokenizer.train(["abcdefghij"])
    model = randomise(Transformer(tokenizer.vocab_size, **SIZES))
    options = {"search": GreedySearch(), "max_length": 6, "max_source_length": 16}
    options["jit_compile"] = False
    found = {}
    for layout in ("rows", "columns"):
        translator = Translator(model, tokenizer, layout=layout, **options)
        path = tmp_path / layout
        translator.export(path, verbose=False)
        card = json.loads((path / "assets.extra/model_card.json").read_text(encoding="utf-8"))
        assert card["layout"] == layout
        answer = load(path).signatures["n_best"](text=np.array(["abc", "jih", "d"]))
        found[layout] = answer["translations"].numpy().tolist(), answer["scores"].numpy()
    assert found["rows"][0] == found["columns"][0]
    np.testing.assert_allclose(found["rows"][1], found["columns"][1], atol=2e-5)


def test_the_model_itself_translates_unless_columns_are_asked_for(monkeypatch):
    monkeypatch.setattr("keras_transformer.serving.translator.processor_layout", lambda: "columns")
    tokenizer = CharacterTokenizer.train(["abc"])
    model = Transformer(tokenizer.vocab_size, **SIZES)
    translator = Translator(model, tokenizer, max_length=4)
    assert translator.id_functions.model is model
    assert translator.export_layout == "columns"
    exported = translator.for_export()
    assert exported.id_functions.model is not model
    assert exported.for_export() is exported
    assert exported.max_length == 4
    eager = Translator(model, tokenizer, jit_compile=False)
    assert eager.for_export() is eager
    in_8_bits = Translator(model, tokenizer, quantize="int8")
    assert in_8_bits.for_export() is in_8_bits
    assert in_8_bits.id_functions.layout == "rows"
    enable_lora(model, 2)
    assert Translator(model, tokenizer).export_layout == "rows"
    with pytest.raises(ValueError, match="`layout` must be 'rows' for a model that is quantized"):
        Translator(model, tokenizer, layout="columns")
    with pytest.raises(ValueError, match="`layout` must be one of"):
        Translator(model, tokenizer, layout="row")


@pytest.mark.parametrize(
    ("baseline", "found", "expected"),
    [
        (["X86_V2"], ["X86_V3"], "columns"),
        (["X86_V2"], ["X86_V3", "X86_V4"], "rows"),
        (["SSE", "SSE2", "SSE3"], ["SSSE3", "AVX", "F16C", "FMA3", "AVX2"], "columns"),
        (["SSE", "SSE2", "SSE3"], ["AVX2", "AVX512F", "AVX512CD"], "rows"),
        (["SSE", "SSE2", "SSE3"], ["SSSE3", "SSE41"], "rows"),
        (["NEON", "NEON_FP16", "ASIMD"], ["ASIMDHP"], "rows"),
    ],
)
def test_the_processor_decides(baseline, found, expected, monkeypatch):
    extensions = {"SIMD Extensions": {"baseline": baseline, "found": found}}
    monkeypatch.setattr(np, "show_config", lambda mode: extensions)
    assert processor_layout() == expected
