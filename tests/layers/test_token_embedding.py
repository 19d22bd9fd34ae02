"""Token vectors: scale, mask, ids that are refused, and logits with the same matrix."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_transformer.layers import TokenEmbedding
from tests.backends import POLICIES, WAYS, array, gradients, mask_of, normal, prepared, randomise

VOCAB, D_MODEL = 17, 5
IDS = np.array([[3, 16, 0, 0, 0, 0, 0], [1, 2, 0, 7, 0, 0, 0]], "int32")


def built(**arguments):
    layer = TokenEmbedding(VOCAB, D_MODEL, **arguments)
    layer.build((None, None))
    return randomise(layer)


def test_looks_rows_up_and_scales_them_by_the_root_of_the_width():
    layer = built()
    (matrix,) = layer.get_weights()
    np.testing.assert_allclose(array(layer(IDS)), matrix[IDS] * np.sqrt(5), rtol=1e-6)


def test_logits_are_products_with_the_same_matrix():
    layer = built()
    (matrix,) = layer.get_weights()
    hidden = normal(2, 2, 7, D_MODEL)
    logits = array(layer.logits(ops.convert_to_tensor(hidden)))
    np.testing.assert_allclose(logits, hidden @ matrix.T, atol=1e-5)
    assert len(layer.weights) == 1


@pytest.mark.parametrize("policy", POLICIES)
def test_logits_are_float32_and_vectors_of_the_compute_dtype(policy):
    layer = built(dtype=policy)
    vectors = layer(IDS)
    assert keras.backend.standardize_dtype(vectors.dtype) == layer.compute_dtype
    logits = layer.logits(ops.cast(ops.convert_to_tensor(normal(2, 2, 7, D_MODEL)), "float32"))
    assert keras.backend.standardize_dtype(logits.dtype) == "float32"
    assert keras.backend.standardize_dtype(layer.logits(vectors).dtype) == "float32"


@pytest.mark.parametrize("policy", POLICIES)
def test_the_gradient_of_logits_is_that_of_the_product(policy):
    layer = built(dtype=policy)
    # Eighths, which every policy has exactly: the two products are all that can round.
    (matrix,) = layer.get_weights()
    matrix = np.round(matrix * 8) / 8
    layer.set_weights([matrix])
    hidden = np.round(normal(2, 2, 7, D_MODEL) * 8) / 8
    upstream = np.round(normal(3, 2, 7, VOCAB) * 8) / 8
    weights = ops.convert_to_tensor(upstream.astype("float32"))
    by_input, by_weight = gradients(
        lambda hidden: ops.sum(layer.logits(hidden) * weights), [hidden.astype("float32")], layer
    )
    rounding = {"float32": 1e-6, "mixed_float16": 2**-10, "mixed_bfloat16": 2**-7}[policy]
    for found, wanted in (
        (by_input[0], upstream @ matrix),
        (by_weight[0], np.einsum("btv,btd->vd", upstream, hidden)),
    ):
        np.testing.assert_allclose(found, wanted, rtol=rounding, atol=rounding)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("pad_id", [0, 7])
def test_the_mask_of_the_output_is_true_at_real_tokens(way, pad_id, tmp_path):
    layer = built(pad_id=pad_id)
    run = prepared(way, lambda ids: mask_of(layer(ids)), [IDS], tmp_path)
    np.testing.assert_array_equal(run(IDS), np.not_equal(IDS, pad_id))


def test_vectors_start_with_unit_variance():
    layer = TokenEmbedding(vocab_size=1009, d_model=256)
    vectors = array(layer(np.arange(1009)[None]))
    # 1009 * 256 samples: the standard error of the deviation is 1 / sqrt(2 * 258304) = 0.0014.
    assert np.std(vectors) == pytest.approx(1.0, abs=0.01)


@pytest.mark.parametrize("dtype", ["float32", "bool"])
def test_ids_that_are_not_integers_are_refused(dtype):
    with pytest.raises(ValueError, match=f"`ids` must be integers(.|\n)*dtype {dtype}"):
        built()(ops.convert_to_tensor(IDS.astype(dtype)))


@pytest.mark.parametrize("policy", POLICIES)
def test_ids_beyond_half_precision_find_their_row(policy):
    layer = TokenEmbedding(vocab_size=4099, d_model=2, dtype=policy)
    layer.build((None, None))
    matrix = np.zeros((4099, 2), "float32")
    matrix[[257, 4098], 0] = 1.0
    layer.set_weights([matrix])
    vectors = array(layer(np.array([[256, 257, 258, 4097, 4098]])))
    np.testing.assert_allclose(vectors[0, :, 0], np.sqrt(2) * np.array([0, 1, 0, 0, 1]), rtol=0.01)


def test_reloads_bit_for_bit(tmp_path):
    layer = built(pad_id=7)
    ids = keras.Input((None,), dtype="int32")
    model = keras.Model(ids, layer(ids))
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert (array(model(IDS)) == array(loaded(IDS))).all()
    hidden = ops.convert_to_tensor(normal(2, 2, 7, D_MODEL))
    assert (array(layer.logits(hidden)) == array(loaded.layers[-1].logits(hidden))).all()
    assert loaded.count_params() == VOCAB * D_MODEL


def test_tied_logits_stay_tied_in_a_saved_functional_model(tmp_path):
    layer = built()
    ids = keras.Input((None,), dtype="int32")
    model = keras.Model(ids, layer.logits(layer(ids)))
    assert model.output.shape == (None, None, VOCAB)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert loaded.count_params() == VOCAB * D_MODEL
    assert (array(model(IDS)) == array(loaded(IDS))).all()
