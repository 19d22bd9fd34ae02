"""The model with each scheme of positions and each option: the contracts hold for all of them."""

import functools

import keras
import numpy as np
import pytest

from keras_transformer import BeamSearch, GreedySearch, MaskedCrossentropy, Transformer
from keras_transformer.checks import check_causality, check_padding_invariance
from keras_transformer.layers import (
    ALiBi,
    Decoder,
    Encoder,
    LearnedPositionalEncoding,
    PositionalEncoding,
    RelativePositionBias,
    RotaryPositionalEncoding,
)
from keras_transformer.masking import segment_mask, segment_positions
from tests.backends import array, arrays, normal, randomise
from tests.decoding.ways_to_compile import WAYS, in_way
from tests.models.small_transformer import (
    SOURCE_IDS,
    TARGET_IDS,
    VOCAB,
    Forced,
    random_targets,
)

OPTIONS = {
    "sinusoidal": {},
    "learned": {"position": lambda: LearnedPositionalEncoding(20)},
    "rotary": {"position": RotaryPositionalEncoding},
    "ALiBi": {"position": ALiBi},
    "relative": {"position": lambda: RelativePositionBias(8, 10)},
    "window": {"window": 2},
    "grouped": {"num_key_value_heads": 1},
    "unequal, untied": {
        "num_encoder_layers": 2,
        "num_encoder_heads": 2,
        "num_decoder_heads": 4,
        "encoder_d_ff": 7,
        "decoder_d_ff": 9,
        "scale_embeddings": False,
        "tie_output": False,
        "logits_bias": True,
        "embedding_norm": True,
        "norm_epsilon": 1e-3,
        "position": lambda: PositionalEncoding(
            layout="halves", frequencies="tensor2tensor", first_position=2
        ),
    },
    "RMS norm, gated": {"rms_norm": True, "activation": "swiglu", "norm_first": True},
    "all at once": {
        "position": RotaryPositionalEncoding,
        "window": 3,
        "num_key_value_heads": 1,
        "rms_norm": True,
        "activation": "geglu",
        "norm_first": True,
        "attention_dropout": 0.1,
        "feed_forward_dropout": 0.1,
        "embedding_dropout": 0.2,
    },
}
# Those of sinusoids are tested in test_transformer.py.
OTHERS = [name for name in OPTIONS if name != "sinusoidal"]
EACH_OPTION = pytest.mark.parametrize("name", OTHERS)


def slow_but(*names):
    """A test of every option; the default run tries these."""
    return pytest.mark.parametrize(
        "name",
        [pytest.param(n, marks=() if n in names else pytest.mark.slow) for n in OTHERS],
    )


@functools.cache
def built(name):
    """A model for tests that only read it; the layers of a stack share a bias of positions."""
    options = {key: v() if key == "position" else v for key, v in OPTIONS[name].items()}
    num_layers = 2 if name == "relative" else 1
    model = Transformer(VOCAB, num_layers=num_layers, d_model=12, num_heads=3, d_ff=13, **options)
    model.build()
    return randomise(model)


# What is left out is in "all at once".
@slow_but("learned", "ALiBi", "relative", "window", "all at once")
def test_padding_and_the_future_do_not_leak(name):
    model = built(name)
    targets = np.array([[2, 9, 5, 6, 11, 8, 4], [2, 6, 7, 7, 4, 0, 0]], "int32")
    assert check_padding_invariance(model, (SOURCE_IDS, targets)) < 2e-6
    assert check_causality(model, (SOURCE_IDS, targets)) < 2e-6


def on_the_left(ids, more=0):
    """Moves the padding of each row, and `more`, to its left."""
    rows = [np.roll(row, (row == 0).sum()) for row in ids]
    return np.pad(rows, [(0, 0), (more, 0)])


@slow_but("learned", "rotary", "ALiBi", "relative", "window")
def test_padding_may_be_on_the_left(name):
    model = built(name)
    targets = np.array([[2, 9, 5, 6, 11, 8, 4], [2, 6, 7, 7, 4, 0, 0]], "int32")
    left = on_the_left(SOURCE_IDS), on_the_left(targets)
    assert check_padding_invariance(model, left, side="left") < 3e-6
    found = array(model((on_the_left(SOURCE_IDS, 3), on_the_left(targets, 4))))
    expected = array(model((SOURCE_IDS, targets)))
    np.testing.assert_allclose(found[0, 4:], expected[0], atol=3e-6)
    np.testing.assert_allclose(found[1, 6:], expected[1, :5], atol=3e-6)


# A search reads the memory, which the test before compares for every option.
@pytest.mark.parametrize(
    "name",
    ["sinusoidal", *(pytest.param(n, marks=pytest.mark.slow) for n in ("learned", "window"))],
)
def test_outputs_and_scores_do_not_depend_on_the_side_of_the_padding(name):
    model = built(name)
    sources = SOURCE_IDS, on_the_left(SOURCE_IDS), on_the_left(SOURCE_IDS, 3)
    expected, *others = (
        arrays(model.generate(ids, BeamSearch(2), max_length=4)) for ids in sources
    )
    longest = expected.lengths.max()
    for found in others:
        assert (found.ids[:, :, :longest] == expected.ids[:, :, :longest]).all()
        np.testing.assert_allclose(found.scores, expected.scores, atol=1e-5)
    scored = arrays(model.score(sources[2], on_the_left(expected.ids[:, 0])))
    np.testing.assert_allclose(
        scored.log_prob, expected.token_log_probs[:, 0].sum(axis=-1), atol=1e-4
    )


@EACH_OPTION
def test_cached_steps_equal_the_full_decoder(name):
    model, targets = built(name), random_targets(beams=1, length=7)
    found = model.generate(SOURCE_IDS, Forced(targets), max_length=7)[:, 0]
    whole = array(model((SOURCE_IDS, targets[:, 0])))
    np.testing.assert_allclose(found, whole, atol=2e-6)


@slow_but("learned", "ALiBi", "relative", "all at once")
def test_configuration_and_files_rebuild_the_model(name, tmp_path):
    model = built(name)
    expected = array(model((SOURCE_IDS, TARGET_IDS)))
    again = Transformer.from_config(model.get_config())
    assert again.get_config() == model.get_config()
    again.build()
    again.set_weights(model.get_weights())
    assert (array(again((SOURCE_IDS, TARGET_IDS))) == expected).all()
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert (array(loaded((SOURCE_IDS, TARGET_IDS))) == expected).all()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["learned", "relative", "all at once"])
def test_it_learns_to_copy_in_order(name):
    keras.utils.set_random_seed(1)
    options = {key: v() if key == "position" else v for key, v in OPTIONS[name].items()}
    words = np.random.default_rng(3).integers(4, VOCAB, (512, 4)).astype("int32")
    labels = np.concatenate([words, np.full((512, 1), 3, "int32")], axis=1)
    inputs = np.concatenate([np.full((512, 1), 2, "int32"), words], axis=1)
    model = Transformer(VOCAB, num_layers=1, d_model=32, num_heads=2, d_ff=64, **options)
    model.compile(optimizer=keras.optimizers.Adam(5e-3), loss=MaskedCrossentropy())
    history = model.fit((labels, inputs), labels, epochs=12, batch_size=32, verbose=0).history
    assert history["loss"][-1] < 0.6 * history["loss"][0]


@pytest.mark.parametrize(
    ("name", "longest"), [("learned", 20), ("sinusoidal", None), ("relative", None)]
)
def test_added_positions_with_an_end_say_how_long_a_text_may_be(name, longest):
    model = built(name)
    assert (model.longest_source, model.longest_target) == (longest, longest)


def test_learned_positions_bound_the_output():
    model = built("learned")
    result = arrays(model.generate(SOURCE_IDS, GreedySearch()))
    assert result.ids.shape[-1] == 20
    message = "`max_length` must be at most 20, the model's last position. Received: max_length=21"
    with pytest.raises(ValueError, match=message):
        model.generate(SOURCE_IDS, GreedySearch(), max_length=21)


@pytest.mark.parametrize(
    "way", [pytest.param(way, marks=pytest.mark.slow if way == "xla" else ()) for way in WAYS]
)
def test_learned_positions_bound_the_output_whichever_way_it_is_run(way):
    model = built("learned")

    def write(source_ids):
        return tuple(model.generate(source_ids, GreedySearch()))[:2]

    run = in_way(way, write, [SOURCE_IDS])
    for part, expected in zip(arrays(run(SOURCE_IDS)), arrays(write(SOURCE_IDS)), strict=True):
        np.testing.assert_allclose(part, expected, atol=1e-4)


def test_a_given_position_layer_stays_the_users_own():
    position = RelativePositionBias()
    sizes = {"num_layers": 2, "d_model": 8, "num_heads": 2, "d_ff": 8}
    model = Transformer(VOCAB, **sizes, position=position)
    model.build()
    assert not position.built
    names = [weight.path for weight in model.weights if "bucket_bias" in weight.path]
    assert len(names) == 2  # one for the encoder, one for the decoder, each shared by its layers


@pytest.mark.parametrize(
    ("position", "rule"),
    [
        ("rotary", "`position` must be None, a RotaryPositionalEncoding"),
        (PositionalEncoding(combine="concat"), "appending it would change the width"),
    ],
)
def test_what_is_no_position_is_refused(position, rule):
    with pytest.raises(ValueError, match=rule):
        Transformer(VOCAB, position=position)


# --- Packed sequences.


@pytest.mark.parametrize("position", [None, RotaryPositionalEncoding, ALiBi, RelativePositionBias])
def test_packed_sentences_are_as_blind_to_each_other_as_in_rows_of_their_own(position):
    lengths, memory_lengths = (3, 5, 2), (4, 2, 3)
    options = {} if position is None else {"position": position()}
    encoder = Encoder(1, 2, 16, **options)
    decoder = Decoder(1, 2, 16, **({} if position is None else {"position": position()}))
    rows = [normal(i, 1, n, 8) for i, n in enumerate(lengths)]
    memories = [normal(9 + i, 1, n, 8) for i, n in enumerate(memory_lengths)]
    segments, memory_segments = (
        np.repeat(np.arange(1, 4), counts)[None] for counts in (lengths, memory_lengths)
    )
    add = PositionalEncoding() if position is None else lambda x, positions=None: x

    def run(hidden, memory, segments, memory_segments):
        hidden = add(hidden, positions=segment_positions(segments))
        memory = encoder(
            add(memory, positions=segment_positions(memory_segments)),
            attention_mask=segment_mask(memory_segments),
        )
        return array(
            decoder(
                hidden,
                memory,
                attention_mask=segment_mask(segments),
                memory_attention_mask=segment_mask(segments, memory_segments),
            )
        )

    packed = [np.concatenate(part, axis=1) for part in (rows, memories)]
    run(*packed, segments, memory_segments)
    randomise(encoder), randomise(decoder)
    together = run(*packed, segments, memory_segments)
    alone = [
        run(
            row, memory, np.ones((1, row.shape[1]), "int32"), np.ones((1, memory.shape[1]), "int32")
        )
        for row, memory in zip(rows, memories, strict=True)
    ]
    np.testing.assert_allclose(together, np.concatenate(alone, axis=1), atol=2e-6)


# --- Hidden states.


def test_hidden_states_of_all_layers_are_those_of_shorter_stacks():
    hidden, memory = normal(1, 2, 5, 8), normal(2, 2, 4, 8)
    encoder, decoder = (stack(3, 2, 16, norm_first=True) for stack in (Encoder, Decoder))
    outputs, states, _ = encoder.inspect(hidden)
    assert len(states) == 3
    first = encoder.layers[0](hidden)
    np.testing.assert_allclose(array(states[0]), array(first), atol=1e-6)
    np.testing.assert_allclose(array(encoder.final_norm(states[-1])), array(outputs), atol=1e-6)
    np.testing.assert_allclose(array(encoder(hidden)), array(outputs), atol=1e-6)
    outputs, states, _, weights = decoder.inspect(hidden, memory)
    assert (len(weights), len(states)) == (3, 3)
    np.testing.assert_allclose(array(decoder.final_norm(states[-1])), array(outputs), atol=1e-6)
    symbolic = encoder.inspect(keras.Input((5, 8)))
    assert [state.shape for state in symbolic.hidden_states] == [(None, 5, 8)] * 3


def test_each_dropout_has_a_rate_of_its_own():
    hidden = normal(1, 2, 5, 8)
    for name in ("dropout", "attention_dropout", "feed_forward_dropout"):
        rates = {"dropout": 0.0, name: 0.5}
        encoder = Encoder(1, 2, 16, **rates)
        plain, dropped = array(encoder(hidden)), array(encoder(hidden, training=True))
        assert np.abs(plain - dropped).max() > 1e-3
    sizes = {"num_layers": 1, "d_model": 8, "num_heads": 2, "d_ff": 8}
    model = Transformer(VOCAB, **sizes, dropout=0.0, embedding_dropout=0.5)
    inputs = (SOURCE_IDS, TARGET_IDS)
    assert np.abs(array(model(inputs)) - array(model(inputs, training=True))).max() > 1e-3


def test_beam_search_runs_with_everything_at_once():
    result = arrays(built("all at once").generate(SOURCE_IDS, BeamSearch(3), max_length=6))
    assert result.ids.shape == (2, 3, 6)


def test_generate_takes_limits_and_penalties_of_each_sentence():
    model = Transformer(20, num_layers=1, d_model=16, num_heads=2, d_ff=32)
    source_ids = np.array([[5, 6, 3], [7, 8, 3], [9, 3, 0]])
    options = {"length_limits": np.array([2, 5, 4]), "length_penalty": np.array([0.0, 1.0, 3.0])}
    for max_length in (3, None):
        result = model.generate(source_ids, BeamSearch(2), max_length, **options)
        lengths = keras.ops.convert_to_numpy(result.lengths)
        assert (lengths <= np.array([[2], [max_length or 5], [4]])).all()
        for row, penalty in enumerate((0.0, 1.0, 3.0)):
            alone = model.generate(
                source_ids[row : row + 1],
                BeamSearch(2, length_penalty=penalty),
                max_length,
                length_limits=options["length_limits"][row : row + 1],
            )
            scores = keras.ops.convert_to_numpy(alone.scores)[0]
            ours = keras.ops.convert_to_numpy(result.scores)[row]
            np.testing.assert_allclose(ours, scores, rtol=1e-4)


def test_each_side_has_its_own_sizes_and_every_norm_the_epsilon():
    model = built("unequal, untied")
    encoder, decoder = model.encoder, model.decoder
    assert (len(encoder.layers), encoder.layers[0].attention.num_heads) == (2, 2)
    assert (len(decoder.layers), decoder.layers[0].self_attention.num_heads) == (1, 4)
    assert (encoder.d_ff, decoder.d_ff) == (7, 9)
    kinds = keras.layers.LayerNormalization, keras.layers.RMSNormalization
    norms = [layer for layer in model._flatten_layers() if isinstance(layer, kinds)]
    assert len(norms) == 2 * 2 + 3 + 2
    assert {norm.epsilon for norm in norms} == {1e-3}
    first = Transformer(VOCAB, num_layers=1, d_model=12, num_heads=3, d_ff=13, norm_first=True)
    assert Encoder(1, 3, 13, norm_first=True).norm_epsilon == first.norm_epsilon == 1e-6


def test_embeddings_are_normalised_behind_their_positions(monkeypatch):
    model = Transformer(VOCAB, num_layers=1, d_model=12, num_heads=3, d_ff=13, embedding_norm=True)
    model.build()
    randomise(model)
    expected = array(model.source_positions(model.source_embedding(SOURCE_IDS)))
    monkeypatch.setattr(Encoder, "__call__", lambda self, embedded, **masks: embedded)
    found = array(model.encode(SOURCE_IDS))
    gamma, beta = (array(weight) for weight in model.source_norm.weights)
    mean, variance = expected.mean(-1, keepdims=True), expected.var(-1, keepdims=True)
    expected = (expected - mean) / np.sqrt(variance + 1e-6) * gamma + beta
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_a_start_that_is_padding_is_a_token_like_any_other():
    # The same weights with a start of its own, whose row is that of padding.
    options = {"num_layers": 2, "d_model": 12, "num_heads": 3, "d_ff": 13, "norm_epsilon": 1e-5}
    model = Transformer(VOCAB, bos_id=0, **options)
    own = Transformer(VOCAB, bos_id=2, **options)
    for one in (model, own):
        one.build()
    randomise(own)
    weights = own.get_weights()
    (table,) = [weight for weight in weights if weight.shape == (VOCAB, 12)]
    table[2] = table[0]
    own.set_weights(weights)
    model.set_weights(weights)
    starts = np.where(TARGET_IDS == 2, 0, TARGET_IDS)
    starts[:, 0] = 0
    expected = array(own((SOURCE_IDS, TARGET_IDS)))
    np.testing.assert_allclose(array(model((SOURCE_IDS, starts))), expected, atol=2e-6)
    found, wanted = (
        arrays(one.generate(SOURCE_IDS, BeamSearch(3, suppressed_ids=[0, 2]), max_length=6))
        for one in (model, own)
    )
    assert (found.ids == wanted.ids).all()
    np.testing.assert_allclose(found.scores, wanted.scores, atol=1e-5)
    scores = [array(one.score(SOURCE_IDS, wanted.ids[:, 0]).log_prob) for one in (model, own)]
    np.testing.assert_allclose(*scores, atol=1e-5)
    inside = [
        array(one.self_attention_weights(SOURCE_IDS, ids)[1][0])
        for one, ids in ((model, starts), (own, TARGET_IDS))
    ]
    np.testing.assert_allclose(*inside, atol=1e-6)


def test_a_start_that_is_the_end_generates():
    model = Transformer(VOCAB, num_layers=1, d_model=12, num_heads=3, d_ff=13, bos_id=3)
    model.build()
    randomise(model)
    result = arrays(model.generate(SOURCE_IDS, GreedySearch(), max_length=5))
    scored = arrays(model.score(SOURCE_IDS, result.ids[:, 0]))
    np.testing.assert_allclose(scored.log_prob, result.scores[:, 0], atol=1e-4)


def test_padding_must_not_be_the_end():
    with pytest.raises(ValueError, match="`pad_id` another than `eos_id`. Received: pad_id=3"):
        Transformer(VOCAB, pad_id=3, eos_id=3)
