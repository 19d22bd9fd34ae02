"""What a beam search remembers: tokens in slots, paths through them, and finished hypotheses.

A hypothesis is a path: at each position it was in one slot, and that slot holds its token. A slot
is written once and never moves, so that a step copies paths and not tokens.
"""

from typing import NamedTuple, Self

from keras import ops

from keras_transformer.arguments import BeamPaths, Tensor
from keras_transformer.decoding.search import IMPOSSIBLE, DecodeResult, Task
from keras_transformer.decoding.step_function import State


def read_along(values: Tensor, paths: BeamPaths) -> Tensor:
    """Returns what `paths` (batch, n, length) meet in `values` (batch, length, slots)."""
    by_position = ops.transpose(paths, (0, 2, 1))  # -> (batch, length, n)
    read = ops.take_along_axis(values, by_position, axis=2)  # -> (batch, length, n)
    return ops.transpose(read, (0, 2, 1))  # -> (batch, n, length)


def extend_paths(paths: BeamPaths, parents: Tensor, index: Tensor) -> BeamPaths:
    """Returns the paths of the extensions, (batch, n, length): extension k goes on in slot k.

    `paths` are (batch, beam, length), `parents` (batch, n), and `index` is the new position.
    """
    paths = ops.take_along_axis(paths, parents[..., None], axis=1)  # -> (batch, n, length)
    own = ops.arange(parents.shape[1], dtype="int32")[None, :, None]  # -> (1, n, 1)
    return ops.where(ops.arange(ops.shape(paths)[2]) >= index, own, paths)


def take_attention(attention: Tensor | None, parents: Tensor, beams: int) -> Tensor | None:
    """Returns the attention of each parent, (batch, n, source), from that of all rows, or None."""
    if attention is None:
        return None
    batch, source = ops.shape(parents)[0], ops.shape(attention)[1]
    attention = ops.reshape(attention, (batch, beams, source))  # -> (batch, beam, source)
    return ops.take_along_axis(attention, parents[..., None], axis=1)  # -> (batch, n, source)


class Pool(NamedTuple):
    """The best finished hypotheses of each group of beams."""

    paths: Tensor  # int32 (batch, groups, kept, max_length + 1)
    scores: Tensor  # float32 (batch, groups, kept), the best first; -1e9 where there is none
    lengths: Tensor  # int32 (batch, groups, kept), the number of tokens

    @classmethod
    def empty(cls, task: Task, groups: int, kept: int) -> Self:
        """Returns a pool without hypotheses."""
        shape = (task.batch_size, groups, kept)
        return cls(
            ops.zeros((*shape, task.max_length + 1), "int32"),
            ops.full(shape, IMPOSSIBLE, "float32"),
            ops.zeros(shape, "int32"),
        )

    def merge_best(self, new: "Pool") -> "Pool":
        """Returns the best hypotheses of both pools, as many as this one holds."""
        # -> (batch, groups, kept + new, ...)
        paths, scores, lengths = (
            ops.concatenate(pair, axis=2) for pair in zip(self, new, strict=True)
        )
        scores, best = ops.top_k(scores, self.scores.shape[2])  # -> (batch, groups, kept)
        best = ops.cast(best, "int32")
        return Pool(
            ops.take_along_axis(paths, best[..., None], axis=2),
            scores,
            ops.take_along_axis(lengths, best, axis=2),
        )


class Written(NamedTuple):
    """What each slot holds at each position.

    There are two slots for each beam. The first half are those of the live hypotheses. The second
    half hold the last tokens of hypotheses that ended. Position 0 is that of `bos_id`; nothing is
    written there.
    """

    tokens: Tensor  # int32 (batch, max_length + 1, slots)
    log_probs: Tensor  # float32 (batch, max_length + 1, slots), those of the tokens
    alignments: Tensor | None  # float32 (batch, max_length + 1, slots, source)

    @classmethod
    def empty(cls, task: Task, slots: int, width: int | Tensor | None) -> Self:
        """Returns empty slots; `width` is that of the source, or None for no alignments."""
        shape = (task.batch_size, task.max_length + 1, slots)
        return cls(
            ops.full(shape, task.pad_id, "int32"),
            ops.zeros(shape, "float32"),
            None if width is None else ops.zeros((*shape, width), "float32"),
        )

    def with_position(
        self, index: Tensor, tokens: Tensor, log_probs: Tensor, attention: Tensor | None
    ) -> "Written":
        """Writes position `index`: tokens and log-probabilities (batch, slots), and attention.

        `attention` is (batch, slots, source), or None without alignments.
        """
        alignments = self.alignments
        if alignments is not None and attention is not None:
            alignments = ops.slice_update(alignments, (0, index, 0, 0), attention[:, None])
        return Written(
            ops.slice_update(self.tokens, (0, index, 0), tokens[:, None]),
            ops.slice_update(self.log_probs, (0, index, 0), log_probs[:, None]),
            alignments,
        )

    def read_tokens(self, task: Task, paths: BeamPaths) -> Tensor:
        """Returns the tokens after `bos_id` of each path, (batch * beam, max_length)."""
        tokens = read_along(self.tokens, paths)[:, :, 1:]  # -> (batch, beam, max_length)
        batch, beams = ops.shape(tokens)[:2]
        # -> (batch * beam, max_length)
        return ops.reshape(tokens, (batch * beams, task.max_length))

    def read_back(self, task: Task, pool: Pool, num_hypotheses: int) -> DecodeResult:
        """Returns the best hypotheses of all groups of the pool."""
        batch, groups, kept = pool.scores.shape
        batch = task.batch_size if batch is None else batch
        total = groups * kept
        # -> (batch, total, max_length + 1)
        paths = ops.reshape(pool.paths, (batch, total, task.max_length + 1))
        scores = ops.reshape(pool.scores, (batch, total))  # -> (batch, total)
        lengths = ops.reshape(pool.lengths, (batch, total))  # -> (batch, total)
        inside = ops.arange(task.max_length) < lengths[..., None]
        ids = ops.where(inside, read_along(self.tokens, paths)[:, :, 1:], task.pad_id)
        if groups > 1:
            # Two groups may find the same hypothesis.
            same = ops.all(ids[:, :, None] == ids[:, None, :], axis=-1)  # -> (batch, total, total)
            earlier = ops.convert_to_tensor([[m < n for m in range(total)] for n in range(total)])
            repeated = ops.any(ops.logical_and(same, earlier), axis=-1)  # -> (batch, total)
            scores = ops.where(repeated, IMPOSSIBLE, scores)
        scores, best = ops.top_k(scores, num_hypotheses)  # -> (batch, hypotheses)
        best = ops.cast(best, "int32")
        found = scores > IMPOSSIBLE / 2
        # -> (batch, hypotheses, max_length + 1)
        paths = ops.take_along_axis(paths, best[..., None], axis=1)
        lengths = ops.where(found, ops.take_along_axis(lengths, best, axis=1), 0)
        inside = ops.arange(task.max_length) < lengths[..., None]
        alignments = self.alignments
        if alignments is not None:
            by_position = ops.transpose(paths, (0, 2, 1))  # -> (batch, length, hypotheses)
            # -> (batch, length, hypotheses, source)
            alignments = ops.take_along_axis(alignments, by_position[..., None], axis=2)
            # -> (batch, hypotheses, max_length, source)
            alignments = ops.transpose(alignments, (0, 2, 1, 3))[:, :, 1:]
            alignments = ops.where(inside[..., None], alignments, 0.0)
        return DecodeResult(
            ops.where(inside, read_along(self.tokens, paths)[:, :, 1:], task.pad_id),
            ops.where(found, scores, IMPOSSIBLE),
            lengths,
            ops.where(inside, read_along(self.log_probs, paths)[:, :, 1:], 0.0),
            alignments,
        )


class Beams(NamedTuple):
    """The variables of the loop over positions."""

    index: Tensor  # int32 (), the position of the last tokens
    tokens: Tensor  # int32 (batch * beam,), the last token of each live hypothesis
    log_probs: Tensor  # float32 (batch, beam), sums over the tokens; -1e9 where none is live
    paths: BeamPaths  # int32 (batch, beam, max_length + 1), the slot of each at each position
    coverage: Tensor | None  # float32 (batch, beam, source), sums of attention; None without
    written: Written
    pool: Pool
    state: State  # of the step function: (batch * beam, ...), unless the step follows paths
