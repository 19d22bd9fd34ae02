"""A stack of layers: what `Encoder` and `Decoder` have in common."""

from typing import Any, TypeAlias, Unpack

import keras

from keras_transformer import arguments
from keras_transformer.arguments import Activation, PaddingMask, Shape, Tensor
from keras_transformer.layers.block import Block, BlockOptions
from keras_transformer.layers.decoder_layer import DecoderLayerStates
from keras_transformer.layers.dropout import Dropout, given_seeds
from keras_transformer.layers.encoder_layer import EncoderLayerStates
from keras_transformer.masking import BlockMasks

States: TypeAlias = EncoderLayerStates | DecoderLayerStates


class Stack(Block):
    """Runs layers one after another, with a final normalisation when they normalise first."""

    def __init__(
        self,
        num_layers: int,
        num_heads: int,
        d_ff: int,
        dropout: float = 0.1,
        norm_first: bool = False,
        *,
        activation: Activation = "relu",
        remat: bool = False,
        **kwargs: Unpack[BlockOptions],
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

    def run(self, *tensors: Tensor | None, masks: BlockMasks, training: bool | None) -> Tensor:
        """Returns the output of the stack; the first of `tensors` passes through the layers.

        The tensors come from `one_mask`: no layer sees a mask but `masks`.
        """
        hidden, *memory = tensors
        transform = rematerialized if self.remat and training else transformed
        for layer in self.layers:
            hidden = transform(layer, hidden, *memory, masks=masks, training=training)
        return self.finish(hidden, masks.padding_mask)

    def run_inspected(
        self, *tensors: Tensor | None, masks: BlockMasks, training: bool | None
    ) -> tuple[Tensor, list[States]]:
        """As `run`, and a list of the states of each layer, with its attention weights."""
        hidden, *memory = tensors
        states = []
        for layer in self.layers:
            options = {"masks": masks, "training": training, "with_weights": True}
            states.append(layer.transform(hidden, *memory, **options))
            hidden = states[-1].outputs
        return self.finish(hidden, masks.padding_mask), states

    def finish(self, hidden: Tensor, padding_mask: PaddingMask | None) -> Tensor:
        """Normalises what the last layer returns, and attaches the mask."""
        if self.final_norm is not None:
            hidden = self.final_norm(hidden)
        return self.attach_mask(hidden, mask=padding_mask)

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        return {**super().get_config(), "num_layers": self.num_layers, "remat": self.remat}


def transformed(
    layer: Block, *tensors: Tensor | None, masks: BlockMasks, training: bool | None
) -> Tensor:
    """Returns the outputs of `layer`, in a name scope of its own."""
    with keras.name_scope(layer.name, caller=layer):
        return layer.transform(*tensors, masks=masks, training=training).outputs


def rematerialized(
    layer: Block, *tensors: Tensor | None, masks: BlockMasks, training: bool | None
) -> Tensor:
    """As `transformed`, and keeps no inner values of the layer; the gradient computes them again.

    Between the forward and the backward pass a stack then holds one tensor for each layer. The
    seeds of the dropouts are drawn here, outside of what is computed twice. `keras.RematScope`
    draws them inside: its gradient belongs to other dropout masks than its output.

    Reference: Chen et al. 2016, "Training Deep Nets with Sublinear Memory Cost".
    """
    seeds = None
    if training:
        dropouts = [part for part in layer._flatten_layers() if isinstance(part, Dropout)]
        seeds = {id(part): part.next_seed() for part in dropouts if part.rate}
    present = [tensor for tensor in tensors if tensor is not None]

    def compute(*tensors: Tensor) -> Tensor:
        with given_seeds(seeds):
            return transformed(layer, *tensors, masks=masks, training=training)

    return keras.remat(compute)(*present)
