"""What the docstrings of the searches say, in plain Python: slow, and written to be read."""

import math
from collections import Counter
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from tests.decoding.step_functions import BOS, EOS, PAD
from tests.numpy_reference import length_normaliser, log_softmax


class Sentence(NamedTuple):
    """A model, and what the call asks of one sentence.

    `logits` and `attention` are functions of the tokens so far; `prefix` is what it begins with.
    """

    logits: Any
    attention: Any
    length_limit: int
    source_length: int = 1
    prefix: tuple = ()


class Options(NamedTuple):
    """The options of all searches; their defaults are those that change nothing."""

    min_length: int = 0
    min_length_ratio: float = 0.0
    max_length_ratio: float | None = None
    repetition_penalty: float = 1.0
    no_repeat_ngram_size: int = 0
    suppressed_ids: tuple = ()
    allowed_ids: tuple | None = None
    return_alignments: bool = False
    beam_size: int = 1
    length_penalty: float = 0.0
    num_hypotheses: int | None = None
    coverage_penalty: float = 0.0
    num_groups: int = 1
    diversity_penalty: float = 0.0
    early_stopping: bool | str = False
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0


class Hypothesis(NamedTuple):
    """Tokens, the log-probability of each, and what each attended to."""

    ids: tuple = ()
    log_probs: tuple = ()
    attention: tuple = ()


def longest(sentence, options):
    """The length at which hypotheses are cut."""
    if options.max_length_ratio is None:
        return sentence.length_limit
    return min(sentence.length_limit, max(1, times(sentence, options.max_length_ratio)))


def shortest(sentence, options):
    """The length before which `eos` may not come."""
    least = max(options.min_length, times(sentence, options.min_length_ratio))
    return min(least, longest(sentence, options))


def times(sentence, ratio):
    """The ratio as it is written, times the length of the source, rounded up."""
    return math.ceil(Fraction(str(ratio)) * sentence.source_length)


def following(sentence, options, ids):
    """The tokens that may come after `ids`, with their log-probabilities."""
    logits = np.array(sentence.logits(ids), "float64")
    for token in set(ids):
        factor = options.repetition_penalty
        logits[token] = logits[token] / factor if logits[token] > 0 else logits[token] * factor
    log_probs = log_softmax(logits)
    if len(ids) < len(sentence.prefix):
        return {sentence.prefix[len(ids)]: log_probs[sentence.prefix[len(ids)]]}
    tokens = range(len(logits))
    return {t: log_probs[t] for t in tokens if may_follow(sentence, options, ids, t)}


def may_follow(sentence, options, ids, token):
    if token in (PAD, BOS, *options.suppressed_ids):
        return False
    if options.allowed_ids is not None and token not in (EOS, *options.allowed_ids):
        return False
    if token == EOS and len(ids) + 1 < shortest(sentence, options):
        return False
    size = options.no_repeat_ngram_size
    earlier = [ids[start : start + size] for start in range(len(ids) - size + 1)]
    return size == 0 or (*ids, token)[-size:] not in earlier


def extensions(sentence, options, hypothesis):
    """The hypothesis with one more token, in every way that may be."""
    attention = (*hypothesis.attention, sentence.attention(hypothesis.ids))
    return [
        Hypothesis((*hypothesis.ids, token), (*hypothesis.log_probs, log_prob), attention)
        for token, log_prob in following(sentence, options, hypothesis.ids).items()
    ]


def is_finished(sentence, options, hypothesis):
    return EOS in hypothesis.ids or len(hypothesis.ids) == longest(sentence, options)


def every_hypothesis(sentence, options, begun=None):
    """All the finished hypotheses there are."""
    begun = begun or Hypothesis()
    if is_finished(sentence, options, begun):
        return [begun]
    return [
        hypothesis
        for longer in extensions(sentence, options, begun)
        for hypothesis in every_hypothesis(sentence, options, longer)
    ]


def score(options, hypothesis):
    """Wu et al. 2016, equation 14."""
    normaliser = length_normaliser(len(hypothesis.ids), options.length_penalty)
    total = sum(hypothesis.log_probs) / normaliser
    if not options.coverage_penalty:
        return total
    read = np.minimum(np.sum(hypothesis.attention, axis=0), 1.0)
    return total + options.coverage_penalty * np.sum(np.log(read))


def beam_search(sentence, options):
    """Returns the hypotheses kept, and the smallest difference that decided a choice."""
    size = options.beam_size // options.num_groups
    live = [[Hypothesis()] for _ in range(options.num_groups)]
    finished = [[] for _ in live]
    stopped = [False for _ in live]
    differences = [math.inf]
    for _ in range(longest(sentence, options)):
        taken = Counter()
        for group in range(options.num_groups):
            extended = [e for h in live[group] for e in extensions(sentence, options, h)]

            def lowered(extension, taken=taken):
                count = taken[extension.ids[-1]]
                return sum(extension.log_probs) - options.diversity_penalty * count

            chosen = best(extended, size, lowered, differences)
            taken = taken + Counter(extension.ids[-1] for extension in chosen)
            ended = [e for e in chosen if is_finished(sentence, options, e)]
            wider = chosen if size == 1 else best(extended, 2 * size, lowered, differences)
            going_on = [e for e in wider if not is_finished(sentence, options, e)]
            live[group] = best(going_on, size, lowered, differences)
            if not stopped[group]:
                finished[group] += ended
            stopped[group] |= stops(options, live[group], finished[group], size, differences)
    found = []
    for group in finished:
        kept = best(group, size, lambda hypothesis: score(options, hypothesis), differences)
        found += [hypothesis for hypothesis in kept if hypothesis.ids not in [f.ids for f in found]]
    return found, min(differences)


def stops(options, live, finished, size, differences):
    """Whether an early stop ends a group of `size` beams after this step."""
    if not options.early_stopping or len(finished) < size:
        return False
    if options.early_stopping is True or not live:
        return True
    worst = sorted((score(options, hypothesis) for hypothesis in finished), reverse=True)[size - 1]
    normaliser = length_normaliser(len(live[0].ids), options.length_penalty)
    likeliest = max(sum(hypothesis.log_probs) for hypothesis in live) / normaliser
    differences.append(abs(likeliest - worst))
    return likeliest <= worst


def best(hypotheses, size, key, differences):
    """The `size` best by `key`; notes how far the first one left out was from the last kept."""
    ordered = sorted(hypotheses, key=key, reverse=True)
    if len(ordered) > size:
        differences.append(key(ordered[size - 1]) - key(ordered[size]))
    return ordered[:size]


def sampling_distribution(sentence, options, ids):
    """What `Sampling` draws the token after `ids` from: a probability for each token."""
    log_probs = following(sentence, options, ids)
    weights = {t: math.exp(p / options.temperature) for t, p in log_probs.items()}
    ordered = sorted(weights, key=weights.get, reverse=True)
    if options.top_k:
        ordered = ordered[: options.top_k]
    left = sum(weights[token] for token in ordered)
    nucleus, held = [], 0.0
    for token in ordered:
        if held < options.top_p:
            nucleus.append(token)
        held += weights[token] / left
    kept = [t for t in nucleus if weights[t] >= options.min_p * weights[nucleus[0]]]
    total = sum(weights[token] for token in kept)
    return {token: weights[token] / total for token in kept}
