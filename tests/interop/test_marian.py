"""`load_marian` computes what CTranslate2's converter makes of the files, and refuses others."""

import contextlib
import json
import shutil

import numpy as np
import pytest

from keras_transformer import BeamSearch, GreedySearch
from keras_transformer.interop import load_marian
from keras_transformer.interop.marian import convert_name
from keras_transformer.interop.weights import read_weights
from keras_transformer.layers import PositionalEncoding
from keras_transformer.recipes.imported import find_system, import_model
from keras_transformer.text import SentencePieceTokenizer

pytest.importorskip("ctranslate2")
pytest.importorskip("yaml")  # of CTranslate2's converter

from ctranslate2.converters import MarianConverter  # noqa: E402

from tests.interop.ctranslate2_models import (  # noqa: E402
    engine,
    largest_difference,
    our_scores,
    our_search,
    some_texts,
    their_scores,
    their_search,
)
from tests.interop.marian_models import (  # noqa: E402
    LETTERS,
    PRE_NORM,
    SETTINGS,
    TOKENS,
    arrays_of,
    write_marian,
    write_model,
    yaml_of,
)


def converted(directory, arrays, settings, vocabularies):
    """The same model in CTranslate2.

    Its converter knows another formula of positions, but takes a table. Marian's epsilon is 1e-6.
    """
    position = np.arange(64)[:, None] * np.exp(-np.log(1e4) / 11 * np.arange(12))
    table = np.concatenate([np.sin(position), np.cos(position)], axis=1).astype("float32")
    write_model(directory / "with_positions.npz", {**SETTINGS, **settings}, arrays, Wpos=table)
    paths = [str(directory / name) for name in vocabularies]
    converter = MarianConverter(str(directory / "with_positions.npz"), paths)
    converter.convert(str(directory / "converted"))
    path = directory / "converted/config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**config, "layer_norm_epsilon": 1e-6}), encoding="utf-8")
    return engine(directory / "converted")


MODELS = {
    "post-norm, all tied": ({}, "all"),
    "pre-norm, all tied": (PRE_NORM, "all"),
    "post-norm, output tied": ({}, "output"),
    "pre-norm, untied": (PRE_NORM, "none"),
    "untied, the other way round": ({"transformer-ffn-activation": "relu"}, "transposed"),
    "norm of embeddings": ({"transformer-postprocess-emb": "nd"}, "all"),
}


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.slow if "all tied" in name else ()) for name in MODELS],
)
def test_it_computes_what_ctranslate2_makes_of_the_files(name, tmp_path):
    settings, tying = MODELS[name]
    vocabularies, files = [TOKENS] * 2, ["vocab.yml"] * 2
    if tying not in ("all",):
        vocabularies = [TOKENS, ["<unk>", *LETTERS, "</s>"]]
        files = ["source.yml", "target.yml"]
    arrays = write_marian(
        tmp_path, settings, vocabularies=vocabularies, tying=tying, seed=len(name)
    )
    opened = converted(tmp_path, arrays, settings, files)
    differs = "computes in another way from the second token on.* as CTranslate2 does"
    is_first = settings is PRE_NORM
    with pytest.warns(UserWarning, match=differs) if is_first else contextlib.nullcontext():
        translator = load_marian(tmp_path, tokenization="characters", jit_compile=False)
    sources, targets = some_texts(1, LETTERS), some_texts(2, LETTERS)
    theirs = their_scores(opened, sources, targets)
    assert largest_difference(our_scores(translator, sources, targets), theirs) < 1e-4


@pytest.mark.slow
def test_it_finds_what_ctranslate2_finds(tmp_path):
    arrays = write_marian(tmp_path, seed=3)
    translator = load_marian(tmp_path, tokenization="characters", jit_compile=False)
    sources = some_texts(1, LETTERS)
    opened = converted(tmp_path, arrays, {}, ["vocab.yml"] * 2)
    ours, best = our_search(translator, sources)
    theirs, their_best = their_search(opened, sources)
    assert ours == theirs
    assert len(set(ours)) > 1
    np.testing.assert_allclose(best, their_best, atol=2e-5)


def test_positions_are_those_of_marian(tmp_path):
    write_marian(tmp_path)
    found = load_marian(tmp_path, tokenization="characters").model.position
    position = PositionalEncoding.from_config({**found.get_config(), "name": None})
    position.build((None, None, 4))
    # By hand: 3 * 10000 ** (-i / (4 / 2 - 1)) is 3, then 0.0003; sines, then cosines.
    expected = [np.sin(3), np.sin(0.0003), np.cos(3), np.cos(0.0003)]
    np.testing.assert_allclose(position.rows(np.arange(4))[3], expected, atol=1e-6)


def test_the_first_target_is_zero_and_never_written(tmp_path):
    arrays = write_marian(tmp_path)
    translator = load_marian(tmp_path, tokenization="words", jit_compile=False)
    model = translator.model
    table = np.array(model.target_embedding.embedding.embeddings)
    bias = np.array(model.target_embedding.bias)
    # padding, unknown, start, end, then the letters
    np.testing.assert_array_equal(table[[1, 3, 4]], arrays["Wemb"][[1, 0, 2]])
    assert (table[[0, 2]] == 0).all()
    assert (bias[[0, 2]] == -1e9).all()
    np.testing.assert_array_equal(bias[4:], arrays["decoder_ff_logit_out_b"][0, 2:])
    assert model.norm_epsilon == 1e-6
    assert translator.source_eos


@pytest.mark.slow
def test_the_search_is_that_of_decoder_yml(tmp_path):
    def search(**decoder):
        settings = {name.replace("_", "-"): value for name, value in decoder.items()}
        write_marian(tmp_path, decoder=settings)
        return load_marian(tmp_path, tokenization="characters").search

    found = search(normalize=0.6)
    assert isinstance(found, BeamSearch)
    assert (found.beam_size, found.length_penalty, found.length_formula) == (6, 0.6, "power")
    assert found.suppressed_ids == (1,)
    assert not found.early_stopping
    assert search(beam_size=3, allow_unk=True).suppressed_ids == ()
    assert search().length_penalty == 0
    assert isinstance(search(beam_size=1), GreedySearch)
    # Marian's own default, which its training writes into no decoder.yml.
    assert search(word_penalty=0, output_sampling=[0]).max_length_ratio == 3
    assert search(max_length_factor=2.5).max_length_ratio == 2.5
    for decoder, rule in (
        ({"beam_size": 0}, "`beam-size` must be an integer from 1"),
        ({"normalize": "yes"}, "`normalize` must be a number"),
        ({"beam_size": 1001}, "`beam-size` must be an integer from 1 to 1000. .*beam-size=1001"),
        ({"word_penalty": 0.5}, "`word-penalty` must be off; give `search=` .* word-penalty=0.5"),
        ({"output_sampling": True}, "`output-sampling` must be off"),
        ({"output_sampling": ["topk", 10]}, "`output-sampling` must be off"),
        ({"max_length_factor": 0}, "`max-length-factor` must be a number from 0.01"),
    ):
        with pytest.raises(ValueError, match=rule):
            search(**decoder)


def test_a_sentencepiece_vocabulary_is_read_with_its_own_ids(shared, tmp_path):
    sentencepiece = pytest.importorskip("sentencepiece")
    path = shared("data/sentencepiece/marian_style.spm")
    own = SentencePieceTokenizer.from_file(path)
    size = sentencepiece.SentencePieceProcessor(str(path)).vocab_size()
    write_model(tmp_path / "model.npz", SETTINGS, arrays_of(SETTINGS, [size] * 2))
    (tmp_path / "vocab.spm").write_bytes(path.read_bytes())
    decoder = {"models": ["model.npz"], "vocabs": ["vocab.spm"], "beam-size": 2}
    (tmp_path / "decoder.yml").write_text(yaml_of(decoder), encoding="utf-8")
    translator = load_marian(tmp_path, jit_compile=False)
    model, tokenizer = translator.model, translator.source_tokenizer
    # Of the model: `</s>` 0, `<unk>` 1. The first target and padding are one more row.
    assert (model.vocab_size, model.pad_id, model.bos_id, model.eos_id) == (
        *(size + 1, size, size, 0),
    )
    assert translator.target_tokenizer is tokenizer
    texts = ["A man rides a horse.", "</s> <unk> ~"]
    assert tokenizer.tokenize(texts).to_list() == own.tokenize(texts).to_list()
    assert translator.search.suppressed_ids == (1,)
    (score, length), *_ = translator.score(texts[:1], texts[:1])
    assert length == len(tokenizer.tokenize(texts).to_list()[0]) + 1
    assert -1e4 < score < 0


WRONG = [
    ({"type": "s2s"}, "`type` must be 'transformer'. Received: type='s2s'"),
    ({"transformer-decoder-autoreg": "rnn"}, "`transformer-decoder-autoreg` must be"),
    ({"transformer-decoder-autoreg": "average-attention"}, "'average-attention'"),
    ({"transformer-depth-scaling": True}, "`transformer-depth-scaling` must be False"),
    ({"transformer-postprocess": "dhn"}, "`transformer-postprocess` must be 'an' or 'a'"),
    ({"transformer-preprocess": "n"}, "`transformer-postprocess` must be 'a' where"),
    ({"transformer-postprocess-top": "n"}, "`transformer-postprocess-top` must be '' where"),
    ({"transformer-ffn-activation": "gelu"}, "`transformer-ffn-activation` must be one of"),
    ({"transformer-tied-layers": [1, 1]}, "`transformer-tied-layers` must be"),
    ({"transformer-train-position-embeddings": True}, "train-position-embeddings` must be False"),
    ({"transformer-ffn-depth": 3}, "`transformer-ffn-depth` must be 2"),
    ({"lemma-dim-emb": 64}, "`lemma-dim-emb` must be 0"),
    ({"enc-depth": 10**6}, "must have arrays for each of 1000001 layers"),
    ({"enc-depth": "two"}, "`enc-depth` must be an integer from 1 .* Received: enc-depth='two'"),
    ({"right-left": True}, "`right-left` must be False. Received: right-left=True"),
    ({"transformer-heads": 5}, "width that 5 heads divide"),
]


@pytest.mark.parametrize(("settings", "message"), WRONG)
def test_an_option_that_ours_does_not_have_is_refused_by_name(settings, message, tmp_path):
    write_marian(tmp_path)
    arrays = dict(np.load(tmp_path / "model.npz"))
    arrays.pop("special:model.yml")
    write_model(tmp_path / "model.npz", {**SETTINGS, **settings}, arrays)
    with pytest.raises(ValueError, match=message) as caught:
        load_marian(tmp_path, tokenization="characters")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda arrays: arrays.pop("encoder_l2_self_Wq"), "must have 'encoder_l2_self_Wq'"),
        (lambda arrays: arrays.pop("Wemb"), "must hold Wemb or encoder_Wemb"),
        (
            lambda arrays: arrays.update(decoder_l1_rnn_W=np.zeros((2, 2))),
            "must not have 'decoder_l1_rnn_W'",
        ),
        (
            lambda arrays: arrays.update(encoder_l1_ffn_W1=np.zeros((24, 33), "float32")),
            r"encoder_l1_ffn_W1 must have the shape \(24, 34\). Received: \(24, 33\)",
        ),
        (
            lambda arrays: arrays.update(Wemb=np.zeros((8, 24), "float32")),
            "ids must be below the 8 rows of Wemb. Received: 8",
        ),
        (lambda arrays: arrays.update(Wemb=np.zeros(9, "float32")), "Wemb must be"),
    ],
)
def test_wrong_arrays_are_named(change, message, tmp_path):
    arrays = write_marian(tmp_path)
    change(arrays)
    write_model(tmp_path / "model.npz", SETTINGS, arrays)
    with pytest.raises(ValueError, match=message) as caught:
        load_marian(tmp_path, tokenization="characters")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("decoder", "message"),
    [
        ({"models": ["../model.npz"]}, "a file must be named without a path"),
        ({"models": ["/etc/passwd"]}, "must hold 'passwd', which decoder.yml names with a path"),
        ({"models": ["/data/../model.npz"]}, "a file must be named without a path"),
        ({"models": ["/data/.."]}, "a file must be named without a path"),
        ({"models": ["data/"]}, "must hold '', which decoder.yml names with a path"),
        ({"vocabs": ["vocab.yml", "../vocab.yml"]}, "a file must be named without a path"),
        ({"models": ["a.npz", "b.npz"]}, "`models` must list 1 files"),
        ({"models": []}, "`models` must list 1 files"),
        ({"vocabs": ["vocab.fsv"]}, "`path` must be a file"),
    ],
)
def test_files_are_those_beside(decoder, message, tmp_path):
    write_marian(tmp_path, decoder=decoder)
    with pytest.raises(ValueError, match=message):
        load_marian(tmp_path, tokenization="characters")


def test_a_folder_of_a_training_is_read_by_the_names_in_its_paths(tmp_path):
    write_marian(tmp_path, decoder={"beam-size": 4})
    expected = read_weights(load_marian(tmp_path, tokenization="characters").model)
    best = "model.npz.best-bleu.npz"
    (tmp_path / "model.npz").rename(tmp_path / best)
    paths = {"models": [f"/home/me/run/{best}"], "vocabs": 2 * ["run/data/vocab.yml"]}
    text = yaml_of({**paths, "beam-size": 5, "relative-paths": False})
    (tmp_path / f"{best}.decoder.yml").write_text(text, encoding="utf-8")
    (tmp_path / "decoder.yml").unlink()
    assert find_system(tmp_path) == "marian"
    for path in (tmp_path, tmp_path / f"{best}.decoder.yml"):
        found = load_marian(path, tokenization="characters")
        assert found.search.beam_size == 5
        weights = read_weights(found.model)
        assert all((weights[name] == values).all() for name, values in expected.items())
    last = tmp_path / "model.npz.decoder.yml"
    shutil.copy(tmp_path / f"{best}.decoder.yml", last)
    with pytest.raises(ValueError, match=r"or a single \*\.decoder\.yml; give the path of one, or"):
        load_marian(tmp_path, tokenization="characters")
    assert load_marian(last, tokenization="characters").search.beam_size == 5
    assert find_system(last) == "marian"
    import_model(last, tmp_path / "run", tokenization="characters")
    assert (tmp_path / "run" / "model.keras").exists()
    (tmp_path / "vocab.yml").unlink()
    with pytest.raises(ValueError, match="must hold 'vocab.yml', which .* a path; copy it there"):
        load_marian(last, tokenization="characters")


def test_a_factored_vocabulary_is_refused(tmp_path):
    write_marian(tmp_path, decoder={"vocabs": ["vocab.fsv"]})
    (tmp_path / "vocab.fsv").touch()
    with pytest.raises(ValueError, match="factored vocabularies are not read"):
        load_marian(tmp_path, tokenization="characters")


@pytest.mark.parametrize("name", ["decoder.yml", "vocab.yml", "other.spm", "source.spm"])
def test_a_file_of_10_gb_takes_no_memory(name, tmp_path):
    write_marian(tmp_path)
    if name == "other.spm":  # as a vocabulary
        decoder = {"models": ["model.npz"], "vocabs": [name]}
        (tmp_path / "decoder.yml").write_text(yaml_of(decoder), encoding="utf-8")
    with open(tmp_path / name, "ab") as file:
        file.truncate(10 * 2**30)  # zeros that take no place on the disk
    with pytest.raises(ValueError, match=f"{name}: must have at most .* Received: 10737418240"):
        load_marian(tmp_path)


def test_tags_are_tokens_of_the_vocabulary(tmp_path):
    write_marian(tmp_path)
    for options in ({"tags": ["a", "<2de>"]}, {"tags": ["a"], "tokenization": "characters"}):
        with pytest.raises(ValueError, match=r"`tags` must be tokens .* Received: \['(<2de>|a)'\]"):
            load_marian(tmp_path, source_tokenizer=__file__, target_tokenizer=__file__, **options)


def test_without_a_model_it_says_what_must_be_there(tmp_path):
    with pytest.raises(ValueError, match="must hold decoder.yml or model.npz"):
        load_marian(tmp_path)
    write_marian(tmp_path)
    (tmp_path / "decoder.yml").unlink()
    search = load_marian(tmp_path, tokenization="characters").search
    assert (search.beam_size, search.length_penalty, search.max_length_ratio) == (12, 0, 3)
    (tmp_path / "vocab.yml").unlink()
    with pytest.raises(ValueError, match="must hold vocab.spm or vocab.yml"):
        load_marian(tmp_path)


def test_names_are_those_of_marian():
    name = convert_name("encoder/layer_4/attention/attention_output/bias", False)
    assert name == "encoder_l5_self_bo"
    assert convert_name("decoder/layer_0/cross_attention_residual/norm/beta", True) == (
        "decoder_l1_context_Wo_ln_bias_pre"
    )
    assert convert_name("decoder/final_norm/gamma", True) == "decoder_top_ln_scale"
