"""Beam search over a step function, with frozen finished hypotheses and an exact stop."""

import keras
from keras import ops

from keras_transformer import arguments
from keras_transformer.decoding.extensions import extensions
from keras_transformer.decoding.hypotheses import (
    Beams,
    Pool,
    Written,
    attention_of,
    best_of,
    paths_from,
    read_back,
)
from keras_transformer.decoding.search import IMPOSSIBLE, LARGEST_LENGTH_PENALTY, Search
from keras_transformer.decoding.step_function import (
    attention_width,
    change_state,
    flat,
    follows_paths,
    nest,
    run_step,
)


def length_normaliser(length, length_penalty):
    """`((5 + length) / 6) ** length_penalty` (Wu et al. 2016, equation 14)."""
    return ops.power((5.0 + ops.cast(length, "float32")) / 6.0, length_penalty)


@keras.saving.register_keras_serializable(package="keras_transformer")
class BeamSearch(Search):
    """Keeps the `beam_size` likeliest beginnings at every step, and the best finished hypotheses.

    `score = sum(log p(token_t)) / ((5 + length) / 6) ** length_penalty + coverage`,
    `coverage = coverage_penalty * sum_i(log(min(sum_t a(t, i), 1)))`, where `length` counts the
    tokens after `bos_id`, `eos_id` included, and `a(t, i)` is the attention of token t to
    position i of the source, padding left out; a sum is taken to be at least 1e-9

    At each step the live hypotheses are extended by every token. Those of the `beam_size`
    likeliest extensions that end in `eos_id`, or reach the maximum length, are finished: their
    score is frozen, and the best of them are kept. The likeliest ones that have not ended live
    on, `beam_size` of them among the `2 * beam_size` likeliest extensions. The search of a
    sentence stops when no live hypothesis can reach the score of the worst one kept, whatever it
    goes on with. Which other sentences are in the batch changes nothing. A beam of 1, or a group
    of 1, ends with its first finished hypothesis and so is greedy search; a beam as wide as the
    number of sequences finds the best of all.

    How a search is called, and the options that all have, are told at `Search`.

    Args:
        beam_size: number of live hypotheses.
        length_penalty: 0 compares sums of log-probabilities, larger values favour longer
            hypotheses; from 0 to 10.
        num_hypotheses: number of hypotheses returned; `beam_size` when None.
        coverage_penalty: how much it costs to leave source positions unread; from 0 to 1000. The
            step function must return its attention.
        num_groups: number of groups that the beam is divided into. A group is a beam of
            `beam_size / num_groups` that is extended after those before it.
        diversity_penalty: what it takes from an extension, when extensions are chosen, that each
            extension chosen by the groups before at this step has the same token; from 0 to 1000.
            Scores stay the model's. With 0 all groups find the same.
        early_stopping: False stops as described; True as soon as `beam_size` hypotheses are
            finished, of each group its share, which is sooner and may miss better ones.
        **options: those of every search: `min_length`, `min_length_ratio`, `max_length_ratio`,
            `repetition_penalty`, `no_repeat_ngram_size`, `suppressed_ids`, `allowed_ids`,
            `return_alignments`.

    Returns:
        A `DecodeResult` with `num_hypotheses` hypotheses for each sentence, all different.

    Raises:
        ValueError: for a bad argument.

    Reference: Wu et al. 2016, "Google's Neural Machine Translation System", section 7; Vaswani
    et al. 2017, section 6.1 (beam 4, length penalty 0.6); Vijayakumar et al. 2016, "Diverse Beam
    Search" (groups, Hamming diversity).

    Example:

    >>> from keras import ops
    >>> def step(tokens, index, state):
    ...     return ops.one_hot(ops.minimum(tokens + 1, 3), 5), state
    >>> search = BeamSearch(beam_size=2, length_penalty=0.0)
    >>> result = search(step, (), batch_size=1, max_length=4, bos_id=1, eos_id=3)
    >>> ops.convert_to_numpy(result.ids).tolist()
    [[[2, 3, 0, 0], [3, 0, 0, 0]]]
    """

    def __init__(
        self,
        beam_size=4,
        length_penalty=0.6,
        num_hypotheses=None,
        coverage_penalty=0.0,
        num_groups=1,
        diversity_penalty=0.0,
        early_stopping=False,
        **options,
    ):
        super().__init__(**options)
        self.beam_size = arguments.positive_integer("beam_size", beam_size)
        self.length_penalty = arguments.number_within(
            "length_penalty", length_penalty, 0, LARGEST_LENGTH_PENALTY
        )
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
        self.early_stopping = arguments.boolean("early_stopping", early_stopping)

    @property
    def rows_per_sentence(self):
        """Number of rows of each sentence in the loop: its beams."""
        return self.beam_size

    @property
    def slots_per_sentence(self):
        """Number of slots of each sentence in the first state of a step that follows paths."""
        return self.beam_size

    @property
    def needs_attention(self):
        """Whether the step must return its attention to the source."""
        return self.return_alignments or self.coverage_penalty > 0

    def run(self, task, state):
        """Extends the beams of all sentences until none can win any more."""
        start = self._first_beams(task, state)
        longest = length_normaliser(task.limits[:, None], self._length_penalty(task))

        def unfinished(now):
            return ops.logical_and(now.index < task.max_length, ops.any(self._active(now, longest)))

        def advance(now):
            return self._next_beams(task, now, self._active(now, longest))

        end = self.loop(unfinished, advance, start)
        return read_back(self, task, end.pool, end.written)

    def loop(self, unfinished, advance, beams):
        """Advances the `Beams` while they are unfinished; a subclass may look at every step."""
        end = ops.while_loop(
            lambda *now: unfinished(nest(beams, now)),
            lambda *now: flat(advance(nest(beams, now))),
            flat(beams),
        )
        return nest(beams, end)

    def _first_beams(self, task, state):
        """Nothing finished, one live beam a group."""
        beams, groups = self.beam_size, self.num_groups
        if not follows_paths(task.step):
            state = change_state(lambda part: ops.repeat(part, beams, axis=0), state)
        # The beams of a group are all alike at first, so only one of them is live.
        live = ops.arange(beams) % (beams // groups) == 0
        log_probs = ops.where(live, 0.0, IMPOSSIBLE)[None, :]
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

    def _length_penalty(self, task):
        """The length penalty: a number, or (batch, 1) where sentences have their own."""
        return self.length_penalty if task.length_penalty is None else task.length_penalty[:, None]

    def _active(self, now, longest):
        """Groups (batch, groups) in which a live hypothesis can still be among the best."""
        best_live = ops.max(self._by_group(now.log_probs), axis=-1, initial=2 * IMPOSSIBLE)
        worst_kept = ops.min(now.pool.scores, axis=-1, initial=0.0)
        alive = best_live > IMPOSSIBLE / 2
        if self.early_stopping:
            return ops.logical_and(alive, worst_kept <= IMPOSSIBLE / 2)
        # A log-probability only falls, the largest normaliser brings it nearest to 0, and
        # coverage at best costs nothing.
        return ops.logical_and(alive, best_live / longest > worst_kept)

    def _next_beams(self, task, now, active):
        batch, beams = task.batch_size, self.beam_size
        logits, state, attention = run_step(
            task.step, now.tokens, now.index, now.state, now.paths, self.needs_attention
        )
        own = self.next_log_probs(task, now, logits)
        # Twice as many as there are beams: those that live on, and then those that may have ended.
        log_probs, parents, tokens, ended = extensions(
            self, task, now.index + 1, now.log_probs[..., None] + own
        )
        gained = log_probs - ops.take_along_axis(now.log_probs, parents, axis=1)
        log_probs = ops.maximum(log_probs, IMPOSSIBLE)

        index = now.index + 1
        written = now.written.with_position(
            index, tokens, gained, attention_of(attention, parents, beams)
        )
        coverage = now.coverage
        scores = log_probs / length_normaliser(index, self._length_penalty(task))
        if coverage is not None:
            coverage = coverage + ops.reshape(attention, ops.shape(coverage))
            coverage = ops.take_along_axis(coverage, parents[..., None], axis=1)
            scores = scores + self._coverage_score(task, coverage)
            coverage = coverage[:, :beams]
        paths = paths_from(now.paths, parents, index)
        entering = ops.logical_and(self._by_group(ended[:, beams:]), active[..., None])
        new = Pool(
            self._by_group(paths[:, beams:]),
            ops.where(entering, self._by_group(scores[:, beams:]), IMPOSSIBLE),
            ops.where(entering, index, 0),
        )
        if not follows_paths(task.step):
            rows = parents[:, :beams] + ops.arange(batch, dtype="int32")[:, None] * beams
            rows = ops.reshape(rows, (-1,))
            state = change_state(lambda part: ops.take(part, rows, axis=0), state)
        return Beams(
            index=index,
            tokens=ops.reshape(tokens[:, :beams], (-1,)),
            log_probs=ops.where(ended[:, :beams], IMPOSSIBLE, log_probs[:, :beams]),
            paths=paths[:, :beams],
            coverage=coverage,
            written=written,
            pool=best_of(now.pool, new),
            state=state,
        )

    def next_log_probs(self, task, now, logits):
        """Log-probabilities (batch, beam, vocab) of what may follow; a subclass may look."""
        own = self.apply_rules(
            task, logits, now.index, lambda: now.written.tokens_of(now.paths, task), self.beam_size
        )
        return ops.reshape(own, (task.batch_size, self.beam_size, own.shape[-1]))

    def _coverage_score(self, task, coverage):
        """The coverage of each beam (batch, beam), 0 at best."""
        # Attention of exactly 0 happens (underflow) and has no logarithm.
        missing = ops.log(ops.clip(coverage, 1e-9, 1.0))
        if task.source_mask is not None:
            missing = ops.where(task.source_mask[:, None, :], missing, 0.0)
        return self.coverage_penalty * ops.sum(missing, axis=-1)

    def _by_group(self, beams):
        """(batch, beam, ...) as (batch, groups, beam / groups, ...)."""
        size = self.beam_size // self.num_groups
        batch, _, *rest = ops.shape(beams)
        return ops.reshape(beams, (batch, self.num_groups, size, *rest))

    def get_config(self):
        """Returns the constructor's arguments."""
        own = {
            "beam_size": self.beam_size,
            "length_penalty": self.length_penalty,
            "num_hypotheses": self.num_hypotheses,
            "coverage_penalty": self.coverage_penalty,
            "num_groups": self.num_groups,
            "diversity_penalty": self.diversity_penalty,
            "early_stopping": self.early_stopping,
        }
        return {**super().get_config(), **own}
