"""Sinusoidal positions: rows by hand, accuracy far out, lengths, and both ways to combine."""

import json
import math
import subprocess
import sys
from itertools import product
from pathlib import Path

import keras
import numpy as np
import pytest
from keras import ops

from keras_transformer.layers import (
    Encoder,
    LearnedPositionalEncoding,
    PositionalEncoding,
    TokenEmbedding,
)
from tests.backends import (
    POLICIES,
    WAYS,
    array,
    compiled,
    gradients,
    normal,
    prepared,
    randomise,
    with_mask,
)
from tests.numpy_reference import positional_encoding
from tests.selection import spread

REPOSITORY = Path(__file__).resolve().parents[2]


def rows(length, d_model, **arguments):
    layer = PositionalEncoding(**arguments)
    return array(layer(np.zeros((1, length, d_model), "float32")))[0]


def test_rows_by_hand():
    # d_model = 4 has two wavelengths: 10000 ** (0 / 4) = 1 and 10000 ** (2 / 4) = 100. Row pos is
    # sin(pos / 1), cos(pos / 1), sin(pos / 100), cos(pos / 100).
    by_hand = [
        [0.0, 1.0, 0.0, 1.0],
        [math.sin(1), math.cos(1), math.sin(0.01), math.cos(0.01)],
        [math.sin(2), math.cos(2), math.sin(0.02), math.cos(0.02)],
    ]
    np.testing.assert_allclose(rows(3, 4), by_hand, atol=1e-7)
    # The same with digits: sin 1 = 0.84147, cos 1 = 0.54030, sin 0.01 = 0.0099998.
    np.testing.assert_allclose(rows(2, 4)[1], [0.84147, 0.54030, 0.0099998, 0.99995], atol=5e-6)


@pytest.mark.parametrize("d_model", [1, 2, 7, 13, 64])
def test_equals_the_formula_for_even_and_odd_widths(d_model):
    np.testing.assert_allclose(rows(11, d_model), positional_encoding(11, d_model), atol=1e-6)


def other_systems_rows(system, length, d_model):
    """The sinusoids of other systems, each as its own source writes them."""
    half = d_model // 2
    paper = 10000 ** -(np.arange(half) * 2 / d_model)
    tensor2tensor = np.exp(np.arange(half) * -(math.log(10000) / (half - 1)))
    frequencies, first = {
        "Hugging Face Marian": (paper, 0),
        "Marian": (tensor2tensor, 0),
        "OpenNMT-tf": (tensor2tensor, 1),
        "fairseq": (tensor2tensor, 2),
    }[system]
    angles = (np.arange(length) + first)[:, None] * frequencies
    return np.concatenate([np.sin(angles), np.cos(angles)], axis=1)


OTHER_SYSTEMS = {
    "Hugging Face Marian": {},
    "Marian": {"frequencies": "tensor2tensor"},
    "OpenNMT-tf": {"frequencies": "tensor2tensor", "first_position": 1},
    "fairseq": {"frequencies": "tensor2tensor", "first_position": 2},
}


@pytest.mark.parametrize("system", OTHER_SYSTEMS)
def test_rows_are_those_of_other_systems(system):
    options = {"layout": "halves", **OTHER_SYSTEMS[system]}
    expected = other_systems_rows(system, 300, 10)
    np.testing.assert_allclose(rows(300, 10, **options), expected, atol=1e-6)
    layer = PositionalEncoding(**options)
    positions = np.array([[0, 7, 299]])
    found = array(layer(np.zeros((1, 3, 10), "float32"), positions=positions))
    np.testing.assert_allclose(found[0], expected[positions[0]], atol=1e-6)
    again = PositionalEncoding.from_config(layer.get_config())
    again.build((None, None, 10))
    assert (array(again.encoding(300)) == rows(300, 10, **options)).all()


def test_sines_of_an_odd_width_are_one_more_than_its_cosines():
    found, paper = rows(9, 7, layout="halves"), positional_encoding(9, 7)
    np.testing.assert_allclose(found, np.hstack([paper[:, 0::2], paper[:, 1::2]]), atol=1e-6)


def test_frequencies_of_tensor2tensor_need_an_even_width():
    with pytest.raises(ValueError, match="even and at least 4.*Received: d_model=7"):
        PositionalEncoding(frequencies="tensor2tensor").build((None, None, 7))


def test_is_exact_at_8192_positions():
    # An angle of 8191 in float32 is off by 2.4e-4 and its sine as much.
    np.testing.assert_allclose(rows(8192, 6), positional_encoding(8192, 6), atol=1e-6, rtol=0)


def test_is_exact_at_8192_positions_of_a_length_known_only_at_run_time():
    layer = PositionalEncoding()
    run = compiled(lambda inputs: layer(inputs), [np.zeros((2, 3, 6), "float32")])
    layer.build((None, None, 6))
    encoded = array(run(np.zeros((1, 8192, 6), "float32")))[0]
    np.testing.assert_allclose(encoded, positional_encoding(8192, 6), atol=1e-6, rtol=0)


@pytest.mark.parametrize("policy", POLICIES)
def test_rows_are_float32_under_every_policy(policy):
    layer = PositionalEncoding(dtype=policy)
    layer.build((None, None, 6))
    encoding = layer.encoding(2048)
    np.testing.assert_allclose(array(encoding), positional_encoding(2048, 6), atol=1e-6, rtol=0)


def test_no_two_of_8192_positions_are_alike():
    encoding = rows(8192, 64)
    assert len(np.unique(encoding, axis=0)) == 8192
    # Neighbours differ by about the angle between them, 1 radian in the fastest pair:
    # 2 * sin(1 / 2) = 0.96.
    apart = np.linalg.norm(encoding[1:] - encoding[:-1], axis=1)
    assert apart.min() > 0.95


def test_half_precision_rounds_the_row_and_not_the_angle():
    layer = PositionalEncoding(dtype="mixed_bfloat16")
    encoded = array(layer(np.zeros((1, 2048, 64), "float32")))[0]
    # bfloat16 has 8 bits: a value of at most 1 is off by at most 2 ** -9.
    np.testing.assert_allclose(encoded, positional_encoding(2048, 64), atol=2**-9 * 1.01)
    assert (np.abs(np.diff(encoded, axis=0)).max(axis=1) > 0.5).all()


def test_add_adds_and_concat_appends():
    inputs = normal(1, 2, 5, 6)
    encoding = np.broadcast_to(positional_encoding(5, 6), inputs.shape)
    added = array(PositionalEncoding()(inputs))
    appended = array(PositionalEncoding(combine="concat")(inputs))
    np.testing.assert_allclose(added, inputs + encoding, atol=1e-6)
    np.testing.assert_allclose(appended, np.concatenate([inputs, encoding], -1), atol=1e-6)


def test_a_position_does_not_depend_on_the_length():
    assert (rows(5, 8) == rows(11, 8)[:5]).all()
    assert (rows(5, 8, max_length=23) == rows(5, 8)).all()


def test_an_input_longer_than_max_length_is_refused_and_one_as_long_is_not():
    assert rows(7, 4, max_length=7).shape == (7, 4)
    with pytest.raises(ValueError, match="length 8, max_length=7"):
        rows(8, 4, max_length=7)


def test_a_max_length_of_1_is_refused_because_one_row_fits_every_input():
    with pytest.raises(ValueError, match="`max_length` must be at least 2. Received: max_length=1"):
        PositionalEncoding(max_length=1)


def test_the_encoding_receives_no_weights():
    layer = PositionalEncoding()
    layer(ops.zeros((1, 2, 4)))
    assert layer.weights == []


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "int64"])
def test_explicit_positions_may_be_integers_of_any_width(dtype):
    positions = np.array([[0, 1, 127, 3]], dtype)
    found = array(PositionalEncoding()(np.zeros((1, 4, 8)), positions=positions))
    np.testing.assert_allclose(found[0], positional_encoding(128, 8)[positions[0]], atol=1e-6)


def test_a_position_that_there_is_not_gives_nan_and_no_other_row():
    inputs = np.zeros((1, 3, 4))
    for layer in (PositionalEncoding(max_length=8), LearnedPositionalEncoding(8)):
        found = array(layer(inputs, positions=np.array([[7, 8, -1]])))
        assert np.isnan(found).any(axis=-1).tolist() == [[False, True, True]]
    found = array(PositionalEncoding()(inputs, positions=np.array([[9000, -1, 128**3]])))
    assert np.isnan(found).any(axis=-1).tolist() == [[False, True, True]]


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize(
    "make", [PositionalEncoding, lambda **o: LearnedPositionalEncoding(4099, **o)]
)
def test_positions_may_be_whole_floats_which_mixed_precision_does_not_round(make, policy):
    layer, inputs = make(dtype=policy), normal(1, 1, 3, 6)
    positions = np.array([[257, 2049, 4097]])
    wanted = layer(inputs, positions=positions)
    found = layer(inputs, positions=positions.astype("float32"))
    assert (array(found) == array(wanted)).all()
    assert found.dtype == layer(inputs).dtype == wanted.dtype
    assert layer.compute_dtype in str(found.dtype)
    with pytest.raises(ValueError, match=r"`positions` must be integers(.|\n)*with 0.5"):
        layer(inputs, positions=np.array([[0.5, 1.0, 2.0]]))


# --- Positions count from the first real token of a row.

MASK = np.array(
    [
        [True, True, True, True, True],
        [True, True, True, False, False],
        [False, False, True, True, True],
        [False, True, False, True, False],
        [False, False, False, False, False],
    ]
)
COUNTED = np.array(
    [[0, 1, 2, 3, 4], [0, 1, 2, 3, 4], [0, 0, 0, 1, 2], [0, 0, 1, 2, 3], [0, 0, 0, 0, 0]]
)
KINDS = {
    "sinusoidal": PositionalEncoding,
    "sinusoidal, bounded": lambda **options: PositionalEncoding(9, **options),
    "learned": lambda **options: LearnedPositionalEncoding(9, **options),
}
each_kind = pytest.mark.parametrize("kind", KINDS)


def of_kind(kind, **options):
    layer = KINDS[kind](**options)
    layer.build((None, None, 6))
    return randomise(layer)


@pytest.mark.parametrize(("case", "way"), spread(product(KINDS, ["add", "concat"]), WAYS))
def test_a_mask_says_where_a_row_begins_and_holes_keep_their_places(case, way, tmp_path):
    kind, combine = case
    layer, inputs = of_kind(kind, combine=combine), normal(1, 5, 5, 6)
    expected = array(layer(inputs, positions=COUNTED))

    def both(x, mask):
        return layer(with_mask(x, mask)), layer(x, padding_mask=mask)

    for found in prepared(way, both, [inputs, MASK], tmp_path)(inputs, MASK):
        np.testing.assert_allclose(found, expected, atol=1e-6)


@pytest.mark.parametrize(("kind", "policy"), spread(KINDS, POLICIES))
def test_a_mask_of_padding_on_the_right_changes_no_bit(kind, policy):
    layer, inputs = of_kind(kind, dtype=policy), normal(1, 2, 5, 6)
    run = compiled(lambda x, mask: layer(x, padding_mask=mask), [inputs, MASK[:2]])
    for masked in (layer(inputs, padding_mask=MASK[:2]), run(inputs, MASK[:2])):
        np.testing.assert_array_equal(array(masked), array(layer(inputs)))


@each_kind
def test_positions_that_are_given_win_over_the_mask(kind):
    layer, inputs, positions = of_kind(kind), normal(1, 5, 5, 6), COUNTED[::-1]
    expected = array(layer(inputs, positions=positions))
    masked = with_mask(ops.convert_to_tensor(inputs), ops.convert_to_tensor(MASK))
    np.testing.assert_array_equal(array(layer(masked, positions=positions)), expected)
    np.testing.assert_array_equal(array(layer(inputs, positions, padding_mask=MASK)), expected)


@each_kind
def test_an_input_without_rows_or_without_positions_stays_empty(kind):
    layer = of_kind(kind)
    for shape in ((0, 5, 6), (2, 0, 6), (0, 0, 6)):
        assert array(layer(np.zeros(shape), padding_mask=np.zeros(shape[:2], bool))).shape == shape


def test_a_masked_input_longer_than_max_length_fails_too():
    layer = LearnedPositionalEncoding(3)
    layer.build((None, None, 4))
    inputs, mask = np.zeros((2, 4, 4), "float32"), np.array([[False, True, True, True]] * 2)
    with pytest.raises(ValueError, match="length 4, max_length=3"):
        layer(inputs, padding_mask=mask)
    run = compiled(lambda x, mask: layer(x, padding_mask=mask), [inputs, mask])
    assert array(run(inputs[:, :3], mask[:, :3])).shape == (2, 3, 4)
    with pytest.raises(Exception, match=r"max_length|[Ii]ncompatible shapes"):
        run(inputs, mask)


@pytest.mark.parametrize("mask", [np.ones((1, 3), "float32"), np.ones((1, 3, 3), bool)])
def test_what_is_no_padding_mask_is_refused(mask):
    with pytest.raises(ValueError, match=r"boolean|\(batch, length\)") as found:
        PositionalEncoding()(np.zeros((1, 3, 4)), padding_mask=mask)
    assert str(mask.dtype) in str(found.value) or str(mask.shape) in str(found.value)


def test_learned_positions_counted_from_a_mask_have_their_gradient():
    layer, inputs = of_kind("learned"), normal(1, 5, 5, 6)
    weights = normal(2, 5, 5, 6)
    factors = ops.convert_to_tensor(weights)
    _, (found,) = gradients(
        lambda x: ops.sum(layer(x, padding_mask=MASK) * factors), [inputs], layer
    )
    expected = np.zeros((9, 6))
    np.add.at(expected, COUNTED, weights)
    np.testing.assert_allclose(found, expected, atol=1e-5)


def functional_model():
    symbols = keras.Input((None,), dtype="int32")
    hidden = PositionalEncoding()(TokenEmbedding(20, 8)(symbols))
    return keras.Model(symbols, Encoder(1, 2, 16)(hidden))


def test_a_functional_model_saves_no_mask_with_the_call():
    # As files of before this layer read masks: Keras fills in a `mask` that the call did not have,
    # once more for each layer, and two operations then have one name.
    config = functional_model().get_config()
    (layer,) = (part for part in config["layers"] if part["class_name"] == "PositionalEncoding")
    assert "mask" not in json.dumps(layer["inbound_nodes"])


@pytest.mark.slow
def test_a_functional_model_loads_in_another_process(tmp_path):
    model, ids = functional_model(), np.array([[0, 5, 6], [7, 8, 0]], "int32")
    np.save(tmp_path / "expected.npy", array(model(ids)))
    model.save(tmp_path / "model.keras")
    program = (
        "import sys, keras, numpy as np, keras_transformer\n"
        "model = keras.models.load_model(sys.argv[1] + '/model.keras')\n"
        "found = keras.ops.convert_to_numpy(model(np.array([[0, 5, 6], [7, 8, 0]], 'int32')))\n"
        "np.testing.assert_allclose(found, np.load(sys.argv[1] + '/expected.npy'), atol=1e-6)\n"
    )
    command = [sys.executable, "-c", program, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", cwd=REPOSITORY)
    assert done.returncode == 0, done.stderr
