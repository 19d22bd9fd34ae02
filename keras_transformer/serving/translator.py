"""A model, its tokenizers and a search as one object that maps strings to strings."""

import warnings

import keras
import tensorflow as tf

from keras_transformer import arguments
from keras_transformer.decoding import BeamSearch
from keras_transformer.serving.batching import powers_of_two
from keras_transformer.serving.export import export
from keras_transformer.serving.translation_graph import SMALLEST_LENGTH, TranslationGraph
from keras_transformer.text.strings import string_tensor

# Texts handed to the graph at a time; it batches them by length itself.
TEXTS_PER_CALL = 512


class Translator:
    """Translates lists of strings, and exports itself as a SavedModel that does the same.

    Texts are tokenised in the graph, sorted by length, padded to one of a few shapes, searched
    in a function compiled by XLA, and detokenised. Each shape is compiled once, when first met.

    Args:
        model: a `Transformer`, or any model with `generate`, `pad_id`, `bos_id` and `eos_id`.
        source_tokenizer: a tokenizer of `keras_transformer.text`.
        target_tokenizer: of the target; `source_tokenizer` when None.
        search: a search of `keras_transformer.decoding`; `BeamSearch()` when None.
        max_length: largest number of output tokens; when None, 50 more than the source has.
        max_source_length: the longest source read, in tokens with `eos_id`. What is beyond it is
            cut, with a warning here and `truncated` true in the SavedModel's answer.
        max_batch_tokens: source tokens translated at once, padding included: the longer the
            texts, the fewer at once.
        jit_compile: whether XLA compiles the search, which makes it faster. A CPU
            build of TensorFlow Serving runs such an export when started with
            `--xla_cpu_compilation_enabled=true`, a GPU build not at all; False exports a graph
            that any server runs.
        quantize: "int8" translates with a copy of the model whose matrices are 8-bit integers,
            one scale for each output, multiplied with activations rounded to 8 bits row by row
            as they come: a quarter of the size, and for large models faster where XLA compiles.
            None for the model as it is.

    Returns:
        Called with a list of strings, the list of their best translations, in order.

    Raises:
        ValueError: for a bad argument, or tokenizers that do not fit the model.

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
        max_source_length=256,
        max_batch_tokens=2048,
        jit_compile=True,
        quantize=None,
    ):
        target_tokenizer = source_tokenizer if target_tokenizer is None else target_tokenizer
        if max_length is not None:
            arguments.positive_integer("max_length", max_length)
        if arguments.positive_integer("max_source_length", max_source_length) < SMALLEST_LENGTH:
            raise ValueError(
                f"`max_source_length` must be at least {SMALLEST_LENGTH}. "
                f"Received: max_source_length={max_source_length}"
            )
        arguments.positive_integer("max_batch_tokens", max_batch_tokens)
        arguments.boolean("jit_compile", jit_compile)
        check_tokenizer("source", source_tokenizer, model)
        check_tokenizer("target", target_tokenizer, model)
        arguments.one_of("quantize", quantize, (None, "int8"))
        model.build(None)
        if quantize:
            model = quantized_copy(model, quantize)
        self.graph = TranslationGraph(
            model,
            source_tokenizer,
            target_tokenizer,
            BeamSearch() if search is None else search,
            max_length,
            max_source_length,
            max_batch_tokens,
            jit_compile,
        )

    @property
    def shapes(self):
        """Every (rows, source length) that the search is ever compiled for."""
        graph = self.graph
        sizes = zip(graph.length_sizes, graph.row_limits, strict=True)
        return [(rows, length) for length, most in sizes for rows in powers_of_two(1, most)]

    @property
    def num_compilations(self):
        """How often XLA has compiled since this was made: once for each shape met.

        Without `jit_compile` nothing is compiled, and it stays 0.
        """
        if not self.graph.jit_compile:
            return 0
        met = [self.graph.searched, self.graph.scored]
        return sum(int(tf.math.count_nonzero(shapes)) for shapes in met)

    def __call__(self, texts, progress=False):
        """Returns the best translation of each of `texts`, a list of strings."""
        rows = self._in_calls(self.graph.translate, texts, progress)
        return [row["translation"].decode("utf-8") for row in rows]

    def n_best(self, texts, progress=False):
        """Returns for each text a list of (translation, score), the best first."""
        return [
            [
                (text.decode("utf-8"), float(score))
                for text, score in zip(row["translations"], row["scores"], strict=True)
            ]
            for row in self._in_calls(self.graph.n_best, texts, progress)
        ]

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

    def export(self, path):
        """Writes a SavedModel to the new directory `path`; see `serving.export`."""
        export(self, path)

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


def quantized_copy(model, mode):
    """A copy of `model` with the weights of its products quantized by Keras."""
    # Keras quantizes layers that compute in float32, or else leaves some of the results in it.
    copy = type(model).from_config({**model.get_config(), "dtype": "float32"})
    copy.build(None)
    if len(copy.weights) != len(model.weights):
        raise ValueError(
            "`quantize` must be None for a model that is quantized already or has LoRA weights. "
            f"Received: quantize={mode!r}"
        )
    copy.set_weights(model.get_weights())
    with warnings.catch_warnings():
        # Keras names each layer that has nothing to quantize.
        warnings.filterwarnings("ignore", "Layer .* does not have a `quantize` method")
        copy.quantize(mode)
    return copy


def check_texts(name, texts):
    """Raises `ValueError` unless `texts` is a list or tuple of strings."""
    if not isinstance(texts, (list, tuple)) or not all(isinstance(text, str) for text in texts):
        raise ValueError(f"`{name}` must be a list of strings. Received: {name}={texts!r:.200}")


def check_tokenizer(side, tokenizer, model):
    """Raises `ValueError` when the tokenizer's ids are not those of the model."""
    for name in ("pad_id", "bos_id", "eos_id"):
        if getattr(tokenizer, name) != getattr(model, name):
            raise ValueError(
                f"`{name}` of the {side} tokenizer must be that of the model. Received: "
                f"{getattr(tokenizer, name)} and {getattr(model, name)}"
            )
    joint = getattr(model, "vocab_size", None)
    known = joint or getattr(model, f"{side}_vocab_size", None)
    if known is not None and tokenizer.vocab_size > known:
        raise ValueError(
            f"the {side} tokenizer's vocabulary must not be larger than the model's. "
            f"Received: {tokenizer.vocab_size} and {known}"
        )


def warn_of_truncation(num_truncated):
    """Warns when texts were longer than the model reads."""
    if num_truncated:
        warnings.warn(
            f"{num_truncated} text(s) were longer than `max_source_length` and were cut.",
            stacklevel=4,
        )
