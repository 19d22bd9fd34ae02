"""What all models from source ids to target ids share: training's loss, search and scores."""

import keras

from keras_transformer.layers.composite import Composite
from keras_transformer.losses import mean_divergence
from keras_transformer.models.decoding_step import search_targets
from keras_transformer.models.scoring import score_targets
from keras_transformer.replicas import refuse_accumulation


class SequenceToSequence(Composite, keras.Model):
    """A model that is called with (source_ids, target_ids) and encodes and decodes apart.

    It has `encode`, a `step_class` for searches, and `pad_id`, `bos_id` and `eos_id`.
    """

    r_drop = 0.0

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.autocast = False  # it would round ids that are floats

    @property
    def input_dtype(self):
        """The dtype of ids in what Keras exports; its own choice is the compute dtype."""
        return "int32"

    def _build_once(self):
        # On PyTorch Keras's `build` lists the parameters anew, and inside a call with mixed
        # precision it would list half-precision copies, whose gradients nobody resets. The shapes
        # are those of the last `build`, which Keras's `export` reads.
        if not self.built:
            self.build(((None, None), (None, None)))

    def fit(self, x=None, y=None, *args, class_weight=None, **kwargs):
        """Trains as Keras's `fit`, without `class_weight`."""
        self._refuse_untrainable(class_weight)
        return super().fit(x, y, *args, **kwargs)

    def train_on_batch(self, x, y=None, sample_weight=None, class_weight=None, **kwargs):
        """Trains as Keras's `train_on_batch`, without `class_weight`."""
        self._refuse_untrainable(class_weight)
        return super().train_on_batch(x, y, sample_weight, **kwargs)

    def _refuse_untrainable(self, class_weight):
        """Raises `ValueError` where Keras would train by wrong weights, or fail without a reason.

        Not in `compile`: Keras does not call one that is overridden when it loads a model.
        """
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

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        """Returns the compiled loss, in training with R-drop where the model has it."""
        loss = super().compute_loss(x, y, y_pred, sample_weight, training)
        if not (training and self.r_drop):
            return loss
        second = self(x, training=True)
        second_loss = super().compute_loss(x, y, second, sample_weight, training)
        divergence = mean_divergence(self.loss, y, y_pred, second, sample_weight)
        return (loss + second_loss) / 2 + self.r_drop / 4 * divergence

    def generate(
        self,
        source_ids,
        search=None,
        max_length=None,
        prefix_ids=None,
        length_limits=None,
        length_penalty=None,
    ):
        """Searches for the best outputs, one cached step a token.

        The best is that of the largest score: of a beam `log p(output | source)`, divided by
        `((5 + length) / 6) ** length_penalty`.

        Runs as it stands, operation by operation; on JAX the loop is compiled at every call. To
        translate many batches of a few shapes, compile it once:
        `tf.function(model.generate, jit_compile=True)`, or on JAX `jax.jit`. `serving.Translator`
        does so.

        Args:
            source_ids: integers (batch, source), `eos_id` and padding included.
            search: a search of `keras_transformer.decoding`; `BeamSearch()` when None.
            max_length: largest number of output tokens, `eos_id` included; when None, 50 more
                than the source has, padding not counted, as in the paper.
            prefix_ids: integers (batch, prefix), padded, with which the outputs must begin.
            length_limits: integers (batch,), each at least 1, a maximum length for each sentence
                within `max_length`.
            length_penalty: numbers (batch,), each from 0 to 10, in place of the beam search's own.

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
        given = {"prefix_ids": prefix_ids, "length_penalty": length_penalty}
        return search_targets(self, source_ids, search, max_length, length_limits, **given)

    def score(self, source_ids, target_ids, label_mask=None):
        """Log-probabilities of given outputs; `ScoreResult` has the formulas and an example.

        Args:
            source_ids: integers (batch, source), `eos_id` and padding included.
            target_ids: integers (batch, target) without `bos_id`, as a search returns them.
            label_mask: (batch, target) boolean, True at the tokens that count; all when None.
                Padding never counts.

        Returns:
            A `ScoreResult`.

        Raises:
            ValueError: for ids that are neither integers nor whole floats, or in lists and NumPy
                arrays not of the vocabulary, a mask of floats, or shapes that do not go together.
        """
        return score_targets(self, source_ids, target_ids, label_mask)
