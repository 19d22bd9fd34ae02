"""Token vectors: scale, mask, ids that are refused, and logits with the same matrix."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_transformer.layers import TokenEmbedding
from keras_transformer.layers.dense import given_barrier
from keras_transformer.layers.token_embedding import FEW_ROWS
from tests.backends import (
    POLICIES,
    WAYS,
    array,
    gradients,
    has_mask,
    mask_of,
    normal,
    prepared,
    randomise,
)
from tests.selection import spread

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
def test_logits_may_have_a_matrix_of_their_own_and_a_bias(policy):
    layer = built(tie_output=False, logits_bias=True, scale=False, dtype=policy)
    weights = {weight.path.rsplit("/", 1)[-1]: array(weight) for weight in layer.weights}
    assert {name: w.shape for name, w in weights.items()} == {
        "embeddings": (VOCAB, D_MODEL),
        "reverse_embeddings": (D_MODEL, VOCAB),
        "logits_bias": (VOCAB,),
    }
    rounding = {"float32": 1e-6, "mixed_float16": 2**-9, "mixed_bfloat16": 2**-6}[policy]
    np.testing.assert_allclose(array(layer(IDS)), weights["embeddings"][IDS], rtol=rounding)
    hidden = np.round(normal(2, 2, 7, D_MODEL) * 8) / 8
    expected = hidden @ weights["reverse_embeddings"] + weights["logits_bias"]
    found = array(layer.logits(ops.convert_to_tensor(hidden)))
    np.testing.assert_allclose(found, expected, atol=3 * rounding, rtol=rounding)
    again = TokenEmbedding.from_config(layer.get_config())
    again.build((None, None))
    again.set_weights(layer.get_weights())
    assert (array(again.logits(ops.convert_to_tensor(hidden))) == found).all()


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


@pytest.mark.parametrize("dtype", ["int32", "float32"])
def test_without_padding_the_output_has_no_mask(dtype):
    assert not has_mask(built(pad_id=None)(ops.convert_to_tensor(IDS.astype(dtype))))


@pytest.mark.parametrize(("way", "pad_id"), spread(WAYS, [0, 7]))
def test_the_mask_of_the_output_is_true_at_real_tokens(way, pad_id, tmp_path):
    layer = built(pad_id=pad_id)
    run = prepared(way, lambda ids: mask_of(layer(ids)), [IDS], tmp_path)
    np.testing.assert_array_equal(run(IDS), np.not_equal(IDS, pad_id))


@pytest.mark.parametrize("rows", [FEW_ROWS, FEW_ROWS + 1])
@pytest.mark.parametrize("tie_output", [True, False])
def test_a_compiled_step_has_the_same_logits_for_few_and_for_many_rows(rows, tie_output):
    layer = built(tie_output=tie_output, logits_bias=True)
    hidden = normal(rows, 1, D_MODEL)
    expected = array(layer.logits(hidden))
    with given_barrier(lambda tensor: tensor):
        found = array(layer.logits(hidden))
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_vectors_start_with_unit_variance():
    layer = TokenEmbedding(vocab_size=1009, d_model=256)
    vectors = array(layer(np.arange(1009)[None]))
    # 1009 * 256 samples: the standard error of the deviation is 1 / sqrt(2 * 258304) = 0.0014.
    assert np.std(vectors) == pytest.approx(1.0, abs=0.01)


def test_booleans_are_no_ids():
    with pytest.raises(ValueError, match=r"`ids` must be integers(.|\n)*dtype bool"):
        built()(ops.convert_to_tensor(IDS.astype("bool")))


# --- Ids that are floats, as Keras's Embedding takes them.


@pytest.mark.parametrize(("way", "length"), spread(WAYS, [7, D_MODEL]))
def test_whole_floats_are_ids_with_the_same_vectors_and_mask(way, length, tmp_path):
    layer, ids = built(pad_id=7), IDS[:, :length]
    floats = ids.astype("float32")
    run = prepared(way, lambda ids: (layer(ids), mask_of(layer(ids))), [floats], tmp_path)
    vectors, mask = run(floats)
    np.testing.assert_array_equal(vectors, array(layer(ids)))
    np.testing.assert_array_equal(mask, np.not_equal(ids, 7))


def test_the_mask_of_ids_is_computed_for_floats_and_integers():
    layer = built()
    for ids in (IDS, IDS.astype("float32"), IDS.astype("uint8")):
        mask = layer.compute_mask(ops.convert_to_tensor(ids))
        np.testing.assert_array_equal(array(mask), np.not_equal(IDS, 0))


@pytest.mark.parametrize(
    ("policy", "shape"),
    spread(POLICIES, [(2, 7, D_MODEL), (2, D_MODEL), (D_MODEL, D_MODEL)]),
)
def test_logits_of_hidden_vectors_carry_no_mask(policy, shape):
    layer = built(dtype=policy)
    assert not has_mask(layer(ops.convert_to_tensor(normal(2, *shape)), reverse=True))
    hidden = keras.Input(shape[1:])
    model = keras.Model(hidden, layer(hidden, reverse=True))
    assert not has_mask(model(normal(2, *shape)))


@pytest.mark.parametrize("policy", POLICIES)
def test_logits_are_of_hidden_vectors_in_the_compute_dtype(policy):
    layer = built(dtype=policy)
    hidden = ops.convert_to_tensor(normal(2, 2, 7, D_MODEL))
    rounded = ops.cast(hidden, layer.compute_dtype)
    np.testing.assert_array_equal(array(layer.logits(hidden)), array(layer.logits(rounded)))


@pytest.mark.parametrize(
    ("ids", "dtype", "message"),
    [
        ([[1.5, 2.0]], "float32", "whole numbers up to 16777216,(.|\n)*with 1.5"),
        ([[np.nan, 2.0]], "float32", "whole numbers(.|\n)*with nan"),
        ([[1.0, 258.0]], "bfloat16", "whole numbers up to 256,(.|\n)*with 258.0"),
        ([[1.0, 2050.0]], "float16", "whole numbers up to 2048,(.|\n)*with 2050.0"),
    ],
)
def test_floats_that_are_no_ids_are_refused(ids, dtype, message):
    layer = TokenEmbedding(4099, 2)
    assert layer(ops.cast(np.array([[1.0, 256.0]], "float32"), dtype)).shape == (1, 2, 2)
    with pytest.raises(ValueError, match="`ids` must be integers, or " + message):
        layer(ops.cast(np.array(ids, "float32"), dtype))


@pytest.mark.parametrize(("dtype", "vocab_size"), [("bfloat16", 257), ("float16", 2049)])
def test_an_input_must_hold_the_whole_vocabulary_exactly(dtype, vocab_size):
    ids = keras.Input((None,), dtype=dtype)
    assert TokenEmbedding(vocab_size, 2)(ids).shape == (None, None, 2)
    message = f"`ids` must be of a dtype that(.|\n)*{dtype} for a vocabulary of {vocab_size + 1}"
    with pytest.raises(ValueError, match=message):
        TokenEmbedding(vocab_size + 1, 2)(ids)


def test_a_sequential_model_without_an_input_does_not_round_ids_unseen():
    # Keras gives its input the compute dtype of the first layer.
    model = keras.Sequential([TokenEmbedding(258, 2, dtype="mixed_bfloat16")])
    with pytest.raises(ValueError, match="`ids` must be of a dtype that(.|\n)*bfloat16"):
        model(np.array([[257]]))
    model = keras.Sequential([TokenEmbedding(257, 2, dtype="mixed_bfloat16")])
    assert model(np.array([[256]])).shape == (1, 1, 2)


def classifier(layers, vocab_size=20):
    """A model that nobody told the dtype of its ids."""
    layers = [*layers, TokenEmbedding(vocab_size, 8), keras.layers.GlobalAveragePooling1D()]
    return keras.Sequential([*layers, keras.layers.Dense(1)])


@pytest.mark.parametrize("layers", [[], [keras.Input((None,))]], ids=["no Input", "no dtype"])
def test_a_sequential_model_takes_ids_without_a_dtype(layers, tmp_path):
    ids = np.array([[3, 16, 0], [1, 2, 19]])
    model = classifier(layers)
    model.compile("sgd", "mean_squared_error", run_eagerly=True)
    model.fit(ids, np.ones((2, 1)), verbose=0)
    called = array(model(ids))
    np.testing.assert_allclose(model.predict(ids, verbose=0), called, rtol=1e-5)
    # Padding is left out of the mean.
    np.testing.assert_allclose(array(model(ids[:1, :2])), called[:1], rtol=1e-5)
    nested = keras.Sequential([model, keras.layers.Dense(1)])
    assert nested(ids).shape == (2, 1)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(array(loaded(ids)), called)


def test_a_sequential_model_is_built_without_an_input():
    ids = np.array([[3, 16, 0]])
    model = classifier([])
    model.build((None, None))
    assert model(ids).shape == (1, 1)
    model = keras.Sequential()
    model.add(TokenEmbedding(20, 8))
    model.add(keras.layers.GlobalAveragePooling1D())
    assert model(ids).shape == (1, 8)


@pytest.mark.parametrize(("policy", "way"), spread(POLICIES, ["functional", "eager", "compiled"]))
def test_mixed_precision_does_not_round_ids_that_are_floats(policy, way, tmp_path):
    layer = TokenEmbedding(vocab_size=4099, d_model=2, dtype=policy)
    layer.build((None, None))
    matrix = np.zeros((4099, 2), "float32")
    matrix[[257, 2049, 4097], 0] = 1.0
    layer.set_weights([matrix])
    ids = np.array([[256, 257, 258, 2048, 2049, 4097, 4098]], "float32")
    vectors = prepared(way, layer, [ids], tmp_path)(ids)
    found = vectors[0, :, 0] / np.sqrt(2)
    np.testing.assert_allclose(found, [0, 1, 0, 0, 1, 1, 0], rtol=0.01)


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
