"""How beam search extends its hypotheses: which of all the extensions go on, and which may end."""

from keras import ops

from keras_transformer.decoding.search import IMPOSSIBLE

# The best of a vocabulary are looked for in chunks of this size that hold one of them.
CHUNK = 64


def extensions(search, task, length, totals):
    """The extensions by `totals` (batch, beam, vocab) that live on, and those that may end.

    Returns their log-probabilities, the beams they extend, their tokens, and whether they
    have ended: all (batch, 2 * beam).
    """
    size = search.beam_size // search.num_groups
    count = size if size == 1 else 2 * size
    found = [[], []]
    for log_probs, parents, tokens in candidates_of(search, totals, size, count):
        ended = ops.logical_or(tokens == task.eos_id, length >= task.limits[:, None])
        ended = ops.logical_and(ended, log_probs > IMPOSSIBLE / 2)
        later = ops.arange(count) + ops.where(ended, count, 0)
        order = ops.argsort(later, axis=1)[:, :size]
        candidates = (log_probs, parents, tokens, ended)
        found[0].append([ops.take_along_axis(part, order, axis=1) for part in candidates])
        found[1].append([part[:, :size] for part in candidates])
    return [ops.concatenate(parts, axis=1) for parts in zip(*sum(found, []), strict=True)]


def candidates_of(search, totals, size, count):
    """The `count` likeliest extensions of each group: log-probabilities, beams and tokens."""
    if search.num_groups == 1:
        return [top_extensions(totals, count)]
    found, taken = [], 0.0
    for group in range(search.num_groups):
        own = totals[:, group * size : (group + 1) * size]
        lowered = own - search.diversity_penalty * taken
        _, parents, tokens = top_extensions(lowered, count)
        flat_own = ops.reshape(own, (ops.shape(own)[0], size * own.shape[-1]))
        places = parents * own.shape[-1] + tokens
        log_probs = ops.take_along_axis(flat_own, places, axis=1)
        found.append((log_probs, parents + group * size, tokens))
        # Where a group has too few live extensions, the rest of its choice is not one.
        real = ops.cast(log_probs[:, :size] > IMPOSSIBLE / 2, "float32")[..., None]
        chosen = ops.one_hot(tokens[:, :size], own.shape[-1], dtype="float32")
        taken = taken + ops.sum(real * chosen, axis=1)[:, None, :]
    return found


def top_extensions(totals, size):
    """The `size` largest of `totals` (batch, beam, vocab): values, beams and tokens, (batch, size).

    Two stages, for a full sort of the vocabulary is slow: the best lie in the `size` chunks
    whose own best are largest. Among equals the first comes first, as in one stage.
    """
    batch, beams, vocab_size = totals.shape
    batch = ops.shape(totals)[0] if batch is None else batch
    chunks = -(-vocab_size // CHUNK)
    if beams * chunks <= size or vocab_size <= 4 * CHUNK:
        values, places = ops.top_k(ops.reshape(totals, (batch, beams * vocab_size)), size)
        places = ops.cast(places, "int32")
        return values, places // vocab_size, places % vocab_size
    missing = chunks * CHUNK - vocab_size
    padded = ops.pad(totals, [(0, 0), (0, 0), (0, missing)], constant_values=float("-inf"))
    padded = ops.reshape(padded, (batch, beams * chunks, CHUNK))
    _, best = ops.top_k(ops.max(padded, axis=-1), size)
    best = ops.sort(ops.cast(best, "int32"), axis=-1)
    candidates = ops.take_along_axis(padded, best[..., None], axis=1)
    values, places = ops.top_k(ops.reshape(candidates, (batch, size * CHUNK)), size)
    places = ops.cast(places, "int32")
    chunk = ops.take_along_axis(best, places // CHUNK, axis=1)
    return values, chunk // chunks, chunk % chunks * CHUNK + places % CHUNK
