"""Dropout whose random numbers cost next to nothing inside a compiled step."""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_transformer.arguments import BooleanMask, Tensor, plain
from keras_transformer.replicas import replica_index

__all__ = ["Dropout"]

SEEDS = ContextVar("SEEDS", default=None)

# PyTorch does not compute with unsigned integers.
WORD = "int32" if keras.backend.backend() == "torch" else "uint32"
FACTORS: Any = np.array([0x7FEB352D, 0x846CA68B], "uint32").astype(WORD)
SHIFTS: Any = (16, 15)
# So many training calls later a replica would draw as the next one did.
CALLS_BETWEEN_REPLICAS = 2**24


@contextmanager
def given_seeds(seeds: Any) -> Iterator[None]:
    """Within it dropouts take their seeds from `seeds`, by their `id`; None lets them draw."""
    token = SEEDS.set(seeds)
    try:
        yield
    finally:
        SEEDS.reset(token)


@keras.saving.register_keras_serializable(package="keras_transformer")
class Dropout(keras.layers.Dropout):
    """`keras.layers.Dropout` with random numbers from a hash of each element's position.

    `output = input / (1 - rate)` where kept, else 0; each element is kept when
    `hash(position, seed, step) >= rate * 2**16`

    A general random generator takes nearly a fifth of the time of a training step of a small
    model. The hash is a few integer operations that compilers merge with what reads the output. It
    mixes the position with a key, the result with a second key, and mixes again. Keys follow from
    the layer's seed and from the number of its training calls, so layers and steps have masks of
    their own. Under a `tf.distribute` strategy each replica has its own, too. The same seed gives
    the same masks on every backend. A hash of 32 bits decides for two elements, by half of its bits
    each, so the rate is a multiple of 1/65536.

    Args:
        rate: share of the elements to drop, in [0, 1].
        noise_shape: as Keras's; with it the layer is Keras's own.
        seed: integer; None draws one.

    Shapes:
        Any; the output is of the input's shape.

    Raises:
        ValueError: for a bad argument.

    Reference: Srivastava et al. 2014; the mixing constants are those of Wellons 2018,
    "Prospecting for Hash Functions" (lowbias32).

    Example:

    >>> import numpy as np
    >>> dropout = Dropout(0.5, seed=1)
    >>> output = np.array(dropout(np.ones((2, 1000)), training=True))
    >>> sorted(set(output.ravel().tolist())), bool(900 < (output > 0).sum() < 1100)
    ([0.0, 2.0], True)
    """

    def __init__(
        self,
        rate: float,
        noise_shape: Sequence[int | None] | np.ndarray | None = None,
        seed: int | None = None,
        **kwargs: Any,
    ) -> None:
        if isinstance(noise_shape, (list, tuple, np.ndarray)):
            noise_shape = tuple(map(plain, noise_shape))
        super().__init__(plain(rate), noise_shape, plain(seed), **kwargs)

    def call(self, inputs: Tensor, training: bool | None = False) -> Tensor:
        """Drops elements in training, and is the identity otherwise."""
        if not training or self.rate == 0:
            return inputs
        if self.noise_shape is not None or self.rate == 1:
            return super().call(inputs, training=training)
        return scaled_where(self.kept(inputs), inputs, 1.0 / (1.0 - self.rate))

    def next_seed(self) -> Tensor:
        """Draws the seed of the next training call, integers (2,); each replica has its own."""
        seed, replica = self.seed_generator.next(), replica_index()
        if isinstance(replica, int) and not replica:
            return seed
        # Its second number counts the calls.
        return seed + ops.cast(ops.stack([0, replica]), seed.dtype) * CALLS_BETWEEN_REPLICAS

    def kept(self, inputs: Tensor) -> BooleanMask:
        """Returns which elements of `inputs` this training call keeps; the next has others."""
        seeds = SEEDS.get()
        seed = self.next_seed() if seeds is None else seeds[id(self)]
        shape = ops.shape(inputs)
        size = math.prod(shape)
        words = random_words(seed, (size + 1) // 2)
        # Each word decides for two elements, one of each half. Its upper 16 bits are for one, its
        # lower 16 for the other. What is below them does not change the comparison.
        first_kept = min(round(self.rate * 2**16), 2**16 - 1) * 2**16 - 2**31
        kept = ops.concatenate([words >= first_kept, ops.left_shift(words, 16) >= first_kept])
        if not isinstance(size, int) or size % 2:
            kept = kept[:size]
        return ops.reshape(kept, shape)  # -> the shape of the inputs


class ReluDropout(Dropout):
    """The dropout of `max(0, input)`, whose gradient needs its output alone.

    Where the output is above 0 the input was, and was kept. A relu and a dropout one after the
    other keep the relu's output and what was dropped as well until the gradient is made.
    """

    def call(self, inputs: Tensor, training: bool | None = False) -> Tensor:
        """Returns the relu of the inputs, in training with elements dropped."""
        if not training or not 0 < self.rate < 1:
            return super().call(ops.relu(inputs), training=training)
        scale = 1.0 / (1.0 - self.rate)

        # On JAX what is computed again may hold no tensor but its arguments, which are floats.
        @ops.custom_gradient
        def relu_dropout(inputs: Tensor, kept: Tensor) -> tuple[Tensor, Any]:
            outputs = scaled_where(kept > 0, ops.relu(inputs), scale)

            def gradient(*args: Any, upstream: Tensor | None = None) -> Any:
                upstream = args[0] if upstream is None else upstream  # PyTorch names it
                return scaled_where(outputs > 0, upstream, scale), ops.zeros_like(upstream)

            return outputs, gradient

        return relu_dropout(inputs, ops.cast(self.kept(inputs), inputs.dtype))


def scaled_where(chosen: BooleanMask, inputs: Tensor, scale: float) -> Tensor:
    """`scale * inputs` where chosen, else 0."""
    return ops.where(chosen, inputs * ops.cast(scale, inputs.dtype), ops.zeros((), inputs.dtype))


def random_words(seed: Tensor, size: Any) -> Tensor:
    """`size` signed 32-bit integers from a seed of two integers: int32 (size,)."""
    factors, shifts = FACTORS, SHIFTS
    if keras.backend.backend() == "tensorflow":  # or each use of each is an operation of its own
        factors, shifts = (
            [*map(ops.convert_to_tensor, np.array(pair, WORD))] for pair in (factors, shifts)
        )
    seed = ops.cast(seed, WORD)
    # Each key is of both numbers.
    keys = ops.unstack(mixed(seed + ops.flip(mixed(seed, factors, shifts), 0), factors, shifts))
    positions = ops.cast(ops.arange(size, dtype="int32"), WORD)  # XLA has no range of uint32
    return ops.cast(mixed(positions ^ keys[0], factors, shifts, key=keys[1]), "int32")


def mixed(words: Tensor, factors: Any, shifts: Any, key: Tensor | None = None) -> Tensor:
    """A bijection of 32-bit integers that lets every bit change about half of all bits."""
    words = (words ^ shifted(words, shifts[0])) * factors[0]
    if key is not None:
        words = words + key
    words = (words ^ shifted(words, shifts[1])) * factors[1]
    return words ^ shifted(words, shifts[0])


def shifted(words: Tensor, bits: int) -> Tensor:
    """Shifts to the right and fills with zeros, which signed integers do not by themselves."""
    words = ops.right_shift(words, bits)
    return words if WORD == "uint32" else ops.bitwise_and(words, 2 ** (32 - bits) - 1)
