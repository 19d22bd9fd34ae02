"""The mathematics once more, in plain NumPy and float64, written to be read beside the paper."""

import itertools
import math

import numpy as np


def softmax(scores):
    exponentials = np.exp(scores - np.max(scores, axis=-1, keepdims=True))
    return exponentials / np.sum(exponentials, axis=-1, keepdims=True)


def log_softmax(logits):
    shifted = np.asarray(logits, "float64") - np.max(logits, axis=-1, keepdims=True)
    return shifted - np.log(np.sum(np.exp(shifted), axis=-1, keepdims=True))


def attention(query, key, value, allowed=None):
    """One head of one sentence: query (q, d), key (k, d), value (k, v), allowed (q, k)."""
    scores = query @ key.T / math.sqrt(query.shape[-1])
    if allowed is not None:
        scores = np.where(allowed, scores, -np.inf)
    weights = softmax(scores)
    return weights @ value, weights


def multi_head_attention(weights, query, value, key, allowed):
    """All heads of one sentence; `weights` are kernel and bias of query, key, value, output."""
    (w_q, b_q), (w_k, b_k), (w_v, b_v), (w_o, b_o) = weights
    output = np.zeros((len(query), w_o.shape[-1])) + b_o
    for head in range(w_q.shape[1]):
        context, _ = attention(
            query @ w_q[:, head] + b_q[head],
            key @ w_k[:, head] + b_k[head],
            value @ w_v[:, head] + b_v[head],
            allowed,
        )
        output += context @ w_o[head]
    return output


def positional_encoding(length, d_model):
    """PE[pos, 2i] = sin(pos / 10000^(2i / d_model)), PE[pos, 2i + 1] the cosine of the same."""
    rows = np.zeros((length, d_model))
    for pos in range(length):
        for column in range(d_model):
            angle = pos / 10000.0 ** ((column - column % 2) / d_model)
            rows[pos, column] = math.cos(angle) if column % 2 else math.sin(angle)
    return rows


def length_normaliser(length, length_penalty):
    """Wu et al. 2016, equation 14."""
    return ((5 + length) / 6) ** length_penalty


def all_hypotheses(next_log_probs, tokens, eos_id, max_length, length_penalty):
    """Every sequence with its score, the best first.

    `next_log_probs(prefix)` gives the log-probabilities of the token after a tuple of tokens. A
    sequence ends with its first `eos_id`, or is cut at `max_length`.
    """
    found = []
    for length in range(1, max_length + 1):
        for sequence in itertools.product(tokens, repeat=length):
            if eos_id in sequence[:-1] or (sequence[-1] != eos_id and length < max_length):
                continue
            total = sum(next_log_probs(sequence[:i])[sequence[i]] for i in range(length))
            found.append((total / length_normaliser(length, length_penalty), sequence))
    return sorted(found, reverse=True)
