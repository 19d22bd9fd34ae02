"""The paper's learning-rate schedule, and any schedule counted in updates of several batches."""

from typing import Any

import keras
from keras import ops

from keras_transformer import arguments
from keras_transformer.arguments import KerasSchedule, Length, Tensor

__all__ = ["UpdateSchedule", "WarmupSchedule"]


@keras.saving.register_keras_serializable(package="keras_transformer")
class WarmupSchedule(keras.optimizers.schedules.LearningRateSchedule):
    """Raises the learning rate linearly for `warmup_steps`, then lowers it as 1 / sqrt(step).

    `rate = scale * d_model ** -0.5 * min(step ** -0.5, step * warmup_steps ** -1.5)`

    Steps count from 1, so the first update already learns: an optimizer's iteration 0 is step 1.
    The peak, `scale * (d_model * warmup_steps) ** -0.5`, is reached at step `warmup_steps`.

    Args:
        d_model: width of the model.
        warmup_steps: number of updates until the peak.
        scale: factor on the whole curve.

    Returns:
        Called with the number of updates done, the float32 learning rate of the next one.

    Raises:
        ValueError: when `d_model` or `warmup_steps` is not a positive integer or `scale` is not
            a positive number.

    Reference: Vaswani et al. 2017, "Attention Is All You Need", section 5.3, equation 3.

    Example:

    >>> schedule = WarmupSchedule(d_model=512, warmup_steps=4000)
    >>> round(float(schedule(3999)), 7)
    0.0006988
    """

    def __init__(self, d_model: int, warmup_steps: int = 4000, scale: float = 1.0) -> None:
        super().__init__()
        self.d_model = arguments.positive_integer("d_model", d_model)
        self.warmup_steps = arguments.positive_integer("warmup_steps", warmup_steps)
        self.scale = arguments.positive_number("scale", scale)

    def __call__(self, step: Length) -> Tensor:
        """Returns the learning rate of the update after `step` updates, as float32."""
        step = ops.cast(step, "float32") + 1.0
        factor = self.scale * self.d_model**-0.5
        return factor * ops.minimum(ops.rsqrt(step), step * self.warmup_steps**-1.5)

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        return {"d_model": self.d_model, "warmup_steps": self.warmup_steps, "scale": self.scale}


@keras.saving.register_keras_serializable(package="keras_transformer")
class UpdateSchedule(keras.optimizers.schedules.LearningRateSchedule):
    """Counts updates where an optimizer with gradient accumulation counts batches.

    `rate(batch) = schedule(batch // batches_per_update)`

    Keras gives a schedule the number of batches, also when `gradient_accumulation_steps` of them
    make one update: warm-up and decay would pass that many times faster.

    Args:
        schedule: a learning-rate schedule in updates.
        batches_per_update: the optimizer's `gradient_accumulation_steps`.

    Returns:
        Called with the number of batches done, the learning rate of the next update.

    Raises:
        ValueError: for a bad argument.

    Example:

    >>> schedule = UpdateSchedule(WarmupSchedule(512), batches_per_update=8)
    >>> float(schedule(8 * 100)) == float(WarmupSchedule(512)(100))
    True
    """

    def __init__(self, schedule: KerasSchedule, batches_per_update: int) -> None:
        super().__init__()
        if isinstance(schedule, dict):
            schedule = keras.saving.deserialize_keras_object(schedule)
        if not isinstance(schedule, keras.optimizers.schedules.LearningRateSchedule):
            raise ValueError(
                "`schedule` must be a `keras.optimizers.schedules.LearningRateSchedule`. "
                f"Received: schedule={schedule!r}"
            )
        self.schedule = schedule
        self.batches_per_update = arguments.positive_integer(
            "batches_per_update", batches_per_update
        )

    def __call__(self, step: Length) -> Tensor:
        """Returns the learning rate of the update that batch number `step` belongs to."""
        return self.schedule(ops.floor_divide(step, self.batches_per_update))

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        return {
            "schedule": keras.saving.serialize_keras_object(self.schedule),
            "batches_per_update": self.batches_per_update,
        }
