"""A model of another system becomes a run, which every command takes."""

import argparse
import json
import shutil

import pytest

from keras_transformer import BeamSearch, GreedySearch, Transformer
from keras_transformer.commands import train
from keras_transformer.interop import load_hugging_face, save_hugging_face
from keras_transformer.recipes.presets import FINE_TUNING
from keras_transformer.recipes.run_files import read_imported, read_run
from keras_transformer.recipes.settings import OF_IMPORT, Settings
from keras_transformer.serving import Translator
from keras_transformer.text import SentencePieceTokenizer
from tests.backends import randomise

TEXTS = [f"a {color} {animal} runs" for color in ("red", "big", "old") for animal in ("dog", "cat")]


@pytest.fixture(scope="module")
def theirs(tmp_path_factory):
    """A directory of Hugging Face, with random weights and a search of its own."""
    tokenizer = SentencePieceTokenizer.train(TEXTS * 3, vocab_size=50)
    sizes = {"num_layers": 1, "d_model": 16, "num_heads": 2, "d_ff": 24, "norm_epsilon": 1e-5}
    model = Transformer(tokenizer.vocab_size, num_decoder_layers=2, **sizes)
    model.build()
    randomise(model)
    search = BeamSearch(3, 1.0, length_formula="power", suppressed_ids=[9], renormalize=True)
    directory = tmp_path_factory.mktemp("theirs") / "model"
    save_hugging_face(Translator(model, tokenizer, search=search), directory)
    return directory


@pytest.fixture(scope="module")
def imported(theirs, tmp_path_factory):
    """A run of it."""
    from keras_transformer.recipes.imported import import_model

    path = tmp_path_factory.mktemp("imported") / "run"
    import_model(theirs, path)
    settings = path / "settings.toml"  # a search is compiled elsewhere
    text = settings.read_text(encoding="utf-8")
    text = text.replace("xla_export = true", "xla_export = false")
    settings.write_text(text, encoding="utf-8")
    return path


def test_the_command_writes_a_run_and_says_what_it_is(theirs, figures, command, tmp_path):
    found = figures("import", theirs, "--output", tmp_path / "run")
    assert found["from"] == "hugging-face"
    assert (found["layers"], found["vocabulary_sizes"]) == ([1, 2], [50, 50])
    status, out, _ = command("info", tmp_path / "run")
    assert status == 0
    assert "imported" in out
    assert "locale" not in out


def test_the_run_keeps_the_search(imported):
    from keras_transformer.recipes import load_translator

    settings, facts = read_run(imported)
    assert (settings.model, settings.beam_size, facts["imported"]) == (
        "imported",
        3,
        "hugging-face",
    )
    search = load_translator(imported).search
    assert (search.length_formula, search.renormalize) == ("power", True)
    assert 9 in search.suppressed_ids
    assert load_translator(imported, beam_size=1).search.suppressed_ids == search.suppressed_ids


def test_the_settings_are_those_of_the_model(imported):
    settings = read_run(imported)[0]
    found = {name: getattr(settings, name) for name in OF_IMPORT}
    assert found == {
        "model": "imported",
        "vocab_size": 50,
        "separate_vocabularies": False,
        "num_layers": 1,
        "num_decoder_layers": 2,
        "d_model": 16,
        "num_heads": 2,
        "d_ff": 24,
        "norm_first": False,
        "norm_epsilon": 1e-5,
        "position": "sinusoidal",
        "dropout": 0.1,
        "inner_dropout": 0.0,
        "r_drop": 0.0,
        "remat": False,
        "beam_size": 3,
        "length_penalty": 1.0,
    }


def settings_for(*options):
    parser = argparse.ArgumentParser()
    train.add_arguments(parser)
    return train.make_settings(parser.parse_args([str(option) for option in options]))


def test_an_import_trains_with_a_small_rate_and_its_own_search(imported, tmp_path):
    assert FINE_TUNING == {"learning_rate": 0.0002, "warmup_steps": 200}
    options = ["--train", "a.tsv", "--start-from", imported]
    found = settings_for(*options)
    assert (found.learning_rate, found.warmup_steps, found.beam_size) == (0.0002, 200, 3)
    assert (found.length_penalty, found.d_model, found.model) == (1.0, 16, "imported")
    # What is given wins, also in a file.
    found = settings_for(*options, "--learning-rate", "0.1", "--beam-size", "2")
    assert (found.learning_rate, found.warmup_steps, found.beam_size) == (0.1, 200, 2)
    file = tmp_path / "settings.toml"
    file.write_text("warmup_steps = 7\n", encoding="utf-8")
    found = settings_for(*options, "--config", file)
    assert (found.learning_rate, found.warmup_steps, found.beam_size) == (0.0002, 7, 3)
    own = settings_for("--train", "a.tsv", "--start-from", tmp_path)
    assert (own.learning_rate, own.warmup_steps, own.beam_size) == (0.004, 1000, 4)


def test_settings_of_an_import_hold_in_python_and_over_a_preset(imported):
    given = {"train": ("a.tsv",), "start_from": str(imported)}
    found = Settings.from_preset("base", **given)
    assert found == settings_for("--train", "a.tsv", "--preset", "base", "--start-from", imported)
    assert (found.dropout, found.d_model, found.learning_rate) == (0.1, 16, 0.0002)
    assert Settings.from_preset(**given, dropout=0.3).dropout == 0.3


def test_a_run_notes_the_ids_that_its_model_never_writes(tmp_path):
    """Its training leaves them out of the label smoothing."""
    from keras_transformer.recipes.build import build_model
    from keras_transformer.recipes.imported import write_run

    tokenizer = SentencePieceTokenizer.train(TEXTS * 3, vocab_size=50)
    sizes = {"num_layers": 1, "d_model": 16, "num_heads": 2, "d_ff": 24}
    model = Transformer(50, logits_bias=True, **sizes)
    model.build()
    bias = model.target_embedding.bias
    bias.assign([-1e9 if index in (2, 7) else -9.0 for index in range(50)])
    write_run(tmp_path, "marian", Translator(model, tokenizer))
    kept = read_imported(tmp_path)
    assert kept["unused_ids"] == [2, 7]
    settings = Settings.from_preset(start_from=str(tmp_path), train=("a.tsv",))
    assert settings.label_smoothing > 0
    made = build_model(settings, imported=kept["model"], unused_ids=kept["unused_ids"])
    assert made.loss.unused_ids == model.unused_ids == (2, 7)


@pytest.fixture
def files(tmp_path):
    """The options that name texts to train on."""
    for side in ("en", "de"):
        (tmp_path / f"train.{side}").write_text("a dog\n" * 40, encoding="utf-8")
    return ["--train", tmp_path / "train.en", tmp_path / "train.de"]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["--num-layers", 7], "num_layers was 1 and is 7"),
        (["--position", "rotary"], "position was 'sinusoidal' and is 'rotary'"),
        (["--vocab-size", 60], "vocab_size was 50 and is 60"),
        (["--lowercase"], "lowercase was False and is True"),
        (["--normalization", "nfkc"], "normalization was 'identity' and is 'nfkc'"),
        (["--user-defined-symbols", "@@"], "user_defined_symbols was () and is ('@@',)"),
        (["--input-sentence-size", 9], "input_sentence_size was 0 and is 9"),
        (["--model", "transformer"], "model was 'imported' and is 'transformer'"),
        (["--cell", "gru"], "--cell needs --model 'recurrent'"),
    ],
)
def test_what_an_import_has_otherwise_is_refused_by_name(
    given, message, imported, files, command, tmp_path
):
    run = tmp_path / "run"
    status, _, err = command("train", *files, "--start-from", imported, *given, "--output", run)
    assert (status, err.count("\n")) == (1, 1)
    assert message in err
    assert not run.exists()


def files_of(path):
    return {file: file.read_bytes() for file in path.rglob("*") if file.is_file()}


def test_a_run_of_import_is_never_written_over(imported, files, command):
    before = files_of(imported)
    here = ["--output", imported]
    for given, message in (
        (files, "holds another run: the model of an import. Give another --output. To train that"),
        ([*files, "--start-from", imported], "`start_from` must be another directory than the"),
        (["--config", imported / "settings.toml", *files], "--model 'imported' needs --start-from"),
    ):
        status, _, err = command("train", *given, *here)
        assert (status, err.count("\n")) == (1, 1)
        assert message in err
    assert files_of(imported) == before


def test_addresses_are_refused_plainly(theirs, command, tmp_path):
    address = "https://example.org/opus-mt-en-de"
    status, _, err = command("import", address, "--output", tmp_path / "run")
    assert (status, err.count("\n")) == (1, 1)
    assert f"{address}: is an address. Download it, and give the directory" in err
    options = ["--source-tokenizer", address, "--output", tmp_path / "run"]
    status, _, err = command("import", theirs, *options)
    assert f"{address}: is an address. Download it, and give the file" in err
    with pytest.raises(ValueError, match="opus-mt-en-de', which is an address: download it first"):
        load_hugging_face(address)


@pytest.mark.slow
def test_translations_are_those_of_the_loader(theirs, imported, command, tmp_path):
    expected = load_hugging_face(theirs, jit_compile=False)(TEXTS[:3])
    (tmp_path / "in.txt").write_text("\n".join(TEXTS[:3]) + "\n", encoding="utf-8")
    status, _, err = command(
        "translate", imported, tmp_path / "in.txt", "--output", tmp_path / "out.txt"
    )
    assert status == 0, err
    assert (tmp_path / "out.txt").read_text(encoding="utf-8").splitlines() == expected


@pytest.mark.slow
def test_training_goes_on_from_the_import_and_leaves_again(imported, command, figures, tmp_path):
    for side in ("en", "de"):
        lines = "".join(f"{text}\n" for text in TEXTS * 8)
        (tmp_path / f"train.{side}").write_text(lines, encoding="utf-8")
    files = [tmp_path / "train.en", tmp_path / "train.de"]
    options = ["--start-from", imported, "--train", *files, "--measure-every", "0"]
    options += [
        "--no-xla-export",
        "--learning-rate",
        "0.003",
        "--warmup-steps",
        "10",
        "--label-smoothing",
        "0",
    ]
    run = tmp_path / "run"
    status, out, err = command("train", *options, "--epochs", "2", "--output", run)
    assert status == 0, out + err
    assert "Starting from the model of" in out
    before = read_imported(run)["search"]
    assert before == read_imported(imported)["search"]
    status, out, err = command("train", *options, "--epochs", "3", "--output", run)
    assert status == 0, out + err
    assert "Going on from epoch 2" in out
    rows = (run / "history.csv").read_text(encoding="utf-8").split()
    assert len(rows) == 1 + 3
    figures("export", run, "--to", "hugging-face", "--output", tmp_path / "out")
    again = load_hugging_face(tmp_path / "out")
    assert again.model.num_decoder_layers == 2


@pytest.mark.slow
def test_training_goes_on_from_an_import_that_limits_outputs(theirs, command, tmp_path):
    from keras_transformer.recipes import load_translator

    directory = shutil.copytree(theirs, tmp_path / "theirs")
    path = directory / "generation_config.json"
    search = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**search, "max_length": 6}), encoding="utf-8")
    status, _, err = command("import", directory, "--output", tmp_path / "imported")
    assert status == 0, err
    assert load_translator(tmp_path / "imported").max_length == 5
    for side in ("en", "de"):
        lines = "".join(f"{text}\n" for text in TEXTS * 4)
        (tmp_path / f"train.{side}").write_text(lines, encoding="utf-8")
    status, out, err = command(
        "train", "--start-from", tmp_path / "imported", "--no-xla-export", "--epochs", "1",
        "--train", tmp_path / "train.en", tmp_path / "train.de", "--measure-every", "0",
        "--output", tmp_path / "run",
    )  # fmt: skip
    assert status == 0, out + err
    assert load_translator(tmp_path / "run").max_length == 5


def test_sources_get_the_end_that_config_json_does_not_name(theirs, command, tmp_path):
    pytest.importorskip("ctranslate2")
    from keras_transformer.interop import save_ctranslate2

    translator = load_hugging_face(theirs, jit_compile=False)
    without = Translator(**{**translator.settings, "source_eos": False})
    with pytest.warns(UserWarning, match="searches with early_stopping=True, which this"):
        save_ctranslate2(without, tmp_path / "theirs")
    for options, says, has in (([], "without", False), (["--source-eos"], "with", True)):
        output = tmp_path / says
        status, out, err = command("import", tmp_path / "theirs", *options, "--output", output)
        assert status == 0, err
        assert f"sources {says} an end" in out + err
        assert read_imported(output)["options"]["source_eos"] is has
    status, _, err = command("import", theirs, "--source-eos", "--output", tmp_path / "other")
    assert status == 1
    assert "`source_eos` needs a model of ctranslate2. Received: one of hugging-face" in err


TAGS = ["<2de>", "<2fr>", ">>nld<<"]


@pytest.mark.slow
def test_tags_are_named(command, tmp_path):
    """Tokens of a vocabulary become tags; those of the form >>nld<< are tags without a word."""
    pytest.importorskip("ctranslate2")
    from keras_transformer.interop import save_ctranslate2
    from keras_transformer.recipes import load_translator

    model = SentencePieceTokenizer.train(TEXTS * 3, vocab_size=50).model
    tokenizer = SentencePieceTokenizer(model, tags=TAGS, leading_tags=True)
    sizes = {"num_layers": 1, "d_model": 16, "num_heads": 2, "d_ff": 24, "norm_epsilon": 1e-5}
    transformer = Transformer(tokenizer.vocab_size, **sizes)
    transformer.build()
    randomise(transformer)
    settings = {"max_length": 9, "jit_compile": False}
    tags = {"source_tag": "<2de>", "target_tag": "<2fr>"}
    tagged = Translator(transformer, tokenizer, **settings, **tags)
    directory = tmp_path / "theirs"
    save_ctranslate2(Translator(transformer, tokenizer, search=GreedySearch()), directory)

    options = ["--tags", *TAGS[:2], "--source-tag", "<2de>", "--target-tag", "<2fr>"]
    status, _, err = command("import", directory, *options, "--output", tmp_path / "run")
    assert status == 0, err
    assert read_imported(tmp_path / "run")["options"] == {**tags, "source_eos": True}
    found = load_translator(tmp_path / "run", **settings)
    assert found.source_tokenizer.tags == TAGS
    search = {"search": found.search}
    tagged = Translator(**{**tagged.settings, **search})
    for texts in (TEXTS, [f">>nld<< {text}" for text in TEXTS]):
        assert found(texts) == tagged(texts)

    status, _, err = command("import", directory, "--output", tmp_path / "plain")
    assert status == 0, err
    plain = load_translator(tmp_path / "plain", **settings)
    assert plain.source_tokenizer.tags == [">>nld<<"]
    texts = [f">>nld<< {text}" for text in TEXTS]
    assert plain(texts) == Translator(transformer, tokenizer, **settings, **search)(texts)

    for options, message in (
        (["--tags", "<2es>"], "`tags` must be tokens of a vocabulary"),
        (["--source-tag", "<2de>"], "a tag must be one of the tokenizer's 1 `tags`: >>nld<<"),
    ):
        status, _, err = command("import", directory, *options, "--output", tmp_path / "x" / "run")
        assert status == 1
        assert message in err
        assert not (tmp_path / "x").exists()


def test_a_failed_import_leaves_nothing(theirs, command, tmp_path):
    directory = tmp_path / "theirs"
    shutil.copytree(theirs, directory)
    weights = directory / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-4])
    before = sorted(tmp_path.rglob("*"))
    status, _, err = command("import", directory, "--output", tmp_path / "runs" / "new" / "run")
    assert status == 1
    assert "the tensors must end with the file" in err
    assert sorted(tmp_path.rglob("*")) == before


def test_what_is_no_model_is_refused_before_anything_is_loaded(imported, command, tmp_path):
    (tmp_path / "empty").mkdir()
    status, _, err = command("import", tmp_path / "empty", "--output", tmp_path / "run")
    assert status == 1
    assert "must hold model.bin (ctranslate2), decoder.yml (marian), " in err
    status, _, err = command("import", tmp_path / "nowhere", "--output", tmp_path / "run")
    assert status == 1
    assert "there is no such directory" in err
    (tmp_path / "theirs").mkdir()
    config = json.dumps({"model_type": "t5"})
    (tmp_path / "theirs" / "config.json").write_text(config, encoding="utf-8")
    status, _, err = command("import", tmp_path / "theirs", "--output", imported)
    assert status == 1
    assert "exists. Give another --output" in err
    assert not (tmp_path / "run").exists()


def test_an_import_trains_on_tensorflow_alone(imported, command, tmp_path):
    for side in ("en", "de"):
        (tmp_path / f"train.{side}").write_text("a dog\n" * 4, encoding="utf-8")
    files = [tmp_path / "train.en", tmp_path / "train.de"]
    status, _, err = command(
        "train", "--start-from", imported, "--train", *files, "--backend", "jax",
        "--output", tmp_path / "run",
    )  # fmt: skip
    assert status == 1
    assert "backend" in err
