"""What `MultiHeadAttention` is made of: its arguments, its projections, and Keras's twin of it."""

import keras
from keras import ops

from keras_transformer import arguments
from keras_transformer.layers.attention_arguments import (
    check_lengths,
    checked_axes,
    checked_flash,
    checked_key_value_heads,
    checked_output_shape,
    checked_window,
)
from keras_transformer.layers.attention_axes import AttentionAxes
from keras_transformer.layers.attention_position import checked_position, position_config
from keras_transformer.layers.composite import Composite
from keras_transformer.layers.dropout import Dropout
from keras_transformer.layers.implicit_masks import AttachMask, ReadMask
from keras_transformer.layers.keras_attention import (
    config_from_keras,
    copy_weights,
    keras_twin,
)
from keras_transformer.layers.sequences import length_of
from keras_transformer.layers.step_product import flat_product, plus_bias, step_product
from keras_transformer.layers.waves import position_range


class AttentionProjections(Composite):
    """Holds the arguments and the sub-layers; `MultiHeadAttention` computes with them."""

    def __init__(
        self,
        num_heads,
        key_dim,
        value_dim=None,
        dropout=0.0,
        use_bias=True,
        output_shape=None,
        attention_axes=None,
        sliding_window=None,
        flash_attention=None,
        kernel_initializer="glorot_uniform",
        bias_initializer="zeros",
        kernel_regularizer=None,
        bias_regularizer=None,
        activity_regularizer=None,
        kernel_constraint=None,
        bias_constraint=None,
        use_gate=False,
        seed=None,
        *,
        output_dim=None,
        num_key_value_heads=None,
        window=None,
        position=None,
        **kwargs,
    ):
        # No cast by Keras: it would make two tensors of one that is query and value both.
        super().__init__(**{"autocast": False, **kwargs})
        self.num_heads = arguments.positive_integer("num_heads", num_heads)
        self.key_dim = arguments.positive_integer("key_dim", key_dim)
        self.value_dim = arguments.positive_integer(
            "value_dim", key_dim if value_dim is None else value_dim
        )
        self.dropout = arguments.rate("dropout", dropout)
        self.use_bias = arguments.boolean("use_bias", use_bias)
        self.output_width = checked_output_shape(output_shape, output_dim)
        self.attention_axes = checked_axes(attention_axes)
        self.window = checked_window(window, sliding_window)
        self.flash_attention = checked_flash(flash_attention, self.dropout)
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.bias_initializer = keras.initializers.get(bias_initializer)
        self.kernel_regularizer = keras.regularizers.get(kernel_regularizer)
        self.bias_regularizer = keras.regularizers.get(bias_regularizer)
        # Not the layer's own attribute of that name: the projections apply it, as in Keras.
        self.projection_activity_regularizer = keras.regularizers.get(activity_regularizer)
        self.kernel_constraint = keras.constraints.get(kernel_constraint)
        self.bias_constraint = keras.constraints.get(bias_constraint)
        self.use_gate = arguments.boolean("use_gate", use_gate)
        self.seed = arguments.plain(seed)
        self.num_key_value_heads = checked_key_value_heads(num_key_value_heads, self.num_heads)
        self.position = checked_position(position)
        self.supports_masking = True
        self.adopt()

    @classmethod
    def from_keras(cls, layer):
        """Returns this layer with the settings and the weights of a Keras attention layer.

        Args:
            layer: a `keras.layers.MultiHeadAttention` or a `keras.layers.GroupQueryAttention`.
        """
        own = cls.from_config(config_from_keras(layer))
        if layer.built:
            own.build_from_config(layer.get_build_config())
            copy_weights(layer, own)
        return own

    def to_keras(self):
        """Returns Keras's attention layer with the settings and the weights of this one.

        Raises:
            ValueError: for settings that Keras's layers do not have.
        """
        twin = keras_twin(self)
        if self.built:
            twin.build_from_config(self.get_build_config())
            copy_weights(self, twin)
        return twin

    def build(self, query_shape, value_shape, key_shape=None):
        """Builds the projections and the dropout."""
        key_shape = value_shape if key_shape is None else key_shape
        check_lengths(value_shape, key_shape)
        self.axes = None
        axes = AttentionAxes(self.attention_axes, len(query_shape))
        if len(query_shape) > 3:  # else there is but one axis to attend over
            self.axes = axes
            query_shape = self.axes.merge_shape(query_shape)
            value_shape, key_shape = map(self.axes.merge_shape, (value_shape, key_shape))
        self.query_dense = self._heads_dense("query", self.num_heads, self.key_dim)
        self.query_dense.build(query_shape)
        self.key_dense = self._heads_dense("key", self.num_key_value_heads, self.key_dim)
        self.key_dense.build(key_shape)
        if self.use_gate:
            self.gate_dense = self._heads_dense("gate", self.num_heads, self.value_dim, "sigmoid")
            self.gate_dense.build(query_shape)
        self.value_dense = self._heads_dense("value", self.num_key_value_heads, self.value_dim)
        self.value_dense.build(value_shape)
        self.output_dense = self._output_dense(query_shape)
        self.output_dense.build((*query_shape[:-1], self.num_heads, self.value_dim))
        self.dropout_layer = Dropout(self.dropout, seed=self.seed, dtype=self.dtype_policy)
        self.dropout_layer.build((query_shape[0], self.num_heads, query_shape[1], value_shape[1]))
        self.read_mask = ReadMask(dtype=self.dtype_policy, name="read_mask")
        self.attach_mask = AttachMask(dtype=self.dtype_policy, name="attach_mask")
        if self.position is not None:
            self.position.build_for_heads(self.num_heads, self.key_dim)
        self.built = True
        self.adopt()

    def _heads_dense(self, name, num_heads, width, activation=None):
        dense = Projection(
            "bld,dhe->blhe",
            output_shape=(None, num_heads, width),
            bias_axes="he" if self.use_bias else None,
            activation=activation,
            name=name,
            **self._projection_arguments(),
        )
        dense.supports_masking = True  # a mask on what a decoding step reads is no loss
        return dense

    def _output_dense(self, query_shape):
        output_shape = self.output_width or (query_shape[-1],)
        axes = "opqrstu"[: len(output_shape)]
        return Projection(
            f"blhd,hd{axes}->bl{axes}",
            output_shape=(None, *output_shape),
            bias_axes=axes if self.use_bias else None,
            name="attention_output",
            **self._projection_arguments(),
        )

    def _projection_arguments(self):
        # Clones: an initializer used twice would draw the same numbers twice.
        return {
            "kernel_initializer": self.kernel_initializer.clone(),
            "bias_initializer": self.bias_initializer.clone(),
            "kernel_regularizer": self.kernel_regularizer,
            "bias_regularizer": self.bias_regularizer,
            "activity_regularizer": self.projection_activity_regularizer,
            "kernel_constraint": self.kernel_constraint,
            "bias_constraint": self.bias_constraint,
            "dtype": self.dtype_policy,
        }

    def project_key_value(self, value, key=None):
        """Returns keys (batch, key, key and value heads, key_dim) and values of those heads."""
        keys = self.key_dense(value if key is None else key)
        if self.position is not None:
            keys = self.position.rotate(keys, position_range(length_of(keys)))
        return keys, self.value_dense(value)

    def step_key_value(self, inputs, index):
        """As `project_key_value`, of one step of a search: all inputs are at position `index`."""
        keys = step_product(self.key_dense, inputs)
        if self.position is not None:
            keys = self.position.rotate(keys, ops.reshape(index, (1,)))
        return keys, step_product(self.value_dense, inputs)

    def compute_output_shape(self, query_shape, value_shape=None, key_shape=None):
        """Returns the query's shape with the output's width."""
        if value_shape is not None:
            check_lengths(value_shape, value_shape if key_shape is None else key_shape)
        return (*query_shape[:-1], *(self.output_width or query_shape[-1:]))

    def compute_output_spec(
        self, query, value, key=None, query_mask=None, value_mask=None, key_mask=None,
        attention_mask=None, return_attention_scores=False, training=None, use_causal_mask=False,
    ):  # fmt: skip
        """Returns symbolic outputs; attention weights are (batch, heads, query, key), float32."""
        shape = self.compute_output_shape(query.shape, value.shape, getattr(key, "shape", None))
        output = keras.KerasTensor(shape, self.compute_dtype)
        if not return_attention_scores:
            return output
        shape = (query.shape[0], self.num_heads, query.shape[1], value.shape[1])
        if self.axes is not None:
            shape = self.axes.weights_shape(self.num_heads, query.shape, value.shape)
        return output, keras.KerasTensor(shape, "float32")

    def compute_mask(self, query, previous_mask):
        """Returns the query's mask."""
        return previous_mask[0] if isinstance(previous_mask, (list, tuple)) else previous_mask

    def get_config(self):
        """Returns the constructor's arguments."""
        own = {
            "num_heads": self.num_heads,
            "key_dim": self.key_dim,
            "value_dim": self.value_dim,
            "dropout": self.dropout,
            "use_bias": self.use_bias,
            "output_shape": self.output_width and list(self.output_width),
            "attention_axes": self.attention_axes and list(self.attention_axes),
            "flash_attention": self.flash_attention,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
            "bias_initializer": keras.initializers.serialize(self.bias_initializer),
            "kernel_regularizer": keras.regularizers.serialize(self.kernel_regularizer),
            "bias_regularizer": keras.regularizers.serialize(self.bias_regularizer),
            "activity_regularizer": keras.regularizers.serialize(
                self.projection_activity_regularizer
            ),
            "kernel_constraint": keras.constraints.serialize(self.kernel_constraint),
            "bias_constraint": keras.constraints.serialize(self.bias_constraint),
            "use_gate": self.use_gate,
            "seed": self.seed,
            "num_key_value_heads": self.num_key_value_heads,
            "window": self.window,
            "position": position_config(self.position),
        }
        return {**super().get_config(), **own}


class Projection(keras.layers.EinsumDense):
    """An `EinsumDense` from and to the last axes, on TensorFlow as one product of two matrices.

    There the einsum's gradient is a product for each sentence and their sum, and Keras 3.15's
    `ops.add`, which `EinsumDense` uses, takes a bias (heads, 1) for one along the length whenever
    there are as many positions as heads. The other backends' einsums are products already; the
    bias is added by `plus_bias` on all.
    """

    def call(self, inputs, training=None):
        """Returns the projection."""
        if keras.backend.backend() == "tensorflow":
            return flat_product(self, inputs)
        outputs = ops.einsum(self.equation, inputs, self.kernel)
        if self.bias is not None:
            outputs = plus_bias(outputs, self.bias)
        return outputs if self.activation is None else self.activation(outputs)

    def quantized_call(self, inputs, **kwargs):
        """As `EinsumDense` in 8 bits, with every position as a sequence of its own.

        Keras's einsum on TensorFlow is a product of integers for lengths known in advance alone,
        and one of floats, of all the weights cast anew, for any other.
        """
        batch, length, *width = ops.shape(inputs)
        apiece = ops.reshape(inputs, (-1, 1, *width))
        outputs = super().quantized_call(apiece, **kwargs)
        return ops.reshape(outputs, (batch, length, *outputs.shape[2:]))

    def quantize(self, mode=None, type_check=True, config=None):
        """Quantizes as `EinsumDense`; a layer with a bias (heads, 1) stays as it is, see above."""
        narrow = self.bias is not None and len(self.bias.shape) > 1 and self.bias.shape[-1] == 1
        super().quantize(mode, type_check=type_check and narrow, config=config)
