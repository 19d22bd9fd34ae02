"""Odd values in the files of a directory: each is a `ValueError` of one line that says the rule."""

import json
import os
import pickle
import re
import shutil
import struct
import sys
from pathlib import Path

import numpy as np
import pytest

from keras_transformer import BeamSearch, GreedySearch, Transformer
from keras_transformer.commands.main import main
from keras_transformer.interop import (
    load_ctranslate2,
    load_hugging_face,
    load_marian,
    save_hugging_face,
)
from keras_transformer.interop.hugging_face import read_config, read_tokenizers
from keras_transformer.interop.hugging_face_form import make_model
from keras_transformer.interop.hugging_face_search import longest_output, make_search
from keras_transformer.serving import Translator
from keras_transformer.text import CharacterTokenizer, SentencePieceTokenizer
from tests.backends import randomise
from tests.interop.marian_models import SETTINGS, write_marian, write_model, yaml_of
from tests.interop.weight_files import zip_of

NAN = float("nan")  # which `json` writes and no JSON has
TEXTS = ["a man rides a horse on the beach", "two dogs play with a red ball"] * 6


@pytest.fixture(scope="module")
def hugging_face(tmp_path_factory):
    tokenizer = SentencePieceTokenizer.train(TEXTS, vocab_size=50)
    sizes = {"num_layers": 1, "d_model": 16, "num_heads": 2, "d_ff": 24, "norm_epsilon": 1e-5}
    model = Transformer(tokenizer.vocab_size, **sizes)
    model.build()
    randomise(model)
    search = BeamSearch(3, 1.0, length_formula="power", num_hypotheses=1)
    directory = tmp_path_factory.mktemp("hugging_face") / "model"
    save_hugging_face(Translator(model, tokenizer, search=search), directory)
    return directory


@pytest.fixture(scope="module")
def many(hugging_face, tmp_path_factory):
    """NLLB without its weights: 51 pieces, and no language yet."""
    directory = tmp_path_factory.mktemp("many")
    shutil.copy(hugging_face / "source.spm", directory / "sentencepiece.bpe.model")
    config = {"model_type": "m2m_100", "pad_token_id": 1, "eos_token_id": 2}
    changed_json(directory / "config.json", {**config, "decoder_start_token_id": 2})
    return directory


@pytest.fixture(scope="module")
def marian(tmp_path_factory):
    directory = tmp_path_factory.mktemp("marian") / "model"
    write_marian(directory)
    return directory


@pytest.fixture(scope="module")
def ctranslate2(tmp_path_factory):
    pytest.importorskip("ctranslate2")
    from keras_transformer.interop import save_ctranslate2

    tokenizer = CharacterTokenizer("abcdefg")
    sizes = {"num_layers": 1, "d_model": 16, "num_heads": 2, "d_ff": 24}
    model = Transformer(tokenizer.vocab_size, **sizes, logits_bias=True)
    model.build()
    randomise(model)
    directory = tmp_path_factory.mktemp("ctranslate2") / "model"
    save_ctranslate2(Translator(model, tokenizer, search=GreedySearch()), directory)
    return directory


def refused(load, directory):
    """The message of the error, which has one line, a rule, and what was received."""
    with pytest.raises(ValueError, match=r"must .*Received: ") as caught:
        load(directory)
    message = str(caught.value)
    assert "\n" not in message
    assert len(message) < 600
    return message


def changed_json(path, changes):
    known = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    path.write_text(json.dumps({**known, **changes}), encoding="utf-8")


# A file, a setting, and its value.
HUGGING_FACE = [
    *(
        ("config.json", name, value)
        for name in ("d_model", "vocab_size")
        for value in (None, "16", -16, 0, 16.0, NAN, [16], True, {}, 10**30)
    ),  # noqa: E501  # fmt: skip
    *(("config.json", "encoder_layers", value) for value in (None, "1", -1, True)),
    *(("config.json", "decoder_ffn_dim", value) for value in (None, -24, [24])),
    *(("config.json", "encoder_attention_heads", value) for value in (None, 0, 3, "2")),
    ("config.json", "decoder_vocab_size", "50"),
    ("config.json", "share_encoder_decoder_embeddings", "false"),
    ("config.json", "tie_word_embeddings", "yes"),
    ("config.json", "tie_word_embeddings", None),
    ("config.json", "scale_embedding", 1),
    ("config.json", "normalize_embedding", "false"),
    ("config.json", "normalize_before", 0),
    *(("config.json", "dropout", value) for value in ("0.1", None, -0.1, 1.5, NAN)),
    *(("config.json", "activation_function", value) for value in (None, 3, {})),
    *(("config.json", "model_type", value) for value in (None, 3, [])),
    *(("config.json", "pad_token_id", value) for value in (None, -1, "0", 10**6, True, [0, 1])),
    *(("generation_config.json", "decoder_start_token_id", value) for value in (-1, 10**6, {})),
    *(("generation_config.json", "num_beams", value) for value in (0, -1, "4", 2.0, True, 1001)),
    *(("generation_config.json", "length_penalty", value) for value in ("1.0", NAN, [1], -1, 99)),
    *(("generation_config.json", "early_stopping", value) for value in ("always", 1, [])),
    *(("generation_config.json", "renormalize_logits", value) for value in ("true", 1)),
    ("generation_config.json", "do_sample", "false"),
    *(("generation_config.json", "no_repeat_ngram_size", value) for value in (-1, "3", 2.5)),
    *(("generation_config.json", "repetition_penalty", value) for value in (0, "1", -2.0)),
    *(("generation_config.json", "min_length", value) for value in (-1, "5", [])),
    *(("generation_config.json", "max_length", value) for value in (0, 1, "20", 2.5, 10**12)),
    *(("generation_config.json", "max_new_tokens", value) for value in (0, "20")),
    *(("generation_config.json", "suppress_tokens", value) for value in ("7", [True], [-1], {})),
    *(("generation_config.json", "bad_words_ids", value) for value in ([5], [[5, 6]], "x", [[]])),
    ("generation_config.json", "eos_token_id", "3"),
    ("tokenizer_config.json", "separate_vocabs", "false"),
    ("tokenizer_config.json", "eos_token", "a"),
    *(("vocab.json", "</s>", value) for value in (-1, "3", None, 3.0, [3])),
    *(("vocab.json", "another", value) for value in (-1, "3", None, 10**9, True)),
]
# What nothing here has.
NOT_HELD = [
    ("num_beam_groups", 2),
    ("diversity_penalty", 0.5),
    ("encoder_repetition_penalty", 1.2),
    ("encoder_no_repeat_ngram_size", 2),
    ("exponential_decay_length_penalty", [5, 1.1]),
    ("begin_suppress_tokens", [5]),
    ("sequence_bias", [[[5], 1.0]]),
    ("force_words_ids", [[[5]]]),
    ("penalty_alpha", 0.6),
    ("guidance_scale", 1.5),
    ("watermarking_config", {"bias": 2.0}),
    ("stop_strings", ["."]),
    ("max_time", 2.0),
    ("forced_bos_token_id", 7),
    ("forced_bos_token_id", "7"),
    ("forced_bos_token_id", [7]),
    ("num_beam_groups", True),
]
NEUTRAL = {
    "num_beam_groups": 1,
    "diversity_penalty": 0.0,
    "encoder_repetition_penalty": 1.0,
    "encoder_no_repeat_ngram_size": 0,
    "exponential_decay_length_penalty": None,
    "begin_suppress_tokens": None,
    "sequence_bias": None,
    "guidance_scale": None,
    "forced_eos_token_id": 0,  # the default of old configurations, whatever the end is
    "temperature": 1.0,
    "top_k": 50,
    "suppress_tokens": None,
    "min_length": 0,
}


@pytest.mark.parametrize(("file", "name", "value"), HUGGING_FACE)
def test_odd_settings_of_hugging_face(file, name, value, hugging_face, tmp_path):
    directory = shutil.copytree(hugging_face, tmp_path / "model")
    changed_json(directory / file, {name: value})
    message = refused(load_hugging_face, directory)
    is_named = name in message or "bos_id=1000000" in message
    assert is_named or value != value or file == "vocab.json"  # JSON has no NaN


@pytest.mark.parametrize(("name", "value"), NOT_HELD)
@pytest.mark.parametrize(
    "file", [pytest.param("config.json", marks=pytest.mark.slow), "generation_config.json"]
)
def test_searches_that_nothing_here_has(file, name, value, hugging_face, tmp_path):
    directory = shutil.copytree(hugging_face, tmp_path / "model")
    if file == "config.json":  # which has no effect beside the other file
        (directory / "generation_config.json").unlink()
    changed_json(directory / file, {name: value})
    message = refused(load_hugging_face, directory)
    assert message.startswith(f"`{name}` must be ")


def test_a_search_of_ones_own_replaces_one_that_nothing_here_has(hugging_face, tmp_path):
    directory = shutil.copytree(hugging_face, tmp_path / "model")
    changed_json(directory / "generation_config.json", {"penalty_alpha": 0.6})
    search = BeamSearch(2)
    assert load_hugging_face(directory, search=search, jit_compile=False).search is search


def test_the_search_is_that_of_its_own_file_alone(hugging_face, tmp_path):
    # Hugging Face takes what the file leaves out as its default, whatever config.json says.
    directory = shutil.copytree(hugging_face, tmp_path / "model")
    settings = {"num_beams": 6, "no_repeat_ngram_size": 3, "length_penalty": 2.0, "max_length": 9}
    changed_json(directory / "config.json", {**settings, "penalty_alpha": 0.6})
    path = directory / "generation_config.json"
    kept = json.loads(path.read_text(encoding="utf-8"))
    kept = {name: value for name, value in kept.items() if name not in settings}
    kept.pop("decoder_start_token_id")  # which stays that of config.json
    path.write_text(json.dumps(kept), encoding="utf-8")
    config = read_config(directory)
    search = make_search(config, make_model(config))
    assert (type(search), search.no_repeat_ngram_size) == (GreedySearch, 0)
    assert longest_output(config) is None
    path.unlink()
    changed_json(directory / "config.json", {"penalty_alpha": None})
    config = read_config(directory)
    search = make_search(config, make_model(config))
    assert (search.beam_size, search.no_repeat_ngram_size, search.length_penalty) == (6, 3, 2.0)
    assert longest_output(config) == 8


def test_bad_words_do_not_forbid_the_end(hugging_face, tmp_path):
    # As Hugging Face's NoBadWordsLogitsProcessor, which `suppress_tokens` does not have.
    directory = shutil.copytree(hugging_face, tmp_path / "model")
    changes = {"suppress_tokens": None, "bad_words_ids": [[3], [0], [7]]}
    changed_json(directory / "generation_config.json", changes)
    config = read_config(directory)
    assert make_search(config, make_model(config)).suppressed_ids == (7,)
    changed_json(directory / "generation_config.json", {"suppress_tokens": [3]})
    config = read_config(directory)
    assert make_search(config, make_model(config)).suppressed_ids == (3, 7)


def test_a_penalty_of_repetition_is_refused_where_the_start_is_the_end(hugging_face, tmp_path):
    # Hugging Face counts the start: an M2M100 would get a penalty for its end at the first token.
    directory = shutil.copytree(hugging_face, tmp_path / "model")
    changes = {"num_beams": 1, "repetition_penalty": 1.3}
    changed_json(directory / "generation_config.json", changes)
    config = read_config(directory)
    assert make_search(config, make_model(config)).repetition_penalty == 1.3
    changed_json(directory / "generation_config.json", {"decoder_start_token_id": 3})
    message = refused(load_hugging_face, directory)
    assert message.startswith("`repetition_penalty` must be 1.0; give `search=` instead")


def test_searches_without_an_effect_are_read(hugging_face, tmp_path):
    directory = shutil.copytree(hugging_face, tmp_path / "model")
    changed_json(directory / "generation_config.json", NEUTRAL)
    assert load_hugging_face(directory, jit_compile=False).search.beam_size == 3


CONTENTS = {"empty": b"", "list": b"[]", "number": b"5", "text": b'"a"', "null": b"null"}
CONTENTS |= {"half": b'{"a": ', "binary": b"\xff\xfe\x00", "twice": b'{"a": 1, "a": 2}'}
CONTENTS |= {"deep": b"[" * 100_000, "nan": b'{"d_model": NaN}'}
FILES = ["config.json", "generation_config.json", "tokenizer_config.json", "vocab.json"]


@pytest.mark.parametrize("content", CONTENTS)
@pytest.mark.parametrize("file", FILES)
def test_odd_files_of_hugging_face(file, content, hugging_face, tmp_path):
    directory = shutil.copytree(hugging_face, tmp_path / "model")
    (directory / file).write_bytes(CONTENTS[content])
    assert file in refused(load_hugging_face, directory)


@pytest.mark.parametrize("file", ["source.spm", "model.safetensors"])
def test_empty_binary_files_of_hugging_face(file, hugging_face, tmp_path):
    directory = shutil.copytree(hugging_face, tmp_path / "model")
    (directory / file).write_bytes(b"")
    assert file in refused(load_hugging_face, directory)


def token(piece, special):
    """What tokenizer_config.json and tokenizer.json say of an added token."""
    return {"content": piece, "special": special}


# What `add_tokens` leaves in the files of a tokenizer, with the id behind all others.
ADDED = {
    "added_tokens.json": lambda piece, index: {piece: index},
    "tokenizer_config.json": lambda piece, index: {
        "added_tokens_decoder": {f"{index}": token(piece, False), "3": token("</s>", True)}
    },
    "tokenizer.json": lambda piece, index: {"added_tokens": [{**token(piece, False), "id": index}]},
}


@pytest.mark.parametrize("file", ADDED)
def test_words_added_to_a_marian_tokenizer_are_refused_by_name(file, hugging_face, tmp_path):
    directory = shutil.copytree(hugging_face, tmp_path / "model")
    changed_json(directory / file, ADDED[file]("ENTX", 50))
    assert refused(load_hugging_face, directory).endswith("Received: ['ENTX']")


@pytest.mark.parametrize("file", ADDED)
def test_codes_added_to_a_marian_tokenizer_are_tags(file, hugging_face, tmp_path):
    directory = shutil.copytree(hugging_face, tmp_path / "model")
    changed_json(directory / file, ADDED[file](">>fra<<", 50))
    for tokenizer in read_tokenizers(directory, read_config(directory)):
        assert tokenizer.tags == [">>fra<<"]
        assert tokenizer.tokenize([">>fra<< a man"]).to_list()[0][0] == 50


@pytest.mark.parametrize("file", ADDED)
def test_words_added_to_a_tokenizer_of_many_languages_are_refused(file, many, tmp_path):
    directory = shutil.copytree(many, tmp_path / "model")
    changed_json(directory / file, ADDED[file]("eng_Latn", 51))
    config = read_config(directory)
    assert read_tokenizers(directory, config)[0].tags == ["eng_Latn"]
    changed_json(directory / file, ADDED[file]("ENTX", 51))
    message = refused(lambda path: read_tokenizers(path, config), directory)
    assert message.endswith("Received: ['ENTX']")


def test_special_tokens_of_many_languages_are_tags_whatever_their_form(many, tmp_path):
    directory = shutil.copytree(many, tmp_path / "model")
    added = {"added_tokens_decoder": {"51": token("kmr", True)}}
    changed_json(directory / "tokenizer_config.json", added)
    assert read_tokenizers(directory, read_config(directory))[0].tags == ["kmr"]
    changed_json(directory / "tokenizer_config.json", {"added_tokens_decoder": None})
    changed_json(directory / "added_tokens.json", {"kmr": 51})
    changed_json(directory / "special_tokens_map.json", {"additional_special_tokens": ["kmr"]})
    assert read_tokenizers(directory, read_config(directory))[0].tags == ["kmr"]


def test_nllb_with_the_code_behind_its_sources_is_refused(many, tmp_path):
    directory = shutil.copytree(many, tmp_path / "model")
    added = {"added_tokens_decoder": {"51": token("eng_Latn", True)}, "legacy_behaviour": False}
    changed_json(directory / "tokenizer_config.json", added)
    assert read_tokenizers(directory, read_config(directory))[0].tags == ["eng_Latn"]
    for value in (True, "true"):
        changed_json(directory / "tokenizer_config.json", {"legacy_behaviour": value})
        message = refused(lambda path: read_tokenizers(path, read_config(path)), directory)
        assert "`legacy_behaviour` must be " in message


# tokenizer_config.json of a model of many languages.
CODES = [
    {"added_tokens_decoder": []},
    {"added_tokens_decoder": {"x": 5}},
    {"added_tokens_decoder": {"99999999999999999999": {"content": "eng"}}},
    {"added_tokens_decoder": {"60": {"content": 7}}},
    {"added_tokens_decoder": 5},
    {"extra_special_tokens": "eng"},
    {"additional_special_tokens": [5, None]},
    {"additional_special_tokens": 7},
    {"language_codes": ["m2m100"]},
]


@pytest.mark.parametrize("settings", CODES)
def test_odd_codes_of_languages(settings, hugging_face, tmp_path):
    directory = shutil.copytree(hugging_face, tmp_path / "model")
    changed_json(
        directory / "config.json",
        {"model_type": "m2m_100", "normalize_before": True, "add_final_layer_norm": True},
    )
    shutil.copy(directory / "source.spm", directory / "sentencepiece.bpe.model")
    (directory / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")
    refused(load_hugging_face, directory)


class Runs:
    """Pickled as a call that makes a folder."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def pickle_that_runs(directory):
    (directory / "model.safetensors").unlink()
    data = pickle.dumps({"model.shared.weight": Runs(directory / "ran")})
    members = [("archive/data.pkl", data), ("archive/version", b"3\n")]
    (directory / "pytorch_model.bin").write_bytes(zip_of(members))


def header_of_100_gb(directory):
    with open(directory / "model.safetensors", "wb") as file:
        file.write(struct.pack("<Q", 100 * 10**9) + b"{")
        file.truncate(101 * 10**9)  # zeros that take no place on the disk


def index_that_leads_out(directory):
    (directory / "model.safetensors").rename(directory.parent / "weights.safetensors")
    index = {"metadata": {}, "weight_map": {"model.shared.weight": "../weights.safetensors"}}
    path = directory / "model.safetensors.index.json"
    path.write_text(json.dumps(index), encoding="utf-8")


def half_of_the_weights(directory):
    path = directory / "model.safetensors"
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])


def kibibytes(name):
    """A number of what the system says of this process."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return int(re.search(name + r":\s+(\d+)", status)[1])


@pytest.mark.skipif(sys.platform != "linux", reason="reads the memory from /proc")
@pytest.mark.parametrize(
    ("spoil", "rule"),
    [
        (pickle_that_runs, "posix.mkdir"),
        (header_of_100_gb, "100000000000"),
        (index_that_leads_out, "a file must be named without a path"),
        (half_of_the_weights, "model.safetensors: "),
    ],
)
def test_the_command_refuses_hostile_weights_in_a_good_directory(
    spoil, rule, hugging_face, tmp_path, capsys
):
    directory = shutil.copytree(hugging_face, tmp_path / "model")
    # The first call takes memory for what it imports.
    assert main(["import", str(tmp_path / "nowhere"), "--output", str(tmp_path / "run")]) == 1
    spoil(directory)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    capsys.readouterr()
    Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")  # the peak begins anew
    memory = kibibytes("VmRSS")
    assert main(["import", str(directory), "--output", str(tmp_path / "run")]) == 1
    assert kibibytes("VmHWM") - memory < 100 * 1024
    out, error = capsys.readouterr()
    assert error.startswith("error: ")
    assert (error.count("\n"), out.count("Traceback")) == (1, 0)
    assert rule in error
    assert len(error) < 600
    # Nothing was run, and nothing was written.
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before


MODEL_YML = [
    *(("enc-depth", value) for value in (0, -1, 2.0, True, "2x", "~", [2])),
    *(("transformer-heads", value) for value in (0, -4, ".nan", "~")),
    *(("transformer-dim-ffn", value) for value in (0, "many", "~")),
    *(("transformer-decoder-dim-ffn", value) for value in (-1, "many", [34])),
    *(("transformer-dropout", value) for value in (-0.1, 2, "high", [0.1])),
    ("transformer-dropout-ffn", "0,1"),
    ("transformer-no-projection", "maybe"),
    ("transformer-depth-scaling", 1),
    ("transformer-preprocess", 5),
    ("transformer-ffn-activation", "~"),
    ("transformer-ffn-activation", [1]),
    ("right-left", True),
    ("type", "~x"),
]
DECODER_YML = [
    *(("beam-size", value) for value in (0, -1, 2.5, True, "six", "~", [6], 1001, 10**17)),
    *(("normalize", value) for value in (-1, ".nan", "yes", [0.6], 99)),
    *(("max-length-factor", value) for value in (0, -3, ".nan", "three", "~", [3])),
    *(("allow-unk", value) for value in ("maybe", 1, [True])),
    *(("word-penalty", value) for value in (0.5, "x", [1])),
    ("output-sampling", True),
    ("output-sampling", ["topk", 10]),
    ("force-decode", True),
    ("shortlist", ["lex.s2t.bin", 100, 100]),
    ("max-length-crop", True),
    *(("models", value) for value in ("model.npz", 5, "~", [], ["a.npz", "b.npz"], [5])),
    *(("vocabs", value) for value in (5, "~", [], ["vocab.yml"] * 3, ["~"])),
]


def characters(directory):
    return load_marian(directory, tokenization="characters", jit_compile=False)


@pytest.mark.parametrize(("name", "value"), MODEL_YML)
def test_odd_settings_of_a_marian_model(name, value, marian, tmp_path):
    directory = shutil.copytree(marian, tmp_path / "model")
    arrays = dict(np.load(directory / "model.npz"))
    del arrays["special:model.yml"]
    write_model(directory / "model.npz", {**SETTINGS, name: value}, arrays)
    assert name in refused(characters, directory)


@pytest.mark.parametrize(("name", "value"), DECODER_YML)
def test_odd_settings_of_decoder_yml(name, value, marian, tmp_path):
    directory = shutil.copytree(marian, tmp_path / "model")
    settings = {"models": ["model.npz"], "vocabs": ["vocab.yml"] * 2, "beam-size": 6, name: value}
    (directory / "decoder.yml").write_text(yaml_of(settings), encoding="utf-8")
    refused(characters, directory)


@pytest.mark.parametrize("content", CONTENTS)
@pytest.mark.parametrize("file", ["decoder.yml", "vocab.yml", "model.npz"])
def test_odd_files_of_marian(file, content, marian, tmp_path):
    directory = shutil.copytree(marian, tmp_path / "model")
    (directory / file).write_bytes(CONTENTS[content])
    assert file in refused(characters, directory)


CTRANSLATE2 = [
    *(("layer_norm_epsilon", value) for value in ("1e-5", -1e-5, 0, NAN, [1e-5], True)),
    *(("add_source_eos", value) for value in ("true", 1, None)),
    *(("add_source_bos", value) for value in ("false", 0, None, True)),
    *(("unk_token", value) for value in (None, 5, ["<unk>"])),
    *(("eos_token", value) for value in (None, 5, "nowhere", {})),
    *(("decoder_start_token", value) for value in (None, 5, "nowhere", [])),
]


def engine_characters(directory):
    return load_ctranslate2(directory, tokenization="characters", jit_compile=False)


@pytest.mark.parametrize(("name", "value"), CTRANSLATE2)
def test_odd_settings_of_ctranslate2(name, value, ctranslate2, tmp_path):
    directory = shutil.copytree(ctranslate2, tmp_path / "model")
    changed_json(directory / "config.json", {name: value})
    refused(engine_characters, directory)


@pytest.mark.parametrize("content", CONTENTS)
@pytest.mark.parametrize("file", ["config.json", "shared_vocabulary.json", "model.bin"])
def test_odd_files_of_ctranslate2(file, content, ctranslate2, tmp_path):
    directory = shutil.copytree(ctranslate2, tmp_path / "model")
    (directory / file).write_bytes(CONTENTS[content])
    refused(engine_characters, directory)


@pytest.mark.parametrize("tokens", [[5], [None], ["a", ["b"]], [{}], [True]])
def test_odd_tokens_of_ctranslate2(tokens, ctranslate2, tmp_path):
    directory = shutil.copytree(ctranslate2, tmp_path / "model")
    (directory / "shared_vocabulary.json").write_text(json.dumps(tokens), encoding="utf-8")
    assert "a token must be a string" in refused(engine_characters, directory)
