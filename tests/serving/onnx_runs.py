"""Runs a TensorFlow function in TensorFlow and, converted, in onnxruntime."""

import numpy as np
import pytest
import tensorflow as tf

from keras_transformer.serving.onnx_loop import convert_function


def convert(function, inputs, open_axes=True):
    """The concrete function, and the ONNX model of it; all lengths are unknown, or all known."""
    specs = []
    for index, array in enumerate(inputs):
        shape = [None] * np.ndim(array) if open_axes else np.shape(array)
        specs.append(tf.TensorSpec(shape, np.asarray(array).dtype, name=f"input_{index}"))

    def as_tuple(*tensors):
        found = function(*tensors)
        return found if isinstance(found, tuple) else (found,)

    made = tf.function(as_tuple, input_signature=specs, autograph=False).get_concrete_function()
    names = [f"output_{index}" for index in range(len(made.outputs))]
    sizes = {f"input_{i}": [f"i{i}_{a}" for a in range(np.ndim(x))] for i, x in enumerate(inputs)}
    sizes |= {
        name: [f"{name}_{axis}" for axis in range(tensor.shape.rank)]
        for name, tensor in zip(names, made.outputs, strict=True)
    }
    return made, convert_function(made, names, sizes)


def run_model(model, **inputs):
    """What onnxruntime computes."""
    onnxruntime = pytest.importorskip("onnxruntime")
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return session.run(None, inputs)


def compare(function, *inputs, atol=0.0):
    """Raises unless both give the same, with unknown lengths of axes and with known ones."""
    inputs = [np.asarray(array) for array in inputs]
    for open_axes in (True, False):
        made, model = convert(function, inputs, open_axes)
        expected = [tensor.numpy() for tensor in made(*map(tf.constant, inputs))]
        named = {f"input_{index}": array for index, array in enumerate(inputs)}
        found = run_model(model, **named)
        for one, two in zip(expected, found, strict=True):
            assert one.shape == two.shape
            np.testing.assert_allclose(one, two, rtol=0, atol=atol)


def loop_body(model):
    """The graph of the one loop of a model."""
    loops = [node for node in model.graph.node if node.op_type == "Loop"]
    assert len(loops) == 1
    return loops[0].attribute[0].g


def search_of(model, search, max_length):
    """A function of source ids, which gives ids, scores and lengths."""

    def function(source_ids):
        found = model.generate(source_ids, search, max_length)
        return found.ids, found.scores, found.lengths

    return function


def sources(rows, length, vocab_size, seed=0):
    """Random sources of all lengths, each with its end, padded."""
    generator = np.random.default_rng(seed)
    ids = generator.integers(4, vocab_size, (rows, length)).astype(np.int32)
    for row in range(rows):
        end = row % length
        ids[row, end] = 3
        ids[row, end + 1 :] = 0
    return ids
