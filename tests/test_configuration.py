"""Every public class: rebuilt from its configuration, and clear about a bad argument."""

import inspect
import json
import re

import keras
import pytest

import keras_transformer
from keras_transformer import (
    ALiBi,
    BeamSearch,
    Decoder,
    DecoderLayer,
    Dropout,
    Encoder,
    EncoderLayer,
    FeedForward,
    FusedAdam,
    GreedySearch,
    LearnedPositionalEncoding,
    MaskedAccuracy,
    MaskedCrossentropy,
    MultiHeadAttention,
    PaddingRatio,
    Perplexity,
    PositionalEncoding,
    RecurrentSeq2Seq,
    RelativePositionBias,
    RotaryPositionalEncoding,
    Sampling,
    SimilarityAttention,
    TokenCount,
    TokenEmbedding,
    Transformer,
    UpdateSchedule,
    WarmupSchedule,
)

STACK = {
    "num_layers": 2,
    "num_heads": 3,
    "d_ff": 13,
    "dropout": 0.25,
    "norm_first": True,
    "attention_dropout": 0.125,
    "feed_forward_dropout": 0.375,
    "rms_norm": True,
    "norm_epsilon": 0.125,
    "num_key_value_heads": 1,
    "window": 4,
    "remat": True,
}
LAYER = {name: value for name, value in STACK.items() if name not in ("num_layers", "remat")}
SEARCH = {
    "min_length": 2,
    "min_length_ratio": 0.5,
    "max_length_ratio": 1.5,
    "repetition_penalty": 1.25,
    "no_repeat_ngram_size": 3,
    "suppressed_ids": [7],
    "allowed_ids": [5, 6],
    "return_alignments": True,
    "renormalize": True,
}
# No argument has its default value, so that one left out of the configuration is noticed.
ARGUMENTS = {
    ALiBi: {"name": "falling_off"},
    BeamSearch: {
        **SEARCH,
        "beam_size": 6,
        "length_penalty": 1.5,
        "num_hypotheses": 5,
        "coverage_penalty": 0.25,
        "num_groups": 3,
        "diversity_penalty": 0.75,
        "early_stopping": True,
        "length_formula": "power",
    },
    Decoder: {**STACK, "activation": "gelu"},
    DecoderLayer: {**LAYER, "activation": "gelu"},
    Dropout: {"rate": 0.25, "noise_shape": (1, 2), "seed": 7},
    Encoder: {**STACK, "activation": "gelu"},
    EncoderLayer: {**LAYER, "activation": "gelu"},
    FeedForward: {"d_ff": 13, "activation": "gelu", "dropout": 0.25},
    FusedAdam: {
        "learning_rate": 0.25,
        "beta_1": 0.5,
        "beta_2": 0.75,
        "epsilon": 0.125,
        "amsgrad": True,
        "weight_decay": 0.25,
        "clipnorm": 2.0,
        "use_ema": True,
        "ema_momentum": 0.5,
        "ema_overwrite_frequency": 3,
        "loss_scale_factor": 4.0,
        "gradient_accumulation_steps": 5,
        "name": "adam_once",
    },
    GreedySearch: SEARCH,
    MaskedAccuracy: {"pad_id": 5, "name": "accuracy"},
    MaskedCrossentropy: {
        "label_smoothing": 0.25,
        "pad_id": 5,
        "name": "crossentropy",
        "reduction": "sum",
    },
    MultiHeadAttention: {
        "num_heads": 3,
        "key_dim": 5,
        "value_dim": 7,
        "dropout": 0.25,
        "use_bias": False,
        "output_shape": [11, 2],
        "attention_axes": [1],
        "flash_attention": False,
        "kernel_initializer": "he_normal",
        "bias_initializer": "ones",
        "kernel_regularizer": "l2",
        "bias_regularizer": "l1",
        "activity_regularizer": "l1",
        "kernel_constraint": "non_neg",
        "bias_constraint": "unit_norm",
        "use_gate": True,
        "seed": 7,
        "num_key_value_heads": 1,
        "window": 4,
    },
    LearnedPositionalEncoding: {"max_length": 23, "combine": "concat", "dropout": 0.25},
    PaddingRatio: {"pad_id": 5, "name": "padding"},
    Perplexity: {"pad_id": 5, "name": "ppl"},
    PositionalEncoding: {
        "max_length": 23,
        "combine": "concat",
        "dropout": 0.25,
        "layout": "halves",
        "frequencies": "tensor2tensor",
        "first_position": 2,
    },
    RecurrentSeq2Seq: {
        "source_vocab_size": 17,
        "target_vocab_size": 19,
        "num_layers": 2,
        "d_model": 14,
        "cell": "gru",
        "attention": "cosine",
        "dropout": 0.25,
        "scheduled_sampling": 0.125,
        "pad_id": 4,
        "bos_id": 5,
        "eos_id": 6,
    },
    RelativePositionBias: {"num_buckets": 8, "max_distance": 23},
    RotaryPositionalEncoding: {
        "base": 500.0,
        "scaling": "yarn",
        "factor": 2.0,
        "original_max_length": 64,
        "beta_fast": 16.0,
        "beta_slow": 2.0,
    },
    Sampling: {
        **SEARCH,
        "temperature": 0.5,
        "top_k": 4,
        "top_p": 0.75,
        "min_p": 0.125,
        "num_samples": 3,
        "seed": 9,
    },
    SimilarityAttention: {"similarity": "cosine"},
    TokenCount: {"pad_id": 5, "name": "count"},
    TokenEmbedding: {
        "vocab_size": 17,
        "d_model": 5,
        "pad_id": 5,
        "scale": False,
        "tie_output": False,
        "logits_bias": True,
    },
    Transformer: {
        **STACK,
        "activation": "gelu",
        "source_vocab_size": 17,
        "target_vocab_size": 19,
        "d_model": 15,
        "pad_id": 4,
        "bos_id": 5,
        "eos_id": 6,
        "num_encoder_layers": 3,
        "num_decoder_layers": 1,
        "num_encoder_heads": 5,
        "num_decoder_heads": 1,
        "encoder_d_ff": 11,
        "decoder_d_ff": 9,
        "scale_embeddings": False,
        "tie_output": False,
        "logits_bias": True,
        "embedding_norm": True,
        "embedding_dropout": 0.5,
    },
    UpdateSchedule: {
        "schedule": keras.saving.serialize_keras_object(WarmupSchedule(16, 7)),
        "batches_per_update": 3,
    },
    WarmupSchedule: {"d_model": 16, "warmup_steps": 7, "scale": 0.5},
}
# Arguments that become objects of Keras, and how their configurations spell some names.
KERAS_OBJECTS = {
    f"{part}_{kind}"
    for part in ("kernel", "bias", "activity")
    for kind in ("initializer", "regularizer", "constraint")
}
KERAS_NAMES = {"he_normal": "henormal", "non_neg": "nonneg", "unit_norm": "unitnorm"}
by_name = pytest.mark.parametrize("public_class", ARGUMENTS, ids=lambda value: value.__name__)


def test_every_public_class_is_here():
    public = {getattr(keras_transformer, name) for name in keras_transformer.__all__}
    classes = {
        value for value in public if isinstance(value, type) and not issubclass(value, tuple)
    }
    assert classes == set(ARGUMENTS)


def plain_form(value):
    """A value as a configuration would spell it."""
    if isinstance(value, keras.optimizers.schedules.LearningRateSchedule):
        return keras.saving.serialize_keras_object(value)
    return list(value) if isinstance(value, tuple) else value


@by_name
def test_the_configuration_holds_every_argument_and_rebuilds_the_object(public_class):
    arguments = ARGUMENTS[public_class]
    original = public_class(**arguments)
    config = original.get_config()
    plain = {name: value for name, value in arguments.items() if name not in KERAS_OBJECTS}
    assert {name: config[name] for name in plain} == plain
    for name in set(arguments) & KERAS_OBJECTS:
        assert KERAS_NAMES.get(arguments[name], arguments[name]) in str(config[name]).lower()
    again = public_class.from_config(json.loads(json.dumps(config)))
    assert type(again) is public_class
    assert again.get_config() == config
    for name, value in arguments.items():
        if name in plain and hasattr(again, name) and name != "activation":
            found = getattr(again, name)
            assert plain_form(found) == plain_form(value)


# Two names of Keras for what an attribute says under one.
OTHER_NAMES = {"output_shape": "output_width", "output_dim": "output_width"}
OTHER_NAMES |= {"sliding_window": "window"}


@by_name
def test_every_argument_is_an_attribute_of_its_name(public_class):
    made = public_class(**ARGUMENTS[public_class])
    kinds = inspect.signature(public_class).parameters.values()
    names = [p.name for p in kinds if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    assert [n for n in names if not hasattr(made, OTHER_NAMES.get(n, n))] == []


@by_name
def test_keras_finds_the_class_by_its_registered_name(public_class):
    original = public_class(**ARGUMENTS[public_class])
    serialized = keras.saving.serialize_keras_object(original)
    assert serialized["registered_name"] == f"keras_transformer>{public_class.__name__}"
    again = keras.saving.deserialize_keras_object(json.loads(json.dumps(serialized)))
    assert type(again) is public_class
    assert again.get_config() == original.get_config()


@by_name
def test_a_misspelt_argument_is_refused(public_class):
    with pytest.raises((TypeError, ValueError), match="misspelt|takes no arguments"):
        public_class(**ARGUMENTS[public_class], misspelt=1)


POSITIVE, ID, RATE = "a positive integer", "an integer of at least 0", "a number in [0, 1)"
BOOLEAN = "True or False"
BAD_VALUES = {
    POSITIVE: [0, -1, 2.0, "3", True],
    ID: [-1, 0.5, "0", False],
    RATE: [-0.1, 1.0, 1, "0.1", True, float("nan")],
    BOOLEAN: [1, 0, "yes", None],
    "a finite number above 0": [0, -1.0, float("inf"), float("nan"), "1", True],
    "a finite number of at least 0": [float("inf"), float("nan"), "1", None, -0.5],
    "a number from 0 to 10": [10.5, float("nan"), "1", None, -0.5],
    "a number from 0 to 1000": [1001, float("nan"), "1", None, -0.5],
    "one of 'add', 'concat'": ["multiply", None, 0],
}
RULES = [
    *(
        (public_class, name, POSITIVE)
        for public_class, names in {
            BeamSearch: ["beam_size"],
            Decoder: ["num_layers", "num_heads", "d_ff"],
            DecoderLayer: ["num_heads", "d_ff"],
            Encoder: ["num_layers", "num_heads", "d_ff"],
            EncoderLayer: ["num_heads", "d_ff"],
            FeedForward: ["d_ff"],
            LearnedPositionalEncoding: ["max_length"],
            MultiHeadAttention: ["num_heads", "key_dim", "value_dim", "num_key_value_heads"],
            PositionalEncoding: ["max_length"],
            RelativePositionBias: ["num_buckets", "max_distance"],
            TokenEmbedding: ["vocab_size", "d_model"],
            Transformer: ["num_layers", "num_heads", "d_ff", "d_model", "source_vocab_size"],
            WarmupSchedule: ["d_model", "warmup_steps"],
        }.items()
        for name in names
    ),
    *(
        (public_class, "dropout", RATE)
        for public_class, arguments in ARGUMENTS.items()
        if "dropout" in arguments
    ),
    *(
        (public_class, "norm_first", BOOLEAN)
        for public_class, arguments in ARGUMENTS.items()
        if "norm_first" in arguments
    ),
    *(
        (public_class, "pad_id", ID)
        for public_class, arguments in ARGUMENTS.items()
        if "pad_id" in arguments
    ),
    (Transformer, "bos_id", ID),
    (Transformer, "eos_id", ID),
    (MultiHeadAttention, "use_bias", BOOLEAN),
    (MaskedCrossentropy, "label_smoothing", RATE),
    (WarmupSchedule, "scale", "a finite number above 0"),
    (BeamSearch, "length_penalty", "a number from 0 to 10"),
    (BeamSearch, "coverage_penalty", "a number from 0 to 1000"),
    (Sampling, "temperature", "a finite number above 0"),
    (Sampling, "min_p", RATE),
    (PositionalEncoding, "combine", "one of 'add', 'concat'"),
]
CASES = [
    pytest.param(public_class, name, rule, value, id=f"{public_class.__name__} {name}={value!r}")
    for public_class, name, rule in RULES
    for value in BAD_VALUES[rule]
]


@pytest.mark.parametrize(("public_class", "name", "rule", "value"), CASES)
def test_a_bad_argument_is_refused_with_the_rule_and_the_value(public_class, name, rule, value):
    message = f"`{name}` must be {rule}. Received: {name}={value!r}"
    with pytest.raises(ValueError, match=re.escape(message)):
        public_class(**{**ARGUMENTS[public_class], name: value})


@pytest.mark.parametrize(
    "sizes",
    [
        {},
        {"source_vocab_size": 17},
        {"target_vocab_size": 17},
        {"vocab_size": 17, "source_vocab_size": 17},
        {"vocab_size": 17, "source_vocab_size": 17, "target_vocab_size": 19},
    ],
)
def test_one_vocabulary_or_two_and_nothing_else(sizes):
    with pytest.raises(ValueError, match="give either `vocab_size`, or both") as caught:
        Transformer(**sizes)
    for name in ("vocab_size", "source_vocab_size", "target_vocab_size"):
        assert f"{name}={sizes.get(name)!r}" in str(caught.value)


def test_heads_that_do_not_divide_the_width_are_refused_when_the_model_is_built():
    model = Transformer(vocab_size=17, d_model=15, num_heads=4)
    with pytest.raises(ValueError, match="`num_heads` must divide .*num_heads=4, d_model=15"):
        model.build()


@pytest.mark.parametrize("public_class", [EncoderLayer, FeedForward, Transformer])
def test_an_unknown_activation_is_refused_by_name(public_class):
    with pytest.raises(ValueError, match="no_such"):
        public_class(**{**ARGUMENTS[public_class], "activation": "no_such"})
