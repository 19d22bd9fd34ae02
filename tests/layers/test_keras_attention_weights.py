"""What of Keras's quantization and LoRA reaches our attention, and what is refused."""

import gc

import keras
import numpy as np
import pytest

from keras_transformer import MultiHeadAttention, Transformer
from tests.backends import array, normal

HIDDEN = normal(0, 2, 5, 8)


def built(layer_class):
    layer = layer_class(2, 4)
    layer(HIDDEN, HIDDEN)
    return layer


@pytest.mark.parametrize("way", ["lora", pytest.param("int8", marks=pytest.mark.slow)])
def test_changed_weights_are_refused_both_ways(way):
    def change(layer):
        if way == "lora":
            layer.query_dense.enable_lora(2)
        else:
            layer.query_dense.quantize("int8")
        return layer

    with pytest.raises(ValueError, match="neither quantized nor hold LoRA weights"):
        MultiHeadAttention.from_keras(change(built(keras.layers.MultiHeadAttention)))
    with pytest.raises(ValueError, match="neither quantized nor hold LoRA weights"):
        change(built(MultiHeadAttention)).to_keras()


@pytest.mark.slow
def test_int8_weights_are_close_to_those_they_came_from():
    layer = built(MultiHeadAttention)
    expected = array(layer(HIDDEN, HIDDEN))
    for part in (layer.query_dense, layer.key_dense, layer.value_dense, layer.output_dense):
        part.quantize("int8")
    found = array(layer(HIDDEN, HIDDEN))
    assert not (found == expected).all()
    assert np.abs(found - expected).max() < 0.05 * np.abs(expected).max()


def test_lora_starts_at_the_layer_and_trains_its_own_weights_alone():
    layer = built(MultiHeadAttention)
    expected = array(layer(HIDDEN, HIDDEN))
    layer.query_dense.enable_lora(2)
    np.testing.assert_allclose(array(layer(HIDDEN, HIDDEN)), expected, atol=1e-6)
    names = [weight.name for weight in layer.query_dense.trainable_weights]
    assert "kernel" not in names
    assert sum("lora" in name for name in names) == 2


@pytest.mark.filterwarnings("ignore::UserWarning")  # Keras names the layers it leaves alone
@pytest.mark.parametrize("norm_first", [pytest.param(False, marks=pytest.mark.slow), True])
def test_a_model_that_was_built_but_never_called_can_be_quantized(norm_first):
    model = Transformer(30, num_layers=1, d_model=16, num_heads=2, d_ff=32, norm_first=norm_first)
    model.build()
    inputs = np.array([[5, 6, 3]]), np.array([[2, 7]])
    other = Transformer.from_config(model.get_config())
    other.build()
    other.set_weights(model.get_weights())
    gc.freeze()  # Keras collects garbage for each weight, and the tests before have left much
    model.quantize("int8")
    gc.unfreeze()
    feed_forward = model.encoder.layers[0].feed_forward
    for dense in (feed_forward.inner, feed_forward.outer):
        assert dense.quantization_mode == "int8"  # what Keras skips it only warns of
    expected = array(other(inputs))
    found = array(model(inputs))
    assert not (found == expected).all()
    assert np.abs(found - expected).max() < 0.05 * np.abs(expected).max()
