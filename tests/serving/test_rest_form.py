"""rest_form: TensorFlow Serving's JSON, and reasons for what is not understood."""

import json

import numpy as np
import pytest

pytest.importorskip("prometheus_client")

from keras_transformer.serving.rest_form import Refused, make_answer, read_inputs
from keras_transformer.serving.signature_runner import Signature, Spec

TEXT = Spec("string", (None,))
SIGNATURES = {
    "serving_default": Signature(None, {"text": TEXT}, {}, None),
    "translate": Signature(
        None, {"text": TEXT, "most": Spec("int32", (None,)), "rate": Spec("float32", (None,))}, {},
        None,
    ),
}  # fmt: skip


def read(**request):
    name, inputs, by_rows = read_inputs(json.dumps(request), SIGNATURES)
    return name, {key: array.tolist() for key, array in inputs.items()}, by_rows


def test_rows_are_values_or_objects():
    expected = ("serving_default", {"text": [b"a", "é".encode()]}, True)
    assert read(instances=["a", "é"]) == expected
    assert read(instances=[{"text": "a"}, {"text": "é"}]) == expected
    assert read(instances=["a", {"b64": "w6k="}]) == expected
    assert read(instances=[]) == ("serving_default", {"text": []}, True)


def test_columns_are_lists_or_an_object_of_them():
    expected = ("serving_default", {"text": [b"a", b"\xff"]}, False)
    assert read(inputs=["a", {"b64": "/w=="}]) == expected
    assert read(inputs={"text": ["a", {"b64": "/w=="}]}) == expected


def test_numbers_have_the_type_of_their_input():
    rows = [{"text": "a", "most": 2, "rate": 1}, {"text": "b", "most": 0, "rate": 0.5}]
    name, inputs, _ = read_inputs(
        json.dumps({"signature_name": "translate", "instances": rows}), SIGNATURES
    )
    assert name == "translate"
    assert inputs["most"].dtype == np.int32
    assert inputs["rate"].dtype == np.float32
    assert inputs["most"].tolist() == [2, 0]


@pytest.mark.parametrize(
    ("request_", "reason"),
    [
        ([1], "must be an object"),
        ({}, 'either "instances" or "inputs"'),
        ({"instances": [], "inputs": []}, 'either "instances" or "inputs"'),
        ({"instances": ["a"], "signature_name": "other"}, "one of serving_default, translate"),
        ({"instances": ["a"], "signature_name": ["x"]}, "one of serving_default, translate"),
        ({"instances": "a"}, '"instances" must be a list'),
        ({"instances": [{"texts": "a"}]}, "must have the inputs text"),
        ({"instances": [3]}, "text must hold strings"),
        ({"instances": [{"b64": "!"}]}, "not base 64"),
        ({"instances": [{"b64": "é"}]}, "not base 64"),
        ({"inputs": {"text": "a"}}, "text must be a list"),
        ({"inputs": {"other": ["a"]}}, "the inputs must be text"),
        ({"inputs": 5}, "text must be a list"),
        (
            {"signature_name": "translate", "inputs": {"text": ["a"], "most": [1.5], "rate": [1]}},
            "most must hold whole numbers",
        ),
        (
            {"signature_name": "translate", "inputs": {"text": ["a"], "most": [True], "rate": [1]}},
            "most must hold whole numbers",
        ),
        (
            {
                "signature_name": "translate",
                "inputs": {"text": ["a"], "most": [2**40], "rate": [1]},
            },
            "most must hold numbers of int32",
        ),
        (
            {
                "signature_name": "translate",
                "inputs": {"text": ["a"], "most": [1, 2], "rate": [1]},
            },
            "as many values",
        ),
    ],
)
def test_what_is_not_understood_is_refused_with_the_rule(request_, reason):
    with pytest.raises(Refused, match=reason) as refusal:
        read_inputs(json.dumps(request_), SIGNATURES)
    assert refusal.value.status == 400


def test_what_is_no_json_is_refused():
    for body in (b"", b"{", b"\xff\xfe", b"[" * 100_000):
        with pytest.raises(Refused, match="must be JSON"):
            read_inputs(body, SIGNATURES)


def test_a_lone_surrogate_is_replaced():
    assert read_inputs(rb'{"instances": ["\ud800a"]}', SIGNATURES)[1]["text"].tolist() == [
        b"\xef\xbf\xbda"
    ]


def test_answers_come_as_they_were_asked_for():
    outputs = {
        "scores": np.array([[0.5, -1.0]], "float32"),
        "translations": np.array([[b"a", b"\xc3\xa9"]], object),
    }
    row = {"scores": [0.5, -1.0], "translations": ["a", "é"]}
    assert make_answer(outputs, True) == {"predictions": [row]}
    assert make_answer(outputs, False) == {"outputs": {key: [row[key]] for key in row}}
    assert make_answer({"only": np.array([1, 2])}, True) == {"predictions": [1, 2]}
    assert make_answer({"only": np.array([1, 2])}, False) == {"outputs": [1, 2]}
    with pytest.raises(Refused, match="not a number") as refusal:
        make_answer({"score": np.array([1.0, np.nan])}, True)
    assert refusal.value.status == 500
