"""The model card of each kind of export is found, and none is an empty one."""

import json

from keras_transformer.card_file import is_onnx, read_card


def test_the_card_is_beside_an_onnx_file_and_in_the_extra_assets_of_a_saved_model(tmp_path):
    for name, card in (("", {"says": "beside"}), ("assets.extra", {"says": "extra"})):
        (tmp_path / name).mkdir(exist_ok=True)
        (tmp_path / name / "model_card.json").write_text(json.dumps(card), encoding="utf-8")
    assert not is_onnx(tmp_path)
    assert read_card(tmp_path) == {"says": "extra"}
    (tmp_path / "translator.onnx").touch()
    assert is_onnx(tmp_path)
    assert read_card(tmp_path) == {"says": "beside"}


def test_an_export_without_a_card_has_an_empty_one(tmp_path):
    assert read_card(tmp_path) == {}
    (tmp_path / "translator.onnx").touch()
    assert read_card(tmp_path) == {}
