"""A stack of layers: what `Encoder` and `Decoder` have in common."""

from collections.abc import Sequence
from typing import Any

import keras

from keras_transformer import arguments
from keras_transformer.arguments import PaddingMask, Shape, Tensor
from keras_transformer.layers.block import Block
from keras_transformer.layers.dropout import Dropout, given_seeds


class Stack(Block):
    """Runs layers one after another, with a final normalisation when they normalise first."""

    def __init__(
        self,
        num_layers: int,
        num_heads: int,
        d_ff: int,
        dropout: float = 0.1,
        norm_first: bool = False,
        activation: Any = "relu",
        *,
        remat: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(num_heads, d_ff, dropout, norm_first, activation, **kwargs)
        self.num_layers = arguments.positive_integer("num_layers", num_layers)
        self.remat = arguments.boolean("remat", remat)

    def build_layers(self, layer_class: type[Block], *shapes: Shape | None) -> None:
        """Creates and builds the layers for inputs of these shapes."""
        self.layers = [
            layer_class(**self.options(index), dtype=self.dtype_policy, name=f"layer_{index}")
            for index in range(self.num_layers)
        ]
        for layer in self.layers:
            layer.build(*shapes)
        self.final_norm = self.final_norm_layer()
        if self.final_norm is not None:
            self.final_norm.build(shapes[0])
        self.attach_mask = self.attach_mask_layer()
        self.built = True
        self.adopt()

    def run(self, tensors: Sequence[Tensor], training: bool | None, **masks: Any) -> Tensor:
        """Returns the output of the stack; the first of `tensors` passes through the layers."""
        hidden, *memory = tensors
        call = rematerialized if self.remat and training else call_layer
        for layer in self.layers:
            hidden = call(layer, hidden, *memory, training=training, **masks)
        return self.finish(hidden, masks["padding_mask"])

    def run_inspected(
        self, tensors: Sequence[Tensor], training: bool | None, **masks: Any
    ) -> tuple[Tensor, list[Any]]:
        """Returns the output of the stack, and a list of what `inspect` of each layer returns."""
        hidden, *memory = tensors
        states = []
        for layer in self.layers:
            states.append(layer.inspect(hidden, *memory, training=training, **masks))
            hidden = states[-1].outputs
        return self.finish(hidden, masks["padding_mask"]), states

    def finish(self, hidden: Tensor, padding_mask: PaddingMask | None) -> Tensor:
        """Normalises what the last layer returns, and attaches the mask."""
        if self.final_norm is not None:
            hidden = self.final_norm(hidden)
        return self.attach_mask(hidden, mask=padding_mask)

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        return {**super().get_config(), "num_layers": self.num_layers, "remat": self.remat}


def call_layer(layer: Any, *tensors: Tensor, **options: Any) -> Tensor:
    """Calls `layer`."""
    return layer(*tensors, **options)


def rematerialized(
    layer: Any, *tensors: Tensor, training: bool | None = None, **masks: Any
) -> Tensor:
    """Calls `layer(*tensors)` and keeps none of its inner values; the gradient computes them again.

    Between the forward and the backward pass a stack then holds one tensor for each layer. The
    seeds of the dropouts are drawn here, outside of what is computed twice. `keras.RematScope`
    draws them inside: its gradient belongs to other dropout masks than its output.

    Reference: Chen et al. 2016, "Training Deep Nets with Sublinear Memory Cost".
    """
    seeds = None
    if training:
        dropouts = [part for part in layer._flatten_layers() if isinstance(part, Dropout)]
        seeds = {id(part): part.seed_generator.next() for part in dropouts if part.rate}

    def compute(*tensors: Tensor) -> Tensor:
        with given_seeds(seeds):
            return layer(*tensors, training=training, **masks)

    return keras.remat(compute)(*tensors)
