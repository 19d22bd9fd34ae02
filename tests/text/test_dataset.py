"""translation_dataset: every pair once an epoch, few shapes, orders that can be had again."""

import collections

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")
pytest.importorskip("tensorflow_text")

import keras  # noqa: E402

from keras_transformer.batches import PairDataset  # noqa: E402
from keras_transformer.batches.dataset_report import DatasetReport  # noqa: E402
from keras_transformer.text import CharacterTokenizer, translation_dataset  # noqa: E402

LETTERS = "abcdefghijklmnopqrstuvwxyz"
TOKENIZER = CharacterTokenizer(LETTERS)


def make_pairs(num_pairs, seed=0):
    """Random words as sources, their reverse with its first letter doubled as targets."""
    random = np.random.default_rng(seed)
    lengths = random.integers(1, 30, num_pairs)
    sources = ["".join(random.choice(list(LETTERS), length)) for length in lengths]
    return sources, [text[0] + text[::-1] for text in sources]


SOURCES, TARGETS = make_pairs(157)


def dataset(sources=SOURCES, targets=TARGETS, **options):
    options = {"tokens_per_batch": 160, "max_shapes": 3, "verbose": False, **options}
    return translation_dataset(sources, targets, TOKENIZER, **options)


def batches(data):
    return [[ids.numpy() for ids in (source, before, after)] for (source, before), after in data]


def texts(rows):
    return [text.decode() for text in TOKENIZER.detokenize(rows).numpy()]


def pairs(data):
    """The pairs of an epoch as text, in order, rows of padding left out."""
    found = []
    for source, _, after in batches(data):
        found += zip(texts(source), texts(after), strict=True)
    return [pair for pair in found if pair != ("", "")]


@pytest.mark.parametrize("shuffle", [False, True])
def test_every_pair_comes_exactly_once_an_epoch(shuffle):
    data = dataset(shuffle=shuffle, seed=3)
    expected = collections.Counter(zip(SOURCES, TARGETS, strict=True))
    for _ in range(2):
        assert collections.Counter(pairs(data)) == expected


def test_rows_are_tokens_with_eos_and_bos():
    (source, before, after), *_ = batches(dataset(["ab", "c"], ["b", "cba"]))
    assert source.tolist() == [[4, 5, 3, 0], [6, 3, 0, 0]]
    assert before.tolist() == [[2, 5, 0, 0], [2, 6, 5, 4]]
    assert after.tolist() == [[5, 3, 0, 0], [6, 5, 4, 3]]
    assert source.dtype == before.dtype == after.dtype == np.int32


def test_sources_end_without_eos_where_the_model_reads_none():
    with_it = dataset(["ab", "c"], ["b", "cba"])
    (source, before, after), *_ = batches(dataset(["ab", "c"], ["b", "cba"], source_eos=False))
    (_, *targets), *_ = batches(with_it)
    assert source.tolist() == [[4, 5, 0, 0], [6, 0, 0, 0]]
    assert (before == targets[0]).all()
    assert (after == targets[1]).all()
    with pytest.raises(ValueError, match="`source_eos` must be.*source_eos=None"):
        dataset(source_eos=None)


def test_target_out_is_target_in_moved_by_one():
    for _, before, after in batches(dataset(shuffle=True, seed=1)):
        moved = np.where(after[:, :-1] == 3, 0, after[:, :-1])
        assert (before[:, 1:] == moved).all()


def test_shapes_are_few_and_within_the_budget():
    data = dataset(shuffle=True, seed=1)
    shapes = {(*source.shape, after.shape[1]) for source, _, after in batches(data)}
    assert shapes == set(data.report.shapes)
    assert len(shapes) <= 3
    for rows, source_length, target_length in shapes:
        assert rows * max(source_length, target_length) <= 160
        assert source_length % 4 == target_length % 4 == 0


def test_the_last_batch_of_a_shape_is_filled_with_padding():
    data = dataset(["a"] * 7, ["b"] * 7, tokens_per_batch=16, max_shapes=1)
    first, second = batches(data)
    assert first[0].shape == second[0].shape == (4, 4)
    for ids in second:
        assert (ids[:3, 0] != 0).all()
        assert (ids[3] == 0).all()


def test_the_report_counts_what_the_batches_hold():
    data = dataset()
    made = batches(data)
    assert isinstance(data.report, DatasetReport)
    assert data.cardinality().numpy() == len(made) == data.report.num_batches
    assert (data.report.num_pairs, data.report.num_kept) == (157, 157)
    source_tokens = sum((source != 0).sum() for source, _, _ in made)
    target_tokens = sum((after != 0).sum() for _, _, after in made)
    assert data.report.num_tokens == (source_tokens, target_tokens)
    size = sum(source.size + after.size for source, _, after in made)
    assert data.report.padding_ratio == pytest.approx(1 - (source_tokens + target_tokens) / size)


def test_without_shuffling_pairs_of_a_shape_keep_their_order():
    data = dataset(["abc"] * 5, ["a", "b", "c", "d", "e"], tokens_per_batch=8)
    assert [target for _, target in pairs(data)] == ["a", "b", "c", "d", "e"]
    assert pairs(dataset()) == pairs(dataset())


def test_epochs_differ_and_come_again_from_the_seed():
    data, again = dataset(shuffle=True, seed=5), dataset(shuffle=True, seed=5)
    epochs = [pairs(data) for _ in range(3)]
    assert epochs[0] != epochs[1] != epochs[2] != epochs[0]
    assert [pairs(again) for _ in range(3)] == epochs
    assert pairs(dataset(shuffle=True, seed=6)) != epochs[0]


def test_the_order_does_not_depend_on_the_global_seed():
    keras.utils.set_random_seed(1)
    data = dataset(shuffle=True, seed=5)
    first = pairs(data)
    keras.utils.set_random_seed(2)
    assert pairs(dataset(shuffle=True, seed=5)) == first


def test_batches_of_different_shapes_are_mixed():
    lengths = [source.shape[1] for source, _, _ in batches(dataset(shuffle=True, seed=5))]
    assert lengths != sorted(lengths)


def test_what_all_shapes_have_in_common_is_known_in_advance():
    """Of one shape everything, so that a model that reads static shapes takes it."""
    data = dataset(max_shapes=1)
    ((rows, source_length, target_length),) = data.report.shapes
    (source_spec, target_spec), label_spec = data.element_spec
    assert source_spec.shape == (rows, source_length)
    assert target_spec.shape == label_spec.shape == (rows, target_length)
    same_length = ["a" * (3 + number % 2 * 12) for number in range(60)], ["b" * 6] * 60
    data = dataset(*same_length, tokens_per_batch=160)
    assert len(data.report.shapes) == 2
    assert data.element_spec[1].shape.as_list() == [None, data.report.shapes[0][2]]
    assert data.element_spec[0][0].shape.as_list() == [None, None]
    assert len(pairs(data)) == 60
    *_, weights_spec = dataset(max_shapes=1, batches_per_update=2).element_spec
    assert weights_spec.shape == (rows, target_length)


def test_no_seed_draws_a_new_one():
    assert pairs(dataset(shuffle=True)) != pairs(dataset(shuffle=True))


def test_first_epoch_goes_on_where_training_stopped():
    data = dataset(shuffle=True, seed=5)
    epochs = [pairs(data) for _ in range(4)]
    resumed = dataset(shuffle=True, seed=5, first_epoch=2)
    assert [pairs(resumed), pairs(resumed)] == epochs[2:]


def test_two_iterators_at_once_are_two_epochs():
    expected = dataset(shuffle=True, seed=5, prefetch=0)
    first, second = batches(expected), batches(expected)
    data = dataset(shuffle=True, seed=5, prefetch=0)
    for a, b, ((source_a, _), _), ((source_b, _), _) in zip(first, second, data, data, strict=True):
        assert (source_a.numpy() == a[0]).all()
        assert (source_b.numpy() == b[0]).all()


@pytest.mark.parametrize("prefetch", [pytest.param(0, marks=pytest.mark.slow), 2])
def test_each_epoch_of_fit_is_the_next_one(prefetch):
    """Keras makes more iterators than epochs; only those that are drawn from count."""
    data = _seeded()
    epochs = [[source.tolist() for source, _, _ in batches(data)] for _ in range(3)]
    seen = [[]]

    @tf.numpy_function(Tout=[])
    def record(ids):
        seen[-1].append(ids.tolist())
        return []

    class Look(keras.Model):
        def __init__(self):
            super().__init__()
            self.embedding = keras.layers.Embedding(32, 32)

        def call(self, inputs):
            record(inputs[0])
            return self.embedding(inputs[1])

    class NewEpoch(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            seen.append([])

    model = Look()
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("sgd", loss, jit_compile=False)
    model.fit(_seeded(prefetch), epochs=3, shuffle=False, verbose=0, callbacks=[NewEpoch()])
    assert seen[:3] == epochs


def _seeded(prefetch=2):
    return dataset(shuffle=True, seed=5, prefetch=prefetch)


def test_a_repeated_dataset_goes_through_the_epochs():
    data = dataset(shuffle=True, seed=5)
    epochs = pairs(data) + pairs(data)
    assert pairs(dataset(shuffle=True, seed=5).repeat(2)) == epochs


def test_long_and_empty_pairs_are_counted_and_said(capfd):
    data = dataset(
        ["abcde", "abcdef", "a", "", "ab", ""],
        ["a", "a", "abcdef", "a", "", ""],
        max_length=6,  # five letters and eos
        verbose=True,
    )
    assert pairs(data) == [("abcde", "a")]
    assert (data.report.num_too_long, data.report.num_empty) == (2, 3)
    assert data.report.num_kept == 1
    _, err = capfd.readouterr()
    assert "1 of 6 pairs in 1 batches of 1 shapes" in err
    assert "left out 2 longer than max_length=6 tokens (a larger max_length keeps them)" in err
    assert err.rstrip().endswith("left out 3 with an empty side")


def test_quiet_says_nothing(capfd):
    dataset(["a", ""], ["a", "b"])
    out, err = capfd.readouterr()
    assert (out, err) == ("", "")


def test_two_tokenizers_serve_their_own_side():
    target = CharacterTokenizer("zyx")
    data = translation_dataset(["ab"], ["xyz"], TOKENIZER, target, verbose=False)
    ((source, _), after), *_ = data
    assert source.numpy().tolist() == [[4, 5, 3, 0]]
    assert after.numpy().tolist() == [[6, 5, 4, 3]]


def test_unequal_numbers_of_texts_raise():
    with pytest.raises(ValueError, match="Received: 2 source texts and 1 target texts"):
        dataset(["a", "b"], ["a"])


@pytest.mark.parametrize(("sources", "targets"), [([], []), ([""], ["a"]), (["a" * 300], ["a"])])
def test_no_pair_left_raises(sources, targets):
    with pytest.raises(ValueError, match=rf"At least one pair .* Received: {len(sources)} pairs"):
        dataset(sources, targets)


def test_a_budget_smaller_than_one_sentence_raises():
    with pytest.raises(ValueError, match="at least 12, .* Received: tokens_per_batch=11"):
        dataset(["abcdefgh"], ["a"], tokens_per_batch=11)
    assert dataset(["abcdefgh"] * 2, ["a"] * 2, tokens_per_batch=12).report.num_batches == 2


@pytest.mark.parametrize(
    ("name", "value"),
    [("tokens_per_batch", 0), ("tokens_per_batch", 9.5), ("max_shapes", 0), ("max_length", -1)]
    + [
        ("rows_multiple", 0),
        ("first_epoch", -1),
        ("prefetch", -1),
        ("seed", -1),
        ("seed", "x"),
        ("shuffle", 1),
    ],
)
def test_bad_arguments_raise_with_the_received_value(name, value):
    with pytest.raises(ValueError, match=f"`{name}` must be .* Received: {name}={value!r}"):
        dataset(**{name: value})


def test_texts_that_are_not_strings_raise():
    with pytest.raises(TypeError, match=r"Received: source_texts\[1\]=3 of type int"):
        dataset(["a", 3], ["a", "b"])
    with pytest.raises(TypeError, match="`target_texts` must be an iterable of strings"):
        dataset(["a"], "a")
    with pytest.raises(TypeError, match="Received: source_texts=None"):
        dataset(None, ["a"])


@pytest.mark.parametrize("name", ["pad_id", "bos_id", "eos_id"])
def test_tokenizers_with_other_special_ids_raise(name):
    other = CharacterTokenizer("abc")
    setattr(other, name, 9)
    with pytest.raises(ValueError, match=f"`{name}` must be the same .* target {name}=9"):
        translation_dataset(["a"], ["a"], TOKENIZER, other, verbose=False)


@pytest.mark.parametrize("rows_multiple", [1, 2, 5])
def test_pair_dataset_makes_the_same_batches_of_the_same_ids(rows_multiple):
    options = dict(tokens_per_batch=160, max_shapes=3, shuffle=True, seed=3, batches_per_update=2)
    options["rows_multiple"] = rows_multiple
    data = translation_dataset(SOURCES, TARGETS, TOKENIZER, verbose=False, **options)
    sides = [TOKENIZER.tokenize(texts).to_list() for texts in (SOURCES, TARGETS)]
    of_ids = PairDataset(*sides, verbose=False, **options)
    assert of_ids.report == data.report
    assert all(rows % rows_multiple == 0 for rows, *_ in data.report.shapes)
    for _ in range(2):
        for index, batch in enumerate(data.as_numpy_iterator()):
            keras.tree.map_structure(np.testing.assert_array_equal, batch, of_ids[index])
        assert index + 1 == len(of_ids)
        of_ids.on_epoch_end()
