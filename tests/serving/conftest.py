"""A way of running a translator that takes less time where it is called once or twice."""

import pytest


@pytest.fixture
def eagerly():
    """Runs every TensorFlow function as Python, for a translator that is called once or twice."""
    import tensorflow as tf

    from tests.serving.trained import translator

    translator()  # is trained before: its tf.data functions warn that they are none of Python
    tf.config.run_functions_eagerly(True)
    yield
    tf.config.run_functions_eagerly(False)
