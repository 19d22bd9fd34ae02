"""The settings of a training run: presets, checks, and the file that a run keeps them in."""

import dataclasses
import json
import math
import operator
import os
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple, Self

from keras_transformer.recipes.presets import FINE_TUNING, PRESETS, RECURRENT_SIZES

SETTINGS = "settings.toml"  # in the directory of a run
IMPORTED = "imported.json"  # beside it where the model came from another system
FORMATS = ("dates", "text", "characters", "inflection", "g2p", "scan")
BACKENDS = ("tensorflow", "jax", "torch")
POSITIONS = ("sinusoidal", "rotary", "relative", "alibi")
SIMILARITIES = ("additive", "general", "dot", "scaled_dot", "cosine", "none")
PRECISIONS = ("float32", "mixed_bfloat16", "mixed_float16")
BLEU_TOKENIZERS = ("13a", "intl", "zh", "char")
FORMS = ("identity", "nfc", "nfkc")  # normalizations that any vocabulary can have
RULES = ("nmt_nfkc", "nmt_nfkc_cf", "nfkc_cf")  # of sentencepiece, which a vocabulary holds


class Bound(NamedTuple):
    """A rule for numbers."""

    words: str
    holds: Callable[[Any, Any], bool]


BOUNDS = {
    "least": Bound("at least", operator.ge),
    "above": Bound("above", operator.gt),
    "most": Bound("at most", operator.le),
    "below": Bound("below", operator.lt),
}
IN_WORDS = {2**32: "2**32", math.inf: "infinity"}


def option(default: Any, **rules: Any) -> Any:
    """A field of `Settings` with rules for its value.

    Args:
        default: its value when nothing is said.
        **rules: `choices`, and numbers for the names of `BOUNDS`. `free` is True for what may
            change when a run goes on.
    """
    return dataclasses.field(default=default, metadata=rules)


@dataclasses.dataclass(frozen=True)
class Settings:
    """What a training run is made with.

    The defaults are those of the preset "tiny". `from_preset` starts from another one.

    Attributes:
        preset: name of the preset that the other settings change.
        format: what the pairs are. "dates" are made from CLDR, without files. "text" is subwords
            of two files, or of two tab-separated columns. "characters" splits two columns into
            characters. "inflection" has the columns lemma, form and tags. "g2p" has word and
            phones. "scan" has lines as "IN: jump twice OUT: I_JUMP I_JUMP".
        train: the file of pairs, or the source and the target file, plain or gzip. For "text" the
            two files of further corpora may follow; several corpora stay on disk.
        mixing_weights: how often a pass has each pair of a corpus, a number of at least 1 for each
            corpus.
        mixing_temperature: of the sampling from corpora; the larger, the more equal are their
            shares. 1 has every pair once.
        validation: pairs for validation; held out of the training pairs when not given.
        test: pairs for the test; held out of the training pairs when not given.
        source_locale: locale of the sources of dates.
        target_locale: locale of the targets of dates.
        vocab_size: number of subwords, special ids included.
        user_defined_symbols: placeholders and the like, each one piece of the vocabulary, never
            split and given back as they are.
        input_sentence_size: largest number of texts that a vocabulary is learned from, a sample;
            0: all.
        separate_vocabularies: whether each side has a vocabulary of its own.
        lowercase: whether all texts are read and written in small letters.
        normalization: "identity", "nfc", "nfkc", "nmt_nfkc", "nmt_nfkc_cf", or a file of rules of
            sentencepiece (.tsv).
        source_normalization: normalization of the sources, where it is another.
        max_length: tokens of the longest text; longer pairs are not trained on.
        max_ratio: largest ratio of the tokens of the two sides; pairs above it are not trained on.
        source_scripts: scripts of most letters of a source, such as Latin; other pairs are not
            trained on.
        target_scripts: those of the targets.
        drop_duplicates: whether a pair is trained on once, however often the files have it.
        right_to_left: whether the model writes the last symbol first; not for subwords.
        model: "transformer" or "recurrent"; "imported" for one of `import`, whose sizes stay.
        num_layers: number of layers of the encoder, and of the decoder.
        num_decoder_layers: number of layers of the decoder, where it has others; 0: as many.
        d_model: width of the model.
        num_heads: number of attention heads.
        d_ff: inner width of the feed-forward networks.
        norm_first: whether to normalise before each sub-layer, not after it as the paper does.
        norm_epsilon: what norms add to the variance; 1e-5 for a model that leaves for Hugging Face.
        position: how positions are told apart.
        dropout: dropout rate of embeddings and sub-layers.
        inner_dropout: dropout rate of attention weights and inner layers.
        remat: whether to compute activations again: less memory, longer steps.
        cell: cell of the recurrent model.
        similarity: similarity of its attention; "general" is bilinear.
        scheduled_sampling: share of the target tokens that the recurrent model writes itself.
        epochs: number of passes over the training pairs, or parts of `batches_per_epoch` batches.
        minutes: ends training after the first epoch that passes this time. Compiling and measuring
            count.
        tokens_per_batch: tokens of either side of a batch, padding included.
        batches_per_epoch: batches of an epoch, at whose end a run validates and saves; 0: as many
            as all pairs make.
        max_shapes: number of shapes of batch; each is compiled once.
        on_disk_from: MiB of both training files, gzip counted four times. Files of this size or
            larger are tokenized once and stay on disk; 0: all. Smaller ones are read into lists.
        learning_rate: largest learning rate, at the end of the warm-up.
        warmup_steps: updates of the warm-up.
        label_smoothing: share of the target that is spread over the vocabulary.
        clip_norm: largest norm of all gradients together; 0: no limit.
        r_drop: weight of R-drop, which draws the dropout twice a step; 0: none.
        subword_dropout: rate of BPE dropout, the share of merges left out at random; two rates are
            of sources and of targets.
        both_directions: number of first epochs that also train from target to source.
        start_from: directory of another run, whose model and vocabularies it begins with. What is
            not given is from an import its sizes, dropout and search, learning rate 0.0002 and
            200 warm-up steps.
        teacher: directory of a run whose translations replace the targets of the training pairs.
            The student takes its vocabularies.
        accumulate: number of batches whose gradients make one update.
        precision: Keras's dtype policy.
        backend: Keras's backend; KERAS_BACKEND when not given.
        steps_per_execution: updates in one call of a GPU; above 1 with "jax" alone.
        data_parallel: number of devices that each batch is divided over; above 1 with "jax" alone.
        model_parallel: number of devices that the weights are divided over; above 1 with "jax"
            alone. It divides num_heads, d_ff and vocab_size.
        seed: seed of weights, batches, dropout and what is held out.
        tensorboard: whether to write OUTPUT/tensorboard too.
        measure_every: translates the validation pairs every so many epochs and keeps the best
            model. 0 keeps the model of the lowest validation perplexity.
        average: keeps the mean of the weights of so many last epochs; 0: no mean.
        beam_size: number of hypotheses of the search; 1 is greedy.
        length_penalty: from 0 to 10; the larger, the longer the translations.
        bleu_tokenize: sacreBLEU's tokenizer; zh for Chinese, char for Japanese, Korean, Thai.
        xla_export: whether XLA compiles the search of the export: faster, and TensorFlow Serving
            needs a flag.
        split_sentences: whether the export translates each sentence on its own; when not given, it
            does if few training texts have several.

    Raises:
        ValueError: for a bad value, or values that do not go together.

    Example:

    >>> settings = Settings.from_preset("tiny", train=("train.en", "train.de"), epochs=40)
    >>> settings.d_model, settings.epochs, settings.learning_rate
    (128, 40, 0.004)
    >>> Settings(dropout=1.0)
    Traceback (most recent call last):
        ...
    ValueError: `dropout` must be at least 0 and below 1. Received: dropout=1.0
    """

    preset: str = "tiny"
    format: str = option("text", choices=FORMATS)
    train: tuple[str, ...] = ()
    mixing_weights: tuple[float, ...] = option((), least=1, below=math.inf)
    mixing_temperature: float = option(1.0, least=1, below=math.inf)
    validation: tuple[str, ...] = ()
    test: tuple[str, ...] = option((), free=True)
    source_locale: str = "en"
    target_locale: str = "fr"
    vocab_size: int = option(8000, least=5)
    user_defined_symbols: tuple[str, ...] = ()
    input_sentence_size: int = option(0, least=0)
    separate_vocabularies: bool = False
    lowercase: bool = False
    normalization: str = "identity"
    source_normalization: str = ""
    max_length: int = option(128, least=16)
    max_ratio: float = option(math.inf, least=1)
    source_scripts: tuple[str, ...] = ()
    target_scripts: tuple[str, ...] = ()
    drop_duplicates: bool = False
    right_to_left: bool = False

    model: str = option("transformer", choices=("transformer", "recurrent", "imported"))
    num_layers: int = option(4, least=1)
    num_decoder_layers: int = option(0, least=0)
    d_model: int = option(128, least=1)
    num_heads: int = option(4, least=1)
    d_ff: int = option(256, least=1)
    norm_first: bool = True
    norm_epsilon: float = option(1e-6, above=0, below=1)
    position: str = option("sinusoidal", choices=POSITIONS)
    dropout: float = option(0.3, least=0, below=1)
    inner_dropout: float = option(0.0, least=0, below=1)
    remat: bool = False
    cell: str = option("lstm", choices=("lstm", "gru"))
    similarity: str = option("additive", choices=SIMILARITIES)
    scheduled_sampling: float = option(0.0, least=0, below=1)

    epochs: int = option(30, least=1, free=True)
    minutes: float = option(math.inf, above=0, free=True)
    tokens_per_batch: int = option(4096, least=1)
    batches_per_epoch: int = option(0, least=0)
    max_shapes: int = option(6, least=1)
    on_disk_from: int = option(256, least=0)
    learning_rate: float = option(0.004, above=0, below=math.inf)
    warmup_steps: int = option(1000, least=1)
    label_smoothing: float = option(0.1, least=0, below=1)
    clip_norm: float = option(0.0, least=0, below=math.inf)
    r_drop: float = option(0.0, least=0, below=math.inf)
    subword_dropout: tuple[float, ...] = option((), least=0, below=1)
    both_directions: int = option(0, least=0)
    start_from: str = ""
    teacher: str = ""
    accumulate: int = option(1, least=1)
    precision: str = option("float32", choices=PRECISIONS)
    backend: str = option("tensorflow", choices=BACKENDS)
    steps_per_execution: int = option(1, least=1, free=True)
    data_parallel: int = option(1, least=1)
    model_parallel: int = option(1, least=1)
    seed: int = option(1, least=0, below=2**32)
    tensorboard: bool = option(False, free=True)

    measure_every: int = option(0, least=0)
    average: int = option(0, least=0)

    beam_size: int = option(4, least=1, free=True)
    length_penalty: float = option(0.6, least=0, most=10, free=True)
    bleu_tokenize: str = option("13a", choices=BLEU_TOKENIZERS, free=True)
    xla_export: bool = option(True, free=True)
    split_sentences: bool | None = option(None, free=True)

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            kind = KINDS[field.type]
            value = kind.convert(field.name, getattr(self, field.name))
            object.__setattr__(self, field.name, value)
            _check_rules(field, value)
        if self.preset not in PRESETS:
            raise ValueError(_must("preset", f"be one of {', '.join(PRESETS)}", self.preset))
        self._check_files()
        self._check_vocabulary()
        self._check_backend()
        self._check_model()
        self._check_training()

    @classmethod
    def from_preset(cls, preset: str | None = None, **values: Any) -> Self:
        """Returns the settings of a preset, with the values given in their place.

        Args:
            preset: a name of `PRESETS`. None takes "dates" for dates, "tiny" for texts and
                "symbols" for the other formats.
            **values: fields of `Settings`. Those of an import as `start_from` come before the
                preset's.

        Raises:
            ValueError: for an unknown preset or field, or a bad value.

        Example:

        >>> Settings.from_preset(train=("words.tsv",), format="g2p").preset
        'symbols'
        """
        for name, value in values.items():
            if name not in FIELDS:
                rule = f"`{name}` is not a setting. The settings are {', '.join(FIELDS)}"
                raise ValueError(f"{rule}. Received: {name}={value!r}")
        values.setdefault("format", "text" if values.get("train") else "dates")
        if preset is None:
            preset = {"dates": "dates", "text": "tiny"}.get(values["format"], "symbols")
        if preset not in PRESETS:
            raise ValueError(_must("preset", f"be one of {', '.join(PRESETS)}", preset))
        values.setdefault("backend", os.environ.get("KERAS_BACKEND") or BACKENDS[0])
        defaults = {"preset": preset, **PRESETS[preset]}
        if values.get("model") == "recurrent":
            defaults = {name: v for name, v in defaults.items() if name not in TRANSFORMER_ONLY}
            defaults |= {name: FIELDS[name].default for name in TRANSFORMER_ONLY}
            defaults |= RECURRENT_SIZES.get(preset, {})
        if start := values.get("start_from"):
            defaults |= settings_of_start(start)
        return cls(**{**defaults, **values})

    def changes(self) -> dict[str, Any]:
        """The fields that are not those of the preset, for the kind of model and the format.

        Example:

        >>> Settings.from_preset("base", train=("a", "b"), dropout=0.2, backend="jax").changes()
        {'train': ('a', 'b'), 'dropout': 0.2, 'backend': 'jax'}
        """
        chosen = {"format": self.format, "train": self.train, "model": self.model}
        plain = type(self).from_preset(self.preset, **chosen, backend=BACKENDS[0])
        own = ("train",) if self.train else ()
        return {
            name: getattr(self, name)
            for name in FIELDS
            if name in own or getattr(self, name) != getattr(plain, name)
        }

    @property
    def search_name(self) -> str:
        """The search of the test in a few words."""
        if self.beam_size == 1:
            return "greedy search"
        return f"beam {self.beam_size}, length penalty {self.length_penalty:g}"

    @property
    def model_name(self) -> str:
        """The model in a few words."""
        if self.model == "imported":
            return "Transformer, imported"
        if self.model == "transformer":
            return f"Transformer, preset {self.preset}"
        attention = f"{self.similarity} attention".replace("none", "no")
        share = self.scheduled_sampling
        sampling = f", scheduled sampling {share:g}" if share else ""
        return f"recurrent, {self.cell.upper()}, {attention}{sampling}, preset {self.preset}"

    @property
    def has_subwords(self) -> bool:
        """Whether the vocabulary is of subwords, not of symbols."""
        return self.format in ("dates", "text")

    @property
    def disk_options(self) -> list[str]:
        """The fields that filter or mix the training pairs, which stay on disk then."""
        return [name for name in DISK_OPTIONS if getattr(self, name) != FIELDS[name].default]

    def _refusal(self, rule: str, *names: str) -> ValueError:
        """The error of fields that do not go together, with their values."""
        received = ", ".join(f"{name}={getattr(self, name)!r}" for name in names)
        return ValueError(f"{rule}. Received: {received}")

    def _check_files(self) -> None:
        if self.format == "dates" and self.train:
            raise ValueError(_must("train", "be empty for `format` 'dates'", self.train))
        is_import = self.model == "imported" and not self.start_from  # it learns from no texts
        if self.format != "dates" and not self.train and not is_import:
            rule = f"name the file of pairs for `format` {self.format!r}"
            raise ValueError(_must("train", rule, self.train))
        if not self.train and (self.validation or self.test):
            rule = "`validation` and `test` need `train`"
            raise self._refusal(rule, "validation", "test", "train")
        is_text = self.format == "text"
        for name in ("train", "validation", "test"):
            most = 2 if is_text else 1
            if len(getattr(self, name)) > most and not (is_text and name == "train"):
                rule = f"be at most {most} {'files' if most > 1 else 'file'} for {self.format!r}"
                raise ValueError(_must(name, rule, getattr(self, name)))
        if len(self.train) > 2 and len(self.train) % 2:
            rule = "be a source and a target file for each corpus, or one file of pairs"
            raise ValueError(_must("train", rule, self.train))
        for name in ("both_directions", "teacher") if len(self.train) > 2 else ():
            if getattr(self, name):
                raise self._refusal(f"`{name}` needs the files of one corpus", name, "train")
        on_disk = is_text and len(self.train) > 1 and not self.both_directions
        for name in self.disk_options if not on_disk else ():
            rule = f"`{name}` needs two files of `train`, `format` 'text' and no `both_directions`"
            raise self._refusal(rule, name, "train", "format", "both_directions")
        for name in ("mixing_weights", "mixing_temperature") if len(self.train) < 4 else ():
            if getattr(self, name) != FIELDS[name].default:
                raise self._refusal(f"`{name}` needs several corpora in `train`", name, "train")
        if self.mixing_weights and self.mixing_temperature != 1:
            rule = "give `mixing_weights` or `mixing_temperature`, not both"
            raise self._refusal(rule, "mixing_weights", "mixing_temperature")
        if self.mixing_weights and len(self.mixing_weights) != len(self.train) // 2:
            rule = f"be one for each of {len(self.train) // 2} corpora of `train`"
            raise ValueError(_must("mixing_weights", rule, self.mixing_weights))

    def _check_vocabulary(self) -> None:
        plain = self.normalization == "identity" and not self.source_normalization
        if self.format != "text" and (self.lowercase or not plain):
            names = ("lowercase", "normalization", "source_normalization")
            rule = "`lowercase`, `normalization` and `source_normalization` need `format` 'text'"
            raise self._refusal(rule, *names, "format")
        if (self.user_defined_symbols or self.input_sentence_size) and self.format != "text":
            rule = "`user_defined_symbols` and `input_sentence_size` need `format` 'text'"
            raise self._refusal(rule, "user_defined_symbols", "input_sentence_size", "format")
        for symbol in self.user_defined_symbols:
            whole = symbol.isprintable() and not {" ", "\u2581"} & set(symbol)
            if not symbol or not whole or (self.lowercase and symbol.lower() != symbol):
                rule = "be printable, without spaces, and with `lowercase` without capitals"
                raise ValueError(_must("user_defined_symbols", rule, symbol))
        if self.separate_vocabularies and not self.has_subwords:
            rule = "`separate_vocabularies` needs `format` 'text' or 'dates'"
            raise self._refusal(rule, "separate_vocabularies", "format")
        if self.right_to_left and self.has_subwords:
            rule = "`right_to_left` needs a `format` of symbols, as 'characters'"
            raise self._refusal(rule, "right_to_left", "format")
        for name in ("normalization", "source_normalization"):
            value = getattr(self, name)
            if value not in ("", *FORMS, *RULES) and not value.endswith(".tsv"):
                rule = f"be one of {', '.join((*FORMS, *RULES))}, or a file of rules, *.tsv"
                raise ValueError(_must(name, rule, value))
        # One vocabulary holds one rule of sentencepiece, and a form can only come before it.
        own, forms = self.source_normalization, FORMS if self.normalization in FORMS else ()
        if own not in ("", self.normalization, *forms) and not self.separate_vocabularies:
            listed = ", ".join((*forms, "as `normalization`"))
            rule = f"be one of {listed} without `separate_vocabularies`"
            raise ValueError(_must("source_normalization", rule, own))

    def _check_backend(self) -> None:
        if self.backend != "tensorflow":
            used = {"subword_dropout": any(self.subword_dropout)}
            used |= {name: getattr(self, name) for name in TENSORFLOW_ONLY}
            for name in filter(used.get, used):
                raise self._refusal(f"`{name}` needs `backend` 'tensorflow'", name, "backend")
            for name in ("normalization", "source_normalization"):
                if getattr(self, name).endswith(".tsv"):
                    rule = f"`{name}` by a file of rules needs `backend` 'tensorflow'"
                    raise self._refusal(rule, name, "backend")
        if self.backend != "jax":
            for name in ("steps_per_execution", "data_parallel", "model_parallel"):
                if getattr(self, name) > 1:
                    raise self._refusal(f"`{name}` above 1 needs `backend` 'jax'", name, "backend")

    def _check_model(self) -> None:
        if self.model == "imported":
            if self.backend != "tensorflow":
                rule = "`model` 'imported' needs `backend` 'tensorflow'"
                raise self._refusal(rule, "model", "backend")
            for name in RECURRENT_ONLY:
                if getattr(self, name) != FIELDS[name].default:
                    raise self._refusal(f"`{name}` needs `model` 'recurrent'", name, "model")
            return
        is_recurrent = self.model == "recurrent"
        if is_recurrent and self.preset not in RECURRENT_SIZES:
            rule = f"be one of {', '.join(RECURRENT_SIZES)} for `model` 'recurrent'"
            raise ValueError(_must("preset", rule, self.preset))
        other = "transformer" if is_recurrent else "recurrent"
        for name in TRANSFORMER_ONLY if is_recurrent else RECURRENT_ONLY:
            if getattr(self, name) != FIELDS[name].default:
                raise self._refusal(f"`{name}` needs `model` {other!r}", name, "model")
        if is_recurrent and self.d_model % 2:
            rule = "be even, half for each direction of the encoder"
            raise ValueError(_must("d_model", rule, self.d_model))
        # A rotation turns pairs of features of a head.
        parts = self.num_heads * (2 if self.position == "rotary" else 1)
        if not is_recurrent and self.d_model % parts:
            name = "2 * `num_heads`" if self.position == "rotary" else "`num_heads`"
            raise ValueError(_must("d_model", f"be a multiple of {name}, {parts}", self.d_model))

    def _check_training(self) -> None:
        if len(self.subword_dropout) > 2:
            rule = "be one rate, or two: of sources and of targets"
            raise ValueError(_must("subword_dropout", rule, self.subword_dropout))
        if any(self.subword_dropout) and not self.has_subwords:
            rule = "`subword_dropout` needs `format` 'text' or 'dates'"
            raise self._refusal(rule, "subword_dropout", "format")
        if self.batches_per_epoch % self.accumulate:
            rule = f"be a multiple of `accumulate`, {self.accumulate}"
            raise ValueError(_must("batches_per_epoch", rule, self.batches_per_epoch))
        if self.teacher and self.start_from:
            raise self._refusal("`teacher` goes without `start_from`", "teacher", "start_from")
        if self.both_directions and (self.separate_vocabularies or self.right_to_left):
            rule = "`both_directions` needs one vocabulary of both sides"
            names = ("both_directions", "separate_vocabularies", "right_to_left")
            raise self._refusal(rule, *names)
        if self.accumulate > 1 and self.precision == "mixed_float16":
            # Its loss scaling leaves out batches that overflow, and the updates lose count.
            rule = "`accumulate` needs `precision` 'float32' or 'mixed_bfloat16'"
            raise self._refusal(rule, "accumulate", "precision")
        for name in ("num_heads", "d_ff", "vocab_size"):
            if self.model_parallel > 1 and getattr(self, name) % self.model_parallel:
                rule = f"be a multiple of `model_parallel`, {self.model_parallel}"
                raise ValueError(_must(name, rule, getattr(self, name)))

    def differences(self, other: Self, names: Iterable[str] | None = None) -> str:
        """Says which fields `other` has otherwise; "" when all are the same.

        Args:
            other: settings to compare with.
            names: the fields to look at; None looks at those that stay when a run goes on.
        """
        if names is None:
            names = [name for name, field in FIELDS.items() if not field.metadata.get("free")]
        pairs = [(name, getattr(self, name), getattr(other, name)) for name in names]
        return ", ".join(f"{name} was {a!r} and is {b!r}" for name, a, b in pairs if a != b)

    def to_toml(self, **tables: Mapping[str, Any]) -> str:
        """Returns the text of a settings file.

        Args:
            **tables: further tables, each a dict.

        Example:

        >>> print(Settings.from_preset("dates").to_toml().splitlines()[-1])
        xla_export = true
        """
        lines = _toml_lines(dataclasses.asdict(self))
        for name, table in tables.items():
            lines += ["", f"[{name}]", *_toml_lines(table)]
        return "\n".join(lines) + "\n"


class Kind:
    """How the values of one type of field are read.

    Args:
        name: of the type, in errors.
        types: of right values.
        is_many: whether the field is a tuple of them.
    """

    def __init__(self, name: str, types: tuple[type[Any], ...], is_many: bool = False) -> None:
        self.name, self.types, self.is_many = name, types, is_many

    def convert(self, field: str, value: Any) -> Any:
        """Returns the value as the field keeps it, or raises `ValueError`."""
        value = as_python(value)
        if not self.is_many:
            return self._convert_one(field, value)
        values = (value,) if isinstance(value, (str, float, int)) else value
        if not isinstance(values, (list, tuple)):
            raise ValueError(_must(field, f"be a list of {self.name}s", value))
        return tuple(self._convert_one(field, item) for item in values)

    def _convert_one(self, field: str, value: Any) -> Any:
        value = as_python(value)
        is_bool = isinstance(value, bool)
        if isinstance(value, os.PathLike) and str in self.types:
            value = os.fspath(value)
        if not isinstance(value, self.types) or (is_bool and bool not in self.types):
            raise ValueError(_must(field, f"be a {self.name}", value))
        number: Any = value
        return float(number) if float in self.types else value


def as_python(value: Any) -> Any:
    """A number or a list of Python's in place of NumPy's, which is not imported here."""
    return value.tolist() if type(value).__module__ == "numpy" else value


KINDS: dict[Any, Kind] = {
    str: Kind("string", (str,)),
    bool: Kind("true or false", (bool,)),
    int: Kind("whole number", (int,)),
    float: Kind("number", (float, int)),
    bool | None: Kind("true or false", (bool, type(None))),
    tuple[str, ...]: Kind("string", (str,), is_many=True),
    tuple[float, ...]: Kind("number", (float, int), is_many=True),
}
FIELDS = {field.name: field for field in dataclasses.fields(Settings)}
TRANSFORMER_ONLY = (
    *("num_decoder_layers", "num_heads", "d_ff", "norm_first", "norm_epsilon", "position"),
    *("inner_dropout", "remat", "r_drop", "model_parallel"),
)
TENSORFLOW_ONLY = ("tensorboard", "teacher")
# What only pairs that stay on disk have.
DISK_OPTIONS = (
    *("max_ratio", "source_scripts", "target_scripts", "drop_duplicates"),
    *("mixing_weights", "mixing_temperature"),
)
RECURRENT_ONLY = ("cell", "similarity", "scheduled_sampling")
# The settings that an import has from its model and its search.
OF_IMPORT: tuple[str, ...] = ("model", "vocab_size", "separate_vocabularies", "num_layers")
OF_IMPORT += ("num_decoder_layers", "d_model", "num_heads", "d_ff", "norm_first", "position")
OF_IMPORT += ("norm_epsilon", "dropout", "inner_dropout", "r_drop", "remat")
OF_IMPORT += ("beam_size", "length_penalty")


def read_settings(path: str | PathLike[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Reads a settings file; returns its fields, and its table `run`, of a run that has begun.

    Raises:
        ValueError: when the file is not there or no TOML.
    """
    path = Path(path)
    if not path.is_file():
        raise ValueError(f"{path}: there is no such file. Check the path.")
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: is not TOML ({error}). Correct the file.") from error
    run = values.pop("run", {})
    return values, run


def settings_of_start(path: str | PathLike[str]) -> dict[str, Any]:
    """What settings a run has that starts from the run `path`, unless it is told others.

    From an import they are those of `OF_IMPORT` and the rate of `FINE_TUNING`. From a run of our
    own there are none.

    Example:

    >>> settings_of_start("nowhere")
    {}
    """
    file = Path(path) / SETTINGS
    if not file.exists() or not (Path(path) / IMPORTED).exists():
        return {}
    own, _ = read_settings(file)
    return {**{name: own[name] for name in OF_IMPORT if name in own}, **FINE_TUNING}


def _check_rules(field: dataclasses.Field[Any], value: Any) -> None:
    rules = field.metadata
    for item in value if isinstance(value, tuple) else [value]:
        if "choices" in rules and item not in rules["choices"]:
            raise ValueError(_must(field.name, f"be one of {', '.join(rules['choices'])}", value))
        bounds = [name for name in BOUNDS if name in rules]
        if not all(BOUNDS[name].holds(item, rules[name]) for name in bounds):
            limits = [IN_WORDS.get(rules[name], rules[name]) for name in bounds]
            told = [
                f"{BOUNDS[name].words} {limit}" for name, limit in zip(bounds, limits, strict=True)
            ]
            raise ValueError(_must(field.name, f"be {' and '.join(told)}", value))


def _must(name: str, rule: str, value: Any) -> str:
    """The message of a `ValueError`."""
    return f"`{name}` must {rule}. Received: {name}={value!r}"


def _toml_lines(values: Mapping[str, Any]) -> list[str]:
    """`name = value` of each that is not None."""
    return [f"{name} = {_toml(value)}" for name, value in values.items() if value is not None]


def _toml(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, str):
        # As JSON, but for the one control character that TOML alone forbids.
        return re.sub("\x7f", r"\\u007f", json.dumps(value, ensure_ascii=False))
    return str(value).lower()
