import numpy as np
import pytest
from sacrebleu.metrics import BLEU, CHRF

from keras_transformer.recipes.evaluation import evaluate

REFERENCES = ["the cat sat on the mat", "two dogs run", "a b c d", "good morning to you all"] * 8
GOOD = ["the cat sat on the mat", "two dogs run", "a b c", "good morning to all"] * 8
BAD = ["the mat", "dogs", "a b c d", "morning"] * 8


def by_name(scores):
    return {score.name: score for score in scores}


def test_figures_by_hand_and_by_sacrebleu():
    scores = by_name(evaluate(GOOD, REFERENCES))
    assert scores["exact_match"].value == 50
    assert scores["word_error_rate"].value == pytest.approx(100 * 2 / (6 + 3 + 4 + 5))
    assert scores["character_error_rate"].value == pytest.approx(100 * 6 / (22 + 12 + 7 + 23))
    assert scores["bleu"].value == BLEU().corpus_score(GOOD, [REFERENCES]).score
    assert scores["chrf"].value == CHRF().corpus_score(GOOD, [REFERENCES]).score
    assert "tok:13a" in scores["bleu"].signature
    assert all(score.interval is score.p_value is None for score in scores.values())


def test_case_counts_unless_it_does_not():
    (score,) = evaluate(["A b"], ["a B"], ["exact_match"])
    assert score.value == 0
    for score in evaluate(["A b"], ["a B"], ["exact_match", "word_error_rate"], lowercase=True):
        assert score.value == {"exact_match": 100, "word_error_rate": 0}[score.name]


def test_an_interval_is_that_of_the_binomial():
    texts = ["x"] * 300 + ["y"] * 100
    (score,) = evaluate(texts, ["x"] * 400, ["exact_match"], bootstrap=np.int64(500))
    assert score.interval == pytest.approx(196 * np.sqrt(0.75 * 0.25 / 400), rel=0.15)
    (score,) = evaluate(GOOD, REFERENCES, ["bleu"], bootstrap=100)
    assert score.interval > 0


@pytest.mark.parametrize("metric", ["exact_match", "word_error_rate", "bleu"])
def test_a_paired_test_tells_a_difference_from_none(metric):
    references = [f"{text} {n}" for n, text in enumerate(REFERENCES)]
    good = [f"{text} {n}" for n, text in enumerate(GOOD)]
    bad = [f"{text} x" for text in GOOD]
    (score,) = evaluate(good, references, [metric], baseline=bad, bootstrap=200)
    assert score.p_value < 0.02
    assert score.baseline != score.value
    (score,) = evaluate(good, references, [metric], baseline=good, bootstrap=200)
    assert score.p_value > 0.5
    assert score.baseline == score.value


def test_bad_input_is_refused():
    with pytest.raises(ValueError, match="`translations` must be as many.*Received: 1 for 2"):
        evaluate(["a"], ["a", "b"])
    with pytest.raises(ValueError, match="`baseline` must be as many"):
        evaluate(["a"], ["a"], baseline=[])
    with pytest.raises(ValueError, match="must not be empty"):
        evaluate([], [])
    with pytest.raises(ValueError, match="`metrics` must be one of"):
        evaluate(["a"], ["a"], ["meteor"])
