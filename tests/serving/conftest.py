"""One export of the trained translator for all tests that only read it."""

import contextlib
import io

import pytest


@pytest.fixture(scope="session")
def exported_and_printed(tmp_path_factory):
    # Only here: other backends collect this folder too, and have no TensorFlow.
    from tests.serving.trained import CARD, translator

    path = tmp_path_factory.mktemp("model") / "letters" / "3"
    translator()(["abc"])
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        translator().export(path, card=CARD)
    return path, printed.getvalue()


@pytest.fixture(scope="session")
def exported(exported_and_printed):
    """The directory of the export, whose model card is `trained.CARD`."""
    return exported_and_printed[0]


@pytest.fixture
def eagerly():
    """Runs every TensorFlow function as Python, for a translator that is called once or twice."""
    import tensorflow as tf

    from tests.serving.trained import translator

    translator()  # is trained before: its tf.data functions warn that they are none of Python
    tf.config.run_functions_eagerly(True)
    yield
    tf.config.run_functions_eagerly(False)


@pytest.fixture
def export_only(monkeypatch):
    """`export_only(*names)` makes translators export these signatures alone."""
    from keras_transformer.serving.string_functions import StringFunctions

    def choose(*names):
        signatures = property(lambda self: {name: getattr(self, name) for name in names})
        monkeypatch.setattr(StringFunctions, "signatures", signatures)

    return choose
