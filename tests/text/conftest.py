"""Small tokenizers of each kind, trained once."""

import pytest

from tests.text.small_tokenizers import KINDS, SENTENCES, train


@pytest.fixture(scope="session")
def sentences():
    return list(SENTENCES)


@pytest.fixture(scope="session")
def tokenizers():
    pytest.importorskip("tensorflow")
    pytest.importorskip("tensorflow_text")
    return {kind: train(kind) for kind in KINDS}


@pytest.fixture(params=KINDS)
def tokenizer(request, tokenizers):
    return tokenizers[request.param]
