"""Metrics over real target tokens: accuracy, perplexity as an exact token average, counts."""

from typing import Any

import keras
from keras import ops

from keras_transformer import arguments
from keras_transformer.arguments import Ids, Logits, Tensor
from keras_transformer.losses import (
    checked_sample_weight,
    integer_labels,
    token_crossentropy,
    token_weights,
)
from keras_transformer.masking import padding_mask, zero_masked
from keras_transformer.replicas import sum_over_replicas

__all__ = ["MaskedAccuracy", "PaddingRatio", "Perplexity", "TokenCount"]


class _OfTokens(keras.metrics.Metric):
    """What the metrics have in common: the label that is not a token.

    Under a `tf.distribute` strategy a metric made in its scope has sums for each replica. Keras
    adds them up at the end of an epoch alone, and logs of a batch would be means over replicas.
    """

    def __init__(self, pad_id: int, name: str, dtype: str | None) -> None:
        super().__init__(name=name, dtype=dtype)
        self.pad_id = arguments.non_negative_integer("pad_id", pad_id)

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        return {"pad_id": self.pad_id, "name": self.name, "dtype": self.dtype}


class _Mean(_OfTokens, keras.metrics.Mean):
    """Mean over all positions seen so far, on every replica."""

    def result(self) -> Tensor:
        """Returns the mean."""
        total, count = (
            sum_over_replicas(ops.cast(sums, self.dtype)) for sums in (self.total, self.count)
        )
        return ops.divide_no_nan(total, count)


class _TokenMean(_Mean):
    """Mean of a value over all real tokens seen so far; what the value is, a subclass says."""

    def update_state(
        self, y_true: Ids, y_pred: Logits, sample_weight: Tensor | None = None
    ) -> None:
        """Adds a batch: labels (batch, length), logits (batch, length, vocab)."""
        mask = token_weights(y_true, y_pred, self.pad_id)
        weights = ops.cast(mask, "float32")
        if sample_weight is not None:
            weights = weights * checked_sample_weight(sample_weight, mask)
        values = zero_masked(self.token_values(ops.cast(y_true, "int32"), y_pred), mask)
        # One axis: Mean would average each row first, and rows of long batches would count less.
        # -> (batch * length,)
        return super().update_state(ops.reshape(values, (-1,)), ops.reshape(weights, (-1,)))


@keras.saving.register_keras_serializable(package="keras_transformer")
class MaskedAccuracy(_TokenMean):
    """Counts how often the likeliest token is the label, over real tokens.

    `accuracy = sum(w * (argmax(logits) == label)) / sum(w)`, with `w = (label != pad_id)`

    Args:
        pad_id: the label that does not count.
        name: name of the metric.
        dtype: dtype of the running sums.

    Shapes:
        y_true: (batch, length) integer labels. y_pred: (batch, length, vocab) logits.

    Returns:
        A float32 scalar, the mean over all tokens since the last reset.

    Raises:
        ValueError: when `pad_id` is not an id or the shapes of labels and logits do not fit.

    Example:

    >>> import numpy as np
    >>> metric = MaskedAccuracy()
    >>> metric.update_state(np.array([[1, 2, 0]]), np.eye(3, dtype="float32")[None, [1, 1, 1]])
    >>> float(metric.result())
    0.5
    """

    def __init__(
        self, pad_id: int = 0, name: str = "masked_accuracy", dtype: str | None = None
    ) -> None:
        super().__init__(pad_id, name, dtype)

    def token_values(self, labels: Ids, logits: Logits) -> Tensor:
        """1 where the likeliest token is the label, else 0."""
        predictions = ops.cast(ops.argmax(logits, axis=-1), "int32")
        return ops.cast(ops.equal(predictions, labels), "float32")


@keras.saving.register_keras_serializable(package="keras_transformer")
class Perplexity(_TokenMean):
    """Measures perplexity, the exponential of the mean cross-entropy of a real token.

    `perplexity = exp(sum(w * crossentropy) / sum(w))`, with `w = (label != pad_id)`

    Every token of an epoch counts the same, however the batches were made up. Labels are not
    smoothed, so the figure compares across recipes with the same vocabulary.

    Args:
        pad_id: the label that does not count.
        name: name of the metric.
        dtype: dtype of the running sums.

    Shapes:
        y_true: (batch, length) integer labels. y_pred: (batch, length, vocab) logits.

    Returns:
        A float32 scalar, over all tokens since the last reset.

    Raises:
        ValueError: when `pad_id` is not an id or the shapes of labels and logits do not fit.

    Example:

    >>> import numpy as np
    >>> metric = Perplexity()
    >>> metric.update_state(np.array([[3, 0]]), np.zeros((1, 2, 4), "float32"))
    >>> round(float(metric.result()), 4)
    4.0
    """

    def __init__(self, pad_id: int = 0, name: str = "perplexity", dtype: str | None = None) -> None:
        super().__init__(pad_id, name, dtype)

    def token_values(self, labels: Ids, logits: Logits) -> Tensor:
        """Cross-entropy of each position."""
        return token_crossentropy(labels, logits)

    def result(self) -> Tensor:
        """Returns the perplexity of the tokens seen so far."""
        return ops.exp(super().result())


@keras.saving.register_keras_serializable(package="keras_transformer")
class TokenCount(_OfTokens, keras.metrics.Sum):
    """Counts real target tokens: what `TrainingLog` makes tokens a second of.

    `tokens = sum(label != pad_id)`

    Args:
        pad_id: the label that does not count.
        name: name of the metric.
        dtype: dtype of the running sum.

    Shapes:
        y_true: (batch, length) integer labels. y_pred: anything.

    Returns:
        A float32 scalar, over all batches since the last reset.

    Raises:
        ValueError: when `pad_id` is not an id.

    Example:

    >>> import numpy as np
    >>> metric = TokenCount()
    >>> metric.update_state(np.array([[1, 2, 0]]), None)
    >>> float(metric.result())
    2.0
    """

    def __init__(self, pad_id: int = 0, name: str = "tokens", dtype: str | None = None) -> None:
        super().__init__(pad_id, name, dtype)

    def update_state(
        self, y_true: Ids, y_pred: Tensor, sample_weight: Tensor | None = None
    ) -> None:
        """Adds a batch of labels; weights do not count."""
        mask = padding_mask(integer_labels(y_true), self.pad_id)
        super().update_state(ops.cast(mask, "float32"))

    def result(self) -> Tensor:
        """Returns the number of tokens seen so far."""
        # PyTorch: not the sum itself, which validation goes on with.
        return sum_over_replicas(super().result()) + 0


@keras.saving.register_keras_serializable(package="keras_transformer")
class PaddingRatio(_Mean):
    """Measures which share of the target positions is padding.

    `padding_ratio = sum(label == pad_id) / positions`

    Args:
        pad_id: the label of padding.
        name: name of the metric.
        dtype: dtype of the running sums.

    Shapes:
        y_true: (batch, length) integer labels. y_pred: anything.

    Returns:
        A float32 scalar, over all batches since the last reset.

    Raises:
        ValueError: when `pad_id` is not an id.

    Example:

    >>> import numpy as np
    >>> metric = PaddingRatio()
    >>> metric.update_state(np.array([[1, 2, 3, 0]]), None)
    >>> float(metric.result())
    0.25
    """

    def __init__(
        self, pad_id: int = 0, name: str = "padding_ratio", dtype: str | None = None
    ) -> None:
        super().__init__(pad_id, name, dtype)

    def update_state(
        self, y_true: Ids, y_pred: Tensor, sample_weight: Tensor | None = None
    ) -> None:
        """Adds a batch of labels; weights do not count."""
        is_padding = ops.logical_not(padding_mask(integer_labels(y_true), self.pad_id))
        # -> (batch * length,)
        super().update_state(ops.reshape(ops.cast(is_padding, "float32"), (-1,)))
