"""`load_ctranslate2` gives what CTranslate2 gives, and refuses what ours does not compute."""

import json
import os
import shutil
import subprocess
import sys
import tracemalloc

import numpy as np
import pytest

from keras_transformer import BeamSearch, GreedySearch
from keras_transformer.interop import load_ctranslate2, save_ctranslate2
from keras_transformer.interop.ctranslate2_file import CTranslate2File
from keras_transformer.layers import (
    LearnedPositionalEncoding,
    PositionalEncoding,
    RotaryPositionalEncoding,
)
from keras_transformer.serving import Translator
from tests.interop.weight_files import ctranslate2_of
from tests.selection import spread

ctranslate2 = pytest.importorskip("ctranslate2")

from tests.interop.ctranslate2_models import (  # noqa: E402
    D_FF,
    D_MODEL,
    HEADS,
    engine,
    largest_difference,
    our_scores,
    our_search,
    our_translator,
    some_texts,
    their_scores,
    their_search,
)

# By CTranslate2 4.8.5, greedy and with a beam of 4: the log-probability divided by the length.
NAMES = {
    "آتزمون": ("atzmon", -0.1517),
    "محمد": ("mahmad", -0.3016),
    "لندن": ("lenden", -0.1664),
    "باريس": ("barris", -0.2854),
    "ميشيل": ("mishel", -0.2471),
    "شكسبير": ("schaxber", -0.3677),
    "طوكيو": ("tokio", -0.1328),
}
FOUND = [found for found, _ in NAMES.values()]
SCORES = [score for _, score in NAMES.values()]


@pytest.fixture(scope="module")
def transliteration(shared):
    path = shared("data/ctranslate2/aren_transliteration")
    return load_ctranslate2(path, tokenization="characters", jit_compile=False)


@pytest.mark.usefixtures("eagerly")
@pytest.mark.parametrize(
    "search",
    [
        None,
        GreedySearch(),
        BeamSearch(4, 1.0, num_hypotheses=1, early_stopping=True, length_formula="power"),
    ],
    ids=["its own", "greedy", "beam 4"],
)
def test_names_are_written_as_ctranslate2_writes_them(search, transliteration):
    translator = transliteration
    if search is not None:
        translator = Translator(**{**translator.settings, "search": search})
    answers = translator.n_best(list(NAMES))
    assert [answer[0][0] for answer in answers] == FOUND
    scores = np.array([answer[0][1] for answer in answers])
    if isinstance(search, GreedySearch):  # whose score is the sum, the end included
        scores /= [len(found) + 1 for found in FOUND]
    np.testing.assert_allclose(scores, SCORES, atol=6e-5)


def test_the_model_is_that_of_the_directory(shared, transliteration):
    config = transliteration.model.get_config()
    assert (config["num_layers"], config["num_decoder_layers"], config["num_heads"]) == (6, 6, 8)
    assert (config["d_model"], config["d_ff"], config["norm_first"]) == (32, 128, True)
    assert (config["tie_output"], config["logits_bias"], config["norm_epsilon"]) == (
        False,
        True,
        1e-5,
    )
    assert transliteration.source_eos is False
    assert (transliteration.search.beam_size, transliteration.search.length_penalty) == (2, 1)
    # The special tokens come first: `<blank>` was the first row and `<unk>` the last.
    letters = transliteration.source_tokenizer
    assert letters.pieces([0, 1, 2, 3, 4]) == ["<pad>", "<unk>", "<s>", "</s>", "ي"]
    stored = CTranslate2File(shared("data/ctranslate2/aren_transliteration") / "model.bin").read(
        "encoder/embeddings/weight"
    )
    table = np.array(transliteration.model.source_embedding.embedding.embeddings)
    np.testing.assert_array_equal(table[:5], stored[[0, 50, 1, 2, 3]])


@pytest.mark.slow
def test_int8_weights_become_float32_and_a_warning_says_so(shared):
    path = shared("data/ctranslate2/aren_transliteration_int8")
    with pytest.warns(UserWarning, match="int8 weights, which become float32"):
        translator = load_ctranslate2(path, tokenization="characters", jit_compile=False)
    answers = translator.n_best(list(NAMES))
    assert [answer[0][0] for answer in answers] == FOUND
    np.testing.assert_allclose([answer[0][1] for answer in answers], SCORES, atol=0.02)
    # CTranslate2 in float32 takes the integers for the same numbers.
    result = engine(path).translate_batch([list(name) for name in NAMES], return_scores=True)
    assert ["".join(answer.hypotheses[0]) for answer in result] == FOUND
    theirs = [answer.scores[0] for answer in result]
    np.testing.assert_allclose([answer[0][1] for answer in answers], theirs, atol=1e-5)


def test_ctranslate2_reads_its_model_back(transliteration, tmp_path):
    save_ctranslate2(transliteration, tmp_path / "again")
    result = engine(tmp_path / "again").translate_batch(
        [list(name) for name in NAMES], beam_size=4, return_scores=True
    )
    assert ["".join(answer.hypotheses[0]) for answer in result] == FOUND
    np.testing.assert_allclose([answer.scores[0] for answer in result], SCORES, atol=6e-5)


@pytest.mark.slow
def test_the_export_of_it_gives_the_same_in_a_clean_process(transliteration, tmp_path):
    transliteration.export(tmp_path / "1", verbose=False)
    code = (
        "import json, sys, tensorflow as tf, tensorflow_text\n"
        "found = tf.saved_model.load(sys.argv[1]).signatures['n_best']("
        "text=tf.constant(json.loads(sys.argv[2])))\n"
        "texts = [row[0].decode() for row in found['translations'].numpy()]\n"
        "print(json.dumps([texts, found['scores'].numpy()[:, 0].tolist()]))\n"
        "assert not any(name.startswith('keras_transformer') for name in sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "1"), json.dumps(list(NAMES))],
        cwd=tmp_path,
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    texts, scores = json.loads(done.stdout.strip().split("\n")[-1])
    assert texts == FOUND
    np.testing.assert_allclose(scores, SCORES, atol=6e-5)


LETTERS = ["a", "b", "c", "d", "e", "f", "g"]
SPECIAL = ["<unk>", "<s>", "</s>"]


def write_theirs(
    directory, seed=0, vocabularies=None, zero_start=False, positions=None, config=(), **options
):
    """Writes a model of CTranslate2's own specification, its weights random."""
    random = np.random.default_rng(seed)
    specs = ctranslate2.specs
    layers = options.pop("num_layers", (2, 1))
    spec = specs.TransformerSpec.from_config(layers, HEADS, **options)
    source, target = vocabularies or 2 * [SPECIAL + LETTERS]

    def weight(*shape):
        return random.normal(size=shape).astype("float32") * 1.7 / np.sqrt(shape[-1])

    def linear(one, outputs, inputs, bias=True):
        one.weight = weight(outputs, inputs)
        if bias:
            one.bias = weight(outputs) / 3

    def norm(one):
        one.gamma = 1 + weight(D_MODEL)
        if hasattr(one, "beta"):
            one.beta = weight(D_MODEL)

    width = D_MODEL // HEADS if options.get("multi_query_attention") else D_MODEL
    for side, vocabulary in ((spec.encoder, source), (spec.decoder, target)):
        table = weight(len(vocabulary), D_MODEL)
        if side is spec.encoder:
            side.embeddings[0].weight = table
        else:
            joint = source == target
            side.embeddings.weight = spec.encoder.embeddings[0].weight if joint else table
        if positions is not None:
            side.position_encodings.encodings = positions
        for name in ("layer_norm", "layernorm_embedding"):
            if hasattr(side, name):
                norm(getattr(side, name))
        for layer in side.layer:
            linear(layer.self_attention.linear[0], D_MODEL + 2 * width, D_MODEL)
            linear(layer.self_attention.linear[1], D_MODEL, D_MODEL, bias=False)
            linear(layer.ffn.linear_0, D_FF, D_MODEL)
            linear(layer.ffn.linear_1, D_MODEL, D_FF)
            parts = [layer.self_attention, layer.ffn]
            if hasattr(layer.ffn, "linear_0_noact"):
                linear(layer.ffn.linear_0_noact, D_FF, D_MODEL)
            if hasattr(layer, "attention"):
                linear(layer.attention.linear[0], D_MODEL, D_MODEL)
                linear(layer.attention.linear[1], 2 * width, D_MODEL)
                linear(layer.attention.linear[2], D_MODEL, D_MODEL)
                parts.append(layer.attention)
            for part in parts:
                norm(part.layer_norm)
    tied = source == target
    spec.decoder.projection.weight = (
        spec.decoder.embeddings.weight if tied else weight(len(target), D_MODEL)
    )
    spec.decoder.projection.bias = weight(len(target))
    spec.decoder.start_from_zero_embedding = zero_start
    spec.register_source_vocabulary(source)
    spec.register_target_vocabulary(target)
    spec.config.add_source_eos = True
    for name, value in dict(config).items():
        setattr(spec.config, name, value)
    spec.validate()
    spec.optimize()
    os.makedirs(directory)
    spec.save(str(directory))


ACTIVATIONS = ctranslate2.specs.Activation
TABLE = np.random.default_rng(9).normal(size=(53, D_MODEL)).astype("float32")
OTHER = ["<blank>", *LETTERS, "</s>", "<s>", "<unk>"]
THEIRS = {
    "pre-norm, no table of positions": {"config": {"layer_norm_epsilon": 1e-3}},
    "post-norm, start of zeros": {"pre_norm": False, "zero_start": True},
    "gated, rms": {"ffn_glu": True, "rms_norm": True, "activation": ACTIVATIONS.SWISH},
    "one key head, separate": {
        "multi_query_attention": True,
        "vocabularies": (SPECIAL + LETTERS, OTHER),
        "activation": ACTIVATIONS.GELU,
    },
    "learned, norm of embeddings": {"positions": TABLE, "layernorm_embedding": True},
    "start is the end": {
        "vocabularies": (OTHER, OTHER),
        "config": {"decoder_start_token": "</s>"},
        "activation": ACTIVATIONS.Tanh,
    },
    "start is padding": {
        "vocabularies": (["<pad>", "</s>", "<unk>", *LETTERS],) * 2,
        "config": {"decoder_start_token": "<pad>"},
        "activation": ACTIVATIONS.Sigmoid,
        "num_layers": (1, 3),
    },
}


@pytest.mark.parametrize(("name", "tokenization"), spread(THEIRS, ["characters", "words"]))
def test_a_model_of_theirs_computes_the_same(name, tokenization, tmp_path):
    write_theirs(tmp_path / "made", 5, **THEIRS[name])
    opened = engine(tmp_path / "made")
    translator = load_ctranslate2(tmp_path / "made", tokenization=tokenization, jit_compile=False)
    sources, targets = some_texts(1, LETTERS), some_texts(2, LETTERS)
    theirs = their_scores(opened, sources, targets)
    if tokenization == "words":
        sources, targets = ([" ".join(text) for text in side] for side in (sources, targets))
    assert largest_difference(our_scores(translator, sources, targets), theirs) < 1e-4


@pytest.mark.slow
def test_a_search_of_theirs_finds_the_same(tmp_path):
    write_theirs(tmp_path / "made", 5, **THEIRS["post-norm, start of zeros"])
    translator = load_ctranslate2(tmp_path / "made", tokenization="characters", jit_compile=False)
    sources = some_texts(1, LETTERS)
    ours, best = our_search(translator, sources)
    theirs, their_best = their_search(engine(tmp_path / "made"), sources)
    assert ours == theirs
    assert len(set(ours)) > 1
    np.testing.assert_allclose(best, their_best, atol=2e-5)


@pytest.mark.parametrize(
    "options",
    [
        {"layout": "halves", "frequencies": "tensor2tensor", "first_position": 2},
        *(
            pytest.param(options, marks=pytest.mark.slow)
            for options in (
                {},
                {"layout": "halves"},
                {"layout": "halves", "frequencies": "tensor2tensor"},
            )
        ),
    ],
)
def test_tables_of_sinusoids_are_known(options, tmp_path):
    position = PositionalEncoding(**options)
    position.build((None, None, D_MODEL))
    rows = position.rows(np.arange(1500)).astype("float16").astype("float32")
    write_theirs(tmp_path / "made", positions=rows)
    found = load_ctranslate2(tmp_path / "made", tokenization="characters").model.position
    expected = {**position.get_config(), "name": None, "dtype": None}
    assert {**found.get_config(), "name": None, "dtype": None} == expected


def test_other_tables_of_positions_are_learned_ones(tmp_path):
    write_theirs(tmp_path / "made", positions=TABLE)
    found = load_ctranslate2(tmp_path / "made", tokenization="characters").model.position
    assert isinstance(found, LearnedPositionalEncoding)
    assert found.max_length == 53


def test_users_that_append_the_end_themselves_say_so(tmp_path):
    write_theirs(tmp_path / "made", config={"add_source_eos": False})
    assert not load_ctranslate2(tmp_path / "made", tokenization="characters").source_eos
    given = load_ctranslate2(
        tmp_path / "made",
        tokenization="characters",
        source_eos=True,
        search=BeamSearch(3),
        max_length=9,
    )
    assert given.source_eos
    assert (given.search.beam_size, given.max_length) == (3, 9)


FROM_HUGGING_FACE = {
    "marian": "post-norm, start of zeros",
    "m2m_100": "start is the end",
    "pegasus": "start is padding",
}


@pytest.mark.parametrize("name", FROM_HUGGING_FACE.values(), ids=FROM_HUGGING_FACE)
def test_models_from_hugging_face_get_the_end_of_sources(name, tmp_path):
    options = THEIRS[name]
    config = {**options.get("config", {}), "add_source_eos": False}
    write_theirs(tmp_path / "made", **{**options, "config": config})
    load = {"tokenization": "characters", "jit_compile": False}
    with pytest.warns(UserWarning, match="sources end in '</s>' here, though its settings say no"):
        assert load_ctranslate2(tmp_path / "made", **load).source_eos
    for source_eos in (True, False):  # given, so that nothing is said
        found = load_ctranslate2(tmp_path / "made", source_eos=source_eos, **load)
        assert found.source_eos is source_eos


@pytest.fixture(scope="module")
def right(tmp_path_factory):
    """A small right directory, and the arrays of its model.bin."""
    directory = tmp_path_factory.mktemp("right") / "made"
    save_ctranslate2(our_translator(3, num_layers=1), directory)
    file = CTranslate2File(directory / "model.bin")
    return directory, {name: file.read(name) for name in file}


def wrong_directory(right, path, change=None, config=(), version=6):
    """A copy of the right directory in which `change` has changed the arrays."""
    directory, arrays = right
    shutil.copytree(directory, path)
    arrays = dict(arrays)
    if change:
        change(arrays)
    (path / "model.bin").write_bytes(ctranslate2_of(arrays, version))
    settings = json.loads((directory / "config.json").read_text(encoding="utf-8"))
    settings |= dict(config)
    (path / "config.json").write_text(json.dumps(settings), encoding="utf-8")
    return path


def putting(name, values):
    return lambda arrays: arrays.update({name: np.asarray(values)})


def taking(name):
    return lambda arrays: arrays.pop(name)


ATTENTION = "encoder/layer_0/self_attention"
WRONG = [
    (taking(f"{ATTENTION}/linear_1/weight"), f"must have '{ATTENTION}/linear_1/weight'"),
    (taking("decoder/projection/weight"), "must have 'decoder/projection/weight'"),
    (taking("encoder/layer_0/ffn/linear_0/weight"), "must have encoder/layer_0/ffn/linear_0"),
    (taking("decoder/embeddings/weight"), "must have decoder/embeddings/weight"),
    (
        putting("decoder/layer_1/attention/relative", np.zeros((2, 3), "float32")),
        "must not have 'decoder/layer_1/attention/relative'",
    ),
    (putting("decoder/final_logit_softcapping", np.float32(3)), "the setting decoder/final_logit"),
    (putting("decoder/alibi", np.int8(1)), "decoder/alibi must be 0. Received: 1"),
    (putting("encoder/num_heads", np.int16(5)), "encoder/num_heads must divide the width 24"),
    (putting("encoder/num_heads", np.int16(0)), "num_heads must divide the width 24. Received: 0"),
    (putting("encoder/activation", np.int8(1)), "encoder/activation must be one of 0, 2, 3, 5, 6"),
    (putting("encoder/activation", np.int8(3)), "`activation` must be the same in encoder and"),
    (
        putting("encoder/scale_embeddings", np.float32(3)),
        r"encoder/scale_embeddings must be 1 or sqrt\(24\). Received: 3.0",
    ),
    (putting(f"{ATTENTION}/queries_scale", np.float32(1)), r"queries_scale must be 1 / sqrt\(6\)"),
    (putting(f"{ATTENTION}/head_dim", np.int32(3)), "head_dim must be 6. Received: 3"),
    (putting(f"{ATTENTION}/num_heads_kv", np.int32(3)), "num_heads_kv must divide 4. Received: 3"),
    (
        putting(f"{ATTENTION}/num_heads_kv", np.int32(2)),
        "`num_key_value_heads` must be the same in encoder and decoder. Received: 2 and None",
    ),
    (
        putting("decoder/layer_0/attention/num_heads_kv", np.int32(2)),
        "num_heads_kv must be the same in all attentions",
    ),
    (putting(f"{ATTENTION}/rotary_dim", np.int32(4)), "rotary_dim must be 0 or 6. Received: 4"),
    (putting(f"{ATTENTION}/rotary_dim", np.int32(0)), "rotary_interleave must be 0. Received: 1"),
    (
        putting(f"{ATTENTION}/linear_0/weight", np.zeros((71, 24), "float32")),
        r"linear_0/weight must have the shape \(72, 24\). Received: \(71, 24\)",
    ),
    (
        putting("encoder/layer_0/ffn/linear_0/weight", np.zeros((2**20, 24), "float32")),
        r"linear_0/bias must have the shape \(1048576,\)",
    ),
    (
        putting("encoder/embeddings_0/weight", np.zeros((16, 24), "float32")),
        r"embeddings_0/weight must have the shape \(17, 24\)",
    ),
    (
        putting("decoder/position_encodings/encodings", TABLE),
        "positions must be of one kind and length in encoder and decoder",
    ),
    (putting("encoder/position_encodings/encodings", TABLE[:, :3]), r"must be \(positions, 24\)"),
    (putting("encoder/pre_norm", np.ones(2, "int8")), "encoder/pre_norm must be one number"),
]


@pytest.mark.parametrize(("change", "message"), WRONG)
def test_a_wrong_model_is_refused_in_one_line_without_memory(right, change, message, tmp_path):
    directory = wrong_directory(right, tmp_path / "wrong", change)
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match=message) as caught:
            load_ctranslate2(directory, tokenization="characters")
        assert tracemalloc.get_traced_memory()[1] < 2 * 2**20
    finally:
        tracemalloc.stop()
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 500 + len(str(directory))


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"add_source_bos": True}, "`add_source_bos` must be false"),
        ({"decoder_start_token": None}, "`decoder_start_token` must be a string. Received: None"),
        ({"eos_token": "</e>"}, "must have `eos_token`. Received: eos_token='</e>'"),
        ({"layer_norm_epsilon": "small"}, "`layer_norm_epsilon` must be a number from 1e-12 to 1"),
    ],
)
def test_a_wrong_config_is_refused(right, config, message, tmp_path):
    directory = wrong_directory(right, tmp_path / "wrong", config=config)
    with pytest.raises(ValueError, match=message):
        load_ctranslate2(directory, tokenization="characters")


def test_what_is_missing_is_named(right, tmp_path):
    whole, _ = right
    with pytest.raises(ValueError, match="`source_tokenizer` must name a sentencepiece model"):
        load_ctranslate2(whole)
    with pytest.raises(ValueError, match="`tokenization` must be.*letters"):
        load_ctranslate2(whole, tokenization="letters")
    for name, rule in {
        "model.bin": "must hold model.bin",
        "config.json": "must hold config.json",
        "shared_vocabulary.json": "must hold shared_vocabulary.json or shared_vocabulary.txt",
    }.items():
        path = tmp_path / name
        shutil.copytree(whole, path)
        (path / name).unlink()
        with pytest.raises(ValueError, match=rule):
            load_ctranslate2(path, tokenization="characters")


def test_a_token_that_is_no_character_is_refused(right, tmp_path):
    directory = wrong_directory(right, tmp_path / "wrong")
    path = directory / "shared_vocabulary.json"
    tokens = json.loads(path.read_text(encoding="utf-8"))
    tokens[7] = "the"
    path.write_text(json.dumps(tokens), encoding="utf-8")
    with pytest.raises(ValueError, match="each token must be a character.*'the' in row 7"):
        load_ctranslate2(directory, tokenization="characters")


def test_old_files_say_their_settings_in_variables(right, tmp_path):
    def change(arrays):
        arrays["with_source_eos"] = np.int8(1)
        arrays["decoder_start_token"] = np.frombuffer(b"</s>", "int8")

    directory = wrong_directory(right, tmp_path / "old", change, version=5)
    (directory / "config.json").unlink()
    translator = load_ctranslate2(directory, tokenization="characters", jit_compile=False)
    assert translator.source_eos
    model = translator.model
    table = np.array(model.target_embedding.embedding.embeddings)
    np.testing.assert_array_equal(table[model.bos_id], table[model.eos_id])
    assert model.norm_epsilon == 1e-5


def test_old_files_whose_users_give_the_start_are_refused(right, tmp_path):
    def change(arrays):
        arrays["user_decoder_start_tokens"] = np.int8(1)

    directory = wrong_directory(right, tmp_path / "old", change, version=5)
    (directory / "config.json").unlink()
    with pytest.raises(ValueError, match="model.bin: `user_decoder_start_tokens` must be false"):
        load_ctranslate2(directory, tokenization="characters")


BOTH = ("num_heads", "pre_norm", "activation", "embeddings_merge", "alignment_layer")
BOTH += ("alignment_heads",)


def old_arrays(arrays):
    """Arrays as files of revisions 3 and 4 have them: settings of both sides stand once."""
    found = {}
    for name, values in arrays.items():
        last = name.rpartition("/")[2]
        found[last if name.count("/") == 1 and last in BOTH else name] = values
    return found


@pytest.mark.parametrize("revision", [3, 4])
def test_old_revisions_have_the_settings_of_both_sides_once(revision, tmp_path):
    # Another activation, number of heads and place of the norms than a file without them has.
    options = {"activation": "silu", "norm_first": False, "logits_bias": True}
    save_ctranslate2(our_translator(4, **options), tmp_path / "new")
    file = CTranslate2File(tmp_path / "new" / "model.bin")
    arrays = old_arrays({name: file.read(name) for name in file})
    assert {"num_heads", "activation"} <= set(arrays)
    assert not {"encoder/num_heads", "decoder/activation"} & set(arrays)
    path = tmp_path / "old"
    shutil.copytree(tmp_path / "new", path)
    (path / "model.bin").write_bytes(ctranslate2_of(arrays, revision=revision))
    translator = load_ctranslate2(path, tokenization="characters", jit_compile=False)
    sources, targets = some_texts(1), some_texts(2)
    theirs = their_scores(engine(path), sources, targets)
    assert largest_difference(our_scores(translator, sources, targets), theirs) < 1e-4
    assert translator.model.num_heads == HEADS
    # Newer revisions have no such names.
    (path / "model.bin").write_bytes(ctranslate2_of(arrays, revision=5))
    with pytest.raises(ValueError, match="must not have the setting activation"):
        load_ctranslate2(path, tokenization="characters")


def test_a_genuine_model_in_an_old_revision_writes_the_same_names(shared, tmp_path):
    path = tmp_path / "old"
    shutil.copytree(shared("data/ctranslate2/aren_transliteration"), path)
    file = CTranslate2File(path / "model.bin")
    arrays = {name: file.read(name) for name in file}
    arrays |= {"num_heads": np.array(8, "int8"), "pre_norm": np.array(1, "int8")}
    arrays |= {"activation": np.array(0, "int8"), "embeddings_merge": np.array(0, "int8")}
    arrays |= {"alignment_layer": np.array(-1, "int16"), "alignment_heads": np.array(1, "int16")}
    (path / "model.bin").write_bytes(ctranslate2_of(arrays, version=5, revision=4))
    names = list(NAMES)[:2]
    result = engine(path).translate_batch([list(name) for name in names])
    assert ["".join(answer.hypotheses[0]) for answer in result] == FOUND[:2]
    translator = load_ctranslate2(path, tokenization="characters", jit_compile=False)
    assert translator(names) == FOUND[:2]


@pytest.mark.parametrize(("rms_norm", "expected"), [(False, 1e-5), (True, 1e-6)])
def test_norms_without_an_epsilon_have_that_of_their_kind(rms_norm, expected, tmp_path):
    path = tmp_path / "made"
    options = {"rms_norm": rms_norm, "norm_epsilon": 1e-3, "logits_bias": True}
    # Small embeddings with nothing added, where the epsilon is much of a norm.
    options |= {"scale_embeddings": False, "norm_first": True, "tie_output": False}
    options["position"] = RotaryPositionalEncoding()
    made = our_translator(5, num_layers=1, **options)
    table = made.model.source_embedding.embedding.embeddings
    table.assign(np.array(table) * 0.005)
    save_ctranslate2(made, path)
    config = json.loads((path / "config.json").read_text(encoding="utf-8"))
    sources, targets = some_texts(1), some_texts(2)
    for change in ({"layer_norm_epsilon": None}, {}):
        kept = {name: value for name, value in config.items() if name != "layer_norm_epsilon"}
        (path / "config.json").write_text(json.dumps(kept | change), encoding="utf-8")
        translator = load_ctranslate2(path, tokenization="characters", jit_compile=False)
        assert translator.model.norm_epsilon == expected
    theirs = their_scores(engine(path), sources, targets)
    assert largest_difference(our_scores(translator, sources, targets), theirs) < 1e-4
    assert largest_difference(our_scores(made, sources, targets), theirs) > 1e-3


@pytest.mark.parametrize("name", ["config.json", "shared_vocabulary.json"])
def test_a_file_of_10_gb_takes_no_memory(name, tmp_path):
    save_ctranslate2(our_translator(), tmp_path / "model")
    os.truncate(tmp_path / "model" / name, 10 * 2**30)  # zeros that take no place on the disk
    with pytest.raises(ValueError, match=f"{name}: must have at most .* Received: 10737418240"):
        load_ctranslate2(tmp_path / "model", tokenization="characters")
