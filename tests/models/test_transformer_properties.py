"""What the whole model promises for any ids and options, drawn by hypothesis."""

import keras
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from keras_transformer.layers import (
    ALiBi,
    LearnedPositionalEncoding,
    RelativePositionBias,
    RotaryPositionalEncoding,
)
from keras_transformer.models import Transformer
from tests.backends import BACKEND, array, randomise

CASES = settings(
    # On JAX every new shape is compiled, operation by operation.
    max_examples=2,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
VOCAB, LONGEST = 11, 10
LENGTHS = st.sampled_from([1, 5, 10]) if BACKEND == "jax" else st.integers(1, LONGEST)
POSITIONS = [
    lambda: None,
    lambda: LearnedPositionalEncoding(LONGEST),
    RotaryPositionalEncoding,
    ALiBi,
    RelativePositionBias,
]


@pytest.fixture(autouse=True, scope="module")
def short_blocks():
    """Local windows are cut into blocks of 4, so that short rows have several."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("keras_transformer.layers.attention.SMALLEST_BLOCK", 4)
        yield


@st.composite
def cases(draw):
    num_key_value_heads = draw(st.integers(1, 2))
    num_heads = num_key_value_heads * draw(st.integers(1, 2))
    batch = draw(st.integers(1, 2))
    longest = draw(LENGTHS), draw(LENGTHS)
    return dict(
        arguments=dict(
            num_layers=draw(st.integers(1, 2)),
            num_heads=num_heads,
            d_model=num_heads * 2 * draw(st.integers(1, 2)),
            d_ff=draw(st.integers(1, 7)),
            norm_first=draw(st.booleans()),
            rms_norm=draw(st.booleans()),
            activation=draw(st.sampled_from(["relu", "gelu", "swiglu", "geglu"])),
            num_key_value_heads=num_key_value_heads,
            window=draw(st.sampled_from([None, 0, 1, 4])),
            **draw(
                st.sampled_from(
                    [{"vocab_size": VOCAB}, {"source_vocab_size": 7, "target_vocab_size": VOCAB}]
                )
            ),
        ),
        position=draw(st.sampled_from(POSITIONS)),
        seed=draw(st.integers(0, 2**16)),
        lengths=[
            draw(st.lists(st.integers(1, length), min_size=batch, max_size=batch))
            for length in longest
        ],
        longest=longest,
    )


def made(case):
    """A model with weights, and source and target ids with their lengths."""
    model = Transformer(**case["arguments"], position=case["position"]())
    model.build()
    randomise(model, case["seed"], scale=0.5)
    random = np.random.default_rng(case["seed"])
    ids = []
    for longest, lengths in zip(case["longest"], case["lengths"], strict=True):
        real = np.arange(longest)[None] < np.array(lengths)[:, None]
        ids.append(np.where(real, random.integers(1, 7, real.shape), 0).astype("int32"))
    return model, ids


@CASES
@given(cases())
def test_padding_and_neighbours_change_nothing(case):
    model, ids = made(case)
    whole = array(model(ids))
    assert np.isfinite(whole).all()
    for row, (source, target) in enumerate(zip(*case["lengths"], strict=True)):
        alone = array(model([ids[0][row : row + 1, :source], ids[1][row : row + 1, :target]]))
        np.testing.assert_allclose(whole[row, :target], alone[0], atol=2e-5, rtol=1e-5)


@pytest.mark.slow
@CASES
@given(cases(), st.integers(0, LONGEST - 1))
def test_later_targets_do_not_change_earlier_logits(case, start):
    model, (source, target) = made(case)
    changed = target.copy()
    changed[:, start:] = np.where(target[:, start:] > 0, 7 - target[:, start:], 0)
    logits, other = array(model((source, target))), array(model((source, changed)))
    np.testing.assert_allclose(other[:, :start], logits[:, :start], atol=1e-6)


@pytest.mark.slow
@CASES
@given(cases())
def test_nan_in_the_row_of_padding_reaches_no_other_token(case):
    model, ids = made(case)
    expected = array(model(ids))[..., 1:]
    for embedding in {id(e): e for e in (model.source_embedding, model.target_embedding)}.values():
        (table,) = embedding.get_weights()
        table[0] = np.nan
        embedding.set_weights([table])
    real = ids[1] > 0
    logits = array(model(ids))[..., 1:]  # that of padding itself is a product with its row
    np.testing.assert_allclose(logits[real], expected[real], atol=1e-6)


@pytest.mark.slow
@CASES
@given(cases())
def test_configuration_and_weights_rebuild_it_and_symbols_have_its_shape(case):
    model, ids = made(case)
    expected = model(ids)
    again = Transformer.from_config(model.get_config())
    again.build()
    again.set_weights(model.get_weights())
    assert again.get_config() == model.get_config()
    assert (array(again(ids)) == array(expected)).all()
    symbols = [keras.Input(x.shape[1:], len(x), dtype="int32") for x in ids]
    assert tuple(model(symbols).shape) == tuple(expected.shape)
