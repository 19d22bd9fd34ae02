"""Cross-entropy over real target tokens, with label smoothing from integer labels."""

from collections.abc import Iterable
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_transformer import arguments
from keras_transformer.arguments import Ids, Logits, PaddingMask, Shape, Tensor
from keras_transformer.integer_ids import integer_ids
from keras_transformer.masking import padding_mask, zero_masked
from keras_transformer.replicas import share_loss, sum_over_replicas

__all__ = ["MaskedCrossentropy"]


def token_crossentropy(
    labels: Ids,
    logits: Logits,
    label_smoothing: float = 0.0,
    mask: PaddingMask | None = None,
    unused_ids: Iterable[int] = (),
) -> Tensor:
    """Cross-entropy of each position, (batch, length), against labels smoothed over the vocabulary.

    With p = softmax(logits) and V entries, `-(1 - e) log p[label] - e / V * sum(log p)`, which is
    `logsumexp(logits) - (1 - e) * logits[label] - e * mean(logits)`. Its gradient,
    `p - (1 - e) * onehot(label) - e / V`, is made in one pass from the logits: no one-hot tensor,
    and no probabilities are kept. Where `mask` is False both are 0, whatever the logits hold. A
    label that is not in the vocabulary makes the loss NaN, where the backend does not refuse it.

    `unused_ids` get no smoothing. The others have `e / (V - unused)` each.
    """
    labels = ops.cast(labels, "int32")
    used = used_entries(logits.shape[-1], unused_ids) if label_smoothing else None

    @ops.custom_gradient
    def crossentropy(logits: Logits) -> tuple[Tensor, Any]:
        log_normaliser = ops.logsumexp(logits, axis=-1)
        label_logits = ops.squeeze(ops.take_along_axis(logits, labels[..., None], axis=-1), -1)
        known = (labels >= 0) & (labels < logits.shape[-1])
        label_logits = ops.where(known, label_logits, float("nan"))
        losses = log_normaliser - (1.0 - label_smoothing) * label_logits
        if used is not None:
            total = ops.sum(ops.where(used, logits, 0.0), axis=-1)
            losses = losses - label_smoothing * (total / int(used.sum()))
        elif label_smoothing:
            losses = losses - label_smoothing * ops.mean(logits, axis=-1)

        def gradient(*args: Any, upstream: Tensor | None = None) -> Any:
            upstream = args[0] if upstream is None else upstream  # PyTorch names it
            vocab_size = logits.shape[-1]
            is_label = ops.arange(vocab_size, dtype="int32") == labels[..., None]
            probabilities = ops.exp(logits - log_normaliser[..., None])
            share: Any = label_smoothing / vocab_size
            if used is not None:
                share = ops.where(used, label_smoothing / int(used.sum()), 0.0)
            smoothed = ops.where(is_label, 1.0 - label_smoothing, 0.0) + share
            return zero_masked((probabilities - smoothed) * upstream[..., None], mask)

        return zero_masked(losses, mask), gradient

    return crossentropy(ops.cast(logits, "float32"))


def used_entries(vocab_size: int, unused_ids: Iterable[int]) -> np.ndarray | None:
    """Returns which entries of a vocabulary are tokens, bool (vocab,); None where all are."""
    unused = sorted(set(unused_ids))
    if not unused:
        return None
    used = np.ones(vocab_size, bool)
    if unused[-1] >= vocab_size or len(unused) == vocab_size:
        raise ValueError(
            f"`unused_ids` must be below the {vocab_size} entries of the logits, and not all of "
            f"them. Received: unused_ids={unused!r:.200}"
        )
    used[unused] = False
    return used


def symmetric_divergence(
    first_logits: Logits, second_logits: Logits, mask: PaddingMask | None = None
) -> Tensor:
    """`KL(p || q) + KL(q || p)` of each position, (batch, length): 0 where `mask` is False.

    With p and q the softmaxes of the logits and d = log p - log q it is `sum((p - q) * d)`. Its
    gradient for the first is `p * (d - sum(p * d)) + p - q`. That for the second has p and q
    exchanged. No probabilities are kept, as in `token_crossentropy`.
    """

    @ops.custom_gradient
    def divergence(first: Logits, second: Logits) -> tuple[Tensor, Any]:
        normalisers = ops.logsumexp(first, -1), ops.logsumexp(second, -1)

        def distributions() -> tuple[Tensor, Tensor, Tensor]:
            log_p, log_q = (
                logits - normaliser[..., None]
                for logits, normaliser in zip((first, second), normalisers, strict=True)
            )
            return ops.exp(log_p), ops.exp(log_q), log_p - log_q

        p, q, difference = distributions()
        total = ops.sum((p - q) * difference, axis=-1)

        def gradient(*args: Any, upstream: Tensor | None = None) -> Any:
            upstream = args[0] if upstream is None else upstream  # PyTorch names it
            p, q, difference = distributions()
            forward = ops.sum(p * difference, axis=-1, keepdims=True)  # KL(p || q)
            backward = -ops.sum(q * difference, axis=-1, keepdims=True)  # KL(q || p)
            to_first = p * (difference - forward) + p - q
            to_second = q * (-difference - backward) + q - p
            return tuple(
                zero_masked(part * upstream[..., None], mask) for part in (to_first, to_second)
            )

        return zero_masked(total, mask), gradient

    return divergence(*(ops.cast(logits, "float32") for logits in (first_logits, second_logits)))


@keras.saving.register_keras_serializable(package="keras_transformer")
class MaskedCrossentropy(keras.losses.Loss):
    """Averages label-smoothed cross-entropy over real target tokens.

    `loss = sum(w * crossentropy) / sum(w)`, with `w = (label != pad_id)`

    The target distribution is `1 - label_smoothing` on the label plus `label_smoothing / V`
    on each of the V entries, `unused_ids` left out. Neither padding nor logits at padded positions,
    NaN included, change the loss or its gradient. A batch without a real token has loss 0.

    Under a `tf.distribute` strategy both sums go over all replicas, whatever tokens each of them
    holds. Each replica's loss is the mean divided by the number of replicas, and their gradients
    add up to the gradient of the mean. So updates and the losses of epochs are those of one device.
    During an epoch Keras logs the mean of the replicas' running means. It differs from one device's
    after a batch whose rows the replicas cannot share equally. On JAX, under
    `keras.distribution.DataParallel`, nothing differs.

    Args:
        label_smoothing: share of the target spread over the vocabulary, in [0, 1).
        pad_id: the label that does not count.
        name: name of the loss.
        reduction: `"mean"`, or `"sum"` for sample weights that already hold the division, as
            those of `translation_dataset(batches_per_update=...)` do; without weights it is the
            mean too.
        unused_ids: ids that the model never writes, as `Transformer.unused_ids` lists them. They
            have no share of the smoothing, which would otherwise count logits of -1e9.

    Shapes:
        y_true: (batch, length) integer labels. y_pred: (batch, length, vocab) logits.
        sample_weight: a weight for each token, (batch, length), or for each sentence, (batch, 1)
        or (batch,), which all its tokens have.

    `class_weight` of `fit` is not for these labels. Keras takes each row for a one-hot vector and
    weighs the sentence by the position of its largest id. The models of this package refuse it; a
    functional model does not. Give `sample_weight=weight_of_id[labels]` instead.

    Returns:
        A float32 scalar, the mean over the tokens of one batch. `fit` and `evaluate` print Keras's
        mean of these over batches, weighted by rows. With `"sum"` that is not a mean over tokens:
        `Perplexity` counts tokens over all batches.

    Raises:
        ValueError: for a bad argument, and when the shapes of labels and logits do not fit.

    Reference: Vaswani et al. 2017, section 5.4; Szegedy et al. 2016, section 7.

    Example:

    >>> import numpy as np
    >>> loss = MaskedCrossentropy()
    >>> logits = np.zeros((1, 2, 4), "float32")
    >>> round(float(loss(np.array([[3, 0]]), logits)), 4)  # log 4; the padding does not count
    1.3863
    """

    def __init__(
        self,
        label_smoothing: float = 0.0,
        pad_id: int = 0,
        name: str = "masked_crossentropy",
        reduction: str = "mean",
        unused_ids: Iterable[int] = (),
    ) -> None:
        # float32 whatever the policy: Keras casts labels too, and bfloat16 takes 257 for 256.
        self.token_reduction = arguments.one_of("reduction", reduction, ("mean", "sum"))
        kind = "sum" if reduction == "sum" else "mean_with_sample_weight"
        super().__init__(name=name, reduction=kind, dtype="float32")
        self.label_smoothing = arguments.rate("label_smoothing", label_smoothing)
        self.pad_id = arguments.non_negative_integer("pad_id", pad_id)
        ids = arguments.integers("unused_ids", unused_ids)
        self.unused_ids = tuple(arguments.non_negative_integer("unused_ids", i) for i in ids)

    def __call__(self, y_true: Ids, y_pred: Logits, sample_weight: Tensor | None = None) -> Tensor:
        """Returns the mean over real tokens; `sample_weight` multiplies each."""
        return self.mean_over_tokens(self.call(y_true, y_pred), y_true, y_pred, sample_weight)

    def mean_over_tokens(
        self, values: Tensor, y_true: Ids, y_pred: Logits, sample_weight: Tensor | None = None
    ) -> Tensor:
        """The mean of `values`, (batch, length), that the loss takes of cross-entropies."""
        mask = token_weights(y_true, y_pred, self.pad_id)
        weights = ops.cast(mask, "float32")
        if sample_weight is not None:
            weights = weights * checked_sample_weight(sample_weight, mask)
        # Not Keras's own reduction: it also reads a mask that y_pred carries, and the labels alone
        # say what counts.
        total = ops.sum(weights * values)
        if not (self.token_reduction == "sum" and sample_weight is not None):
            total = ops.divide_no_nan(total, sum_over_replicas(ops.sum(weights)))
        return share_loss(total)

    def call(self, y_true: Ids, y_pred: Logits) -> Tensor:
        """Returns the loss of each position, 0 at padding."""
        mask = token_weights(y_true, y_pred, self.pad_id)
        return token_crossentropy(y_true, y_pred, self.label_smoothing, mask, self.unused_ids)

    def mean_divergence(
        self,
        y_true: Ids,
        first_logits: Logits,
        second_logits: Logits,
        sample_weight: Tensor | None = None,
    ) -> Tensor:
        """`symmetric_divergence` in the unit of this loss: mean, or weighted sum, over tokens."""
        mask = token_weights(y_true, first_logits, self.pad_id)
        values = symmetric_divergence(first_logits, second_logits, mask)
        return self.mean_over_tokens(values, y_true, first_logits, sample_weight)

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        return {
            "label_smoothing": self.label_smoothing,
            "pad_id": self.pad_id,
            "name": self.name,
            "reduction": self.token_reduction,
            "unused_ids": list(self.unused_ids),
        }


def token_weights(labels: Ids, logits: Logits, pad_id: int) -> PaddingMask:
    """True at real tokens, (batch, length), after a check of both shapes."""
    labels, logits = ops.convert_to_tensor(labels), ops.convert_to_tensor(logits)
    shapes = _known_shape(labels), _known_shape(logits)
    if [shape and len(shape) for shape in shapes] != [2, 3]:
        raise ValueError(
            "`y_true` must have shape (batch, length) and `y_pred` (batch, length, vocab). "
            f"Received: y_true of shape {shapes[0]} and y_pred of shape {shapes[1]}"
        )
    return padding_mask(integer_labels(labels), pad_id)


def integer_labels(labels: Ids) -> Ids:
    """Labels as int32, after a check that they are ids."""
    return ops.cast(integer_ids("y_true", labels), "int32")


def checked_sample_weight(sample_weight: Tensor, mask: PaddingMask) -> Tensor:
    """Weights as float32, (batch, length) or (batch, 1), after a check that they fit `mask`."""
    weights = ops.cast(ops.convert_to_tensor(sample_weight), "float32")
    shape, (batch, length) = _known_shape(weights), tuple(mask.shape)
    # None is a size that is known only when the data is there.
    axes = zip(shape or (), (batch, length), (batch, 1), strict=False)
    fits = all(size in (None, labels, one) or labels is None for size, labels, one in axes)
    if shape is None or len(shape) not in (1, 2) or not fits:
        raise ValueError(
            "`sample_weight` must have shape (batch, length), (batch, 1) or (batch,). Received: "
            f"sample_weight of shape {shape} for labels of shape {(batch, length)}"
        )
    return weights if len(shape) == 2 else weights[:, None]


def _known_shape(tensor: Tensor) -> Shape | None:
    """The shape as a tuple, or None: TensorFlow has tensors of an unknown number of axes."""
    try:
        return tuple(tensor.shape)
    except ValueError:
        return None
