"""What the searches refuse, and that their configurations hold every argument."""

import inspect
import json
import re

import numpy as np
import pytest
from keras import ops

from keras_transformer import BeamSearch, GreedySearch, Sampling
from tests.backends import array, arrays
from tests.decoding.problems import random_problem, run

# No argument has its default value.
OPTIONS = {
    "min_length": 2,
    "min_length_ratio": 0.25,
    "max_length_ratio": 1.5,
    "repetition_penalty": 1.25,
    "no_repeat_ngram_size": 3,
    "suppressed_ids": [4, 5],
    "allowed_ids": [3, 2],
    "return_alignments": True,
    "renormalize": True,
}
OWN = {
    GreedySearch: {},
    BeamSearch: {
        "beam_size": 6,
        "length_penalty": 1.5,
        "num_hypotheses": 2,
        "coverage_penalty": 0.5,
        "num_groups": 3,
        "diversity_penalty": 0.75,
        "early_stopping": "current_length",
        "length_formula": "power",
    },
    Sampling: {
        "temperature": 0.5,
        "top_k": 7,
        "top_p": 0.875,
        "min_p": 0.125,
        "num_samples": 3,
        "seed": 11,
    },
}
INTEGER, POSITIVE = "an integer of at least 0", "a positive integer"
NUMBER, ABOVE = "a finite number of at least 0", "a finite number above 0"
TO_10, TO_1000 = "a number from 0 to 10", "a number from 0 to 1000"
REPETITION = "a number from 0.01 to 100"
BOOLEAN, RATE = "True or False", "a number in [0, 1)"
PREFIX = "one of True, False, 'prefix'"
STOP = "one of True, False, 'current_length'"
IDS = "a list of integers of at least 0"
INFINITE, NAN = float("inf"), float("nan")
BAD = {
    INTEGER: [-1, 0.5, "1", True],
    POSITIVE: [0, -2, 1.5, True],
    NUMBER: [-0.5, INFINITE, NAN, "1", None, True],
    ABOVE: [0, -1.0, INFINITE, NAN, "1", True],
    TO_10: [-0.5, 10.5, INFINITE, NAN, "1", None, True],
    TO_1000: [-0.5, 1001, INFINITE, NAN, "1", None, True],
    REPETITION: [0, -1.0, 1e-38, 101, INFINITE, NAN, "1", True],
    BOOLEAN: [0, 1, "yes", None],
    PREFIX: [0, 1, "yes", None],
    STOP: [0, 1, "never", None],
    RATE: [-0.1, 1.0, NAN, "0.5", True],
    IDS: [[-1], [0.5], 3, "ab", [True], [[1]]],
}
RULES = {
    GreedySearch: {
        "min_length": INTEGER,
        "min_length_ratio": NUMBER,
        "max_length_ratio": ABOVE,
        "repetition_penalty": REPETITION,
        "no_repeat_ngram_size": INTEGER,
        "suppressed_ids": IDS,
        "allowed_ids": IDS,
        "return_alignments": BOOLEAN,
        "renormalize": PREFIX,
    },
    BeamSearch: {
        "beam_size": POSITIVE,
        "length_penalty": TO_10,
        "num_hypotheses": POSITIVE,
        "coverage_penalty": TO_1000,
        "num_groups": POSITIVE,
        "diversity_penalty": TO_1000,
        "early_stopping": STOP,
        "min_length": INTEGER,
    },
    Sampling: {
        "temperature": ABOVE,
        "top_k": INTEGER,
        "top_p": ABOVE,
        "min_p": RATE,
        "num_samples": POSITIVE,
        "seed": INTEGER,
        "allowed_ids": IDS,
    },
}
CASES = [
    pytest.param(search_class, name, rule, value, id=f"{search_class.__name__} {name}={value!r}")
    for search_class, rules in RULES.items()
    for name, rule in rules.items()
    for value in BAD[rule]
]
classes = pytest.mark.parametrize("search_class", OWN, ids=lambda value: value.__name__)


@pytest.mark.parametrize(("search_class", "name", "rule", "value"), CASES)
def test_a_bad_argument_is_refused_with_the_rule_and_the_value(search_class, name, rule, value):
    message = f"`{name}` must be {rule}. Received: {name}={value!r}"
    with pytest.raises(ValueError, match=re.escape(message)):
        search_class(**{name: value})


@pytest.mark.parametrize(
    ("search_class", "given", "message"),
    [
        (
            BeamSearch,
            {"beam_size": 2, "num_hypotheses": 3},
            "`num_hypotheses` must be at most `beam_size`. Received: num_hypotheses=3, beam_size=2",
        ),
        (
            BeamSearch,
            {"beam_size": 4, "num_groups": 3},
            "`num_groups` must divide `beam_size`. Received: num_groups=3, beam_size=4",
        ),
        (
            BeamSearch,
            {"beam_size": 4, "diversity_penalty": 0.5},
            "`diversity_penalty` must be 0 for a single group. "
            "Received: diversity_penalty=0.5, num_groups=1",
        ),
        (Sampling, {"top_p": 1.5}, "`top_p` must be in (0, 1]. Received: top_p=1.5"),
        (Sampling, {"seed": 2**70}, f"`seed` must be below 2**32. Received: seed={2**70}"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(search_class, given, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        search_class(**given)


@pytest.mark.parametrize("name", ["suppressed_ids", "allowed_ids"])
@classes
def test_ids_beyond_the_vocabulary_are_refused(search_class, name):
    problem = random_problem(0)
    message = f"`{name}` must be below the size of the vocabulary, 6. Received: {name} with 6"
    with pytest.raises(ValueError, match=re.escape(message)):
        run(search_class(**{name: [5, 6]}), problem)
    run(search_class(**{name: [5]}), problem)


@pytest.mark.parametrize("name", ["min_length_ratio", "max_length_ratio"])
@classes
def test_ratios_without_source_lengths_are_refused(search_class, name):
    search = search_class(**{name: 0.5})
    message = "`source_lengths` must be given .*Received: source_lengths=None"
    with pytest.raises(ValueError, match=message):
        search(lambda *_: None, (), batch_size=1, max_length=3, bos_id=1, eos_id=2)


def test_a_prefix_that_is_not_of_integers_is_refused():
    problem = random_problem(0)
    with pytest.raises(ValueError, match=r"`prefix_ids` must be integers.* with \d+.5"):
        run(GreedySearch(), problem._replace(prefix_ids=problem.prefix_ids + 0.5))


def test_a_prefix_of_whole_floats_is_one_of_ids():
    problem = random_problem(0)
    floats = problem._replace(prefix_ids=problem.prefix_ids.astype("float32"))
    ids, of_floats = (array(run(GreedySearch(), given).ids) for given in (problem, floats))
    assert (ids == of_floats).all()


@pytest.mark.parametrize(
    ("name", "value", "rule"),
    [
        ("length_limits", [3, 0], "at least 1"),
        ("length_limits", np.array([-1, 2]), "at least 1"),
        ("length_penalty", [0.5, -1.0], "at least 0 and at most 10"),
        ("length_penalty", np.array([np.nan, 1.0]), "at least 0 and at most 10"),
        ("length_penalty", -0.5, "at least 0 and at most 10"),
        ("length_penalty", [0.5, 11.0], "at least 0 and at most 10"),
        ("length_limits", [2.7, 1.2], "integers"),
        ("source_lengths", [-1, 2], "at least 0"),
        ("source_lengths", [1.5, 2.0], "integers"),
        ("max_length", 0, "a positive integer"),
        ("max_length", 2.5, "a positive integer"),
        ("max_length", None, "a positive integer"),
        ("batch_size", -1, "an integer of at least 0"),
        ("batch_size", "2", "an integer of at least 0"),
        ("batch_size", None, "an integer of at least 0"),
        ("length_limits", ["a", "b"], "an array of numbers"),
        ("length_limits", [None, 3], "an array of numbers"),
        ("length_limits", [[1, 2], [3]], "an array of numbers"),
        ("length_limits", [2**70, 1], "an array of numbers"),
        ("length_penalty", "a", "an array of numbers"),
        ("prefix_ids", [[3, 4], [3]], "an array of numbers"),
        ("prefix_ids", [["a"], ["b"]], "an array of numbers"),
        ("bos_id", -1, "an integer of at least 0"),
        ("eos_id", -1, "an integer of at least 0"),
        ("pad_id", 0.5, "an integer of at least 0"),
        ("prefix_ids", [[3], [-1]], "ids of at least 0"),
        ("prefix_ids", [[3, 0, 4], [3, 4, 0]], "have padding at the end alone"),
        ("prefix_ids", np.array([[0, 3], [3, 3]]), "have padding at the end alone"),
    ],
)
def test_a_bad_value_of_a_sentence_is_refused(name, value, rule):
    step = lambda tokens, index, state: (ops.zeros((len(tokens), 6)), state)  # noqa: E731
    sizes = dict(batch_size=2, max_length=3, bos_id=1, eos_id=2)
    with pytest.raises(ValueError, match=f"`{name}` must .*{rule}. Received: {name}="):
        BeamSearch(2)(step, (), **{**sizes, name: value})


@pytest.mark.parametrize(
    ("given", "options", "likeliest"),
    [
        # The step would never end, where it may end late.
        ({"length_limits": np.full(2, np.iinfo("int64").max)}, {}, 3),
        ({"length_limits": [2**40, 2**33]}, {}, 3),
        ({"source_lengths": [3, 2]}, {"max_length_ratio": 1e9}, 3),
        ({"source_lengths": [2**40, 3]}, {"max_length_ratio": 2.0}, 3),
        # It would end at once, where it must not: 4 is `eos_id`.
        ({}, {"min_length": 2**31}, 4),
        ({"source_lengths": [3, 2]}, {"min_length_ratio": 1e30}, 4),
    ],
)
@classes
def test_a_bound_beyond_all_lengths_is_as_the_longest(search_class, given, options, likeliest):
    def step(tokens, index, state):
        return 50.0 * ops.one_hot(ops.full_like(tokens, likeliest), 5), state

    sizes = dict(batch_size=2, max_length=5, bos_id=1, eos_id=4)
    result = arrays(search_class(**options)(step, (), **sizes, **given))
    assert result.lengths[:, 0].tolist() == [5, 5]


@pytest.mark.parametrize(
    ("name", "value"),
    [("bos_id", 6), ("eos_id", 9), ("pad_id", 6), ("prefix_ids", [[7, 0], [3, 4]])],
)
@classes
def test_ids_of_the_call_beyond_the_vocabulary_are_refused(search_class, name, value):
    step = lambda tokens, index, state: (ops.zeros((len(tokens), 6)), state)  # noqa: E731
    sizes = dict(batch_size=2, max_length=3, bos_id=1, eos_id=2)
    message = f"`{name}` must be below the size of the vocabulary, 6. Received: {name} with "
    with pytest.raises(ValueError, match=re.escape(message)):
        search_class()(step, (), **{**sizes, name: value})


@pytest.mark.parametrize(
    ("name", "value", "rule"),
    [
        ("length_limits", [3, 2, 1], r"\(batch,\), a number for each sentence. .*\(3,\) for 2"),
        ("length_limits", [[3], [2]], r"\(batch,\), a number for each sentence. .*\(2, 1\) for 2"),
        ("length_penalty", [0.5, 1.0, 2.0], r"\(batch,\), a number for each sentence"),
        ("source_lengths", [3, 2, 1], r"\(batch,\), a number for each sentence"),
        ("source_mask", np.ones((3, 4), bool), r"\(batch, source\), a row for each sentence"),
        ("source_mask", np.ones(2, bool), r"\(batch, source\), a row for each sentence"),
        ("source_mask", np.ones((2, 4), "float32"), "boolean"),
    ],
)
def test_what_is_not_of_each_sentence_is_refused(name, value, rule):
    step = lambda tokens, index, state: (ops.zeros((len(tokens), 6)), state)  # noqa: E731
    sizes = dict(batch_size=2, max_length=3, bos_id=1, eos_id=2)
    with pytest.raises(ValueError, match=f"`{name}` must be {rule}"):
        BeamSearch(2)(step, (), **sizes, **{name: value})


@pytest.mark.parametrize(("bos_id", "pad_id"), [(4, 0), (1, 4), (4, 4)])
@classes
def test_the_end_may_begin_and_pad_texts_too(search_class, bos_id, pad_id):
    def step(tokens, index, state):  # the likeliest by far: 3, 3, and the end
        token = ops.where(index < 2, 3, 4)
        return 50.0 * ops.one_hot(ops.broadcast_to(token, (len(tokens),)), 5), state

    special = dict(bos_id=bos_id, eos_id=4, pad_id=pad_id)
    result = arrays(search_class()(step, (), batch_size=2, max_length=5, **special))
    assert result.ids[:, 0].tolist() == 2 * [[3, 3, 4, pad_id, pad_id]]
    assert result.lengths[:, 0].tolist() == [3, 3]


@pytest.mark.parametrize("shape", [(3, 2), (1, 2), (2,), (2, 1, 1)])
@classes
def test_a_prefix_must_have_a_row_for_each_sentence(search_class, shape):
    def step(tokens, index, state):
        return ops.zeros((len(tokens), 6)), state

    message = (
        f"`prefix_ids` must be (batch, prefix), a row for each sentence. Received: shape {shape}"
    )
    with pytest.raises(ValueError, match=re.escape(message)):
        search_class()(
            step,
            (),
            batch_size=2,
            max_length=3,
            bos_id=1,
            eos_id=2,
            prefix_ids=np.ones(shape, "int32"),
        )


@classes
def test_the_configuration_holds_every_argument_and_rebuilds_the_search(search_class):
    arguments = {**OPTIONS, **OWN[search_class]}
    named = {
        name
        for base in search_class.__mro__[:-1]
        for name in inspect.signature(base.__init__).parameters
    }
    assert named - {"self", "options"} == set(arguments)
    config = search_class(**arguments).get_config()
    assert config == arguments
    again = search_class.from_config(json.loads(json.dumps(config)))
    assert type(again) is search_class
    assert again.get_config() == config


@classes
def test_the_configuration_of_the_defaults_rebuilds_the_search(search_class):
    config = search_class().get_config()
    assert search_class.from_config(json.loads(json.dumps(config))).get_config() == config


@classes
def test_ids_may_be_any_integers_in_any_sequence(search_class):
    config = search_class(allowed_ids=range(3, 5), suppressed_ids=(4,)).get_config()
    assert (config["allowed_ids"], config["suppressed_ids"]) == ([3, 4], [4])
