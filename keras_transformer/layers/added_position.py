"""Positions that are added to embeddings, or appended to them, before the first layer."""

import numpy as np
from keras import ops

from keras_transformer import arguments
from keras_transformer.layers.composite import Composite
from keras_transformer.layers.dropout import Dropout
from keras_transformer.layers.lookup import looked_up
from keras_transformer.layers.sequences import length_of, positions_in
from keras_transformer.layers.waves import LARGEST_POSITION, position_range
from keras_transformer.masking import boolean_mask, integer_ids


class AddedPosition(Composite):
    """The base of `PositionalEncoding` and `LearnedPositionalEncoding`; `rows` tells them apart."""

    def __init__(self, max_length=None, combine="add", dropout=0.0, **kwargs):
        super().__init__(**kwargs)
        self.autocast = False  # it would round positions that are floats
        self.max_length = arguments.optional(arguments.positive_integer, "max_length", max_length)
        if self.max_length == 1:
            # A single row would broadcast over an input of any length.
            raise ValueError(f"`max_length` must be at least 2. Received: max_length={max_length}")
        self.combine = arguments.one_of("combine", combine, ("add", "concat"))
        self.dropout = arguments.rate("dropout", dropout)
        self.supports_masking = True

    def build(self, input_shape):
        """Builds the dropout."""
        self.d_model = input_shape[-1]
        self.dropout_layer = Dropout(self.dropout, dtype=self.dtype_policy)
        self.dropout_layer.build(input_shape)
        self.built = True
        self.adopt()

    def rows(self, positions):
        """Returns float32 rows (..., d_model) of integer `positions` (...), NumPy or tensor."""
        raise NotImplementedError

    def call(self, inputs, positions=None, training=None, mask=None):
        """Returns `inputs` with the rows of their positions.

        `mask` (batch, length) says where each row begins, `positions` (batch, length) replace
        what is counted.
        """
        inputs = ops.cast(inputs, self.compute_dtype)
        if positions is not None:
            encoding = self._rows_of(ops.cast(integer_ids("positions", positions), "int32"))
        else:
            encoding = self.encoding(length_of(inputs))
            encoding = encoding[None] if mask is None else counted_rows(encoding, mask)
        return self.dropout_layer(self.apply_encoding(inputs, encoding), training=training)

    def _rows_of(self, positions):
        """Rows of positions known at run time only; NaN where there is no such row."""
        limit = LARGEST_POSITION + 1 if self.max_length is None else self.max_length
        known = ops.logical_and(positions >= 0, positions < limit)
        rows = self.rows(ops.where(known, positions, 0))
        return ops.where(known[..., None], rows, float("nan"))

    def encoding(self, length):
        """Returns the first `length` rows, float32 (length, d_model)."""
        if self.max_length is None:
            return ops.convert_to_tensor(self.rows(position_range(length)))
        if isinstance(length, int) and length > self.max_length:
            raise ValueError(
                f"the input must not be longer than `max_length`. Received: an input of length "
                f"{length}, max_length={self.max_length}"
            )
        # A length known only at run time and too large makes the sum with the input fail there.
        return ops.convert_to_tensor(self.rows(np.arange(self.max_length)))[:length]

    def apply_encoding(self, inputs, encoding):
        """Combines inputs (batch, length, d_model) with rows that broadcast to them."""
        encoding = ops.cast(encoding, inputs.dtype)
        if self.combine == "add":
            return inputs + encoding
        encoding = ops.broadcast_to(encoding, ops.shape(inputs))
        return ops.concatenate([inputs, encoding], axis=-1)

    def compute_output_shape(self, input_shape):
        """Returns the input's shape, twice as wide for "concat"."""
        width = input_shape[-1] * (2 if self.combine == "concat" else 1)
        return (*input_shape[:-1], width)

    def get_config(self):
        """Returns the constructor's arguments."""
        own = {"max_length": self.max_length, "combine": self.combine, "dropout": self.dropout}
        return {**super().get_config(), **own}


def counted_rows(encoding, mask):
    """Rows of `encoding` (length, d_model) counted from the first True of each row of `mask`."""
    mask = boolean_mask("mask", mask)
    if len(mask.shape) != 2:
        raise ValueError(
            "the mask of positions must be (batch, length). "
            f"Received: a mask of shape {tuple(mask.shape)}"
        )
    # As many positions as there are rows: an input that is longer fails at the sum with them.
    positions = positions_in(mask)[:, : length_of(encoding[None])]
    return looked_up(encoding, positions)  # -> (batch, length, d_model)
