"""A model, its tokenizers and a search as one object that maps strings to strings."""

import inspect
import os
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from keras_transformer import arguments, processor
from keras_transformer.decoding import BeamSearch, Search, Shortlist
from keras_transformer.decoding.search import IMPOSSIBLE, LARGEST_LENGTH_PENALTY
from keras_transformer.lora import has_lora, merge_lora
from keras_transformer.models.sequence_to_sequence import SequenceToSequence, length_within
from keras_transformer.serving.export import export
from keras_transformer.serving.id_functions import SMALLEST_LENGTH, IdFunctions, powers_of_two
from keras_transformer.serving.stored_copy import gains_by_columns
from keras_transformer.serving.string_functions import StringFunctions
from keras_transformer.text.strings import string_tensor
from keras_transformer.text.tokenizer import Tokenizer

LONGEST_SOURCE = 256  # in tokens, when neither the caller nor the model's positions say another
# The graph gets so many texts at a time. It batches them by length itself.
TEXTS_PER_CALL = 512


def check_texts(name: str, texts: Sequence[str]) -> None:
    """Raises `ValueError` unless `texts` is a list or tuple of strings."""
    if not isinstance(texts, (list, tuple)) or not all(isinstance(text, str) for text in texts):
        raise ValueError(f"`{name}` must be a list of strings. Received: {name}={texts!r:.200}")


def check_tokenizer(side: str, tokenizer: Tokenizer, model: SequenceToSequence) -> None:
    """Raises `ValueError` when the tokenizer's ids are not those of the model.

    The source tokenizer may not reverse, because long texts are divided from their beginning on.
    """
    if side == "source" and tokenizer.reverse:
        raise ValueError(
            "a tokenizer with `reverse=True` must be that of the targets alone; give one without "
            "it for the sources. Received: source_tokenizer.reverse=True"
        )
    special = {
        "pad_id": (tokenizer.pad_id, model.pad_id),
        "bos_id": (tokenizer.bos_id, model.bos_id),
        "eos_id": (tokenizer.eos_id, model.eos_id),
    }
    for name, (own, known) in special.items():
        if own != known:
            raise ValueError(
                f"`{name}` of the {side} tokenizer must be that of the model. "
                f"Received: {own} and {known}"
            )
    source_size, target_size = model.vocabulary_sizes
    size = source_size if side == "source" else target_size
    if tokenizer.vocab_size > size:
        raise ValueError(
            f"the {side} tokenizer's vocabulary must not be larger than the model's. "
            f"Received: {tokenizer.vocab_size} and {size}"
        )


def checked_max_length(model: SequenceToSequence, max_length: int | None) -> int | None:
    """Returns `max_length`, or raises `ValueError` when the model's positions end before it."""
    return None if max_length is None else length_within(model.longest_target, max_length)


def checked_max_source_length(model: SequenceToSequence, max_source_length: int | None) -> int:
    """Returns `max_source_length`, or raises `ValueError` when the model cannot read as much."""
    last = model.longest_source
    if max_source_length is None:
        return LONGEST_SOURCE if last is None else min(LONGEST_SOURCE, last)
    max_source_length = arguments.positive_integer("max_source_length", max_source_length)
    if max_source_length < SMALLEST_LENGTH:
        raise ValueError(
            f"`max_source_length` must be at least {SMALLEST_LENGTH}. "
            f"Received: max_source_length={max_source_length}"
        )
    if last is not None and max_source_length > last:
        raise ValueError(
            f"`max_source_length` must be at most {last}, the model's last position. "
            f"Received: max_source_length={max_source_length}"
        )
    return max_source_length


def checked_shortlist(
    model: SequenceToSequence, tokenizers: Sequence[Tokenizer], shortlist: Shortlist | None
) -> Shortlist | None:
    """Returns `shortlist`, or raises `ValueError` unless it is None or of these vocabularies."""
    if shortlist is None:
        return None
    if not isinstance(shortlist, Shortlist):
        raise ValueError(
            "`shortlist` must be a `Shortlist` of `keras_transformer.decoding`. "
            f"Received: shortlist={shortlist!r:.80}"
        )
    sizes = len(shortlist.target_ids), shortlist.vocab_size
    for side, size, tokenizer, most in zip(
        ("source", "target"), sizes, tokenizers, model.vocabulary_sizes, strict=True
    ):
        if not tokenizer.vocab_size <= size <= most:
            raise ValueError(
                f"`shortlist` must have the {side} tokens of the tokenizer and the model, "
                f"{tokenizer.vocab_size} to {most}. Received: a Shortlist of {size}"
            )
    return shortlist


def checked_tag(name: str, tag: str | None, tokenizer: Tokenizer) -> str | None:
    """Returns `tag`, or raises `ValueError` unless it is None or one of the tokenizer's."""
    if tag is None:
        return None
    try:
        tokenizer.tag_id(tag)
        return str(tag)
    except ValueError as error:
        raise ValueError(f"`{name}`: {error}") from None


def warn_of_truncation(num_truncated: int) -> None:
    """Warns when texts or prefixes were longer than the model reads or writes."""
    if num_truncated:
        warnings.warn(
            f"{num_truncated} text(s) were too long, or their prefixes, and have no translation: "
            "see `max_source_length`, `max_segments` and `max_length`.",
            stacklevel=4,
        )


class Hypothesis(NamedTuple):
    """One translation of a text.

    Attributes:
        translation: the text, "" for one that was refused.
        score: its log-probability under the search's penalties.

    Example:

    >>> text, score = Hypothesis("Ein Hund.", -0.7)
    >>> text
    'Ein Hund.'
    """

    translation: str
    score: float


class AlignedPair(NamedTuple):
    """A piece of a translation, and what it was read from.

    Attributes:
        target: slice of the translation, in bytes of UTF-8.
        source: slice of the source text, in bytes of UTF-8.

    Example:

    >>> pair = AlignedPair(target=slice(4, 8), source=slice(2, 5))
    >>> "Ein Hund.".encode()[pair.target], "a dog.".encode()[pair.source]
    (b'Hund', b'dog')
    """

    target: slice
    source: slice


class Alignment(NamedTuple):
    """A translation, and what each piece of it was read from.

    Attributes:
        translation: the text.
        pairs: list of `AlignedPair`, in the order in which the model wrote.

    Example:

    >>> alignment = Alignment("Ein Hund.", [AlignedPair(slice(4, 8), slice(2, 5))])
    >>> [pair.source for pair in alignment.pairs]
    [slice(2, 5, None)]
    """

    translation: str
    pairs: list[AlignedPair]


class PairScore(NamedTuple):
    """How probable a target is, given its source.

    Attributes:
        log_prob: the log-probability of all its tokens; -1e9 for a pair that was refused.
        num_tokens: their number, `eos_id` included.

    Example:

    >>> score = PairScore(log_prob=-1.5, num_tokens=3)
    >>> score.log_prob / score.num_tokens
    -0.5
    """

    log_prob: float
    num_tokens: int


def hypotheses(translations: Iterable[bytes], scores: Iterable[float]) -> list[Hypothesis]:
    """Returns the first hypothesis of a text, and each other that exists."""
    pairs = enumerate(zip(translations, scores, strict=True))
    return [
        Hypothesis(text.decode("utf-8"), float(score))
        for rank, (text, score) in pairs
        if not rank or score > IMPOSSIBLE / 2
    ]


class Translator:
    """Translates lists of strings, and exports itself as a SavedModel that does the same.

    The graph tokenizes texts, sorts them by length and pads them to one of a few shapes. It
    searches in a function that XLA compiles, and detokenizes. XLA compiles a shape when the
    translator first meets it.

    Args:
        model: a `Transformer`, a `RecurrentSeq2Seq`, or a model with their methods and
            properties.
        source_tokenizer: a tokenizer of `keras_transformer.text`, without `reverse`.
        target_tokenizer: the tokenizer of the target; `source_tokenizer` when None.
        search: a search of `keras_transformer.decoding`; `BeamSearch()` when None.
        max_length: the largest number of output tokens. None allows 50 more than the source has.
        max_source_length: the longest source that the model reads at once, in tokens with
            `eos_id`. None allows 256, or what the model's positions allow. A longer text is
            divided behind sentences, or else behind words, and its segments are translated.
        max_batch_tokens: the most source tokens of a batch, padding included. Longer texts make
            batches of fewer rows.
        jit_compile: whether XLA compiles the search, which makes it faster. TensorFlow Serving on
            a CPU runs such an export when started with `--xla_cpu_compilation_enabled=true`.
            TensorFlow Serving on a GPU does not run it. Any server runs an export with False.
        quantize: "int8" translates with a copy of the model in 8-bit integers. Matrices have one
            scale for each output. Activations are rounded to 8 bits row by row. The variables take
            little more than a quarter of the size, those of a recurrent model more, because its
            cells stay as they are. Large models run faster where XLA compiles. None translates
            with the model as it is.
        max_segments: the most segments of a text, or of a sentence of it with `split_sentences`; 1
            divides neither further. A text may have as many tokens as so many full segments. A
            text beyond either bound is refused: its translation is empty, the call warns, and
            `truncated` is true in the SavedModel's answer.
        separator: joins the translations of the segments; "" for languages that are written
            without spaces.
        split_sentences: whether each sentence of a text is translated on its own, however short
            the text is. Use True for a model of single sentences, which may leave out all but the
            first. Use False for documents, and for texts that have no sentences.
        source_tag: one of `source_tokenizer.tags`, such as a language code. The model reads it
            before every text, and before each segment of one. A tag that the text itself begins
            with takes its place, where the tokenizer has `leading_tags`.
        target_tag: one of `target_tokenizer.tags`, which the model's output begins with. It is
            not part of the translation. It counts as the first token, in lengths and in scores.
        source_eos: whether sources end in `eos_id`, as `translation_dataset` makes them. False is
            for models that were trained without, such as some of OpenNMT.
        layout: how the matrices of an export are stored, which decides its speed on a processor.
            With "rows" they are as in the model. "columns" are transposed: with AVX2 and without
            AVX-512, and on newer processors of Intel, XLA multiplies few rows faster by matrices
            that no cache holds. "auto" chooses by the processor of this machine, for a
            `Transformer` of at least 32 MiB. Name the layout for a server of another kind. With
            "columns" a copy of the model translates here too.
        shortlist: which target tokens a batch of sources may have in its outputs. The logits of
            others are not computed, but for a sample, which makes small batches faster where the
            vocabulary is large. `Shortlist.learn` makes one from training pairs. The tokens are
            those of all texts of a batch, so the other texts may change a translation. None is the
            whole vocabulary, with which they change none.

    Attributes:
        model: the argument. With `quantize` or "columns" a copy of it translates, so further
            training of `model` changes no translation. Otherwise it does.
        source_tokenizer: the argument.
        target_tokenizer: the argument, or `source_tokenizer`.
        search: the argument, or `BeamSearch()`.

    Every other argument is an attribute of its own name, too. Assigning to an attribute raises
    `AttributeError`, because compiled functions keep its value: make another translator.

    Returns:
        Called with a list of strings, the list of their best translations, in order.

    Raises:
        ValueError: for a bad argument, or a tokenizer that does not fit the model.
        AttributeError: when an attribute is assigned.

    Example:

    >>> from keras_transformer import Transformer
    >>> from keras_transformer.text import CharacterTokenizer
    >>> tokenizer = CharacterTokenizer.train(["abc"])
    >>> model = Transformer(tokenizer.vocab_size, num_layers=1, d_model=8, num_heads=2, d_ff=16)
    >>> translator = Translator(model, tokenizer, max_length=4)
    >>> len(translator(["abc", "cab"]))
    2
    >>> translator.search.beam_size
    4
    """

    def __init__(
        self,
        model: SequenceToSequence,
        source_tokenizer: Tokenizer,
        target_tokenizer: Tokenizer | None = None,
        search: Search | None = None,
        max_length: int | None = None,
        *,
        max_source_length: int | None = None,
        max_batch_tokens: int = 2048,
        jit_compile: bool = True,
        quantize: Literal["int8"] | None = None,
        max_segments: int = 16,
        separator: str = " ",
        split_sentences: bool = False,
        source_tag: str | None = None,
        target_tag: str | None = None,
        source_eos: bool = True,
        layout: Literal["auto", "rows", "columns"] = "auto",
        shortlist: Shortlist | None = None,
    ) -> None:
        self.model = model
        self.source_tokenizer = source_tokenizer
        self.target_tokenizer = source_tokenizer if target_tokenizer is None else target_tokenizer
        self.search = BeamSearch() if search is None else search
        self.max_length = checked_max_length(model, max_length)
        self.max_source_length = checked_max_source_length(model, max_source_length)
        self.max_batch_tokens = arguments.positive_integer("max_batch_tokens", max_batch_tokens)
        self.jit_compile = arguments.boolean("jit_compile", jit_compile)
        self.quantize = arguments.one_of("quantize", quantize, (None, "int8"))
        self.layout = arguments.one_of("layout", layout, ("auto", "rows", "columns"))
        self.max_segments = arguments.positive_integer("max_segments", max_segments)
        self.separator = arguments.string("separator", separator)
        self.split_sentences = arguments.boolean("split_sentences", split_sentences)
        self.source_eos = arguments.boolean("source_eos", source_eos)
        if quantize and layout == "columns":
            raise ValueError(
                "`layout` must be 'auto' or 'rows' with `quantize`, which is slower in columns. "
                f"Received: layout={layout!r}, quantize={quantize!r}"
            )
        check_tokenizer("source", self.source_tokenizer, model)
        check_tokenizer("target", self.target_tokenizer, model)
        tokenizers = self.source_tokenizer, self.target_tokenizer
        self.shortlist = checked_shortlist(model, tokenizers, shortlist)
        self.source_tag = checked_tag("source_tag", source_tag, self.source_tokenizer)
        self.target_tag = checked_tag("target_tag", target_tag, self.target_tokenizer)
        if not isinstance(self.search, Search):
            raise ValueError(
                "`search` must be a `Search`, as `BeamSearch(4)` is. "
                f"Received: search={search!r:.80}"
            )
        self.id_functions = IdFunctions(
            model,
            self.search,
            max_length=self.max_length,
            max_source_length=self.max_source_length,
            max_batch_tokens=self.max_batch_tokens,
            jit_compile=self.jit_compile,
            quantize=self.quantize,
            layout="rows" if layout == "auto" else layout,
            first_id=None if target_tag is None else self.target_tokenizer.tag_id(target_tag),
            shortlist=self.shortlist,
        )
        self.string_functions = StringFunctions(
            self.id_functions,
            self.source_tokenizer,
            self.target_tokenizer,
            max_segments=self.max_segments,
            separator=self.separator,
            split_sentences=self.split_sentences,
            source_tag=self.source_tag,
            target_tag=self.target_tag,
            source_eos=self.source_eos,
        )

    def __setattr__(self, name: str, value: object) -> None:
        if name in vars(self):
            raise AttributeError(
                f"`{name}` of a Translator must stay as it is, because compiled functions keep its "
                f"value; make another Translator. Received: {name}={value!r:.80}"
            )
        super().__setattr__(name, value)

    @property
    def settings(self) -> dict[str, Any]:
        """The constructor's arguments by name: `Translator(**settings)` is one like this."""
        names = list(inspect.signature(Translator.__init__).parameters)[1:]
        return {name: getattr(self, name) for name in names}

    @property
    def export_layout(self) -> str:
        """The layout of an export's matrices: "rows" or "columns"."""
        if self.layout != "auto":
            return self.layout
        # Without XLA columns were not measured.
        is_for_columns = self.jit_compile and self.quantize is None
        if is_for_columns and gains_by_columns(self.model):
            return processor.preferred_layout()
        return "rows"

    def for_export(self) -> "Translator":
        """This translator, or one like it whose matrices are merged and have an export's layout."""
        layout, model = self.export_layout, self.model
        if self.id_functions.layout == layout and not has_lora(model):
            return self
        model = merge_lora(model) if has_lora(model) else model
        return Translator(**{**self.settings, "model": model, "layout": layout})

    @property
    def shapes(self) -> list[tuple[int, int]]:
        """Every (rows, source length) for which the search is ever compiled."""
        search = self.id_functions.search_ids
        sizes = zip(search.shapes.lengths, search.shapes.row_limits, strict=True)
        return [
            (rows, length)
            for length, most in sizes
            for rows in sorted({search.rows_at_a_time(size) for size in powers_of_two(1, most)})
        ]

    @property
    def num_compilations(self) -> int:
        """How often XLA has compiled for this translator: once for each shape and function met.

        Translations are one function. Those with options of the call, alignments, scores and
        vectors are one each. It stays 0 without `jit_compile`.
        """
        if not self.jit_compile:
            return 0
        met = [function.shapes_met for function in self.id_functions.functions]
        return sum(int(tf.math.count_nonzero(shapes)) for shapes in met)

    def __call__(self, texts: Sequence[str], progress: bool = False) -> list[str]:
        """Returns the best translation of each of `texts`, a list of strings."""
        rows = self._in_calls(self.string_functions.serving_default, texts, progress)
        return [row["translation"].decode("utf-8") for row in rows]

    def n_best(self, texts: Sequence[str], progress: bool = False) -> list[list[Hypothesis]]:
        """Returns for each text a list of `Hypothesis(translation, score)`, the best first."""
        rows = self._in_calls(self.string_functions.n_best, texts, progress)
        return [hypotheses(row["translations"], row["scores"]) for row in rows]

    def translate(
        self,
        texts: Sequence[str],
        length_penalty: float | None = None,
        max_length: int | None = None,
        num_hypotheses: int | None = None,
        prefixes: Sequence[str] | None = None,
        *,
        split_sentences: bool | None = None,
        source_tag: str | None = None,
        target_tag: str | None = None,
    ) -> list[list[Hypothesis]]:
        """Translates as `n_best`, with options of this call.

        Args:
            texts: list of str.
            length_penalty: number from 0 to 10. None selects the beam search's own. Another search
                has no length penalty and takes None alone.
            max_length: the largest number of output tokens, at most that of the translator. It
                holds for each segment of a text that is divided.
            num_hypotheses: how many for each text, at most the beam size. None gives as many as
                `n_best`.
            prefixes: list of str, what each translation must begin with. It must end in it where
                the target tokenizer reverses. An empty text has an empty translation whatever its
                prefix. A text whose prefix is longer than the output may be, or than the longest
                source, has no translation, and the call warns.
            split_sentences: whether each sentence is translated on its own. None selects the
                translator's own.
            source_tag: the tag of all texts. None selects the translator's own.
            target_tag: the tag of all translations. None selects the translator's own.

        Returns:
            For each text a list of `Hypothesis(translation, score)`, the best first.

        Raises:
            ValueError: for a bad option.
        """
        if length_penalty is not None:
            length_penalty = arguments.number_within(
                "length_penalty", length_penalty, 0, LARGEST_LENGTH_PENALTY
            )
            self.search.check_length_penalty(length_penalty)
        positive = arguments.positive_integer
        max_length = arguments.optional(positive, "max_length", max_length)
        num_hypotheses = arguments.optional(positive, "num_hypotheses", num_hypotheses)
        most = self.id_functions.max_hypotheses
        if (num_hypotheses or 1) > most:
            raise ValueError(
                f"`num_hypotheses` must be at most {most}, the beam size. "
                f"Received: num_hypotheses={num_hypotheses}"
            )
        if split_sentences is not None:
            split_sentences = arguments.boolean("split_sentences", split_sentences)
        source_tag = checked_tag("source_tag", source_tag, self.source_tokenizer)
        target_tag = checked_tag("target_tag", target_tag, self.target_tokenizer)
        check_texts("texts", texts)
        prefixes = [""] * len(texts) if prefixes is None else prefixes
        check_texts("prefixes", prefixes)
        if len(prefixes) != len(texts):
            raise ValueError(
                "`prefixes` must be as many as the texts. "
                f"Received: {len(prefixes)} for {len(texts)} texts"
            )
        count = len(texts)
        options = [
            string_tensor(texts),
            tf.fill([count], -1.0 if length_penalty is None else length_penalty),
            tf.fill([count], min(max_length or 0, self.id_functions.longest_output)),
            tf.fill([count], num_hypotheses or 0),
            string_tensor(prefixes),
            tf.fill([count], -1 if split_sentences is None else int(split_sentences)),
        ]
        if self.string_functions.has_tags:
            options += [tf.fill([count], tag or "") for tag in (source_tag, target_tag)]
        answer = self.string_functions.translate_with_options(*options)
        warn_of_truncation(int(tf.reduce_sum(tf.cast(answer["truncated"], tf.int32))))
        width = num_hypotheses or self.id_functions.num_hypotheses
        translations, scores = (
            answer[name][:, :width].numpy() for name in ("translations", "scores")
        )
        return [hypotheses(*row) for row in zip(translations, scores, strict=True)]

    def align(self, texts: Sequence[str], progress: bool = False) -> list[Alignment]:
        """Returns for each text `Alignment(translation, pairs)`: what each piece was read from.

        A pair is `AlignedPair(target, source)`, a slice of the translation and one of the text, in
        bytes of UTF-8. The source is where the decoder's last layer attended most. Attention shows
        where the model looked. It does not prove what caused a word. Pairs are in the order in
        which the model wrote: from the end of each segment where the target tokenizer reverses.
        """
        names = ("target_start", "target_end", "source_start", "source_end")
        found = []
        for row in self._in_calls(self.string_functions.align, texts, progress):
            offsets = zip(*(row[name].tolist() for name in names), strict=True)
            pairs = [
                AlignedPair(slice(*four[:2]), slice(*four[2:])) for four in offsets if four[0] >= 0
            ]
            found.append(Alignment(row["translation"].decode("utf-8"), pairs))
        return found

    def encode(self, texts: Sequence[str], progress: bool = False) -> np.ndarray:
        """Returns vectors (texts, d_model): the mean of the encoder's over each text's tokens."""
        rows = self._in_calls(self.string_functions.encode, texts, progress)
        empty = np.zeros((0, self.model.d_model), "float32")
        return np.stack([row["vector"] for row in rows]) if rows else empty

    def score(self, source_texts: Sequence[str], target_texts: Sequence[str]) -> list[PairScore]:
        """Returns for each pair `PairScore(log_prob, num_tokens)`, `eos_id` included."""
        check_texts("source_texts", source_texts)
        check_texts("target_texts", target_texts)
        if len(source_texts) != len(target_texts):
            raise ValueError(
                "`source_texts` and `target_texts` must be equally many. "
                f"Received: {len(source_texts)} and {len(target_texts)}"
            )
        answer = self.string_functions.score(
            string_tensor(source_texts), string_tensor(target_texts)
        )
        warn_of_truncation(int(tf.reduce_sum(tf.cast(answer["truncated"], tf.int32))))
        pairs = zip(answer["log_prob"].numpy(), answer["num_tokens"].numpy(), strict=True)
        return [PairScore(float(log_prob), int(num_tokens)) for log_prob, num_tokens in pairs]

    def export(
        self,
        path: str | os.PathLike[str],
        card: dict[str, Any] | None = None,
        allowed_operations: Iterable[str] = (),
        verbose: bool = True,
    ) -> None:
        """Writes a SavedModel to the new directory `path`; see `serving.export`."""
        export(self, path, card, allowed_operations, verbose)

    def _in_calls(
        self, function: Callable[..., dict[str, tf.Tensor]], texts: Sequence[str], progress: bool
    ) -> list[dict[str, Any]]:
        """What `function` answers to each text, a dictionary; some hundred texts at a time."""
        check_texts("texts", texts)
        bar = keras.utils.Progbar(len(texts), unit_name="text") if progress and texts else None
        rows: list[dict[str, Any]] = [{}] * len(texts)
        # Texts of similar length together: the graph sorts by tokens, but only what one call gives.
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
