"""The recurrent encoder-decoder with attention, which the Transformer came after."""

from typing import Any

import keras
from keras import ops

from keras_transformer import arguments
from keras_transformer.arguments import Ids, KerasSchedule, Logits, PaddingMask, Shape, Tensor
from keras_transformer.integer_ids import integer_ids
from keras_transformer.layers.dense import PositionwiseDense
from keras_transformer.layers.dropout import Dropout
from keras_transformer.layers.lookup import looked_up
from keras_transformer.layers.positions import position_range, read_length
from keras_transformer.layers.similarity_attention import SIMILARITIES, SimilarityAttention
from keras_transformer.masking import padding_mask
from keras_transformer.models.recurrent_step import RecurrentStep
from keras_transformer.models.scheduled_sampling import checked_share, mix_in_written, share_config
from keras_transformer.models.sequence_to_sequence import SequenceToSequence
from keras_transformer.models.vocabularies import pair_of_ids

CELLS = {"lstm": keras.layers.LSTM, "gru": keras.layers.GRU}
NUM_STATES = {"lstm": 2, "gru": 1}


def check_shapes(target: Shape, source: Shape, memory: Tensor) -> None:
    """Raises `ValueError` where the shapes, as far as known, are not of the same sentences."""
    batches, lengths = {target[0], source[0], memory[0]}, {source[1], memory[1]}
    if len(batches - {None}) > 1 or len(lengths - {None}) > 1:
        raise ValueError(
            "`target_ids` (batch, target), `source_ids` (batch, source) and `memory` (batch, "
            "source, d_model) must be of the same sentences. Received: shapes "
            f"{tuple(target)}, {tuple(source)} and {tuple(memory)}"
        )


def tokens_first(ids: Ids, is_token: PaddingMask) -> Ids:
    """Ids (batch, length) with the padding of each row, wherever it is, behind its tokens."""
    if 0 in ids.shape:
        return ids
    length = read_length(ids)
    places = position_range(length)
    order = ops.argsort(ops.where(is_token, places, places + length), axis=1)
    return ops.take_along_axis(ids, order, axis=1)


def in_their_places(states: Tensor, is_token: PaddingMask) -> Tensor:
    """States (batch, length, width) of `tokens_first` where the tokens were; padding has others."""
    if 0 in is_token.shape:
        return states
    batch, length, width = ops.shape(states)
    order = ops.maximum(ops.cumsum(ops.cast(is_token, "int32"), axis=1) - 1, 0)
    rows = order + length * ops.arange(batch, dtype="int32")[:, None]
    # -> (batch * length, width)
    flat = ops.reshape(states, (-1, states.shape[-1]))
    states = looked_up(flat, rows)  # each token's state in its place
    # -> (batch, length, width)
    return ops.reshape(states, (batch, length, width))


@keras.saving.register_keras_serializable(package="keras_transformer")
class RecurrentSeq2Seq(SequenceToSequence):
    """Maps source ids and the target ids so far to logits of the next target token.

    `m = BiRNN(embed(source))`, `s_t = RNN(embed(target_t), s_(t-1))`,
    `c_t = attention(s_t, m)`, `logits_t = tanh(W [s_t; c_t]) @ transpose(E_target)`

    The decoder begins with a projection of the encoder's last states. Without attention that is
    all it knows of the source: the bottleneck that attention was invented for.

    It is called, trained, searched, scored and exported as a `Transformer`, but not to LiteRT.

    Args:
        vocab_size: size of a joint vocabulary; or give the next two.
        source_vocab_size, target_vocab_size: sizes of separate vocabularies.
        num_layers: layers of the encoder, and of the decoder.
        d_model: width of embeddings and states, even: half of it for each direction.
        cell: "lstm" or "gru".
        attention: a similarity of `SimilarityAttention`, or None for no attention; alignments are
            then equal over the source.
        dropout: rate of the dropout on embeddings, between layers and before the logits.
        scheduled_sampling: share of the target's tokens that the decoder is given as it would
            have written them, in training; 0 is teacher forcing. Or a schedule of that share over
            the steps of the training, from `keras.optimizers.schedules`: a line from 0 to a
            quarter is `PolynomialDecay(0.0, decay_steps=20_000, end_learning_rate=0.25)`. The
            steps are this model's own training calls; `ExactResume` keeps their number, a
            `.keras` file does not.
        pad_id, bos_id, eos_id: the special ids of the tokenizers.

    Shapes:
        inputs: the pair of source_ids (batch, source) and target_ids (batch, target), integers or
        whole floats; the target starts with `bos_id`. Output: logits (batch, target, vocab).

    Returns:
        float32 logits, whatever the dtype policy.

    Raises:
        ValueError: for a bad argument, inputs that are not a pair, or ids that are neither integers
            nor whole floats.

    Masking: padding is found from `pad_id`, at any place of a row, and never reaches a state. A
        position's logits depend only on the real source tokens and the target tokens up to it.

    Reference: Sutskever et al. 2014 (without attention); Bahdanau et al. 2015; Luong et al. 2015
    (attention after the recurrent layer); Bengio et al. 2015 and Mihaylova and Martins 2019
    (scheduled sampling, in two passes).

    Example:

    >>> import numpy as np
    >>> model = RecurrentSeq2Seq(vocab_size=50, d_model=16)
    >>> source_ids, target_ids = np.array([[7, 8, 3]]), np.array([[2, 9]])
    >>> tuple(model((source_ids, target_ids)).shape)
    (1, 2, 50)
    >>> tuple(model.generate(source_ids, max_length=5).ids.shape)  # (batch, hypotheses, length)
    (1, 4, 5)
    """

    step_class = RecurrentStep

    def __init__(
        self,
        vocab_size: int | None = None,
        source_vocab_size: int | None = None,
        target_vocab_size: int | None = None,
        num_layers: int = 1,
        d_model: int = 256,
        *,
        cell: str = "lstm",
        attention: str | None = "additive",
        dropout: float = 0.1,
        scheduled_sampling: float | KerasSchedule = 0.0,
        pad_id: int = 0,
        bos_id: int = 2,
        eos_id: int = 3,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        sizes = (vocab_size, source_vocab_size, target_vocab_size)
        self._store_vocabularies(*sizes, pad_id=pad_id, bos_id=bos_id, eos_id=eos_id)
        self.num_layers = arguments.positive_integer("num_layers", num_layers)
        self.d_model = arguments.positive_integer("d_model", d_model)
        if self.d_model % 2:
            raise ValueError(
                f"`d_model` must be even, half for each direction. Received: d_model={d_model}"
            )
        self.cell = arguments.one_of("cell", cell, tuple(CELLS))
        self.attention = arguments.one_of("attention", attention, (None, *SIMILARITIES))
        self.dropout = arguments.rate("dropout", dropout)
        self.scheduled_sampling = checked_share(scheduled_sampling)
        self._create_layers()
        self.adopt()

    def _create_layers(self) -> None:
        options = {"dtype": self.dtype_policy}
        self.source_embedding, self.target_embedding = self._new_embeddings()
        numbers = range(self.num_layers)
        self.encoder_layers = [
            keras.layers.Bidirectional(
                self._recurrent(self.d_model // 2, "layer"), name=f"encoder_{number}", **options
            )
            for number in numbers
        ]
        for layer in self.encoder_layers if keras.backend.backend() == "tensorflow" else ():
            # `Bidirectional` makes them from a configuration, which knows nothing of cuDNN.
            layer.forward_layer.supports_jit = layer.backward_layer.supports_jit = True
        self.decoder_layers = [
            self._recurrent(self.d_model, f"decoder_{number}") for number in numbers
        ]
        # Layers of their own, so that each place draws its dropout from a stream of its own.
        self.encoder_dropouts, self.decoder_dropouts = (
            [Dropout(self.dropout, name=f"{side}_dropout_{n}", **options) for n in numbers]
            for side in ("encoder", "decoder")
        )
        self.output_dropout = Dropout(self.dropout, name="output_dropout", **options)
        states = self.num_layers * NUM_STATES[self.cell] * self.d_model
        self.bridge = PositionwiseDense(states, "tanh", name="bridge", **options)
        self.similarity_attention = self.combination = None
        if self.attention:
            self.similarity_attention = SimilarityAttention(
                self.attention, name="attention", **options
            )
            self.combination = PositionwiseDense(
                self.d_model, "tanh", name="combination", **options
            )
        if self.scheduled_sampling:
            self.sampling_seed = keras.random.SeedGenerator()

    def _recurrent(self, width: int, name: str) -> Any:
        """A recurrent layer, on TensorFlow without cuDNN.

        Keras's check before cuDNN refuses masks with a row of padding alone, which fills batches,
        and padding that is not on the right. The operation itself runs neither in XLA nor on a
        processor, where searches are compiled and exports served. Other backends take cuDNN for
        layers without a mask alone.
        """
        use_cudnn = False if keras.backend.backend() == "tensorflow" else "auto"
        return CELLS[self.cell](
            width, return_sequences=True, use_cudnn=use_cudnn, name=name, dtype=self.dtype_policy
        )

    def build_layers(self, hidden_shape: Shape) -> None:
        """Builds the layers that read vectors (batch, length, d_model)."""
        for layer in (*self.encoder_layers, *self.decoder_layers):
            layer.build(hidden_shape)
        self.bridge.build((None, self.d_model))
        if self.similarity_attention is not None and self.combination is not None:
            self.similarity_attention.build(hidden_shape, hidden_shape)
            self.combination.build((None, None, 2 * self.d_model))

    def call(self, inputs: tuple[Ids, Ids], training: bool | None = None) -> Logits:
        """Returns logits for the pair (source_ids, target_ids)."""
        source_ids, target_ids = pair_of_ids(inputs, self.vocabulary_sizes)
        memory = self.encode(source_ids, training=training)
        if training and self.scheduled_sampling:
            target_ids = self._sample_targets(target_ids, memory, source_ids)
        return self.decode(target_ids, memory, source_ids, training=training)

    def _sample_targets(self, target_ids: Ids, memory: Tensor, source_ids: Ids) -> Ids:
        """Returns the target with some tokens replaced by what the decoder would have written."""
        target_ids = integer_ids("target_ids", target_ids)
        logits = self.decode(target_ids, memory, source_ids, training=True)
        return mix_in_written(
            target_ids,
            logits,
            share=self.scheduled_sampling,
            seed=self.sampling_seed,
            pad_id=self.pad_id,
            bos_id=self.bos_id,
        )

    def encode(self, source_ids: Ids, training: bool | None = None) -> Tensor:
        """Returns the memory (batch, source, d_model) of `source_ids` (batch, source)."""
        self._build_once()
        source_ids = integer_ids("source_ids", source_ids, self.source_embedding.vocab_size)
        mask = padding_mask(source_ids, self.pad_id)
        hidden = self.source_embedding(source_ids)
        if 0 in source_ids.shape:  # a recurrent layer needs a step to take
            return hidden
        for layer, dropout in zip(self.encoder_layers, self.encoder_dropouts, strict=True):
            hidden = layer(dropout(hidden, training=training), mask=mask, training=training)
        return ops.where(ops.expand_dims(mask, -1), hidden, 0)

    def decode(
        self, target_ids: Ids, memory: Tensor, source_ids: Ids, training: bool | None = None
    ) -> Logits:
        """Returns float32 logits (batch, target, vocab); `source_ids` says what is padding."""
        hidden, _ = self._run_decoder(target_ids, memory, source_ids, training)
        return self.target_embedding.logits(hidden)

    def attention_weights(self, source_ids: Ids, target_ids: Ids) -> list[Tensor]:
        """Returns the weights over the source, (batch, 1, target, source), in a list of one layer.

        Without attention they are equal over the real tokens.
        """
        memory = self.encode(source_ids, training=False)
        _, weights = self._run_decoder(target_ids, memory, source_ids, False)
        return [ops.expand_dims(weights, 1)]

    def _run_decoder(
        self, target_ids: Ids, memory: Tensor, source_ids: Ids, training: bool | None
    ) -> tuple[Tensor, Tensor]:
        self._build_once()
        target_ids = integer_ids("target_ids", target_ids, self.target_embedding.vocab_size)
        mask = padding_mask(source_ids, self.pad_id)
        check_shapes(target_ids.shape, mask.shape, memory.shape)
        is_token = padding_mask(target_ids, self.pad_id)
        hidden = self.target_embedding(tokens_first(target_ids, is_token))
        states = self.first_states(memory, mask)
        layers = zip(self.decoder_layers, self.decoder_dropouts, states, strict=True)
        for layer, dropout, first in () if 0 in target_ids.shape else layers:
            hidden = dropout(hidden, training=training)
            # Without a mask, which would keep JAX and PyTorch from their fast kernels: where
            # padding ends a row, no state is read behind it.
            hidden = layer(hidden, initial_state=first, training=training)
        hidden = in_their_places(hidden, is_token)
        hidden, weights = self.attend(hidden, memory, mask)
        return self.output_dropout(hidden, training=training), weights

    def first_states(self, memory: Tensor, mask: PaddingMask) -> list[list[Tensor]]:
        """The decoder's states before the first token, a list of lists of (batch, d_model)."""
        states = self.bridge(self._last_states(memory, mask))
        parts = ops.split(states, self.num_layers * NUM_STATES[self.cell], axis=-1)
        each = NUM_STATES[self.cell]
        return [parts[start : start + each] for start in range(0, len(parts), each)]

    def _last_states(self, memory: Tensor, mask: PaddingMask) -> Tensor:
        """Where each direction of the encoder ended, (batch, d_model)."""
        half, source = self.d_model // 2, ops.shape(mask)[1]
        if 0 in mask.shape:
            return ops.zeros((ops.shape(mask)[0], self.d_model), memory.dtype)
        places = ops.arange(source, dtype="int32")
        # -> where each direction has read the last of the source, (batch, 1, 1)
        ends = [
            ops.reshape(ops.max(ops.where(mask, places, 0), axis=1), (-1, 1, 1)),
            ops.reshape(ops.min(ops.where(mask, places, source - 1), axis=1), (-1, 1, 1)),
        ]
        read = [
            ops.take_along_axis(part, ops.broadcast_to(end, (ops.shape(part)[0], 1, half)), axis=1)
            for part, end in zip((memory[..., :half], memory[..., half:]), ends, strict=True)
        ]
        return ops.concatenate(read, axis=-1)[:, 0]

    def attend(self, states: Tensor, memory: Tensor, mask: PaddingMask) -> tuple[Tensor, Tensor]:
        """What the logits are made of, (batch, target, d_model), and the weights of the source."""
        if self.similarity_attention is None or self.combination is None:
            weights = ops.cast(mask, "float32")
            weights = weights / ops.maximum(ops.sum(weights, axis=-1, keepdims=True), 1.0)
            shape = (*ops.shape(states)[:2], ops.shape(mask)[1])
            return states, ops.broadcast_to(ops.expand_dims(weights, 1), shape)
        context, weights = self.similarity_attention(
            states, memory, memory_mask=mask, return_attention_scores=True
        )
        return self.combination(ops.concatenate([states, context], axis=-1)), weights

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        own = {
            "num_layers": self.num_layers,
            "d_model": self.d_model,
            "cell": self.cell,
            "attention": self.attention,
            "dropout": self.dropout,
            "scheduled_sampling": share_config(self.scheduled_sampling),
        }
        return {**super().get_config(), **own}
