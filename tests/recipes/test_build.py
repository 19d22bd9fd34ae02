import keras
import numpy as np
import pytest

from keras_transformer import FusedAdam, RotaryPositionalEncoding, Transformer
from keras_transformer.recipes.build import build_model, say_which_precision_pays
from keras_transformer.recipes.presets import PRESETS, RECURRENT_SIZES
from keras_transformer.recipes.settings import Settings

TEXT = ("a", "b")


def rates(model, *steps):
    return [float(model.optimizer._learning_rate(step)) for step in steps]


def test_parts_of_the_recipe_may_be_given():
    settings = Settings.from_preset(
        train=TEXT, learning_rate=0.005, warmup_steps=2000, dropout=0.2, norm_first=False,
        inner_dropout=0.1, r_drop=5, position="rotary", remat=True, label_smoothing=0.2,
        clip_norm=2.0, norm_epsilon=1e-5,
    )  # fmt: skip
    model = build_model(settings, vocab_size=20)
    assert (model.norm_first, model.dropout, model.r_drop) == (False, 0.2, 5.0)
    assert model.norm_epsilon == model.decoder.layers[0].feed_forward_residual.norm.epsilon == 1e-5
    assert (model.attention_dropout, model.feed_forward_dropout) == (0.1, 0.1)
    assert isinstance(model.encoder.position, RotaryPositionalEncoding)
    assert model.encoder.remat
    assert (model.loss.label_smoothing, model.optimizer.global_clipnorm) == (0.2, 2.0)
    found = rates(model, 1999, 2000, 2001)
    assert max(found) == pytest.approx(0.005, rel=1e-3)
    assert found[1] > found[2]
    plain = build_model(Settings.from_preset(train=TEXT), vocab_size=20)
    assert not plain.encoder.remat
    assert plain.norm_epsilon == 1e-6
    assert plain.optimizer.global_clipnorm is None


def test_an_import_is_trained_as_the_settings_say_and_keeps_what_they_do_not_change():
    rates = {"dropout": 0.1, "embedding_dropout": 0.0, "attention_dropout": 0.2}
    sizes = {"num_layers": 1, "d_model": 16, "num_heads": 2, "d_ff": 24}
    imported = Transformer(20, **sizes, **rates).get_config()
    own = {"model": "imported", "train": TEXT, "dropout": 0.1, "inner_dropout": 0.2}
    ids = {"vocab_size": 20}
    model = build_model(Settings.from_preset(**own), imported=imported, **ids)
    assert {name: getattr(model, name) for name in rates} == rates
    assert (model.feed_forward_dropout, model.r_drop, model.encoder.remat) == (0.0, 0.0, False)
    own |= {"dropout": 0.3, "inner_dropout": 0.4, "r_drop": 5, "remat": True}
    model = build_model(Settings.from_preset(**own), imported=imported, **ids)
    assert (model.dropout, model.embedding_dropout) == (0.3, 0.3)
    assert (model.attention_dropout, model.feed_forward_dropout) == (0.4, 0.4)
    assert (model.r_drop, model.encoder.remat, model.d_model) == (5.0, True, 16)


def test_an_update_of_several_batches_is_the_mean_over_their_tokens():
    settings = Settings.from_preset(accumulate=4, warmup_steps=100)
    model = build_model(settings, vocab_size=20)
    assert model.optimizer.gradient_accumulation_steps == 4
    assert model.loss.reduction == "sum"
    assert rates(model, 399)[0] == pytest.approx(settings.learning_rate, rel=0.02)


@pytest.mark.parametrize(
    ("precision", "compute", "compiled"),
    [
        ("float32", "float32", True),
        ("mixed_bfloat16", "bfloat16", False),  # on a processor XLA gains nothing from it
        ("mixed_float16", "float16", True),
    ],
)
def test_a_precision_is_the_models_and_float16_scales_its_loss(precision, compute, compiled):
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(precision)  # as `train` does
    try:
        model = build_model(Settings.from_preset(precision=precision), vocab_size=20)
    finally:
        keras.config.set_dtype_policy(before)
    assert (model.compute_dtype, model.variable_dtype) == (compute, "float32")
    assert model.jit_compile == compiled
    is_scaled = isinstance(model.optimizer, keras.optimizers.LossScaleOptimizer)
    assert is_scaled == (precision == "mixed_float16")
    optimizer = model.optimizer.inner_optimizer if is_scaled else model.optimizer
    assert isinstance(optimizer, FusedAdam)


@pytest.mark.parametrize(
    ("flags", "precision", "preset", "said"),
    [
        ("fpu avx512f avx512_bf16", "float32", "base", "--precision mixed_bfloat16 is about 1.5"),
        ("fpu avx512f avx512_bf16", "float32", "tiny", ""),
        ("fpu avx512f avx512_bf16", "mixed_bfloat16", "base", ""),
        ("fpu avx2", "mixed_bfloat16", "base", "has no instructions for bfloat16"),
        ("fpu avx2", "float32", "base", ""),
        (None, "mixed_bfloat16", "base", ""),
    ],
)
def test_it_says_which_precision_the_processor_is_made_for(
    flags, precision, preset, said, tmp_path, capsys
):
    cpuinfo = tmp_path / "cpuinfo"
    if flags is not None:
        cpuinfo.write_text(f"model name : a processor\nflags : {flags}\n", encoding="utf-8")
    settings = Settings.from_preset(preset, train=TEXT, precision=precision)
    say_which_precision_pays(settings, cpuinfo)
    printed = capsys.readouterr().out
    assert said in printed
    assert bool(said) == bool(printed)


@pytest.fixture
def zeros(monkeypatch):
    """Weights that are only counted are zeros: to draw 200 million takes half a minute."""
    names = ("VarianceScaling", "RandomNormal", "RandomUniform", "Orthogonal")
    for initializer in (getattr(keras.initializers, name) for name in names):
        monkeypatch.setattr(
            initializer, "__call__", lambda self, shape, dtype=None: keras.ops.zeros(shape, dtype)
        )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("preset", "widths", "dropout", "num_weights"),
    [
        ("mini", (2, 128, 4, 256), 0.1, 663_040),
        # Wu et al. 2021, "Good for Misconceived Reasons", table 1.
        ("tiny", (4, 128, 4, 256), 0.3, 1_325_568),
        ("small", (6, 512, 4, 1024), 0.3, 31_545_344),
        # Vaswani et al. 2017, table 3; what it counts has embeddings of 37,000 tokens besides.
        ("base", (6, 512, 8, 2048), 0.1, 44_138_496),
        ("big", (6, 1024, 16, 4096), 0.3, 176_357_376),
        ("symbols", (2, 128, 4, 512), 0.3, 926_208),
        # Wu et al. 2021, "Applying the Transformer to Character-level Transduction", table 1.
        ("symbols-paper", (4, 256, 4, 1024), 0.3, 7_373_824),
    ],
)
def test_every_preset_is_the_published_one(preset, widths, dropout, num_weights, zeros):
    # An attention has `a = 4 (d d + d)` weights, a feed-forward network `f = 2 d d_ff + d_ff + d`,
    # and a norm `n = 2 d`. Layers: `L (3 a + 2 f + 5 n)`, and two norms more where they come first.
    form = "characters" if preset.startswith("symbols") else "text"
    settings = Settings.from_preset(preset, train=("a",), format=form)
    model = build_model(settings, vocab_size=20)
    assert (model.num_layers, model.d_model, model.num_heads, model.d_ff) == widths
    assert (settings.dropout, model.dropout) == (dropout, dropout)
    assert model.count_params() - 20 * model.d_model == num_weights
    assert model.jit_compile == (model.d_model < 512)  # on a processor, as tests are
    warmup = settings.warmup_steps
    at_peak, later = rates(model, warmup, 2 * warmup)
    assert at_peak == pytest.approx(settings.learning_rate, rel=1e-2)
    assert later < at_peak


@pytest.mark.slow
@pytest.mark.parametrize("preset", [name for name in RECURRENT_SIZES if name != "mini"])
def test_a_recurrent_model_has_about_as_many_parameters_as_the_transformer(preset, zeros):
    form = "characters" if preset.startswith("symbols") else "text"
    vocab_size = 60 if form == "characters" else PRESETS[preset].get("vocab_size", 8000)
    theirs, ours = (
        build_model(
            Settings.from_preset(preset, train=("a",), format=form, model=kind),
            vocab_size=vocab_size,
        )
        for kind in ("transformer", "recurrent")
    )
    limit = 0.03 if form == "text" else 0.6  # of symbols: of the same order
    assert ours.count_params() == pytest.approx(theirs.count_params(), rel=limit)


def test_a_fast_preset_has_more_layers_in_the_encoder_than_in_the_decoder(zeros):
    model = build_model(Settings.from_preset("fast-tiny", train=("a",)), vocab_size=20)
    assert (len(model.encoder.layers), len(model.decoder.layers)) == (6, 1)
    assert build_model(Settings.from_preset("tiny"), vocab_size=20).num_decoder_layers == 4


def test_a_recurrent_model_is_the_one_that_was_chosen():
    chosen = dict(similarity="none", cell="gru", scheduled_sampling=0.25)
    settings = Settings.from_preset(model="recurrent", **chosen)
    model = build_model(settings, vocab_size=20)
    assert (model.cell, model.attention, model.scheduled_sampling) == ("gru", None, 0.25)


@pytest.mark.parametrize("model", ["transformer", "recurrent"])
def test_the_special_ids_of_a_vocabulary_reach_model_loss_and_metrics(model):
    special = {"pad_id": 19, "bos_id": 18, "eos_id": 0}
    settings = Settings.from_preset(train=TEXT, model=model, d_model=8, num_layers=1)
    built = build_model(settings, **special, vocab_size=20)
    built.run_eagerly = True  # one batch
    assert {name: getattr(built, name) for name in special} == special
    assert built.loss.pad_id == 19
    rows = [5, 0, 19], [18, 6, 7], [6, 7, 0]
    source_ids, target_in_ids, target_out_ids = (np.array([row]) for row in rows)
    measured = built.evaluate(
        (source_ids, target_in_ids), target_out_ids, verbose=0, return_dict=True
    )
    assert measured["tokens"] == 3  # id 0 counts, and no position is padding
    assert measured["padding_ratio"] == 0
