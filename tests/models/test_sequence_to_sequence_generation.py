"""The options of a search through the whole model: prefixes, alignments, lengths, batches."""

import numpy as np
import pytest

from keras_transformer import BeamSearch, GreedySearch, PositionalEncoding, Sampling
from keras_transformer.models.transformer_step import TransformerStep
from tests.backends import array, arrays
from tests.decoding.ways_to_compile import WAYS, in_way
from tests.models.small_recurrent import shared
from tests.models.small_transformer import BOS, SOURCE_IDS, VOCAB, built

SEARCHES = {
    "greedy": GreedySearch(),
    "beam": BeamSearch(3),
    "groups": BeamSearch(4, num_groups=2, diversity_penalty=0.5),
    "coverage": BeamSearch(3, coverage_penalty=0.4),
    "ratios": BeamSearch(2, min_length_ratio=0.5, max_length_ratio=0.9),
    "sampling": Sampling(num_samples=3, top_k=5, seed=1),
}


def slow_but(*names):
    """A test of every search; the default run tries these, and tests/decoding all."""
    return pytest.mark.parametrize(
        "search",
        [
            pytest.param(search, id=name, marks=() if name in names else pytest.mark.slow)
            for name, search in SEARCHES.items()
        ],
    )


@slow_but("greedy", "beam", "sampling")
def test_outputs_begin_with_the_prefix(search):
    model = built(scale=0.2, num_layers=1)
    prefix_ids = np.array([[5, 6, 7], [8, 0, 0]])
    found = arrays(model.generate(SOURCE_IDS, search, max_length=5, prefix_ids=prefix_ids))
    assert (found.ids[0, :, :3] == [5, 6, 7]).all()
    assert (found.ids[1, :, 0] == 8).all()
    rescored = arrays(model.score(SOURCE_IDS, found.ids[:, 0]))
    np.testing.assert_allclose(rescored.token_log_probs, found.token_log_probs[:, 0], atol=1e-4)


@slow_but("beam", "sampling")
def test_alignments_are_the_last_layers_mean_over_heads(search):
    model = built(scale=0.2)
    config = {**search.get_config(), "return_alignments": True}
    found = arrays(model.generate(SOURCE_IDS, type(search)(**config), max_length=5))
    plain = arrays(model.generate(SOURCE_IDS, search, max_length=5))
    assert plain.alignments is None
    assert (found.ids == plain.ids).all()
    assert found.alignments.shape == (*found.ids.shape, SOURCE_IDS.shape[1])
    batch, count, length = found.ids.shape
    ids = found.ids.reshape(-1, length)
    inputs = np.concatenate([np.full((len(ids), 1), BOS), ids[:, :-1]], axis=1).astype("int32")
    sources = np.repeat(SOURCE_IDS, count, axis=0)
    weights = array(model.attention_weights(sources, inputs)[-1]).mean(axis=1)
    weights = weights.reshape(batch, count, length, -1)
    real = np.arange(length) < found.lengths[..., None]
    expected = np.where(real[..., None], weights, 0.0)
    np.testing.assert_allclose(found.alignments, expected, atol=1e-5)


@pytest.mark.parametrize("beam_size", [pytest.param(1, marks=pytest.mark.slow), 5])
def test_following_paths_equals_reordering_the_caches(beam_size):
    model, search = built(scale=0.2), BeamSearch(beam_size)
    found = arrays(model.generate(SOURCE_IDS, search, max_length=7))
    step = TransformerStep(model, SOURCE_IDS, model.encode(SOURCE_IDS), 7)

    def reordering(tokens, index, caches):
        return step(tokens, index, caches)

    expected = search(
        reordering,
        model.decoder.start_cache(2, 7),
        batch_size=2,
        max_length=7,
        bos_id=model.bos_id,
        eos_id=model.eos_id,
    )
    for one, other in zip(found[:4], arrays(expected)[:4], strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)


@pytest.mark.parametrize(
    "name",
    ["beam", "ratios", *(pytest.param(n, marks=pytest.mark.slow) for n in ("groups", "coverage"))],
)
def test_a_sentence_is_translated_alike_in_any_company(name):
    model, search = built(scale=0.2, num_layers=1), SEARCHES[name]
    random = np.random.default_rng(2)
    lengths = [1, 3, 5, 8]
    batch = np.zeros((4, 8), "int32")
    for row, length in enumerate(lengths):
        batch[row, : length - 1] = random.integers(4, 11, length - 1)
        batch[row, length - 1] = model.eos_id
    whole = arrays(model.generate(batch, search, max_length=5))
    # Two in another order with less padding, one alone, and all with more padding.
    for rows, width in (([2, 0], 5), ([1], 3), ([3, 2, 1, 0], 8)):
        part = np.pad(batch[rows, :width], [(0, 0), (0, 4 if len(rows) == 4 else 0)])
        found = arrays(model.generate(part, search, max_length=5))
        assert (found.ids == whole.ids[rows]).all()
        np.testing.assert_allclose(found.scores, whole.scores[rows], atol=1e-5)


@slow_but("greedy", "beam", "sampling")
def test_no_sentences_give_no_hypotheses(search):
    found = built(num_layers=1).generate(SOURCE_IDS[:0], search, max_length=4)
    assert tuple(found.ids.shape) == (0, search.hypotheses_per_sentence, 4)
    assert tuple(found.scores.shape) == tuple(found.ids.shape[:2])


def test_lengths_relative_to_the_source_do_not_count_its_padding():
    model = built(scale=0.2, num_layers=1)
    lengths = (SOURCE_IDS != 0).sum(axis=1)
    long = arrays(model.generate(SOURCE_IDS, GreedySearch(min_length_ratio=2.0), max_length=12))
    assert (long.lengths[:, 0] >= 2 * lengths).all()
    short = arrays(model.generate(SOURCE_IDS, BeamSearch(max_length_ratio=0.5), max_length=12))
    assert (short.lengths <= np.ceil(0.5 * lengths)[:, None]).all()


def test_the_largest_length_is_the_argument_or_follows_the_source_and_the_positions():
    model, short = built(), built(position=PositionalEncoding(9))
    assert model.limit_lengths(7) == 57
    assert array(model.limit_lengths(np.array([7, 0]))).tolist() == [57, 50]
    assert model.limit_lengths(np.array([7, 0]), max_length=4) == 4
    assert short.limit_lengths(7) == 9
    assert array(short.limit_lengths(np.array([7, 0]))).tolist() == [9, 9]


# Those of a Transformer: `test_generate_is_traced_once_for_every_batch_and_length`.
RECURRENT = {
    "lstm": {"cell": "lstm", "attention": "additive"},
    "gru": {"cell": "gru", "attention": None},
}


@pytest.mark.parametrize(
    ("way", "name"),
    [
        pytest.param(way, name, marks=pytest.mark.slow if way == "xla" else ())
        for way, name in zip(WAYS, RECURRENT, strict=False)
    ],
)
def test_a_recurrent_model_writes_the_same_whichever_way_it_is_run(way, name):
    model, search = shared(num_layers=1, **RECURRENT[name]), BeamSearch(3)

    def write(source_ids):
        return tuple(model.generate(source_ids, search, max_length=4))[:4]

    run = in_way(way, write, [SOURCE_IDS])
    for part, expected in zip(arrays(run(SOURCE_IDS)), arrays(write(SOURCE_IDS)), strict=True):
        np.testing.assert_allclose(part, expected, atol=1e-5)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"source_ids": [[5, 3], [VOCAB, 3]]}, "`source_ids` must be ids .* 0 to 16. .*with 17"),
        ({"source_ids": [[5, -1], [4, 3]]}, "`source_ids` must be ids .*with -1"),
        ({"source_ids": [5, 3]}, "`source_ids` must be .batch, length.. .*shape .2,"),
        (
            {"prefix_ids": [[5], [VOCAB]]},
            "`prefix_ids` must be below the size of the .*17. .*with 17",
        ),
        ({"search": "beam"}, "`search` must be a search of .*Received: search='beam'"),
        ({"search": BeamSearch}, "`search` must be a search of .*BeamSearch"),
        ({"length_limits": [0, 3]}, "`length_limits` must be at least 1"),
        ({"length_limits": [3, 3, 3]}, "`length_limits` must be .batch,., a number for each"),
        ({"max_length": 4, "length_limits": [0, 3]}, "`length_limits` must be at least 1"),
    ],
)
def test_what_cannot_be_searched_is_refused(given, message):
    with pytest.raises(ValueError, match=message):
        built(num_layers=1).generate(**{"source_ids": [[5, 3], [4, 3]], **given})
