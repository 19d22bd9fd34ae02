"""Random batches of sentences for the searches, and what is expected of each sentence."""

import functools
from typing import Any, NamedTuple

import numpy as np
from keras import ops

from tests.backends import arrays, compiled
from tests.decoding.reference_search import Sentence, beam_search, score
from tests.decoding.step_functions import PAD, SPECIAL, number_of, random_table, steps_of
from tests.numpy_reference import softmax

# pad, bos, eos and the tokens A, B and C. `1 + 3 + 9 + 27` sequences of 0 to 3 tokens end by
# position 4, and 81 are cut there.
VOCAB, MAX_LENGTH, SOURCE, SENTENCES = 6, 4, 3, 12
NUM_SEQUENCES = 1 + 3 + 9 + 27 + 81
# Choices closer than this are left to rounding.
CLOSE = 1e-4


class Problem(NamedTuple):
    """What the call of a search is given, as arrays, one row for each sentence."""

    table: Any
    attention: Any
    length_limits: Any
    source_lengths: Any
    prefix_ids: Any


def peaked_problem(seed, sentences, max_length):
    """Sentences whose first token says almost all that follows: long ones overtake short ones."""
    random = np.random.default_rng(seed)
    table = random_table(seed, sentences, max_length, scale=8.0)
    table[:, number_of(())] = random.normal(size=(sentences, table.shape[-1]))
    nothing = np.zeros((sentences, 0), "int32")
    limits = np.full(sentences, max_length, "int32")
    return Problem(table, table, limits, limits, nothing)


def random_problem(seed, sentences=SENTENCES, eos_bonus=0.0, prefixes=True, limits=True):
    """Gives each sentence a table, and half of the sentences a prefix or a limit of their own."""
    random = np.random.default_rng(seed)
    table = random_table(seed, sentences, MAX_LENGTH, eos_bonus=eos_bonus, vocab=VOCAB)
    attention = softmax(random.normal(scale=2.0, size=(*table.shape[:2], SOURCE)))
    length_limits = random.integers(1, 2 * MAX_LENGTH, sentences) if limits else [MAX_LENGTH]
    # A prefix may hold what no rule lets through: `bos`, or an early `eos`.
    prefix_ids = random.integers(1, VOCAB, (sentences, MAX_LENGTH - 1))
    prefix_lengths = np.maximum(random.integers(-3, MAX_LENGTH, sentences), 0) * prefixes
    prefix_ids[np.arange(MAX_LENGTH - 1) >= prefix_lengths[:, None]] = PAD
    return Problem(
        table,
        attention.astype("float32"),
        np.minimum(np.resize(length_limits, sentences), MAX_LENGTH).astype("int32"),
        random.integers(0, 7, sentences).astype("int32"),
        prefix_ids.astype("int32"),
    )


def sentence_of(problem, number):
    """The same for plain Python."""
    vocab = problem.table.shape[-1]
    prefix = problem.prefix_ids[number].tolist()
    return Sentence(
        lambda ids: problem.table[number, number_of(ids, vocab)],
        lambda ids: problem.attention[number, number_of(ids, vocab)],
        int(problem.length_limits[number]),
        int(problem.source_lengths[number]),
        tuple(prefix[: prefix.index(PAD)] if PAD in prefix else prefix),
    )


def run(search, problem, max_length=MAX_LENGTH, steps=None, **more):
    """Calls the search with the problem and `more`; `steps` are a step function and its state."""
    table, attention, *given = problem
    step, state = steps or steps_of(table, attention if search.needs_attention else None)
    limits, source_lengths, prefix_ids = map(ops.convert_to_tensor, given)
    return search(
        step,
        state,
        batch_size=ops.shape(table)[0],
        max_length=max_length,
        length_limits=limits,
        source_lengths=source_lengths,
        prefix_ids=prefix_ids,
        **SPECIAL,
        **more,
    )


@functools.cache
def fast(search_class, **options):
    """Compiles the search once; every later problem of the same size is its argument."""
    search = search_class(**options)
    example = random_problem(0)

    def call(*problem):
        shaped = [ops.reshape(x, e.shape) for x, e in zip(problem, example, strict=True)]
        return run(search, Problem(*shaped))

    run_compiled = compiled(call, list(example))
    return lambda problem: arrays(run_compiled(*problem))


def assert_ranks(result, number, options, expected):
    """Asserts that a sentence has the best of the expected hypotheses, the best first."""
    expected = sorted(expected, key=lambda h: score(options, h), reverse=True)
    by_ids = {hypothesis.ids: hypothesis for hypothesis in expected}
    asked = result.scores.shape[1]
    lengths = result.lengths[number]
    found = [tuple(ids[:n].tolist()) for ids, n in zip(result.ids[number], lengths, strict=True)]
    count = min(asked, len(expected))
    assert (lengths[:count] > 0).all()
    assert (lengths[count:] == 0).all()
    assert len(set(found[:count])) == count
    scores = [score(options, hypothesis) for hypothesis in expected[:count]]
    np.testing.assert_allclose(result.scores[number, :count], scores, atol=CLOSE)
    assert (np.diff(result.scores[number]) <= 0).all()
    assert (result.scores[number, count:] == -1e9).all()
    for rank, ids in enumerate(found[:count]):
        assert ids in by_ids
        assert_is(result, (number, rank), options, by_ids[ids])
    padding = np.arange(result.ids.shape[-1]) >= lengths[:, None]
    assert (result.ids[number][padding] == PAD).all()
    assert (result.token_log_probs[number][padding] == 0).all()
    if result.alignments is not None:
        assert (result.alignments[number][padding] == 0).all()


def assert_is(result, place, options, hypothesis):
    """Asserts that the result has this hypothesis in this place, in all its parts."""
    length = len(hypothesis.ids)
    assert abs(result.scores[place] - score(options, hypothesis)) < CLOSE
    log_probs = result.token_log_probs[place][:length]
    np.testing.assert_allclose(log_probs, hypothesis.log_probs, atol=CLOSE)
    assert (result.alignments is not None) == options.return_alignments
    if options.return_alignments:
        read = result.alignments[place][:length]
        np.testing.assert_allclose(read, hypothesis.attention, atol=1e-5)


def assert_is_by_hand(result, problem, options, length_penalties=None):
    """Asserts that sentences have what the search by hand finds, and that most could be told.

    A sentence cannot where a choice was too close; a single one need not.
    """
    told = 0
    for number in range(len(problem.table)):
        if length_penalties is not None:
            options = options._replace(length_penalty=length_penalties[number])
        expected, difference = beam_search(sentence_of(problem, number), options)
        if difference > CLOSE:
            assert_ranks(result, number, options, expected)
            told += 1
    assert told >= len(problem.table) * 4 // 5
