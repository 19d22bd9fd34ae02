"""Models of Hugging Face: the same numbers, the same translations, and files that are refused."""

import json

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from keras_transformer import BeamSearch  # noqa: E402
from keras_transformer.interop import load_hugging_face  # noqa: E402
from keras_transformer.interop.hugging_face import (  # noqa: E402
    check_tensors,
    our_weight,
    read_config,
    warn_of_layer_drop,
    with_tied_names,
)
from keras_transformer.interop.hugging_face_form import make_model  # noqa: E402
from keras_transformer.interop.hugging_face_search import make_search  # noqa: E402
from keras_transformer.interop.tensor_files import open_tensors  # noqa: E402
from keras_transformer.interop.weights import (  # noqa: E402
    assign_weights,
    read_weights,
    weight_shapes,
)
from tests.backends import array, arrays  # noqa: E402
from tests.interop.hugging_face_models import random_ids, random_model, save  # noqa: E402
from tests.numpy_reference import log_softmax  # noqa: E402

pytestmark = pytest.mark.parity
SIDES = ("encoder", "decoder")

OPUS = {"vocab_size": 60, "pad_token_id": 59, "eos_token_id": 0, "decoder_start_token_id": 59}
UNEQUAL = {
    "encoder_layers": 3,
    "decoder_layers": 1,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 8,
    "encoder_ffn_dim": 40,
    "decoder_ffn_dim": 56,
}
SEPARATE = {"share_encoder_decoder_embeddings": False, "decoder_vocab_size": 60}
MIDDLE = {"vocab_size": 60, "pad_token_id": 31, "eos_token_id": 59, "decoder_start_token_id": 31}
M2M = {"vocab_size": 60, "pad_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 2}
M2M |= {"bos_token_id": 0, "activation_function": "relu"}
PEGASUS = {"vocab_size": 60, "pad_token_id": 0, "eos_token_id": 1, "decoder_start_token_id": 0}
CONFIGURATIONS = {
    "opus-mt": ("marian", {**OPUS, "activation_function": "swish"}),
    "scaled": ("marian", {**OPUS, "activation_function": "swish", "scale_embedding": True}),
    "relu": ("marian", {**OPUS, "activation_function": "relu"}),
    "gelu": ("marian", {**OPUS, "activation_function": "gelu"}),
    "unequal sides": ("marian", {**OPUS, **UNEQUAL}),
    "separate vocabularies": ("marian", {**OPUS, **SEPARATE, "vocab_size": 70}),
    "untied": ("marian", {**OPUS, "tie_word_embeddings": False}),
    "separate, untied": ("marian", {**OPUS, **SEPARATE, "tie_word_embeddings": False}),
    "pad in the middle, eos at the end": ("marian", MIDDLE),
    "start of its own": ("marian", {**OPUS, "decoder_start_token_id": 5}),
    "one layer": ("marian", {**OPUS, "encoder_layers": 1, "decoder_layers": 1}),
    "float16": ("marian", {**OPUS, "scale_embedding": True, "dtype": "float16"}),
    "pegasus": ("pegasus", {**PEGASUS, "scale_embedding": True}),
    "m2m_100": ("m2m_100", M2M),
    "m2m_100, unequal sides": ("m2m_100", {**M2M, **UNEQUAL}),
    "m2m_100, unscaled": ("m2m_100", {**M2M, "scale_embedding": False}),
    "m2m_100, swish": ("m2m_100", {**M2M, "activation_function": "swish"}),
}
BEAM = {"num_beams": 4, "early_stopping": "never", "max_length": 17}
OPUS_BEAM = {**BEAM, "bad_words_ids": [[59]], "renormalize_logits": True}


def saved(name, folder, scale=5.0, **generation):
    """Their model, its directory, and ours that is read from it."""
    kind, settings = CONFIGURATIONS[name]
    theirs = random_model(kind, scale=scale, **settings)
    half = settings.get("dtype") == "float16"
    directory = save(theirs.half() if half else theirs, folder / "model", **generation)
    if half:
        # The positions of a model that was halved stay halved.
        theirs = type(theirs).from_pretrained(directory, dtype=torch.float32).eval()
    config = read_config(directory)
    model = make_model(config)
    tensors = open_tensors(directory)
    check_tensors(model, tensors)
    model.build()
    assign_weights(model, lambda weight: our_weight(weight, tensors))
    return theirs, model, config


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_numbers_are_theirs(name, tmp_path):
    # Larger weights make more of the rounding of float32.
    theirs, model, _ = saved(name, tmp_path, scale=2.0)
    sources, targets = random_ids(theirs), random_ids(theirs, 1, targets=True)
    with torch.no_grad():
        wanted = theirs(
            input_ids=torch.tensor(sources),
            attention_mask=torch.tensor(sources != model.pad_id),
            decoder_input_ids=torch.tensor(targets),
        )
    is_token = sources != model.pad_id
    memory = wanted.encoder_last_hidden_state.numpy()[is_token]
    np.testing.assert_allclose(array(model.encode(sources))[is_token], memory, atol=1e-5)
    # What stands behind padding in a target is seen there, and is of no use.
    is_label = np.concatenate([targets[:, 1:] != model.pad_id, targets[:, :1] < 0], axis=1)
    is_label[:, 0] = True
    found = array(model((sources, targets)))
    np.testing.assert_allclose(found[is_label], wanted.logits.numpy()[is_label], atol=1e-4)
    assert np.ptp(found) > 3


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_shapes_are_known_before_a_model_is_built(name):
    kind, settings = CONFIGURATIONS[name]
    from tests.interop.hugging_face_models import KINDS, SIZES

    model = make_model({**KINDS[kind][0](**{**SIZES, **settings}).to_dict()})
    shapes = weight_shapes(model)
    assert not model.built
    model.build()
    assert {weight: values.shape for weight, values in read_weights(model).items()} == shapes


def logits_of(theirs, sources, targets):
    """Their logits at the tokens of targets."""
    with torch.no_grad():
        found = theirs(
            input_ids=torch.tensor(sources),
            attention_mask=torch.tensor(sources != theirs.config.pad_token_id),
            decoder_input_ids=torch.tensor(targets),
        )
    return found.logits.numpy()


def read_changed(directory, changes, config=None, leave_out=()):
    """Our model of a directory after changes of its weights and its configuration."""
    safetensors = pytest.importorskip("safetensors.torch")
    path = directory / "model.safetensors"
    tensors = {**safetensors.load_file(path), **changes}
    kept = {name: values for name, values in tensors.items() if name not in leave_out}
    safetensors.save_file(kept, path, metadata={"format": "pt"})
    known = json.loads((directory / "config.json").read_text(encoding="utf-8"))
    text = json.dumps({**known, **(config or {})})
    (directory / "config.json").write_text(text, encoding="utf-8")
    model = make_model(read_config(directory))
    opened = open_tensors(directory)
    check_tensors(model, opened)
    model.build()
    assign_weights(model, lambda weight: our_weight(weight, opened))
    return model


def test_layers_that_are_left_out_in_training_are_said(tmp_path):
    _, _, config = saved("m2m_100", tmp_path)
    warn_of_layer_drop(config)
    with pytest.warns(UserWarning, match="encoder_layerdrop=0.05 has no effect here"):
        warn_of_layer_drop({**config, "encoder_layerdrop": 0.05})
    for rate in (True, "0.1", 2, None):
        with pytest.raises(ValueError, match="`decoder_layerdrop` must be a number from 0 to 1"):
            warn_of_layer_drop({**config, "decoder_layerdrop": rate})


COPIES_OF_SHARED = [
    "lm_head.weight",
    "model.encoder.embed_tokens.weight",
    "model.decoder.embed_tokens.weight",
]


def test_the_shared_embeddings_win_over_their_copies(tmp_path):
    # As config.json says and version 4 does. Version 5 ties no values that differ, and warns.
    theirs, _, _ = saved("opus-mt", tmp_path, scale=2.0)
    sources, targets = random_ids(theirs), random_ids(theirs, 1, targets=True)
    wanted = logits_of(theirs, sources, targets)
    others = {name: torch.randn(60, 32) for name in COPIES_OF_SHARED}
    found = array(read_changed(tmp_path / "model", others)((sources, targets)))
    is_label = targets != theirs.config.pad_token_id
    is_label[:, 0] = True
    np.testing.assert_allclose(found[is_label], wanted[is_label], atol=1e-4)


def test_untied_and_shared_is_one_table_beside_the_output_in_files_of_version_4(tmp_path):
    theirs, _, _ = saved("untied", tmp_path, scale=2.0)
    table = theirs.model.encoder.embed_tokens.weight.detach().clone()
    with torch.no_grad():  # version 5 shares nothing: the same values stand in both
        theirs.model.decoder.embed_tokens.weight.copy_(table)
    sources, targets = random_ids(theirs), random_ids(theirs, 1, targets=True)
    wanted = logits_of(theirs, sources, targets)
    model = read_changed(
        tmp_path / "model",
        {"model.shared.weight": table},
        {"transformers_version": "4.30.2", "share_encoder_decoder_embeddings": True},
        leave_out=COPIES_OF_SHARED[1:],
    )
    assert (model.vocab_size, model.tie_output) == (60, False)
    is_label = targets != theirs.config.pad_token_id
    is_label[:, 0] = True
    found = array(model((sources, targets)))
    np.testing.assert_allclose(found[is_label], wanted[is_label], atol=1e-4)


@pytest.mark.parametrize("name", ["opus-mt", "separate vocabularies", "untied", "m2m_100"])
def test_a_table_is_read_by_any_name_that_a_file_keeps(name, tmp_path):
    """`save_model` keeps one name of each tensor, and old files have tables of positions."""
    safetensors = pytest.importorskip("safetensors.torch")
    theirs, model, _ = saved(name, tmp_path)
    expected = read_weights(model)
    path = tmp_path / "model" / "model.safetensors"
    safetensors.save_model(theirs, path)
    kept = safetensors.load_file(path)
    if name != "untied":
        assert "lm_head.weight" in kept
        assert not {"model.shared.weight", "model.decoder.embed_tokens.weight"} & kept.keys()
    kept |= {f"model.{side}.embed_positions.weights": torch.ones(9, 32) for side in SIDES}
    safetensors.save_file(kept, path, metadata={"format": "pt"})
    tensors = with_tied_names(model, open_tensors(tmp_path / "model"))
    check_tensors(model, tensors)
    for weight, values in expected.items():
        np.testing.assert_array_equal(our_weight(weight, tensors), values)


def test_a_table_that_no_name_holds_is_missing(tmp_path):
    safetensors = pytest.importorskip("safetensors.torch")
    _, model, _ = saved("untied", tmp_path)
    path = tmp_path / "model" / "model.safetensors"
    kept = safetensors.load_file(path)
    del kept["model.decoder.embed_tokens.weight"]  # `lm_head.weight` is another table
    safetensors.save_file(kept, path, metadata={"format": "pt"})
    with pytest.raises(ValueError, match=r"must have 'model\.decoder\.embed_tokens\.weight'"):
        check_tensors(model, with_tied_names(model, open_tensors(tmp_path / "model")))


def their_search(theirs, sources, **options):
    """The ids of their search without the start, padded, and its scores.

    Those of greedy search are the model's log-probabilities, without a forced first token's.
    """
    pad = theirs.config.pad_token_id
    result = theirs.generate(
        input_ids=torch.tensor(sources),
        attention_mask=torch.tensor(sources != pad),
        return_dict_in_generate=True,
        output_scores=True,
        output_logits=True,
        **options,
    )
    ids = result.sequences.numpy()[:, 1:]
    is_end = ids == theirs.config.eos_token_id
    ids[np.cumsum(is_end, axis=1) > is_end] = pad  # theirs pads with the end where `pad` is 0
    if theirs.generation_config.num_beams > 1:
        return ids, result.sequences_scores.numpy()
    # As `compute_transition_scores` of theirs, which takes one vocabulary for the other.
    steps = result.scores if theirs.generation_config.renormalize_logits else result.logits
    log_probs = torch.stack(steps, dim=1).log_softmax(-1).numpy()  # (batch, target, vocab)
    log_probs = np.take_along_axis(log_probs, ids[:, :, None], axis=2)[:, :, 0]
    counted = ids != pad
    if options.get("forced_bos_token_id") is not None:
        counted[:, 0] = False
    return ids, np.where(counted, log_probs, 0).sum(axis=1)


def check_ties(model, search, sources, outputs, scores, forced=None):
    """Checks that rounding chose between our output and theirs for each source.

    For greedy search the first token that differs is as likely under our model. A beam's outputs
    have the scores of their searches under our model. They are as good as each other, or a
    hypothesis that was kept was as good as one that was not.
    """
    scored = [arrays(model.score(sources, ids)).token_log_probs for ids in outputs]
    if search.rows_per_sentence == 1:
        first = np.argmax(outputs[0] != outputs[1], axis=1)[:, None]
        both = [np.take_along_axis(log_probs, first, axis=1) for log_probs in scored]
        np.testing.assert_allclose(*both, atol=1e-4)
        return
    for ids, log_probs, expected in zip(outputs, scored, scores, strict=True):
        lengths = (ids != model.pad_id).sum(axis=1) ** search.length_penalty
        found = log_probs[:, int(forced is not None) :].sum(axis=1) / lengths
        np.testing.assert_allclose(found, expected, atol=1e-4)
    for source, ours, theirs in zip(sources, *scores, strict=True):
        if abs(ours - theirs) > 1e-4:
            assert smallest_cut(model, search, source, forced) < 1e-4


def smallest_cut(model, search, source, forced):
    """The smallest difference between the last hypothesis that a step keeps and the next one.

    A beam search with a ban of pairs that repeat, as it is defined.
    """
    never = {model.pad_id, model.bos_id, *search.suppressed_ids} - {model.eos_id}
    live, cuts = [([], 0.0)], []
    for index in range(16):
        prefixes = np.array([[model.bos_id, *tokens] for tokens, _ in live])
        sources = np.repeat(source[None], len(live), axis=0)
        log_probs = log_softmax(array(model((sources, prefixes)))[:, -1].astype("float64"))
        candidates = []
        for (tokens, score), row in zip(live, log_probs, strict=True):
            pairs = {*zip(tokens, tokens[1:], strict=False)}
            last = tokens[-1] if tokens else None
            for token, log_prob in enumerate(row):
                if index == 0 and forced is not None:
                    if token == forced:
                        candidates.append(([token], 0.0))
                elif token not in never and (last, token) not in pairs:
                    candidates.append(([*tokens, token], score + log_prob))
        candidates.sort(key=lambda candidate: -candidate[1])
        going = [one for one in candidates if one[0][-1] != model.eos_id]
        live = going[: search.beam_size]
        if going[search.beam_size :]:
            cuts.append(live[-1][1] - going[search.beam_size][1])
    return min(cuts)


SEARCHED = ["opus-mt", "separate vocabularies", "pad in the middle, eos at the end", "m2m_100"]


@pytest.mark.parametrize("beams", [1, 4])
@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=() if n in SEARCHED else pytest.mark.slow) for n in CONFIGURATIONS],
)
def test_translations_of_200_sentences_are_theirs(name, beams, tmp_path):
    pad = CONFIGURATIONS[name][1]["pad_token_id"]
    start = CONFIGURATIONS[name][1]["decoder_start_token_id"]
    eos = CONFIGURATIONS[name][1]["eos_token_id"]
    never = sorted({pad, start} - {eos})
    settings = {"suppress_tokens": never, "max_length": 17}
    # A random model would repeat one word.
    settings |= {"num_beams": beams, "early_stopping": "never", "no_repeat_ngram_size": 2}
    # Larger weights make more of the rounding of float32.
    theirs, model, config = saved(name, tmp_path, scale=3.5, **settings)
    sources = random_ids(theirs, 3, rows=200)
    theirs.generation_config = type(theirs.generation_config)(
        **{**settings, "pad_token_id": pad, "eos_token_id": eos, "decoder_start_token_id": start}
    )
    forced = 7 if CONFIGURATIONS[name][0] == "m2m_100" else None  # as the code of a language
    wanted, scores = their_search(theirs, sources, forced_bos_token_id=forced)
    search = make_search(config, model)
    prefix = None if forced is None else np.full((200, 1), forced)
    found = arrays(model.generate(sources, search, max_length=16, prefix_ids=prefix))
    ids = found.ids[:, 0, : wanted.shape[1]]
    different = np.flatnonzero((ids != wanted).any(axis=1))
    assert len(different) <= 2, f"{len(different)} of 200 sentences differ"
    if len(different):
        outputs = ids[different], wanted[different]
        both = found.scores[different, 0], scores[different]
        check_ties(model, search, sources[different], outputs, both, forced)
    assert len(np.unique(wanted, axis=0)) > 20
    # A greedy score is a sum of up to 16 numbers. Outputs that part at a tie are two outputs.
    same = (ids == wanted).all(axis=1)
    rtol = 1e-5 if beams == 1 else 0
    np.testing.assert_allclose(found.scores[same, 0], scores[same], atol=1e-4, rtol=rtol)


@pytest.fixture(scope="module")
def captions(tmp_path_factory, shared):
    """A Marian directory with a tokenizer of Multi30K, its model, and the ids of 200 captions."""
    pytest.importorskip("sentencepiece")
    from tests.text.sentencepiece_models import processor, train

    lines = shared("data/multi30k/train.en").read_text(encoding="utf-8").splitlines()[:2000]
    spm = train(lines, vocab_size=400)
    pieces = ["</s>", "<unk>", *processor(spm).id_to_piece(list(range(3, 400))), "<pad>"]
    vocabulary = {piece: index for index, piece in enumerate(pieces)}
    pad = len(pieces) - 1
    ids = {"pad_token_id": pad, "eos_token_id": 0, "decoder_start_token_id": pad}
    # Larger weights make more of the rounding of float32.
    theirs = random_model(vocab_size=len(pieces), scale=3.5, **ids)
    with torch.no_grad():
        theirs.final_logits_bias[0, 0] += 3.0  # so that most outputs end, at various lengths
    files = {"source.spm": spm, "target.spm": spm, "vocab.json": vocabulary}
    folder = save(theirs, tmp_path_factory.mktemp("captions") / "model", files)
    split = processor(spm).encode(lines[:200], out_type=str)
    rows = [[vocabulary.get(piece, 1) for piece in row] for row in split]
    sources = np.full((200, max(map(len, rows)) + 1), pad, "int32")
    for source, row in zip(sources, rows, strict=True):
        source[: len(row) + 1] = [*row, 0]
    return folder, theirs, ids, sources


# Without renormalisation what may not come takes its share of the probability with it.
SEARCHES = {
    "as most OPUS-MT models": {"length_penalty": 1.0, "renormalize_logits": True},
    "not renormalised": {"length_penalty": 1.0},
    "not renormalised, 0.6": {"length_penalty": 0.6},
    "0.6": {"length_penalty": 0.6, "renormalize_logits": True},
    "no length penalty": {"length_penalty": 0.0},
    "longer outputs": {"length_penalty": 1.3, "renormalize_logits": False},
    "six beams that stop early": {
        "length_penalty": 0.6,
        "num_beams": 6,
        "early_stopping": True,
    },
    "greedy, not renormalised": {"num_beams": 1},
    # As Hugging Face searches where nothing says when to stop: by a guess.
    "their stop": {"early_stopping": None},
    "their stop, 0.8": {"early_stopping": None, "length_penalty": 0.8},
    "their stop, 1.2": {"early_stopping": False, "length_penalty": 1.2},
}
FIRST = ["not renormalised, 0.6", "longer outputs", "six beams that stop early", "their stop"]


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=() if n in FIRST else pytest.mark.slow) for n in SEARCHES],
)
def test_the_search_of_200_captions_is_theirs(name, captions):
    """A directory's own search, whatever it says of probabilities and lengths."""
    folder, theirs, special, sources = captions
    forbidden = [[special["pad_token_id"]], [1], [7], [30]]
    settings = {"num_beams": 4, "early_stopping": "never", "max_length": 17}
    settings |= {"bad_words_ids": forbidden, "no_repeat_ngram_size": 2, **SEARCHES[name]}
    settings = {option: value for option, value in settings.items() if value is not None}
    path = folder / "generation_config.json"
    path.write_text(json.dumps({**special, **settings}), encoding="utf-8")
    translator = load_hugging_face(folder, jit_compile=False)
    assert translator.search.renormalize is settings.get("renormalize_logits", False)
    theirs.generation_config = type(theirs.generation_config)(**settings, **special)
    wanted, scores = their_search(theirs, sources)
    found = arrays(translator.model.generate(sources, translator.search, max_length=16))
    ids = found.ids[:, 0, : wanted.shape[1]]
    lengths = (wanted != special["pad_token_id"]).sum(axis=1)
    assert len(np.unique(lengths)) > 2
    assert len(np.unique(wanted, axis=0)) > 50
    different = np.flatnonzero((ids != wanted).any(axis=1))
    assert not len(different), f"{len(different)} of 200 sentences differ"
    np.testing.assert_allclose(found.scores[:, 0], scores, atol=1e-4)
    if not settings.get("early_stopping") and settings.get("length_penalty", 1.0) >= 1:
        # An exact stop finds better ones, which theirs misses.
        exact = BeamSearch(**{**translator.search.get_config(), "early_stopping": False})
        better = arrays(translator.model.generate(sources, exact, max_length=16))
        assert (better.scores[:, 0] > found.scores[:, 0] + 1e-3).any()
