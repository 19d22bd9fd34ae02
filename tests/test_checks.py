"""The checks that people run on their models: they find the known leaks, and pass ours."""

import keras
import numpy as np
import pytest

from keras_transformer import checks
from keras_transformer.checks import check_causality, check_padding_invariance
from keras_transformer.layers import (
    Decoder,
    Encoder,
    MultiHeadAttention,
    PositionalEncoding,
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
    assert check_padding_invariance(stack(MultiHeadAttention), IDS) < 1e-5


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


@pytest.mark.parametrize("norm_first", [False, True])
def test_transformers_pass_both(norm_first):
    model = Transformer(11, num_layers=2, d_model=8, num_heads=2, d_ff=16, norm_first=norm_first)
    model.build()
    randomise(model)
    assert check_padding_invariance(model, (IDS, TARGETS)) < 1e-5
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
        AssertionError, match=r"the future leaks: the output at \[0, 0\] changes by 10"
    ):
        check_causality(peek, normal(1, 1, 4, 2))
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


def test_bad_inputs_are_refused():
    with pytest.raises(ValueError, match="must be integer ids of shape"):
        check_padding_invariance(lambda x: x, np.zeros((2, 3)))
    with pytest.raises(ValueError, match="must be as long as the input that is changed"):
        check_causality(lambda x: keras.ops.mean(x, axis=1), normal(1, 2, 3, 4))
    with pytest.raises(ValueError, match="at least two different ids"):
        check_causality(lambda x: x, np.array([[5, 5]]))


def test_the_checks_are_all_public():
    assert checks.__all__ == ["check_causality", "check_padding_invariance"]
