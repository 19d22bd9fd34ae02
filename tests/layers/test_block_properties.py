"""What layers and stacks promise for any shape, mask and options, drawn by hypothesis."""

import keras
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from keras import ops

from keras_transformer.layers import (
    ALiBi,
    Decoder,
    DecoderLayer,
    Encoder,
    EncoderLayer,
    RelativePositionBias,
    RotaryPositionalEncoding,
)
from tests.backends import BACKEND, array, gradients, normal, randomise

CASES = settings(
    # On JAX every new shape is compiled, operation by operation.
    max_examples=3,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
CLASSES = {
    "EncoderLayer": EncoderLayer,
    "Encoder": Encoder,
    "DecoderLayer": DecoderLayer,
    "Decoder": Decoder,
}
POSITIONS = [lambda: None, RotaryPositionalEncoding, ALiBi, RelativePositionBias]
LENGTHS = st.sampled_from([1, 5, 11]) if BACKEND == "jax" else st.integers(1, 11)
MEMORY_WIDTH = 5


@pytest.fixture(autouse=True, scope="module")
def short_blocks():
    """Local windows are cut into blocks of 4, so that short rows have several."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("keras_transformer.layers.attention.SMALLEST_BLOCK", 4)
        yield


@st.composite
def cases(draw, kinds=tuple(CLASSES)):
    """What `Made` is made of; layers are made outside, since Keras draws random seeds."""
    kind = draw(st.sampled_from(kinds))
    num_key_value_heads = draw(st.integers(1, 2))
    arguments = dict(
        num_heads=num_key_value_heads * draw(st.integers(1, 2)),
        d_ff=draw(st.integers(1, 7)),
        norm_first=draw(st.booleans()),
        activation=draw(st.sampled_from(["relu", "gelu", "swiglu", "geglu"])),
        rms_norm=draw(st.booleans()),
        num_key_value_heads=num_key_value_heads,
        window=draw(st.sampled_from([None, 0, 1, 4])),
        attention_dropout=draw(st.sampled_from([0.0, 0.5])),
    )
    if kind in ("Encoder", "Decoder"):
        arguments["num_layers"] = draw(st.integers(1, 2))
    batch = draw(st.integers(1, 3))
    shapes = (batch, draw(LENGTHS)), (batch, draw(LENGTHS))
    return dict(
        kind=kind,
        arguments=arguments,
        position=draw(st.sampled_from(POSITIONS)),
        key_dim=2 * draw(st.integers(1, 2)),
        seed=draw(st.integers(0, 2**16)),
        shapes=shapes,
        lengths=[
            draw(st.lists(st.integers(0, length), min_size=batch, max_size=batch))
            for _, length in shapes
        ],
        reads_memory="Decoder" in kind and draw(st.booleans()),
        masked_pairs=draw(st.booleans()),
    )


class Made:
    """A layer with weights, its inputs (hidden and perhaps memory), and their masks."""

    def __init__(self, case):
        random = np.random.default_rng(case["seed"])
        arguments = case["arguments"]
        self.layer_class = CLASSES[case["kind"]]
        self.layer = self.layer_class(**arguments, position=case["position"]())
        self.window, self.depth = arguments["window"], arguments.get("num_layers", 1)
        self.causal = "Decoder" in case["kind"]
        widths = [arguments["num_heads"] * case["key_dim"], MEMORY_WIDTH][
            : 1 + case["reads_memory"]
        ]
        self.inputs, self.real = [], []
        for shape, width, lengths in zip(case["shapes"], widths, case["lengths"], strict=False):
            self.inputs.append(random.normal(size=(*shape, width)).astype("float32"))
            self.real.append(np.arange(shape[1])[None] < np.array(lengths)[:, None])
        length = case["shapes"][0][1]
        self.pairs = [
            random.random((shape[0], length, shape[1])) < (0.7 if case["masked_pairs"] else 2)
            for shape, _ in zip(case["shapes"], widths, strict=False)
        ]
        self.masked_pairs = case["masked_pairs"]
        self.layer.build(*(x.shape for x in self.inputs))
        randomise(self.layer, case["seed"], scale=0.7)

    def run(self, inputs, real=None, pairs=None, layer=None):
        names = ("padding_mask", "memory_padding_mask")
        real, pairs = self.real if real is None else real, self.pairs if pairs is None else pairs
        masks = dict(zip(names, real, strict=False))
        if self.masked_pairs:
            names = ("attention_mask", "memory_attention_mask")
            masks |= dict(zip(names, pairs, strict=False))
        return (layer or self.layer)(*inputs, **masks)

    def visible(self):
        """Which position may attend to which of each input: (batch, query, key)."""
        length = self.inputs[0].shape[1]
        distance = np.subtract.outer(np.arange(length), np.arange(length))
        near = np.ones_like(distance, bool)
        if self.causal:
            near &= distance >= 0
        if self.window is not None:
            near &= np.abs(distance) <= self.window
        sees = [pairs & real[:, None] for pairs, real in zip(self.pairs, self.real, strict=True)]
        return [sees[0] & near, *sees[1:]]


@CASES
@given(cases())
def test_padding_and_neighbours_change_nothing(case):
    made = Made(case)
    whole = array(made.run(made.inputs))
    assert np.isfinite(whole).all()
    for row in range(len(whole)):
        lengths = [max(int(real[row].sum()), 1) for real in made.real]
        if not made.real[0][row].any():
            continue
        cut = [x[row : row + 1, :n] for x, n in zip(made.inputs, lengths, strict=True)]
        real = [mask[row : row + 1, :n] for mask, n in zip(made.real, lengths, strict=True)]
        pairs = [
            mask[row : row + 1, : lengths[0], :n]
            for mask, n in zip(made.pairs, lengths, strict=True)
        ]
        alone = array(made.run(cut, real, pairs))
        np.testing.assert_allclose(whole[row, : lengths[0]], alone[0], atol=2e-5, rtol=1e-5)


@CASES
@given(cases(), st.sampled_from([np.nan, np.inf]))
def test_nan_hidden_by_any_mask_reaches_exactly_those_who_see_it(case, bad):
    made = Made(case)
    expected = array(made.run(made.inputs))
    random = np.random.default_rng(case["seed"])
    spoilt = [random.random(real.shape) < 0.15 for real in made.real]
    inputs = [
        np.where(at[..., None], np.float32(bad), x)
        for at, x in zip(spoilt, made.inputs, strict=True)
    ]
    output = array(made.run(inputs))
    sees = made.visible()
    reached = spoilt[0] & made.real[0]
    for _ in range(made.depth):
        reached = reached | (sees[0] & reached[:, None]).any(axis=-1)
        if len(sees) == 2:
            reached = reached | (sees[1] & spoilt[1][:, None]).any(axis=-1)
    reached, untouched = reached & made.real[0], ~reached & made.real[0]
    assert not np.isfinite(output[reached]).all(axis=-1).any()
    np.testing.assert_allclose(output[untouched], expected[untouched], atol=2e-5, rtol=1e-5)


@CASES
@given(cases(kinds=("DecoderLayer", "Decoder")))
def test_a_decoders_output_has_no_gradient_from_what_follows(case):
    made = Made(case)
    made.real = [np.ones_like(real) for real in made.real]
    query = made.inputs[0].shape[1] // 2
    weigh = ops.convert_to_tensor(normal(0, made.inputs[0].shape[-1]))

    def loss(*inputs):
        # A normalisation's outputs have a constant sum, so each of them weighs differently.
        return ops.sum(made.run(inputs)[:, query] * weigh)

    by_input, by_weight = gradients(loss, made.inputs, made.layer)
    assert all(np.isfinite(gradient).all() for gradient in by_input + by_weight)
    assert (by_input[0][:, query + 1 :] == 0).all()
    if made.window is not None:
        assert (by_input[0][:, : max(query - made.depth * made.window, 0)] == 0).all()


@CASES
@given(cases())
def test_gradients_are_finite_and_zero_at_padding_with_nan_there(case):
    made = Made(case)
    inputs = [
        np.where(real[..., None], x, np.float32(np.nan))
        for x, real in zip(made.inputs, made.real, strict=True)
    ]

    weigh = ops.convert_to_tensor(made.real[0][..., None].astype("float32"))

    def loss(*inputs):
        return ops.sum(ops.square(made.run(inputs)) * weigh)

    by_input, by_weight = gradients(loss, inputs, made.layer)
    assert all(np.isfinite(gradient).all() for gradient in by_input + by_weight)
    for gradient, real in zip(by_input, made.real, strict=True):
        assert (gradient[~real] == 0).all()


@pytest.mark.slow
@CASES
@given(cases())
def test_configuration_and_weights_rebuild_it_and_symbols_have_its_shape(case):
    made = Made(case)
    expected = made.run(made.inputs)
    again = made.layer_class.from_config(made.layer.get_config())
    again.build(*(x.shape for x in made.inputs))
    again.set_weights(made.layer.get_weights())
    assert again.get_config() == made.layer.get_config()
    assert (array(made.run(made.inputs, layer=again)) == array(expected)).all()
    symbols = [keras.Input(x.shape[1:], len(x)) for x in made.inputs]
    symbolic = made.layer(*symbols)
    assert tuple(symbolic.shape) == tuple(expected.shape)
    assert keras.backend.standardize_dtype(expected.dtype) == symbolic.dtype
    shapes = [x.shape for x in made.inputs]
    assert made.layer.compute_output_shape(*shapes) == tuple(expected.shape)
    if case["kind"] in ("Encoder", "Decoder"):
        states = made.layer.inspect(*made.inputs).hidden_states
        symbols = made.layer.inspect(*symbols).hidden_states
        assert [tuple(x.shape) for x in states] == [tuple(x.shape) for x in symbols]
        assert len(states) == made.depth
