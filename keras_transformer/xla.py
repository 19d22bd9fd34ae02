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
    # The operation has no gradient of its own.
    barrier = tf.custom_gradient(lambda x: (optimization_barrier(x)[0], lambda gradient: gradient))
    return barrier(tensor)
