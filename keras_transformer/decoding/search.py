"""What every search has in common: its options, and what one call of it is about."""

from typing import Any, NamedTuple

from keras import ops

from keras_transformer import arguments
from keras_transformer.decoding.call_arguments import (
    LARGEST_INT32,
    number_or_tensor,
    per_sentence,
    prefix_of,
    source_mask_of,
    special_ids,
)
from keras_transformer.decoding.length_penalty import (
    LARGEST_LENGTH_PENALTY,
    check_has_length_penalty,
)
from keras_transformer.decoding.step_function import check_state


class Task(NamedTuple):
    """What one call searches: the step function, the sizes and the special ids.

    `limits` and `least` (batch,) bound each sentence's length, `least` None when nothing does;
    `prefix_ids` (batch, max_length) is what it must begin with, then `pad_id`, or None;
    `source_mask` (batch, source) says which positions of the source are real, None for all;
    `length_penalty` (batch,) is each sentence's own, or None. `largest_ids` has the largest id of
    each argument that names ids, which must be below the size of the vocabulary.
    """

    step: Any
    batch_size: Any
    max_length: Any
    bos_id: int
    eos_id: int
    pad_id: int
    limits: Any
    least: Any
    prefix_ids: Any
    source_mask: Any
    length_penalty: Any
    largest_ids: dict


class Search:
    """The base of `GreedySearch`, `BeamSearch` and `Sampling`.

    Called as `search(step, state, batch_size=..., max_length=..., bos_id=..., eos_id=...,
    pad_id=0, length_limits=None, source_lengths=None, prefix_ids=None, source_mask=None,
    length_penalty=None)`.

    `step(tokens, index, state)` is given the last token of each row, (rows,), their position
    `index` (`bos_id` is at 0) and the state, and returns the next token's logits (rows, vocab)
    and the new state; for alignments and the coverage penalty also the attention to the source,
    (rows, source), each row of which sums to 1. The state is any nest of tensors whose first axis
    is rows; the given one has batch rows, in the loop there are batch * beam_size, the beams of a
    sentence adjacent. What is the same for all beams need not be in the state. A step that returns
    attention is called once more, before the first token, for its width.

    A step with the attribute `follows_paths = True` keeps its state where it is: the search
    does not reorder it, and calls `step(tokens, index, state, paths)`. `BeamSearch` does not
    repeat it either: row `k` of a sentence is then slot `k` at `index`, and `paths`
    (batch, beam_size, max_length + 1) says in which slot each hypothesis was at each position so
    far. In the other searches `paths` is None, and `Sampling` repeats the state for each sample.

    Options of every search, `length` counting the tokens after `bos_id`, `eos_id` included:

    Args:
        min_length: `eos_id` is ruled out before; where a maximum is smaller, before that.
        min_length_ratio, max_length_ratio: bounds relative to the length of the source, rounded
            up; they need `source_lengths` (batch,). That of `Transformer.generate` counts its
            `eos_id` too.
        repetition_penalty: logits of tokens already there are divided by it where positive and
            multiplied where negative (Keskar et al. 2019, "CTRL", section 4.1).
        no_repeat_ngram_size: no n-gram of this size comes twice (Paulus et al. 2017, section
            2.5); 0 for no such rule.
        suppressed_ids: tokens that never come.
        allowed_ids: the only tokens that may come, beside `eos_id`; all when None.
        return_alignments: whether the result has alignments.

    `prefix_ids` (batch, prefix), padded at the end, forces the beginning of each sentence and
    comes before all other rules; what is beyond `max_length`, or the sentence's own maximum, is
    left out. `source_mask` (batch, source) is True at real positions of the source, the only ones
    that coverage is about. `length_limits` (batch,), each at least 1, are maximum lengths of their
    own. `length_penalty` (batch,), each from 0 to 10, stands in for that of a `BeamSearch`,
    sentence by sentence.

    Logits of NaN leave no token, as rules may: the hypothesis then has length 0 and score -1e9.
    `bos_id` and `pad_id` never come, unless one of them is `eos_id` too.

    Raises:
        ValueError: for a bad argument; numbers and ids out of their bounds are refused in lists
            and NumPy arrays, shapes always; tensors are not read.

    Example:

    A language model of five tokens, in which each is followed by the next, and 4 ends:

    >>> from keras import ops
    >>> from keras_transformer import GreedySearch
    >>> def step(tokens, index, state):
    ...     return ops.one_hot(tokens + 1, 5), state
    >>> search = GreedySearch(min_length=2)
    >>> result = search(step, (), batch_size=1, max_length=5, bos_id=1, eos_id=4)
    >>> ops.convert_to_numpy(result.ids).tolist()
    [[[2, 3, 4, 0, 0]]]
    """

    beam_size = 1
    follows_paths = False  # whether hypotheses of a sentence are reordered

    def __init__(
        self,
        min_length=0,
        min_length_ratio=0.0,
        max_length_ratio=None,
        repetition_penalty=1.0,
        no_repeat_ngram_size=0,
        suppressed_ids=(),
        allowed_ids=None,
        return_alignments=False,
    ):
        self.min_length = arguments.non_negative_integer("min_length", min_length)
        self.min_length_ratio = arguments.non_negative_number("min_length_ratio", min_length_ratio)
        if max_length_ratio is not None:
            max_length_ratio = arguments.positive_number("max_length_ratio", max_length_ratio)
        self.max_length_ratio = max_length_ratio
        self.repetition_penalty = arguments.number_within(
            "repetition_penalty", repetition_penalty, 0.01, 100
        )
        self.no_repeat_ngram_size = arguments.non_negative_integer(
            "no_repeat_ngram_size", no_repeat_ngram_size
        )
        self.suppressed_ids = checked_ids("suppressed_ids", suppressed_ids)
        self.allowed_ids = None if allowed_ids is None else checked_ids("allowed_ids", allowed_ids)
        self.return_alignments = arguments.boolean("return_alignments", return_alignments)

    @property
    def needs_attention(self):
        """Whether the step must return its attention to the source."""
        return self.return_alignments

    def __call__(
        self,
        step,
        state,
        *,
        batch_size,
        max_length,
        bos_id,
        eos_id,
        pad_id=0,
        length_limits=None,
        source_lengths=None,
        prefix_ids=None,
        source_mask=None,
        length_penalty=None,
    ):
        """Runs the search and returns a `DecodeResult`."""
        batch_size = number_or_tensor(arguments.non_negative_integer, "batch_size", batch_size)
        max_length = number_or_tensor(arguments.positive_integer, "max_length", max_length)
        if length_penalty is not None:
            check_has_length_penalty(self, length_penalty)
            length_penalty = per_sentence(
                "length_penalty", length_penalty, batch_size, "float32", 0, LARGEST_LENGTH_PENALTY
            )
        special = special_ids(bos_id, eos_id, pad_id)
        largest_ids = {**special, **self._largest_ids()}
        limits, least = self._bounds(batch_size, max_length, length_limits, source_lengths)
        if source_mask is not None:
            source_mask = source_mask_of(source_mask, batch_size)
        if prefix_ids is not None:
            prefix_ids, largest_ids["prefix_ids"] = prefix_of(prefix_ids, batch_size, pad_id)
            # -> (batch, max_length), whatever the width was, open in a graph included
            prefix_ids = ops.pad(prefix_ids, [(0, 0), (0, max_length)], constant_values=pad_id)
            prefix_ids = prefix_ids[:, :max_length]
        task = Task(
            step, batch_size, max_length, **special, limits=limits, least=least,
            prefix_ids=prefix_ids, source_mask=source_mask, length_penalty=length_penalty,
            largest_ids=largest_ids,
        )  # fmt: skip
        check_state(task, state)
        return self.run(task, state)

    def run(self, task, state):
        """Searches; each search has its own way."""
        raise NotImplementedError

    def _bounds(self, batch_size, max_length, length_limits, source_lengths):
        """The largest length of each sentence, and the least or None; both (batch,)."""
        limits = ops.broadcast_to(ops.cast(max_length, "int32"), (batch_size,))
        if length_limits is not None:
            own = per_sentence("length_limits", length_limits, batch_size, "int32", 1)
            limits = ops.minimum(limits, own)
        if source_lengths is not None:
            source_lengths = per_sentence("source_lengths", source_lengths, batch_size, "int32", 0)
        elif self.max_length_ratio or self.min_length_ratio:
            raise ValueError(
                "`source_lengths` must be given for `min_length_ratio` and `max_length_ratio`. "
                "Received: source_lengths=None"
            )
        if self.max_length_ratio is not None:
            longest = times_rounded_up(source_lengths, self.max_length_ratio)
            limits = ops.minimum(limits, ops.maximum(longest, 1))
        if not self.min_length and not self.min_length_ratio:
            return limits, None
        least = ops.full((batch_size,), min(self.min_length, LARGEST_INT32), "int32")
        if self.min_length_ratio:
            least = ops.maximum(least, times_rounded_up(source_lengths, self.min_length_ratio))
        return limits, ops.minimum(least, limits)

    def _largest_ids(self):
        """The largest id of each option that names some."""
        options = {"suppressed_ids": self.suppressed_ids, "allowed_ids": self.allowed_ids}
        return {name: max(ids) for name, ids in options.items() if ids}

    def get_config(self):
        """Returns the constructor's arguments."""
        return {
            "min_length": self.min_length,
            "min_length_ratio": self.min_length_ratio,
            "max_length_ratio": self.max_length_ratio,
            "repetition_penalty": self.repetition_penalty,
            "no_repeat_ngram_size": self.no_repeat_ngram_size,
            "suppressed_ids": list(self.suppressed_ids),
            "allowed_ids": None if self.allowed_ids is None else list(self.allowed_ids),
            "return_alignments": self.return_alignments,
        }

    @classmethod
    def from_config(cls, config):
        """Rebuilds the search from `get_config`."""
        return cls(**config)


def checked_ids(name, ids):
    """Returns `ids` as a tuple, or raises `ValueError` when they are not ids."""
    try:
        return tuple(arguments.non_negative_integer(name, token) for token in ids)
    except (TypeError, ValueError):
        raise ValueError(
            f"`{name}` must be a list of integers of at least 0. Received: {name}={ids!r:.200}"
        ) from None


def times_rounded_up(lengths, ratio):
    """`ceil(ratio * lengths)`, int32; a product within rounding of a whole number is that."""
    product = ops.cast(lengths, "float32") * min(ratio, 1e9)
    # No longer than the largest float32 below the largest int32.
    return ops.cast(ops.minimum(ops.ceil(product - 1e-4), 2.0**31 - 128), "int32")
