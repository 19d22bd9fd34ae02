"""A model, its tokenizers and a search as one object that maps strings to strings."""

import keras
import numpy as np
import tensorflow as tf

from keras_transformer import arguments
from keras_transformer.decoding import BeamSearch, Search
from keras_transformer.decoding.search import IMPOSSIBLE, LARGEST_LENGTH_PENALTY
from keras_transformer.serving.batching import powers_of_two
from keras_transformer.serving.compiled_model import CompiledModel
from keras_transformer.serving.export import export
from keras_transformer.serving.quantization import quantized_copy
from keras_transformer.serving.translation_graph import TranslationGraph
from keras_transformer.serving.translator_arguments import (
    check_texts,
    check_tokenizer,
    checked_lengths,
    warn_of_truncation,
)
from keras_transformer.text.strings import string_tensor

# Texts handed to the graph at a time; it batches them by length itself.
TEXTS_PER_CALL = 512


class Translator:
    """Translates lists of strings, and exports itself as a SavedModel that does the same.

    Texts are tokenised in the graph, sorted by length, padded to one of a few shapes, searched
    in a function compiled by XLA, and detokenised. Each shape is compiled once, when first met.

    Args:
        model: a `Transformer`, a `RecurrentSeq2Seq`, or a model with their methods.
        source_tokenizer: a tokenizer of `keras_transformer.text`.
        target_tokenizer: of the target; `source_tokenizer` when None.
        search: a search of `keras_transformer.decoding`; `BeamSearch()` when None.
        max_length: largest number of output tokens; when None, 50 more than the source has.
        max_source_length: the longest source read at once, in tokens with `eos_id`; when None,
            256, or what the model's positions allow. A longer one is divided at ends of
            sentences, or else of words, and its parts are translated.
        max_segments: the most parts of a text that is too long; 1 divides none. A text that needs
            more is refused: its translation is empty, with a warning here and `truncated` true in
            the SavedModel's answer.
        separator: what the translations of the parts are joined by; "" for languages that are
            written without spaces.
        split_sentences: whether each sentence of a text is translated on its own, whatever the
            text's length. For a model of single sentences, which may leave out all but the first.
            False for documents and for what is no text of sentences.
        max_batch_tokens: source tokens translated at once, padding included: the longer the
            texts, the fewer at once.
        jit_compile: whether XLA compiles the search, which makes it faster. A CPU
            build of TensorFlow Serving runs such an export when started with
            `--xla_cpu_compilation_enabled=true`, a GPU build not at all; False exports a graph
            that any server runs.
        quantize: "int8" translates with a copy of the model whose matrices are 8-bit integers,
            one scale for each output, multiplied with activations rounded to 8 bits row by row
            as they come: variables of little more than a quarter of the size (of a recurrent
            model more, whose cells stay as they are), and for large models faster where XLA
            compiles. None for the model as it is.

    Returns:
        Called with a list of strings, the list of their best translations, in order.

    Raises:
        ValueError: for a bad argument, or tokenizers that do not fit the model; the sources' may
            not reverse.

    Example:

    >>> from keras_transformer import Transformer
    >>> from keras_transformer.text import CharacterTokenizer
    >>> tokenizer = CharacterTokenizer.train(["abc"])
    >>> model = Transformer(tokenizer.vocab_size, num_layers=1, d_model=8, num_heads=2, d_ff=16)
    >>> translator = Translator(model, tokenizer, max_length=4)
    >>> len(translator(["abc", "cab"]))
    2
    """

    def __init__(
        self,
        model,
        source_tokenizer,
        target_tokenizer=None,
        search=None,
        max_length=None,
        max_source_length=None,
        max_batch_tokens=2048,
        jit_compile=True,
        quantize=None,
        max_segments=16,
        separator=" ",
        split_sentences=False,
    ):
        target_tokenizer = source_tokenizer if target_tokenizer is None else target_tokenizer
        max_length, max_source_length = checked_lengths(model, max_length, max_source_length)
        max_batch_tokens = arguments.positive_integer("max_batch_tokens", max_batch_tokens)
        max_segments = arguments.positive_integer("max_segments", max_segments)
        if not isinstance(separator, str):
            raise ValueError(f"`separator` must be a string. Received: separator={separator!r:.80}")
        jit_compile = arguments.boolean("jit_compile", jit_compile)
        split_sentences = arguments.boolean("split_sentences", split_sentences)
        check_tokenizer("source", source_tokenizer, model)
        check_tokenizer("target", target_tokenizer, model)
        quantize = arguments.one_of("quantize", quantize, (None, "int8"))
        search = BeamSearch() if search is None else search
        if not isinstance(search, Search):
            raise ValueError(
                "`search` must be a `Search`, as `BeamSearch(4)` is. "
                f"Received: search={search!r:.80}"
            )
        model.build(None)
        if quantize:
            model = quantized_copy(model, quantize)
        self.compiled = CompiledModel(
            model,
            search,
            max_length,
            max_source_length,
            max_batch_tokens,
            jit_compile,
            quantized=bool(quantize),
        )
        self.graph = TranslationGraph(
            self.compiled,
            source_tokenizer,
            target_tokenizer,
            max_segments,
            separator,
            split_sentences,
        )

    @property
    def shapes(self):
        """Every (rows, source length) that the search is ever compiled for."""
        sizes = zip(self.compiled.length_sizes, self.compiled.row_limits, strict=True)
        return [
            (rows, length)
            for length, most in sizes
            for rows in sorted({self.compiled.rows_at_a_time(n) for n in powers_of_two(1, most)})
        ]

    @property
    def num_compilations(self):
        """How often XLA has compiled since this was made: for each shape met, once a function.

        Translations are one function, those with options of the call another, as alignments,
        scores and vectors are.
        Without `jit_compile` nothing is compiled, and it stays 0.
        """
        if not self.compiled.jit_compile:
            return 0
        met = self.compiled.shapes_met.values()
        return sum(int(tf.math.count_nonzero(shapes)) for shapes in met)

    def __call__(self, texts, progress=False):
        """Returns the best translation of each of `texts`, a list of strings."""
        rows = self._in_calls(self.graph.serving_default, texts, progress)
        return [row["translation"].decode("utf-8") for row in rows]

    def n_best(self, texts, progress=False):
        """Returns for each text a list of (translation, score), the best first."""
        return [hypotheses(row) for row in self._in_calls(self.graph.n_best, texts, progress)]

    def translate(
        self,
        texts,
        length_penalty=None,
        max_length=None,
        num_hypotheses=None,
        prefixes=None,
        split_sentences=None,
    ):
        """As `n_best`, with options of this call.

        Args:
            texts: list of str.
            length_penalty: number from 0 to 10; the beam search's own when None, as it must be
                with another search.
            max_length: the largest number of output tokens, within the translator's own; of a
                text that is divided, of each part.
            num_hypotheses: how many for each text, at most the beam size; as many as `n_best`
                gives when None.
            prefixes: list of str, what each translation must begin with, or end in where the
                target tokenizer reverses; an empty text gives an empty translation whatever its
                prefix. With one longer than the output may be, or than the longest source, a
                text has no translation, and the call warns.
            split_sentences: whether each sentence is translated on its own; as the translator has
                it when None.

        Returns:
            For each text a list of (translation, score), the best first.

        Raises:
            ValueError: for a bad option.
        """
        if length_penalty is not None:
            length_penalty = arguments.number_within(
                "length_penalty", length_penalty, 0, LARGEST_LENGTH_PENALTY
            )
            self.graph.search.check_length_penalty(length_penalty)
        positive = arguments.positive_integer
        max_length = arguments.optional(positive, "max_length", max_length)
        num_hypotheses = arguments.optional(positive, "num_hypotheses", num_hypotheses)
        most = self.graph.search.rows_per_sentence
        if (num_hypotheses or 1) > most:
            raise ValueError(
                f"`num_hypotheses` must be at most {most}, the beam size. "
                f"Received: num_hypotheses={num_hypotheses}"
            )
        if split_sentences is not None:
            split_sentences = arguments.boolean("split_sentences", split_sentences)
        check_texts("texts", texts)
        prefixes = [""] * len(texts) if prefixes is None else prefixes
        check_texts("prefixes", prefixes)
        if len(prefixes) != len(texts):
            raise ValueError(
                "`prefixes` must be as many as the texts. "
                f"Received: {len(prefixes)} for {len(texts)} texts"
            )
        count = len(texts)
        answer = self.graph.translate(
            string_tensor(texts),
            tf.fill([count], -1.0 if length_penalty is None else length_penalty),
            tf.fill([count], min(max_length or 0, self.compiled.longest_output)),
            tf.fill([count], num_hypotheses or 0),
            string_tensor(prefixes),
            tf.fill([count], -1 if split_sentences is None else int(split_sentences)),
        )
        warn_of_truncation(int(tf.reduce_sum(tf.cast(answer["truncated"], tf.int32))))
        width = num_hypotheses or self.compiled.num_hypotheses
        columns = (answer[name][:, :width].numpy() for name in ("translations", "scores"))
        return [
            hypotheses({"translations": translations, "scores": scores})
            for translations, scores in zip(*columns, strict=True)
        ]

    def align(self, texts, progress=False):
        """Returns for each text (translation, pairs): what each piece of it was read from.

        A pair is (target, source), two slices of the translation and of the text, in bytes of
        UTF-8: the source is where the decoder's last layer attended most. Attention is no proof
        of what caused a word, only where the model looked. Pairs are in the order in which the
        model wrote, from the end of each segment where the target tokenizer reverses.
        """
        names = ("target_start", "target_end", "source_start", "source_end")
        found = []
        for row in self._in_calls(self.graph.align, texts, progress):
            offsets = zip(*(row[name].tolist() for name in names), strict=True)
            pairs = [(slice(*four[:2]), slice(*four[2:])) for four in offsets if four[0] >= 0]
            found.append((row["translation"].decode("utf-8"), pairs))
        return found

    def encode(self, texts, progress=False):
        """Returns vectors (texts, d_model), the mean of the encoder's over each text's tokens."""
        rows = self._in_calls(self.graph.encode, texts, progress)
        empty = np.zeros((0, self.graph.model.d_model), "float32")
        return np.stack([row["vector"] for row in rows]) if rows else empty

    def score(self, source_texts, target_texts):
        """Returns for each pair (log-probability, number of tokens), `eos_id` included."""
        check_texts("source_texts", source_texts)
        check_texts("target_texts", target_texts)
        if len(source_texts) != len(target_texts):
            raise ValueError(
                "`source_texts` and `target_texts` must be equally many. "
                f"Received: {len(source_texts)} and {len(target_texts)}"
            )
        answer = self.graph.score(
            string_tensor(source_texts),
            string_tensor(target_texts),
        )
        warn_of_truncation(int(tf.reduce_sum(tf.cast(answer["truncated"], tf.int32))))
        pairs = zip(answer["log_prob"].numpy(), answer["num_tokens"].numpy(), strict=True)
        return [(float(log_prob), int(num_tokens)) for log_prob, num_tokens in pairs]

    def export(self, path, card=None, allowed_operations=(), verbose=True):
        """Writes a SavedModel to the new directory `path`; see `serving.export`."""
        export(self, path, card, allowed_operations, verbose)

    def _in_calls(self, function, texts, progress):
        """What `function` answers to each text, a dictionary; some hundred texts at a time."""
        check_texts("texts", texts)
        bar = keras.utils.Progbar(len(texts), unit_name="text") if progress and texts else None
        rows = [None] * len(texts)
        # Like with like: the graph sorts by tokens, but only what one call gives it.
        order = sorted(range(len(texts)), key=lambda number: len(texts[number]))
        for start in range(0, len(texts), TEXTS_PER_CALL):
            part = order[start : start + TEXTS_PER_CALL]
            answer = function(string_tensor([texts[number] for number in part]))
            columns = [column.numpy() for column in answer.values()]
            for number, *row in zip(part, *columns, strict=True):
                rows[number] = dict(zip(answer, row, strict=True))
            if bar:
                bar.update(start + len(part))
        warn_of_truncation(sum(int(row["truncated"]) for row in rows))
        return rows


def hypotheses(row):
    """The (translation, score) of the first hypothesis, and of each other that there is."""
    pairs = enumerate(zip(row["translations"], row["scores"], strict=True))
    return [
        (text.decode("utf-8"), float(score))
        for rank, (text, score) in pairs
        if not rank or score > IMPOSSIBLE / 2
    ]
