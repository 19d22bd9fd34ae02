"""The Transformer: encoder, decoder, embeddings and output, as a Keras model."""

from typing import Any

import keras
import numpy as np
from keras import ops

from keras_transformer import arguments
from keras_transformer.arguments import Activation, Ids, Logits, PaddingMask, Shape, Tensor
from keras_transformer.integer_ids import integer_ids
from keras_transformer.layers import Decoder, Encoder, PositionalEncoding
from keras_transformer.layers.decoder import DecoderStates
from keras_transformer.layers.dropout import Dropout
from keras_transformer.layers.encoder import EncoderStates
from keras_transformer.layers.feed_forward import activation_config, checked_activation
from keras_transformer.layers.positions import (
    AddedPosition,
    AttentionPosition,
    Position,
    checked_position,
    position_config,
)
from keras_transformer.layers.residual import NORM_EPSILON, normalization
from keras_transformer.losses import MaskedCrossentropy
from keras_transformer.masking import padding_mask
from keras_transformer.models.sequence_to_sequence import SequenceToSequence
from keras_transformer.models.transformer_step import TransformerStep
from keras_transformer.models.vocabularies import pair_of_ids

LEAST_BIAS = -1e8  # of a token that an output may have


def checked_size(name: str, own: int | None, common: int) -> int:
    """Returns a size of the encoder or of the decoder: its own, or the common one for None."""
    return common if own is None else arguments.positive_integer(name, own)


@keras.saving.register_keras_serializable(package="keras_transformer")
class Transformer(SequenceToSequence):
    """Maps source ids and the target ids so far to logits of the next target token.

    `logits = decoder(embed(target) + PE, encoder(embed(source) + PE)) @ transpose(E_target)`

    With one `vocab_size` source, target and output share one matrix; with two vocabularies
    target and output do.

    Args:
        vocab_size: size of a joint vocabulary; or give the next two.
        source_vocab_size, target_vocab_size: sizes of separate vocabularies.
        num_layers: layers of the encoder, and of the decoder.
        d_model: width of the model.
        num_heads: heads of each attention; must divide d_model.
        d_ff: inner width of the feed-forward networks.
        num_encoder_layers, num_encoder_heads, encoder_d_ff: those of the encoder alone;
            `num_layers`, `num_heads` and `d_ff` when None.
        num_decoder_layers, num_decoder_heads, decoder_d_ff: those of the decoder.
        dropout: rate of the dropout on sub-layers' outputs and on embeddings with positions.
        norm_first: normalise before each sub-layer instead of after it.
        activation: of the feed-forward networks, as in `FeedForward`.
        pad_id, bos_id, eos_id: the special ids of the tokenizers. `bos_id`, with which targets
            start, may be `pad_id` or `eos_id`; the first token of a target never is padding.
        scale_embeddings: whether embeddings are multiplied by sqrt(d_model).
        tie_output: whether logits use the target's embeddings, as in the paper, or an output
            matrix of their own.
        logits_bias: whether each token of the output has a trained bias.
        embedding_norm: whether embeddings with positions are normalised, before their dropout.
        norm_epsilon: of every normalisation, as in `EncoderLayer`.
        position: how positions are told apart. `PositionalEncoding()` (the paper's, for None) and
            `LearnedPositionalEncoding(max_length)` are added to the embeddings;
            `RotaryPositionalEncoding()`, `RelativePositionBias()` and `ALiBi()` act in
            self-attention instead. Encoder and decoder get one each with its settings.
        embedding_dropout: rate of the dropout on embeddings with positions; `dropout` when None.
        attention_dropout, feed_forward_dropout, rms_norm, num_key_value_heads, window: as in
            `EncoderLayer`.
        remat: as in `Encoder`.
        r_drop: weight of R-drop, at least 0. Above 0 `fit` runs each batch through two draws of
            the dropout, at about twice the cost, and brings their predictions p and q together:
            `loss = (CE(p) + CE(q)) / 2 + r_drop / 4 * (KL(p || q) + KL(q || p))`, each a mean over
            real tokens. It needs `MaskedCrossentropy`; metrics see the first draw.

    Shapes:
        inputs: the pair of source_ids (batch, source) and target_ids (batch, target), integers or
        whole floats; the target starts with `bos_id`. Output: logits (batch, target, vocab).

    Returns:
        float32 logits, whatever the dtype policy.

    Raises:
        ValueError: for a bad argument, inputs that are not a pair, or ids that are neither integers
            nor whole floats.

    Masking: padding is found from `pad_id`; a position's logits depend on the real source
    tokens and on the target tokens up to it alone.

    Reference: Vaswani et al. 2017, "Attention Is All You Need"; Liang et al. 2021, "R-Drop:
    Regularized Dropout for Neural Networks", equation 4 (halved); Liu et al. 2020, "Multilingual
    Denoising Pre-training for Neural Machine Translation", section 2.1 (`embedding_norm`).

    Example:

    >>> import numpy as np
    >>> model = Transformer(vocab_size=50, num_layers=1, d_model=16, num_heads=2, d_ff=32)
    >>> source_ids, target_ids = np.array([[7, 8, 3]]), np.array([[2, 9]])
    >>> tuple(model((source_ids, target_ids)).shape)
    (1, 2, 50)
    >>> tuple(model.generate(source_ids, max_length=5).ids.shape)  # (batch, hypotheses, length)
    (1, 4, 5)
    """

    step_class = TransformerStep

    def __init__(
        self,
        vocab_size: int | None = None,
        source_vocab_size: int | None = None,
        target_vocab_size: int | None = None,
        num_layers: int = 6,
        d_model: int = 512,
        *,
        num_heads: int = 8,
        d_ff: int = 2048,
        dropout: float = 0.1,
        norm_first: bool = False,
        activation: Activation = "relu",
        pad_id: int = 0,
        bos_id: int = 2,
        eos_id: int = 3,
        position: Position | None = None,
        num_encoder_layers: int | None = None,
        num_decoder_layers: int | None = None,
        num_encoder_heads: int | None = None,
        num_decoder_heads: int | None = None,
        encoder_d_ff: int | None = None,
        decoder_d_ff: int | None = None,
        scale_embeddings: bool = True,
        tie_output: bool = True,
        logits_bias: bool = False,
        embedding_norm: bool = False,
        norm_epsilon: float = NORM_EPSILON,
        embedding_dropout: float | None = None,
        attention_dropout: float = 0.0,
        feed_forward_dropout: float = 0.0,
        rms_norm: bool = False,
        num_key_value_heads: int | None = None,
        window: int | None = None,
        remat: bool = False,
        r_drop: float = 0.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        sizes = (vocab_size, source_vocab_size, target_vocab_size)
        special_ids = {"pad_id": pad_id, "bos_id": bos_id, "eos_id": eos_id}
        self._store_vocabularies(*sizes, **special_ids, bos_may_be_pad=True)
        self.num_layers = arguments.positive_integer("num_layers", num_layers)
        self.d_model = arguments.positive_integer("d_model", d_model)
        self.num_heads = arguments.positive_integer("num_heads", num_heads)
        self.d_ff = arguments.positive_integer("d_ff", d_ff)
        self.dropout = arguments.rate("dropout", dropout)
        self.norm_first = arguments.boolean("norm_first", norm_first)
        self.activation = checked_activation(activation)
        layers, heads, width = self.num_layers, self.num_heads, self.d_ff
        self.num_encoder_layers = checked_size("num_encoder_layers", num_encoder_layers, layers)
        self.num_decoder_layers = checked_size("num_decoder_layers", num_decoder_layers, layers)
        self.num_encoder_heads = checked_size("num_encoder_heads", num_encoder_heads, heads)
        self.num_decoder_heads = checked_size("num_decoder_heads", num_decoder_heads, heads)
        self.encoder_d_ff = checked_size("encoder_d_ff", encoder_d_ff, width)
        self.decoder_d_ff = checked_size("decoder_d_ff", decoder_d_ff, width)
        self.scale_embeddings = arguments.boolean("scale_embeddings", scale_embeddings)
        self.tie_output = arguments.boolean("tie_output", tie_output)
        self.logits_bias = arguments.boolean("logits_bias", logits_bias)
        self.embedding_norm = arguments.boolean("embedding_norm", embedding_norm)
        self.norm_epsilon = arguments.positive_number("norm_epsilon", norm_epsilon)
        rate = self.dropout if embedding_dropout is None else embedding_dropout
        self.embedding_dropout = arguments.rate("embedding_dropout", rate)
        self.attention_dropout = arguments.rate("attention_dropout", attention_dropout)
        self.feed_forward_dropout = arguments.rate("feed_forward_dropout", feed_forward_dropout)
        self.rms_norm = arguments.boolean("rms_norm", rms_norm)
        self.num_key_value_heads = arguments.optional(
            arguments.positive_integer, "num_key_value_heads", num_key_value_heads
        )
        self.window = arguments.optional(arguments.non_negative_integer, "window", window)
        self.remat = arguments.boolean("remat", remat)
        self.r_drop = arguments.non_negative_number("r_drop", r_drop)
        position = PositionalEncoding() if position is None else position
        self._create_layers(checked_position(position, self.dtype_policy))
        self.adopt()

    def _create_layers(self, position: AddedPosition | AttentionPosition | None) -> None:
        dtype = self.dtype_policy
        self.source_embedding, self.target_embedding = self._new_embeddings(
            {"tie_output": self.tie_output, "logits_bias": self.logits_bias},
            scale=self.scale_embeddings,
        )
        self.source_norm = self.target_norm = None
        if self.embedding_norm:
            self.source_norm, self.target_norm = (
                normalization(self.rms_norm, self.norm_epsilon, dtype=dtype, name=f"{side}_norm")
                for side in ("source", "target")
            )
        # Layers of their own, so that source and target draw their dropout from two streams.
        self.source_dropout, self.target_dropout = (
            Dropout(self.embedding_dropout, dtype=dtype, name=f"{side}_dropout")
            for side in ("source", "target")
        )
        self.source_positions = self.target_positions = None
        added = isinstance(position, AddedPosition)
        if added:
            self.source_positions = self._own_position(position, "source_positions")
            self.target_positions = self._own_position(position, "target_positions")
        options = {
            "dropout": self.dropout,
            "norm_first": self.norm_first,
            "activation": self.activation,
            "attention_dropout": self.attention_dropout,
            "feed_forward_dropout": self.feed_forward_dropout,
            "rms_norm": self.rms_norm,
            "norm_epsilon": self.norm_epsilon,
            "num_key_value_heads": self.num_key_value_heads,
            "window": self.window,
            "remat": self.remat,
            "dtype": dtype,
        }
        inside = [
            None if added else self._own_position(position, f"{side}_position")
            for side in ("encoder", "decoder")
        ]
        self.encoder = Encoder(
            self.num_encoder_layers,
            self.num_encoder_heads,
            self.encoder_d_ff,
            **options,
            position=inside[0],
            name="encoder",
        )
        self.decoder = Decoder(
            self.num_decoder_layers,
            self.num_decoder_heads,
            self.decoder_d_ff,
            **options,
            position=inside[1],
            name="decoder",
        )

    @property
    def position(self) -> keras.layers.Layer:
        """The positions of the source: a layer of the model's own with the settings given."""
        return self.encoder.position if self.source_positions is None else self.source_positions

    @property
    def longest_source(self) -> int | None:
        """The `max_length` of positions that are added to the source; None for no limit."""
        return None if self.source_positions is None else self.source_positions.max_length

    @property
    def longest_target(self) -> int | None:
        """The `max_length` of positions that are added to the target; None for no limit."""
        return None if self.target_positions is None else self.target_positions.max_length

    @property
    def unused_ids(self) -> tuple[int, ...]:
        """The ids that the model never writes, as their logit bias is below -1e8.

        A model of Marian or CTranslate2 may have some, such as the token that targets start from.
        Give them to `MaskedCrossentropy` with label smoothing.
        """
        bias = self.target_embedding.bias if self.target_embedding.built else None
        if bias is None:
            return ()
        return tuple(np.flatnonzero(ops.convert_to_numpy(bias) < LEAST_BIAS).tolist())

    def _own_position(self, position: keras.layers.Layer, name: str) -> keras.layers.Layer:
        """A layer with the settings of `position`, so that nobody else's is built here."""
        config = {**position.get_config(), "name": name, "dtype": self.dtype_policy}
        return type(position).from_config(config)

    def build_layers(self, hidden_shape: Shape) -> None:
        """Builds the layers that read vectors (batch, length, d_model)."""
        behind = (self.source_positions, self.target_positions, self.source_norm, self.target_norm)
        for layer in behind:
            if layer is not None:
                layer.build(hidden_shape)
        self.encoder.build(hidden_shape)
        self.decoder.build(hidden_shape, hidden_shape)

    def call(self, inputs: tuple[Ids, Ids], training: bool | None = None) -> Logits:
        """Returns logits for the pair (source_ids, target_ids)."""
        source_ids, target_ids = pair_of_ids(inputs, self.vocabulary_sizes)
        memory = self.encode(source_ids, training=training)
        return self.decode(target_ids, memory, source_ids, training=training)

    def encode(self, source_ids: Ids, training: bool | None = None) -> Tensor:
        """Returns the memory (batch, source, d_model) of `source_ids` (batch, source)."""
        embedded, mask = self._embed_source(source_ids, training)
        return self.encoder(embedded, padding_mask=mask, training=training)

    def decode(
        self, target_ids: Ids, memory: Tensor, source_ids: Ids, training: bool | None = None
    ) -> Logits:
        """Returns float32 logits (batch, target, vocab); `source_ids` says what is padding."""
        embedded, mask = self._embed_target(target_ids, training)
        hidden = self.decoder(
            embedded,
            memory=memory,
            padding_mask=mask,
            memory_padding_mask=padding_mask(source_ids, self.pad_id),
            training=training,
        )
        return self.target_embedding.logits(hidden)

    def attention_weights(self, source_ids: Ids, target_ids: Ids) -> list[Tensor]:
        """Returns the weights of each decoder layer over the source.

        They are float32 (batch, heads, target, source), in a list of one tensor for each layer.
        """
        return self._inspect(source_ids, target_ids)[1].attention_weights

    def self_attention_weights(
        self, source_ids: Ids, target_ids: Ids
    ) -> tuple[list[Tensor], list[Tensor]]:
        """Returns the weights of source and target over themselves.

        They are two lists with a float32 tensor for each layer. Those of the encoder are (batch,
        heads, source, source), those of the decoder (batch, heads, target, target).
        """
        encoder, decoder = self._inspect(source_ids, target_ids)
        return encoder.attention_weights, decoder.self_attention_weights

    def _inspect(self, source_ids: Ids, target_ids: Ids) -> tuple[EncoderStates, DecoderStates]:
        """Returns the `EncoderStates` and the `DecoderStates` of a pair."""
        embedded, source_mask = self._embed_source(source_ids)
        encoder = self.encoder.inspect(embedded, source_mask)
        embedded, target_mask = self._embed_target(target_ids)
        return encoder, self.decoder.inspect(embedded, encoder.outputs, target_mask, source_mask)

    def _embed_source(
        self, source_ids: Ids, training: bool | None = False
    ) -> tuple[Tensor, PaddingMask]:
        """Returns embeddings with positions (batch, source, d_model), and the padding mask."""
        self._build_once()
        source_ids = integer_ids("source_ids", source_ids, self.source_embedding.vocab_size)
        mask = padding_mask(source_ids, self.pad_id)
        embedded = self.source_embedding(source_ids)
        if self.source_positions is not None:
            embedded = self.source_positions(embedded, padding_mask=mask)
        if self.source_norm is not None:
            embedded = self.source_norm(embedded)
        return self.source_dropout(embedded, training=training), mask

    def _embed_target(
        self, target_ids: Ids, training: bool | None = False
    ) -> tuple[Tensor, PaddingMask]:
        """Returns embeddings with positions (batch, target, d_model), and the padding mask."""
        self._build_once()
        target_ids = integer_ids("target_ids", target_ids, self.target_embedding.vocab_size)
        mask = padding_mask(target_ids, self.pad_id)
        embedded = self.target_embedding(target_ids)
        if self.bos_id == self.pad_id:
            mask = ops.logical_or(mask, ops.arange(ops.shape(mask)[1]) == 0)
        if self.target_positions is not None:
            embedded = self.target_positions(embedded, padding_mask=mask)
        if self.target_norm is not None:
            embedded = self.target_norm(embedded)
        return self.target_dropout(embedded, training=training), mask

    def compute_loss(
        self,
        x: tuple[Ids, Ids] | None = None,
        y: Ids | None = None,
        y_pred: Tensor | None = None,
        sample_weight: Tensor | None = None,
        training: bool | None = True,
    ) -> Tensor:
        """Returns the compiled loss, in training with R-drop."""
        loss = super().compute_loss(x, y, y_pred, sample_weight, training)
        if not (training and self.r_drop):
            return loss
        if not isinstance(self.loss, MaskedCrossentropy):
            raise ValueError(
                "a model with `r_drop` must be compiled with `MaskedCrossentropy`. "
                f"Received: loss={self.loss!r}"
            )
        second = self(x, training=True)
        second_loss = super().compute_loss(x, y, second, sample_weight, training)
        divergence = self.loss.mean_divergence(y, y_pred, second, sample_weight)
        return (loss + second_loss) / 2 + self.r_drop / 4 * divergence

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        own = {
            "num_layers": self.num_layers,
            "d_model": self.d_model,
            "num_heads": self.num_heads,
            "d_ff": self.d_ff,
            "dropout": self.dropout,
            "norm_first": self.norm_first,
            "activation": activation_config(self.activation),
            "position": position_config(self.position),
            "num_encoder_layers": self.num_encoder_layers,
            "num_decoder_layers": self.num_decoder_layers,
            "num_encoder_heads": self.num_encoder_heads,
            "num_decoder_heads": self.num_decoder_heads,
            "encoder_d_ff": self.encoder_d_ff,
            "decoder_d_ff": self.decoder_d_ff,
            "scale_embeddings": self.scale_embeddings,
            "tie_output": self.tie_output,
            "logits_bias": self.logits_bias,
            "embedding_norm": self.embedding_norm,
            "norm_epsilon": self.norm_epsilon,
            "embedding_dropout": self.embedding_dropout,
            "attention_dropout": self.attention_dropout,
            "feed_forward_dropout": self.feed_forward_dropout,
            "rms_norm": self.rms_norm,
            "num_key_value_heads": self.num_key_value_heads,
            "window": self.window,
            "remat": self.remat,
            "r_drop": self.r_drop,
        }
        return {**super().get_config(), **own}
