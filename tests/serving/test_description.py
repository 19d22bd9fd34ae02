"""describe_export and how_to_call: what an export says of itself."""

import json
import re

from keras_transformer.processor import processor_kind
from keras_transformer.serving import describe_export, description
from keras_transformer.serving.description import how_to_call
from keras_transformer.serving.model_card import read_card, text_conventions
from tests.serving.trained import translator


def test_the_description_names_signatures_operations_and_what_runs_them(exported, capsys):
    described = describe_export(exported)
    assert set(described["signatures"]) == set(translator().string_functions.signatures)
    assert described["signatures"]["translate"]["inputs"] == {
        "length_penalty": "float32[batch]",
        "max_length": "int32[batch]",
        "num_hypotheses": "int32[batch]",
        "prefix": "string[batch]",
        "split_sentences": "int32[batch]",
        "text": "string[batch]",
    }
    assert described["signatures"]["n_best"]["outputs"]["scores"] == "float32[batch, 3]"
    assert described["texts"] == text_conventions(translator())
    kind = processor_kind()
    assert described["layout"] == {"layout": "rows", "processor": kind}
    assert described["quantization"] is None
    assert described["tensorflow_text"] is None  # characters need TensorFlow alone
    assert "Substr" in described["operations"]
    files = [file for file in exported.rglob("*") if file.is_file()]
    assert described["bytes"] == sum(file.stat().st_size for file in files)
    printed = capsys.readouterr().out
    for text in (
        "serving_default",
        "input: Text as it is",
        f"Matrices in rows, written on a processor of kind {kind}.",
        "int32[batch, any]",
        "runs with that or a later one.",
        "MiB",
    ):
        assert text in printed


def test_an_export_tells_how_to_call_it(exported_and_printed, tmp_path):
    _, printed = exported_and_printed
    body, url = re.search(r"curl -d '(.*)' (\S+)", printed).groups()
    assert url == "http://localhost:8501/v1/models/letters:predict"
    texts = json.loads(body)["inputs"]["text"]
    assert len(translator()(texts)) == 2
    snippet = printed[printed.index("  import grpc") :]
    compile("\n".join(line[2:] for line in snippet.splitlines()), "snippet", "exec")
    assert "It serves numbered directories" not in printed
    unnumbered = how_to_call(tmp_path / "letters", ["score"])
    assert (
        f"It serves numbered directories: export to {tmp_path / 'letters'}/1.\n  curl" in unnumbered
    )


def test_a_card_without_a_layout_is_described(exported, capsys, monkeypatch):
    monkeypatch.setattr(description, "read_card", lambda path: {})
    described = describe_export(exported)
    assert described["layout"] is None
    assert described["texts"] is None
    assert "Matrices" not in capsys.readouterr().out


def test_a_quantized_export_says_so(exported, capsys, monkeypatch):
    card = {**read_card(exported), "quantization": "int8"}
    monkeypatch.setattr(description, "read_card", lambda path: card)
    assert describe_export(exported)["quantization"] == "int8"
    assert "Matrices of int8 in rows, written on" in capsys.readouterr().out
