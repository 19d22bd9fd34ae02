"""translation_dataset: sentence pairs as batches of ids, in a bounded number of shapes."""

import itertools
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from keras_transformer import arguments
from keras_transformer.batches.passes import Batch, Passes, Side
from keras_transformer.batches.plan import make_passes
from keras_transformer.batches.prepared_corpus import PreparedSide, are_prepared
from keras_transformer.batches.token_store import SpecialIds
from keras_transformer.text.bpe_dropout import BpeDropout
from keras_transformer.text.strings import text_list
from keras_transformer.text.subword_dropout import SubwordDropout
from keras_transformer.text.tokenization import (
    TaggedTokenizer,
    TokenizerLike,
    check_same_special_ids,
    digest_tokenizer,
    read_special_ids,
    tokenize_all,
)


def translation_dataset(
    source_texts: Iterable[str],
    target_texts: Iterable[str],
    source_tokenizer: TokenizerLike,
    target_tokenizer: TokenizerLike | None = None,
    tokens_per_batch: int = 4096,
    *,
    shuffle: bool = False,
    seed: int | None = None,
    max_length: int = 256,
    max_shapes: int = 6,
    first_epoch: int = 0,
    batches_per_epoch: int | None = None,
    batches_per_update: int = 1,
    subword_dropout: float | Sequence[float] = 0.0,
    rows_multiple: int = 1,
    prefetch: int = 2,
    verbose: bool = True,
    source_tag: str | None = None,
    target_tag: str | None = None,
    source_eos: bool = True,
) -> tf.data.Dataset:
    """Makes a `tf.data.Dataset` of `((source_ids, target_in_ids), target_out_ids)` for `fit`.

    Source rows are tokens then eos, target inputs bos then tokens, target outputs tokens then eos,
    all int32, padded with `pad_id`. The function tokenizes the pairs and groups them by length into
    at most `max_shapes` shapes of batch, those that waste the least padding. XLA compiles at most
    that often. Each pair comes exactly once a pass. Rows of padding fill the last batch of a shape;
    masks leave them without effect.

    Each iteration over the dataset is an epoch; the first is number `first_epoch`. The order of
    epoch e depends on the pairs, `seed` and e alone, so a resumed training can go on where it
    stopped. An iterator takes its number with its first batch, also one that only peeks.

    Args:
        source_texts: iterable of str; or `sources` of a `PreparedCorpus` of these tokenizers.
        target_texts: iterable of str, as many; or its `targets`.
        source_tokenizer: a tokenizer of this package, or any object with its `tokenize`,
            `pad_id`, `bos_id` and `eos_id`.
        target_tokenizer: the same for the targets; None uses `source_tokenizer`.
        tokens_per_batch: the largest rows * padded length of either side of a batch.
        shuffle: whether each epoch has a new order of pairs and batches. Otherwise batches go
            from short to long, pairs of a shape in the order given.
        seed: integer of at least 0; None draws one.
        max_length: pairs with a side of more tokens, eos included, are left out and counted.
        max_shapes: the largest number of shapes of batch.
        first_epoch: number of the first epoch.
        batches_per_epoch: batches of an epoch of `fit`; None for all pairs once. With a number, an
            epoch goes on in the data where the one before stopped, pass after pass. For large
            corpora, to validate and save more often. `steps_per_epoch` of `fit` in its place would
            make epochs that are none of the dataset's, which `first_epoch` cannot go on from.
        batches_per_update: batches that `gradient_accumulation_steps` of the optimizer make one
            update of. Above 1, each batch comes with a third element, weights of its tokens. With
            them the mean of `MaskedCrossentropy(reduction="sum")` over the update's batches is
            the mean over the update's tokens, however they are spread. Batches of padding fill
            the last update of an epoch.
        subword_dropout: rate of BPE dropout, in [0, 1), or a pair of rates, of sources and of
            targets. Each pass splits the texts anew and leaves out this share of the merges. The
            model thus sees words in more than one spelling. The paper's rate is 0.1, which
            makes about 20 % more tokens of Multi30K. A batch's texts are split as it is made.
            Shapes have room for those of pass 0; a text that comes out longer later is split
            again, and after four times as without dropout. A side with it needs a
            `SentencePieceTokenizer` of type BPE, and sentencepiece.
        rows_multiple: the number of rows of every batch is a multiple of it: the number of devices
            that share a batch. Rows of padding fill what is missing.
        prefetch: batches made ahead; 0 for none.
        verbose: whether to write to standard error one line that says what was kept and left out,
            and lines of progress when tokenizing takes long.
        source_tag, target_tag: a tag of the tokenizer, such as a language code. It comes before the
            tokens of every source and of every target, as in `Translator`. With `leading_tags` of
            the tokenizer a tag that a text begins with takes its place.
        source_eos: whether sources end in eos. False is for a model trained without it, such as
            some of OpenNMT, with `Translator(source_eos=False)`; padding takes its place.

    Returns:
        A `tf.data.Dataset` of known cardinality, repeatable. Sizes that all of its shapes share are
        static in its `element_spec`, with `max_shapes=1` all of them, and others None. Its
        attribute `report` is a `DatasetReport`; datasets derived from it (`.take`, `.map`) do not
        have the attribute.

    Raises:
        TypeError: when the texts are not iterables of str.
        ValueError: when the numbers of texts differ, no pair is left, or `tokens_per_batch` is
            smaller than `rows_multiple` sentences. When the tokenizers differ in `pad_id`,
            `bos_id` or `eos_id`. When `subword_dropout` is above 0 and the tokenizer has no BPE
            model, or an argument is bad.

    Example:

    >>> from keras_transformer.text import CharacterTokenizer
    >>> letters = CharacterTokenizer("abc")
    >>> data = translation_dataset(["ab", "c"], ["ba", "c"], letters, verbose=False)
    >>> (source_ids, target_in_ids), target_out_ids = next(iter(data))
    >>> target_in_ids.numpy().tolist(), target_out_ids.numpy().tolist()
    ([[2, 5, 4, 0], [2, 6, 0, 0]], [[5, 4, 3, 0], [6, 3, 0, 0]])
    """
    shuffle = arguments.boolean("shuffle", shuffle)
    rates = _two_rates(subword_dropout)
    positive, non_negative = arguments.positive_integer, arguments.non_negative_integer
    tokens_per_batch = positive("tokens_per_batch", tokens_per_batch)
    max_length = positive("max_length", max_length)
    max_shapes = positive("max_shapes", max_shapes)
    batches_per_update = positive("batches_per_update", batches_per_update)
    rows_multiple = positive("rows_multiple", rows_multiple)
    batches_per_epoch = arguments.optional(positive, "batches_per_epoch", batches_per_epoch)
    first_epoch = non_negative("first_epoch", first_epoch)
    prefetch = non_negative("prefetch", prefetch)
    seed = arguments.optional(non_negative, "seed", seed)
    target_tokenizer = source_tokenizer if target_tokenizer is None else target_tokenizer
    tokenizers = [
        tokenizer if tag is None else TaggedTokenizer(tokenizer, tag)
        for tokenizer, tag in ((source_tokenizer, source_tag), (target_tokenizer, target_tag))
    ]
    check_same_special_ids(*tokenizers)
    entropy: Any = np.random.SeedSequence().entropy  # an int
    is_repeatable = seed is not None
    seed = entropy if seed is None else seed
    tags = source_tag, target_tag
    sides = _sides(
        source_texts,
        target_texts,
        tokenizers,
        tags,
        rates=rates,
        seed=seed,
        keeps_lengths=is_repeatable,
        verbose=verbose,
    )
    passes, report = make_passes(
        sides,
        SpecialIds(
            target_tokenizer.pad_id,
            target_tokenizer.bos_id,
            target_tokenizer.eos_id,
            arguments.boolean("source_eos", source_eos),
        ),
        tokens_per_batch=tokens_per_batch,
        max_length=max_length,
        max_shapes=max_shapes,
        rows_multiple=rows_multiple,
        order=seed if shuffle else None,
        per_update=batches_per_update,
    )
    length = passes.count_batches(batches_per_epoch)
    dataset = _dataset(passes, first_epoch, length, prefetch)
    dataset.report = report
    if verbose:
        print(report.summary(max_length), file=sys.stderr)
    return dataset


def _sides(
    source_texts: Any,
    target_texts: Any,
    tokenizers: Sequence[TokenizerLike],
    tags: Sequence[str | None],
    *,
    rates: Sequence[float],
    seed: int,
    keeps_lengths: bool,
    verbose: bool,
) -> list[Side]:
    """Returns the ids of sources and targets; with dropout a side has others in each pass.

    With `keeps_lengths` their lengths are kept beside a prepared corpus, for the next start.
    """
    dropouts = [
        _bpe_dropout(tokenizer) if rate else None
        for tokenizer, rate in zip(tokenizers, rates, strict=True)
    ]
    given = ("source_texts", source_texts), ("target_texts", target_texts)
    folder = None
    if are_prepared(*given, special_ids=read_special_ids(tokenizers[0])):
        stores: Sequence[Any] = source_texts, target_texts
        _check_prepared(stores, tokenizers, tags)
        folder = source_texts.path if keeps_lengths else None
    else:
        texts = _equally_many(source_texts, target_texts)
        names = "source", "target"
        stores = [tokenize_all(*s, verbose) for s in zip(texts, tokenizers, names, strict=True)]
    return [
        SubwordDropout(store, dropout, rate, (seed, side), folder) if dropout else store
        for side, (store, dropout, rate) in enumerate(zip(stores, dropouts, rates, strict=True))
    ]


def _two_rates(subword_dropout: Any) -> list[float]:
    """The rates of BPE dropout of sources and targets."""
    if not (isinstance(subword_dropout, (tuple, list)) or np.ndim(subword_dropout)):
        subword_dropout = [subword_dropout] * 2
    if len(subword_dropout) != 2:
        raise ValueError(
            "`subword_dropout` must be a rate or a pair of rates, of sources and of targets. "
            f"Received: subword_dropout={subword_dropout!r}"
        )
    return [arguments.rate("subword_dropout", rate) for rate in subword_dropout]


def _check_prepared(
    sides: Sequence[PreparedSide],
    tokenizers: Sequence[TokenizerLike],
    tags: Sequence[str | None],
) -> None:
    for name, side, tokenizer, tag in zip(
        ("source", "target"), sides, tokenizers, tags, strict=True
    ):
        if tag is not None:
            raise ValueError(
                f"`{name}_tag` must be None for a prepared corpus: give it to `prepare_corpus`. "
                f"Received: {name}_tag={tag!r}"
            )
        if side.tokenizer != digest_tokenizer(tokenizer):
            raise ValueError(
                f"`{name}_texts` must be prepared with the tokenizer that is given. "
                f"Received: a corpus of {side.tokenizer} and a tokenizer "
                f"{digest_tokenizer(tokenizer)}"
            )


def _bpe_dropout(tokenizer: TokenizerLike) -> BpeDropout:
    dropout = getattr(tokenizer, "bpe_dropout", None)
    if dropout is None:
        raise ValueError(
            "`subword_dropout` needs tokenizers with `bpe_dropout`, as `SentencePieceTokenizer` "
            f"has it. Received: {type(tokenizer).__name__}"
        )
    return dropout


def _dataset(
    passes: Passes, first_epoch: int, batches_per_epoch: int, prefetch: int
) -> tf.data.Dataset:
    """Returns a `tf.data.Dataset`; each iteration over it is the next epoch.

    Sizes that all shapes share are static in its `element_spec`, others None.
    """
    epochs = itertools.count(first_epoch)

    def epoch() -> Iterator[Batch]:
        return passes.batches(next(epochs) * batches_per_epoch, batches_per_epoch)

    rows, source_length, target_length = (
        sizes[0] if len(set(sizes)) == 1 else None
        for sizes in zip(*(bucket.shape for bucket in passes.buckets), strict=True)
    )
    targets = tf.TensorSpec([rows, target_length], tf.int32)
    signature: Batch = ((tf.TensorSpec([rows, source_length], tf.int32), targets), targets)
    if passes.batches_per_update > 1:
        signature += (tf.TensorSpec([rows, target_length], tf.float32),)
    dataset = tf.data.Dataset.from_generator(epoch, output_signature=signature)
    dataset = dataset.apply(tf.data.experimental.assert_cardinality(batches_per_epoch))
    if prefetch:
        dataset = dataset.prefetch(prefetch)
    return dataset


def _equally_many(
    source_texts: Iterable[str], target_texts: Iterable[str]
) -> tuple[list[str], list[str]]:
    source_texts = text_list("source_texts", source_texts)
    target_texts = text_list("target_texts", target_texts)
    if len(source_texts) != len(target_texts):
        raise ValueError(
            "`source_texts` and `target_texts` must be equally many. "
            f"Received: {len(source_texts)} source texts and {len(target_texts)} target texts"
        )
    return source_texts, target_texts
