"""What both models take for ids: a pair, integers or whole floats, in every way to run."""

import functools

import keras
import numpy as np
import pytest
from keras import ops

from keras_transformer import GreedySearch, MaskedCrossentropy, RecurrentSeq2Seq, Transformer
from tests.backends import BACKEND, POLICIES, array, on_tensorflow, randomise
from tests.selection import spread

SOURCE_IDS = np.array([[5, 6, 9, 3], [7, 3, 0, 0]], "int32")
TARGET_IDS = np.array([[2, 5, 6], [2, 7, 0]], "int32")
FLOATS = SOURCE_IDS.astype("float32"), TARGET_IDS.astype("float32")

MODELS = {
    "transformer": lambda size=20, **options: Transformer(
        size, num_layers=1, d_model=8, num_heads=2, d_ff=8, **options
    ),
    "recurrent": lambda size=20, **options: RecurrentSeq2Seq(size, d_model=8, **options),
}
both_models = pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)
one_by_default = pytest.mark.parametrize(
    "make",
    [
        pytest.param(MODELS["transformer"], id="transformer"),
        pytest.param(MODELS["recurrent"], id="recurrent", marks=pytest.mark.slow),
    ],
)


@functools.cache
def built(make, *arguments, **options):
    """A model for tests that only read it: the same one for the same arguments."""
    model = make(*arguments, **options)
    model.build()
    return randomise(model)


@both_models
def test_whole_floats_are_ids_in_every_method(make):
    model = built(make)
    methods = {
        "call": lambda source, target: model((source, target)),
        "encode": lambda source, target: model.encode(source),
        "decode": lambda source, target: model.decode(target, model.encode(source), source),
        "weights": lambda source, target: model.attention_weights(source, target)[0],
        "generate": lambda source, target: (
            model.generate(source, GreedySearch(), max_length=4, prefix_ids=target[:, 1:2]).ids
        ),
        "score": lambda source, target: model.score(source, target[:, 1:]).token_log_probs,
    }
    for name, method in methods.items():
        wanted = array(method(SOURCE_IDS, TARGET_IDS))
        np.testing.assert_array_equal(array(method(*FLOATS)), wanted, err_msg=name)


@both_models
def test_a_model_of_inputs_without_a_dtype_predicts(make):
    model = built(make)
    inputs = keras.Input((None,)), keras.Input((None,))
    functional = keras.Model(inputs, model(inputs))
    wanted = array(model((SOURCE_IDS, TARGET_IDS)))
    predicted = functional.predict((SOURCE_IDS, TARGET_IDS), verbose=0)
    np.testing.assert_allclose(predicted, wanted, atol=1e-5)


@one_by_default
def test_fit_takes_floats(make):
    model = make()
    model.compile("sgd", MaskedCrossentropy())
    found = model.fit(FLOATS, FLOATS[1], verbose=0).history["loss"]
    assert np.isfinite(found).all()


@pytest.mark.parametrize(("policy", "make"), spread(POLICIES, MODELS.values()))
def test_mixed_precision_does_not_round_ids_that_are_floats(policy, make):
    model = built(make, 4099, dtype=policy)
    source_ids, target_ids = np.array([[257, 2049, 4097, 3]]), np.array([[2, 259, 2051, 4095]])
    wanted = array(model((source_ids, target_ids)))
    floats = source_ids.astype("float32"), target_ids.astype("float32")
    np.testing.assert_array_equal(array(model(floats)), wanted)
    inputs = keras.Input((None,)), keras.Input((None,))
    functional = keras.Model(inputs, model(inputs))
    np.testing.assert_array_equal(array(functional(floats)), wanted)


@both_models
@pytest.mark.parametrize("number", [2.5, np.nan])
def test_floats_that_are_no_ids_are_refused(make, number):
    model, bad = built(make), TARGET_IDS + np.float32(number)
    for call in (model, lambda pair: model.score(*pair)):
        with pytest.raises(ValueError, match=r"`target_ids` must be integers(.|\n)*with (4.5|nan)"):
            call((SOURCE_IDS, bad))


@pytest.mark.skipif(BACKEND == "torch", reason="makes symbols into tensors, whose values are read")
@both_models
def test_a_dtype_that_does_not_hold_the_vocabulary_is_refused(make):
    model = built(make, 300)
    inputs = keras.Input((None,), dtype="int32"), keras.Input((None,), dtype="bfloat16")
    with pytest.raises(ValueError, match=r"`target_ids` must be of a dtype that(.|\n)*bfloat16"):
        model(inputs)


@both_models
@pytest.mark.parametrize(
    ("inputs", "received"),
    [
        ({"source": SOURCE_IDS, "target": TARGET_IDS}, r"a dict with the keys \['source', 'tar"),
        ((SOURCE_IDS, TARGET_IDS, TARGET_IDS), "a tuple of 3"),
        (SOURCE_IDS, r"one .* of shape \(2, 4\)"),
    ],
    ids=["dict", "three", "one"],
)
def test_inputs_that_are_no_pair_are_refused(make, inputs, received):
    message = r"`inputs` must be the pair \(source_ids, target_ids\). Received: inputs=" + received
    with pytest.raises(ValueError, match=message):
        built(make)(inputs)


@pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)
def test_exports_read_the_shapes_of_pairs_whatever_build_got(make):
    # A translator builds the model without a shape, and a call builds it by that of its batch.
    model = make(300)
    model.build()
    model((SOURCE_IDS, TARGET_IDS))
    assert model.get_build_config() == {"input_shape": ((None, None), (None, None))}


@on_tensorflow
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "policy", "way"),
    [
        ("transformer", "float32", "model"),
        ("transformer", "float32", "saved"),
        ("recurrent", "mixed_bfloat16", "model"),
        ("recurrent", "mixed_bfloat16", "functional"),
    ],
)
def test_keras_and_tensorflow_export_a_model_whose_ids_are_int32(name, policy, way, tmp_path):
    import tensorflow as tf

    model = MODELS[name](300, dtype=policy)
    source_ids, target_ids = SOURCE_IDS + 257, TARGET_IDS + 257
    model.encode(source_ids)
    model((source_ids, target_ids))  # Keras exports what it has seen called
    randomise(model)
    wanted = array(model((source_ids, target_ids)))
    if way == "saved":
        tf.saved_model.save(model, str(tmp_path / "saved"))
        loaded = tf.saved_model.load(str(tmp_path / "saved"))
        serve = loaded.signatures["serving_default"]
        specs = serve.structured_input_signature[1]
        assert {spec.dtype for spec in specs.values()} == {tf.int32}
        pair = zip(sorted(specs), (source_ids, target_ids), strict=True)
        (found,) = serve(**{name: tf.constant(ids) for name, ids in pair}).values()
    else:
        if way == "functional":
            inputs = keras.Input((None,), dtype="int32"), keras.Input((None,), dtype="int32")
            model = keras.Model(inputs, model(inputs))
        model.export(tmp_path / way, verbose=False)
        loaded = tf.saved_model.load(str(tmp_path / way))
        found = loaded.serve((tf.constant(source_ids), tf.constant(target_ids)))
    np.testing.assert_allclose(array(found), wanted, atol=0.05 if policy != "float32" else 1e-5)


@pytest.mark.slow
@on_tensorflow
def test_a_functional_model_of_inputs_without_a_dtype_is_exported(tmp_path):
    import tensorflow as tf

    model = built(MODELS["transformer"])
    inputs = keras.Input((None,)), keras.Input((None,))
    keras.Model(inputs, model(inputs)).export(tmp_path / "model", verbose=False)
    loaded = tf.saved_model.load(str(tmp_path / "model"))
    found = loaded.serve(tuple(map(tf.constant, FLOATS)))
    np.testing.assert_allclose(array(found), array(model((SOURCE_IDS, TARGET_IDS))), atol=1e-5)


@pytest.mark.skipif(BACKEND == "tensorflow", reason="tests above are of its exports")
def test_ids_as_tensors_of_floats_are_read():
    model = built(MODELS["transformer"])
    with pytest.raises(ValueError, match="`source_ids` must be integers.*with 5.5"):
        model.encode(ops.convert_to_tensor(FLOATS[0] + np.float32(0.5)))
