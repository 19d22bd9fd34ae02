"""Averaging of the last checkpoints."""

import contextlib
import inspect
import re
from collections.abc import Iterator
from os import PathLike
from pathlib import Path
from typing import Any

import keras
import numpy as np

from keras_transformer import arguments
from keras_transformer.callbacks.array_file import as_numpy, assign, read_arrays, write_arrays
from keras_transformer.process_group import is_first, tell_others


class AverageCheckpoints(keras.callbacks.Callback):
    """Keeps the weights of the last epochs, and gives the model their mean.

    `weight = mean of the weight after each of the last epochs`

    The mean of checkpoints along one training path lies nearer to the bottom of the valley that
    the steps jump about in. The paper averages its last 5 (base) or 20 (big) checkpoints.

    When the training ends the model has the mean. Before that, `with average.averaged():` lends it
    the mean, for a measurement. The files stay for a training run that goes on.

    Only one callback can decide the weights at the end of `fit`. `at_end=True` therefore does not
    go together with `EarlyStopping(restore_best_weights=True)`. To keep the best mean, pass
    `TranslationQuality` this callback as `average`, and a `filepath`.

    Of several processes give it to all: the first one writes and reads, and tells the others.

    Args:
        directory: where the epochs' weights are kept, one file each, the last ones alone.
        last: how many epochs to average, fewer while there are fewer.
        at_end: whether the model has the mean when `fit` is over.

    Raises:
        ValueError: for a bad argument, when the files are of another model, and when another
            callback of `fit` restores weights at its end.

    Reference: Vaswani et al. 2017, section 6.1.

    Example:

    >>> import tempfile
    >>> import numpy as np
    >>> model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    >>> model.compile("sgd", "mse")
    >>> average = AverageCheckpoints(tempfile.mkdtemp(), last=5)
    >>> data = np.ones((8, 1))
    >>> history = model.fit(data, data, epochs=7, verbose=0, callbacks=[average])
    >>> [file.name for file in average.files()]  # doctest: +ELLIPSIS
    ['weights-0003.npz', ..., 'weights-0007.npz']
    """

    def __init__(self, directory: str | PathLike[str], last: int = 10, at_end: bool = True) -> None:
        super().__init__()
        self.directory = Path(directory)
        self.last = arguments.positive_integer("last", last)
        self.at_end = arguments.boolean("at_end", at_end)

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        """Refuses a callback that would undo the mean, or whose weights the mean would replace."""
        others = callbacks_of_fit() if self.at_end else []
        if any(getattr(callback, "restore_best_weights", False) for callback in others):
            raise ValueError(
                "`restore_best_weights` must be False beside AverageCheckpoints(at_end=True): each "
                "sets the weights at the end of `fit`. For the best epoch, pass at_end=False here; "
                "for the best mean, load the `filepath` of TranslationQuality(average=...). "
                "Received: restore_best_weights=True"
            )

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Keeps the weights of this epoch, and those of the `last - 1` before."""
        if not is_first():
            return
        kept = {self._number(file): file for file in self.files()}
        path = self.directory / f"weights-{epoch + 1:04d}.npz"
        write_arrays(path, self.model.weights)
        for number, file in kept.items():
            # Those of later epochs are of a run that went on from before them.
            if not epoch + 1 - self.last < number <= epoch + 1:
                file.unlink()

    def on_train_end(self, logs: dict[str, Any] | None = None) -> None:
        """Gives the model the mean."""
        if self.at_end and tell_others(len(self.files())):
            assign(self.model.weights, self.mean())

    def files(self) -> list[Path]:
        """The files of the epochs that are kept, in order."""
        found = [file for file in self.directory.glob("weights-*.npz") if self._number(file)]
        return sorted(found, key=self._number)

    def newest(self) -> int:
        """The number of the last epoch that is kept, 0 when none is."""
        return max(map(self._number, self.files()), default=0)

    def mean(self) -> list[np.ndarray]:
        """The means of the weights over the files, float64 arrays in the order of the weights."""
        weights, files = self.model.weights, self.files()
        if not tell_others(len(files)):
            raise ValueError(f"{self.directory} must hold the weights of an epoch: there are none.")
        total = [np.zeros(tuple(weight.shape)) for weight in weights]
        for file in files if is_first() else ():
            total = [t + v for t, v in zip(total, read_arrays(file, weights), strict=True)]
        return [tell_others(t / max(1, len(files))) for t in total]

    @contextlib.contextmanager
    def averaged(self) -> Iterator[None]:
        """Within it the model has the mean of what is kept so far; then its own weights again."""
        weights = self.model.weights
        own = [as_numpy(weight) for weight in weights]
        try:
            if tell_others(len(self.files())):
                assign(weights, self.mean())
            yield
        finally:
            assign(weights, own)

    @staticmethod
    def _number(file: Path) -> int:
        match = re.fullmatch(r"weights-(\d+)\.npz", file.name)
        return int(match.group(1)) if match else 0


def callbacks_of_fit() -> list[Any]:
    """The callbacks of the `fit` that runs now: Keras tells a callback of no other."""
    frame = inspect.currentframe()
    while frame is not None:
        caller = frame.f_locals.get("self")
        if isinstance(caller, keras.callbacks.CallbackList):
            return caller.callbacks
        frame = frame.f_back
    return []
