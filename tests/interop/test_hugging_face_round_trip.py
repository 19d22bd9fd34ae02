"""Translators of ours in Hugging Face's own classes, and back; tokenizers like theirs."""

import json
import os
import re
import shutil

import numpy as np
import pytest

from keras_transformer import BeamSearch, GreedySearch, Sampling, Transformer
from keras_transformer.interop import load_hugging_face, save_hugging_face
from keras_transformer.interop.weights import halves_order, read_weights, reordered
from keras_transformer.layers import ALiBi, PositionalEncoding
from keras_transformer.serving import Translator
from keras_transformer.text import CharacterTokenizer, SentencePieceTokenizer
from tests.backends import randomise

TEXTS = [
    "a man rides a horse on the beach",
    "two dogs play with a red ball",
    "the woman in blue reads a book to her child",
    "children run across the green field",
]
SIZES = {"d_model": 16, "num_heads": 2, "d_ff": 24, "num_layers": 1, "norm_epsilon": 1e-5}
# Hugging Face's tokenizers leave out what is unknown, and ours write a sign for it.
OPTIONS_OF_SEARCH = {"no_repeat_ngram_size": 2, "suppressed_ids": [1]}
SEARCH = BeamSearch(3, 1.0, num_hypotheses=1, length_formula="power", **OPTIONS_OF_SEARCH)
OPTIONS = {
    "post-norm": {},
    "pre-norm": {"norm_first": True},
    "halves, unscaled": {
        "position": PositionalEncoding(layout="halves"),
        "scale_embeddings": False,
        "num_decoder_layers": 2,
        "decoder_d_ff": 20,
        "num_decoder_heads": 4,
    },
    "untied, bias": {"tie_output": False, "logits_bias": True, "activation": "swish"},
}


@pytest.fixture(scope="module")
def tokenizer():
    return SentencePieceTokenizer.train(TEXTS * 3, vocab_size=90)


def translator_of(tokenizer, search=SEARCH, target_tokenizer=None, **options):
    vocabulary = {"vocab_size": tokenizer.vocab_size}
    if target_tokenizer is not None:
        vocabulary = {
            "source_vocab_size": tokenizer.vocab_size,
            "target_vocab_size": target_tokenizer.vocab_size,
        }
    model = Transformer(**vocabulary, **{**SIZES, **options})
    model.build()
    randomise(model, scale=0.6)
    options = {"search": search, "max_length": 12, "jit_compile": False}
    return Translator(model, tokenizer, target_tokenizer, **options)


OTHERS = [pytest.param(name, marks=pytest.mark.slow) for name in list(OPTIONS)[1:]]


@pytest.mark.parametrize("name", ["post-norm", *OTHERS])
@pytest.mark.usefixtures("eagerly")
def test_a_translator_comes_back_from_hugging_face(name, tokenizer, tmp_path):
    translator = translator_of(tokenizer, **OPTIONS[name])
    save_hugging_face(translator, tmp_path / "first")
    again = load_hugging_face(tmp_path / "first", max_length=12, jit_compile=False)
    assert again(TEXTS) == translator(TEXTS)
    model, order = translator.model, range(16)
    if model.position.layout == "interleaved":
        order = halves_order(16)
    back = read_weights(again.model)
    for weight, values in read_weights(model).items():
        assert (back[weight] == reordered(weight, values, order)).all(), weight
    config = {**again.search.get_config(), "suppressed_ids": [1]}
    assert config == translator.search.get_config()
    save_hugging_face(again, tmp_path / "second")
    files = sorted(path.name for path in (tmp_path / "first").iterdir())
    assert files == sorted(path.name for path in (tmp_path / "second").iterdir())
    for file in set(files) - {"generation_config.json"}:
        first, second = ((tmp_path / part / file).read_bytes() for part in ("first", "second"))
        assert first == second, file


@pytest.mark.parametrize(
    ("early_stopping", "theirs"), [(True, True), (False, "never"), ("current_length", False)]
)
def test_the_stop_of_a_beam_search_comes_back(early_stopping, theirs, tokenizer, tmp_path):
    search = BeamSearch(2, 1.0, early_stopping=early_stopping, length_formula="power")
    save_hugging_face(translator_of(tokenizer, search), tmp_path / "model")
    path = tmp_path / "model" / "generation_config.json"
    settings = json.loads(path.read_text(encoding="utf-8"))
    assert settings["early_stopping"] == theirs
    assert type(settings["early_stopping"]) is type(theirs)
    assert load_hugging_face(tmp_path / "model").search.early_stopping == early_stopping
    if not theirs:  # which is what theirs does where nothing is said
        del settings["early_stopping"]
        path.write_text(json.dumps(settings), encoding="utf-8")
        assert load_hugging_face(tmp_path / "model").search.early_stopping == early_stopping


# A package for normalisation that the tokenizer imports and never uses.
no_sacremoses = pytest.mark.filterwarnings("ignore:Recommended. pip install sacremoses")


@pytest.mark.parity
@no_sacremoses
@pytest.mark.parametrize("name", OPTIONS)
def test_hugging_face_translates_as_we_do(name, tokenizer, tmp_path):
    transformers = pytest.importorskip("transformers")
    translator = translator_of(tokenizer, **OPTIONS[name])
    save_hugging_face(translator, tmp_path / "model")
    theirs, loaded = transformers.AutoModelForSeq2SeqLM.from_pretrained(
        tmp_path / "model", output_loading_info=True
    )
    assert not any(loaded.values()), loaded
    their_tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "model")
    rows = their_tokenizer(TEXTS, padding=True, return_tensors="pt")
    assert [
        row[mask.bool()].tolist()[:-1]
        for row, mask in zip(rows["input_ids"], rows["attention_mask"], strict=True)
    ] == tokenizer.tokenize(TEXTS).to_list()
    written = theirs.generate(**rows)
    found = their_tokenizer.batch_decode(written, skip_special_tokens=True)
    assert found == translator(TEXTS)
    assert len(set(found)) > 1


@pytest.mark.parity
@no_sacremoses
def test_separate_vocabularies_go_out_and_come_back(tokenizer, tmp_path):
    transformers = pytest.importorskip("transformers")
    other = SentencePieceTokenizer.train([text[::-1] for text in TEXTS] * 3, vocab_size=70)
    translator = translator_of(tokenizer, target_tokenizer=other)
    save_hugging_face(translator, tmp_path / "model")
    again = load_hugging_face(tmp_path / "model", max_length=12, jit_compile=False)
    assert again.model.vocabulary_sizes == (90, 70)
    assert again(TEXTS) == translator(TEXTS)
    theirs = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "model")
    their_tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "model")
    written = theirs.generate(**their_tokenizer(TEXTS, padding=True, return_tensors="pt"))
    assert their_tokenizer.batch_decode(written, skip_special_tokens=True) == translator(TEXTS)


@pytest.fixture(scope="module")
def tagged(tokenizer):
    """A translator with tags: of the form that Marian knows, and of others."""
    tags = ["<2de>", "<2fr>", ">>nld<<"]
    tokenizer = SentencePieceTokenizer(tokenizer.model, tags=tags, leading_tags=True)
    translator = translator_of(tokenizer)
    return Translator(**{**translator.settings, "source_tag": "<2de>"})


def test_codes_that_only_hugging_face_takes_off_first_are_told(tokenizer, tmp_path):
    tokenizer = SentencePieceTokenizer.train(
        TEXTS * 5, vocab_size=60, shrink_to_fit=True, user_defined_symbols=[">>fra<<"]
    )
    with pytest.warns(UserWarning, match=r"has \['>>fra<<'\] and no `leading_tags`: Hugging Face"):
        save_hugging_face(translator_of(tokenizer), tmp_path / "model")


def test_tags_of_any_form_come_back(tagged, tmp_path):
    with pytest.warns(UserWarning, match="puts no tag before a text: begin each with '<2de>'"):
        save_hugging_face(tagged, tmp_path / "model")
    options = {"max_length": 12, "jit_compile": False}
    again = load_hugging_face(tmp_path / "model", target_language="<2de>", **options)
    assert (again.source_tag, again.source_tokenizer.tags) == (
        "<2de>",
        tagged.source_tokenizer.tags,
    )
    texts = [*TEXTS, *(f"<2fr> {text}" for text in TEXTS), "a <2de> in the text"]
    for tokenize in (again.source_tokenizer.tokenize, again.target_tokenizer.tokenize):
        assert tokenize(texts).to_list() == tagged.source_tokenizer.tokenize(texts).to_list()
    assert again(texts) == tagged(texts)
    with pytest.warns(UserWarning, match="puts no tag before a text"):
        save_hugging_face(again, tmp_path / "again")
    settings = [
        (tmp_path / name / "tokenizer_config.json").read_text(encoding="utf-8")
        for name in ("model", "again")
    ]
    assert settings[0] == settings[1]


@pytest.mark.parity
@no_sacremoses
def test_tags_of_any_form_begin_a_text_of_hugging_face(tagged, tmp_path):
    transformers = pytest.importorskip("transformers")
    with pytest.warns(UserWarning, match="begin each with '<2de>'"):
        save_hugging_face(tagged, tmp_path / "model")
    theirs = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "model")
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "model")
    ours = tagged.source_tokenizer
    found = []
    for tag in ours.tags:
        texts = [f"{tag} {text}" for text in TEXTS]
        rows = tokenizer(texts)["input_ids"]
        assert rows == [[*row, ours.eos_id] for row in ours.tokenize(texts).to_list()]
        assert {row[0] for row in rows} == {ours.tag_id(tag)}
        written = theirs.generate(**tokenizer(texts, padding=True, return_tensors="pt"))
        found.append(tokenizer.batch_decode(written, skip_special_tokens=True))
        assert found[-1] == tagged(texts)
    assert found[0] == tagged(TEXTS) != found[1]


def test_tags_of_other_forms_need_one_vocabulary(tagged, tokenizer, tmp_path):
    other = SentencePieceTokenizer.train([text[::-1] for text in TEXTS] * 3, vocab_size=70)
    source = tagged.source_tokenizer
    translator = translator_of(source, target_tokenizer=other)
    rule = re.escape("`tags` of the source tokenizer must be of the form '>>fra<<' where")
    with pytest.raises(ValueError, match=rf"{rule}.*Received: \['<2de>', '<2fr>'\]"):
        save_hugging_face(translator, tmp_path / "model")
    assert not list(tmp_path.iterdir())
    without = SentencePieceTokenizer(tokenizer.model, tags=source.tags)  # which no text begins with
    save_hugging_face(translator_of(without, target_tokenizer=other), tmp_path / "model")


@pytest.mark.parity
@no_sacremoses
def test_as_many_positions_leave_as_it_reads_and_writes(tokenizer, tmp_path):
    transformers = pytest.importorskip("transformers")
    torch = pytest.importorskip("torch")
    translator = translator_of(tokenizer, GreedySearch())
    options = {"max_length": 1200, "max_source_length": 1300}
    save_hugging_face(Translator(**{**translator.settings, **options}), tmp_path / "long")
    theirs = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "long")
    longest = theirs.generation_config.max_length - 1  # what the decoder reads to write so much
    assert longest == 1200
    sources, targets = (torch.full((1, length), 5) for length in (1300, longest))
    logits = theirs(input_ids=sources, decoder_input_ids=targets).logits
    assert logits.shape == (1, longest, 90)
    few = translator_of(tokenizer, GreedySearch(), position=PositionalEncoding(max_length=20))
    few = Translator(**{**few.settings, "max_length": None, "max_source_length": None})
    save_hugging_face(few, tmp_path / "few")
    theirs = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "few")
    assert theirs.config.max_position_embeddings == 20
    assert theirs.generation_config.max_length == 21  # with the start
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "few")
    assert tokenizer.model_max_length == few.max_source_length == 20
    assert theirs.generate(**tokenizer(["a man"], return_tensors="pt")).shape[1] <= 21
    again = load_hugging_face(tmp_path / "few")
    assert (again.max_source_length, again.max_length) == (20, 20)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"rms_norm": True}, "`rms_norm` must be False"),
        ({"activation": "swiglu"}, "`activation` must be relu, swish"),
        ({"position": ALiBi()}, r"`position` must be PositionalEncoding\(\)"),
        ({"position": PositionalEncoding(first_position=1)}, "`position` must be"),
        ({"num_key_value_heads": 1}, "`num_key_value_heads` must be None"),
        ({"window": 3}, "`window` must be None"),
        ({"embedding_norm": True}, "`embedding_norm` must be False"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else None,
)
def test_a_setting_without_a_place_there_is_refused_by_name(options, named, tokenizer, tmp_path):
    with pytest.raises(ValueError, match=named):
        save_hugging_face(translator_of(tokenizer, **options), tmp_path / "model")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("search", "named"),
    [
        (BeamSearch(4, coverage_penalty=0.2), "`coverage_penalty` of the search must be 0.0"),
        (GreedySearch(allowed_ids=[5]), "`allowed_ids` of the search must be None"),
        (GreedySearch(max_length_ratio=2.0), "`max_length_ratio` of the search must be None"),
        (BeamSearch(2, repetition_penalty=1.3), "`repetition_penalty` of the search must be 1.0"),
    ],
    ids=["coverage", "allowed", "ratio", "repetition"],
)
def test_a_search_without_a_place_there_is_refused_by_name(search, named, tokenizer, tmp_path):
    with pytest.raises(ValueError, match=named):
        save_hugging_face(translator_of(tokenizer, search), tmp_path / "model")


def test_sources_without_an_end_are_refused_and_a_minimum_comes_back(tokenizer, tmp_path):
    translator = translator_of(tokenizer, GreedySearch(min_length=6), norm_epsilon=1e-5)
    save_hugging_face(translator, tmp_path / "minimum")
    assert load_hugging_face(tmp_path / "minimum").search.min_length == 6
    without = Translator(**{**translator.settings, "source_eos": False})
    with pytest.raises(ValueError, match="`source_eos` must be True.*Received: source_eos=False"):
        save_hugging_face(without, tmp_path / "model")


def test_tokenizers_without_a_place_there_are_refused(tokenizer, tmp_path):
    characters = CharacterTokenizer.train(TEXTS)
    with pytest.raises(ValueError, match="source tokenizer must be a SentencePieceTokenizer"):
        save_hugging_face(translator_of(characters), tmp_path / "model")
    lower = SentencePieceTokenizer.train(TEXTS, vocab_size=60, lowercase=True)
    with pytest.raises(ValueError, match="`lowercase` of the source tokenizer must be False"):
        save_hugging_face(translator_of(lower), tmp_path / "model")


def test_what_differs_there_is_said(tokenizer, tmp_path):
    with pytest.warns(UserWarning, match=r"another hypothesis may be the best"):
        save_hugging_face(translator_of(tokenizer, BeamSearch(2)), tmp_path / "beam")
    translator = translator_of(tokenizer, GreedySearch(), norm_epsilon=1e-6)
    with pytest.warns(UserWarning, match=r"norms add 1e-05 to the variance, this model adds 1e-06"):
        save_hugging_face(translator, tmp_path / "epsilon")
    dividing = translator_of(tokenizer, GreedySearch())
    dividing = Translator(**{**dividing.settings, "split_sentences": True})
    with pytest.warns(UserWarning, match=r"divides no text \(`split_sentences`\): give it one"):
        save_hugging_face(dividing, tmp_path / "sentences")
    search = Sampling(temperature=0.7, top_k=9, seed=1)
    save_hugging_face(translator_of(tokenizer, Sampling(0.7, top_k=9)), tmp_path / "sampling")
    written = tmp_path / "sampling" / "generation_config.json"
    settings = json.loads(written.read_text(encoding="utf-8"))
    assert (settings["do_sample"], settings["temperature"], settings["top_k"]) == (True, 0.7, 9)
    with pytest.raises(ValueError, match="`seed` of the search must be None"):
        save_hugging_face(translator_of(tokenizer, search), tmp_path / "seed")
    with pytest.raises(ValueError, match=re.escape("give `search=Sampling(...)`")):
        load_hugging_face(tmp_path / "sampling")


def test_a_directory_that_exists_is_left_alone(tokenizer, tmp_path):
    (tmp_path / "model").mkdir()
    with pytest.raises(ValueError, match="must not exist yet"):
        save_hugging_face(translator_of(tokenizer, GreedySearch()), tmp_path / "model")


@pytest.fixture(scope="module")
def good(tokenizer, tmp_path_factory):
    """A directory of a model that is right, for all tests that change a copy of it."""
    folder = tmp_path_factory.mktemp("good") / "model"
    save_hugging_face(translator_of(tokenizer, GreedySearch()), folder)
    return folder


def broken(tmp_path, good, change):
    """A copy of the directory of a good model after `change(folder, config)`."""
    folder = shutil.copytree(good, tmp_path / "model")
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    change(folder, config)
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return folder


def set_generation(folder, **settings):
    path = folder / "generation_config.json"
    known = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**known, **settings}), encoding="utf-8")


def set_ids(folder, **ids):
    path = folder / "vocab.json"
    known = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**known, **ids}), encoding="utf-8")


def set_tokenizer(folder, **settings):
    path = folder / "tokenizer_config.json"
    known = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**known, **settings}), encoding="utf-8")


CHANGES = {
    "another end in the vocabulary": (
        lambda folder, config: set_ids(folder, **{"</s>": 7, "\u2581a": 3}),
        r"vocab.json: the id of '</s>' must be 3, the `eos_token_id` of config.json. Received: 7",
    ),
    "another padding in the vocabulary": (
        lambda folder, config: set_ids(folder, **{"<pad>": 90}),
        r"the id of '<pad>' must be 0, the `pad_token_id` of config.json. Received: 90",
    ),
    "an end of another name": (
        lambda folder, config: set_tokenizer(folder, eos_token={"content": "<s>"}),
        r"the id of '<s>' must be 3, the `eos_token_id` of config.json. Received: 2",
    ),
    "another end in the configuration": (
        lambda folder, config: (
            config.update(eos_token_id=5),
            set_generation(folder, eos_token_id=5),
        ),
        r"vocab.json: the id of '</s>' must be 5, the `eos_token_id` of config.json. Received: 3",
    ),
    "another end of the search": (
        lambda folder, config: set_generation(folder, eos_token_id=5),
        r"generation_config.json: `eos_token_id` must be that of config.json, 3. Received: 5",
    ),
    "several ends of the search": (
        lambda folder, config: set_generation(folder, eos_token_id=[3, 5]),
        r"`eos_token_id` must be that of config.json, 3. Received: \[3, 5\]",
    ),
    "another padding of the search": (
        lambda folder, config: set_generation(folder, pad_token_id=1),
        r"`pad_token_id` must be that of config.json, 0. Received: 1",
    ),
    "no weights": (
        lambda folder, config: (folder / "model.safetensors").unlink(),
        "must hold model.safetensors or ",
    ),
    "another family": (
        lambda folder, config: config.update(model_type="t5"),
        "`model_type` must be one of marian, pegasus, m2m_100. Received: 't5'",
    ),
    "a family in a list": (
        lambda folder, config: config.update(model_type=["marian"]),
        "`model_type` must be a string. Received: ",
    ),
    "an activation in a list": (
        lambda folder, config: config.update(activation_function=["relu"]),
        "`activation_function` must be a string. Received: ",
    ),
    "tokens that are not a list": (
        lambda folder, config: set_generation(folder, suppress_tokens=5),
        "`suppress_tokens` must be a list. Received: 5",
    ),
    "words in words": (
        lambda folder, config: set_generation(folder, bad_words_ids=[[[1]]]),
        "must be ids from 0 to ",
    ),
    "a token beyond the vocabulary": (
        lambda folder, config: set_generation(folder, suppress_tokens=[1_000_000]),
        "must be ids from 0 to ",
    ),
    "groups of beams": (
        lambda folder, config: set_generation(folder, num_beam_groups=2),
        "`num_beam_groups` must be 1; give `search=` instead. Received: 2",
    ),
    "a forced token": (
        lambda folder, config: set_generation(folder, forced_bos_token_id=7),
        "`forced_bos_token_id` must be null; give `search=` instead. Received: 7",
    ),
    "repetitions in a beam": (
        lambda folder, config: set_generation(folder, num_beams=2, repetition_penalty=1.3),
        "`repetition_penalty` must be 1.0; give `search=` instead. Received: 1.3",
    ),
    "learned positions": (
        lambda folder, config: config.update(static_position_embeddings=False),
        "`static_position_embeddings` must be True. Received: False",
    ),
    "an unknown activation": (
        lambda folder, config: config.update(activation_function="gelu_new"),
        "`activation_function` must be one of relu, swish, silu, gelu, tanh. Received: 'gelu_new'",
    ),
    "more layers": (
        lambda folder, config: config.update(encoder_layers=2),
        "must have 'model.encoder.layers.1.self_attn.q_proj.weight'",
    ),
    "fewer layers": (
        lambda folder, config: config.update(decoder_layers=1, encoder_layers=0),
        "`encoder_layers` must be an integer from 1 .* Received: encoder_layers=0",
    ),
    "a billion layers": (
        lambda folder, config: config.update(encoder_layers=10**9),
        "must have the weights of every layer",
    ),
    "a width of terabytes": (
        lambda folder, config: config.update(d_model=2**20, encoder_attention_heads=2),
        r"must have the shape \(90, 1048576\) of config.json. Received: \(90, 16\)",
    ),
    "no end": (
        lambda folder, config: (
            config.pop("eos_token_id"),
            (folder / "generation_config.json").unlink(),
        ),
        "`eos_token_id` must be an integer from 0 .* Received: eos_token_id=None",
    ),
    "no vocabulary": (
        lambda folder, config: (folder / "vocab.json").unlink(),
        "must hold vocab.json",
    ),
    "a vocabulary that is a list": (
        lambda folder, config: (folder / "vocab.json").write_text("[1, 2]", encoding="utf-8"),
        "must hold a JSON dict",
    ),
    "a file that is not a sentencepiece model": (
        lambda folder, config: (folder / "source.spm").write_bytes(b"nothing"),
        "source.spm: `model` must be a serialized sentencepiece model",
    ),
    "weights cut short": (
        lambda folder, config: (folder / "model.safetensors").write_bytes(
            (folder / "model.safetensors").read_bytes()[:-40]
        ),
        "the tensors must end with the file",
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_directories_that_are_wrong_are_refused_in_one_line(name, good, tmp_path):
    change, message = CHANGES[name]
    folder = broken(tmp_path, good, change)
    with pytest.raises(ValueError, match=message) as caught:
        load_hugging_face(folder)
    assert "\n" not in str(caught.value)


# What config.json of an OPUS-MT model of 2020 says beside sizes and ids. These models have no
# generation_config.json. What their classes do not read, or what is for training, changes nothing.
OLD = {
    "_num_labels": 3,
    "add_bias_logits": False,
    "add_final_layer_norm": False,
    "architectures": ["MarianMTModel"],
    "bad_words_ids": [[0]],
    "bos_token_id": 0,
    "classif_dropout": 0.0,
    "classifier_dropout": 0.0,
    "decoder_layerdrop": 0.0,
    "encoder_layerdrop": 0.0,
    "extra_pos_embeddings": 90,  # one more than the id of padding, which stands last there
    "force_bos_token_to_be_generated": False,
    "gradient_checkpointing": False,
    "id2label": {"0": "LABEL_0", "1": "LABEL_1", "2": "LABEL_2"},
    "init_std": 0.02,
    "is_encoder_decoder": True,
    "max_length": 512,
    "max_position_embeddings": 512,
    "model_type": "marian",
    "normalize_before": False,
    "normalize_embedding": False,
    "num_beams": 6,
    "num_hidden_layers": 6,
    "output_past": True,
    "static_position_embeddings": True,
    "use_cache": True,
}
NEWER = ("decoder_vocab_size", "share_encoder_decoder_embeddings", "tie_word_embeddings", "dtype")
NEWER += ("forced_eos_token_id",)


def old_configuration(folder, config, **changes):
    (folder / "generation_config.json").unlink()
    for name in NEWER:
        config.pop(name)
    config.update({**OLD, **changes})


@pytest.mark.parametrize(
    "changes",
    [
        {"add_bias_logits": True, "extra_pos_embeddings": 0},
        pytest.param({}, marks=pytest.mark.slow),
    ],
)
def test_the_configurations_of_old_opus_mt_models_are_read(changes, tokenizer, good, tmp_path):
    theirs = BeamSearch(6, 1.0, length_formula="power", early_stopping="current_length")
    translator = translator_of(tokenizer, theirs)
    folder = broken(tmp_path, good, lambda folder, config: None)
    expected = read_weights(load_hugging_face(folder, jit_compile=False).model)
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    old_configuration(folder, config, **changes)
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    settings = {"source_lang": "en", "target_lang": "de"}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")
    found = load_hugging_face(folder, jit_compile=False)
    weights = read_weights(found.model)
    assert all((weights[name] == values).all() for name, values in expected.items())
    search = translator.search.get_config()
    assert {**found.search.get_config(), "num_hypotheses": search["num_hypotheses"]} == search


@pytest.mark.parametrize(
    ("name", "value", "rule"),
    [
        ("normalize_embedding", True, "must be False"),
        ("normalize_before", True, "must be False"),
        ("add_final_layer_norm", True, "must be False"),
        ("static_position_embeddings", False, "must be True"),
        ("do_blenderbot_90_layernorm", True, "must be False"),
        ("force_bos_token_to_be_generated", True, "must be False; give `search=` instead"),
    ],
)
def test_old_settings_that_change_what_is_computed(name, value, rule, good, tmp_path):
    folder = broken(
        tmp_path,
        good,
        lambda folder, config: old_configuration(folder, config, **{name: value}),
    )
    with pytest.raises(ValueError, match=f"`{name}` {rule}. Received: {value}"):
        load_hugging_face(folder)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"max_length": 8}, 7),  # it counts the start
        pytest.param({"max_length": 8, "max_new_tokens": 5}, 5, marks=pytest.mark.slow),
        pytest.param({"max_length": 306}, 305, marks=pytest.mark.slow),
        ({"max_length": 512}, None),  # more than an output has: 50 tokens more than 256
    ],
    ids=str,
)
def test_the_largest_output_is_that_of_the_directory(settings, expected, good, tmp_path):
    folder = broken(tmp_path, good, lambda folder, config: set_generation(folder, **settings))
    translator = load_hugging_face(folder, jit_compile=False)
    assert translator.max_length == expected
    assert load_hugging_face(folder, max_length=4, jit_compile=False).max_length == 4


def test_special_ids_may_stand_in_lists_of_one(good, tmp_path):
    folder = broken(
        tmp_path,
        good,
        lambda folder, config: (
            config.update(eos_token_id=[3]),
            set_generation(folder, eos_token_id=[3], pad_token_id=None),
            set_tokenizer(folder, pad_token=None),
        ),
    )
    assert load_hugging_face(folder).model.eos_id == 3


@pytest.mark.parametrize(
    "name",
    ["config.json", "generation_config.json", "tokenizer_config.json", "vocab.json", "source.spm"],
)
def test_a_file_of_10_gb_takes_no_memory(name, good, tmp_path):
    folder = broken(tmp_path, good, lambda folder, config: None)
    os.truncate(folder / name, 10 * 2**30)  # zeros that take no place on the disk
    with pytest.raises(ValueError, match=f"{name}: must have at most .* bytes. Received: 10737418"):
        load_hugging_face(folder)


def test_an_unknown_language_is_refused(good, tmp_path):
    folder = broken(tmp_path, good, lambda folder, config: None)
    with pytest.raises(ValueError, match="`target_language` must be a language of the model"):
        load_hugging_face(folder, target_language="fra")
    with pytest.raises(ValueError, match="`source_language` must be None"):
        load_hugging_face(folder, source_language="eng")


@pytest.mark.parametrize(
    "is_new",
    [pytest.param(True, id="zip"), pytest.param(False, id="before 1.6", marks=pytest.mark.slow)],
)
def test_float16_files_of_pytorch_are_read(is_new, good, tmp_path):
    torch = pytest.importorskip("torch")
    folder = broken(tmp_path, good, lambda folder, config: None)
    from keras_transformer.interop.tensor_files import open_tensors

    tensors = open_tensors(folder)
    state = {name: torch.tensor(tensors.read(name)).half() for name in tensors}
    path = folder / "pytorch_model.bin"
    torch.save(state, path, _use_new_zipfile_serialization=is_new)
    (folder / "model.safetensors").unlink()
    assert path.read_bytes().startswith(b"PK") is is_new
    translator = load_hugging_face(folder, max_length=9, jit_compile=False)
    expected = tensors_of(state, "model.shared.weight")
    weights = read_weights(translator.model)["embedding/embedding/embeddings"]
    assert (weights == expected).all()
    assert len(translator(TEXTS)) == len(TEXTS)


def tensors_of(state, name):
    return np.asarray(state[name].float().numpy())
