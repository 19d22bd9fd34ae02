"""The Transformer: encoder, decoder, embeddings and output, as a Keras model."""

import keras
from keras import ops

from keras_transformer import arguments
from keras_transformer.decoding import BeamSearch
from keras_transformer.layers import Decoder, Encoder, PositionalEncoding, TokenEmbedding
from keras_transformer.masking import integer_ids, padding_mask

# Section 6.1 of the paper: outputs may be this much longer than their source.
EXTRA_LENGTH = 50


@keras.saving.register_keras_serializable(package="keras_transformer")
class Transformer(keras.Model):
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
        dropout: rate of the dropout on sub-layers' outputs and on embeddings with positions.
        norm_first: normalise before each sub-layer instead of after it.
        activation: of the feed-forward networks.
        pad_id, bos_id, eos_id: the special ids of the tokenizers.

    Shapes:
        inputs: the pair of source_ids (batch, source) and target_ids (batch, target), integers;
        the target starts with `bos_id`. Output: logits (batch, target, vocab).

    Returns:
        float32 logits, whatever the dtype policy.

    Raises:
        ValueError: for a bad argument or ids that are not integers.

    Masking: padding is found from `pad_id`; a position's logits depend on the real source
    tokens and on the target tokens up to it alone.

    Reference: Vaswani et al. 2017, "Attention Is All You Need".

    Example:

    >>> import numpy as np
    >>> model = Transformer(vocab_size=50, num_layers=1, d_model=16, num_heads=2, d_ff=32)
    >>> source_ids, target_ids = np.array([[7, 8, 3]]), np.array([[2, 9]])
    >>> tuple(model((source_ids, target_ids)).shape)
    (1, 2, 50)
    >>> tuple(model.generate(source_ids, max_length=5).ids.shape)  # (batch, hypotheses, length)
    (1, 4, 5)
    """

    def __init__(
        self,
        vocab_size=None,
        source_vocab_size=None,
        target_vocab_size=None,
        num_layers=6,
        d_model=512,
        num_heads=8,
        d_ff=2048,
        dropout=0.1,
        norm_first=False,
        activation="relu",
        pad_id=0,
        bos_id=2,
        eos_id=3,
        **kwargs,
    ):
        super().__init__(**kwargs)
        check_vocabularies(vocab_size, source_vocab_size, target_vocab_size)
        self.vocab_size = vocab_size
        self.source_vocab_size = source_vocab_size
        self.target_vocab_size = target_vocab_size
        self.num_layers = num_layers
        self.d_model = arguments.positive_integer("d_model", d_model)
        self.num_heads = num_heads
        self.d_ff = d_ff
        self.dropout = arguments.rate("dropout", dropout)
        self.norm_first = norm_first
        self.activation = keras.activations.get(activation)
        self.pad_id = arguments.token_id("pad_id", pad_id)
        self.bos_id = arguments.token_id("bos_id", bos_id)
        self.eos_id = arguments.token_id("eos_id", eos_id)
        self._check_special_ids()
        self._create_layers()

    def _check_special_ids(self):
        special_ids = (self.pad_id, self.bos_id, self.eos_id)
        vocab_size = self.vocab_size or min(self.source_vocab_size, self.target_vocab_size)
        if len(set(special_ids)) < 3 or max(special_ids) >= vocab_size:
            raise ValueError(
                "`pad_id`, `bos_id` and `eos_id` must be different ids of the vocabulary. "
                f"Received: pad_id={self.pad_id}, bos_id={self.bos_id}, eos_id={self.eos_id} and "
                f"a vocabulary of {vocab_size}"
            )

    def _create_layers(self):
        dtype = self.dtype_policy
        self.target_embedding = TokenEmbedding(
            self.vocab_size or self.target_vocab_size,
            self.d_model,
            self.pad_id,
            dtype=dtype,
            name="embedding" if self.vocab_size else "target_embedding",
        )
        self.source_embedding = self.target_embedding
        if not self.vocab_size:
            self.source_embedding = TokenEmbedding(
                self.source_vocab_size,
                self.d_model,
                self.pad_id,
                dtype=dtype,
                name="source_embedding",
            )
        # Two layers, so that source and target draw their dropout from streams of their own.
        self.source_positions = PositionalEncoding(
            dropout=self.dropout, dtype=dtype, name="source_positions"
        )
        self.target_positions = PositionalEncoding(
            dropout=self.dropout, dtype=dtype, name="target_positions"
        )
        stack = (self.num_layers, self.num_heads, self.d_ff, self.dropout, self.norm_first)
        self.encoder = Encoder(*stack, self.activation, dtype=dtype, name="encoder")
        self.decoder = Decoder(*stack, self.activation, dtype=dtype, name="decoder")

    def build(self, input_shape=None):
        """Builds every layer; their shapes follow from the constructor's arguments."""
        if self.built:
            return
        hidden_shape = (None, None, self.d_model)
        for embedding in {
            id(e): e for e in (self.source_embedding, self.target_embedding)
        }.values():
            embedding.build((None, None))
        self.source_positions.build(hidden_shape)
        self.target_positions.build(hidden_shape)
        self.encoder.build(hidden_shape)
        self.decoder.build(hidden_shape, hidden_shape)
        self.built = True

    def _build_once(self):
        # On PyTorch Keras's `build` lists the parameters anew, and inside a call with mixed
        # precision it would list half-precision copies, whose gradients nobody resets.
        if not self.built:
            self.build()

    def call(self, inputs, training=None):
        """Returns logits for the pair (source_ids, target_ids)."""
        source_ids, target_ids = inputs
        memory = self.encode(source_ids, training=training)
        return self.decode(target_ids, memory, source_ids, training=training)

    def encode(self, source_ids, training=None):
        """Returns the memory (batch, source, d_model) of `source_ids` (batch, source)."""
        self._build_once()
        source_ids = integer_ids("source_ids", source_ids)
        embedded = self.source_positions(self.source_embedding(source_ids), training=training)
        mask = padding_mask(source_ids, self.pad_id)
        return self.encoder(embedded, padding_mask=mask, training=training)

    def decode(self, target_ids, memory, source_ids, training=None):
        """Returns float32 logits (batch, target, vocab); `source_ids` says what is padding."""
        hidden = self._run_decoder(target_ids, memory, source_ids, training=training)
        return self.target_embedding.logits(hidden)

    def attention_weights(self, source_ids, target_ids):
        """Returns each decoder layer's weights over the source, (batch, heads, target, source)."""
        memory = self.encode(source_ids, training=False)
        _, weights = self._run_decoder(
            target_ids, memory, source_ids, training=False, return_attention_scores=True
        )
        return weights

    def _run_decoder(self, target_ids, memory, source_ids, **options):
        self._build_once()
        target_ids = integer_ids("target_ids", target_ids)
        embedded = self.target_embedding(target_ids)
        return self.decoder(
            self.target_positions(embedded, training=options["training"]),
            memory=memory,
            padding_mask=padding_mask(target_ids, self.pad_id),
            memory_padding_mask=padding_mask(source_ids, self.pad_id),
            **options,
        )

    def generate(self, source_ids, search=None, max_length=None):
        """Searches for the best outputs, one cached step a token.

        Runs as it stands, operation by operation. To translate many batches of a few shapes,
        compile it once: `tf.function(model.generate, jit_compile=True)`, or on JAX `jax.jit`.
        `serving.Translator` does so.

        Args:
            source_ids: integers (batch, source), `eos_id` and padding included.
            search: a search of `keras_transformer.decoding`; `BeamSearch()` when None.
            max_length: largest number of output tokens, `eos_id` included; when None, 50 more
                than the source has, padding not counted, as in the paper.

        Returns:
            A `DecodeResult`: ids (batch, hypotheses, length), scores and lengths
            (batch, hypotheses).

        Raises:
            ValueError: for ids that are not integers or a bad `max_length`.
        """
        search = BeamSearch() if search is None else search
        source_ids = integer_ids("source_ids", source_ids)
        batch_size, source_length = ops.shape(source_ids)
        length_limits = None
        if max_length is None:
            max_length = source_length + EXTRA_LENGTH
            is_token = padding_mask(source_ids, self.pad_id)
            length_limits = ops.sum(ops.cast(is_token, "int32"), axis=1) + EXTRA_LENGTH
        else:
            max_length = arguments.positive_integer("max_length", max_length)
        memory = self.encode(source_ids, training=False)
        step = self._decoding_step(source_ids, memory, max_length)
        return search(
            step,
            self.decoder.start_cache(batch_size, max_length),
            batch_size=batch_size,
            max_length=max_length,
            bos_id=self.bos_id,
            eos_id=self.eos_id,
            pad_id=self.pad_id,
            length_limits=length_limits,
        )

    def _decoding_step(self, source_ids, memory, max_length):
        """The function `step(tokens, index, caches)` of a search over this batch."""
        mask = padding_mask(source_ids, self.pad_id)
        projected_memory = self.decoder.project_memory(memory, mask)
        encoding = self.target_positions.encoding(max_length)

        def step(tokens, index, caches):
            embedded = self.target_embedding(tokens[:, None])  # -> (rows, 1, d_model)
            position = ops.take(encoding, index, axis=0)[None, None, :]
            hidden = self.target_positions.apply_encoding(embedded, position)
            hidden, caches = self.decoder.step(hidden, index, caches, projected_memory, mask)
            logits = self.target_embedding.logits(hidden)[:, 0]
            # Nobody differentiates a search: an eager backend need not keep every step for it.
            return keras.tree.map_structure(ops.stop_gradient, (logits, caches))

        return step

    def get_config(self):
        """Returns the constructor's arguments."""
        own = {
            "vocab_size": self.vocab_size,
            "source_vocab_size": self.source_vocab_size,
            "target_vocab_size": self.target_vocab_size,
            "num_layers": self.num_layers,
            "d_model": self.d_model,
            "num_heads": self.num_heads,
            "d_ff": self.d_ff,
            "dropout": self.dropout,
            "norm_first": self.norm_first,
            "activation": keras.activations.serialize(self.activation),
            "pad_id": self.pad_id,
            "bos_id": self.bos_id,
            "eos_id": self.eos_id,
        }
        return {**super().get_config(), **own}


def check_vocabularies(vocab_size, source_vocab_size, target_vocab_size):
    """Raises `ValueError` unless one joint vocabulary or two separate ones are given."""
    joint = vocab_size is not None
    separate = (source_vocab_size is not None, target_vocab_size is not None)
    if (joint and any(separate)) or (not joint and not all(separate)):
        raise ValueError(
            "give either `vocab_size`, or both `source_vocab_size` and `target_vocab_size`. "
            f"Received: vocab_size={vocab_size!r}, source_vocab_size={source_vocab_size!r}, "
            f"target_vocab_size={target_vocab_size!r}"
        )
    sizes = {"vocab_size": vocab_size, "source_vocab_size": source_vocab_size}
    for name, size in {**sizes, "target_vocab_size": target_vocab_size}.items():
        if size is not None:
            arguments.positive_integer(name, size)
