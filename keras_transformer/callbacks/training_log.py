"""How fast a training run goes and how large its steps are, for every log."""

import time
from typing import Any

import keras
import numpy as np

from keras_transformer import arguments
from keras_transformer.callbacks.array_file import as_numpy


class TrainingLog(keras.callbacks.Callback):
    """Prints, every few batches, what Keras does not, and adds it to the logs of each epoch.

    | name | |
    |---|---|
    | `tokens_per_second` | real target tokens; needs the metric `TokenCount` |
    | `learning_rate` | of the next update |
    | `gradient_norm` | Euclidean norm of all gradients of one update, after clipping |
    | `padding_ratio` | the metric `PaddingRatio`, printed if there |

    `History`, `CSVLogger` and `TensorBoard` have these figures of an epoch when they come after
    this callback. The norm follows from Adam's first moments before and after an update,
    `g = (m' - beta_1 m) / (1 - beta_1)`, so that the other steps cost nothing. There is no norm for
    optimizers without such moments, nor with `steps_per_execution` above 1. With
    accumulation it is that of the update. An epoch's logs have the norm of its last line, or of its
    first update when no line falls into it. An epoch without an update repeats the norm before, 0
    when there was none, so that every epoch has a number.

    Args:
        every: batches from one line to the next, counted on from epoch to epoch.
        verbose: whether to print lines; the epoch's logs have the figures anyway.

    Raises:
        ValueError: for a bad argument.

    Example:

    >>> log = TrainingLog(every=100)
    >>> log.every
    100
    """

    def __init__(self, every: int = 100, verbose: bool = True) -> None:
        super().__init__()
        self.every = arguments.positive_integer("every", every)
        self.verbose = arguments.boolean("verbose", verbose)

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        """Builds the optimizer, whose moments are read before the first update."""
        self._counted = 0  # batches of all epochs
        self._norm: float | None = None  # of the last update that was looked at
        self._carried_tokens = self._carried_seconds = 0.0  # since the last line, of ended epochs
        if self.model.built and not self.model.optimizer.built:
            self.model.optimizer.build(self.model.trainable_variables)

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Starts the clocks."""
        self._epoch = epoch
        self._batches, self._has_looked = 0, False
        self._moments: list[np.ndarray] | None = None
        batches = getattr(self.model.optimizer, "gradient_accumulation_steps", None) or 1
        self._start = max(0, self.every - batches)
        self._epoch_began = self._window_began = time.perf_counter()
        self._window_tokens = 0.0
        self._trained: float | None = None

    def on_train_batch_begin(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        """Notes the moments before the batch that will be told of."""
        if self._moments is None and (
            self._counted % self.every == self._start or not self._has_looked
        ):
            self._moments = self._first_moments()

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        """Prints a line when it is time."""
        if self._moments is not None:
            norm = self._gradient_norm(self._moments)
            if norm:  # else the batch was accumulated, and made no update yet
                self._norm, self._moments, self._has_looked = norm, None, True
        before = self._counted
        self._counted += batch + 1 - self._batches  # Keras calls once an execution
        self._batches = batch + 1
        if before // self.every == self._counted // self.every:
            return
        now, logs = time.perf_counter(), logs or {}
        seconds = self._carried_seconds + now - self._window_began
        tokens = self._carried_tokens + float(logs.get("tokens", 0)) - self._window_tokens
        self._carried_seconds = self._carried_tokens = 0.0
        self._window_began, self._window_tokens = now, float(logs.get("tokens", 0))
        if not self.verbose:
            return
        figures = {"loss": float(logs["loss"])} if "loss" in logs else {}
        if "tokens" in logs:
            figures["tokens_per_second"] = tokens / seconds
        figures |= self._step_figures()
        if "padding_ratio" in logs:
            figures["padding_ratio"] = float(logs["padding_ratio"])
        listed = ", ".join(f"{name} {value:.4g}" for name, value in figures.items())
        print(f"  epoch {self._epoch + 1}, batch {self._batches:,}: {listed}", flush=True)

    def on_test_begin(self, logs: dict[str, Any] | None = None) -> None:
        """Validation does not count as time of training."""
        self._trained = time.perf_counter()

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Adds the figures of the epoch to its logs."""
        ended = self._trained or time.perf_counter()
        self._carried_seconds += ended - self._window_began
        if logs is None:
            return
        if "tokens" in logs:
            tokens = float(logs["tokens"])
            self._carried_tokens += tokens - self._window_tokens
            logs["tokens_per_second"] = tokens / (ended - self._epoch_began)
        logs.update(self._step_figures())
        if self._moment_variables():
            logs.setdefault("gradient_norm", 0.0)

    def _step_figures(self) -> dict[str, float]:
        rate = keras.ops.convert_to_numpy(self.model.optimizer.learning_rate)
        figures = {"learning_rate": float(rate)}
        if self._norm is not None:
            figures["gradient_norm"] = self._norm
        return figures

    def _adam(self) -> Any:
        optimizer = self.model.optimizer
        return getattr(optimizer, "inner_optimizer", optimizer)

    def _moment_variables(self) -> list[Any] | None:
        """Adam's first moments: none before the first update of an optimizer that is not built."""
        optimizer = self._adam()
        moves_by_beta_1 = hasattr(optimizer, "beta_1") and not isinstance(
            optimizer, keras.optimizers.Lion
        )
        if not moves_by_beta_1 or self.model.steps_per_execution > 1:
            return None
        return [v for v in optimizer.variables if v.name.endswith("_momentum")]

    def _first_moments(self) -> list[np.ndarray] | None:
        variables = self._moment_variables()
        return None if variables is None else [as_numpy(v) for v in variables]

    def _gradient_norm(self, before: list[np.ndarray]) -> float:
        beta = self._adam().beta_1
        after = self._first_moments() or []
        before = before or [np.zeros_like(moment) for moment in after]  # they begin at 0
        if all(np.array_equal(new, old) for new, old in zip(after, before, strict=True)):
            return 0.0
        steps = (
            (new - beta * old).astype("float32", copy=False)
            for new, old in zip(after, before, strict=True)
        )
        return float(np.sqrt(sum(float(np.vdot(step, step)) for step in steps)) / (1 - beta))
