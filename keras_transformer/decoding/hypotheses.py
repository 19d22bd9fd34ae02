"""What beam search remembers: what was written into each slot, and the best that is finished."""

from typing import Any, NamedTuple

from keras import ops

from keras_transformer.decoding.search import IMPOSSIBLE, DecodeResult


class Written(NamedTuple):
    """What the beams wrote, each thing once: by position and slot, whoever came to read it.

    `tokens` and `log_probs` (batch, max_length + 1, slots) and `alignments` (the same, source) or
    None. The first slots are those of the beams, the others hold the last tokens of hypotheses
    that ended. Position 0 holds `bos_id`.
    """

    tokens: Any
    log_probs: Any
    alignments: Any

    @classmethod
    def empty(cls, task, slots, width):
        """Nothing written; `width` is that of the source, or None for no alignments."""
        shape = (task.batch_size, task.max_length + 1, slots)
        return cls(
            ops.full(shape, task.pad_id, "int32"),
            ops.zeros(shape, "float32"),
            None if width is None else ops.zeros((*shape, width), "float32"),
        )

    def with_position(self, index, tokens, log_probs, attention):
        """The same with what the beams (batch, beam) write at position `index`."""
        alignments = self.alignments
        if alignments is not None:
            alignments = ops.slice_update(alignments, (0, index, 0, 0), attention[:, None])
        return Written(
            ops.slice_update(self.tokens, (0, index, 0), tokens[:, None]),
            ops.slice_update(self.log_probs, (0, index, 0), log_probs[:, None]),
            alignments,
        )

    def tokens_of(self, paths, task):
        """The tokens after `bos_id` of each path, as rows (batch * beam, max_length)."""
        tokens = along(self.tokens, paths)[:, :, 1:]
        batch, beams = ops.shape(tokens)[:2]
        return ops.reshape(tokens, (batch * beams, task.max_length))


class Pool(NamedTuple):
    """The best finished hypotheses: paths, scores and lengths, all (batch, groups, kept, ...)."""

    paths: Any
    scores: Any
    lengths: Any

    @classmethod
    def empty(cls, task, groups, kept):
        """Nothing finished."""
        shape = (task.batch_size, groups, kept)
        return cls(
            ops.zeros((*shape, task.max_length + 1), "int32"),
            ops.full(shape, IMPOSSIBLE, "float32"),
            ops.zeros(shape, "int32"),
        )


class Beams(NamedTuple):
    """The variables of the loop over positions.

    `log_probs` (batch, beam) are the sums of the live hypotheses, and `paths`
    (batch, beam, max_length + 1) says in which slot each was at each position. What a slot was
    given is `written` once and never moved. `coverage` (batch, beam, source) is None unless the
    penalty needs it.
    """

    index: Any
    tokens: Any
    log_probs: Any
    paths: Any
    coverage: Any
    written: Written
    pool: Pool
    state: Any


def best_of(pool, new):
    """The best hypotheses of two pools, as many as the first one holds."""
    paths, scores, lengths = (ops.concatenate(pair, axis=2) for pair in zip(pool, new, strict=True))
    scores, best = ops.top_k(scores, pool.scores.shape[2])
    best = ops.cast(best, "int32")
    return Pool(
        ops.take_along_axis(paths, best[..., None], axis=2),
        scores,
        ops.take_along_axis(lengths, best, axis=2),
    )


def along(values, paths):
    """What a path (batch, n, length) met in `values` (batch, length, beam): (batch, n, length)."""
    by_position = ops.transpose(paths, (0, 2, 1))  # -> (batch, length, n)
    return ops.transpose(ops.take_along_axis(values, by_position, axis=2), (0, 2, 1))


def attention_of(attention, parents, beams):
    """The attention of the beams extended: (rows, source) to (batch, n, source), or None."""
    if attention is None:
        return None
    batch, source = ops.shape(parents)[0], ops.shape(attention)[1]
    attention = ops.reshape(attention, (batch, beams, source))
    return ops.take_along_axis(attention, parents[..., None], axis=1)


def paths_from(paths, parents, index):
    """The paths of the beams extended, each of which goes on in a slot of its own."""
    paths = ops.take_along_axis(paths, parents[..., None], axis=1)
    own = ops.arange(parents.shape[1], dtype="int32")[None, :, None]
    return ops.where(ops.arange(ops.shape(paths)[2]) >= index, own, paths)


def read_back(search, task, pool, written):
    """The best hypotheses of all groups, read from where they were written."""
    batch, groups, kept = pool.scores.shape
    batch = task.batch_size if batch is None else batch
    total = groups * kept
    paths = ops.reshape(pool.paths, (batch, total, task.max_length + 1))
    scores, lengths = (ops.reshape(part, (batch, total)) for part in pool[1:])
    inside = ops.arange(task.max_length) < lengths[..., None]
    ids = ops.where(inside, along(written.tokens, paths)[:, :, 1:], task.pad_id)
    if groups > 1:
        # Two groups may find the same hypothesis.
        same = ops.all(ids[:, :, None] == ids[:, None, :], axis=-1)
        earlier = ops.convert_to_tensor([[m < n for m in range(total)] for n in range(total)])
        repeated = ops.any(ops.logical_and(same, earlier), axis=-1)
        scores = ops.where(repeated, IMPOSSIBLE, scores)
    scores, best = ops.top_k(scores, search.num_hypotheses)
    best = ops.cast(best, "int32")
    found = scores > IMPOSSIBLE / 2
    paths = ops.take_along_axis(paths, best[..., None], axis=1)
    lengths = ops.where(found, ops.take_along_axis(lengths, best, axis=1), 0)
    inside = ops.arange(task.max_length) < lengths[..., None]
    alignments = written.alignments
    if alignments is not None:
        by_position = ops.transpose(paths, (0, 2, 1))[..., None]
        alignments = ops.take_along_axis(alignments, by_position, axis=2)
        alignments = ops.transpose(alignments, (0, 2, 1, 3))[:, :, 1:]
        alignments = ops.where(inside[..., None], alignments, 0.0)
    return DecodeResult(
        ops.where(inside, along(written.tokens, paths)[:, :, 1:], task.pad_id),
        ops.where(found, scores, IMPOSSIBLE),
        lengths,
        ops.where(inside, along(written.log_probs, paths)[:, :, 1:], 0.0),
        alignments,
    )
