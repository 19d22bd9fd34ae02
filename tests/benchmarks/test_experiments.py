"""What a figure of the experiments rests on: their tasks, measures, models and intervals."""

import json
import types

import keras
import numpy as np
import pytest

pytest.importorskip("babel")

from benchmarks import comparison, experiments, reversing, scaling, symbols, variants
from benchmarks.comparison_report import length_bins
from benchmarks.small_translator import small_translator
from benchmarks.variants import STATEMENTS, held_out, make_key, verdict
from keras_transformer import GreedySearch, RecurrentSeq2Seq, SimilarityAttention, Transformer
from keras_transformer.checks import check_causality, check_padding_invariance


def test_an_interval_by_hand():
    # Mean 2, standard deviation 1, error 1 / sqrt(3); t with 2 degrees of freedom is 4.303.
    mean, half = experiments.interval([1, 2, 3])
    assert mean == 2.0
    assert half == pytest.approx(4.303 / 3**0.5)
    assert np.isnan(experiments.interval([5.0])[1])


def test_a_bootstrap_is_as_wide_as_the_values_are_apart():
    assert experiments.bootstrap([[7.0] * 5, [7.0] * 3]) == (7.0, 7.0, 7.0)
    mean, low, high = experiments.bootstrap([[0.0] * 50, [100.0] * 50])  # two seeds far apart
    assert (mean, low, high) == (50.0, 0.0, 100.0)
    mean, low, high = experiments.bootstrap([[0.0, 100.0] * 200])
    # One seed of 400 sentences, half of them right: 1.96 standard errors of 50 / 20.
    assert (low, high) == (pytest.approx(45.1, abs=1.0), pytest.approx(54.9, abs=1.0))


def test_results_are_found_again_by_every_setting_and_by_no_other(tmp_path):
    results = experiments.Results(tmp_path / "deep" / "results.jsonl")
    key = {"model": "dot", "options": {"heads": 4}, "seed": 1}
    results.add(key, {"loss": 0.5, "values": [1, 2]})
    again = experiments.Results(tmp_path / "deep" / "results.jsonl")
    assert again.find(key) == {**key, "loss": 0.5, "values": [1, 2]}
    assert again.find({**key, "seed": 2}) is None
    assert again.find({**key, "options": {"heads": 2}}) is None
    again.add({**key, "seed": 2}, {"loss": 0.4})
    assert len(experiments.Results(again.path).rows) == 2
    assert [file.name for file in again.path.parent.iterdir()] == ["results.jsonl"]


def test_a_restarted_model_is_a_new_one():
    def make():
        return keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])

    model = experiments.compiled(make(), d_model=4, peak=0.1, warmup=5)
    assert float(model.optimizer.learning_rate) < 0.1
    experiments.restarted(model, make, seed=7)
    first = model.get_weights()
    # The loss reads integer labels of (batch, target): another one for numbers.
    model.compile(model.optimizer, "mse", jit_compile=False)
    model.fit(np.ones((4, 3)), np.ones((4, 2)), verbose=0)
    assert int(model.optimizer.iterations) == 1
    assert (model.get_weights()[0] != first[0]).all()
    experiments.restarted(model, make, seed=7)
    assert int(model.optimizer.iterations) == 0
    for now, before in zip(model.get_weights(), first, strict=True):
        np.testing.assert_array_equal(now, before)


def test_reversals_read_backwards_and_end_with_eos():
    (source, inputs), outputs = symbols.reversals(50, [3, 5], seed=1)
    assert source.shape == inputs.shape == outputs.shape == (50, 6)
    assert set((source > 0).sum(axis=1)) == {4, 6}
    for row in range(50):
        length = (source[row] > 0).sum() - 1
        assert source[row, length] == outputs[row, length] == symbols.EOS
        assert source[row, :length].min() >= symbols.FIRST
        np.testing.assert_array_equal(outputs[row, :length], source[row, :length][::-1])
        expected = [symbols.BOS, *outputs[row, :length]]
        np.testing.assert_array_equal(inputs[row, : length + 1], expected)


def test_the_share_of_right_symbols_leaves_padding_out():
    pairs = symbols.reversals(10, [2, 4], seed=3)
    outputs = pairs[1]
    wrong = np.where(np.arange(outputs.shape[1]) == 0, symbols.EOS, outputs)  # each first symbol
    logits = np.eye(symbols.FIRST + symbols.NUM_SYMBOLS)[wrong]
    model = types.SimpleNamespace(predict=lambda *args, **options: logits)
    assert symbols.share_right(model, pairs) == pytest.approx(1 - 10 / (outputs > 0).sum())


def test_a_lookup_is_answered_by_the_value_of_its_key():
    (queries, keys, values), answers = symbols.lookups(100, 8, seed=1)
    assert keys.shape == values.shape == (100, 8)
    assert all(len(set(row)) == 8 for row in keys)
    found = keys == queries
    assert (found.sum(axis=1) == 1).all()
    np.testing.assert_array_equal(values[found], answers)
    model = symbols.lookup_model("additive", 5)
    assert model([queries, keys, values]).shape == (100, symbols.NUM_VALUES)


@pytest.mark.parametrize("similarity", scaling.SIMILARITIES)
def test_gradients_of_the_weights_are_those_of_the_layer(similarity):
    query, memory = scaling.normal_vectors(5)
    query, memory = query[:3], memory[:3]
    weights, norms = scaling.weights_and_gradients(similarity, query, memory)
    keras.utils.set_random_seed(0)
    attention = SimilarityAttention(similarity)
    of_layer = attention(query[:, None], memory, return_attention_scores=True)[1]
    np.testing.assert_allclose(weights, np.asarray(of_layer)[:, 0], atol=1e-5)
    step, gradients = 1e-6, []  # by central differences, a number of the query at a time
    for shift in step * np.eye(5):
        ends = [
            scaling.weights_and_gradients(similarity, query + s, memory)[0] for s in (shift, -shift)
        ]
        gradients.append((ends[0] - ends[1]) / (2 * step))
    expected = np.sqrt((np.array(gradients) ** 2).sum(axis=(0, 2)))
    np.testing.assert_allclose(norms, expected, rtol=1e-4)


def test_a_gradient_by_hand():
    # Two keys 1 and -1 of width 1, query ln(3) / 2: the weights are 3/4 and 1/4. The mean key is
    # 1/2, so the gradients are 3/4 (1 - 1/2) = 3/8 and 1/4 (-1 - 1/2) = -3/8.
    query, memory = np.array([[np.log(3) / 2]]), np.array([[[1.0], [-1.0]]])
    weights, norms = scaling.weights_and_gradients("dot", query, memory)
    np.testing.assert_allclose(weights, [[0.75, 0.25]])
    np.testing.assert_allclose(norms, [3 / 8 * 2**0.5])


def test_without_scaling_gradients_of_wide_vectors_are_far_apart_and_mostly_small():
    entropy, mean, low, median, high = scaling.measure_start("scaled_dot", 256)
    hard_entropy, hard_mean, hard_low, hard_median, hard_high = scaling.measure_start("dot", 256)
    assert entropy > 2.0 > 0.5 > hard_entropy
    assert hard_mean > 1.0 > 0.4 > mean
    assert 0.2 < low < median < high < 0.4
    assert hard_low < 1e-4 < hard_median < 0.1 < 5 < hard_high


@pytest.mark.parametrize(
    ("value", "text"),
    [(8.17e-13, "8e-13"), (0.005014, "0.0050"), (0.042, "0.042"), (0.946, "0.95")],
)
def test_small_numbers_keep_two_digits(value, text):
    assert scaling.small(value) == text


def test_a_table_is_printed_as_the_pages_have_it(capsys):
    experiments.print_markdown(["a", "b"], [["1", experiments.plus_minus([1, 2, 3])]])
    assert capsys.readouterr().out == "| a | b |\n|---|---|\n| 1 | 2.0 ± 2.5 |\n\n"


DATES = types.SimpleNamespace(
    source=None, target=None, vocab_size=600, tokens_per_batch=1024, updates=600, num_test=1000
)
KEYS = {
    comparison: lambda: [comparison.make_key(DATES, name, 1) for name in ("dot", "Transformer")],
    reversing: lambda: [reversing.make_key(name, 1) for name in reversing.REVERSERS],
    scaling: lambda: [scaling.make_key("dot", 4, 1)],
    variants: lambda: [variants.make_key({"num_heads": 1}, 1)],
}
RECIPES = [
    (comparison, comparison.RECIPE),
    (comparison, comparison.RECURRENT),
    (comparison, comparison.TRANSFORMER),
    (comparison, comparison.DATES),
    (comparison, comparison.DATES_TOKENIZER),
    (comparison, experiments.ADAM),
    (reversing, reversing.RECIPE),
    (reversing, reversing.TEST),
    (reversing, reversing.TRANSFORMER),
    (reversing, experiments.ADAM),
    (scaling, scaling.RECIPE),
    (variants, variants.RECIPE),
    (variants, variants.MODEL),
    (variants, variants.TRAINING),
    (variants, variants.DATES),
    (variants, variants.DATES_TOKENIZER),
    (variants, experiments.ADAM),
]


@pytest.mark.parametrize(("module", "recipe"), RECIPES)
def test_a_result_is_found_by_every_constant_of_its_recipe(module, recipe, monkeypatch):
    before = [json.dumps(key) for key in KEYS[module]()]
    for name in recipe:
        with monkeypatch.context() as changed:
            changed.setitem(recipe, name, "another")
            assert [json.dumps(key) for key in KEYS[module]()] != before, name
    assert [json.dumps(key) for key in KEYS[module]()] == before


@pytest.mark.parametrize(
    ("module", "owner", "name"),
    [
        (reversing, symbols, "NUM_SYMBOLS"),
        (reversing, reversing, "LENGTHS"),
        (scaling, symbols, "NUM_KEYS"),
        (scaling, symbols, "NUM_VALUES"),
        (scaling, symbols, "VALUE_WIDTH"),
        (variants, variants, "MAX_LENGTH"),
        (variants, variants, "D_FF_FACTOR"),
    ],
)
def test_a_result_is_found_by_every_size(module, owner, name, monkeypatch):
    before = KEYS[module]()
    monkeypatch.setattr(owner, name, 1000)
    assert KEYS[module]() != before


def test_a_file_is_known_by_its_name_and_its_folder_alone():
    files = {name: f"/deep/{name}/corpus/{name}.en" for name in comparison.FILES}
    args = types.SimpleNamespace(**{**vars(DATES), **files})
    recipe = comparison.make_key(args, "dot", 1)["recipe"]
    assert recipe["source"] == "corpus/source.en"
    assert recipe["test_target"] == "corpus/test_target.en"
    assert "dates" not in recipe
    assert comparison.quality_name(args) == "chrF"


def test_every_length_is_in_one_bin():
    lengths = np.array([2, 2, 2, 3, 4, 4, 5, 9, 9, 9, 12, 20])
    bins = length_bins(lengths)
    assert bins[0][0] == 2
    assert bins[-1][1] == 20
    for length in range(2, 21):
        assert sum(low <= length <= high for low, high in bins) == 1


@pytest.mark.parametrize(
    "options",
    [
        {"key_dim": 3, "position": "learned", "combine": "concat"},
        pytest.param({"position": "none"}, marks=pytest.mark.slow),
    ],
)
def test_the_small_translator_keeps_the_contracts(options):
    keras.utils.set_random_seed(3)
    model = small_translator(11, d_model=8, num_heads=2, **options)
    inputs = np.array([[5, 6, 7, 3], [9, 3, 0, 0]]), np.array([[2, 5, 9], [2, 7, 0]])
    check_padding_invariance(model, inputs)
    check_causality(model, inputs)


@pytest.mark.slow
def test_each_option_changes_the_parameters_that_it_should():
    sizes = dict(vocab_size=11, d_model=8, num_heads=2)
    base = small_translator(**sizes).count_params()
    # Queries and keys of 3 attentions, 2 heads, one number narrower: 8 inputs and a bias each.
    assert base - small_translator(**sizes, key_dim=3).count_params() == 3 * 2 * 2 * (8 + 1)
    assert small_translator(**sizes, combine="concat").count_params() == base - 11 * 4
    learned = small_translator(**sizes, position="learned").count_params()
    assert learned == base + 2 * 128 * 8
    deeper = small_translator(**sizes, num_layers=2).count_params()
    assert deeper > base


@pytest.mark.slow
@pytest.mark.parametrize("recurrent", [False, True])
def test_the_share_of_exact_pairs_is_that_of_a_greedy_search(recurrent):
    keras.utils.set_random_seed(5)
    if recurrent:
        model = RecurrentSeq2Seq(9, d_model=8, dropout=0.0)
    else:
        model = Transformer(9, num_layers=1, d_model=8, num_heads=2, d_ff=8, dropout=0.0)
    source = np.random.default_rng(1).integers(4, 9, (40, 5))
    written = np.asarray(model.generate(source, GreedySearch(), max_length=4).ids)[:, 0]
    references = written.copy()
    references[::4, 0] = np.where(written[::4, 0] == 4, 5, 4)  # every fourth is not its own
    inputs = np.pad(references, [(0, 0), (1, 0)], constant_values=2)[:, :-1]
    batch = ((source, inputs), types.SimpleNamespace(numpy=lambda: references))
    model.compile()
    loss, exact = held_out(model, [batch])
    assert exact == 0.75
    scored = model.score(source, references)
    real = (references > 0).sum()
    assert loss == pytest.approx(-np.asarray(scored.log_prob).sum() / real, rel=1e-5)


def test_statements_compare_variants_that_they_have():
    for statement in STATEMENTS.values():
        assert {label for pair in statement.compared for label in pair} == set(statement.variants)
    keys = [
        str(make_key(options, 1)) for s in STATEMENTS.values() for options in s.variants.values()
    ]
    assert len(set(keys)) == len(keys) - 4  # five statements share the base model


@pytest.mark.parametrize(
    ("mean", "half", "said"),
    [
        (0.3, 0.1, "worse"),
        (-0.3, 0.1, "better"),
        (0.1, 0.3, "no difference shown"),
        (-0.1, 0.3, "no difference shown"),
        (0.1, float("nan"), "no difference shown"),
    ],
)
def test_a_difference_counts_when_its_interval_leaves_zero_out(mean, half, said):
    assert verdict(mean, half) == said
