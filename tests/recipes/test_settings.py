import dataclasses
import math
import re
import tomllib

import numpy as np
import pytest

from keras_transformer.decoding.search import LARGEST_LENGTH_PENALTY
from keras_transformer.layers import similarity_attention
from keras_transformer.models import recurrent
from keras_transformer.recipes import build
from keras_transformer.recipes.presets import PRESETS
from keras_transformer.recipes.settings import (
    BOUNDS,
    FIELDS,
    FORMS,
    IN_WORDS,
    POSITIONS,
    RULES,
    SIMILARITIES,
    Settings,
    read_settings,
)
from keras_transformer.text import folding, sentencepiece_tokenizer


@pytest.mark.parametrize(
    ("given", "preset"),
    [
        ({}, "dates"),
        ({"train": ("a", "b")}, "tiny"),
        ({"train": "a", "format": "g2p"}, "symbols"),
    ],
)
def test_the_format_chooses_the_preset(given, preset):
    settings = Settings.from_preset(**given)
    assert settings.preset == preset
    for name, value in PRESETS[preset].items():
        assert getattr(settings, name) == value


def test_choices_are_those_of_the_code_that_takes_them():
    # `settings` has copies, because a command reads them before it imports Keras.
    assert tuple(build.POSITIONS) == POSITIONS
    assert {*SIMILARITIES} == {*similarity_attention.SIMILARITIES, "none"}
    assert tuple(folding.FORMS) == FORMS
    assert RULES == sentencepiece_tokenizer.RULES
    assert FIELDS["cell"].metadata["choices"] == tuple(recurrent.CELLS)
    assert FIELDS["length_penalty"].metadata["most"] == LARGEST_LENGTH_PENALTY


def test_what_is_given_wins_over_the_preset_and_the_preset_over_the_defaults():
    settings = Settings.from_preset("base", train=("a", "b"), dropout=0.2)
    assert (settings.dropout, settings.d_model, settings.label_smoothing) == (0.2, 512, 0.1)
    assert Settings.from_preset("tiny", train=("a",)) == Settings(train=("a",))


# Peaks of Vaswani et al. 2017, equation 3: 1 / sqrt(d_model * warm-up steps).
@pytest.mark.parametrize(("preset", "peak"), [("base", 0.000699), ("big", 0.000494)])
def test_the_rate_of_the_papers_presets_is_that_of_its_schedule(preset, peak):
    assert PRESETS[preset]["learning_rate"] == pytest.approx(peak, rel=1e-3)


# Kasai et al. 2021, table 1: 12 layers and 1, where the others have 6 and 6.
@pytest.mark.parametrize("name", ["base", "big"])
def test_a_fast_preset_is_another_one_with_a_shallow_decoder(name):
    fast, plain = Settings.from_preset(f"fast-{name}"), Settings.from_preset(name)
    assert (fast.num_layers, fast.num_decoder_layers) == (12, 1)
    layers = {"preset": name, "num_layers": 6, "num_decoder_layers": 0}
    assert dataclasses.replace(fast, **layers) == plain


def test_a_recurrent_model_has_its_own_sizes_and_none_of_the_transformers_options():
    settings = Settings.from_preset("symbols", train=("a",), format="g2p", model="recurrent")
    assert (settings.num_layers, settings.d_model) == (1, 200)
    assert settings.position == FIELDS["position"].default
    others = dict(norm_first=False, norm_epsilon=1e-5, r_drop=1.0, remat=True, position="alibi")
    for name, value in others.items():
        with pytest.raises(ValueError, match=f"`{name}` needs `model` 'transformer'"):
            Settings.from_preset(model="recurrent", **{name: value})
    for name, value in dict(cell="gru", similarity="dot", scheduled_sampling=0.5).items():
        with pytest.raises(ValueError, match=f"`{name}` needs `model` 'recurrent'"):
            Settings.from_preset(**{name: value})


def test_the_name_of_a_model_says_what_was_chosen():
    assert Settings.from_preset().model_name == "Transformer, preset dates"
    recurrent = Settings.from_preset(model="recurrent")
    assert recurrent.model_name == "recurrent, LSTM, additive attention, preset dates"
    chosen = dict(similarity="none", cell="gru", scheduled_sampling=0.25)
    assert Settings.from_preset(model="recurrent", **chosen).model_name == (
        "recurrent, GRU, no attention, scheduled sampling 0.25, preset dates"
    )


TEXT = dict(train=("a", "b"))
FOUR = ("a.en", "a.de", "b.en", "b.de")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (dict(epochs=0), "`epochs` must be at least 1. Received: epochs=0"),
        (dict(epochs=2.5), "`epochs` must be a whole number. Received: epochs=2.5"),
        (dict(epochs=True), "`epochs` must be a whole number. Received: epochs=True"),
        (dict(lowercase="yes"), "`lowercase` must be a true or false. Received: lowercase='yes'"),
        (dict(train=3.5), "`train` must be a string. Received: train=3.5"),
        (dict(dropout=1), "`dropout` must be at least 0 and below 1. Received: dropout=1.0"),
        (dict(dropout=math.nan), "`dropout` must be at least 0 and below 1. Received: dropout=nan"),
        (dict(norm_epsilon=0), "`norm_epsilon` must be above 0 and below 1. Received: "),
        (dict(norm_epsilon=math.nan), "`norm_epsilon` must be above 0 and below 1. Received: "),
        (dict(minutes=0), "`minutes` must be above 0. Received: minutes=0.0"),
        (
            dict(learning_rate=math.inf),
            "`learning_rate` must be above 0 and below infinity. Received: ",
        ),
        (dict(learning_rate=0), "`learning_rate` must be above 0 and below infinity. Received: "),
        (dict(max_length=10), "`max_length` must be at least 16"),
        (dict(seed=2**32), r"`seed` must be at least 0 and below 2\*\*32. Received"),
        (dict(label_smoothing=1), "`label_smoothing` must be at least 0 and below 1. Received"),
        (dict(length_penalty=-1), "`length_penalty` must be at least 0 and at most 10. Received"),
        (dict(length_penalty=11), "`length_penalty` must be at least 0 and at most 10. Received"),
        (dict(vocab_size=4), "`vocab_size` must be at least 5"),
        (dict(TEXT, normalization="nfd"), "`normalization` must be one of identity, nfc, nfkc"),
        (
            dict(TEXT, normalization="nmt_nfkc", source_normalization="nfc"),
            "`source_normalization` must be one of as `normalization` without",
        ),
        (dict(model="recurrent", d_model=201), "`d_model` must be even"),
        (
            dict(position="rotary", d_model=36),
            r"`d_model` must be a multiple of 2 \* `num_heads`, 8. Received: d_model=36",
        ),
        (dict(position="polar"), "`position` must be one of sinusoidal, rotary"),
        (dict(preset="huge"), "`preset` must be one of dates, mini"),
        (
            dict(preset="fast-tiny", model="recurrent"),
            "`preset` must be one of dates, mini, .*, symbols-paper for `model` 'recurrent'. "
            "Received: preset='fast-tiny'",
        ),
        (dict(model="recurrent", num_decoder_layers=1), "needs `model` 'transformer'"),
        (dict(num_decoder_layers=-1), "`num_decoder_layers` must be at least 0. Received"),
        (dict(TEXT, teacher="a", start_from="b"), "`teacher` goes without `start_from`"),
        (dict(d_model=30), "`d_model` must be a multiple of `num_heads`, 4"),
        (dict(speed=1), "`speed` is not a setting. The settings are preset, format"),
        (
            dict(subword_dropout=(0.1, 1)),
            "`subword_dropout` must be at least 0 and below 1. Received",
        ),
        (dict(subword_dropout=(0.1, 0, 0)), "`subword_dropout` must be one rate, or two"),
        (dict(batches_per_epoch=3, accumulate=2), "must be a multiple of `accumulate`, 2"),
        (dict(accumulate=2, precision="mixed_float16"), "`accumulate` needs `precision`"),
        (dict(both_directions=1, separate_vocabularies=True), "needs one vocabulary"),
        (dict(steps_per_execution=2), "above 1 needs `backend` 'jax'"),
        (dict(data_parallel=2), "`data_parallel` above 1 needs `backend` 'jax'"),
        (dict(model="recurrent", model_parallel=2, backend="jax"), "needs `model` 'transformer'"),
        (dict(model_parallel=8, backend="jax"), "`num_heads` must be a multiple of `model_par"),
        (dict(lowercase=True), "need `format` 'text'"),
        (dict(normalization="nfc"), "need `format` 'text'"),
        (dict(validation=("a", "b")), "`validation` and `test` need `train`"),
        (dict(format="g2p"), "`train` must name the file of pairs for `format` 'g2p'"),
        (dict(TEXT, format="dates"), "`train` must be empty for `format` 'dates'"),
        (dict(TEXT, format="g2p"), "`train` must be at most 1 file for 'g2p'"),
        (dict(train=("a", "b", "c")), "`train` must be a source and a target file for each corpus"),
        (dict(TEXT, validation=("a", "b", "c")), "`validation` must be at most 2 files for 'text'"),
        (dict(train=FOUR, both_directions=1), "`both_directions` needs the files of one corpus"),
        (dict(train=FOUR, teacher="run"), "`teacher` needs the files of one corpus"),
        (dict(train=FOUR, mixing_weights=(1, 2, 3)), "`mixing_weights` must be one for each of 2"),
        (dict(train=FOUR, mixing_weights=(1, 0.5)), "`mixing_weights` must be at least 1"),
        (
            dict(train=FOUR, mixing_weights=(1, 2), mixing_temperature=5),
            "give `mixing_weights` or `mixing_temperature`, not both",
        ),
        (dict(train="a", mixing_temperature=5), "`mixing_temperature` needs two files of `train`"),
        (dict(TEXT, mixing_temperature=5), "`mixing_temperature` needs several corpora"),
        (dict(TEXT, mixing_weights=4), "`mixing_weights` needs several corpora"),
        (dict(TEXT, right_to_left=True), "`right_to_left` needs a `format` of symbols"),
        (
            dict(train="a", format="scan", separate_vocabularies=True),
            "`separate_vocabularies` needs `format` 'text' or 'dates'",
        ),
        (dict(train="a", format="scan", subword_dropout=0.1), "needs `format` 'text' or 'dates'"),
        (
            dict(TEXT, source_normalization="nmt_nfkc"),
            "`source_normalization` must be one of identity, nfc, nfkc, as `normalization` without",
        ),
        (dict(TEXT, backend="jax", subword_dropout=0.1), "needs `backend` 'tensorflow'"),
        (
            dict(TEXT, backend="jax", tensorboard=True),
            "needs `backend` 'tensorflow'. Received: tensorboard=True, backend='jax'",
        ),
        (dict(TEXT, backend="jax", teacher="a"), "`teacher` needs `backend` 'tensorflow'"),
        (dict(TEXT, backend="torch", teacher="a"), "needs `backend` 'tensorflow'"),
        (dict(TEXT, backend="jax", normalization="a.tsv"), "by a file of rules needs"),
        (dict(user_defined_symbols=("<a>",)), "`user_defined_symbols` and .* need `format` 'text'"),
        (dict(train="a", format="g2p", input_sentence_size=9), "need `format` 'text'"),
        (dict(TEXT, max_ratio=0.5), "`max_ratio` must be at least 1"),
        (dict(TEXT, max_ratio=2, both_directions=1), "`max_ratio` needs two .* no `both_directi"),
        (dict(train="a", drop_duplicates=True), "`drop_duplicates` needs two files of `train`"),
        (dict(TEXT, source_scripts="Latin", both_directions=1), "and no `both_directions`"),
        (dict(TEXT, input_sentence_size=-1), "`input_sentence_size` must be at least 0"),
        (dict(TEXT, user_defined_symbols=("a b",)), "must be printable, without spaces"),
        (
            dict(TEXT, user_defined_symbols="<DE>", lowercase=True),
            "with `lowercase` without capitals",
        ),
    ],
)
def test_what_is_wrong_or_does_not_go_together_is_refused(given, message):
    given = {"backend": "tensorflow", **given}
    with pytest.raises(ValueError, match=message) as caught:
        Settings.from_preset(
            given.get("preset"), **{n: v for n, v in given.items() if n != "preset"}
        )
    _, received = str(caught.value).split(". Received: ")
    named = re.findall(r"\b(\w+)=", received)
    assert named
    assert set(named) <= {*FIELDS, *given}


NUMBERS = [name for name, field in FIELDS.items() if BOUNDS.keys() & field.metadata.keys()]


@pytest.mark.parametrize("name", NUMBERS)
def test_a_number_out_of_its_bounds_is_refused_with_all_of_them(name):
    rules = FIELDS[name].metadata
    wrong = [rules[bound] - 1 for bound in ("least", "above") if bound in rules]
    wrong += [rules[bound] + 1 for bound in ("most", "below") if bound in rules]
    told = [IN_WORDS.get(rules[bound], str(rules[bound])) for bound in BOUNDS if bound in rules]
    for value in wrong:
        with pytest.raises(ValueError, match=f"`{name}` must be ") as caught:
            Settings.from_preset(**{name: value})
        rule, received = str(caught.value).split(". Received: ")
        assert re.findall(r"2\*\*32|\d+|infinity", rule) == told
        assert received.startswith(f"{name}=")


def test_every_number_has_a_bound():
    numbers = (int, float, tuple[float, ...])
    assert [name for name, field in FIELDS.items() if field.type in numbers] == NUMBERS


@pytest.mark.parametrize(
    "settings",
    [
        Settings.from_preset(),
        Settings.from_preset(
            train=('a "b" \\ \u00fc\u2028\x7f\t', "b"), subword_dropout=(0.1, 0.0), minutes=2.5,
            split_sentences=False, source_normalization="nfkc", learning_rate=1e-05,
        ),
    ],
)  # fmt: skip
def test_a_file_gives_the_settings_back_and_what_else_is_in_it(settings, tmp_path):
    text = settings.to_toml(run={"pairs_digest": "0f", "training_pairs": 3})
    assert tomllib.loads(text)["run"] == {"pairs_digest": "0f", "training_pairs": 3}
    (tmp_path / "settings.toml").write_text(text, encoding="utf-8", newline="")
    values, run = read_settings(tmp_path / "settings.toml")
    assert Settings(**values) == settings
    assert run == {"pairs_digest": "0f", "training_pairs": 3}


def test_a_file_that_is_not_there_or_no_toml_is_refused(tmp_path):
    with pytest.raises(ValueError, match="nowhere: there is no such file. Check the path"):
        read_settings(tmp_path / "nowhere")
    (tmp_path / "bad").write_text("epochs 3", encoding="utf-8")
    with pytest.raises(ValueError, match="bad: is not TOML .*line 1.*Correct the file"):
        read_settings(tmp_path / "bad")


def test_what_may_change_is_no_difference():
    one = Settings.from_preset(epochs=3)
    free = dict(epochs=9, minutes=1.0, beam_size=2, length_penalty=0.0, tensorboard=True)
    free |= dict(xla_export=False, split_sentences=True)
    assert one.differences(dataclasses.replace(one, **free)) == ""
    other = dataclasses.replace(one, dropout=0.2, seed=4)
    assert one.differences(other) == "dropout was 0.1 and is 0.2, seed was 1 and is 4"
    assert one.differences(other, ["seed", "d_model"]) == "seed was 1 and is 4"


def test_numbers_of_numpy_are_numbers():
    given = dict(epochs=3, dropout=0.5, lowercase=True, subword_dropout=[0.5, 0.25])
    as_numpy = {name: np.array(value)[()] for name, value in given.items()}
    ours, theirs = (Settings.from_preset(train=("a",), **g) for g in (as_numpy, given))
    assert ours == theirs
    assert type(ours.epochs) is int
    assert type(ours.lowercase) is bool
    assert [type(rate) for rate in ours.subword_dropout] == [float, float]
    assert ours.to_toml() == theirs.to_toml()
