"""What all searches share: their options, the arguments of a call, the rules for the next token."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, NamedTuple, Self, TypedDict

import numpy as np
from keras import ops

from keras_transformer import arguments
from keras_transformer.arguments import (
    BooleanMask,
    Ids,
    Logits,
    LogProbs,
    PaddingMask,
    Scores,
    Tensor,
)
from keras_transformer.decoding.call_arguments import (
    LARGEST_INT32,
    checked_prefix,
    checked_source_mask,
    number_or_tensor,
    per_sentence,
    special_ids_by_name,
)
from keras_transformer.decoding.step_function import State, StepFunction, check_state

# A log-probability or score below all real ones. It is finite, so that no NaN can arise.
IMPOSSIBLE = -1e9
# Under a larger penalty the scores of long hypotheses leave the range of float32.
LARGEST_LENGTH_PENALTY = 10.0


class DecodeResult(NamedTuple):
    """Holds the hypotheses of a search, the best of each sentence first.

    Attributes:
        ids: int32 (batch, hypotheses, length), the tokens after `bos_id`, `eos_id` included,
            then padding. A hypothesis without `eos_id` was cut at the maximum length.
        scores: float32 (batch, hypotheses), the log-probability of the tokens under the
            search's penalties. -1e9 marks a hypothesis that the search did not find.
        lengths: int32 (batch, hypotheses), the number of tokens, `eos_id` included.
        token_log_probs: float32 (batch, hypotheses, length), the log-probability of each token,
            0 for padding.
        alignments: float32 (batch, hypotheses, length, source), how much each token attended to
            each position of the source. None without `return_alignments`.

    Example:

    >>> import numpy as np
    >>> result = DecodeResult(np.array([[[5, 3, 0]]]), np.array([[-0.7]]), np.array([[2]]))
    >>> result.ids[0, 0, : result.lengths[0, 0]].tolist()
    [5, 3]
    """

    ids: Tensor
    scores: Scores
    lengths: Tensor
    token_log_probs: Tensor | None = None
    alignments: Tensor | None = None


class SearchOptions(TypedDict, total=False):
    """The options of every search, which `Search` describes."""

    min_length: int
    min_length_ratio: float
    max_length_ratio: float | None
    repetition_penalty: float
    no_repeat_ngram_size: int
    suppressed_ids: Iterable[int]
    allowed_ids: Iterable[int] | None
    return_alignments: bool
    renormalize: bool | Literal["prefix"]


class Task(NamedTuple):
    """What one call of a search decodes: the step function, the sizes, the ids and the limits."""

    step: StepFunction
    batch_size: int | Tensor  # number of sentences
    max_length: int | Tensor
    bos_id: int
    eos_id: int
    pad_id: int
    max_lengths: Tensor  # int32 (batch,), at most `max_length`
    min_lengths: Tensor | None  # int32 (batch,); None when there is no minimum
    prefix_ids: Ids | None  # int32 (batch, max_length), the forced tokens, then `pad_id`
    source_mask: PaddingMask | None  # (batch, source), True at real positions; None for all
    length_penalty: Tensor | None  # float32 (batch,), one for each sentence; None for the search's
    largest_ids: dict[str, int]  # the largest id in each argument that names ids

    def check_ids(self, vocab_size: int) -> None:
        """Raises `ValueError` for an id that is not in the model's vocabulary."""
        for name, largest in self.largest_ids.items():
            if largest >= vocab_size:
                raise ValueError(
                    f"`{name}` must be below the size of the vocabulary, {vocab_size}. "
                    f"Received: {name} with {largest}"
                )


def checked_ids(name: str, ids: Iterable[Any]) -> tuple[int, ...]:
    """Returns `ids` as a tuple of integers, or raises `ValueError`."""
    try:
        return tuple(arguments.non_negative_integer(name, token) for token in ids)
    except (TypeError, ValueError):
        raise ValueError(
            f"`{name}` must be a list of integers of at least 0. Received: {name}={ids!r:.200}"
        ) from None


def times_rounded_up(lengths: Tensor, ratio: float) -> Tensor:
    """Returns `ceil(ratio * lengths)`, int32, with a margin of 1e-4 for rounding."""
    product = ops.cast(lengths, "float32") * min(ratio, 1e9)
    # The bound is the largest float32 below the largest int32.
    return ops.cast(ops.minimum(ops.ceil(product - 1e-4), 2.0**31 - 128), "int32")


def repeat_rows(values: Tensor, beams: int | None) -> Tensor:
    """Repeats each row of `values` (batch, ...) for its beams; None repeats nothing."""
    return values if beams is None else ops.repeat(values, beams, axis=0)


def penalise_repetition(logits: Logits, seen: BooleanMask, penalty: float) -> Logits:
    """Divides positive logits of `seen` tokens by the penalty, and multiplies negative ones."""
    lower = ops.where(logits > 0, logits / penalty, logits * penalty)
    return ops.where(seen, lower, logits)


def find_seen_tokens(history: Tensor, index: Tensor, vocab_size: int) -> BooleanMask:
    """Marks the tokens that a row has before position `index`: boolean (rows, vocab)."""
    before = ops.arange(ops.shape(history)[1]) < index
    return mark_tokens(history, ops.broadcast_to(before, ops.shape(history)), vocab_size)


def find_repeated_ngrams(history: Tensor, index: Tensor, size: int, vocab_size: int) -> BooleanMask:
    """Marks the tokens that complete an n-gram which the row has: boolean (rows, vocab)."""
    rows, length = ops.shape(history)
    last = size - 1
    # An n-gram that starts at p ends at p + last. It counts when it ends before `index`.
    starts = ops.arange(length)
    same = ops.broadcast_to(starts + last < index, (rows, length))
    padded = ops.pad(history, [(0, 0), (0, last)])
    for offset in range(last):
        here = ops.maximum(index - last + offset, 0)
        token = ops.take(history, ops.reshape(here, (1,)), axis=1)  # -> (rows, 1)
        same = ops.logical_and(same, padded[:, offset : offset + length] == token)
    return mark_tokens(padded[:, last:], same, vocab_size)


def mark_tokens(tokens: Tensor, chosen: BooleanMask, vocab_size: int) -> BooleanMask:
    """Marks the `chosen` of the `tokens`, both (rows, length): boolean (rows, vocab)."""
    rows, length = ops.shape(tokens)
    row = ops.broadcast_to(ops.arange(rows, dtype="int32")[:, None], (rows, length))
    # -> (rows * length, 2), pairs (row, token)
    places = ops.stack([ops.reshape(row, (-1,)), ops.reshape(tokens, (-1,))], axis=1)
    counted = ops.cast(ops.reshape(chosen, (-1,)), "int32")  # -> (rows * length,)
    return ops.scatter(places, counted, (rows, vocab_size)) > 0


class Search:
    """The base of `GreedySearch`, `BeamSearch` and `Sampling`.

    Call a search as `search(step, state, batch_size=..., max_length=..., bos_id=..., eos_id=...,
    pad_id=0, length_limits=None, source_lengths=None, prefix_ids=None, source_mask=None,
    length_penalty=None)`. It returns a `DecodeResult`.

    `step(tokens, index, state)` decodes one position. It receives the last token of each row,
    (rows,), the position `index` of these tokens, and the state. `bos_id` is at position 0. It
    returns the logits of the next token, (rows, vocab), and the new state. Alignments and the
    coverage penalty need a third value: the attention to the source, (rows, source). Each row of
    it sums to 1. For its width, the search calls such a step once before the first token.

    The state is any nest of tensors. Their first axis is the batch in the first state, and
    batch * `rows_per_sentence` in the loop. The rows of a sentence are adjacent. Tensors that all
    rows share need not be in the state.

    A step with the attribute `follows_paths = True` keeps its state, such as a cache, in place. The
    search does not reorder this state, and calls `step(tokens, index, state, paths)`. The caller
    makes the first state with `slots_per_sentence` slots for each sentence. In `BeamSearch`, row
    `k` of a sentence writes slot `k` at `index`. `paths` (batch, beam, max_length + 1) holds the
    slot of each hypothesis at each position so far. In the other searches `paths` is None, and
    `Sampling` repeats the state for each sample.

    Every search has these options. A length counts the tokens after `bos_id`, `eos_id` included.

    Args:
        min_length: the smallest length. A smaller maximum length comes first.
        min_length_ratio, max_length_ratio: bounds of the length relative to the source, rounded
            up. They need `source_lengths` (batch,). `Transformer.generate` counts the source's
            `eos_id` too.
        repetition_penalty: divides the positive logits of tokens that a row has, and multiplies
            the negative ones (Keskar et al. 2019, "CTRL", section 4.1).
        no_repeat_ngram_size: no n-gram of this size comes twice (Paulus et al. 2017, section
            2.5); 0 for no such rule.
        suppressed_ids: tokens that never come.
        allowed_ids: the only tokens that may come, beside `eos_id`; all when None.
        return_alignments: whether the result has alignments.
        renormalize: whether the tokens that may come share the probability of those that may
            not. A token of a prefix then has the log-probability 0. "prefix" gives it 0 too, and
            changes nothing else: Hugging Face scores a forced token so.

    A call takes these values for each sentence. `prefix_ids` (batch, prefix), padded at the end,
    are the first tokens of each output. They come before all other rules, and are cut at the
    maximum length. `source_mask` (batch, source) is True at real positions of the source: coverage
    counts no others. `length_limits` (batch,), each at least 1, are maximum lengths.
    `length_penalty` (batch,), each from 0 to 10, replaces that of a `BeamSearch`.

    Rules, or logits of NaN, may leave no token. The hypothesis then has length 0 and score -1e9.
    A search never writes `bos_id` or `pad_id`, unless that id is `eos_id` too.

    Raises:
        ValueError: for a bad argument. Shapes are always checked. Values are checked in lists and
            NumPy arrays, not in tensors.

    Example:

    In this language model of five tokens the next token is one larger, and 4 ends the text:

    >>> from keras import ops
    >>> from keras_transformer import GreedySearch
    >>> def step(tokens, index, state):
    ...     return ops.one_hot(tokens + 1, 5), state
    >>> search = GreedySearch(min_length=2)
    >>> result = search(step, (), batch_size=1, max_length=5, bos_id=1, eos_id=4)
    >>> ops.convert_to_numpy(result.ids).tolist()
    [[[2, 3, 4, 0, 0]]]
    """

    # The length penalty of a search that has one.
    length_penalty: float | None = None

    def __init__(
        self,
        *,
        min_length: int = 0,
        min_length_ratio: float = 0.0,
        max_length_ratio: float | None = None,
        repetition_penalty: float = 1.0,
        no_repeat_ngram_size: int = 0,
        suppressed_ids: Iterable[int] = (),
        allowed_ids: Iterable[int] | None = None,
        return_alignments: bool = False,
        renormalize: bool | Literal["prefix"] = False,
    ) -> None:
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
        self.renormalize = arguments.one_of(
            "renormalize", arguments.plain(renormalize), (True, False, "prefix")
        )

    @property
    def rows_per_sentence(self) -> int:
        """Number of rows of each sentence in the loop: beams, or samples."""
        return 1

    @property
    def hypotheses_per_sentence(self) -> int:
        """Number of hypotheses of each sentence in the result."""
        return self.rows_per_sentence

    @property
    def slots_per_sentence(self) -> int:
        """Number of slots of each sentence in the first state of a step that follows paths."""
        return 1

    @property
    def needs_attention(self) -> bool:
        """Whether the step must return its attention to the source."""
        return self.return_alignments

    def __call__(
        self,
        step: StepFunction,
        state: State,
        *,
        batch_size: int | Tensor,
        max_length: int | Tensor,
        bos_id: int,
        eos_id: int,
        pad_id: int = 0,
        length_limits: Tensor | None = None,
        source_lengths: Tensor | None = None,
        prefix_ids: Ids | None = None,
        source_mask: PaddingMask | None = None,
        length_penalty: Tensor | None = None,
    ) -> DecodeResult:
        """Runs the search and returns a `DecodeResult`."""
        batch_size = number_or_tensor(arguments.non_negative_integer, "batch_size", batch_size)
        max_length = number_or_tensor(arguments.positive_integer, "max_length", max_length)
        if length_penalty is not None:
            self.check_length_penalty(length_penalty)
            length_penalty = per_sentence(
                "length_penalty",
                length_penalty,
                batch_size,
                dtype="float32",
                least=0,
                most=LARGEST_LENGTH_PENALTY,
            )
        special = special_ids_by_name(pad_id, bos_id, eos_id)
        largest_ids = {**special, **self._largest_ids()}
        max_lengths, min_lengths = self._bounds(
            batch_size, max_length, length_limits, source_lengths
        )
        if source_mask is not None:
            source_mask = checked_source_mask(source_mask, batch_size)
        if prefix_ids is not None:
            prefix_ids, largest_ids["prefix_ids"] = checked_prefix(prefix_ids, batch_size, pad_id)
            # The width may be unknown in a graph: pad by the most, then cut.
            prefix_ids = ops.pad(prefix_ids, [(0, 0), (0, max_length)], constant_values=pad_id)
            prefix_ids = prefix_ids[:, :max_length]  # -> (batch, max_length)
        task = Task(
            step, batch_size, max_length, **special, max_lengths=max_lengths,
            min_lengths=min_lengths, prefix_ids=prefix_ids, source_mask=source_mask,
            length_penalty=length_penalty, largest_ids=largest_ids,
        )  # fmt: skip
        check_state(step, state, batch_size)
        return self.run(task, state)

    def check_length_penalty(self, length_penalty: Tensor) -> None:
        """Raises `ValueError` unless this search takes a length penalty."""
        if self.length_penalty is None:
            raise ValueError(
                "`length_penalty` must be None for a search that has none. "
                f"Received: a {type(self).__name__} and length_penalty={length_penalty!r:.80}"
            )

    def _largest_ids(self) -> dict[str, int]:
        """The largest id of each option that names ids."""
        options = {"suppressed_ids": self.suppressed_ids, "allowed_ids": self.allowed_ids}
        return {name: max(ids) for name, ids in options.items() if ids}

    def _bounds(
        self,
        batch_size: int | Tensor,
        max_length: int | Tensor,
        length_limits: Tensor | None,
        source_lengths: Tensor | None,
    ) -> tuple[Tensor, Tensor | None]:
        """The `max_lengths` and the `min_lengths` of the task."""
        max_lengths = ops.broadcast_to(ops.cast(max_length, "int32"), (batch_size,))
        if length_limits is not None:
            own = per_sentence("length_limits", length_limits, batch_size, dtype="int32", least=1)
            max_lengths = ops.minimum(max_lengths, own)
        if source_lengths is not None:
            source_lengths = per_sentence(
                "source_lengths", source_lengths, batch_size, dtype="int32", least=0
            )
        elif self.max_length_ratio or self.min_length_ratio:
            raise ValueError(
                "`source_lengths` must be given for `min_length_ratio` and `max_length_ratio`. "
                "Received: source_lengths=None"
            )
        max_lengths = self.bound_lengths(max_lengths, source_lengths)
        if not self.min_length and not self.min_length_ratio:
            return max_lengths, None
        min_lengths = ops.full((batch_size,), min(self.min_length, LARGEST_INT32), "int32")
        if self.min_length_ratio:
            relative = times_rounded_up(source_lengths, self.min_length_ratio)
            min_lengths = ops.maximum(min_lengths, relative)
        return max_lengths, ops.minimum(min_lengths, max_lengths)

    def bound_lengths(self, max_lengths: int | Tensor, source_lengths: Tensor) -> int | Tensor:
        """Returns `max_lengths`, lower where `max_length_ratio` asks for it, but at least 1.

        `source_lengths` are int32 (batch,). `max_lengths` are one for each, or one for all.
        """
        if self.max_length_ratio is None:
            return max_lengths
        longest = times_rounded_up(source_lengths, self.max_length_ratio)
        return ops.minimum(max_lengths, ops.maximum(longest, 1))

    def run(self, task: Task, state: State) -> DecodeResult:
        """Decodes the sentences of the task; each search implements it."""
        raise NotImplementedError

    def apply_rules(
        self,
        task: Task,
        logits: Logits,
        index: Tensor,
        read_history: Callable[[], Tensor],
        beams: int | None = None,
    ) -> LogProbs:
        """Returns the log-probabilities of the tokens after `index`, -1e9 where a rule forbids one.

        The rules act after the normalisation, so that a score is the model's own. Only the
        repetition penalty changes the logits, and `renormalize` lets the other rules do so.

        Args:
            task: the task of the call.
            logits: (rows, vocab), from the step.
            index: the position of the last tokens.
            read_history: returns the tokens of the rows, (rows, max_length). Those from `index` on
                are ignored.
            beams: number of adjacent rows of each sentence. None where each row is a sentence of
                the task.
        """
        vocab_size = logits.shape[-1]
        task.check_ids(vocab_size)
        logits = ops.cast(logits, "float32")
        if self.repetition_penalty != 1.0:
            seen = find_seen_tokens(read_history(), index, vocab_size)
            logits = penalise_repetition(logits, seen, self.repetition_penalty)
        allowed = ops.convert_to_tensor(self._allowed_tokens(task, vocab_size)[None])
        if task.min_lengths is not None:
            too_short = index + 1 < repeat_rows(task.min_lengths, beams)
            is_eos = ops.arange(vocab_size) == task.eos_id
            allowed = ops.logical_and(
                allowed, ops.logical_not(ops.logical_and(too_short[:, None], is_eos))
            )
        if self.no_repeat_ngram_size:
            repeated = find_repeated_ngrams(
                read_history(), index, self.no_repeat_ngram_size, vocab_size
            )
            allowed = ops.logical_and(allowed, ops.logical_not(repeated))
        shared = allowed  # what shares the probability of the others
        if self.renormalize == "prefix":
            shared = ops.ones_like(allowed)
        if task.prefix_ids is not None:
            # While a sentence has a prefix, its token alone may come, whatever the other rules.
            # -> (batch, 1)
            token = ops.take(task.prefix_ids, ops.reshape(index, (1,)), axis=1)
            token = repeat_rows(token, beams)  # -> (rows, 1)
            is_token = ops.arange(vocab_size) == token  # -> (rows, vocab)
            allowed = ops.where(token != task.pad_id, is_token, allowed)
            shared = ops.where(token != task.pad_id, is_token, shared)
        if self.renormalize:
            logits = ops.where(shared, logits, IMPOSSIBLE)
        log_probs = ops.log_softmax(logits, axis=-1)
        # A model may forbid tokens by -inf, whose differences are NaN. NaN fails the comparison.
        return ops.where(ops.logical_and(allowed, log_probs > IMPOSSIBLE), log_probs, IMPOSSIBLE)

    def _allowed_tokens(self, task: Task, vocab_size: int) -> np.ndarray:
        """Marks the tokens that may come at any position: boolean (vocab,)."""
        allowed = np.ones(vocab_size, bool)
        if self.allowed_ids is not None:
            allowed[:] = False
            allowed[list(self.allowed_ids)] = True
            allowed[task.eos_id] = True
        allowed[list(self.suppressed_ids)] = False
        # In a language model the end of one text may begin the next one, or be its padding.
        allowed[[token for token in (task.pad_id, task.bos_id) if token != task.eos_id]] = False
        return allowed

    def get_config(self) -> dict[str, Any]:
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
            "renormalize": self.renormalize,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Rebuilds the search from `get_config`."""
        return cls(**config)

    def with_ids(self, ids: Mapping[int, int]) -> Self:
        """Returns the search for another vocabulary: `ids` has the new id of each token it keeps.

        A token without a new id leaves `suppressed_ids` and `allowed_ids`.
        """
        config = self.get_config()
        for name in ("suppressed_ids", "allowed_ids"):
            if config[name] is not None:
                config[name] = [ids[index] for index in config[name] if index in ids]
        return self.from_config(config)
