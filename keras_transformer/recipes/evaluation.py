"""How good translations are: figures with their signatures, intervals and paired tests."""

import functools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from keras_transformer import arguments
from keras_transformer.callbacks.text_errors import TEXT_METRICS, count_errors, percentage
from keras_transformer.callbacks.translation_quality import make_scorer

METRICS = (*TEXT_METRICS, "chrf", "bleu")  # the main figure comes last
SEED = 12345  # sacreBLEU's own


class Score(NamedTuple):
    """One figure of a test.

    Attributes:
        name: of the metric.
        value: in percent, or from 0 to 100.
        signature: what was counted, and how.
        interval: half the width of the 95 % interval of the bootstrap; None without it.
        baseline: the figure of the other system; None without one.
        p_value: how likely so large a difference is between equal systems; None without another.

    Example:

    >>> (score,) = evaluate(["yes", "no"], ["yes", "yes"], ["exact_match"])
    >>> score.value
    50.0
    """

    name: str
    value: float
    signature: str
    interval: float | None = None
    baseline: float | None = None
    p_value: float | None = None


def evaluate(
    translations: Sequence[str],
    references: Sequence[str],
    metrics: Sequence[str] = METRICS,
    *,
    lowercase: bool = False,
    tokenize: str = "13a",
    bootstrap: int = 0,
    baseline: Sequence[str] | None = None,
) -> list[Score]:
    """Compares translations with references, and with those of another system.

    | metric | |
    |---|---|
    | `"exact_match"` | percentage of translations equal to their references |
    | `"word_error_rate"` | edits between words, in percent of the references' words |
    | `"character_error_rate"` | the same, counted in characters |
    | `"chrf"`, `"bleu"` | sacreBLEU's |

    An edit replaces, inserts or removes one. Intervals are those of the bootstrap over texts
    (Koehn 2004). The paired test is approximate randomisation (Riezler and Maxwell 2005). It
    exchanges the outputs of the two systems at random, `bootstrap` times, or 1,000 times if that is
    0.

    Args:
        translations: a list of str.
        references: as many.
        metrics: names from the table.
        lowercase: whether case counts for nothing.
        tokenize: sacreBLEU's tokenizer for BLEU.
        bootstrap: the number of samples of the interval, at least 2; 0 for no interval.
        baseline: the translations of another system, as many.

    Returns:
        A `Score` for each metric, in their order.

    Raises:
        ValueError: when there are no texts, or not as many of each.
        ImportError: when BLEU or chrF is asked for and sacrebleu is not installed.

    Example:

    >>> scores = evaluate(["a b c"], ["a b d"], ["exact_match", "word_error_rate"])
    >>> [(score.name, round(score.value, 2)) for score in scores]
    [('exact_match', 0.0), ('word_error_rate', 33.33)]
    """
    for name, texts in (("translations", translations), ("baseline", baseline)):
        if texts is not None and len(texts) != len(references):
            raise ValueError(
                f"`{name}` must be as many as the references. "
                f"Received: {len(texts)} for {len(references)} references"
            )
    if not references:
        raise ValueError("`references` must not be empty. Received: references=[]")
    metrics = [arguments.one_of("metrics", name, METRICS) for name in metrics]
    bootstrap = arguments.non_negative_integer("bootstrap", bootstrap)
    if bootstrap == 1:
        raise ValueError("`bootstrap` must be 0 or at least 2. Received: bootstrap=1")
    systems = [list(translations)] if baseline is None else [list(translations), list(baseline)]
    fold: Callable[[str], str] = str.lower if lowercase else str
    found = []
    for name in metrics:
        if name in TEXT_METRICS:
            folded = [[fold(text) for text in system] for system in systems]
            found.append(_error_rate(name, folded, [fold(text) for text in references], bootstrap))
        else:
            score = _sacrebleu(
                name,
                systems,
                references,
                lowercase=lowercase,
                tokenize=tokenize,
                bootstrap=bootstrap,
            )
            found.append(score)
    return found


def _sacrebleu(
    name: str,
    systems: Sequence[Sequence[str]],
    references: Sequence[str],
    *,
    lowercase: bool,
    tokenize: str,
    bootstrap: int,
) -> Score:
    """The `Score` of a metric of sacreBLEU."""
    metric = functools.partial(make_scorer, name, lowercase, tokenize)
    scorer = metric()
    score = scorer.corpus_score(systems[0], [references], n_bootstrap=bootstrap or 1)
    interval = float(score._ci) if bootstrap else None
    signature = scorer.get_signature().format()
    if len(systems) == 1:
        return Score(name, float(score.score), signature, interval)
    from sacrebleu.significance import PairedTest

    test = PairedTest(
        [("baseline", systems[1]), ("system", systems[0])],
        {name: metric(references=[references])},
        references=None,
        test_type="ar",
        n_samples=bootstrap or 1000,
    )
    other, ours = next(value for key, value in test()[1].items() if key != "System")
    # Its test counts differences above the one found: none, where there is none.
    p_value = 1.0 if other.score == ours.score else float(ours.p_value)
    value, baseline = float(score.score), float(other.score)
    return Score(name, value, signature, interval, baseline=baseline, p_value=p_value)


def _error_rate(
    name: str, systems: Sequence[Sequence[str]], references: Sequence[str], bootstrap: int
) -> Score:
    """The `Score` of a metric that is a sum over texts divided by another."""
    counts = [count_errors(name, system, references) for system in systems]  # each (texts, 2)
    value = percentage(counts[0].sum(0))
    generator = np.random.default_rng(SEED)
    interval = None
    if bootstrap:
        draws = (generator.integers(0, len(references), len(references)) for _ in range(bootstrap))
        values = [percentage(counts[0][rows].sum(0)) for rows in draws]
        low, high = np.percentile(values, [2.5, 97.5])
        interval = float(high - low) / 2
    signature = f"texts:{len(references)}|unit:{name.split('_')[0]}"
    if len(systems) == 1:
        return Score(name, value, signature, interval)
    other = percentage(counts[1].sum(0))
    samples = bootstrap or 1000
    larger = 0
    for _ in range(samples):
        exchanged = generator.random((len(references), 1)) < 0.5
        pair = [np.where(exchanged, counts[1 - n], counts[n]).sum(0) for n in range(2)]
        larger += abs(percentage(pair[0]) - percentage(pair[1])) >= abs(value - other) - 1e-9
    p_value = (larger + 1) / (samples + 1)
    return Score(name, value, signature, interval, baseline=other, p_value=p_value)
