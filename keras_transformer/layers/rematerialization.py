"""Rematerialisation of a layer: its inner values are computed again for the gradient."""

import keras

from keras_transformer.layers.dropout import Dropout, given_seeds


def rematerialized(layer, hidden, memory=None, training=None, **options):
    """Calls `layer(hidden, memory=memory, training=training)` and keeps nothing of its inside.

    Between the forward and the backward pass a stack then holds one tensor a layer. The seeds of
    the layer's dropouts are drawn here, outside of what is computed twice: drawn inside, as
    by `keras.RematScope`, the gradient would be that of other masks than the output's.

    Reference: Chen et al. 2016, "Training Deep Nets with Sublinear Memory Cost".
    """
    seeds = None
    if training:
        dropouts = [part for part in layer._flatten_layers() if isinstance(part, Dropout)]
        seeds = {id(part): part.seed_generator.next() for part in dropouts if part.rate}

    def compute(*tensors):
        more = {} if len(tensors) == 1 else {"memory": tensors[1]}
        with given_seeds(seeds):
            return layer(tensors[0], training=training, **more, **options)

    return keras.remat(compute)(*(tensor for tensor in (hidden, memory) if tensor is not None))
