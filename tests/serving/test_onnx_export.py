"""The ONNX file of a translator: what is in it, its card, 8-bit integers, and what is refused."""

import json

import numpy as np
import pytest

from keras_transformer import BeamSearch, Sampling, Transformer
from keras_transformer.lora import enable_lora
from keras_transformer.serving import Translator, export_onnx
from keras_transformer.serving.portable_translator import PortableTranslator
from keras_transformer.text import CharacterTokenizer
from tests.backends import randomise
from tests.serving.trained import translator, words

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")


def other_search(search):
    made = translator()
    return Translator(
        made.model, made.source_tokenizer, search=search, jit_compile=False, max_length=12
    )


@pytest.fixture(scope="module")
def integers(tmp_path_factory):
    path = tmp_path_factory.mktemp("onnx") / "int8"
    export_onnx(translator(), path, quantization="int8", card={"data": "made up"})
    return path


def test_weights_become_integers_also_inside_the_loop(integers):
    from tests.serving.onnx_runs import loop_body

    model = onnx.load(str(integers / "translator.onnx"))
    kinds = [node.op_type for node in loop_body(model).node]
    # Of the decoder's layer: 4 for each attention but the keys and values of the memory, 2 of the
    # feed-forward part; and the logits.
    assert kinds.count("MatMulInteger") == 9
    texts = words(50, seed=53)
    same = zip(PortableTranslator(integers)(texts), translator()(texts), strict=True)
    assert sum(one == other for one, other in same) >= 45


def test_integer_weights_leave_room_for_sums_of_two_products(integers):
    """Without VNNI instructions these sums have 16 bits: 2 * 255 * 64 fits, 2 * 255 * 127 not."""
    from tests.serving.onnx_runs import loop_body

    model = onnx.load(str(integers / "translator.onnx"))
    graphs = [model.graph, loop_body(model)]
    read = {node.input[1] for graph in graphs for node in graph.node if "Integer" in node.op_type}
    weights = [
        onnx.numpy_helper.to_array(tensor)
        for graph in graphs
        for tensor in graph.initializer
        if tensor.name in read
    ]
    assert len(weights) >= 9
    assert {array.dtype for array in weights} == {np.dtype("int8")}
    assert max(abs(array.astype(int)).max() for array in weights) <= 64


def test_the_card_says_what_the_file_is(integers):
    card = json.loads((integers / "model_card.json").read_text(encoding="utf-8"))
    assert card["data"] == "made up"
    assert card["quantization"] == "int8"
    assert card["search"]["settings"]["beam_size"] == 3
    assert {"Loop", "MatMulInteger", "TopK"} <= set(card["operations"])


def test_the_file_and_its_card_have_rows_and_merged_changes_of_lora(tmp_path):
    tokenizer = CharacterTokenizer.train(["abcd"])
    sizes = {"num_layers": 1, "d_model": 8, "num_heads": 2, "d_ff": 16}
    model = Transformer(tokenizer.vocab_size, **sizes)
    model.build()
    size = model.count_params()
    enable_lora(model, 2)
    randomise(model)
    own = Translator(
        model, tokenizer, search=BeamSearch(2), max_length=6, layout="columns", jit_compile=False
    )
    export_onnx(own, tmp_path / "onnx")
    card = json.loads((tmp_path / "onnx" / "model_card.json").read_text(encoding="utf-8"))
    assert (card["layout"], card["model"]["parameters"]) == ("rows", size)
    texts = ["abcd", "ba"]
    assert PortableTranslator(tmp_path / "onnx")(texts) == own(texts)


def test_shapes_are_named(integers):
    graph = onnx.load(str(integers / "translator.onnx")).graph
    names = {
        value.name: [axis.dim_param for axis in value.type.tensor_type.shape.dim]
        for value in (*graph.input, *graph.output)
    }
    assert names == {
        "source_ids": ["batch", "source"],
        "ids": ["batch", "hypotheses", "length"],
        "scores": ["batch", "hypotheses"],
        "lengths": ["batch", "hypotheses"],
    }


def test_sampling_is_refused_with_the_reason(tmp_path):
    with pytest.raises(ValueError, match="random operations of ONNX .*search=Sampling"):
        export_onnx(other_search(Sampling(seed=1)), tmp_path / "x")
    assert list(tmp_path.iterdir()) == []


def test_another_quantization_is_refused(tmp_path):
    with pytest.raises(ValueError, match="`quantization` must be one of.*'int4'"):
        export_onnx(translator(), tmp_path / "x", quantization="int4")


@pytest.mark.slow
def test_two_exports_are_the_same_bytes(tmp_path):
    files = []
    for name in ("one", "two"):
        export_onnx(other_search(BeamSearch(2)), tmp_path / name)
        files.append((tmp_path / name / "translator.onnx").read_bytes())
    assert files[0] == files[1]
