"""TensorBoard's curves of what only some epochs measure."""

import keras
import numpy as np


class MeasuredTensorBoard(keras.callbacks.TensorBoard):
    """`keras.callbacks.TensorBoard` that leaves out what an epoch did not measure.

    A figure that is measured every few epochs, as `TranslationQuality`'s, is NaN in the logs of the
    other epochs, and TensorBoard draws no line through a NaN. Left out, the points that there are
    make a curve. It comes after the callbacks whose figures it writes.

    Args:
        *args, **kwargs: of `keras.callbacks.TensorBoard`, as `log_dir`.

    Example:

    >>> import tempfile
    >>> board = MeasuredTensorBoard(tempfile.mkdtemp())
    >>> board.update_freq
    'epoch'
    """

    def on_epoch_end(self, epoch, logs=None):
        """Writes the values of the epoch that are finite numbers."""
        measured = {name: v for name, v in (logs or {}).items() if np.all(np.isfinite(v))}
        super().on_epoch_end(epoch, measured)
