"""`trainable` of every layer and model: given, set, saved, and that of a layer inside."""

import functools
import json
import re
from typing import NamedTuple

import keras
import numpy as np
import pytest
from keras import ops

from keras_transformer import RecurrentSeq2Seq, Transformer, layers
from keras_transformer.layers import (
    Encoder,
    EncoderLayer,
    LearnedPositionalEncoding,
    MultiHeadAttention,
    RelativePositionBias,
    SimilarityAttention,
    TokenEmbedding,
)
from tests.backends import array, normal
from tests.layers.blocks import BLOCKS, inputs_of
from tests.selection import spread

IDS = np.array([[5, 7, 3, 0], [9, 3, 0, 0]], "int32")
SIZES = {"num_layers": 1, "num_heads": 2, "d_ff": 6}


class Case(NamedTuple):
    """A layer: how to make it, the arrays it is called with, and how to call it."""

    make: object
    inputs: object
    call: object


def case_of_block(name):
    block = BLOCKS[name]
    return Case(block.make, inputs_of, lambda layer, *inputs: block.explicit(layer, *inputs))


def model_of(model_class, **sizes):
    make = lambda **more: model_class(vocab_size=11, d_model=4, **{**sizes, **more})  # noqa: E731
    return Case(make, lambda: (IDS, IDS), lambda layer, *inputs: layer(inputs))


def attended(layer, query, memory):
    return layer(query, memory)[0]


# One of each layer that has weights, with the options that add some.
NAMES = [
    "FeedForward gated",
    "MultiHeadAttention grouped, gated",
    "EncoderLayer",
    "DecoderLayer pre-norm",
    "Encoder relative",
    "Decoder grouped, window, relative",
    "LearnedPositionalEncoding",
]
WITHOUT_WEIGHTS = {"ALiBi", "Dropout", "PositionalEncoding", "RotaryPositionalEncoding"}
CASES = {
    **{name: case_of_block(name) for name in NAMES},
    "TokenEmbedding": Case(
        lambda **more: TokenEmbedding(11, 4, **more),
        lambda: (IDS,),
        lambda layer, ids: layer.logits(layer(ids)),
    ),
    "SimilarityAttention": Case(
        SimilarityAttention, lambda: (normal(0, 2, 3, 4), normal(1, 2, 5, 4)), attended
    ),
    "RelativePositionBias": Case(
        RelativePositionBias, lambda: (normal(0, 2, 3, 5, 5),), lambda layer, scores: layer(scores)
    ),
    "Transformer": model_of(
        Transformer, position=LearnedPositionalEncoding(9), norm_first=True, **SIZES
    ),
    "RecurrentSeq2Seq": model_of(RecurrentSeq2Seq, num_layers=1),
}
WITHOUT_LAYERS = {"LearnedPositionalEncoding", "RelativePositionBias", "SimilarityAttention"}
# They make layers as others do that the default run trains and saves.
LIKE_OTHERS = {
    "FeedForward gated",
    "EncoderLayer",
    "DecoderLayer pre-norm",
    "Decoder grouped, window, relative",
    "RecurrentSeq2Seq",
}


def seldom(names, slow):
    """Parameters of the names; those of `slow` leave the default run."""
    return [pytest.param(name, marks=pytest.mark.slow if name in slow else ()) for name in names]


EACH = seldom(CASES, LIKE_OTHERS | {"Transformer"})
# What is frozen inside a Transformer is trained and saved in half precision below.
WITH_LAYERS = seldom(
    (name for name in CASES if name not in WITHOUT_LAYERS), LIKE_OTHERS | {"Transformer"}
)


def inside(layer):
    """Gives every layer inside that has weights, at all depths."""
    return [part for part in layer._flatten_layers(include_self=False) if part.weights]


def built(name, **arguments):
    case = CASES[name]
    layer = case.make(**arguments)
    case.call(layer, *map(ops.convert_to_tensor, case.inputs()))
    return layer


@functools.cache
def number_of_weights(name):
    return len(built(name).trainable_weights)


def flags(layer):
    return [weight.trainable for weight in layer.weights]


def trainer_of(name, layer):
    """Gives a model around `layer` that is trained in one step, and the batch."""
    case = CASES[name]
    examples = case.inputs()
    inputs = [keras.Input(x.shape[1:], dtype=x.dtype.name) for x in examples]
    head = keras.layers.Dense(1, name="head")
    model = keras.Model(inputs, head(case.call(layer, *inputs)))
    compile_eagerly(model)
    return model, list(examples)


def compile_eagerly(model, loss="mse"):
    """Compiles for one step, which takes less time than tracing it; the optimizer has variables."""
    model.compile(keras.optimizers.SGD(0.1, momentum=0.9), loss, run_eagerly=True)


def step(model, examples):
    model.train_on_batch(examples, np.ones_like(array(model(examples))))


def test_every_public_layer_is_a_case():
    tested = {name.split()[0] for name in CASES} - {"Transformer", "RecurrentSeq2Seq"}
    assert tested | WITHOUT_WEIGHTS == set(layers.__all__)


@pytest.mark.parametrize(
    ("name", "when"), spread(CASES, ["constructor", "before build", "after build"])
)
def test_a_frozen_layer_has_no_trainable_weight_until_it_is_set_back(name, when):
    count = number_of_weights(name)
    case = CASES[name]
    layer = case.make(**({"trainable": False} if when == "constructor" else {}))
    if when == "before build":
        layer.trainable = False
    case.call(layer, *map(ops.convert_to_tensor, case.inputs()))
    if when == "after build":
        layer.trainable = False
    assert len(layer.weights) == count > 0
    assert not layer.trainable_weights
    # A model around the layer asks the weights themselves.
    assert not any(flags(layer))
    assert not any(part.trainable for part in layer._flatten_layers())
    layer.trainable = True
    assert len(layer.trainable_weights) == count
    assert all(part.trainable for part in layer._flatten_layers())


@pytest.mark.parametrize("name", EACH)
def test_a_frozen_layer_does_not_move_in_training_and_stays_frozen_in_a_file(name, tmp_path):
    layer = CASES[name].make(trainable=False)
    model, examples = trainer_of(name, layer)
    before = [array(weight) for weight in layer.weights]
    head = array(model.get_layer("head").kernel)
    step(model, examples)
    assert all((array(w) == old).all() for w, old in zip(layer.weights, before, strict=True))
    assert (array(model.get_layer("head").kernel) != head).any()
    assert len(model.trainable_weights) == 2

    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")  # a warning would be an error
    assert len(loaded.trainable_weights) == 2
    assert_same_optimizer(loaded, model)


@pytest.mark.parametrize("name", WITH_LAYERS)
def test_a_layer_frozen_inside_stays_frozen_in_files_configurations_and_clones(name, tmp_path):
    layer = CASES[name].make()
    model, examples = trainer_of(name, layer)
    for part in inside(layer)[2::3] or inside(layer):
        part.trainable = False
    assert 0 < sum(flags(layer)) < len(layer.weights) or name == "TokenEmbedding"
    compile_eagerly(model)
    before = [array(weight) for weight in layer.weights]
    step(model, examples)
    moved = [(array(w) != old).any() for w, old in zip(layer.weights, before, strict=True)]
    assert not any(np.array(moved) & ~np.array(flags(layer)))
    assert any(moved) == any(flags(layer))

    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert flags(loaded) == flags(model)
    assert_same_optimizer(loaded, model)
    assert flags(keras.models.clone_model(model)) == flags(model)

    config = json.loads(json.dumps(layer.get_config()))
    again = type(layer).from_config(config)
    assert again.get_config() == config
    CASES[name].call(again, *map(ops.convert_to_tensor, CASES[name].inputs()))
    assert flags(again) == flags(layer)
    found, wanted = (
        [part.trainable for part in x._flatten_layers() if part.weights] for x in (again, layer)
    )
    assert found == wanted


def assert_same_optimizer(found, wanted):
    pairs = zip(found.optimizer.variables, wanted.optimizer.variables, strict=True)
    assert all((array(a) == array(b)).all() for a, b in pairs)
    assert int(found.optimizer.iterations) == 1


@pytest.mark.parametrize("name", EACH)
def test_weights_alone_are_loaded_into_a_layer_whatever_is_frozen(name, tmp_path):
    layer, other = CASES[name].make(), CASES[name].make()
    model, _ = trainer_of(name, layer)
    other_model, _ = trainer_of(name, other)
    for part in inside(other)[::2] or [other]:
        part.trainable = False
    wanted = flags(other)
    model.save_weights(tmp_path / "model.weights.h5")
    other_model.load_weights(tmp_path / "model.weights.h5")
    assert flags(other) == wanted
    assert not all(wanted)
    pairs = zip(layer.weights, other.weights, strict=True)
    assert all((array(a) == array(b)).all() for a, b in pairs)


@pytest.mark.parametrize(("name", "trainable"), spread(CASES, [True, False]))
def test_nothing_is_saved_of_layers_inside_that_are_as_the_layer_around_them(name, trainable):
    unbuilt = CASES[name].make(trainable=trainable)
    for layer in (unbuilt, built(name, trainable=trainable)):
        config = layer.get_config()
        assert "trainable_inside" not in json.dumps(config)
        assert config["trainable"] == trainable


def stack():
    stack = Encoder(2, 2, 6, position=RelativePositionBias())
    stack.build((None, None, 4))
    return stack


def test_a_layer_trained_inside_a_frozen_stack_survives_as_well():
    layer = stack()
    layer.trainable = False
    layer.layers[1].trainable = True  # and the bias, which is that of all layers
    again = Encoder.from_config(json.loads(json.dumps(layer.get_config())))
    again.build((None, None, 4))
    assert flags(again) == flags(layer)
    assert [part.trainable for part in (again, *again.layers, again.position)] == [
        False,
        False,
        True,
        True,
    ]


def test_a_shared_position_frozen_alone_is_frozen_for_all_and_nothing_else_is():
    layer = stack()
    layer.position.trainable = False
    again = Encoder.from_config(layer.get_config())
    again.build((None, None, 4))
    assert len(again.trainable_weights) == len(layer.weights) - 1
    assert not again.layers[1].attention.position.trainable


@pytest.mark.parametrize("side", ["source", "target"])
def test_the_positions_of_one_side_of_a_model_are_frozen_alone(side):
    model = built("Transformer")
    getattr(model, f"{side}_positions").trainable = False
    again = Transformer.from_config(json.loads(json.dumps(model.get_config())))
    again.build()
    assert flags(again) == flags(model)
    assert flags(again).count(False) == 1


def test_a_position_given_frozen_is_frozen_in_the_layer_and_in_its_copies():
    layer = EncoderLayer(2, 6, position=LearnedPositionalEncoding(9, trainable=False))
    again = EncoderLayer.from_config(layer.get_config())
    for part in (layer, again):
        part.build((None, None, 4))
        assert len(part.trainable_weights) == len(part.weights) - 1


def test_a_copy_that_is_not_built_yet_can_be_set_back():
    layer = stack()
    layer.layers[0].attention.query_dense.trainable = False
    again = Encoder.from_config(layer.get_config())
    again.trainable = True
    again.build((None, None, 4))
    assert all(flags(again))
    model = built("Transformer")
    model.decoder.layers[0].cross_attention.trainable = False
    again = Transformer.from_config(model.get_config())
    again.decoder.trainable = True
    again.build()
    assert all(flags(again))


@pytest.mark.parametrize("trainable", [True, False])
def test_the_value_that_a_layer_has_is_set_for_the_layers_inside_all_the_same(trainable):
    # Keras on TensorFlow leaves such an assignment out.
    layer = stack()
    layer.trainable = trainable
    layer.layers[0].attention.trainable = not trainable
    layer.trainable = trainable
    assert set(flags(layer)) == {trainable}


def test_a_frozen_encoder_stays_frozen_in_a_model_of_half_precision(tmp_path):
    model = Transformer(vocab_size=11, d_model=4, dtype="mixed_float16", **SIZES)
    model.encoder.trainable = False
    compile_eagerly(model, keras.losses.SparseCategoricalCrossentropy(True))
    model.build()
    before = [array(weight) for weight in model.encoder.weights]
    model.train_on_batch((IDS, IDS), IDS)
    pairs = zip(model.encoder.weights, before, strict=True)
    assert all((array(weight) == old).all() for weight, old in pairs)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert flags(loaded) == flags(model)
    pairs = zip(loaded.optimizer.variables, model.optimizer.variables, strict=True)
    assert all((array(a) == array(b)).all() for a, b in pairs)


@pytest.mark.parametrize("values", [["layer_0"], {"layer_0": 0}, {0: True}, "layer_0"])
def test_values_of_another_form_are_refused(values):
    message = f"`trainable_inside` must be .* Received: trainable_inside={re.escape(repr(values))}"
    with pytest.raises(ValueError, match=message):
        Encoder(2, 2, 6, trainable_inside=values)


def test_what_a_layer_trains_with_lora_or_in_8_bits_is_what_keras_says():
    attention = MultiHeadAttention(2, 3)
    attention.build((None, None, 4), (None, None, 4))
    attention.query_dense.enable_lora(2)
    kernel, *rest = attention.query_dense.trainable_weights
    names = {weight.name for weight in (kernel, *rest)}
    assert names == {"bias", "lora_kernel_a", "lora_kernel_b"}
    assert "trainable_inside" not in attention.get_config()
    frozen = EncoderLayer(2, 6, trainable=False)
    frozen.build((None, None, 4))
    frozen.feed_forward.inner.quantize("int8")
    assert not frozen.trainable_weights
    assert "trainable_inside" not in frozen.get_config()


def test_a_keras_twin_of_an_attention_with_a_frozen_projection_has_its_weights():
    attention = MultiHeadAttention(2, 3)
    attention.build((None, None, 4), (None, None, 4))
    attention.key_dense.trainable = False
    twin = attention.to_keras()
    pairs = zip(twin.get_weights(), attention.get_weights(), strict=True)
    assert all((a == b).all() for a, b in pairs)


class Headed(Encoder):
    """An encoder with layers that Keras names, in attributes, a list and a dictionary."""

    def build(self, input_shape):
        self._first = keras.layers.Dense(3)
        self.second = keras.layers.Dense(3)
        self.listed = [keras.layers.Dense(3), keras.layers.Dense(3)]
        self.named = {"one": keras.layers.Dense(3), "other": keras.layers.Dense(3)}
        for layer in self.heads():
            layer.build(input_shape)
        super().build(input_shape)

    def heads(self):
        return [self._first, self.second, *self.listed, *self.named.values()]


@pytest.mark.parametrize("frozen", seldom(range(6), {1, 2, 4}))  # 0, a list and a dictionary
def test_a_freeze_stays_at_its_layer_whatever_names_keras_counts_up_to(frozen):
    encoder = Headed(1, 2, 16)
    encoder.build((None, None, 4))
    encoder.heads()[frozen].trainable = False
    keras.layers.Dense(3)  # takes a name, as other models of a process do
    again = Headed.from_config(json.loads(json.dumps(encoder.get_config())))
    again.build((None, None, 4))
    assert [head.trainable for head in again.heads()] == [n != frozen for n in range(6)]


def test_a_path_of_no_layer_is_reported_when_all_layers_are_there():
    encoder = Encoder(1, 2, 16, trainable_inside={"layers.7/attention": False})
    with pytest.warns(UserWarning, match="layers.7/attention"):
        encoder.build((None, None, 4))
