"""One export of the trained translator for all tests that only read it."""

import pytest


@pytest.fixture(scope="session")
def exported(tmp_path_factory):
    """The directory of the export, whose model card is `trained.CARD`."""
    # Only here: other backends collect this folder too, and have no TensorFlow.
    from tests.serving.trained import CARD, translator

    path = tmp_path_factory.mktemp("model") / "letters" / "3"
    translator().export(path, card=CARD, verbose=False)
    return path
