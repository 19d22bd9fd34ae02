"""The warm-up schedule: equation 3 by hand, its shape, and the rate of the first update."""

import keras
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from keras_transformer import WarmupSchedule
from keras_transformer.schedules import UpdateSchedule
from tests.backends import array


def rate_of_update(schedule, update):
    """Counts updates from 1, as the paper does; an optimizer counts those already done."""
    return float(array(schedule(update - 1)))


def test_equation_3_by_hand():
    # d_model ** -0.5 = 16 ** -0.5 = 1/4, warmup_steps ** -1.5 = 4 ** -1.5 = 1/8:
    #   step 1:  1/4 * min(1, 1/8)    = 1/32   (rising)
    #   step 4:  1/4 * min(1/2, 4/8)  = 1/8    (the peak, where both are equal)
    #   step 16: 1/4 * min(1/4, 16/8) = 1/16   (four times later, half the peak)
    schedule = WarmupSchedule(d_model=16, warmup_steps=4)
    for step, rate in [(1, 1 / 32), (4, 1 / 8), (16, 1 / 16)]:
        assert rate_of_update(schedule, step) == pytest.approx(rate, rel=1e-6)


def test_the_base_model_of_the_paper_peaks_at_seven_ten_thousandths():
    # (512 * 4000) ** -0.5 = 2048000 ** -0.5 = 1 / 1431.08...
    peak = rate_of_update(WarmupSchedule(d_model=512), 4000)
    assert peak == pytest.approx(1 / 1431.0835, rel=1e-6)


@given(
    d_model=st.integers(1, 4096),
    warmup_steps=st.integers(1, 20_000),
    scale=st.floats(0.1, 10.0),
    step=st.integers(1, 1_000_000),
)
def test_every_rate_is_positive_right_and_at_most_the_peak(d_model, warmup_steps, scale, step):
    schedule = WarmupSchedule(d_model, warmup_steps, scale)
    expected = scale * d_model**-0.5 * min(step**-0.5, step * warmup_steps**-1.5)
    rate = rate_of_update(schedule, step)
    assert 0 < rate <= scale * (d_model * warmup_steps) ** -0.5 * (1 + 1e-6)
    assert rate == pytest.approx(expected, rel=1e-5)


def test_the_rate_rises_until_the_peak_and_falls_after_it():
    schedule = WarmupSchedule(d_model=64, warmup_steps=7)
    rates = [rate_of_update(schedule, step) for step in range(1, 15)]
    assert rates[:7] == sorted(rates[:7])
    assert rates[6:] == sorted(rates[6:], reverse=True)
    assert max(rates) == rates[6]


def test_the_first_update_already_learns():
    optimizer = keras.optimizers.SGD(WarmupSchedule(d_model=16, warmup_steps=4))
    weight = keras.Variable(np.array([1.0], "float32"))
    assert float(array(optimizer.learning_rate)) == pytest.approx(1 / 32)
    optimizer.apply([keras.ops.ones((1,))], [weight])
    assert float(array(weight.value)[0]) == pytest.approx(1 - 1 / 32)
    assert float(array(optimizer.learning_rate)) == pytest.approx(2 / 32)


def test_the_rate_is_float32_under_a_half_precision_policy():
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        rate = WarmupSchedule(d_model=16)(keras.ops.convert_to_tensor(100_000, "int32"))
    finally:
        keras.config.set_dtype_policy("float32")
    assert keras.backend.standardize_dtype(rate.dtype) == "float32"
    assert float(rate) == pytest.approx(0.25 * 100_001**-0.5, rel=1e-6)


def test_all_batches_of_an_update_have_its_rate():
    warmup = WarmupSchedule(d_model=16, warmup_steps=4)
    schedule = UpdateSchedule(warmup, batches_per_update=3)
    found = [float(array(schedule(step))) for step in range(9)]
    expected = [float(array(warmup(update))) for update in (0, 0, 0, 1, 1, 1, 2, 2, 2)]
    assert found == expected
