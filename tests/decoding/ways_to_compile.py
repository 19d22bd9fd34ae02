"""The ways in which a backend compiles a search."""

from tests.backends import BACKEND, compiled

WAYS = ["graph", "xla"] if BACKEND == "tensorflow" else ["compiled"] if BACKEND == "jax" else []


def in_way(way, function, examples):
    if way == "xla":
        import tensorflow as tf

        return tf.function(function, jit_compile=True, autograph=False)
    return compiled(function, examples)
