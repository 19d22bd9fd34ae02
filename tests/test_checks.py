"""The checks that people run on their models: they find the known leaks, and pass ours."""

import keras
import numpy as np
import pytest

from keras_transformer import checks
from keras_transformer.checks import check_causality, check_padding_invariance
from keras_transformer.layers import (
    Decoder,
    Encoder,
    EncoderLayer,
    MultiHeadAttention,
    PositionalEncoding,
    RotaryPositionalEncoding,
    TokenEmbedding,
)
from keras_transformer.models import Transformer
from tests.backends import normal, randomise

IDS = np.array([[5, 6, 7, 8, 4], [9, 4, 3, 0, 0]], "int32")
TARGETS = np.array([[2, 5, 6], [2, 7, 0]], "int32")


def stack(attention_class):
    """The plain stack of Keras's documentation: embedding, attention, sum, attention."""
    keras.utils.set_random_seed(1)
    ids = keras.Input((None,), dtype="int32")
    hidden = keras.layers.Embedding(11, 8, mask_zero=True)(ids)
    for _ in range(2):
        attended = attention_class(num_heads=2, key_dim=4)(hidden, hidden)
        hidden = keras.layers.Add()([hidden, attended])
    return randomise(keras.Model(ids, hidden), scale=0.7)


def test_it_finds_the_lost_mask_of_the_plain_keras_stack_and_passes_ours():
    with pytest.raises(AssertionError, match=r"padding leaks: the output at \[1, [0-2]\] changes"):
        check_padding_invariance(stack(keras.layers.MultiHeadAttention), IDS)
    # Its outputs are up to 25, and without AVX-512 XLA rounds them by 1.05e-5; those of Keras's
    # change by 7.
    assert check_padding_invariance(stack(MultiHeadAttention), IDS, tolerance=1e-4) < 1e-4


def test_it_names_the_sentence_and_the_size():
    def model(ids):
        real = ids != 0
        return keras.ops.cast(keras.ops.sum(keras.ops.cast(~real, "float32"), axis=1), "float32")

    with pytest.raises(AssertionError) as found:
        check_padding_invariance(model, IDS, extra=3)
    message = str(found.value)
    assert "the output at [0] changes by 3 with 3 more padding tokens" in message
    assert "2 of 3 comparisons are off by more than 1e-05" in message


def test_a_neighbour_that_leaks_is_found():
    def model(ids):
        return keras.ops.cast(ids, "float32") - keras.ops.mean(keras.ops.cast(ids, "float32"))

    with pytest.raises(AssertionError, match="padding leaks"):
        check_padding_invariance(model, IDS)


def test_nan_at_a_real_position_is_a_leak():
    def model(ids):
        numbers = keras.ops.cast(ids, "float32")
        return numbers + (float("nan") if ids.shape[1] > 5 else 0.0)

    with pytest.raises(AssertionError, match="changes by inf with 7 more padding tokens"):
        check_padding_invariance(model, IDS)


@pytest.mark.slow
@pytest.mark.parametrize("norm_first", [False, True])
def test_transformers_pass_both(norm_first):
    model = Transformer(11, num_layers=2, d_model=8, num_heads=2, d_ff=16, norm_first=norm_first)
    model.build()
    randomise(model)
    assert check_padding_invariance(model, (IDS, TARGETS)) < 1e-5
    left = IDS[:, ::-1], np.array([[2, 5, 6], [0, 2, 7]], "int32")
    assert check_padding_invariance(model, left, side="left") < 1e-5
    assert check_causality(model, (IDS, TARGETS)) < 1e-5
    with pytest.raises(AssertionError, match="the future leaks"):
        check_causality(lambda inputs: model(inputs[::-1]), (IDS[::-1], IDS))


def test_a_dict_of_inputs_and_pooled_outputs_are_understood():
    ids = keras.Input((None,), dtype="int32", name="ids")
    hidden = Encoder(1, 2, 16)(PositionalEncoding()(TokenEmbedding(11, 8)(ids)))
    pooled = keras.layers.GlobalAveragePooling1D()(hidden)
    model = keras.Model({"ids": ids}, {"pooled": pooled, "hidden": hidden})
    randomise(model)
    assert check_padding_invariance(model, {"ids": IDS}) < 1e-5
    careless = keras.Model({"ids": ids}, keras.ops.mean(hidden, axis=1))
    with pytest.raises(AssertionError, match=r"padding leaks: the output at \[[01]\] changes"):
        check_padding_invariance(careless, {"ids": IDS})


def test_causality_names_the_changed_position():
    def peek(numbers):
        numbers = keras.ops.convert_to_tensor(numbers)
        return numbers + 10.0 * keras.ops.roll(numbers, -1, axis=1)

    with pytest.raises(
        AssertionError, match=r"the future leaks: the output at \[0, 0\] changes by"
    ):
        check_causality(peek, normal(1, 1, 2, 2))
    decoder = Decoder(2, 2, 16)
    assert check_causality(decoder, normal(1, 2, 6, 8)) < 1e-5
    with pytest.raises(AssertionError, match=r"when position [1-5] of the input changes"):
        check_causality(Encoder(1, 2, 16), normal(1, 2, 6, 8))


def test_padding_stays_padding_when_tokens_are_changed():
    seen = []

    def model(ids):
        seen.append(np.asarray(ids))
        return keras.ops.cast(ids, "float32")

    check_causality(model, IDS)
    assert all(((ids != 0) == (IDS != 0)).all() for ids in seen)
    assert len(seen) == 5


def leaks_of_the_future(layer, width=8):
    with pytest.raises(AssertionError, match="the future leaks"):
        check_causality(layer, normal(1, 2, 6, width))


@pytest.mark.parametrize("rms_norm", [False, True])
def test_the_future_is_seen_through_a_norm_of_the_input(rms_norm):
    # LayerNorm removes what is added to all features of a position, RMS norm what multiplies them.
    options = dict(norm_first=True, rms_norm=rms_norm)
    leaks_of_the_future(Encoder(1, 2, 16, **options))
    leaks_of_the_future(EncoderLayer(2, 16, **options))
    assert check_causality(Decoder(1, 2, 16, **options), normal(1, 2, 6, 8)) < 1e-5


@pytest.mark.parametrize("inputs", [np.ones((1, 4, 3)), np.zeros((1, 4, 3)), normal(2, 1, 4, 3)])
def test_the_future_is_seen_through_a_removed_mean(inputs):
    def centred(numbers):
        numbers = keras.ops.convert_to_tensor(numbers)
        return numbers - keras.ops.mean(numbers, axis=-1, keepdims=True)

    assert check_causality(centred, inputs) == 0
    with pytest.raises(AssertionError, match=r"the output at \[0, 0\] changes"):
        check_causality(lambda x: centred(keras.ops.roll(x, -1, axis=1)), inputs[:, :2])


@pytest.mark.parametrize("inputs", [np.ones((1, 2, 1)), np.zeros((1, 2, 1)), -np.ones((1, 2))])
def test_the_future_is_seen_where_only_the_sign_is_left(inputs):
    def next_sign(numbers):
        return keras.ops.sign(keras.ops.roll(keras.ops.convert_to_tensor(numbers), -1, axis=1))

    with pytest.raises(AssertionError, match=r"the output at \[0, 0\] changes by [12] when"):
        check_causality(next_sign, inputs)


def test_a_number_is_changed_at_one_position_by_the_size_of_its_feature():
    seen = []

    def model(numbers):
        seen.append(numbers)
        return keras.ops.convert_to_tensor(numbers)

    inputs = normal(1, 3, 4, 2) * np.array([1e-3, 1e3], "float32")
    check_causality(model, inputs)
    check_causality(model, inputs)
    for position, changed in enumerate(seen[1:4], start=1):
        apart = np.abs(changed - inputs)
        assert (np.delete(apart, position, axis=1) == 0).all()
        assert (apart[:, position] > 0).all()
        assert (apart[:, position] < 10 * np.abs(inputs).max(axis=(0, 1))).all()
    np.testing.assert_array_equal(seen[:4], seen[4:])  # the noise is the same each time


def test_a_mask_that_is_changed_is_turned_over():
    def model(inputs):
        return keras.ops.cast(inputs["b_mask"], "float32") + keras.ops.convert_to_tensor(
            inputs["a_values"]
        )

    inputs = {"a_values": normal(1, 1, 3), "b_mask": np.array([[True, True, False]])}
    assert check_causality(model, inputs) == 0
    with pytest.raises(
        AssertionError, match=r"the output at \[0, 0\] changes by 1 when position 1"
    ):
        check_causality(
            lambda x: keras.ops.roll(keras.ops.cast(x, "int32"), -1, 1), np.array([[True, True]])
        )


def classifier(pooled):
    """Token ids with the segment of each; a mean of the real ones, or of all."""
    ids, segments = (keras.Input((None,), dtype="int32") for _ in range(2))
    hidden = TokenEmbedding(11, 8)(ids) + keras.layers.Embedding(2, 8)(segments)
    hidden = Encoder(1, 2, 16)(
        PositionalEncoding()(hidden), padding_mask=keras.ops.not_equal(ids, 0)
    )
    return randomise(keras.Model((ids, segments), [hidden, pooled(hidden)]))


def test_ids_and_their_segments_are_lengthened_together():
    segments = np.array([[0, 0, 1, 1, 1], [0, 0, 0, 0, 0]], "int32")
    right = classifier(lambda hidden: hidden[:, 0])
    assert check_padding_invariance(right, (IDS, segments)) < 1e-5
    wrong = classifier(lambda hidden: keras.ops.mean(hidden, axis=1))
    with pytest.raises(AssertionError, match=r"padding leaks: output 1 at \[[01]\] changes"):
        check_padding_invariance(wrong, (IDS, segments))


def test_a_segment_of_zeros_is_no_padding():
    def model(inputs):
        ids, segments = (keras.ops.convert_to_tensor(part) for part in inputs)
        return keras.ops.cast(ids + segments, "float32") + ids.shape[1]

    with pytest.raises(AssertionError, match=r"the output at \[0, 0\] changes by 7"):
        check_padding_invariance(model, (np.array([[5, 6, 0]]), np.array([[0, 0, 0]])))


def test_a_source_and_a_target_of_the_same_length_are_told_apart():
    def model(inputs):  # as Keras's layers: a padded target reads the padding of the source too
        source, target = (keras.ops.convert_to_tensor(part) for part in inputs)
        return keras.ops.where(target == 0, source.shape[1], target)

    assert check_padding_invariance(model, (IDS[:, :3], TARGETS)) == 0


def test_a_dict_of_ids_and_their_mask_is_understood():
    ids = keras.Input((None,), dtype="int32", name="token_ids")
    mask = keras.Input((None,), dtype="bool", name="padding_mask")
    hidden = PositionalEncoding()(keras.layers.Embedding(11, 8)(ids))
    named = {"token_ids": ids, "padding_mask": mask}
    inputs = {"token_ids": IDS, "padding_mask": IDS != 0}
    right = keras.Model(named, Encoder(1, 2, 16)(hidden, padding_mask=mask))
    assert check_padding_invariance(randomise(right), inputs) < 1e-5
    wrong = keras.Model(named, Encoder(1, 2, 16)(hidden))
    with pytest.raises(AssertionError, match="with 7 more padding tokens"):
        check_padding_invariance(randomise(wrong), inputs)


def forecaster(position, masked=True):
    """Reads the last of numbers that are padded on the left."""
    values = keras.Input((None, 1), name="values")
    mask = keras.Input((None,), dtype="bool", name="padding_mask")
    encoder = Encoder(1, 2, 16, norm_first=True, position=position)
    hidden = encoder(keras.layers.Dense(8)(values), padding_mask=mask if masked else None)
    return randomise(keras.Model({"values": values, "padding_mask": mask}, [hidden, hidden[:, -1]]))


def test_numbers_with_a_mask_may_be_padded_on_the_left():
    mask = np.array([[True] * 5, [False, False, True, True, True]])
    inputs = {"values": normal(1, 2, 5, 1) * mask[..., None], "padding_mask": mask}
    model = forecaster(RotaryPositionalEncoding())
    assert check_padding_invariance(model, inputs, side="left") < 1e-5
    with pytest.raises(AssertionError, match="output 1"):
        check_padding_invariance(model, inputs)  # the last position is padding
    for wrong in (forecaster(RotaryPositionalEncoding(), masked=False), forecaster(None, False)):
        with pytest.raises(AssertionError, match="padding leaks"):
            check_padding_invariance(wrong, inputs, side="left")


def test_a_leak_at_left_padding_is_named_by_its_position_in_the_inputs():
    def model(ids):  # wrong at token 7 of a text of two
        return np.where((ids == 7) & (ids.shape[1] == 2), 1.0, 0.0)

    with pytest.raises(AssertionError, match=r"at \[1, 3\] changes by 1 with sentence 1 alone"):
        check_padding_invariance(model, np.array([[5, 6, 3, 8], [0, 0, 4, 7]]), side="left")


def test_numbers_without_a_mask_stay_as_they_are():
    shapes = []

    def model(inputs):
        shapes.append([part.shape for part in inputs])
        return keras.ops.sum(inputs[1], axis=1)

    check_padding_invariance(model, (normal(1, 2, 4, 3), IDS))
    assert shapes[1] == [(2, 4, 3), (2, 12)]
    assert shapes[3] == [(1, 4, 3), (1, 3)]


def test_padding_of_numbers_is_noise_and_of_masks_is_false():
    seen = []

    def model(inputs):
        seen.append(inputs)
        return inputs[0][:, 0]

    check_padding_invariance(model, (normal(1, 2, 5, 3), IDS != 0))
    values, mask = seen[1]
    assert not mask[:, 5:].any()
    assert values.dtype == "float32"
    assert 1 < np.abs(values[:, 5:]).mean() < 100


def test_a_model_of_one_length_is_refused():
    ids = keras.Input((5,), dtype="int32")
    model = keras.Model(ids, TokenEmbedding(11, 8)(ids))
    with pytest.raises(ValueError, match="must take any length and any batch size") as found:
        check_padding_invariance(model, IDS)
    assert "Received: a model that took (2, 5) and raised" in str(found.value)
    assert "for (2, 12)" in str(found.value)


def test_a_model_of_one_batch_size_is_refused():
    def model(ids):
        return keras.ops.reshape(keras.ops.convert_to_tensor(ids), (2, -1))[:, :1]

    with pytest.raises(ValueError, match=r"raised \w+ for \(1, 5\)"):
        check_padding_invariance(model, np.ones((2, 5), "int32"))


@pytest.mark.parametrize(
    "model",
    [
        lambda ids: ids[:, ::2] * 1.0,
        lambda ids: np.pad(ids, ((0, 0), (1, 0))) * 1.0,
        lambda ids: ids[:, :, None] * ids[:, None] * 1.0,
        lambda ids: ids.reshape(-1) * 1.0,
    ],
    ids=["shorter", "longer", "square", "flat"],
)
def test_an_output_of_another_length_is_refused(model):
    with pytest.raises(ValueError, match="must be as long as an array of inputs") as found:
        check_padding_invariance(model, IDS)
    assert f"Received: an output of shape {model(IDS).shape}, (" in str(found.value)


def test_bad_inputs_are_refused():
    with pytest.raises(ValueError, match="must hold integer ids or a boolean mask") as found:
        check_padding_invariance(lambda x: x, np.full((2, 3), 0.5))
    assert "Received: float64 (2, 3)" in str(found.value)
    with pytest.raises(ValueError, match="`side` must be one of .* Received: side='top'"):
        check_padding_invariance(lambda x: x, IDS, side="top")
    with pytest.raises(ValueError, match="must be as long as the input that is changed"):
        check_causality(lambda x: keras.ops.mean(x, axis=1), normal(1, 2, 3, 4))
    with pytest.raises(ValueError, match="at least two different ids"):
        check_causality(lambda x: x, np.array([[5, 5]]))


def test_the_checks_are_all_public():
    assert checks.__all__ == ["check_causality", "check_padding_invariance"]


def test_whole_floats_are_ids_where_nothing_else_tells_padding():
    model = Transformer(11, num_layers=1, d_model=8, num_heads=2, d_ff=16)
    floats = IDS.astype("float32"), TARGETS.astype("float32")
    assert check_padding_invariance(model, floats) < 1e-5
    assert check_causality(model, floats) < 1e-5
    with pytest.raises(ValueError, match="`inputs` must hold integer ids.*Received: float32"):
        check_padding_invariance(lambda x: x, floats[0] + 0.5)


def test_whole_numbers_beside_a_mask_are_numbers():
    seen = []

    def model(inputs):
        mask, numbers = inputs
        seen.append(numbers)
        return keras.ops.where(mask, numbers, 0.0)

    check_padding_invariance(model, (IDS != 0, IDS.astype("float32")))
    assert any((numbers != np.floor(numbers)).any() for numbers in seen)
