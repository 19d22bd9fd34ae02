import re


def test_a_run_and_its_export_say_what_they_are(run_directory, command, figures):
    status, out, _ = command("info", run_directory)
    assert status == 0
    assert f"{run_directory}: no history of epochs" in out
    assert "Exact match: 98 %" in out
    assert re.search(r"^  beam_size +3$", out, re.MULTILINE)
    assert "cell" not in out.split("Exact match")[0]  # of recurrent models
    assert "lowercase" not in out.split("Exact match")[0]
    assert "serving_default" in out
    assert "beam 3, length penalty 0.6" in out
    found = figures("info", run_directory)
    assert found["run"]["settings"]["train"] == ["letters.low", "letters.up"]
    assert found["export"]["card"]["model"]["class"] == "Transformer"
    assert set(figures("info", run_directory / "export" / "1")) == {"export"}


def test_other_directories_are_refused(tmp_path, command):
    status, _, err = command("info", tmp_path)
    assert status == 1
    assert "must be the directory of a run, with settings.toml and model.keras" in err


def test_a_search_of_a_class_of_its_own_is_named(run_directory, command, monkeypatch):
    from keras_transformer.commands import info

    original = info.read_card
    monkeypatch.setattr(
        info, "read_card",
        lambda export: original(export) | {"search": {"class": "Mine", "settings": {}}},
    )  # fmt: skip
    status, out, _ = command("info", run_directory / "export" / "1")
    assert status == 0
    assert "\nMine\n" in out
