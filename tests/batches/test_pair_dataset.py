"""PairDataset: what `fit` is given on every backend, epoch by epoch, and after an interruption."""

import collections
import os
import subprocess
import sys

import keras
import numpy as np
import pytest

from keras_transformer.batches.passes import Passes
from keras_transformer.callbacks import ExactResume
from tests.backends import BACKEND, on_jax, on_tensorflow
from tests.batches.small_pairs import SOURCES, TARGETS, dataset, model

# In `fit` TensorFlow takes one shape.
SHAPES = 1 if BACKEND == "tensorflow" else 3
TRAINED = dict(shuffle=True, seed=3, max_shapes=SHAPES)


def batches(data):
    return [data[index] for index in range(len(data))]


def rows(ids):
    """The rows without padding; rows of padding are left out."""
    return [tuple(row[row != 0].tolist()) for row in ids if row.any()]


def same(first, second):
    leaves = keras.tree.flatten(first), keras.tree.flatten(second)
    return len(leaves[0]) == len(leaves[1]) and all(map(np.array_equal, *leaves))


@pytest.mark.parametrize("shuffle", [False, True])
def test_every_pair_comes_exactly_once_an_epoch(shuffle):
    data = dataset(shuffle=shuffle, seed=3)
    expected = collections.Counter(
        ((*source, 3), (*target, 3)) for source, target in zip(SOURCES, TARGETS, strict=True)
    )
    for _ in range(2):
        found = collections.Counter()
        for (source_ids, before), after in batches(data):
            found.update(zip(rows(source_ids), rows(after), strict=True))
            assert [row[1:] for row in rows(before)] == [row[:-1] for row in rows(after)]
            assert {row[0] for row in rows(before)} == {2}
            assert source_ids.dtype == before.dtype == after.dtype == np.int32
        assert found == expected
        data.on_epoch_end()


def test_an_epoch_is_a_function_of_the_seed_and_its_number():
    data, again = dataset(shuffle=True, seed=3), dataset(shuffle=True, seed=3, first_epoch=2)
    epochs = []
    for _ in range(3):
        epochs.append(batches(data))
        data.on_epoch_end()
    assert same(epochs[2], batches(again))
    assert not same(epochs[0], epochs[1])
    assert not same(epochs[0], batches(dataset(shuffle=True, seed=4)))


def test_without_shuffling_batches_go_from_short_to_long():
    lengths = [source_ids.shape[1] for (source_ids, _), _ in batches(dataset())]
    assert lengths == sorted(lengths)
    assert len(set(lengths)) == len(dataset().report.shapes) == 3


def test_each_epoch_of_fit_is_one_of_the_data():
    data, trained = dataset(**TRAINED), model()
    options = dict(shuffle=False, verbose=0, validation_data=dataset(max_shapes=SHAPES))
    trained.fit(data, epochs=2, **options)
    trained.evaluate(data, verbose=0, steps=2)  # reads a part, and is not an epoch
    trained.fit(data, initial_epoch=2, epochs=3, **options)
    assert same(batches(data), batches(dataset(**TRAINED, first_epoch=3)))


def test_an_epoch_of_fit_may_be_a_part_of_the_pairs():
    data, trained = dataset(**TRAINED), model()
    half = len(data) // 2
    trained.fit(data, steps_per_epoch=half, shuffle=False, verbose=0)
    assert same(batches(data), batches(dataset(**TRAINED)))


def test_short_epochs_are_the_passes_in_a_row():
    """Epochs of 10 batches begin and end within a pass of 14, and may hold the end of one."""
    options = dict(shuffle=True, seed=3, batches_per_update=2)
    assert len(dataset(**options)) == 14
    short = dict(options, batches_per_epoch=10)
    whole = [batches(dataset(**options, first_epoch=number)) for number in range(3)]
    expected = [batch for each in whole for batch in each]
    data = dataset(**short)
    for epoch in range(4):
        assert len(data) == 10
        found = batches(data)
        assert all(map(same, found, expected[10 * epoch : 10 * (epoch + 1)]))
        assert all(map(same, found, batches(dataset(**short, first_epoch=epoch))))
        data.on_epoch_end()


def test_an_order_is_made_once_a_pass(monkeypatch):
    made, make = [], Passes.of_pass

    def of_pass(self, number):
        made.append(number)
        return make(self, number)

    monkeypatch.setattr(Passes, "of_pass", of_pass)
    data = dataset(shuffle=True, seed=3, batches_per_epoch=4)
    for _ in range(5):
        batches(data)
        data.on_epoch_end()
    assert made == [0, 1]
    for epoch in range(5, 8):
        list(data._passes.batches(4 * epoch, 4))  # as `translation_dataset` reads them
    assert made == [0, 1, 2]


def test_short_epochs_of_whole_updates_alone():
    with pytest.raises(ValueError, match="`batches_per_epoch` must be a multiple of .*epoch=5, "):
        dataset(batches_per_epoch=5, batches_per_update=2)
    with pytest.raises(ValueError, match="`batches_per_epoch` must be a positive integer"):
        dataset(batches_per_epoch=0)


def test_processes_that_make_batches_are_refused():
    data = dataset(**TRAINED)
    data.use_multiprocessing = True
    with pytest.raises(ValueError, match="`use_multiprocessing` must be False"):
        data.on_epoch_begin()


def test_many_rows_are_kept_block_by_block(monkeypatch):
    whole = batches(dataset())
    monkeypatch.setattr("keras_transformer.batches.token_store.ROWS_PER_BLOCK", 7)
    assert same(batches(dataset(iter(SOURCES), iter(TARGETS))), whole)


@on_tensorflow
def test_several_shapes_are_refused_where_keras_would_take_the_first_for_all():
    with pytest.raises(ValueError, match="Use `text.translation_dataset`, or `max_shapes=1`"):
        model().fit(dataset(), verbose=0)


@pytest.mark.parametrize("batches_per_epoch", [None, 3])  # with 3, it stops within a pass
def test_a_training_goes_on_to_the_bit(tmp_path, batches_per_epoch):
    trained = dict(TRAINED, batches_per_epoch=batches_per_epoch)
    whole = model()
    whole.fit(dataset(**trained), epochs=3, shuffle=False, verbose=0)
    for epochs in (1, 3):
        resume = ExactResume(tmp_path)
        resumed = model()
        resumed.fit(
            dataset(**trained, first_epoch=resume.epoch),
            initial_epoch=resume.epoch,
            epochs=epochs,
            shuffle=False,
            verbose=0,
            callbacks=[resume],
        )
    for ours, expected in zip(resumed.get_weights(), whole.get_weights(), strict=True):
        np.testing.assert_array_equal(ours, expected)


@pytest.mark.parametrize("multiple", [2, 3])
def test_every_batch_has_a_multiple_of_rows_and_every_pair_comes_once(multiple):
    options = dict(tokens_per_batch=80, shuffle=True, seed=3, rows_multiple=multiple)
    data, resumed = dataset(**options), dataset(**options, first_epoch=1)
    expected = sorted((*row, 3) for row in map(tuple, SOURCES))
    for epoch in range(2):
        found = batches(data)
        shapes = {(*source.shape, target.shape[1]) for (source, _), target in found}
        assert shapes == set(data.report.shapes)
        assert len(shapes) <= 3
        assert all(number % multiple == 0 for number, *_ in shapes)
        assert all(number * max(lengths) <= 80 for number, *lengths in shapes)
        assert sorted(row for (source, _), _ in found for row in rows(source)) == expected
        if epoch == 1:
            assert all(map(same, found, batches(resumed)))
        data.on_epoch_end()


ON_TWO_DEVICES = """
import keras
import numpy as np
import pytest
from tests.batches.small_pairs import SOURCES, TARGETS, dataset, model

def losses(**options):
    sizes = dict(tokens_per_batch=208, max_shapes=1, shuffle=True, seed=3)
    data = dataset(SOURCES[:26], TARGETS[:26], **sizes, **options)
    history = model(dropout=0.0).fit(data, epochs=2, shuffle=False, verbose=0)
    return data.report.shapes[0][0], history.history["loss"]

rows, expected = losses(rows_multiple=2)
assert (rows, losses()[0]) == (10, 13)
devices = keras.distribution.list_devices()
assert len(devices) == 2
keras.distribution.set_distribution(keras.distribution.DataParallel(devices=devices))
rows, found = losses(rows_multiple=2)
np.testing.assert_allclose(found, expected, rtol=1e-5)
with pytest.raises(ValueError, match="13"):
    losses()
"""


@on_jax
@pytest.mark.slow
def test_two_devices_share_batches_and_have_the_loss_of_one():
    flags = "--xla_force_host_platform_device_count=2"
    environment = {**os.environ, "XLA_FLAGS": flags, "KERAS_BACKEND": "jax"}
    command = [sys.executable, "-c", ON_TWO_DEVICES]
    run = subprocess.run(command, env=environment, capture_output=True, encoding="utf-8")
    assert run.returncode == 0, run.stderr


@pytest.mark.parametrize("batches_per_epoch", [None, 20])  # with 20, from two passes
def test_the_rows_of_all_processes_are_those_of_the_batch(batches_per_epoch):
    options = dict(shuffle=True, seed=3, rows_multiple=4, batches_per_update=2)
    options |= dict(batches_per_epoch=batches_per_epoch)
    whole = dataset(**options)
    parts = [dataset(**options, process=(number, 2)) for number in range(2)]
    for index in range(len(whole)):
        arrays = [keras.tree.flatten(data[index]) for data in (whole, *parts)]
        for expected, first, second in zip(*arrays, strict=True):
            assert (expected == np.concatenate([first, second])).all()
            assert len(first) == len(second)


@pytest.mark.parametrize(
    ("options", "rule"),
    [
        (dict(process=(2, 2)), r"be \(k, n\) with k from 0 to n - 1"),
        (dict(process=3), r"be \(k, n\)"),
        (dict(process=(0, 2), rows_multiple=3), "be of as many processes as divide"),
        (dict(process=(0, 2), rows_multiple=2), "come with a `seed`"),
    ],
)
def test_processes_that_would_not_fit_together_are_refused(options, rule):
    with pytest.raises(ValueError, match=f"`process` must {rule}.* Received: process="):
        dataset(**{"seed": None, **options})


def test_weights_of_an_update_have_its_mean_over_tokens():
    data = dataset(shuffle=True, seed=3, batches_per_update=2)
    assert len(data) % 2 == 0
    for first in range(0, len(data), 2):
        (_, one, weights), (_, other, more) = data[first], data[first + 1]
        num_tokens = (one != 0).sum() + (other != 0).sum()
        np.testing.assert_allclose(weights, np.where(one != 0, 2 / num_tokens, 0), rtol=1e-6)
        np.testing.assert_allclose(more, np.where(other != 0, 2 / num_tokens, 0), rtol=1e-6)


def test_the_special_ids_are_those_given():
    (source_ids, before), after = dataset([[4]], [[5, 6]], pad_id=9, bos_id=7, eos_id=8)[0]
    assert source_ids.tolist() == [[4, 8, 9, 9]]
    assert before.tolist() == [[7, 5, 6, 9]]
    assert after.tolist() == [[5, 6, 8, 9]]


def test_rows_may_be_arrays_and_an_index_may_count_from_the_end():
    data = dataset([np.array(row, "uint8") for row in SOURCES], map(np.array, TARGETS))
    assert same(batches(data), batches(dataset()))
    assert same(data[-1], data[len(data) - 1])


def test_an_index_beyond_the_batches_is_refused():
    data = dataset()
    for index in (len(data), -len(data) - 1):
        with pytest.raises(IndexError, match=f"from -{len(data)} to .*Received: {index}"):
            data[index]


def test_what_is_left_out_is_told(capfd):
    data = dataset([[4], [4] * 9, []], [[5], [5], [5]], max_length=8, verbose=True)
    assert (data.report.num_kept, data.report.num_too_long, data.report.num_empty) == (1, 1, 1)
    _, err = capfd.readouterr()
    assert err.startswith("PairDataset: 1 of 3 pairs in 1 batches of 1 shapes")


@pytest.mark.parametrize(
    ("sources", "targets", "options", "error", "message"),
    [
        ([[4]], [[5], [5]], {}, ValueError, "equally many. Received: 1 rows of sources and 2"),
        ([[4.5]], [[5]], {}, ValueError, r"`source_ids\[0\]` must be integers, .* with 4.5"),
        ([[True]], [[5]], {}, TypeError, r"rows of integers. Received: source_ids\[0\]"),
        ([4], [[5]], {}, TypeError, r"rows of integers. Received: source_ids\[0\]"),
        (["ab"], [[5]], {}, TypeError, r"rows of integers. Received: source_ids\[0\]"),
        ([[4]], [[0]], {}, ValueError, r"none of the special ids \(0, 2, 3\).* Received: 0"),
        ([[4, 3]], [[5]], {}, ValueError, "`source_ids` must hold .* Received: 3"),
        ([[4]], [[5]], {"pad_id": 3}, ValueError, "`pad_id` must differ from .*pad_id=3"),
        ([[4], [[4], [5, 6]]], [[5]], {}, TypeError, r"Received: source_ids\[1\]"),
        ([[4]], [[-1]], {}, ValueError, "no negative id.* Received: -1"),
        ([[2**31]], [[5]], {}, ValueError, "none above.* Received: 2147483648"),
        ([[]], [[5]], {}, ValueError, "At least one pair must have text"),
        ([], [], {}, ValueError, "At least one pair must have text"),
        ([[4] * 9], [[5]], {"tokens_per_batch": 8}, ValueError, "must be at least 12"),
        (
            [[4] * 9],
            [[5]],
            {"tokens_per_batch": 23, "rows_multiple": 2},
            ValueError,
            "must be at least 24, .*Received: tokens_per_batch=23, rows_multiple=2",
        ),
        ([[4]], [[5]], {"rows_multiple": 0}, ValueError, "`rows_multiple` must be .*=0"),
        ([[4]], [[5]], {"max_shapes": 0}, ValueError, "max_shapes"),
        ([[4]], [[5]], {"seed": -1}, ValueError, "seed"),
        ([[4]], [[5]], {"shuffle": 1}, ValueError, "shuffle"),
        ([[4]], [[5]], {"eos_id": -3}, ValueError, "eos_id"),
    ],
)
def test_bad_input_is_refused(sources, targets, options, error, message):
    with pytest.raises(error, match=message):
        dataset(sources, targets, **options)


def test_whole_floats_are_ids():
    floats = [np.array(row, "float32") for row in SOURCES], [[*map(float, row)] for row in TARGETS]
    for batch, of_floats in zip(batches(dataset()), batches(dataset(*floats)), strict=True):
        for ids, other in zip(*map(keras.tree.flatten, (batch, of_floats)), strict=True):
            np.testing.assert_array_equal(ids, other)
            assert other.dtype == "int32"
