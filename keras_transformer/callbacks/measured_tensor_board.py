"""TensorBoard's curves of what only some epochs measure."""

from typing import Any

import keras
import numpy as np


class MeasuredTensorBoard(keras.callbacks.TensorBoard):
    """`keras.callbacks.TensorBoard` that leaves out what an epoch did not measure.

    `TranslationQuality(every=n)` repeats its figures in the logs of the epochs between two
    measurements. Keras's callback draws a staircase of them, and a curve of `val_bleu_epoch`. This
    one draws one point a measurement. It also leaves out NaN and infinity, through which
    TensorBoard draws no line. Put it after the callbacks whose figures it writes.

    Args:
        *args, **kwargs: of `keras.callbacks.TensorBoard`, as `log_dir`.

    Example:

    >>> import tempfile
    >>> board = MeasuredTensorBoard(tempfile.mkdtemp())
    >>> board.update_freq
    'epoch'
    """

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Writes the finite numbers that were measured in this epoch."""
        logs = logs or {}
        epochs = {f"{name}_epoch" for name in logs}
        measured = {
            name: value
            for name, value in logs.items()
            if name not in epochs
            and logs.get(f"{name}_epoch", epoch + 1) == epoch + 1
            and np.all(np.isfinite(value))
        }
        super().on_epoch_end(epoch, measured)
