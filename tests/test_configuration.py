"""Every public class: rebuilt from its configuration, and clear about a bad argument."""

import inspect
import json
import re

import keras
import pytest

import keras_transformer
from keras_transformer import (
    BeamSearch,
    Decoder,
    DecoderLayer,
    Encoder,
    EncoderLayer,
    FeedForward,
    LearnedPositionalEncoding,
    MaskedCrossentropy,
    MultiHeadAttention,
    PositionalEncoding,
    RelativePositionBias,
    Sampling,
    TokenEmbedding,
    Transformer,
    WarmupSchedule,
)
from tests.constructor_arguments import ARGUMENTS, KERAS_OBJECTS

# How configurations spell the names of some.
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


# Arguments whose names are taken: Keras's summary prints `output_shape` as the shape of the result,
# and Keras adds the loss of `activity_regularizer` once more. The others say the same in two ways.
UNDER_OTHER_NAMES = {
    "output_shape": lambda layer: layer.output_width,
    "output_dim": lambda layer: layer.output_width,
    "sliding_window": lambda layer: layer.window,
    "activity_regularizer": lambda layer: layer.projection_activity_regularizer,
}


def stored_form(name, value):
    """What an attribute holds of an argument: objects by their configuration, lists as tuples."""
    if name == "activation":
        return keras.activations.get(value)
    if name in KERAS_OBJECTS:
        getters = getattr(keras, f"{name.split('_')[-1]}s")
        return getters.get(value).get_config(), type(getters.get(value))
    if isinstance(value, keras.optimizers.schedules.LearningRateSchedule):
        return keras.saving.serialize_keras_object(value)
    return tuple(value) if isinstance(value, list) else value


def attribute(made, name):
    """The attribute of an object that holds the argument of this name."""
    other = UNDER_OTHER_NAMES.get(name)
    return getattr(made, name) if other is None else other(made)


@by_name
def test_every_argument_is_stored_under_its_own_name(public_class):
    made, given = public_class(**ARGUMENTS[public_class]), ARGUMENTS[public_class]
    kinds = inspect.signature(public_class).parameters.values()
    names = [p.name for p in kinds if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    for name in {*names, *given} - UNDER_OTHER_NAMES.keys() - given.keys():
        getattr(made, name)  # one that is not given here is there, too
    wrong = {
        name: attribute(made, name)
        for name, value in given.items()
        if stored_form(name, attribute(made, name)) != stored_form(name, value)
    }
    assert wrong == {}


def test_an_argument_under_another_name_is_found(monkeypatch):
    class Halved(WarmupSchedule):
        def __init__(self, d_model, warmup_steps=4000, scale=1.0):
            super().__init__(d_model, warmup_steps // 2, scale)

    monkeypatch.setitem(ARGUMENTS, Halved, ARGUMENTS[WarmupSchedule])
    with pytest.raises(AssertionError, match="warmup_steps"):
        test_every_argument_is_stored_under_its_own_name(Halved)


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
