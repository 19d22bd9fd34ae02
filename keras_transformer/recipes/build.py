"""The compiled model of a training run: its layers, schedule, optimizer and loss."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import keras

from keras_transformer.layers import (
    ALiBi,
    PositionalEncoding,
    RelativePositionBias,
    RotaryPositionalEncoding,
)
from keras_transformer.losses import MaskedCrossentropy
from keras_transformer.metrics import PaddingRatio, Perplexity, TokenCount
from keras_transformer.models import RecurrentSeq2Seq, Transformer
from keras_transformer.optimizers import FusedAdam
from keras_transformer.recipes.run_directory import say
from keras_transformer.recipes.settings import Settings
from keras_transformer.schedules import UpdateSchedule, WarmupSchedule

# The paper's own first. The others act inside self-attention, where distances alone count.
POSITIONS: dict[str, type[keras.layers.Layer]] = {
    "sinusoidal": PositionalEncoding,
    "rotary": RotaryPositionalEncoding,
    "relative": RelativePositionBias,
    "alibi": ALiBi,
}
WIDE = 512  # from this width on, most of a step's time goes into large products
# What a processor with products in bfloat16 says of itself: Intel and AMD, and Arm.
BFLOAT16_FLAGS = {"avx512_bf16", "amx_bf16", "bf16"}


def build_model(
    settings: Settings,
    pad_id: int = 0,
    bos_id: int = 2,
    eos_id: int = 3,
    *,
    imported: Mapping[str, Any] | None = None,
    unused_ids: Sequence[int] = (),
    **vocab_sizes: int,
) -> keras.Model:
    """Returns the model of a run, built and compiled.

    Args:
        settings: of the run.
        pad_id, bos_id, eos_id: the special ids of its vocabularies.
        imported: the configuration of an imported `Transformer`, which says all of these. The
            settings say how it is trained.
        unused_ids: those of an imported `Transformer`, which the loss leaves out.
        **vocab_sizes: `vocab_size`, or `source_vocab_size` and `target_vocab_size`.

    Example:

    >>> model = build_model(Settings.from_preset("dates"), vocab_size=600)
    >>> model.count_params()
    739840
    """
    if imported is not None:
        model = Transformer.from_config(configure_import(imported, settings))
    else:
        make = build_transformer if settings.model == "transformer" else build_recurrent
        model = make(settings, pad_id=pad_id, bos_id=bos_id, eos_id=eos_id, **vocab_sizes)
    model.build()
    model.compile(
        optimizer=build_optimizer(settings),
        # Accumulated gradients are summed; the weights of the batches make them a mean.
        loss=MaskedCrossentropy(
            label_smoothing=settings.label_smoothing,
            reduction="sum" if settings.accumulate > 1 else "mean",
            pad_id=pad_id,
            unused_ids=unused_ids,
        ),
        metrics=[Perplexity(pad_id), TokenCount(pad_id), PaddingRatio(pad_id)],
        steps_per_execution=settings.steps_per_execution,
        jit_compile=xla_pays(settings),
    )
    return model


def configure_import(imported: Mapping[str, Any], settings: Settings) -> dict[str, Any]:
    """The configuration of an imported `Transformer` with what the settings say of its training.

    A rate of the settings stands for two of the model. Those of an import may be two.
    """
    config = {**imported, "dtype": settings.precision}
    config |= {"r_drop": settings.r_drop, "remat": settings.remat}
    if settings.dropout != imported["dropout"]:
        config |= dict.fromkeys(("dropout", "embedding_dropout"), settings.dropout)
    if settings.inner_dropout != imported["attention_dropout"]:
        rates = ("attention_dropout", "feed_forward_dropout")
        config |= dict.fromkeys(rates, settings.inner_dropout)
    return config


def build_transformer(settings: Settings, **ids: int) -> Transformer:
    """The Transformer of the settings, with the sizes of its vocabularies and the special ids."""
    numbers: dict[str, Any] = {**ids}
    return Transformer(
        **numbers,
        num_layers=settings.num_layers,
        num_decoder_layers=settings.num_decoder_layers or None,
        d_model=settings.d_model,
        num_heads=settings.num_heads,
        d_ff=settings.d_ff,
        dropout=settings.dropout,
        attention_dropout=settings.inner_dropout,
        feed_forward_dropout=settings.inner_dropout,
        norm_first=settings.norm_first,
        norm_epsilon=settings.norm_epsilon,
        r_drop=settings.r_drop,
        position=POSITIONS[settings.position](),
        remat=settings.remat,
    )


def build_recurrent(settings: Settings, **ids: int) -> RecurrentSeq2Seq:
    """The recurrent encoder-decoder, with the sizes of its vocabularies and the special ids."""
    return RecurrentSeq2Seq(
        **ids,
        num_layers=settings.num_layers,
        d_model=settings.d_model,
        cell=settings.cell,
        attention=None if settings.similarity == "none" else settings.similarity,
        dropout=settings.dropout,
        scheduled_sampling=settings.scheduled_sampling,
    )


def build_optimizer(settings: Settings) -> keras.optimizers.Optimizer:
    """Adam with the paper's schedule, which peaks at the learning rate of the settings."""
    natural_peak = (settings.d_model * settings.warmup_steps) ** -0.5
    scale = settings.learning_rate / natural_peak
    schedule: Any = WarmupSchedule(settings.d_model, settings.warmup_steps, scale)
    accumulates = settings.accumulate > 1
    if accumulates:
        schedule = UpdateSchedule(schedule, settings.accumulate)
    optimizer = FusedAdam(
        schedule,
        beta_1=0.9,
        beta_2=0.98,
        epsilon=1e-9,
        global_clipnorm=settings.clip_norm or None,
        gradient_accumulation_steps=settings.accumulate if accumulates else None,
    )
    if settings.precision == "mixed_float16":
        return keras.optimizers.LossScaleOptimizer(optimizer)
    return optimizer


def xla_pays(settings: Settings) -> bool:
    """Whether a compiled training step is worth its compilation and its memory.

    On a processor the time of wide layers is that of their products, which XLA makes no faster.
    It gains nothing from bfloat16 there, as TensorFlow's own products do.
    """
    if keras.backend.backend() != "tensorflow" or has_gpu():
        return keras.backend.backend() != "torch"
    return not is_wide(settings) and settings.precision != "mixed_bfloat16"


def has_gpu() -> bool:
    """Whether TensorFlow has a GPU."""
    import tensorflow as tf

    return bool(tf.config.list_physical_devices("GPU"))


def is_wide(settings: Settings) -> bool:
    """Whether most of a step's time goes into large products."""
    return settings.model == "transformer" and settings.d_model >= WIDE


def say_which_precision_pays(settings: Settings, cpuinfo: str | Path = "/proc/cpuinfo") -> None:
    """Says where bfloat16 is faster than what was chosen, and where it is slower."""
    is_tensorflow = keras.backend.backend() == "tensorflow"
    if not is_tensorflow or has_gpu() or not Path(cpuinfo).exists():
        return
    words = set(Path(cpuinfo).read_text(encoding="utf-8", errors="replace").split())
    has_bfloat16 = not words.isdisjoint(BFLOAT16_FLAGS)
    if settings.precision == "mixed_bfloat16" and not has_bfloat16:
        say("  note: this processor has no instructions for bfloat16; float32 is faster here")
    if settings.precision == "float32" and has_bfloat16 and is_wide(settings):
        say("  note: --precision mixed_bfloat16 is about 1.5 times as fast on this processor")
