"""Keras's implicit masks: reads the one that a tensor carries, and attaches one to a result."""

import keras


class AttachMask(keras.layers.Layer):
    """Returns its input with `mask` as its Keras mask.

    Keras sets the mask of a layer's output to the mask that the layer was called with. Passing
    an explicit mask through this identity is the public way to attach one.
    """

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.supports_masking = True
        self.built = True  # there is nothing to build

    def call(self, inputs, mask=None):
        """Returns `inputs`."""
        return inputs

    def compute_output_shape(self, input_shape):
        """Returns the input's shape."""
        return input_shape


class ReadMask(keras.layers.Layer):
    """Returns the Keras mask that its input carries: a tuple of one, or empty.

    Keras fills in a layer's `mask` argument from the tensor, but not beside an explicit mask.
    """

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.supports_masking = True
        self.built = True  # there is nothing to build

    def call(self, inputs, mask=None):
        """Returns the mask that Keras filled in, if any."""
        return () if mask is None else (mask,)

    def compute_mask(self, inputs, previous_mask=None):
        """Returns None: a mask has no mask."""
        return None
