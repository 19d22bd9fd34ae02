"""Sampling: draws tokens from the model's distribution."""

from typing import Any, Unpack

import keras
from keras import ops

from keras_transformer import arguments
from keras_transformer.arguments import Logits, LogProbs, Tensor
from keras_transformer.decoding.greedy_search import AppendingSearch
from keras_transformer.decoding.search import IMPOSSIBLE, DecodeResult, SearchOptions, Task
from keras_transformer.decoding.step_function import State, change_state

# A smaller temperature changes nothing more, and float32 rounds still smaller ones to 0.
SMALLEST_TEMPERATURE = 1e-30


def reorder(hypotheses: Tensor, order: Tensor) -> Tensor:
    """Returns `hypotheses` (batch, n, ...) with their second axis in the `order` (batch, m)."""
    # -> (batch, m, 1, ...)
    order = ops.reshape(order, (*ops.shape(order), *[1] * (len(hypotheses.shape) - 2)))
    return ops.take_along_axis(hypotheses, ops.cast(order, "int32"), axis=1)


def group_by_sentence(found: DecodeResult, batch_size: int | Tensor, samples: int) -> DecodeResult:
    """Returns the hypotheses of rows, (rows, 1, ...), as those of sentences, sorted by score."""
    if samples == 1:
        return found
    # -> (batch, samples, ...)
    by_sentence = DecodeResult(
        *(
            # -> (batch, samples, ...)
            None if part is None else ops.reshape(part, (batch_size, samples, *ops.shape(part)[2:]))
            for part in found
        )
    )
    order = ops.argsort(-by_sentence.scores, axis=1)
    return DecodeResult(*(None if part is None else reorder(part, order) for part in by_sentence))


@keras.saving.register_keras_serializable(package="keras_transformer")
class Sampling(AppendingSearch):
    """Draws each token from the model's distribution, which the options sharpen or cut.

    `token_t ~ q(token)`. `q` is `p ** (1 / temperature)`, normalised. It is cut in this order.
    First only the `top_k` likeliest tokens stay, then the smallest set of them that holds `top_p`
    of what is left. Then only tokens at least `min_p` times as likely as the likeliest stay.

    The scores are the model's: sums of `log p`, not of `log q`.

    `Search` describes how to call a search, and the options of every search.

    Args:
        temperature: below 1 sharpens, above 1 flattens.
        top_k: number of tokens to draw from; 0 for no limit.
        top_p: probability to draw from, in (0, 1] (nucleus sampling).
        min_p: smallest probability relative to the likeliest token's, in [0, 1).
        num_samples: hypotheses of each sentence, drawn independently.
        seed: an integer draws the same at every call for the same batch. A function that XLA
            compiles draws others than an eager call, because XLA has random numbers of its own.
            The numbers belong to the rows of a batch, whatever the rows hold. A `Translator` uses
            the same numbers for each of its batches. None draws anew, also in a compiled function
            on TensorFlow. An export holds the state of its generator: with None it draws the same
            after every load. Under `jax.jit` give an integer.
        **options: those of every search: `min_length`, `min_length_ratio`, `max_length_ratio`,
            `repetition_penalty`, `no_repeat_ngram_size`, `suppressed_ids`, `allowed_ids`,
            `return_alignments`, `renormalize`.

    Returns:
        A `DecodeResult` with `num_samples` hypotheses for each sentence, the likeliest first.

    Raises:
        ValueError: for a bad argument.

    Reference: Fan et al. 2018, "Hierarchical Neural Story Generation" (top-k); Holtzman et al.
    2019, "The Curious Case of Neural Text Degeneration" (top-p); Nguyen et al. 2024, "Turning Up
    the Heat: Min-p Sampling".

    Example:

    >>> from keras import ops
    >>> def step(tokens, index, state):
    ...     return ops.zeros((tokens.shape[0], 5)), state
    >>> search = Sampling(top_k=2, seed=1)
    >>> result = search(step, (), batch_size=1, max_length=4, bos_id=1, eos_id=3)
    >>> tuple(result.ids.shape)
    (1, 1, 4)
    """

    def __init__(
        self,
        temperature: float = 1.0,
        top_k: int = 0,
        top_p: float = 1.0,
        *,
        min_p: float = 0.0,
        num_samples: int = 1,
        seed: int | None = None,
        **options: Unpack[SearchOptions],
    ) -> None:
        super().__init__(**options)
        self.temperature = arguments.positive_number("temperature", temperature)
        self.top_k = arguments.non_negative_integer("top_k", top_k)
        self.top_p = arguments.positive_number("top_p", top_p)
        if self.top_p > 1:
            raise ValueError(f"`top_p` must be in (0, 1]. Received: top_p={top_p!r}")
        self.min_p = arguments.rate("min_p", min_p)
        self.num_samples = arguments.positive_integer("num_samples", num_samples)
        self.seed = None if seed is None else arguments.non_negative_integer("seed", seed)
        if seed is not None and seed >= 2**32:
            raise ValueError(f"`seed` must be below 2**32. Received: seed={seed}")
        self.seed_generator = keras.random.SeedGenerator(seed) if seed is None else None

    @property
    def rows_per_sentence(self) -> int:
        """Number of rows of each sentence in the loop: its samples."""
        return self.num_samples

    def run(self, task: Task, state: State) -> DecodeResult:
        """Draws `num_samples` hypotheses for each sentence, each in a row of its own."""
        batch_size, samples = task.batch_size, self.num_samples
        if samples > 1:
            of_sentences = {
                "max_lengths": task.max_lengths,
                "min_lengths": task.min_lengths,
                "prefix_ids": task.prefix_ids,
            }
            # Each sample is a sentence of the task: (batch * samples, ...).
            state, of_rows = change_state(
                lambda part: ops.repeat(part, samples, axis=0), (state, of_sentences)
            )
            task = task._replace(batch_size=batch_size * samples, **of_rows)
        # One number for each token, before the loop: a loop's body has no random state.
        seed = self.seed_generator if self.seed is None else self.seed
        shape = (task.batch_size, task.max_length)
        uniform = keras.random.uniform(shape, seed=seed, dtype="float32")

        def choose(log_probs: LogProbs, index: Tensor) -> Tensor:
            number = ops.take(uniform, ops.reshape(index, (1,)), axis=1)  # -> (rows, 1)
            return self._draw(self._sharpen(log_probs), number)

        found = self.append_tokens(task, state, choose)
        return group_by_sentence(found, batch_size, samples)

    def _sharpen(self, log_probs: LogProbs) -> Logits:
        """Log-probabilities divided by the temperature; the likeliest's is 0, forbidden -1e9."""
        best = ops.max(log_probs, axis=-1, keepdims=True)
        divided = (log_probs - best) / max(self.temperature, SMALLEST_TEMPERATURE)
        return ops.where(log_probs > IMPOSSIBLE / 2, divided, IMPOSSIBLE)

    def _draw(self, logits: Logits, uniform: Tensor) -> Tensor:
        """The token of each row that the number `uniform` (rows, 1) in [0, 1) selects."""
        order = None
        if self.top_k:
            size = min(self.top_k, logits.shape[-1])
            logits, order = ops.top_k(logits, size)  # -> (rows, size)
        elif self.top_p < 1:
            order = ops.argsort(-logits, axis=-1)
            logits = ops.take_along_axis(logits, order, axis=-1)
        # `ops.softmax` warns of a single token.
        odds = ops.exp(logits - ops.max(logits, axis=-1, keepdims=True))
        if self.top_p < 1:
            held = ops.cumsum(odds, axis=-1) - odds
            total = ops.sum(odds, axis=-1, keepdims=True)
            odds = ops.where(held < self.top_p * total, odds, 0.0)
        if self.min_p:
            odds = ops.where(odds >= self.min_p, odds, 0.0)  # the likeliest's are 1
        # Parallel sums round each in its own way. A token without odds may lie above the one
        # before it, and the last one below the total.
        upto = ops.where(odds > 0, ops.cumsum(odds, axis=-1), 0.0)
        most = ops.max(upto, axis=-1, keepdims=True)
        beyond = upto > uniform * most * (1 - 1e-6)
        place = ops.argmax(ops.cast(beyond, "int32"), axis=-1, keepdims=True)  # -> (rows, 1)
        if order is not None:
            place = ops.take_along_axis(order, place, axis=-1)
        return ops.cast(place[:, 0], "int32")

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        own = {
            "temperature": self.temperature,
            "top_k": self.top_k,
            "top_p": self.top_p,
            "min_p": self.min_p,
            "num_samples": self.num_samples,
            "seed": self.seed,
        }
        return {**super().get_config(), **own}
