"""Texts of a training run on JAX and PyTorch: ids, batches and translations without TensorFlow.

The files of the vocabularies are those of the tokenizers of `keras_transformer.text`, so that a
run is exported where TensorFlow is installed.
"""

import collections
import io
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np

from keras_transformer import tokenizer_file
from keras_transformer.atomic_files import write_atomically
from keras_transformer.batches import PairDataset, PreparedCorpus
from keras_transformer.batches.prepared_corpus import PreparedSide
from keras_transformer.decoding import Search
from keras_transformer.process_group import (
    alone,
    first_alone,
    is_first,
    own_process,
    tell_others,
    whole_copy,
)
from keras_transformer.recipes.corpus import Corpus, split_sides
from keras_transformer.recipes.large_files import LargeFiles, find_or_prepare
from keras_transformer.recipes.parallel_text import Pair, normalize
from keras_transformer.recipes.run_directory import say
from keras_transformer.recipes.run_files import CORPORA
from keras_transformer.recipes.settings import FORMS, Settings
from keras_transformer.recipes.texts import Texts
from keras_transformer.reservoir import sample_evenly
from keras_transformer.subwords import explain, training_lines
from keras_transformer.symbols import WHITE_SPACE, order_by_count, split_symbols

PAD_ID, UNK_ID, BOS_ID, EOS_ID = range(4)
SPECIAL_PIECES = ["", "\ufffd", "", ""]
DIGEST_LENGTH = 16  # characters of the name of a corpus on disk
FEW = 0.05  # of the texts, the longest, are searched apart where they are twice as long


class SymbolVocabulary:
    """The ids of a `text.SymbolTokenizer`.

    Args:
        symbols: the first has the id 4.
        reverse: whether ids go from the last symbol to the first.
    """

    kind = "SymbolTokenizer"
    pad_id, bos_id, eos_id = PAD_ID, BOS_ID, EOS_ID

    def __init__(self, symbols: Iterable[str], reverse: bool = False) -> None:
        self.symbols = list(symbols)
        self.reverse = reverse
        self.vocab_size = len(SPECIAL_PIECES) + len(self.symbols)
        self._pieces = [*SPECIAL_PIECES, *self.symbols]
        self._ids = {piece: number for number, piece in enumerate(self.symbols, start=4)}

    @classmethod
    def train(cls, texts: Iterable[str]) -> "SymbolVocabulary":
        """All symbols of the texts, the most frequent first, then by code point."""
        counts = collections.Counter(symbol for text in texts for symbol in split_symbols(text))
        return cls(order_by_count(counts))

    def save(self, path: Path) -> None:
        """Writes the file of a `SymbolTokenizer`."""
        options = {"reverse": True} if self.reverse else {}
        data = tokenizer_file.pack(self.kind, options, " ".join(self.symbols).encode())
        write_atomically(path, data)

    def encode(self, text: str) -> list[int]:
        """The ids of a text."""
        step = -1 if self.reverse else 1
        return [self._ids.get(symbol, UNK_ID) for symbol in split_symbols(text)][::step]

    def decode(self, ids: list[int]) -> str:
        """The text of ids."""
        step = -1 if self.reverse else 1
        return " ".join(self._pieces[number] for number in ids[::step] if number not in (0, 2))

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """The symbol of each id."""
        return [self._pieces[number] or ("</s>" if number == EOS_ID else "") for number in ids]


class SubwordVocabulary:
    """The ids of a `text.SentencePieceTokenizer`.

    A text gets the normal form `normalization`, then its lower case where that is wanted, and then
    what the model's own rule makes of it.

    Args:
        model: a serialized model of sentencepiece.
        normalization: "identity", "nfc" or "nfkc".
        lowercase: whether the case is folded.
    """

    kind = "SentencePieceTokenizer"
    pad_id, bos_id, eos_id = PAD_ID, BOS_ID, EOS_ID

    def __init__(
        self, model: bytes, normalization: str = "identity", lowercase: bool = False
    ) -> None:
        import sentencepiece

        self.model = model
        self.options: dict[str, Any] = {}
        if normalization != "identity":
            self.options["normalization"] = normalization
        if lowercase:
            self.options["lowercase"] = True
        self._processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        self.vocab_size = self._processor.get_piece_size()

    @property
    def has_usual_ids(self) -> bool:
        """Whether its special ids are the first four, in the order that `train` gives them."""
        found = self._processor
        special = found.pad_id(), found.unk_id(), found.bos_id(), found.eos_id()
        return special == (PAD_ID, UNK_ID, BOS_ID, EOS_ID)

    @classmethod
    def train(
        cls,
        texts: Iterable[str],
        vocab_size: int,
        rule: str,
        *,
        lowercase: bool,
        split_digits: bool,
        symbols: Sequence[str] = (),
    ) -> "SubwordVocabulary":
        """Learns a vocabulary of at most `vocab_size` pieces, `symbols` among them."""
        import sentencepiece

        form = rule if rule in FORMS else "identity"
        model = io.BytesIO()
        with tempfile.TemporaryDirectory() as folder:
            settings: dict[str, Any] = {"normalization_rule_name": rule}
            if rule in FORMS:
                file = Path(folder, "rules.tsv")
                rules = "".join(f"{ord(space):X}\t20\n" for space in WHITE_SPACE)
                file.write_text(rules, encoding="utf-8")
                settings = {"normalization_rule_tsv": str(file)}
            try:
                sentencepiece.SentencePieceTrainer.train(
                    sentence_iterator=(
                        fold(line, form, lowercase) for line in training_lines(texts)
                    ),
                    model_writer=model,
                    vocab_size=vocab_size,
                    hard_vocab_limit=False,
                    model_type="bpe",
                    character_coverage=1.0,
                    split_digits=split_digits,
                    user_defined_symbols=list(symbols),
                    pad_id=PAD_ID,
                    unk_id=UNK_ID,
                    bos_id=BOS_ID,
                    eos_id=EOS_ID,
                    minloglevel=2,
                    **settings,
                )
            except RuntimeError as error:
                raise ValueError(explain(str(error), vocab_size)) from error
        return cls(model.getvalue(), form, lowercase)

    def save(self, path: Path) -> None:
        """Writes the file of a `SentencePieceTokenizer`."""
        options = {"lossless": False, **self.options}
        data = tokenizer_file.pack(self.kind, options, self.model)
        write_atomically(path, data)

    def encode(self, text: str) -> list[int]:
        """The ids of a text."""
        return self._processor.encode(fold(text, **self.options))

    def decode(self, ids: list[int]) -> str:
        """The text of ids."""
        return self._processor.decode(ids)

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """The piece of each id."""
        return [self._processor.id_to_piece(int(number)) for number in ids]


Vocabulary = SymbolVocabulary | SubwordVocabulary


def load_vocabulary(path: Path) -> Vocabulary:
    """Reads the file of a tokenizer.

    Raises:
        ValueError: when it is a tokenizer that needs TensorFlow.
    """
    kind, options, payload = tokenizer_file.read(path)
    if kind == SymbolVocabulary.kind and not {*options} - {"reverse"}:
        return SymbolVocabulary(payload.decode().split(" "), **options)
    known = {"lossless", "normalization", "lowercase"}
    if kind == SubwordVocabulary.kind and not options.pop("lossless", False):
        vocabulary = SubwordVocabulary(payload, **options) if known.issuperset(options) else None
        if vocabulary is not None and vocabulary.has_usual_ids:
            return vocabulary
    raise ValueError(f"{path} holds a {kind} that needs TensorFlow. Train with that backend")


class PlainTexts(Texts):
    """Texts without TensorFlow.

    Args:
        path: the directory of the run, which keeps the vocabularies.
        settings: of the run.
        corpus: its pairs; the vocabularies are learned from those for training, once.
    """

    def __init__(self, path: Path, settings: Settings, corpus: Corpus) -> None:
        super().__init__(settings, corpus, *learn_vocabularies(path, settings, corpus))
        self.path = path
        # Of files that stay on disk `train` is a sample.
        self._train = self._encode([] if corpus.large else corpus.train)
        self._validation = self._encode(corpus.validation)
        rows = [row for part in (self._train, self._validation) for side in part for row in side]
        longest = settings.max_length if corpus.large else 1 + max(map(len, rows))
        self.longest = min(settings.max_length, longest)

    def _encode(self, pairs: list[Pair]) -> tuple[list[list[int]], list[list[int]]]:
        sources, targets = split_sides(pairs)
        return [self.source.encode(t) for t in sources], [self.target.encode(t) for t in targets]

    def training_batches(self, first_epoch: int, turned_too: bool = False) -> PairDataset:
        """The batches of training from an epoch on; with `turned_too` of both directions."""
        sides: tuple[Any, Any] = self._train
        if self.corpus.large:
            sides = self._prepared(self.corpus.large)
        elif turned_too:
            turned = self._encode([(target, source) for source, target in self.corpus.train])
            sides = sides[0] + turned[0], sides[1] + turned[1]
        return self._dataset(
            sides,
            self.settings.max_shapes,
            shuffle=True,
            first_epoch=first_epoch,
            batches_per_update=self.settings.accumulate,
            batches_per_epoch=self.settings.batches_per_epoch or None,
        )

    def _prepared(self, large: LargeFiles) -> tuple[PreparedSide, PreparedSide]:
        """The sides of files that stay on disk, which the first process has tokenized."""
        given = self.path, large.files, self.corpus.held_out, self.settings
        name = first_alone(lambda: find_or_prepare(*given)) or " " * DIGEST_LENGTH
        told = tell_others(np.frombuffer(name.encode(), "uint8"))
        corpus = PreparedCorpus(self.path / CORPORA / told.tobytes().decode())
        return corpus.sources, corpus.targets

    def validation_batches(self) -> PairDataset:
        """The batches of validation."""
        return self._dataset(self._validation, max(1, self.settings.max_shapes // 2))

    def _dataset(self, ids: tuple[Any, Any], max_shapes: int, **options: Any) -> PairDataset:
        return PairDataset(
            *ids,
            tokens_per_batch=self.settings.tokens_per_batch,
            max_length=self.longest,
            max_shapes=max_shapes,
            rows_multiple=self.settings.data_parallel,
            seed=self.settings.seed,
            process=own_process(),
            verbose=is_first(),
            **options,
        )

    def translator(self, model: keras.Model, search: Search, **_: Any) -> "PlainTranslator":
        """A function from a list of texts to their translations by the model."""
        return PlainTranslator(model, self, search)

    def tokenize(self, side: str, text: str) -> list[int]:
        """The ids of a text of one side, "source" or "target", before `eos_id`."""
        return [*getattr(self, side).encode(text), EOS_ID]


class Generator(keras.Model):
    """Gives the best output of each source: on JAX `predict` compiles the search once a shape."""

    def __init__(self, model: keras.Model, search: Search) -> None:
        super().__init__()
        self.model, self.search = model, search

    def call(self, source_ids: Any) -> Any:
        """Returns ids (batch, length), at most 50 tokens more than the source has."""
        return self.model.generate(source_ids, self.search).ids[:, 0]


class PlainTranslator:
    """Translates a list of texts, in batches of one or two shapes; one of several processes alone.

    Args:
        model: the model of the run.
        texts: the `PlainTexts` of the run.
        search: a search of the package.
    """

    def __init__(self, model: keras.Model, texts: PlainTexts, search: Search) -> None:
        self.texts, self.model, self.search = texts, model, search
        self.generator: Any = None  # a `Generator`, made when there is something to translate

    def __call__(self, texts: Sequence[str], progress: bool = False) -> list[str]:
        with alone():
            if self.generator is None:
                self.generator = Generator(whole_copy(self.model), self.search)
            else:
                whole_copy(self.model, self.generator.model)
            return self._translate(texts, progress)

    def _translate(self, texts: Sequence[str], progress: bool) -> list[str]:
        rows = [[*self.texts.source.encode(text), EOS_ID] for text in texts]
        outputs = [""] * len(rows)  # that of an empty text, as a `Translator` has it
        order = [number for number in range(len(rows)) if len(rows[number]) > 1]
        if not order:
            return outputs
        order.sort(key=lambda number: len(rows[number]))
        place = round((1 - FEW) * len(order))
        if len(rows[order[-1]]) <= 2 * len(rows[order[place - 1]]):
            place = len(order)
        for members in filter(None, (order[:place], order[place:])):
            found = self._search([rows[number] for number in members], progress)
            for number, row in zip(members, found, strict=True):
                outputs[number] = self._detokenize(row.tolist())
        return outputs

    def _search(self, rows: list[list[int]], progress: bool) -> np.ndarray:
        """The outputs of rows of ids, an array (rows, length)."""
        longest = max(map(len, rows))
        batch_size = min(len(rows), max(1, self.texts.settings.tokens_per_batch // longest))
        parts = self.texts.settings.data_parallel
        batch_size = -(-batch_size // parts) * parts
        num_rows = -(-len(rows) // batch_size) * batch_size  # a last batch is filled with padding
        source_ids = np.full((num_rows, longest), PAD_ID, "int32")
        for place, row in zip(source_ids, rows, strict=False):
            place[: len(row)] = row
        verbose = int(progress and sys.stdout.isatty())
        found = self.generator.predict(source_ids, batch_size=batch_size, verbose=verbose)
        if progress:
            say(f"  {len(rows):,} texts of at most {longest} tokens are done")
        return found[: len(rows)]

    def _detokenize(self, ids: list[int]) -> str:
        """The text of an output, without what follows its end."""
        ids = ids[: ids.index(EOS_ID)] if EOS_ID in ids else ids
        return self.texts.target.decode([n for n in ids if n not in (PAD_ID, BOS_ID)])


def learn_vocabularies(
    path: Path, settings: Settings, corpus: Corpus
) -> tuple[Vocabulary, Vocabulary]:
    """Those of sources and of targets, learned from the training pairs, once."""
    files = [path / "source.tokenizer", path / "target.tokenizer"]
    sides = list(split_sides(corpus.train))
    rules = [settings.source_normalization or settings.normalization, settings.normalization]
    differ = rules[0] != rules[1] or settings.right_to_left or settings.separate_vocabularies
    if not differ:
        files = files[:1]
    made: list[Vocabulary]
    if not all(file.exists() for file in files):
        if settings.start_from:
            made = [load_vocabulary(Path(settings.start_from) / file.name) for file in files]
        elif not settings.has_subwords:
            symbols = SymbolVocabulary.train(sides[0] + sides[1])
            made = [symbols, SymbolVocabulary(symbols.symbols, reverse=settings.right_to_left)]
        elif settings.separate_vocabularies:
            pairs = zip(sides, rules, strict=True)
            made = [learn_subwords(texts, rule, settings) for texts, rule in pairs]
        else:
            if rules[0] not in ("identity", rules[1]):
                sides[0] = [normalize(rules[0], text) for text in sides[0]]
            target = learn_subwords(sides[0] + sides[1], rules[1], settings)
            source = SubwordVocabulary(target.model, rules[0], settings.lowercase)
            made = [target, target] if rules[0] == rules[1] else [source, target]
        for file, vocabulary in zip(files, made, strict=False):
            vocabulary.save(file)
    learned = [load_vocabulary(file) for file in files]
    return learned[0], learned[-1]


def learn_subwords(texts: list[str], rule: str, settings: Settings) -> SubwordVocabulary:
    """Learns a vocabulary of subwords, and says so."""
    if settings.input_sentence_size:
        texts = sample_evenly(texts, settings.input_sentence_size)
    say(f"Learning a vocabulary of {settings.vocab_size:,} pieces from {len(texts):,} texts ...")
    split_digits = settings.format == "dates"
    return SubwordVocabulary.train(
        texts,
        settings.vocab_size,
        rule,
        lowercase=settings.lowercase,
        split_digits=split_digits,
        symbols=settings.user_defined_symbols,
    )


def fold(text: str, normalization: str = "identity", lowercase: bool = False) -> str:
    """A text in its normal form and, where that is wanted, in lower case."""
    text = normalize(normalization, text)
    return text.lower() if lowercase else text
