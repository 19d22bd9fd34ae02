"""What XLA, compiling for TensorFlow, must be told and `keras.ops` has no name for."""

import keras


def apart(tensor):
    """`tensor`, which XLA computes apart from what it is made of and from what reads it.

    Outside a function that XLA compiles on TensorFlow it does nothing.
    """
    if keras.backend.backend() != "tensorflow":
        return tensor
    import tensorflow as tf
    from tensorflow.compiler.tf2xla.python.xla import optimization_barrier
    from tensorflow.python.ops.control_flow_util import GraphOrParentsInXlaContext

    graph = tf.compat.v1.get_default_graph()
    if tf.executing_eagerly() or not GraphOrParentsInXlaContext(graph):
        return tensor
    return optimization_barrier(tensor)[0]
