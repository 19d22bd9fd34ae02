"""Low-rank changes: the start, what moves, what is saved, and one matrix again."""

import keras
import numpy as np
import pytest

from keras_transformer import MaskedCrossentropy, Transformer
from keras_transformer.lora import enable_lora, has_lora, merge_lora
from tests.backends import array, randomise

SOURCES, TARGETS = np.array([[5, 6, 3], [7, 3, 0]], "int32"), np.array([[2, 9], [2, 8]], "int32")
LABELS = np.array([[9, 3], [8, 3]], "int32")


def small_model():
    model = Transformer(20, num_layers=1, d_model=8, num_heads=2, d_ff=12, dropout=0.0)
    model.build()
    return randomise(model)


@pytest.fixture(scope="module")
def trained():
    """A model, the weights before its training with LoRA, and the losses."""
    keras.utils.set_random_seed(1)
    model = small_model()
    enable_lora(model, rank=2, alpha=4.0, names=("query", "inner"))
    before = {weight.path: array(weight) for weight in model.weights}
    model.compile(optimizer=keras.optimizers.Adam(0.05), loss=MaskedCrossentropy())
    history = model.fit((SOURCES, TARGETS), LABELS, epochs=8, verbose=0)
    return model, before, history.history["loss"]


def test_a_model_starts_as_it_was():
    model = small_model()
    before = array(model((SOURCES, TARGETS)))
    assert enable_lora(model, rank=2) == 6
    assert (array(model((SOURCES, TARGETS))) == before).all()


def test_the_changes_alone_are_trained(trained):
    model, before, losses = trained
    assert losses[-1] < losses[0]
    moved = {w.path for w in model.weights if not (array(w) == before[w.path]).all()}
    assert moved == {w.path for w in model.trainable_weights}
    assert {path.rsplit("/", 2)[-2] for path in moved} == {"query", "inner"}
    assert len(moved) == 2 * (3 + 2)


@pytest.mark.slow
def test_embeddings_are_trained_whole_if_asked():
    sizes = dict(num_layers=1, d_model=8, num_heads=2, d_ff=12, dropout=0.0)
    model = Transformer(20, **sizes, tie_output=False, logits_bias=True)
    model.build()
    enable_lora(model, rank=2, names=("query",), embeddings=True)
    before = {weight.path: array(weight) for weight in model.weights}
    model.compile(optimizer=keras.optimizers.Adam(0.05), loss=MaskedCrossentropy())
    model.fit((SOURCES, TARGETS), LABELS, epochs=2, verbose=0)
    moved = {w.path for w in model.weights if not (array(w) == before[w.path]).all()}
    assert moved == {w.path for w in model.trainable_weights}
    names = {path.rsplit("/", 1)[-1] for path in moved}
    assert names == {
        "embeddings", "reverse_embeddings", "logits_bias", "lora_kernel_a", "lora_kernel_b",
    }  # fmt: skip
    expected = array(model((SOURCES, TARGETS)))
    merged = merge_lora(model)
    np.testing.assert_allclose(array(merged((SOURCES, TARGETS))), expected, atol=1e-6)


def test_merged_it_computes_the_same_without_the_change(trained, tmp_path):
    model, _, _ = trained
    expected = array(model((SOURCES, TARGETS)))
    merged = merge_lora(model)
    assert has_lora(model)
    assert not has_lora(merged)
    np.testing.assert_allclose(array(merged((SOURCES, TARGETS))), expected, atol=1e-6)
    assert len(merged.trainable_weights) == len(merged.weights)


def test_a_saved_model_is_the_merged_one(trained, tmp_path):
    model, _, _ = trained
    weights = small_model()
    model.save_weights(tmp_path / "model.weights.h5")
    weights.load_weights(tmp_path / "model.weights.h5")
    expected = array(model((SOURCES, TARGETS)))
    np.testing.assert_allclose(array(weights((SOURCES, TARGETS))), expected, atol=1e-6)
    model.save(tmp_path / "model.keras")
    # The optimizer has the low-rank weights alone, which the file does not hold.
    whole = keras.saving.load_model(tmp_path / "model.keras", compile=False)
    assert not has_lora(whole)
    np.testing.assert_allclose(array(whole((SOURCES, TARGETS))), expected, atol=1e-6)


def test_bad_arguments_are_refused():
    model = Transformer(20, num_layers=1, d_model=8, num_heads=2, d_ff=12)
    with pytest.raises(ValueError, match="must be built"):
        enable_lora(model, 2)
    model.build()
    with pytest.raises(ValueError, match="some of attention_output, inner, key, outer, "):
        enable_lora(model, 2, names=("keys",))
    with pytest.raises(ValueError, match="`rank` must be a positive integer"):
        enable_lora(model, 0)
    with pytest.raises(ValueError, match="`embeddings` must be"):
        enable_lora(model, 2, embeddings="all")
    enable_lora(model, 2)
    with pytest.raises(ValueError, match="no LoRA yet"):
        enable_lora(model, 2)


def test_a_quantized_model_is_not_merged():
    model = small_model()
    enable_lora(model, 2)
    model.encoder.layers[0].feed_forward.outer.quantize("int8")
    with pytest.raises(ValueError, match="must not be quantized"):
        merge_lora(model)
