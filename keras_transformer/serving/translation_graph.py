"""The translator as TensorFlow functions: strings in, compiled search, strings out."""

import tensorflow as tf
from tensorflow.compiler.tf2xla.python.xla import optimization_barrier

from keras_transformer.layers.step_product import products_apart
from keras_transformer.serving.batching import largest_batches, map_chunks, powers_of_two

SMALLEST_LENGTH = 16
TEXT = tf.TensorSpec([None], tf.string, name="text")


class TranslationGraph(tf.Module):
    """Holds model and tokenizers, and the functions that become the SavedModel's signatures.

    Strings are handled outside, numbers inside functions that XLA compiles unless `jit_compile`
    is False; they are called with few shapes only: lengths of `length_sizes`, and as many rows as a
    power of two up to the row limit of that length.
    """

    def __init__(
        self,
        model,
        source_tokenizer,
        target_tokenizer,
        search,
        max_length,
        max_source_length,
        max_batch_tokens,
        jit_compile,
    ):
        super().__init__(name="translation_graph")
        self.model = model
        self.source_tokenizer = source_tokenizer
        self.target_tokenizer = target_tokenizer
        self.search = search
        self.num_hypotheses = getattr(search, "num_hypotheses", search.beam_size)
        self.max_length = max_length
        self.jit_compile = jit_compile
        self.length_sizes = powers_of_two(SMALLEST_LENGTH, max_source_length)
        self.row_limits = largest_batches(self.length_sizes, max_batch_tokens)
        # Each compiled function has one compilation for each shape that it has met.
        shape = [len(powers_of_two(1, self.row_limits[0])), len(self.length_sizes)]
        self.searched, self.scored = (
            tf.Variable(tf.zeros(shape, tf.bool), trainable=False, name=name)
            for name in ("searched", "scored")
        )
        ids = tf.TensorSpec([None, None], tf.int32)
        options = {"jit_compile": jit_compile, "autograph": False}
        self.search_ids = tf.function(self._search_ids, [ids], **options)
        self.score_ids = tf.function(self._score_ids, [ids, ids], **options)

    @tf.function(input_signature=[TEXT], autograph=False)
    def translate(self, text):
        """The best translation of each text."""
        translations, scores, truncated = self._hypotheses(text)
        return {
            "translation": translations[:, 0],
            "score": scores[:, 0],
            "truncated": truncated,
        }

    @tf.function(input_signature=[TEXT], autograph=False)
    def n_best(self, text):
        """The best translations of each text, the best first."""
        translations, scores, truncated = self._hypotheses(text)
        return {"translations": translations, "scores": scores, "truncated": truncated}

    @tf.function(
        input_signature=[
            tf.TensorSpec([None], tf.string, name="source"),
            tf.TensorSpec([None], tf.string, name="target"),
        ],
        autograph=False,
    )
    def score(self, source, target):
        """The log-probability of each target, given its source, and its number of tokens."""
        same = tf.debugging.assert_equal(
            tf.shape(source), tf.shape(target), "source and target must have as many texts"
        )
        with tf.control_dependencies([same]):
            source_ids, source_cut = self._ids(self.source_tokenizer, source)
        target_ids, target_cut = self._ids(self.target_tokenizer, target)
        num_tokens = count_tokens(target_ids, self.model.pad_id)
        lengths = tf.maximum(count_tokens(source_ids, self.model.pad_id), num_tokens)
        (log_probs,) = self._map_chunks(
            lambda *ids: [self.score_ids(*ids)],
            [source_ids, target_ids],
            lengths,
            [tf.TensorSpec([None], tf.float32)],
            self.scored,
        )
        truncated = tf.logical_or(source_cut, target_cut)
        return {"log_prob": log_probs, "num_tokens": num_tokens, "truncated": truncated}

    def _hypotheses(self, text):
        """Translations and scores (batch, hypotheses), and which texts were too long, (batch,)."""
        source_ids, truncated = self._ids(self.source_tokenizer, text)
        lengths = count_tokens(source_ids, self.model.pad_id)
        shape = [None, self.num_hypotheses]
        translations, scores = self._map_chunks(
            self._translate_ids,
            [source_ids],
            lengths,
            [tf.TensorSpec(shape, tf.string), tf.TensorSpec(shape, tf.float32)],
            self.searched,
        )
        # Nothing to translate, `eos_id` alone: the translation is empty too.
        empty = (lengths <= 1)[:, None]
        return tf.where(empty, "", translations), tf.where(empty, 0.0, scores), truncated

    def _map_chunks(self, function, inputs, lengths, output_specs, shapes_met):
        sizes = (self.length_sizes, self.row_limits, self.model.pad_id)
        return map_chunks(function, inputs, lengths, output_specs, *sizes, shapes_met)

    def _ids(self, tokenizer, texts):
        """Ids (batch, length) with `eos_id`, cut to the longest length, and which were cut."""
        longest = self.length_sizes[-1] - 1
        tokens = tokenizer.tokenize(texts)
        truncated = tokens.row_lengths() > longest
        eos = tf.fill([tf.shape(texts)[0], 1], self.model.eos_id)
        ids = tf.concat([tokens[:, :longest], eos], axis=1)
        return ids.to_tensor(self.model.pad_id), truncated

    def _translate_ids(self, source_ids):
        ids, scores = self.search_ids(source_ids)
        rows, width = tf.shape(source_ids)[0], tf.shape(ids)[2]
        texts = self.target_tokenizer.detokenize(tf.reshape(ids, [-1, width]))
        return tf.reshape(texts, [rows, self.num_hypotheses]), scores

    def _search_ids(self, source_ids):
        with products_apart(barrier if self.jit_compile else None):
            result = self.model.generate(source_ids, self.search, self.max_length)
        return result.ids, result.scores

    def _score_ids(self, source_ids, target_ids):
        return self.model.score(source_ids, target_ids).log_prob


def barrier(tensor):
    """`tensor`, which XLA computes apart from what it is made of and from what reads it."""
    return optimization_barrier(tensor)[0]


def count_tokens(ids, pad_id):
    """Number of tokens of each row that are not padding, int32 (batch,)."""
    return tf.math.count_nonzero(ids != pad_id, axis=1, dtype=tf.int32)
