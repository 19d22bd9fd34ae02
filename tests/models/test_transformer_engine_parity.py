"""The same weights and inputs in Hugging Face's and CTranslate2's engines: the same outputs."""

import copy
import functools

import numpy as np
import pytest
from keras import ops

from keras_transformer import BeamSearch, GreedySearch, Transformer
from keras_transformer.models import transformer_step
from tests.backends import array, arrays, compiled
from tests.decoding import reference_search

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from tests.models.marian import (  # noqa: E402
    BOS,
    EOS,
    PAD,
    VOCAB,
    copy_weights,
    marian,
    ours,
    sources,
)

pytestmark = [pytest.mark.parity, pytest.mark.filterwarnings("default")]
MODELS, INPUTS, LENGTH = 20, 30, 12  # 600 searches of each kind
# Of log-probabilities in float32: two engines may decide a choice that is as close differently.
ROUNDING = 1e-5


def test_the_logits_are_equal():
    theirs, model = marian(0), ours()
    copy_weights(theirs, model)
    source, target = sources(1, 20), sources(2, 20)
    target[:, 0] = BOS
    with torch.no_grad():
        expected = theirs(
            input_ids=torch.tensor(source),
            attention_mask=torch.tensor(source != PAD),
            decoder_input_ids=torch.tensor(target),
            decoder_attention_mask=torch.tensor(target != PAD),
        ).logits.numpy()
    found = array(model((source, target)))
    np.testing.assert_allclose(found[target != PAD], expected[target != PAD], atol=1e-3)


def our_outputs(search):
    """The ids and scores of the hypotheses under each model, compiled once."""
    model = ours()
    run = compiled(
        lambda source: tuple(model.generate(source, search, LENGTH))[:2], [sources(0, INPUTS)]
    )
    for seed in range(MODELS):
        theirs, source = marian(seed), sources(seed, INPUTS)
        copy_weights(theirs, model)
        ids, scores = arrays(run(source))
        yield theirs, source, ids, scores


def hugging_face_outputs(theirs, source, **options):
    with torch.no_grad():
        found = theirs.generate(
            input_ids=torch.tensor(source),
            attention_mask=torch.tensor(source != PAD),
            do_sample=False,
            max_new_tokens=LENGTH,
            suppress_tokens=[PAD, BOS],
            output_scores=True,
            return_dict_in_generate=True,
            **options,
        )
    ids = np.full((len(found.sequences), LENGTH), PAD)
    ids[:, : found.sequences.shape[1] - 1] = found.sequences[:, 1:].numpy()
    return ids, found


@pytest.fixture
def engines_rules(monkeypatch):
    """The search in plain Python, under the engines' length penalty and ids."""
    monkeypatch.setattr(reference_search, "length_normaliser", lambda length, a: length**a)
    for name, token in (("PAD", PAD), ("BOS", BOS), ("EOS", EOS)):
        monkeypatch.setattr(reference_search, name, token)


def found_within_rounding(theirs, source, options, hypotheses, forbidden=()):
    """Whether plain Python finds these hypotheses when log-probabilities change by rounding.

    `hypotheses` are lists of ids, without what pads them. The log-probabilities are of float64:
    those of float32 are themselves off by up to 8e-5 over the twelve words of a hypothesis.
    """
    theirs = copy.deepcopy(theirs).double()

    @functools.cache
    def logits(ids):
        with torch.no_grad():
            found = theirs(
                input_ids=torch.tensor(source[None]),
                attention_mask=torch.tensor(source[None] != PAD),
                decoder_input_ids=torch.tensor([[BOS, *ids]]),
            ).logits[0, -1]
        found[list(forbidden)] = -1e9
        return found.numpy()

    random = np.random.default_rng(0)
    for rounding in (0.0, *[ROUNDING] * 100):
        sentence = reference_search.Sentence(
            lambda ids, rounding=rounding: logits(ids) + rounding * random.uniform(-1, 1, VOCAB),
            lambda ids: None,
            LENGTH,
        )
        found, _ = reference_search.beam_search(sentence, reference_search.Options(**options))
        if [list(hypothesis.ids) for hypothesis in found][: len(hypotheses)] == hypotheses:
            return True
    return False


def check_decided_by_rounding(different, options, forbidden=()):
    """That a search is right which finds what either engine does, in the few that differ."""
    assert len(different) <= 10, f"{len(different)} of 600 searches find other hypotheses"
    for theirs, source, *both in different:
        for ids in both:
            hypotheses = [[token for token in words if token != PAD] for words in ids]
            assert found_within_rounding(theirs, source, options, hypotheses, forbidden)


def test_greedy_search_writes_what_hugging_face_writes():
    written = []
    for theirs, source, ids, _ in our_outputs(GreedySearch()):
        expected, _ = hugging_face_outputs(theirs, source, num_beams=1)
        assert (ids[:, 0] == expected).all()
        written.append(expected)
    assert len(np.unique(np.concatenate(written), axis=0)) > 100, "hardly any two differ"


@pytest.mark.parametrize("length_penalty", [0.0, 1.0])
def test_a_beam_of_4_finds_what_hugging_face_finds(length_penalty, engines_rules):
    options = {"beam_size": 4, "length_penalty": length_penalty}
    search = BeamSearch(4, length_penalty, length_formula="power")
    different = []
    for theirs, source, ids, scores in our_outputs(search):
        expected, found = hugging_face_outputs(
            theirs,
            source,
            num_beams=4,
            num_return_sequences=4,
            length_penalty=length_penalty,
            early_stopping="never",
        )
        expected = expected.reshape(ids.shape)
        theirs_scores = found.sequences_scores.numpy().reshape(scores.shape)
        np.testing.assert_allclose(scores[:, 0], theirs_scores[:, 0], atol=2e-3)
        alike = (ids == expected).all((-1, -2))
        np.testing.assert_allclose(scores[alike], theirs_scores[alike], atol=2e-3)
        different += [
            (theirs, source[row], ids[row].tolist(), expected[row].tolist())
            for row in np.flatnonzero(~alike)
        ]
    check_decided_by_rounding(different, options)


def converted(theirs, folder):
    """Writes the model as CTranslate2 reads it, and loads it there."""
    ctranslate2 = pytest.importorskip("ctranslate2")
    from ctranslate2.converters.transformers import MarianMTLoader

    spec = MarianMTLoader().get_model_spec(theirs)
    tokens = [f"t{token}" for token in range(VOCAB - 1)]
    spec.register_source_vocabulary(tokens)
    spec.register_target_vocabulary(tokens)
    spec.config.bos_token, spec.config.eos_token = f"t{BOS}", f"t{EOS}"
    spec.config.unk_token, spec.config.decoder_start_token = "t2", f"t{BOS}"
    spec.config.add_source_eos = False
    spec.validate()
    spec.optimize()
    folder.mkdir()
    spec.save(str(folder))
    return ctranslate2.Translator(str(folder), compute_type="float32", intra_threads=1)


class WordsAlone(transformer_step.TransformerStep):
    """A step whose probabilities are those of words, as CTranslate2 takes them.

    It leaves the suppressed token out before it normalises, and has no padding to predict.
    """

    def __call__(self, *args):
        logits, *rest = super().__call__(*args)
        words = np.isin(np.arange(VOCAB), (PAD, BOS), invert=True)
        return ops.where(ops.convert_to_tensor(words[None]), logits, -1e9), *rest


@pytest.mark.parametrize(("beams", "length_penalty"), [(1, 0.0), (4, 0.0), (4, 1.0)])
def test_ctranslate2_writes_the_same(beams, length_penalty, tmp_path, engines_rules, monkeypatch):
    monkeypatch.setattr(Transformer, "step_class", WordsAlone)
    # With a length penalty CTranslate2 stops as soon as it has four hypotheses.
    early = length_penalty > 0
    options = {"beam_size": beams, "length_penalty": length_penalty, "early_stopping": early}
    search = BeamSearch(**options, length_formula="power") if beams > 1 else GreedySearch()
    # Without, as soon as no other can be the best: its others may be worse than ours.
    compared = beams if early else 1
    different = []
    for number, (theirs, source, ids, scores) in enumerate(our_outputs(search)):
        answers = converted(theirs, tmp_path / str(number)).translate_batch(
            [[f"t{token}" for token in row if token != PAD] for row in source],
            beam_size=beams,
            num_hypotheses=compared,
            length_penalty=length_penalty,
            min_decoding_length=0,
            max_decoding_length=LENGTH,
            return_scores=True,
            suppress_sequences=[[f"t{BOS}"]],
        )
        for row, answer in enumerate(answers):
            # CTranslate2 leaves the end out; what is shorter than the limit has one.
            expected = [[int(token[1:]) for token in words] for words in answer.hypotheses]
            expected = [words + [EOS] * (len(words) < LENGTH) for words in expected]
            found = [
                [token for token in words if token != PAD] for words in ids[row, :compared].tolist()
            ]
            np.testing.assert_allclose(scores[row, 0], answer.scores[0], atol=2e-3)
            if found == expected:
                np.testing.assert_allclose(scores[row, :compared], answer.scores, atol=2e-3)
            else:
                different.append((theirs, source[row], found, expected))
    check_decided_by_rounding(different, options, forbidden=(PAD, BOS))
