"""What `save_ctranslate2` writes is the same model to CTranslate2, and to us again."""

import json
import os
import sys

import numpy as np
import pytest

from keras_transformer import BeamSearch, GreedySearch, Sampling, Transformer
from keras_transformer.interop import load_ctranslate2, save_ctranslate2
from keras_transformer.interop.ctranslate2_file import CTranslate2File
from keras_transformer.interop.ctranslate2_form import PROJECTION
from keras_transformer.interop.weights import read_weights
from keras_transformer.layers import (
    ALiBi,
    LearnedPositionalEncoding,
    PositionalEncoding,
    RelativePositionBias,
    RotaryPositionalEncoding,
)
from keras_transformer.serving import Translator
from keras_transformer.text import CharacterTokenizer, SentencePieceTokenizer, SymbolTokenizer

pytest.importorskip("ctranslate2")

from tests.interop.ctranslate2_models import (  # noqa: E402
    SOURCE,
    TARGET,
    engine,
    largest_difference,
    our_scores,
    our_search,
    our_translator,
    some_texts,
    their_scores,
    their_search,
)
from tests.interop.weight_files import ctranslate2_of  # noqa: E402

NEVER = ["<pad>", "<s>"]  # what our search never writes
UNEQUAL = {
    "num_encoder_layers": 3,
    "num_decoder_layers": 1,
    "num_encoder_heads": 2,
    "num_decoder_heads": 3,
    "encoder_d_ff": 17,
    "decoder_d_ff": 19,
    "norm_epsilon": 1e-3,
}
MODELS = {
    "post-norm": {},
    "pre-norm, separate, untied": {
        "norm_first": True,
        "joint": False,
        "tie_output": False,
        "logits_bias": True,
    },
    "gated, rms": {"norm_first": True, "rms_norm": True, "activation": "swiglu"},
    "geglu, unequal sides": {"activation": "geglu", "joint": False, **UNEQUAL},
    "shared heads, rotary": {
        "num_key_value_heads": 2,
        "position": RotaryPositionalEncoding(base=500.0, scaling="linear", factor=3.0),
        "activation": "gelu",
    },
    "one key head": {"num_key_value_heads": 1, "activation": "silu", "logits_bias": True},
    "norm of embeddings, unscaled": {
        "embedding_norm": True,
        "scale_embeddings": False,
        "activation": "tanh",
        "position": LearnedPositionalEncoding(37),
    },
    "positions of OpenNMT-tf": {
        "position": PositionalEncoding(
            layout="halves", frequencies="tensor2tensor", first_position=1
        ),
        "activation": "sigmoid",
    },
    "positions of T5": {
        "position": RelativePositionBias(num_buckets=8, max_distance=12),
        "norm_first": True,
        "joint": False,
        "num_decoder_heads": 3,
    },
}
SIZES = {"num_layers", "num_heads", "d_ff", "name"}  # of both sides, which their own replace


QUICK = {  # of the default run: those with the most options
    "scored": [
        "gated, rms",
        "geglu, unequal sides",
        "shared heads, rotary",
        "norm of embeddings, unscaled",
        "positions of T5",
    ],
    "searched": ["pre-norm, separate, untied"],
}


def models(kind):
    """All models, those that are not quick marked as slow."""
    return [
        pytest.param(name, marks=() if name in QUICK[kind] else pytest.mark.slow) for name in MODELS
    ]


@pytest.mark.parametrize("name", models("scored"))
def test_ctranslate2_computes_the_same_and_the_way_back_gives_equal_bits(name, tmp_path):
    translator = our_translator(4, **MODELS[name])
    save_ctranslate2(translator, tmp_path / "made")
    sources = some_texts(1)
    targets = some_texts(2, SOURCE if MODELS[name].get("joint", True) else TARGET)
    theirs = their_scores(engine(tmp_path / "made"), sources, targets)
    assert largest_difference(our_scores(translator, sources, targets), theirs) < 5e-5
    again = load_ctranslate2(tmp_path / "made", tokenization="characters", jit_compile=False)
    weights, before = read_weights(again.model), read_weights(translator.model)
    assert weights.keys() == before.keys()
    for weight, values in before.items():
        np.testing.assert_array_equal(weights[weight], values)
    configs = again.model.get_config(), translator.model.get_config()
    assert {n: v for n, v in configs[0].items() if n not in SIZES} == {
        n: v for n, v in configs[1].items() if n not in SIZES
    }
    for side in ("source_tokenizer", "target_tokenizer"):
        assert getattr(again, side).to_bytes() == getattr(translator, side).to_bytes()


def test_layers_with_positions_of_their_own_are_refused(tmp_path):
    translator = our_translator(4, **MODELS["positions of T5"])
    save_ctranslate2(translator, tmp_path / "made")
    path = tmp_path / "made" / "model.bin"
    file = CTranslate2File(path)
    arrays = {name: file.read(name) for name in file}
    other = "decoder/layer_1/self_attention/relative_attention_bias"
    path.write_bytes(ctranslate2_of({**arrays, other: arrays[other] + 1}))
    with pytest.raises(ValueError, match=f"{other} and its distance must be those of layer 0"):
        load_ctranslate2(tmp_path / "made", tokenization="characters")
    far = "encoder/layer_0/self_attention/relative_attention_max_distance"
    path.write_bytes(ctranslate2_of({**arrays, far: np.int32(2**31 - 1)}))
    with pytest.raises(
        ValueError, match="relative_attention_max_distance` must be an integer from"
    ):
        load_ctranslate2(tmp_path / "made", tokenization="characters")


@pytest.mark.parametrize("name", models("searched"))
def test_ctranslate2_finds_the_same(name, tmp_path):
    translator = our_translator(4, **MODELS[name])
    save_ctranslate2(translator, tmp_path / "made")
    sources = some_texts(1)
    ours, best = our_search(translator, sources)
    theirs, their_best = their_search(engine(tmp_path / "made"), sources, NEVER)
    assert ours == theirs
    assert len(set(ours)) > 1
    np.testing.assert_allclose(best, their_best, atol=2e-5)


def test_what_our_search_never_writes_ctranslate2_does_not_write(tmp_path):
    translator = our_translator(4, logits_bias=True)
    model, letters = translator.model, translator.target_tokenizer
    [bias] = [weight for weight in model.weights if weight.name == "logits_bias"]
    wanted = np.array(bias)
    wanted[[model.pad_id, model.bos_id, letters.unk_id, 9]] = 50.0  # as if they were likely
    bias.assign(wanted)
    search = GreedySearch(suppressed_ids=[letters.unk_id], renormalize=True)
    translator = Translator(**{**translator.settings, "search": search})
    for quantization in (None, "float16"):
        save_ctranslate2(translator, tmp_path / f"{quantization}", quantization)
        found, _ = their_search(engine(tmp_path / f"{quantization}"), some_texts(1))
        assert set("".join(found)) == {letters.vocabulary[9]}


@pytest.mark.parametrize(
    ("quantization", "bound"), [("float16", 5e-3), ("bfloat16", 5e-2), ("int16", 5e-2)]
)
def test_weights_are_stored_as_asked(quantization, bound, tmp_path):
    if quantization == "bfloat16":
        pytest.importorskip("torch")  # by which CTranslate2 rounds
    translator = our_translator(3, norm_first=True)
    save_ctranslate2(translator, tmp_path / "made", quantization)
    assert CTranslate2File(tmp_path / "made/model.bin")[PROJECTION].dtype.name == quantization
    sources, targets = some_texts(1), some_texts(2)
    theirs = their_scores(engine(tmp_path / "made"), sources, targets)
    assert largest_difference(our_scores(translator, sources, targets), theirs) < bound


def test_bfloat16_without_torch_is_one_line_and_nothing_written(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    translator = our_translator(3, norm_first=True)
    with pytest.raises(ImportError, match="pip install torch"):
        save_ctranslate2(translator, tmp_path / "made", "bfloat16")
    assert os.listdir(tmp_path) == []


def test_int8_is_within_its_rounding(tmp_path):
    translator = our_translator(3, norm_first=True, dropout=0.0)
    for name in (None, "int8"):
        save_ctranslate2(translator, tmp_path / f"{name}", name)
    sizes = [os.path.getsize(tmp_path / name / "model.bin") for name in ("None", "int8")]
    assert sizes[1] < sizes[0]
    with pytest.warns(UserWarning, match="int8 weights, which become float32"):
        again = load_ctranslate2(tmp_path / "int8", tokenization="characters", jit_compile=False)
    weights, before = read_weights(again.model), read_weights(translator.model)
    rounded = [name for name in before if name.endswith(("kernel", "/embeddings"))]
    for name in before:
        error = np.abs(weights[name] - before[name])
        # A row of theirs has 127 steps from 0 to its largest; half a step is the most.
        most = np.abs(before[name]).max() / 127 / 2 * 1.001 if name in rounded else 0
        assert error.max() <= most
    sources, targets = some_texts(1), some_texts(2)
    exact, from_rounded, theirs = (
        our_scores(translator, sources, targets),
        our_scores(again, sources, targets),
        # In int8 CTranslate2 rounds activations too.
        their_scores(engine(tmp_path / "int8"), sources, targets),
    )
    assert 1e-3 < largest_difference(exact, from_rounded) < 0.3
    assert largest_difference(from_rounded, theirs) < 5e-5


@pytest.mark.slow
def test_sentencepiece_models_lie_beside(tmp_path):
    import ctranslate2
    import sentencepiece

    texts = ["a man rides a horse", "a woman rides a bus", "two dogs run"] * 5
    tokenizer = SentencePieceTokenizer.train(texts, vocab_size=45)
    model = Transformer(tokenizer.vocab_size, num_layers=1, d_model=8, num_heads=2, d_ff=16)
    translator = Translator(model, tokenizer, search=GreedySearch(), jit_compile=False)
    save_ctranslate2(translator, tmp_path / "made")
    assert sorted(os.listdir(tmp_path / "made")) == [
        "config.json", "model.bin", "shared_vocabulary.json", "source.spm", "target.spm",
    ]  # fmt: skip
    pieces = sentencepiece.SentencePieceProcessor(str(tmp_path / "made/source.spm"))
    opened = ctranslate2.Translator(str(tmp_path / "made"), compute_type="float32")
    sources, targets = ["a man runs", "two dogs"], ["a bus", "a horse rides"]
    tokens = [[pieces.encode(text, out_type=str) for text in side] for side in (sources, targets)]
    theirs = [sum(result.log_probs) for result in opened.score_batch(*tokens)]
    ours = [score for score, _ in translator.score(sources, targets)]
    np.testing.assert_allclose(ours, theirs, atol=1e-4)
    again = load_ctranslate2(tmp_path / "made", jit_compile=False)
    assert again.score(sources, targets) == translator.score(sources, targets)
    assert again.source_tokenizer is again.target_tokenizer


@pytest.mark.slow
def test_symbols_and_sources_without_an_end_come_back(tmp_path):
    source, target = SymbolTokenizer(["uː", "t", "l"]), SymbolTokenizer(["A", "<s>", "B"])
    model = Transformer(
        source_vocab_size=source.vocab_size,
        target_vocab_size=target.vocab_size + 2,
        num_layers=1,
        d_model=8,
        num_heads=2,
        d_ff=16,
    )
    options = {"search": GreedySearch(), "jit_compile": False, "source_eos": False}
    translator = Translator(model, source, target, **options)
    save_ctranslate2(translator, tmp_path / "made")
    config = json.loads((tmp_path / "made/config.json").read_text(encoding="utf-8"))
    assert config["add_source_eos"] is False
    listed = json.loads((tmp_path / "made/target_vocabulary.json").read_text(encoding="utf-8"))
    # The text "<s>" is not the start, and two ids have no symbol.
    assert listed == [
        *("<pad>", "<unk>", "<s>", "</s>", "A", "<unused_5>", "B", "<unused_7>", "<unused_8>")
    ]
    again = load_ctranslate2(tmp_path / "made", tokenization="words", jit_compile=False)
    assert again.source_eos is False
    assert again.source_tokenizer.symbols == source.symbols
    assert again.score(["t uː l"], ["A B"]) == translator.score(["t uː l"], ["A B"])


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("window", {"window": 3}),
        ("position", {"position": ALiBi()}),
        (
            "position",
            {
                "position": RotaryPositionalEncoding(
                    scaling="yarn", factor=2.0, original_max_length=32
                )
            },
        ),
        ("activation", {"activation": "elu"}),
    ],
)
def test_a_setting_without_a_home_is_refused_by_name(name, options, tmp_path):
    with pytest.raises(ValueError, match=f"`{name}` must be one that CTranslate2 can hold"):
        save_ctranslate2(our_translator(3, **options), tmp_path / "made")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("name", "tokenizer"),
    [
        ("lowercase", CharacterTokenizer(SOURCE, lowercase=True)),
        ("normalization", CharacterTokenizer(SOURCE, normalization="nfkc")),
        ("reverse", SymbolTokenizer(list(SOURCE), reverse=True)),
    ],
)
def test_a_tokenizer_without_a_home_is_refused_by_name(name, tokenizer, tmp_path):
    with pytest.raises(ValueError, match=f"`target_tokenizer.{name}` must be one"):
        save_ctranslate2(our_translator(3, joint=False, target=tokenizer), tmp_path / "made")
    assert os.listdir(tmp_path) == []


def test_nothing_is_written_over(tmp_path):
    translator = our_translator(3)
    with pytest.raises(ValueError, match="must not exist yet"):
        save_ctranslate2(translator, tmp_path)
    with pytest.raises(ValueError, match="`quantization` must be.*int4"):
        save_ctranslate2(translator, tmp_path / "made", "int4")
    assert os.listdir(tmp_path) == []


def test_without_ctranslate2_the_error_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ctranslate2", None)
    monkeypatch.setitem(sys.modules, "ctranslate2.specs", None)
    with pytest.raises(ImportError, match="pip install ctranslate2"):
        save_ctranslate2(our_translator(3), tmp_path / "made")


def test_what_the_files_have_no_place_for_is_said(tmp_path):
    tokenizer = SentencePieceTokenizer.train(["a dog runs", "a cat sits"] * 9, vocab_size=20)
    tagged = SentencePieceTokenizer(tokenizer.model, tags=["<2de>", "<2fr>"])
    sizes = {"num_layers": 1, "d_model": 8, "num_heads": 2, "d_ff": 12}
    search = GreedySearch(suppressed_ids=[5], renormalize=True)
    tags = {"source_tag": "<2de>", "target_tag": "<2fr>"}
    model = Transformer(tagged.vocab_size, **sizes)
    piece = tagged.vocabulary[5]
    said = (
        r"no place for .* options of a search: begin each source with '<2de>', give "
        rf"target_prefix=\[\['<2fr>'\]\], give suppress_sequences=\[\['{piece}'\]\] when"
    )
    with pytest.warns(UserWarning, match=said):
        save_ctranslate2(Translator(model, tagged, search=search, **tags), tmp_path / "all")
    # In a model with a bias of the logits the file itself forbids them.
    model = Transformer(tagged.vocab_size, logits_bias=True, **sizes)
    search = GreedySearch(suppressed_ids=[5], renormalize=True)
    save_ctranslate2(Translator(model, tagged, search=search), tmp_path / "bias")


def searching(search, **options):
    return Translator(**{**our_translator(3).settings, "search": search, **options})


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"max_length": 9}, "give max_decoding_length=9 when"),
        ({"max_source_length": 2000}, "give max_input_length=2000 when"),
        ({"split_sentences": True}, r"give one sentence at a time \(split_sentences\) when"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_settings_of_a_translator_without_a_place_are_said(options, said, tmp_path):
    with pytest.warns(UserWarning, match=said):
        save_ctranslate2(searching(GreedySearch(), **options), tmp_path / "made")


@pytest.mark.parametrize(
    ("search", "said"),
    [
        (BeamSearch(2, early_stopping=True), "length_formula='power'"),
        (BeamSearch(2), "length_formula='power', early_stopping=True"),
        (BeamSearch(2, 1.0, length_formula="power"), "early_stopping=True"),
        (
            BeamSearch(2, 1.0, length_formula="power", early_stopping="current_length"),
            "early_stopping=True",
        ),
    ],
)
def test_what_a_search_of_theirs_does_otherwise_is_said(search, said, tmp_path):
    with pytest.warns(UserWarning, match=f"CTranslate2 searches with {said}, which this search"):
        save_ctranslate2(searching(search), tmp_path / "made")


def test_nothing_is_said_of_a_search_that_is_theirs(tmp_path):
    save_ctranslate2(searching(BeamSearch(2, 0.0)), tmp_path / "sums")
    save_ctranslate2(searching(BeamSearch(1)), tmp_path / "one")
    forbidding = searching(GreedySearch(suppressed_ids=[5], renormalize=True))
    with pytest.warns(UserWarning, match="give suppress_sequences="):
        save_ctranslate2(forbidding, tmp_path / "shared")


def test_the_probability_of_forbidden_tokens_is_said(tmp_path):
    translator = our_translator(3, logits_bias=True)  # whose file forbids them
    search = GreedySearch(suppressed_ids=[5])
    translator = Translator(**{**translator.settings, "search": search})
    with pytest.warns(UserWarning, match="CTranslate2 searches with renormalize=True, which this"):
        save_ctranslate2(translator, tmp_path / "made")


@pytest.mark.parametrize(
    ("search", "said"),
    [
        (GreedySearch(repetition_penalty=1.5), "give repetition_penalty=1.5 when"),
        (GreedySearch(max_length_ratio=3), "give a max_decoding_length of 3 times the tokens of"),
        (
            BeamSearch(2, 0.0, min_length=5, no_repeat_ngram_size=3),
            "give no_repeat_ngram_size=3, give min_decoding_length=4 when",
        ),
        (Sampling(0.7), "give sampling_temperature=0.7, give sampling_topk=0 when"),
        (Sampling(top_k=5, top_p=0.9), "give sampling_topk=5, give sampling_topp=0.9 when"),
    ],
)
def test_options_of_a_search_are_named_as_a_call_of_theirs_takes_them(search, said, tmp_path):
    with pytest.warns(UserWarning, match=said):
        save_ctranslate2(searching(search), tmp_path / "made")


@pytest.mark.parametrize(
    ("search", "name"),
    [
        (BeamSearch(4, num_groups=2, diversity_penalty=0.5), "search.num_groups"),
        (Sampling(min_p=0.1), "search.min_p"),
        (Sampling(seed=1), "search.seed"),
    ],
)
def test_a_search_that_no_call_of_theirs_has_is_refused_by_name(search, name, tmp_path):
    with pytest.raises(ValueError, match=f"`{name}` must be one that CTranslate2 can hold"):
        save_ctranslate2(searching(search), tmp_path / "made")
    assert os.listdir(tmp_path) == []
