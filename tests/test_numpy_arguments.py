"""Every public name takes NumPy's numbers, booleans and strings for its arguments.

Integers come from `ids.max() + 1`, rates from `np.linspace`, flags from comparisons. A class stores
Python's own, so that its configuration is JSON.
"""

import json

import keras
import numpy as np
import pytest

from keras_transformer import (
    BeamSearch,
    EncoderLayer,
    FusedAdam,
    LearnedPositionalEncoding,
    MultiHeadAttention,
    RecurrentSeq2Seq,
    TokenEmbedding,
    Transformer,
    WarmupSchedule,
)
from tests.constructor_arguments import ARGUMENTS, KERAS_OBJECTS
from tests.numpy_arguments import in_numpy, parameters, strange
from tests.public_modules import MODULES, load, public_objects

IDS = [[5, 6, 7], [8, 9]]
TEXTS = ["one two three", "two three four"] * 20
# Two names for one thing cannot be given together.
ALTERNATIVES = [
    (FusedAdam, {"clipvalue": 0.5}, {"clipnorm"}),
    (FusedAdam, {"global_clipnorm": 0.5}, {"clipnorm"}),
    (MultiHeadAttention, {"output_dim": 11}, {"output_shape"}),
    (MultiHeadAttention, {"sliding_window": 4}, {"window"}),
    (RecurrentSeq2Seq, {"vocab_size": 17}, {"source_vocab_size", "target_vocab_size"}),
    (Transformer, {"vocab_size": 17}, {"source_vocab_size", "target_vocab_size"}),
    (Transformer, {"r_drop": 0.5}, set()),
]
# Objects of Keras or of this package, which have arguments of their own, and what is only saved.
OBJECTS = {"position", "dtype", "trainable_inside"}


def without_objects(arguments):
    return {name: value for name, value in arguments.items() if name not in KERAS_OBJECTS}


def constructions():
    yield from ((kind, without_objects(arguments)) for kind, arguments in ARGUMENTS.items())
    for kind, added, left_out in ALTERNATIVES:
        arguments = without_objects(ARGUMENTS[kind])
        yield kind, {name: arguments[name] for name in arguments if name not in left_out} | added


CONSTRUCTIONS = list(constructions())


@pytest.mark.parametrize(
    ("kind", "arguments"), CONSTRUCTIONS, ids=[kind.__name__ for kind, _ in CONSTRUCTIONS]
)
def test_a_class_stores_python_numbers(kind, arguments):
    made, usual = kind(**in_numpy(arguments)), kind(**arguments)
    stored = {name: getattr(made, name) for name in arguments if hasattr(made, name)}
    config, expected = made.get_config(), usual.get_config()
    again = kind.from_config(json.loads(json.dumps(config)))
    assert again.get_config() == config
    for values in (stored, config, expected):
        values.pop("name", None)  # Keras's own
    assert strange(stored) == strange(config) == []
    assert config == expected


def test_every_argument_of_a_class_is_tried():
    missing = {}
    for kind in ARGUMENTS:
        given = {name for other, arguments in CONSTRUCTIONS for name in arguments if other is kind}
        missing[kind.__name__] = parameters(kind) - given - OBJECTS - KERAS_OBJECTS
    assert {name: left for name, left in missing.items() if left} == {}


@pytest.mark.parametrize("kind", [EncoderLayer, TokenEmbedding, Transformer])
def test_a_flag_of_numpy_freezes_a_layer(kind):
    layer = kind(**without_objects(ARGUMENTS[kind]), trainable=np.bool_(False))
    assert json.loads(json.dumps(layer.get_config()))["trainable"] is False


def model_of(position=None):
    sizes = dict(num_layers=1, d_model=8, num_heads=2, d_ff=16)
    return Transformer(**in_numpy({"vocab_size": 11, **sizes}), position=position)


@pytest.mark.parametrize("kind", [Transformer, RecurrentSeq2Seq])
def test_a_model_of_numpy_numbers_is_saved_and_loaded(kind, tmp_path):
    sizes = {"vocab_size": int(np.max(IDS[0])) + 9, "num_layers": 1, "d_model": 8}
    more = {"num_heads": 2, "d_ff": 16} if kind is Transformer else {}
    model = kind(**in_numpy({**sizes, **more}))
    model.build()
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    assert again.get_config() == model.get_config()


def test_a_positions_length_of_numpy_is_that_of_the_model(tmp_path):
    model = model_of(LearnedPositionalEncoding(np.int64(9)))
    model.build()
    model.save(tmp_path / "model.keras")
    assert keras.saving.load_model(tmp_path / "model.keras").source_positions.max_length == 9


def test_a_search_with_a_model_takes_numpy_numbers():
    model, source_ids = model_of(), np.array([[5, 6, 3], [7, 3, 0]])
    options = dict(max_length=4, length_limits=[2, 4], length_penalty=0.5)
    search = BeamSearch(2, max_length_ratio=2.0, suppressed_ids=[4], min_length=1)
    numpy_search = BeamSearch(
        np.int64(2),
        max_length_ratio=np.float32(2),
        suppressed_ids=np.array([4]),
        min_length=np.array(1),
    )
    usual = model.generate(source_ids, search, **options)
    found = model.generate(source_ids, numpy_search, **in_numpy(options))
    for name in ("ids", "scores", "lengths"):
        np.testing.assert_array_equal(
            np.array(getattr(found, name)), np.array(getattr(usual, name))
        )


def pass_through(ids):
    return keras.ops.one_hot(keras.ops.convert_to_tensor(ids), 11)


PAIRS = dict(
    source_ids=IDS, target_ids=IDS, pad_id=1, bos_id=2, eos_id=4, tokens_per_batch=16, shuffle=True,
    seed=3, max_length=9, max_shapes=1, first_epoch=2, batches_per_update=1, verbose=False,
    rows_multiple=2, process=(1, 2), batches_per_epoch=3,
)  # fmt: skip
TRANSLATION = dict(
    source_texts=TEXTS, target_texts=TEXTS, source_tokenizer=None, target_tokenizer=None,
    tokens_per_batch=64, max_length=40, shuffle=True, seed=3, first_epoch=1, max_shapes=2,
    prefetch=1, verbose=False, batches_per_update=2, subword_dropout=0.0, batches_per_epoch=4,
    rows_multiple=2, source_tag=None, target_tag=None, source_eos=True,
)  # fmt: skip
FOLDING = dict(normalization="nfkc", lowercase=True)
# How each other public name is called: with all its arguments.
CALLS = {
    "batches.PairDataset": PAIRS,
    "callbacks.AverageCheckpoints": dict(directory="run", last=3, at_end=False),
    "callbacks.TrainingLog": dict(every=3, verbose=False),
    "callbacks.TranslationQuality": dict(
        translate=list, sources=["a"], references=["a"], metrics=["exact_match"], every=3,
        filepath="best.keras", average=None, lowercase=True, tokenize="13a", verbose=False,
        at_end=False,
    ),
    "checks.check_causality": dict(
        model=pass_through, inputs=np.array([[5, 6, 7]]), pad_id=0, tolerance=0.5
    ),
    "checks.check_padding_invariance": dict(
        model=pass_through, inputs=np.array([[5, 6, 0], [7, 8, 9]]), pad_id=0, extra=2,
        tolerance=0.5, side="left",
    ),
    "decoding.Shortlist": dict(
        target_ids=[[1, 2]], probabilities=[[0.5, 0.25]], frequent_ids=[0], vocab_size=3, size=2
    ),
    "masking.causal_mask": dict(length=3, key_length=4),
    "masking.local_mask": dict(length=3, window=1, key_length=4),
    "masking.padding_mask": dict(ids=np.array([[5, 1]]), pad_id=1),
    "masking.prefix_mask": dict(prefix_lengths=np.array([2]), length=3),
    "plots.schedule": dict(schedules={"paper": WarmupSchedule(16, 4)}, num_steps=9),
    "text.CharacterTokenizer.train": dict(texts=TEXTS, vocab_size=9, **FOLDING),
    "text.SentencePieceTokenizer.train": dict(
        texts=TEXTS, vocab_size=25, model_type="bpe", character_coverage=1.0, split_digits=True,
        shrink_to_fit=True, lossless=False, byte_fallback=False, input_sentence_size=100,
        user_defined_symbols=["<x>"], **FOLDING,
    ),
    "text.SymbolTokenizer": dict(symbols=["a", "b"], reverse=True, **FOLDING),
    "text.SymbolTokenizer.train": dict(texts=TEXTS, vocab_size=6, reverse=True, **FOLDING),
    "text.WordPieceTokenizer.train": dict(
        texts=TEXTS, vocab_size=30, lower_case=True, **FOLDING
    ),
    "text.translation_dataset": TRANSLATION,
}  # fmt: skip
# The public names without a number or a flag among their arguments.
WITHOUT_NUMBERS = {
    "batches.CorpusReport",
    "batches.PreparedCorpus",
    "callbacks.ExactResume",
    "callbacks.MeasuredTensorBoard",  # Keras's own arguments
    "decoding.DecodeResult",
    "distribution.TransformerParallel",  # tests/test_distribution.py
    "distribution.transformer_layout_map",
    "decoding.Search",  # all its arguments are those of a search
    "interop.load_ctranslate2",
    "interop.load_hugging_face",
    "interop.load_marian",
    "interop.resize_vocabulary",
    "interop.save_ctranslate2",
    "interop.save_hugging_face",
    "lora.enable_lora",  # tests/test_lora.py
    "lora.merge_lora",
    "masking.combine_masks",
    "masking.segment_mask",
    "masking.segment_positions",
    "models.ScoreResult",
    "process_group.join_processes",  # tests/test_process_group.py
    "process_group.own_process",
    "process_group.whole_copy",
    "models.SequenceToSequence",
    "plots.HeadStatistics",
    "plots.alignment",
    "plots.attention_heads",
    "plots.dot_product_by_distance",
    "plots.head_focus",
    "plots.head_statistics",
    "plots.learning_curve",
    "plots.learning_curves",
    "plots.positional_encoding",
    "recipes.Score",
    "recipes.Settings",  # tests/recipes/test_settings.py
    "recipes.distill",  # tests/recipes/test_distillation.py
    "recipes.evaluate",  # tests/recipes/test_evaluation.py
    "recipes.find_export",
    "recipes.load_translator",
    "recipes.train",
    "serving.AlignedPair",
    "serving.Alignment",
    "serving.Hypothesis",
    "serving.PairScore",
    "serving.describe_export",
    "serving.export",  # tests/serving/test_translator.py
    "serving.export_litert",
    "serving.export_onnx",
    "serving.load",
    "serving.ShardReport",
    "serving.Translator",  # tests/serving/test_translator.py
    "serving.translate_shards",  # tests/serving/test_shards.py
    "text.CharacterTokenizer",
    "text.SentencePieceTokenizer",
    "text.WordPieceTokenizer",
    "text.load_tokenizer",
    "text.prepare_corpus",  # tests/text/test_corpus.py
}


def found_by(name):
    module, *names = name.split(".")
    value = load(f"keras_transformer.{module}")
    for each in names:
        value = getattr(value, each)
    return value


def content(value):
    """What two results are compared by."""
    if hasattr(value, "to_bytes"):  # a tokenizer
        return value.to_bytes()
    if isinstance(value, keras.utils.PyDataset):
        return keras.tree.map_structure(lambda x: x.tolist(), [value[n] for n in range(len(value))])
    if isinstance(value, keras.callbacks.Callback):
        attributes = {n: v for n, v in vars(value).items() if type(v) in (str, int, float, bool)}
        assert strange(attributes) == []
        return attributes
    if hasattr(value, "element_spec"):  # a tf.data.Dataset
        return keras.tree.map_structure(lambda x: x.numpy().tolist(), list(value))
    return np.asarray(value).tolist() if hasattr(value, "shape") else type(value).__name__


# Their libraries learn for seconds; the other tokenizers stay in the default run.
LONG = {"text.SentencePieceTokenizer.train", "text.WordPieceTokenizer.train"}


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.slow if n in LONG else ()) for n in CALLS]
)
def test_a_call_with_numpy_numbers_gives_what_it_gives_with_python_numbers(name, tmp_path):
    function, arguments = found_by(name), dict(CALLS[name])
    numbers = {n: v for n, v in arguments.items() if n not in ("source_ids", "target_ids")}
    if name == "text.translation_dataset":
        tokenizer = found_by("text.CharacterTokenizer").train(TEXTS)
        arguments["source_tokenizer"] = numbers["source_tokenizer"] = tokenizer
    assert parameters(function) == set(arguments)
    for key in ("directory", "filepath"):
        if key in arguments:
            arguments[key] = numbers[key] = tmp_path / arguments[key]
    assert content(function(**{**arguments, **in_numpy(numbers)})) == content(function(**arguments))


@pytest.mark.parametrize("module", MODULES[1:])
def test_every_public_name_is_tried(module):
    known = {f"{kind.__name__}" for kind in ARGUMENTS}
    for name in public_objects(load(module)):
        full = f"{module.removeprefix('keras_transformer.')}.{name}"
        assert name in known or full in CALLS or full in WITHOUT_NUMBERS, full


def test_what_is_not_plain_is_found():
    assert strange(in_numpy({"a": [1, {"b": 0.5}], "c": (True, "x")})) == [
        ".a[] is int64",
        ".a[].b is float32",
        ".c[] is bool",
        ".c[] is str_",
    ]
    assert strange({"a": [1, {"b": 0.5}], "c": (True, "x", None)}) == []
