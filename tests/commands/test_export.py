import json
import warnings

import pytest
import tensorflow as tf

from keras_transformer.serving import Translator
from tests.serving.trained import translator, words


@pytest.mark.slow
def test_an_export_has_the_search_of_the_line_and_the_card_of_its_run(
    run_directory, figures, tmp_path
):
    output = tmp_path / "exports" / "1"
    found = figures("export", run_directory, "--output", output, "--beam-size", 2, "--no-xla")
    assert found["output"] == str(output)
    assert found["search"] == "beam 2, length penalty 0.6"
    card = json.loads((output / "assets.extra" / "model_card.json").read_text(encoding="utf-8"))
    assert card["search"]["settings"]["beam_size"] == 2
    assert card["jit_compile"] is False
    assert card["scores"] == "Exact match: 98 %"
    assert card["data"]["train"] == ["letters.low", "letters.up"]
    assert not (run_directory / "README.txt").exists()  # which tells of the exports in the run
    texts = words(5, seed=12)
    answer = tf.saved_model.load(str(output)).signatures["serving_default"](text=tf.constant(texts))
    assert [text.decode() for text in answer["translation"].numpy()] == translator()(texts)


def test_the_next_number_is_the_default_and_what_exists_stays(run_directory, command, tmp_path):
    from keras_transformer.commands.export import default_output

    assert default_output(run_directory, "saved-model") == run_directory / "export" / "2"
    assert default_output(run_directory, "onnx") == run_directory / "onnx"
    before = (run_directory / "export" / "1" / "saved_model.pb").read_bytes()
    status, _, err = command("export", run_directory, "--output", run_directory / "export" / "1")
    assert status == 1
    assert "exists. Give another --output" in err
    assert (run_directory / "export" / "1" / "saved_model.pb").read_bytes() == before
    status, _, err = command("export", tmp_path)
    assert status == 1
    assert "must be the directory of a run" in err
    for option in ("--int8", "--no-xla", "--layout=rows", "--beam-size=2"):
        status, _, err = command("export", run_directory, option, "--to", "litert")
        assert status == 1
        assert "needs --to saved-model" in err


@pytest.mark.slow
def test_the_weights_take_less_room_as_integers(run_directory, figures, tmp_path):
    """The graph of so small a model is larger than its weights, and grows."""
    sizes = []
    for name, options in (("float", []), ("integer", ["--int8"])):
        figures("export", run_directory, "--output", tmp_path / name, *options)
        files = (tmp_path / name / "variables").iterdir()
        sizes.append(sum(file.stat().st_size for file in files))
    assert sizes[1] < 0.5 * sizes[0]


@pytest.mark.slow
@pytest.mark.parametrize(("format", "module"), [("onnx", "onnx"), ("litert", "ai_edge_litert")])
def test_other_formats_are_written(run_directory, figures, tmp_path, format, module):
    pytest.importorskip(module)
    found = figures("export", run_directory, "--to", format, "--output", tmp_path / "out")
    names = {path.suffix for path in (tmp_path / "out").iterdir()}
    assert {".json", {"onnx": ".onnx", "litert": ".tflite"}[format]} <= names
    assert found["bytes"] > 1000


def test_a_tag_that_the_vocabulary_lacks_is_refused(run_directory, tmp_path, command):
    options = ("--output", tmp_path / "1", "--target-tag", "<de>")
    status, _, err = command("export", run_directory, *options)
    assert status == 1
    assert "`target_tag`: a tag must be one of the tokenizer's 0 `tags`" in err
    assert not (tmp_path / "1").exists()


@pytest.mark.slow
def test_strings_are_for_onnx_and_its_vocabularies(run_directory, tmp_path, command):
    pytest.importorskip("onnx")
    out = ("--output", tmp_path / "out")
    status, _, err = command("export", run_directory, *out, "--strings")
    assert status == 1
    assert "--strings needs --to onnx" in err
    status, _, err = command("export", run_directory, *out, "--strings", "--to", "onnx")
    assert status == 1
    assert "Received: a source vocabulary of CharacterTokenizer" in err
    assert not (tmp_path / "out").exists()


def test_what_the_other_system_does_otherwise_is_a_note(
    run_directory, tmp_path, command, monkeypatch
):
    def save(translator, output):
        output.mkdir()
        warnings.warn("the norms differ", stacklevel=2)

    monkeypatch.setattr("keras_transformer.interop.save_hugging_face", save)
    dividing = Translator(**{**translator().settings, "split_sentences": True})
    monkeypatch.setattr("keras_transformer.recipes.runs.load_translator", lambda *_, **__: dividing)
    out = ("--output", tmp_path / "out")
    status, printed, err = command("export", run_directory, "--to", "hugging-face", *out)
    assert (status, err) == (0, "")
    assert printed.splitlines()[2:4] == [
        "note: the norms differ",
        "note: a text is not divided there. Give it one sentence at a time.",
    ]


@pytest.mark.slow
def test_an_export_has_a_shortlist_of_two_files(run_directory, command, figures, tmp_path):
    texts = words(200, seed=3)
    for name, lines in (("low", texts), ("up", [text.upper()[::-1] for text in texts])):
        (tmp_path / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    files = [tmp_path / "low", tmp_path / "up"]
    figures("export", run_directory, "--output", tmp_path / "1", "--shortlist", *files)
    card = (tmp_path / "1" / "assets.extra" / "model_card.json").read_text(encoding="utf-8")
    assert json.loads(card)["shortlist"]["size"] == 256
    signature = tf.saved_model.load(str(tmp_path / "1")).signatures["serving_default"]
    found = signature(text=tf.constant(texts[:3]))["translation"].numpy()
    assert [text.decode() for text in found] == translator()(texts[:3])
    files[0].write_text("one line\n", encoding="utf-8")
    status, _, err = command(
        "export", run_directory, "--output", tmp_path / "2", "--shortlist", *files
    )
    assert status == 1
    assert "has 1 lines" in err
    assert not (tmp_path / "2").exists()
