"""Updates of several batches: the loss is the mean over all of their tokens."""

import keras
import numpy as np
import pytest

from keras_transformer import MaskedCrossentropy, Transformer, UpdateSchedule, WarmupSchedule
from keras_transformer.text import CharacterTokenizer, translation_dataset
from tests.backends import array

LETTERS = CharacterTokenizer("abcdefgh")
# Eight pairs whose targets have 1 to 8 letters: batches of 2 hold very different numbers of tokens.
SOURCES = ["abcdefgh"[: 1 + i % 5] for i in range(8)]
TARGETS = ["hgfedcba"[: 1 + i] for i in range(8)]


def dataset(sources=SOURCES, targets=TARGETS, **arguments):
    arguments = {"tokens_per_batch": 2 * 12, "max_shapes": 1, "verbose": False} | arguments
    return translation_dataset(sources, targets, LETTERS, **arguments)


def small_model():
    """Reads both inputs, and is traced in a moment."""
    source_ids, target_ids = inputs = [keras.Input((None,), dtype="int32") for _ in range(2)]
    embedding = keras.layers.Embedding(LETTERS.vocab_size, 8)
    source = keras.layers.GlobalAveragePooling1D(keepdims=True)(embedding(source_ids))
    hidden = keras.layers.Add()([source, embedding(target_ids)])
    return keras.Model(inputs, keras.layers.Dense(LETTERS.vocab_size)(hidden))


def transformer():
    sizes = dict(num_layers=1, d_model=8, num_heads=2, d_ff=8, dropout=0.0)
    model = Transformer(LETTERS.vocab_size, **sizes)
    model.build()
    return model


def model_with(make, loss, steps, jit_compile):
    keras.utils.set_random_seed(1)
    model = make()
    schedule = WarmupSchedule(8, 4)
    if steps > 1:
        schedule = UpdateSchedule(schedule, steps)
    # Not Adam, which makes steps of rounding errors where a gradient is 0.
    accumulation = steps if steps > 1 else None
    optimizer = keras.optimizers.SGD(schedule, gradient_accumulation_steps=accumulation)
    model.compile(optimizer, loss, jit_compile=jit_compile)
    return model


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "jit_compile"), [(small_model, False), (small_model, True), (transformer, True)]
)
def test_one_batch_of_8_is_4_of_2_accumulated(make, jit_compile):
    whole = dataset(tokens_per_batch=8 * 12)
    assert whole.report.num_batches == 1
    parts = dataset(batches_per_update=4)
    assert parts.report.num_batches == 4
    counts = [int((labels.numpy() != 0).sum()) for _, labels, _ in parts]
    assert len(set(counts)) == 4, "the test needs batches of unequal numbers of tokens"
    expected = model_with(make, MaskedCrossentropy(0.1), 1, jit_compile)
    expected.fit(whole, epochs=3, verbose=0, shuffle=False)
    found = model_with(make, MaskedCrossentropy(0.1, reduction="sum"), 4, jit_compile)
    found.fit(parts, epochs=3, verbose=0, shuffle=False)
    assert int(found.optimizer.iterations) == int(expected.optimizer.iterations) == 3
    for weight, value in zip(found.weights, expected.weights, strict=True):
        np.testing.assert_allclose(array(weight), array(value), rtol=1e-5, atol=1e-6)
    # Batches counted as equals give something else: the test above can fail.
    naive = model_with(make, MaskedCrossentropy(0.1), 4, jit_compile=False)
    unweighted = parts.map(lambda inputs, labels, weights: (inputs, labels))
    naive.fit(unweighted, epochs=3, verbose=0, shuffle=False)
    gaps = [
        np.abs(array(a) - array(b)).max()
        for a, b in zip(naive.weights, expected.weights, strict=True)
    ]
    assert max(gaps) > 1e-3


def test_weights_sum_to_the_number_of_batches_over_each_update():
    data = dataset(SOURCES * 3, TARGETS * 3, batches_per_update=5, shuffle=True, seed=1)
    batches = [(labels.numpy(), weights.numpy()) for _, labels, weights in data]
    assert len(batches) == data.report.num_batches == 15
    for start in (0, 5, 10):
        update = batches[start : start + 5]
        assert sum(weights.sum() for _, weights in update) == pytest.approx(5)
        values = {float(v) for labels, weights in update for v in weights[labels != 0]}
        assert len(values) == 1
        assert all((weights[labels == 0] == 0).all() for labels, weights in update)
    # 12 batches of pairs, filled with 3 of padding.
    assert sum((labels != 0).any() for labels, _ in batches) == 12


def test_six_batches_of_4096_tokens_are_an_update_of_the_paper():
    """About 25,000 source tokens and 25,000 target tokens (Vaswani et al. 2017, 5.1)."""
    lengths = np.random.default_rng(1).integers(3, 60, 12_000)
    texts = ["abcdefgh"[:1] * length for length in lengths]
    arguments = dict(tokens_per_batch=4096, batches_per_update=6, batches_per_epoch=60)
    data = dataset(texts, texts, max_shapes=8, shuffle=True, seed=1, **arguments)
    tokens = [int((labels.numpy() != 0).sum()) for _, labels, _ in data]
    updates = np.reshape(tokens, (10, 6)).sum(axis=1)  # real ones, padding left out
    assert 19_000 < updates.min() <= updates.max() <= 6 * 4096


def test_an_epoch_of_a_number_of_batches_goes_on_pass_after_pass():
    options = dict(shuffle=True, seed=4)
    whole = dataset(**options)
    stream = [labels.numpy().tolist() for _ in range(3) for _, labels in whole]
    short = dataset(**options, batches_per_epoch=3)
    assert int(short.cardinality()) == 3
    assert [labels.numpy().tolist() for _ in range(4) for _, labels in short] == stream
    resumed = dataset(**options, batches_per_epoch=3, first_epoch=2)
    assert [labels.numpy().tolist() for _, labels in resumed] == stream[6:9]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"batches_per_update": 0}, "`batches_per_update` must be a positive integer"),
        ({"batches_per_epoch": 0}, "`batches_per_epoch` must be a positive integer"),
        ({"batches_per_epoch": 5, "batches_per_update": 2}, "must be a multiple of"),
    ],
)
def test_bad_numbers_raise(arguments, message):
    with pytest.raises(ValueError, match=message):
        dataset(**arguments)


def test_the_schedule_counts_updates():
    schedule = UpdateSchedule(WarmupSchedule(16, 10), 4)
    assert [float(schedule(batch)) for batch in (0, 3, 4, 39)] == [
        float(WarmupSchedule(16, 10)(update)) for update in (0, 0, 1, 9)
    ]
    twin = UpdateSchedule.from_config(schedule.get_config())
    assert float(twin(17)) == float(schedule(17))
    for wrong in (0.1, None):
        with pytest.raises(ValueError, match="`schedule` must be a"):
            UpdateSchedule(wrong, 2)
