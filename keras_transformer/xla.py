"""What XLA, the compiler of TensorFlow and JAX, must be told and `keras.ops` has no name for."""

import keras


def apart(tensor):
    """`tensor`, which XLA computes apart from what it is made of and from what reads it.

    Outside XLA it does nothing.
    """
    backend = keras.backend.backend()
    if backend == "jax":
        from jax.lax import optimization_barrier

        return optimization_barrier(tensor)
    if backend == "tensorflow":
        import tensorflow as tf
        from tensorflow.compiler.tf2xla.python.xla import optimization_barrier
        from tensorflow.python.ops.control_flow_util import GraphOrParentsInXlaContext

        graph = None if tf.executing_eagerly() else tf.compat.v1.get_default_graph()
        if graph is not None and GraphOrParentsInXlaContext(graph):
            return optimization_barrier(tensor)[0]
    return tensor
