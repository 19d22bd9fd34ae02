"""Copies of models with transposed matrices: the same numbers, one copy of each, its own file."""

import json

import keras
import numpy as np
import pytest

from keras_transformer import BeamSearch, GreedySearch, Transformer, processor
from keras_transformer.lora import enable_lora, has_lora
from keras_transformer.serving import Translator, load, stored_copy
from keras_transformer.serving.stored_copy import columns_copy
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
    "name",
    [
        "as in the paper",
        *(pytest.param(name, marks=pytest.mark.slow) for name in list(OPTIONS)[1:]),
    ],
)
def test_columns_compute_what_rows_compute(name):
    model = model_of(**OPTIONS[name])
    columns = columns_copy(model)
    expected, found = model((SOURCES, TARGETS)).numpy(), columns((SOURCES, TARGETS)).numpy()
    np.testing.assert_allclose(found, expected, atol=2e-5)
    # The steps of a search multiply in their own way.
    expected, found = (part.generate(SOURCES, GreedySearch(), 2) for part in (model, columns))
    np.testing.assert_array_equal(found.ids, expected.ids)
    np.testing.assert_allclose(found.scores, expected.scores, atol=2e-5)
    sizes = [sorted(int(np.prod(w.shape)) for w in part.weights) for part in (model, columns)]
    assert sizes[0] == sizes[1]
    kernel = "encoder/layer_0/feed_forward/inner/kernel"
    shapes = [
        next(tuple(w.shape) for w in part.weights if w.path.endswith(kernel))
        for part in (model, columns)
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
        assert card["processor"] == processor.processor_kind()
        answer = load(path).signatures["n_best"](text=np.array(["abc", "jih", "d"]))
        found[layout] = answer["translations"].numpy().tolist(), answer["scores"].numpy()
    assert found["rows"][0] == found["columns"][0]
    np.testing.assert_allclose(found["rows"][1], found["columns"][1], atol=2e-5)


def test_the_model_itself_translates_unless_columns_are_asked_for(monkeypatch):
    monkeypatch.setattr(processor, "preferred_layout", lambda: "columns")
    tokenizer = CharacterTokenizer.train(["abc"])
    model = Transformer(tokenizer.vocab_size, **SIZES)
    assert Translator(model, tokenizer).export_layout == "rows", "the model is small"
    monkeypatch.setattr(stored_copy, "LEAST_COLUMNS_BYTES", 1)
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
    half = Transformer(tokenizer.vocab_size, **SIZES, dtype="mixed_bfloat16")
    assert Translator(half, tokenizer).export_layout == "rows"
    with pytest.raises(ValueError, match="`layout` must be 'auto' or 'rows' with `quantize`"):
        Translator(model, tokenizer, quantize="int8", layout="columns")
    with pytest.raises(ValueError, match="`layout` must be one of"):
        Translator(model, tokenizer, layout="row")
    model.encoder.layers[0].feed_forward.outer.quantize("int8")
    assert Translator(model, tokenizer).export_layout == "rows"
    with pytest.raises(ValueError, match="`layout` must be 'rows' for a model that is quantized"):
        Translator(model, tokenizer, layout="columns")


@pytest.mark.slow
@pytest.mark.parametrize(
    "options", [{"quantize": "int8"}, {"layout": "rows"}, {"layout": "columns"}]
)
def test_an_export_has_the_changes_of_lora_in_its_matrices(options):
    tokenizer = CharacterTokenizer.train(["abcdefg"])
    model = Transformer(tokenizer.vocab_size, **SIZES)
    model.build()
    randomise(model, 1, 0.5)
    enable_lora(model, 2, names=("query", "inner"))
    randomise(model, 2, 0.5)  # the changes too
    search = BeamSearch(2, min_length=4)
    translator = Translator(model, tokenizer, search=search, max_length=6, jit_compile=False)
    texts = ["abc", "gfedcba", "a"]
    exported = Translator(**{**translator.settings, **options}).for_export()
    assert not has_lora(exported.id_functions.model)
    if "quantize" not in options:
        assert exported(texts) == translator(texts)
    scores = [one.score(texts, ["cb", "aab", "g"]) for one in (exported, translator)]
    atol = 0.5 if "quantize" in options else 1e-4
    np.testing.assert_allclose(*scores, atol=atol)
