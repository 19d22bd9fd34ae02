"""The model that transduce.py and train_without_tensorflow.py train."""

import math

import keras

from keras_transformer import (
    MaskedCrossentropy,
    PaddingRatio,
    Perplexity,
    TokenCount,
    Transformer,
    WarmupSchedule,
)
from positions import POSITIONS
from transduce_options import SIZES


def compiled_model(args, vocab_size, steps_per_execution=1):
    """Returns the model of `args.size`."""
    size = SIZES[args.size]
    model = Transformer(
        vocab_size,
        dropout=args.dropout,
        attention_dropout=args.inner_dropout,
        feed_forward_dropout=args.inner_dropout,
        norm_first=args.norm_first,
        r_drop=args.r_drop,
        position=POSITIONS[args.position](),
        **size,
    )
    model.build()
    scale = args.peak * math.sqrt(size["d_model"] * args.warmup)
    model.compile(
        optimizer=keras.optimizers.Adam(
            WarmupSchedule(size["d_model"], args.warmup, scale), beta_2=0.98, global_clipnorm=1.0
        ),
        loss=MaskedCrossentropy(label_smoothing=args.label_smoothing),
        metrics=[Perplexity(), TokenCount(), PaddingRatio()],
        steps_per_execution=steps_per_execution,
        jit_compile=keras.backend.backend() != "torch",
    )
    return model
