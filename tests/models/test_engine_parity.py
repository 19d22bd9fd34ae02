"""The same weights and inputs in Hugging Face's and CTranslate2's engines: the same outputs."""

import numpy as np
import pytest
from keras import ops

from keras_transformer import BeamSearch, GreedySearch, Transformer
from keras_transformer.decoding import beam_search
from keras_transformer.models import decoding_step
from tests.backends import array, arrays, compiled

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


def power_of_length(length, penalty):
    """How the engines compared with take the length into account."""
    return ops.cast(length, "float32") ** penalty


def test_greedy_search_writes_what_hugging_face_writes():
    written = []
    for theirs, source, ids, _ in our_outputs(GreedySearch()):
        expected, _ = hugging_face_outputs(theirs, source, num_beams=1)
        assert (ids[:, 0] == expected).all()
        written.append(expected)
    assert len(np.unique(np.concatenate(written), axis=0)) > 100, "hardly any two differ"


@pytest.mark.parametrize("length_penalty", [0.0, 1.0])
def test_a_beam_of_4_finds_what_hugging_face_finds(length_penalty, monkeypatch):
    monkeypatch.setattr(beam_search, "length_normaliser", power_of_length)
    ties = other = 0
    for theirs, source, ids, scores in our_outputs(BeamSearch(4, length_penalty)):
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
        # Two hypotheses of one score may come in either order.
        level = scores > scores[:, :1] - 2e-6
        same = (ids == expected[:, :1]).all(-1)
        assert (same & level).any(-1).all()
        ties += (ids[:, 0] != expected[:, 0]).any(-1).sum()
        # So may two live ones of which only one has room.
        alike = (ids == expected).all((-1, -2))
        np.testing.assert_allclose(scores[alike], theirs_scores[alike], atol=2e-3)
        other += (~alike).sum()
    assert ties <= 2
    assert other <= 10, f"one of the four hypotheses is another in {other} of 600 searches"


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


class WordsAlone(decoding_step.DecodingStep):
    """A step whose probabilities are those of words, as CTranslate2 takes them.

    It leaves the suppressed token out before it normalises, and has no padding to predict.
    """

    def __call__(self, *args):
        logits, *rest = super().__call__(*args)
        words = np.isin(np.arange(VOCAB), (PAD, BOS), invert=True)
        return ops.where(ops.convert_to_tensor(words[None]), logits, -1e9), *rest


@pytest.mark.parametrize(("beams", "length_penalty"), [(1, 0.0), (4, 0.0), (4, 1.0)])
def test_ctranslate2_writes_the_same(beams, length_penalty, tmp_path, monkeypatch):
    monkeypatch.setattr(Transformer, "step_class", WordsAlone)
    monkeypatch.setattr(beam_search, "length_normaliser", power_of_length)
    # With a length penalty CTranslate2 stops as soon as it has four hypotheses.
    early = length_penalty > 0
    search = BeamSearch(4, length_penalty, early_stopping=early) if beams > 1 else GreedySearch()
    for number, (theirs, source, ids, scores) in enumerate(our_outputs(search)):
        answers = converted(theirs, tmp_path / str(number)).translate_batch(
            [[f"t{token}" for token in row if token != PAD] for row in source],
            beam_size=beams,
            length_penalty=length_penalty,
            min_decoding_length=0,
            max_decoding_length=LENGTH,
            return_scores=True,
            suppress_sequences=[[f"t{BOS}"]],
        )
        for row, answer in enumerate(answers):
            expected = [int(token[1:]) for token in answer.hypotheses[0]]
            found = [token for token in ids[row, 0].tolist() if token not in (PAD, EOS)]
            assert found == expected, f"model {number}, sentence {row}"
            assert scores[row, 0] == pytest.approx(answer.scores[0], abs=2e-3)
