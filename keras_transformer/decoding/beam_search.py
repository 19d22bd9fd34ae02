"""Beam search over a step function, with frozen finished hypotheses and an exact stop."""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple, Unpack

import keras
from keras import ops

from keras_transformer import arguments
from keras_transformer.arguments import BeamPaths, Logits, LogProbs, Tensor
from keras_transformer.decoding.hypotheses import (
    Beams,
    Pool,
    Written,
    extend_paths,
    take_attention,
)
from keras_transformer.decoding.search import (
    IMPOSSIBLE,
    LARGEST_LENGTH_PENALTY,
    DecodeResult,
    Search,
    SearchOptions,
    Task,
)
from keras_transformer.decoding.step_function import (
    State,
    attention_width,
    change_state,
    flat,
    follows_paths,
    nest,
    run_step,
)

# `top_extensions` divides a large vocabulary into chunks of this size.
CHUNK = 64


class Candidates(NamedTuple):
    """The likeliest extensions of the hypotheses of a group, the likeliest first."""

    log_probs: Tensor  # float32 (batch, candidates), sums over the tokens
    parents: Tensor  # int32 (batch, candidates), the beams that they extend
    tokens: Tensor  # int32 (batch, candidates)


class Extensions(NamedTuple):
    """The extensions chosen at a step: first those that live on, then those that may have ended."""

    log_probs: Tensor  # float32 (batch, 2 * beam), sums over the tokens
    parents: Tensor  # int32 (batch, 2 * beam), the beams that they extend
    tokens: Tensor  # int32 (batch, 2 * beam)
    ended: Tensor  # bool (batch, 2 * beam)


def length_normaliser(
    length: int | Tensor, length_penalty: float | Tensor, formula: str = "wu"
) -> Tensor:
    """Returns `((5 + length) / 6) ** length_penalty` (Wu et al. 2016, equation 14).

    The formula "power" is `length ** length_penalty`.
    """
    length = ops.cast(length, "float32")
    return ops.power((5.0 + length) / 6.0 if formula == "wu" else length, length_penalty)


def top_extensions(totals: LogProbs, size: int) -> Candidates:
    """Returns the `size` largest of `totals` (batch, beam, vocab); among equals the first.

    A full sort of a large vocabulary is slow. The best lie in the `size` chunks whose own best are
    largest. So the search sorts chunks first, and then the tokens of the best chunks.
    """
    batch, beams, vocab_size = ops.shape(totals)
    chunks = -(-vocab_size // CHUNK)
    if beams * chunks <= size or vocab_size <= 4 * CHUNK:
        # -> (batch, beam * vocab), then (batch, size)
        values, places = ops.top_k(ops.reshape(totals, (batch, beams * vocab_size)), size)
        places = ops.cast(places, "int32")
        return Candidates(values, places // vocab_size, places % vocab_size)
    missing = chunks * CHUNK - vocab_size
    padded = ops.pad(totals, [(0, 0), (0, 0), (0, missing)], constant_values=float("-inf"))
    padded = ops.reshape(padded, (batch, beams * chunks, CHUNK))  # -> (batch, beam * chunks, chunk)
    _, best = ops.top_k(ops.max(padded, axis=-1), size)  # -> (batch, size)
    best = ops.sort(ops.cast(best, "int32"), axis=-1)
    candidates = ops.take_along_axis(padded, best[..., None], axis=1)  # -> (batch, size, chunk)
    # -> (batch, size * chunk), then (batch, size)
    values, places = ops.top_k(ops.reshape(candidates, (batch, size * CHUNK)), size)
    places = ops.cast(places, "int32")
    chunk = ops.take_along_axis(best, places // CHUNK, axis=1)  # -> (batch, size)
    return Candidates(values, chunk // chunks, chunk % chunks * CHUNK + places % CHUNK)


@keras.saving.register_keras_serializable(package="keras_transformer")
class BeamSearch(Search):
    """Keeps the `beam_size` likeliest hypotheses at each step, and the best finished ones.

    `score = sum(log p(token_t)) / ((5 + length) / 6) ** length_penalty + coverage`,
    `coverage = coverage_penalty * sum_i(log(min(sum_t a(t, i), 1)))`. Here `length` counts the
    tokens after `bos_id`, `eos_id` included. `a(t, i)` is the attention of token t to position i
    of the source, without padding. A sum of it counts as at least 1e-9.

    Each step extends the live hypotheses by every token. Among the `beam_size` likeliest
    extensions, those with `eos_id` or the maximum length are finished. Their scores are frozen,
    and the best of them are kept. The likeliest extensions that have not ended live on:
    `beam_size` of them, among the `2 * beam_size` likeliest of all.

    A sentence ends when no live hypothesis can reach the score of the worst one kept, whatever
    comes next. The other sentences of the batch change nothing. A beam of 1, or a group of 1, ends
    with its first finished hypothesis: it is greedy search. A beam as wide as the number of
    sequences finds the best of all.

    `Search` describes how to call a search, and the options of every search.

    Args:
        beam_size: number of live hypotheses.
        length_penalty: 0 compares sums of log-probabilities, larger values favour longer
            hypotheses; from 0 to 10.
        length_formula: what the sum is divided by: "wu" is the formula above, "power" is
            `length ** length_penalty`, as in Hugging Face, Marian and CTranslate2.
        num_hypotheses: number of hypotheses returned; `beam_size` when None.
        coverage_penalty: weight of the coverage, which is lower where source positions stay
            unread; from 0 to 1000. The step function must return its attention.
        num_groups: number of groups of beams. A group is a beam of `beam_size / num_groups`. At
            each step the groups are extended one after another.
        diversity_penalty: lowers a token once for each time that earlier groups chose it at this
            step; from 0 to 1000. Scores stay the model's. With 0 all groups find the same.
        early_stopping: False stops as described. True stops as soon as `beam_size` hypotheses are
            finished, in each group its share. "current_length" waits for as many. It goes on while
            `sum(log p(token_t)) / normaliser(current length)` of a live one is above the worst of
            their scores. That is a guess: with a length penalty a live one may become better later.
            Hugging Face calls this rule `early_stopping=False`. True and the guess stop sooner than
            False, and may miss better hypotheses.
        **options: those of every search: `min_length`, `min_length_ratio`, `max_length_ratio`,
            `repetition_penalty`, `no_repeat_ngram_size`, `suppressed_ids`, `allowed_ids`,
            `return_alignments`, `renormalize`.

    Returns:
        A `DecodeResult` with `num_hypotheses` hypotheses for each sentence, all different.

    Raises:
        ValueError: for a bad argument.

    Reference: Wu et al. 2016, "Google's Neural Machine Translation System", section 7; Vaswani
    et al. 2017, section 6.1 (beam 4, length penalty 0.6); Vijayakumar et al. 2016, "Diverse Beam
    Search" (groups, Hamming diversity); transformers 5.24, `_check_early_stop_heuristic` of
    `generation/utils.py` ("current_length").

    Example:

    >>> from keras import ops
    >>> def step(tokens, index, state):
    ...     return ops.one_hot(ops.minimum(tokens + 1, 3), 5), state
    >>> search = BeamSearch(beam_size=2, length_penalty=0.0)
    >>> result = search(step, (), batch_size=1, max_length=4, bos_id=1, eos_id=3)
    >>> ops.convert_to_numpy(result.ids).tolist()
    [[[2, 3, 0, 0], [3, 0, 0, 0]]]
    """

    length_penalty: float

    def __init__(
        self,
        beam_size: int = 4,
        length_penalty: float = 0.6,
        num_hypotheses: int | None = None,
        *,
        coverage_penalty: float = 0.0,
        num_groups: int = 1,
        diversity_penalty: float = 0.0,
        early_stopping: bool | Literal["current_length"] = False,
        length_formula: str = "wu",
        **options: Unpack[SearchOptions],
    ) -> None:
        super().__init__(**options)
        self.beam_size = arguments.positive_integer("beam_size", beam_size)
        self.length_penalty = arguments.number_within(
            "length_penalty", length_penalty, 0, LARGEST_LENGTH_PENALTY
        )
        self.length_formula = arguments.one_of("length_formula", length_formula, ("wu", "power"))
        self.num_hypotheses = arguments.positive_integer(
            "num_hypotheses", beam_size if num_hypotheses is None else num_hypotheses
        )
        if self.num_hypotheses > self.beam_size:
            raise ValueError(
                "`num_hypotheses` must be at most `beam_size`. Received: "
                f"num_hypotheses={num_hypotheses}, beam_size={beam_size}"
            )
        self.coverage_penalty = arguments.number_within(
            "coverage_penalty", coverage_penalty, 0, 1000
        )
        self.num_groups = arguments.positive_integer("num_groups", num_groups)
        if self.beam_size % self.num_groups:
            raise ValueError(
                "`num_groups` must divide `beam_size`. "
                f"Received: num_groups={num_groups}, beam_size={beam_size}"
            )
        self.diversity_penalty = arguments.number_within(
            "diversity_penalty", diversity_penalty, 0, 1000
        )
        if self.diversity_penalty and self.num_groups == 1:
            raise ValueError(
                "`diversity_penalty` must be 0 for a single group. "
                f"Received: diversity_penalty={diversity_penalty!r}, num_groups={num_groups}"
            )
        self.early_stopping = arguments.one_of(
            "early_stopping", arguments.plain(early_stopping), (True, False, "current_length")
        )

    @property
    def rows_per_sentence(self) -> int:
        """Number of rows of each sentence in the loop: its beams."""
        return self.beam_size

    @property
    def hypotheses_per_sentence(self) -> int:
        """Number of hypotheses of each sentence in the result."""
        return self.num_hypotheses

    @property
    def slots_per_sentence(self) -> int:
        """Number of slots of each sentence in the first state of a step that follows paths."""
        return self.beam_size

    @property
    def needs_attention(self) -> bool:
        """Whether the step must return its attention to the source."""
        return self.return_alignments or self.coverage_penalty > 0

    def run(self, task: Task, state: State) -> DecodeResult:
        """Extends the beams of all sentences until no live hypothesis can win."""
        start = self._first_beams(task, state)
        largest = self._length_normaliser(task, task.max_lengths[:, None])

        def active(now: Beams) -> Tensor:
            if self.early_stopping == "current_length":
                current = self._length_normaliser(task, ops.maximum(now.index, 1))
                return self._active(now, current)
            return self._active(now, largest)

        def unfinished(now: Beams) -> Tensor:
            return ops.logical_and(now.index < task.max_length, ops.any(active(now)))

        def advance(now: Beams) -> Beams:
            return self._next_beams(task, now, active(now))

        end = self.loop(unfinished, advance, start)
        return end.written.read_back(task, end.pool, self.num_hypotheses)

    def _first_beams(self, task: Task, state: State) -> Beams:
        """The beams before the first step: one live hypothesis in each group, none finished."""
        beams, groups = self.beam_size, self.num_groups
        if not follows_paths(task.step):
            # -> (batch * beam, ...)
            state = change_state(lambda part: ops.repeat(part, beams, axis=0), state)
        # The beams of a group are all alike at first, so only one of them is live.
        live = ops.arange(beams) % (beams // groups) == 0
        log_probs = ops.where(live, 0.0, IMPOSSIBLE)[None, :]  # -> (1, beam)
        tokens = ops.full((task.batch_size * beams,), task.bos_id, "int32")
        # A path goes on in its own slot.
        paths = ops.broadcast_to(
            ops.arange(beams, dtype="int32")[None, :, None],
            (task.batch_size, beams, task.max_length + 1),
        )
        width = None
        if self.needs_attention:
            width = attention_width(task.step, tokens, state, paths, task.source_mask)
        coverage = None
        if self.coverage_penalty:
            coverage = ops.zeros((task.batch_size, beams, width), "float32")
        kept = beams // groups
        if not self.early_stopping:
            kept = min(kept, self.num_hypotheses)
        return Beams(
            index=ops.convert_to_tensor(0, "int32"),
            tokens=tokens,
            log_probs=ops.tile(log_probs, (task.batch_size, 1)),
            paths=paths,
            coverage=coverage,
            written=Written.empty(task, 2 * beams, width if self.return_alignments else None),
            pool=Pool.empty(task, groups, kept),
            state=state,
        )

    def _length_normaliser(self, task: Task, length: Tensor) -> Tensor:
        """What a sum of log-probabilities is divided by, at this length () or (batch, 1).

        It is (), or (batch, 1) where sentences have a length penalty of their own.
        """
        penalty = self.length_penalty
        if task.length_penalty is not None:
            penalty = task.length_penalty[:, None]
        return length_normaliser(length, penalty, self.length_formula)

    def loop(
        self,
        unfinished: Callable[[Beams], Tensor],
        advance: Callable[[Beams], Beams],
        beams: Beams,
    ) -> Beams:
        """Advances the `Beams` while they are unfinished; a subclass may look at every step."""
        end = ops.while_loop(
            lambda *now: unfinished(nest(beams, now)),
            lambda *now: flat(advance(nest(beams, now))),
            flat(beams),
        )
        return nest(beams, end)

    def _active(self, now: Beams, normaliser: Tensor) -> Tensor:
        """Whether a live hypothesis of each group can be among the best: bool (batch, groups).

        `normaliser` divides its sum of log-probabilities: that at each sentence's largest length,
        or that at the current one.
        """
        # -> (batch, groups)
        best_live = ops.max(self._by_group(now.log_probs), axis=-1, initial=2 * IMPOSSIBLE)
        worst_kept = ops.min(now.pool.scores, axis=-1, initial=0.0)
        alive = best_live > IMPOSSIBLE / 2
        if self.early_stopping is True:
            return ops.logical_and(alive, worst_kept <= IMPOSSIBLE / 2)
        # A log-probability only falls, the largest normaliser brings it nearest to 0, and
        # coverage is at most 0.
        return ops.logical_and(alive, best_live / normaliser > worst_kept)

    def _next_beams(self, task: Task, now: Beams, active: Tensor) -> Beams:
        """One decoding step: extends each hypothesis, and finishes those that ended.

        `active` (batch, groups) says which groups still take finished hypotheses.
        """
        beams, index = self.beam_size, now.index + 1
        logits, state, attention = run_step(
            task.step,
            now.tokens,
            now.index,
            now.state,
            paths=now.paths,
            needs_attention=self.needs_attention,
        )
        own = self.next_log_probs(task, now, logits)  # -> (batch, beam, vocab)
        chosen = self._choose_extensions(task, index, now.log_probs[..., None] + own)
        parents = chosen.parents
        gained = chosen.log_probs - ops.take_along_axis(now.log_probs, parents, axis=1)
        chosen = chosen._replace(log_probs=ops.maximum(chosen.log_probs, IMPOSSIBLE))
        attended = take_attention(attention, parents, beams)
        coverage = now.coverage
        if coverage is not None:
            # attention -> (batch, beam, source)
            coverage = coverage + ops.reshape(attention, ops.shape(coverage))
            # -> (batch, 2 * beam, source)
            coverage = ops.take_along_axis(coverage, parents[..., None], axis=1)
        paths = extend_paths(now.paths, parents, index)  # -> (batch, 2 * beam, max_length + 1)
        finished = self._find_finished(task, index, chosen, paths, coverage=coverage, active=active)
        ended = chosen.ended[:, :beams]
        if self.early_stopping == "current_length":
            # A group that has stopped stays so, though its live hypotheses may become better.
            stopped = ops.logical_not(active)[..., None]  # -> (batch, groups, 1)
            ended = ops.logical_or(self._by_group(ended), stopped)
            ended = ops.reshape(ended, (task.batch_size, beams))  # -> (batch, beam)
        return Beams(
            index=index,
            tokens=ops.reshape(chosen.tokens[:, :beams], (-1,)),  # -> (batch * beam,)
            log_probs=ops.where(ended, IMPOSSIBLE, chosen.log_probs[:, :beams]),
            paths=paths[:, :beams],
            coverage=None if coverage is None else coverage[:, :beams],
            written=now.written.with_position(index, chosen.tokens, gained, attended),
            pool=now.pool.merge_best(finished),
            state=self._take_states(task, state, parents),
        )

    def _find_finished(
        self,
        task: Task,
        index: Tensor,
        chosen: Extensions,
        paths: BeamPaths,
        *,
        coverage: Tensor | None,
        active: Tensor,
    ) -> Pool:
        """The extensions at position `index` that have ended, of the groups that are `active`.

        `paths` and `coverage` are those of all extensions, (batch, 2 * beam, ...).
        """
        log_probs = chosen.log_probs
        scores = log_probs / self._length_normaliser(task, index)
        if coverage is not None:
            scores = scores + self._coverage_score(task, coverage)
        ended, scores, paths = (
            self._by_group(part[:, self.beam_size :]) for part in (chosen.ended, scores, paths)
        )
        entering = ops.logical_and(ended, active[..., None])  # -> (batch, groups, beam / groups)
        return Pool(paths, ops.where(entering, scores, IMPOSSIBLE), ops.where(entering, index, 0))

    def _take_states(self, task: Task, state: State, parents: Tensor) -> State:
        """The state of the step for each live hypothesis, from that of its parent."""
        if follows_paths(task.step):
            return state
        first = ops.arange(task.batch_size, dtype="int32")[:, None] * self.beam_size
        rows = ops.reshape(parents[:, : self.beam_size] + first, (-1,))  # -> (batch * beam,)
        return change_state(lambda part: ops.take(part, rows, axis=0), state)

    def next_log_probs(self, task: Task, now: Beams, logits: Logits) -> LogProbs:
        """Log-probabilities (batch, beam, vocab) of the next tokens; a subclass may look."""
        own = self.apply_rules(
            task,
            logits,
            now.index,
            lambda: now.written.read_tokens(task, now.paths),
            self.beam_size,
        )
        # -> (batch, beam, vocab)
        return ops.reshape(own, (task.batch_size, self.beam_size, own.shape[-1]))

    def _choose_extensions(self, task: Task, length: Tensor, totals: LogProbs) -> Extensions:
        """Chooses by `totals` (batch, beam, vocab) what lives on, and what may have ended.

        `length` is that of the extensions.
        """
        size = self.beam_size // self.num_groups
        count = size if size == 1 else 2 * size
        live, ending = [], []
        for found in self._candidates(totals, size, count):
            is_longest = length >= task.max_lengths[:, None]
            ended = ops.logical_or(found.tokens == task.eos_id, is_longest)
            ended = ops.logical_and(ended, found.log_probs > IMPOSSIBLE / 2)
            # Those that have not ended come first, both kinds in their order.
            later = ops.arange(count) + ops.where(ended, count, 0)
            order = ops.argsort(later, axis=1)[:, :size]  # -> (batch, size)
            candidates = Extensions(*found, ended)
            live.append([ops.take_along_axis(part, order, axis=1) for part in candidates])
            ending.append([part[:, :size] for part in candidates])
        parts = zip(*live, *ending, strict=True)
        # -> (batch, 2 * beam)
        return Extensions(*(ops.concatenate(part, axis=1) for part in parts))

    def _candidates(self, totals: LogProbs, size: int, count: int) -> list[Candidates]:
        """The `count` likeliest extensions of each group of `size` beams."""
        if self.num_groups == 1:
            return [top_extensions(totals, count)]
        found: list[Candidates] = []
        taken: Tensor = 0.0  # then (batch, 1, vocab), how often earlier groups chose a token
        for group in range(self.num_groups):
            own = totals[:, group * size : (group + 1) * size]  # -> (batch, size, vocab)
            lowered = own - self.diversity_penalty * taken
            _, parents, tokens = top_extensions(lowered, count)
            # -> (batch, size * vocab)
            flat_own = ops.reshape(own, (ops.shape(own)[0], size * own.shape[-1]))
            places = parents * own.shape[-1] + tokens
            log_probs = ops.take_along_axis(flat_own, places, axis=1)  # -> (batch, count)
            found.append(Candidates(log_probs, parents + group * size, tokens))
            # A group with few live extensions fills its choice with impossible ones.
            real = ops.cast(log_probs[:, :size] > IMPOSSIBLE / 2, "float32")[..., None]
            chosen = ops.one_hot(tokens[:, :size], own.shape[-1], dtype="float32")
            taken = taken + ops.sum(real * chosen, axis=1)[:, None, :]
        return found

    def _coverage_score(self, task: Task, coverage: Tensor) -> Tensor:
        """The coverage of each hypothesis, (batch, n), of sums of attention (batch, n, source)."""
        # Attention of exactly 0 happens by underflow and has no logarithm.
        missing = ops.log(ops.clip(coverage, 1e-9, 1.0))
        if task.source_mask is not None:
            missing = ops.where(task.source_mask[:, None, :], missing, 0.0)
        return self.coverage_penalty * ops.sum(missing, axis=-1)

    def _by_group(self, values: Tensor) -> Tensor:
        """Divides the beams, (batch, beam, ...), into (batch, groups, beam / groups, ...)."""
        size = self.beam_size // self.num_groups
        batch, _, *rest = ops.shape(values)
        # -> (batch, groups, beam / groups, ...)
        return ops.reshape(values, (batch, self.num_groups, size, *rest))

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        own = {
            "beam_size": self.beam_size,
            "length_penalty": self.length_penalty,
            "num_hypotheses": self.num_hypotheses,
            "coverage_penalty": self.coverage_penalty,
            "num_groups": self.num_groups,
            "diversity_penalty": self.diversity_penalty,
            "early_stopping": self.early_stopping,
            "length_formula": self.length_formula,
        }
        return {**super().get_config(), **own}
