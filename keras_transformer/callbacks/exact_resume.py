"""A training run that goes on, to the bit, where it was killed."""

import math
import zipfile
from os import PathLike
from pathlib import Path
from typing import Any

import keras
import numpy as np

from keras_transformer.callbacks.array_file import (
    as_numpy,
    assign,
    read_arrays,
    read_facts,
    write_arrays,
)
from keras_transformer.process_group import check_equal, is_first, tell_others


class ExactResume(keras.callbacks.Callback):
    """Saves the whole state of a training run after each epoch, and goes on from it.

    State is the weights, the optimizer with its step, which the schedule follows, and the seeds
    of every dropout. A `.keras` file does not hold those seeds. The batches of an epoch must follow
    from its number alone, as those of `translation_dataset` do. Then a training run that was killed
    at any moment and run again ends with the same weights as one that was not. On a CPU they are
    the same bit by bit. An epoch may be any number of batches:
    `translation_dataset(batches_per_epoch=...)`.

    Make the callback before the data, which must start where it says:

        resume = ExactResume("run/state")
        data = translation_dataset(..., seed=1, first_epoch=resume.epoch)
        model.fit(data, epochs=40, initial_epoch=resume.epoch, callbacks=[resume])

    To go on within one process, after an interruption, run all three lines again: the old dataset
    has gone on to the next epoch.

    Put it last among the callbacks, so that an epoch counts as done when the others have ended it.
    But put it before `keras.callbacks.SwapEMAWeights`, which leaves other weights in the model from
    the end of an epoch to the next. A resumed training then ends with the same weights but for
    rounding, as that callback swaps by adding.

    What other callbacks remember, as how long `ReduceLROnPlateau` has waited, is not part of the
    state. An epoch is not saved when a callback ends it before its last batch. Run again, `fit`
    begins it anew. An epoch is saved whatever its loss is, NaN too. Put
    `keras.callbacks.TerminateOnNaN` before this callback: the epoch that it ends is not saved.

    Of several processes give it to all. The first one writes; all read, so all must see the file.
    `fit` is refused where they see others.

    Args:
        directory: where the state is kept: one file, replaced as a whole.

    Raises:
        ValueError: when the file is of another model or optimizer, or the model is not built.
            When `fit` begins at another epoch than the state. When an epoch begins with other
            weights than were saved; the check looks at the smallest trainable one. When several
            processes find different states.

    Example:

    >>> import tempfile
    >>> import numpy as np
    >>> resume = ExactResume(tempfile.mkdtemp())
    >>> model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    >>> model.compile("sgd", "mse")
    >>> data = np.ones((8, 1))
    >>> history = model.fit(data, data, epochs=3, verbose=0, callbacks=[resume])
    >>> ExactResume(resume.path.parent).epoch
    3
    """

    def __init__(self, directory: str | PathLike[str]) -> None:
        super().__init__()
        self.path = Path(directory) / "state.npz"
        facts = read_facts(self.path)
        self.epoch = 0 if facts is None else facts["epoch"]
        self._found = facts is not None
        self._sample: np.ndarray | None = None  # of the weights saved, until the next epoch begins
        self._batch = 0  # of the epoch, the last that began
        self._optimizer = (facts or {}).get("optimizer")

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        """Restores the state, if there is one, the same in all processes."""
        check_equal(f"the state in {self.path}", (self.epoch, self._read_checksums()))
        if not self.model.built:
            raise ValueError("The model must be built before `fit`. Call `model.build()`.")
        optimizer = self.model.optimizer
        if not optimizer.built:
            optimizer.build(self.model.trainable_variables)
        if self._found:
            kind = name_optimizer(optimizer)
            if self._optimizer not in (None, kind):
                raise ValueError(
                    f"the optimizer must be of the kind that {self.path} was saved with, "
                    f"{self._optimizer}. Received: {kind}"
                )
            variables = self._variables()
            assign(variables, read_arrays(self.path, variables))

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Checks that `fit` goes on where the state ends."""
        if self._found and epoch != self.epoch:
            raise ValueError(
                f"`fit` must begin where the state in {self.path} ends: pass "
                f"initial_epoch={self.epoch}. Received: initial_epoch={epoch}"
            )

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Saves the state, unless a callback ended the epoch early, or at a loss of NaN."""
        if self.model.stop_training and not self._is_whole(logs or {}):
            return
        self.epoch, self._found = epoch + 1, True
        kind, variables = name_optimizer(self.model.optimizer), self._variables()
        if is_first():
            write_arrays(self.path, variables, epoch=self.epoch, optimizer=kind)
        tell_others(0)  # who reads the file next reads this one
        self._sample = self._smallest_weight()

    def on_train_batch_begin(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        """Checks that an epoch begins with the weights that were saved at the end of the last."""
        self._batch = batch
        if self._sample is None:
            return
        saved, self._sample = self._sample, None
        found = self._smallest_weight()
        if not np.allclose(found, saved, rtol=1e-4, atol=1e-6, equal_nan=True):
            raise ValueError(
                "a run must go on with the weights that it ended an epoch with. Put ExactResume "
                "before the callback that changes them in between, as SwapEMAWeights. Then remove "
                f"{self.path}. Received: other weights, by up to "
                f"{np.max(np.abs(found - saved)):.3g}"
            )

    def _read_checksums(self) -> list[tuple[str, int]]:
        """The checksums that the file has of its arrays, which are not read."""
        if not self._found:
            return []
        with zipfile.ZipFile(self.path) as file:
            return [(member.filename, member.CRC) for member in file.infolist()]

    def _is_whole(self, logs: dict[str, Any]) -> bool:
        """Whether `fit` saw all batches of the epoch, as far as it knows their number."""
        steps = self.params.get("steps") or 0
        seen = self._batch + self.model.steps_per_execution
        return seen >= steps and math.isfinite(logs.get("loss", 0.0))

    def _smallest_weight(self) -> np.ndarray:
        """The values of the trainable weight that has the fewest, so a cheap sample of all."""
        weights = self.model.trainable_variables
        smallest = min(weights, key=lambda weight: math.prod(weight.shape), default=None)
        return np.zeros(0) if smallest is None else as_numpy(smallest)

    def _variables(self) -> list[Any]:
        """All variables that outlast an epoch: weights, seeds, and those of the optimizer."""
        model = self.model  # on JAX asking for it brings the variables up to date
        inner = getattr(model.optimizer, "inner_optimizer", None)
        optimizers = [model.optimizer] if inner is None else [model.optimizer, inner]
        found = [*model.variables, *(v for optimizer in optimizers for v in optimizer.variables)]
        return list({id(variable): variable for variable in found}.values())


def name_optimizer(optimizer: Any) -> str:
    """The name of its class; where it wraps another, of both."""
    name, inner = type(optimizer).__name__, getattr(optimizer, "inner_optimizer", None)
    return name if inner is None else f"{name} of {name_optimizer(inner)}"
