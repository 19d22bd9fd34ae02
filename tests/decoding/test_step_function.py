"""What the searches refuse of a step function, and what they let it keep as its state."""

import numpy as np
import pytest
from keras import ops

from keras_transformer import BeamSearch, GreedySearch, Sampling
from tests.backends import arrays

SIZES = dict(batch_size=2, max_length=3, bos_id=1, eos_id=2)
SEARCHES = [GreedySearch(), BeamSearch(2), Sampling(num_samples=2, seed=1)]
searches = pytest.mark.parametrize("search", SEARCHES, ids=lambda search: type(search).__name__)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (lambda rows, state: np.zeros((rows, 6), "float32"), r"must return \(logits, state\)"),
        (lambda rows, state: (np.zeros((rows, 6), "float32"),), r"must return \(logits, state\)"),
        (lambda rows, state: (np.zeros(6, "float32"), state), r"logits must be \(rows, vocab\)"),
        (lambda rows, state: (np.zeros((1, 6), "float32"), state), r"logits must be \(rows, vocab"),
        (lambda rows, state: (np.zeros((rows, 1, 6), "float32"), state), r"logits must be \(rows"),
    ],
)
@searches
def test_a_bad_answer_of_the_step_is_refused(search, answer, message):
    def step(tokens, index, state):
        found = answer(len(tokens), state)
        return tuple(map(ops.convert_to_tensor, found)) if isinstance(found, tuple) else found

    with pytest.raises(ValueError, match=f"the step function.*{message}.*Received: "):
        search(step, (), **SIZES)


@pytest.mark.parametrize("shape", [(1, 4), (4,), (2, 4, 1)])
@pytest.mark.parametrize(
    "search", [GreedySearch(return_alignments=True), BeamSearch(2, coverage_penalty=0.5)]
)
def test_attention_must_have_a_row_for_each_token(search, shape):
    def step(tokens, index, state):
        return ops.zeros((len(tokens), 6)), state, ops.ones(shape)

    with pytest.raises(ValueError, match=r"attention must be \(rows, source\). Received: shape"):
        search(step, (), **SIZES)


@pytest.mark.parametrize("answer", [(), (None,)])
@pytest.mark.parametrize(
    "search",
    [
        GreedySearch(return_alignments=True),
        BeamSearch(2, return_alignments=True),
        BeamSearch(2, coverage_penalty=0.1),
        Sampling(seed=0, return_alignments=True),
    ],
    ids=["greedy", "beam", "coverage", "sampling"],
)
def test_a_step_without_attention_is_refused(search, answer):
    def step(tokens, index, state):
        return ops.zeros((len(tokens), 6)), state, *answer

    message = r"must return \(logits, state, attention\).* Received: no attention"
    with pytest.raises(ValueError, match=message):
        search(step, (), **SIZES)


def test_a_source_mask_must_be_as_wide_as_the_attention():
    def step(tokens, index, state):
        return ops.zeros((len(tokens), 6)), state, ops.ones((len(tokens), 4))

    search, mask = BeamSearch(2, coverage_penalty=0.5), np.ones((2, 1), bool)
    with pytest.raises(ValueError, match="`source_mask` must be as wide as .* widths 1 and 4"):
        search(step, (), source_mask=mask, **SIZES)


@pytest.mark.parametrize("shape", [(), (1, 3), (3, 2)])
@searches
def test_a_state_must_begin_with_the_batch(search, shape):
    def step(tokens, index, state):
        return ops.zeros((len(tokens), 6)), state

    with pytest.raises(ValueError, match="each part of `state` must be .* 2 sentences"):
        search(step, {"of": [ops.zeros(shape)]}, **SIZES)


@searches
def test_a_part_of_the_state_may_be_none(search):
    def step(tokens, index, state):
        assert state["nothing"] is None
        return 9.0 * ops.one_hot((tokens + 1 + state["of"]) % 8, 8), state

    state = {"nothing": None, "of": ops.ones((2,), "int32")}
    assert arrays(search(step, state, **SIZES)).ids[:, 0].tolist() == [[3, 5, 7]] * 2
