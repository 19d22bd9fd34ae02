"""What all models from source ids to target ids share: training, search and scores."""

import functools
import inspect
from collections.abc import Callable
from typing import Any, Protocol

import keras
from keras import ops

from keras_transformer import arguments
from keras_transformer.arguments import Ids, Length, PaddingMask, Shape, Tensor
from keras_transformer.decoding import BeamSearch, DecodeResult, Search
from keras_transformer.decoding.call_arguments import per_sentence
from keras_transformer.decoding.step_function import PlainStep, State
from keras_transformer.layers import TokenEmbedding
from keras_transformer.layers.candidate_logits import CandidateLogits
from keras_transformer.layers.composite import Composite
from keras_transformer.losses import MaskedCrossentropy, token_crossentropy
from keras_transformer.masking import boolean_mask, combine_masks, padding_mask
from keras_transformer.models.scoring import ScoreResult, check_alike, shift_right
from keras_transformer.models.vocabularies import (
    check_special_ids,
    checked_vocabularies,
    token_ids,
)
from keras_transformer.replicas import refuse_accumulation

# Vaswani et al. 2017, section 6.1: outputs may be this much longer than their source.
EXTRA_LENGTH = 50


def length_within(last: int | None, max_length: int) -> int:
    """Returns `max_length`, or raises `ValueError` when a model's positions end before it."""
    max_length = arguments.positive_integer("max_length", max_length)
    if last is not None and max_length > last:
        raise ValueError(
            f"`max_length` must be at most {last}, the model's last position. "
            f"Received: max_length={max_length}"
        )
    return max_length


class ModelStep(PlainStep, Protocol):
    """The step function of a model, made for one batch, and the state before its first token.

    A step with a cache makes room for `max_length` positions and `beam_size` hypotheses. A step
    whose state has one size ignores both.
    """

    def __init__(
        self,
        model: Any,
        source_ids: Ids,
        memory: Tensor,
        max_length: Length,
        candidate_logits: CandidateLogits | None = None,
    ) -> None:
        """Keeps what all steps read."""

    def first_state(self, beam_size: int) -> State:
        """Returns the state before the first token."""


class SequenceToSequence(Composite, keras.Model):
    """A model that is called with (source_ids, target_ids) and encodes and decodes apart.

    A subclass has `encode`, `build_layers` and a `step_class` for searches, and makes the two
    embeddings.
    """

    # What a subclass makes.
    step_class: type[ModelStep]
    source_embedding: TokenEmbedding
    target_embedding: TokenEmbedding
    d_model: int

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.autocast = False  # it would round ids that are floats

    @property
    def input_dtype(self) -> str:
        """The dtype of ids in what Keras exports; its own choice is the compute dtype."""
        return "int32"

    @property
    def vocabulary_sizes(self) -> tuple[int, int]:
        """The sizes of the source's and the target's vocabulary."""
        if self.vocab_size:
            return self.vocab_size, self.vocab_size
        return self.source_vocab_size, self.target_vocab_size

    @property
    def longest_source(self) -> int | None:
        """The most tokens of a source that the model has positions for; None for no limit."""
        return None

    @property
    def longest_target(self) -> int | None:
        """The most tokens of a target that the model has positions for; None for no limit."""
        return None

    def _store_vocabularies(
        self,
        *sizes: int | None,
        pad_id: int,
        bos_id: int,
        eos_id: int,
        bos_may_be_pad: bool = False,
    ) -> None:
        """Checks and stores the sizes, joint or source and target, and the three special ids."""
        joint, source, target = checked_vocabularies(*sizes)
        self.vocab_size, self.source_vocab_size, self.target_vocab_size = joint, source, target
        self.pad_id = arguments.non_negative_integer("pad_id", pad_id)
        self.bos_id = arguments.non_negative_integer("bos_id", bos_id)
        self.eos_id = arguments.non_negative_integer("eos_id", eos_id)
        special_ids = (self.pad_id, self.bos_id, self.eos_id)
        check_special_ids(*special_ids, min(self.vocabulary_sizes), bos_may_be_pad=bos_may_be_pad)

    def _new_embeddings(
        self, output_options: dict[str, Any] | None = None, **embedding_options: Any
    ) -> tuple[TokenEmbedding, ...]:
        """The source's and the target's embedding: one of a joint vocabulary, or one for each.

        One layer ties the source, the target and the output (Vaswani et al. 2017, section 3.4).
        The embedding of the target makes the logits and gets `output_options` too.
        """
        output_options = output_options or {}
        # The model tells where padding is, not the embedding: a start may be padding, and one mask
        # is given from layer to layer.
        options = {"d_model": self.d_model, "pad_id": None, "dtype": self.dtype_policy}
        options |= embedding_options
        if self.vocab_size:
            options |= output_options
            return 2 * (TokenEmbedding(self.vocab_size, name="embedding", **options),)
        source_size, target_size = self.vocabulary_sizes
        return (
            TokenEmbedding(source_size, name="source_embedding", **options),
            TokenEmbedding(target_size, name="target_embedding", **options | output_options),
        )

    def build(self, input_shape: Shape | None = None) -> None:
        """Builds every layer; their shapes follow from the constructor's arguments."""
        if self.built:
            return
        for embedding in (self.source_embedding, self.target_embedding):
            if not embedding.built:
                embedding.build((None, None))
        self.build_layers((None, None, self.d_model))
        self.built = True
        self.adopt()

    def build_layers(self, hidden_shape: Shape) -> None:
        """Builds the layers that read vectors (batch, length, d_model); each model has its own."""
        raise NotImplementedError

    def _build_once(self) -> None:
        # On PyTorch Keras's `build` lists the parameters anew, and inside a call with mixed
        # precision it would list half-precision copies, whose gradients nobody resets.
        if not self.built:
            self.build()

    def _post_build(self) -> None:
        # What Keras's exports read: `build` may have got no shape, and a call that of one batch.
        super()._post_build()
        self._build_shapes_dict = {"input_shape": ((None, None), (None, None))}

    @functools.wraps(keras.Model.fit)
    def fit(self, *args: Any, **kwargs: Any) -> Any:
        """Trains as Keras's `fit`, without `class_weight`."""
        self._refuse_untrainable(keras.Model.fit, args, kwargs)
        self._check_smoothing()
        return super().fit(*args, **kwargs)

    @functools.wraps(keras.Model.train_on_batch)
    def train_on_batch(self, *args: Any, **kwargs: Any) -> Any:
        """Trains as Keras's `train_on_batch`, without `class_weight`."""
        self._refuse_untrainable(keras.Model.train_on_batch, args, kwargs)
        return super().train_on_batch(*args, **kwargs)

    def make_train_function(self, force: bool = False) -> Callable[..., Any]:
        """Makes all variables before the training step, which TensorFlow would else trace twice."""
        if keras.backend.backend() == "tensorflow":
            with self.distribute_strategy.scope():
                self._build_once()
                self.optimizer.build(self.trainable_variables)
        return super().make_train_function(force)

    def _refuse_untrainable(self, method: Any, args: Any, kwargs: Any) -> None:
        """Raises `ValueError` where Keras would train by wrong weights, or fail without a reason.

        Not in `compile`: Keras does not call one that is overridden when it loads a model.
        """
        given = inspect.signature(method).bind(self, *args, **kwargs).arguments
        class_weight = given.get("class_weight")
        if class_weight is not None:
            raise ValueError(
                "`class_weight` must be None. Keras takes labels (batch, length) for one-hot "
                "vectors and weighs each sentence by the position of its largest id. Give "
                "`sample_weight=weight_of_id[labels]` instead. "
                f"Received: class_weight={class_weight!r}"
            )
        if keras.backend.backend() == "tensorflow":
            optimizer = getattr(self, "optimizer", None)  # without `compile` Keras raises
            optimizer = getattr(optimizer, "inner_optimizer", optimizer)
            refuse_accumulation(optimizer, self.distribute_strategy.num_replicas_in_sync)

    @property
    def unused_ids(self) -> tuple[int, ...]:
        """The ids that the model never writes; none but for some imports."""
        return ()

    def _check_smoothing(self) -> None:
        """Raises `ValueError` for a loss whose label smoothing counts ids of no token."""
        loss = getattr(self, "loss", None)  # without `compile` Keras raises
        if not isinstance(loss, MaskedCrossentropy) or not loss.label_smoothing:
            return
        if missing := set(self.unused_ids) - set(loss.unused_ids):
            raise ValueError(
                f"`unused_ids` of the loss must have the {len(missing)} ids that this model never "
                "writes, or label smoothing counts them: "
                "MaskedCrossentropy(..., unused_ids=model.unused_ids). "
                f"Received: unused_ids={list(loss.unused_ids)!r:.200}"
            )

    def encode(self, source_ids: Ids, training: bool | None = None) -> Tensor:
        """Returns the memory (batch, source, d_model) of `source_ids`; each model implements it."""
        raise NotImplementedError

    def generate(
        self,
        source_ids: Ids,
        search: Callable[..., DecodeResult] | None = None,
        max_length: int | None = None,
        *,
        prefix_ids: Ids | None = None,
        length_limits: Tensor | None = None,
        length_penalty: Tensor | None = None,
        candidate_ids: Ids | None = None,
    ) -> DecodeResult:
        """Searches for the best outputs, one cached step a token.

        The best is that of the largest score: of a beam `log p(output | source)`, divided by
        `((5 + length) / 6) ** length_penalty`.

        Runs as it stands, operation by operation; on JAX the loop is compiled at every call. To
        translate many batches of a few shapes, compile it once:
        `tf.function(model.generate, jit_compile=True, autograph=False)`, or on JAX `jax.jit`.
        `serving.Translator` does so. AutoGraph would make the trace take four times as long.

        Args:
            source_ids: integers (batch, source), `eos_id` and padding included.
            search: a search of `keras_transformer.decoding`; `BeamSearch()` when None.
            max_length: largest number of output tokens, `eos_id` included; when None, 50 more
                than the source has, padding not counted, as in the paper. It is at most
                `longest_target`.
            prefix_ids: integers (batch, prefix), padded, with which the outputs must begin.
            length_limits: integers (batch,), each at least 1, a maximum length for each sentence
                within `max_length`.
            length_penalty: numbers (batch,), each from 0 to 10, in place of the beam search's own.
            candidate_ids: different integers (candidates,), the tokens that outputs may have,
                `eos_id` among them; all when None. Of the others, the logits of a sample alone
                are computed. A `Shortlist` of `keras_transformer.decoding` chooses them.

        Returns:
            A `DecodeResult`; alignments are the last decoder layer's, the mean of its heads.

        Raises:
            ValueError: for a bad argument. Ids that the vocabulary does not have, and numbers out
                of their bounds, are refused in lists and NumPy arrays; tensors are not read.

        Reference: Vaswani et al. 2017, section 6.1; Wu et al. 2016, section 7.

        Example:

        >>> import numpy as np
        >>> from keras_transformer import BeamSearch, Transformer
        >>> model = Transformer(vocab_size=50, num_layers=1, d_model=16, num_heads=2, d_ff=32)
        >>> source_ids = np.array([[7, 8, 3], [9, 3, 0]])
        >>> result = model.generate(source_ids, BeamSearch(num_hypotheses=2), max_length=5)
        >>> tuple(result.ids.shape)
        (2, 2, 5)
        """
        search = BeamSearch() if search is None else search
        if not callable(search) or isinstance(search, type):
            raise ValueError(
                "`search` must be a search of `keras_transformer.decoding`, such as "
                f"`BeamSearch()`. Received: search={search!r}"
            )
        source_ids = token_ids("source_ids", source_ids, self.vocabulary_sizes[0])
        is_token = padding_mask(source_ids, self.pad_id)
        source_lengths = ops.sum(ops.cast(is_token, "int32"), axis=1)
        if max_length is None:
            max_length, length_limits = self._paper_limits(
                source_ids, source_lengths, length_limits
            )
        else:
            max_length = length_within(self.longest_target, max_length)
        memory = self.encode(source_ids, training=False)
        candidate_logits = None
        if candidate_ids is not None:
            candidate_ids = token_ids(
                "candidate_ids", candidate_ids, self.vocabulary_sizes[1], ("candidates",)
            )
            candidate_logits = CandidateLogits(self.target_embedding, candidate_ids, self.pad_id)
        step = self.step_class(self, source_ids, memory, max_length, candidate_logits)
        # Any callable may search, not a `Search` alone; another one has one slot for a sentence.
        slots = search.slots_per_sentence if isinstance(search, Search) else 1
        return search(
            step,
            step.first_state(slots),
            batch_size=ops.shape(source_ids)[0],
            max_length=max_length,
            bos_id=self.bos_id,
            eos_id=self.eos_id,
            pad_id=self.pad_id,
            length_limits=length_limits,
            source_lengths=source_lengths,
            source_mask=is_token,
            prefix_ids=prefix_ids,
            length_penalty=length_penalty,
        )

    def _paper_limits(
        self, source_ids: Ids, source_lengths: Tensor, length_limits: Tensor | None
    ) -> tuple[int | Tensor, Tensor]:
        """Returns the largest length of the batch and of each sentence, without a `max_length`."""
        batch_size, source_length = ops.shape(source_ids)
        limits = self.limit_lengths(source_lengths)
        if length_limits is not None:
            own = per_sentence("length_limits", length_limits, batch_size, dtype="int32", least=1)
            limits = ops.minimum(limits, own)
        return self.limit_lengths(source_length), limits

    def limit_lengths(
        self, source_lengths: int | Tensor, max_length: int | None = None
    ) -> int | Tensor:
        """Returns the largest lengths of outputs: `max_length`, or 50 more than their sources have.

        `source_lengths` are numbers of tokens, `eos_id` included: an integer, or a tensor of any
        shape. Where they decide, no output is longer than `longest_target`.
        """
        if max_length is not None:
            return max_length
        limits = source_lengths + EXTRA_LENGTH
        if self.longest_target is None:
            return limits
        # An integer stays one: JAX takes only integers for a shape.
        least_of = min if isinstance(limits, int) else ops.minimum
        return least_of(limits, self.longest_target)

    def score(
        self, source_ids: Ids, target_ids: Ids, label_mask: PaddingMask | None = None
    ) -> ScoreResult:
        """Log-probabilities of given outputs; `ScoreResult` has the formulas and an example.

        Args:
            source_ids: integers (batch, source), `eos_id` and padding included.
            target_ids: integers (batch, target) without `bos_id`, as a search returns them.
            label_mask: (batch, target) boolean, True at the tokens that count; all when None.
                Padding never counts.

        Returns:
            The log-probability of each token and of each output, and its perplexity.

        Raises:
            ValueError: for ids that are neither integers nor whole floats, a mask of floats, or
                shapes that do not go together. For ids of lists and NumPy arrays that are not of
                the vocabulary.
        """
        source_size, target_size = self.vocabulary_sizes
        source_ids = token_ids("source_ids", source_ids, source_size)
        target_ids = token_ids("target_ids", target_ids, target_size)
        check_alike("source_ids", source_ids.shape[:1], "target_ids", target_ids.shape[:1])
        counted = padding_mask(target_ids, self.pad_id)
        inputs = shift_right(target_ids, counted, self.bos_id, self.pad_id)
        if label_mask is not None:
            label_mask = boolean_mask("label_mask", label_mask)
            check_alike("label_mask", label_mask.shape, "target_ids", target_ids.shape)
            counted = combine_masks(counted, label_mask)
        logits = self((source_ids, inputs), training=False)
        token_log_probs = ops.where(counted, -token_crossentropy(target_ids, logits), 0.0)
        lengths = ops.sum(ops.cast(counted, "int32"), axis=1)
        log_prob = ops.sum(token_log_probs, axis=1)
        tokens = ops.cast(ops.maximum(lengths, 1), "float32")
        return ScoreResult(token_log_probs, log_prob, lengths, ops.exp(-log_prob / tokens))

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments that every model has."""
        own = {
            "vocab_size": self.vocab_size,
            "source_vocab_size": self.source_vocab_size,
            "target_vocab_size": self.target_vocab_size,
            "pad_id": self.pad_id,
            "bos_id": self.bos_id,
            "eos_id": self.eos_id,
        }
        return {**super().get_config(), **own}
