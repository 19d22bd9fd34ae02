"""Rotary positions: queries and keys turned by angles that grow with their position."""

import math
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_transformer import arguments
from keras_transformer.arguments import Shape, Tensor
from keras_transformer.layers.positions import AttentionPosition, position_range
from keras_transformer.layers.sinusoids import sin_cos


@keras.saving.register_keras_serializable(package="keras_transformer")
class RotaryPositionalEncoding(AttentionPosition):
    """Turns each pair of a head's components by an angle proportional to the position.

    `(x_i, x_j) -> (x_i cos(pos f_i) - x_j sin(pos f_i), x_j cos(pos f_i) + x_i sin(pos f_i))`,
    `f_i = base ** (-2i / key_dim)`, `j = i + key_dim / 2`

    The dot product of a turned query and a turned key depends on their distance alone.

    Two scalings read inputs `factor` times longer than those trained on. "linear" divides every
    frequency by `factor`. "yarn" keeps frequencies that turn more than `beta_fast` times in
    `original_max_length` positions. It divides those that turn less than `beta_slow` times, and
    goes linearly from one to the other between them. It stretches queries and keys by `0.1
    ln(factor) + 1` each.

    Args:
        base: ratio of the longest to the shortest wavelength.
        scaling: None, "linear" or "yarn".
        factor: how many times longer inputs may become; at least 1.
        original_max_length: the longest input trained on; "yarn" needs it.
        beta_fast, beta_slow: turns at the ends of the range of "yarn".

    Shapes:
        inputs: (batch, length, heads, key_dim), key_dim even. Output: the same.

    Returns:
        A tensor of the input's dtype, turned in float32.

    Raises:
        ValueError: for a bad argument or an odd key_dim.

    Masking: passes the mask of its input on.

    Reference: Su et al. 2021, "RoFormer", section 3.2 (halves instead of neighbours paired, as
    in GPT-NeoX and Llama); Chen et al. 2023, "Extending Context Window of Large Language Models
    via Positional Interpolation"; Peng et al. 2023, "YaRN", sections 3.2 to 3.4.

    Example:

    >>> import numpy as np
    >>> turned = RotaryPositionalEncoding()(np.array([[[[1.0, 0.0]], [[1.0, 0.0]]]]))
    >>> np.asarray(turned)[0, :, 0].astype("float64").round(3).tolist()
    [[1.0, 0.0], [0.54, 0.841]]
    """

    def __init__(
        self,
        base: float = 10000.0,
        scaling: str | None = None,
        factor: float = 1.0,
        original_max_length: int | None = None,
        *,
        beta_fast: float = 32.0,
        beta_slow: float = 1.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.base = arguments.positive_number("base", base)
        self.scaling = arguments.one_of("scaling", scaling, (None, "linear", "yarn"))
        self.factor = arguments.positive_number("factor", factor)
        if self.factor < 1:
            raise ValueError(f"`factor` must be at least 1. Received: factor={factor!r}")
        self.original_max_length = arguments.optional(
            arguments.positive_integer, "original_max_length", original_max_length
        )
        if scaling == "yarn" and original_max_length is None:
            raise ValueError(
                "`original_max_length` must be given with scaling='yarn'. "
                "Received: original_max_length=None"
            )
        self.beta_fast = arguments.positive_number("beta_fast", beta_fast)
        self.beta_slow = arguments.positive_number("beta_slow", beta_slow)
        if self.beta_fast <= self.beta_slow:
            raise ValueError(
                "`beta_fast` must be above `beta_slow`. "
                f"Received: beta_fast={beta_fast!r}, beta_slow={beta_slow!r}"
            )
        self.supports_masking = True

    def build(self, input_shape: Shape) -> None:
        """Finds the frequencies; there are no weights."""
        key_dim = input_shape[-1]
        if key_dim is None or key_dim % 2:
            raise ValueError(f"`key_dim` must be even. Received: key_dim={key_dim}")
        frequencies = self.base ** (-np.arange(0, key_dim, 2, dtype="float64") / key_dim)
        self.stretch = 1.0
        if self.scaling == "linear":
            frequencies = frequencies / self.factor
        if self.scaling == "yarn":
            divided = self._yarn_share(key_dim)
            frequencies = frequencies * (1 - divided) + frequencies / self.factor * divided
            self.stretch = 0.1 * math.log(self.factor) + 1.0
        # A tuple: Keras would track a NumPy array's attribute as state of the layer.
        self.frequencies = tuple(frequencies)
        self.built = True

    def _yarn_share(self, key_dim: int) -> np.ndarray:
        """How much of each frequency is divided, 0 to 1 along the pairs."""

        def pair_with_turns(turns: float) -> float:
            wavelength = self.original_max_length / turns
            return key_dim * math.log(wavelength / (2 * math.pi)) / (2 * math.log(self.base))

        first = max(math.floor(pair_with_turns(self.beta_fast)), 0)
        last = min(math.ceil(pair_with_turns(self.beta_slow)), key_dim - 1)
        ramp = (np.arange(key_dim // 2) - first) / max(last - first, 0.001)
        return np.clip(ramp, 0, 1)

    def build_for_heads(self, num_heads: int, key_dim: int) -> None:
        """Builds for heads of width `key_dim`."""
        if not self.built:
            self.build((None, None, num_heads, key_dim))

    def call(self, inputs: Tensor) -> Tensor:
        """Returns `inputs` turned by their positions 0, 1, 2, ..."""
        return self.rotate(inputs, position_range(ops.shape(inputs)[1]))

    def rotate(self, heads: Tensor, positions: Tensor) -> Tensor:
        """Returns queries or keys turned by `positions` (length,)."""
        sine, cosine = (
            ops.convert_to_tensor(wave)[:, None, :] * self.stretch
            for wave in sin_cos(positions, self.frequencies)
        )
        first, second = ops.split(ops.cast(heads, "float32"), 2, axis=-1)
        turned = ops.concatenate(
            [first * cosine - second * sine, second * cosine + first * sine], axis=-1
        )
        return ops.cast(turned, heads.dtype)

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        """Returns the input's shape."""
        return input_shape

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        own = {
            "base": self.base,
            "scaling": self.scaling,
            "factor": self.factor,
            "original_max_length": self.original_max_length,
            "beta_fast": self.beta_fast,
            "beta_slow": self.beta_slow,
        }
        return {**super().get_config(), **own}
