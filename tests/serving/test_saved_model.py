"""The directory of a SavedModel: equal nodes merge, and nothing else changes."""

import collections

import numpy as np
import pytest
import tensorflow as tf

from keras_transformer.serving.saved_model import merge_equal_nodes, read_saved_model

ANY_MATRIX = tf.TensorSpec([None, None], tf.float32)
SCALAR = tf.TensorSpec([], tf.float32)


@pytest.fixture
def merged(tmp_path):
    """Saves a function of `x`; gives its nodes before and after, and the loaded one to call."""

    def save(function, spec):
        module, path = tf.Module(), str(tmp_path / "saved")
        module.counter = tf.Variable(0.0)

        @tf.function(autograph=False)
        def outputs(x):
            return {str(number): part for number, part in enumerate(function(x, module.counter))}

        tf.saved_model.save(module, path, outputs.get_concrete_function(spec))
        saved, before = read_saved_model(path), read_saved_model(path)
        merge_equal_nodes(saved.meta_graphs[0].graph_def)
        (tmp_path / "saved" / "saved_model.pb").write_bytes(saved.SerializeToString())
        loaded = tf.saved_model.load(path)

        def run(x):
            found = loaded.signatures["serving_default"](x=tf.constant(x))
            return [found[name].numpy() for name in sorted(found)]

        return nodes_of(before), nodes_of(saved), run

    return save


def nodes_of(saved):
    """The nodes of the saved function of `x`, in lists by their operation."""
    (function,) = (
        part
        for part in saved.meta_graphs[0].graph_def.library.function
        if part.signature.name.startswith("__inference_outputs")
    )
    found = collections.defaultdict(list)
    for node in function.node_def:
        found[node.op].append(node)
    return found


def test_what_is_computed_twice_is_computed_once(merged):
    def function(x, _):
        yield tf.reshape(x, [tf.shape(x)[1], -1]) + tf.reshape(x * 2.0, [tf.shape(x)[1], -1])

    before, after, run = merged(function, ANY_MATRIX)
    for operation in ("Shape", "StridedSlice"):
        assert len(before[operation]) == 2
        assert len(after[operation]) == 1
    assert len(after["Const"]) < len(before["Const"])
    assert len(after["Reshape"]) == 2  # of x and of its double
    x = np.arange(6, dtype="float32").reshape(2, 3)
    np.testing.assert_array_equal(run(x)[0], 3 * x.reshape(3, 2))


def test_constants_of_other_values_or_types_stay_apart(merged):
    def function(x, _):
        yield x + tf.constant(1.0)
        yield x + tf.constant(2.0)
        yield tf.constant(1)
        yield tf.constant(1.0)

    before, after, run = merged(function, SCALAR)
    assert len(before["Const"]) == 4
    assert len(after["Const"]) == 3
    assert run(3.0) == [4, 5, 1, 1]


def test_random_numbers_are_drawn_as_often_as_before(merged):
    def function(x, _):
        yield x + tf.random.uniform([])
        yield x + tf.random.uniform([])

    _, after, run = merged(function, SCALAR)
    assert len(after["RandomUniform"]) == 2
    first, second = run(0.0)
    assert first != second


def test_an_order_that_control_asks_for_is_kept(merged):
    def function(x, counter):
        before = counter + x
        with tf.control_dependencies([counter.assign_add(x)]):
            yield before
            yield counter + x

    _, after, run = merged(function, SCALAR)
    assert len(after["AddV2"]) == 2
    assert run(1.0) == [1, 2]
    assert run(1.0) == [2, 3]


def test_a_node_beside_a_merged_one_stands_beside_the_other(merged):
    def function(x, _):
        first, second = tf.shape(x), tf.shape(x)
        with tf.compat.v1.colocate_with(second, ignore_existing=True):
            beside = tf.identity(x, name="beside")
        yield from (first, second, beside)

    before, after, run = merged(function, ANY_MATRIX)
    places = {node.attr["_class"].list.s[0] for node in after["Identity"] if "_class" in node.attr}
    assert len(before["Shape"]) == 2
    assert places == {f"loc:@{node.name}".encode() for node in after["Shape"]}
    np.testing.assert_array_equal(run(np.ones([2, 1], "float32"))[1], [2, 1])
