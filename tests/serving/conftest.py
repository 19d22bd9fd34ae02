"""What tests of translators share that call one once or twice."""

import pytest


@pytest.fixture
def trained():
    """Trains the translator before functions run as Python: its tf.data functions would warn."""
    from tests.serving.trained import translator

    translator()


@pytest.fixture
def eagerly(trained, eagerly):
    """Runs every TensorFlow function as Python, after the training."""
