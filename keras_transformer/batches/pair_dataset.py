"""PairDataset: pairs of ids as batches, without TensorFlow."""

import sys
from collections.abc import Iterable
from typing import Any

import keras
import numpy as np
from numpy.typing import ArrayLike

from keras_transformer import arguments
from keras_transformer.batches.passes import Batch
from keras_transformer.batches.plan import make_passes
from keras_transformer.batches.prepared_corpus import are_prepared
from keras_transformer.batches.token_store import SpecialIds, TokenStore


class PairDataset(keras.utils.PyDataset):
    """Batches of `((source_ids, target_in_ids), target_out_ids)` for `fit`, from lists of ids.

    It does for ids of any tokenizer what `text.translation_dataset` does for texts. On JAX and
    PyTorch it needs no TensorFlow. Source rows are tokens then eos. Target inputs are bos then
    tokens, target outputs tokens then eos. All are int32 and padded with `pad_id`.

    The dataset groups pairs by length into at most `max_shapes` shapes of batch, those that waste
    the least padding. A training step is compiled at most that often. Each pair comes exactly once
    a pass. Rows of padding fill the last batch of a shape; masks leave them without effect.

    Each epoch has an order of its own, which depends on the pairs, `seed` and its number alone.
    A resumed training can thus go on where it stopped: pass `ExactResume(...).epoch` as
    `first_epoch`. An epoch is over when Keras ends one and every batch was read. Use another
    object to evaluate, or to read batches in a loop. With `steps_per_epoch`, the epochs of `fit`
    are not epochs of the data, and `first_epoch` cannot say where they stopped: give
    `batches_per_epoch` in its place. Give `shuffle=False` to `fit`, which otherwise draws an order
    of its own.

    On TensorFlow Keras gives all batches the lengths of the first two, so `fit` raises an error
    for more than one shape there. `text.translation_dataset` has no such limit.

    Args:
        source_ids: iterable of rows, each a list or array of the ids of one text, without special
            ids. Floats that are whole numbers count as integers. Or `sources` of a
            `PreparedCorpus`, larger than memory.
        target_ids: as many; or its `targets`.
        pad_id, bos_id, eos_id: the special ids, as the model has them.
        tokens_per_batch: the largest rows * padded length of either side of a batch.
        shuffle: whether each epoch has a new order of pairs and batches. Otherwise batches go
            from short to long, pairs of a shape in the order given.
        seed: integer of at least 0; None draws one.
        max_length: pairs with a side of more tokens, eos included, are left out and counted.
        max_shapes: the largest number of shapes of batch.
        first_epoch: number of the first epoch.
        batches_per_epoch: as in `text.translation_dataset`: the batches of an epoch. Epochs then
            go on in the data, pass after pass. None for all pairs once.
        batches_per_update: as in `text.translation_dataset`: above 1, each batch comes with
            weights, with which accumulated gradients are the mean over an update's tokens.
        rows_multiple: the number of rows of every batch is a multiple of it: the number of devices
            of a `keras.distribution.DataParallel`. Rows of padding fill what is missing.
        process: (k, n) gives part k of the n equal parts of each batch, the rows of process k. All
            processes then have equal shapes at every step, and their devices the rows, and the
            dropout, that the devices of one process would have. It needs a `seed`, and a
            `rows_multiple` that n divides.
        verbose: whether to write to standard error one line that says what was kept and left out.

    Its attribute `report` is a `DatasetReport`.

    Raises:
        TypeError: when the rows are not integers.
        ValueError: when the numbers of rows differ, or a float is not a whole number. When an id is
            negative or a special one, or `pad_id` is another special id too. When no pair is
            left, `tokens_per_batch` is smaller than `rows_multiple` rows, or an argument is bad.
            In `fit`, when there are several shapes on TensorFlow, or several processes are to
            make the batches.

    Example:

    >>> from keras_transformer.batches import PairDataset
    >>> data = PairDataset([[5, 6], [7]], [[8], [9, 9]], verbose=False)
    >>> (source_ids, target_in_ids), target_out_ids = data[0]
    >>> target_in_ids.tolist(), target_out_ids.tolist()
    ([[2, 8, 0, 0], [2, 9, 9, 0]], [[8, 3, 0, 0], [9, 9, 3, 0]])
    """

    def __init__(
        self,
        source_ids: Iterable[ArrayLike],
        target_ids: Iterable[ArrayLike],
        pad_id: int = 0,
        bos_id: int = 2,
        eos_id: int = 3,
        *,
        tokens_per_batch: int = 4096,
        shuffle: bool = False,
        seed: int | None = None,
        max_length: int = 256,
        max_shapes: int = 6,
        first_epoch: int = 0,
        batches_per_epoch: int | None = None,
        batches_per_update: int = 1,
        rows_multiple: int = 1,
        process: tuple[int, int] = (0, 1),
        verbose: bool = True,
    ) -> None:
        super().__init__()
        shuffle = arguments.boolean("shuffle", shuffle)
        verbose = arguments.boolean("verbose", verbose)
        positive, non_negative = arguments.positive_integer, arguments.non_negative_integer
        tokens_per_batch = positive("tokens_per_batch", tokens_per_batch)
        max_length = positive("max_length", max_length)
        max_shapes = positive("max_shapes", max_shapes)
        batches_per_update = positive("batches_per_update", batches_per_update)
        rows_multiple = positive("rows_multiple", rows_multiple)
        batches_per_epoch = arguments.optional(positive, "batches_per_epoch", batches_per_epoch)
        seed = arguments.optional(non_negative, "seed", seed)
        first_epoch = non_negative("first_epoch", first_epoch)
        self._process = checked_process(process, rows_multiple, seed)
        special = distinct_special_ids(pad_id, bos_id, eos_id)
        entropy: Any = np.random.SeedSequence().entropy  # an int
        order = entropy if seed is None else seed
        self._passes, self.report = make_passes(
            read_sides(source_ids, target_ids, special),
            special,
            tokens_per_batch=tokens_per_batch,
            max_length=max_length,
            max_shapes=max_shapes,
            rows_multiple=rows_multiple,
            order=order if shuffle else None,
            per_update=batches_per_update,
        )
        self._length = self._passes.count_batches(batches_per_epoch)
        self._start(first_epoch)
        if verbose:
            print(self.report.summary(max_length, "PairDataset"), file=sys.stderr)

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> Batch:
        """The batch of this index in the current epoch."""
        if not -len(self) <= index < len(self):
            raise IndexError(
                f"index must be from {-len(self)} to {len(self) - 1}. Received: {index}"
            )
        index %= len(self)
        number, place = divmod(self._epoch * len(self) + index, self._passes.num_batches)
        batch = self._passes.last_pass(number)(place)
        self._unread.discard(index)
        own, number = self._process
        return keras.tree.map_structure(lambda x: np.split(x, number)[own], batch)

    def on_epoch_begin(self) -> None:
        """Refuses what Keras cannot train on."""
        if keras.backend.backend() == "tensorflow" and len(self.report.shapes) > 1:
            raise ValueError(
                "On TensorFlow Keras gives all batches of a PairDataset the lengths of the first "
                "two. Use `text.translation_dataset`, or `max_shapes=1`. "
                f"Received: batches of {len(self.report.shapes)} shapes"
            )
        if self.use_multiprocessing:
            raise ValueError(
                "`use_multiprocessing` must be False: a process of its own would not learn when an "
                "epoch is over. Received: use_multiprocessing=True"
            )

    def on_epoch_end(self) -> None:
        """Goes to the next epoch, if this one was read: Keras also calls this before the first."""
        if not self._unread:
            self._start(self._epoch + 1)

    def _start(self, epoch: int) -> None:
        self._epoch = epoch
        self._unread = set(range(len(self)))


def checked_process(
    process: tuple[int, int], rows_multiple: int, seed: int | None
) -> tuple[int, int]:
    """Returns the number of this process and of all, or raises `ValueError`."""
    own, number = (given := arguments.integers("process", process))[0], given[-1]
    if len(given) != 2 or not 0 <= own < number:
        rule = "be (k, n) with k from 0 to n - 1"
    elif rows_multiple % number:
        rule = f"be of as many processes as divide `rows_multiple`, {rows_multiple}"
    elif number > 1 and seed is None:
        rule = "come with a `seed`, the same in each process"
    else:
        return own, number
    raise ValueError(f"`process` must {rule}. Received: process={given}")


def distinct_special_ids(pad_id: int, bos_id: int, eos_id: int) -> SpecialIds:
    """Returns the special ids, or raises `ValueError` when padding is told from no other one."""
    given = {"pad_id": pad_id, "bos_id": bos_id, "eos_id": eos_id}
    ids = {name: arguments.non_negative_integer(name, value) for name, value in given.items()}
    special = SpecialIds(ids["pad_id"], ids["bos_id"], ids["eos_id"])
    if special.pad_id in (special.bos_id, special.eos_id):
        raise ValueError(
            "`pad_id` must differ from `bos_id` and `eos_id`, as masks leave it out. "
            f"Received: pad_id={pad_id}, bos_id={bos_id}, eos_id={eos_id}"
        )
    return special


def read_sides(
    source_ids: Iterable[ArrayLike], target_ids: Iterable[ArrayLike], special: SpecialIds
) -> list[TokenStore]:
    """Returns the tokens of both sides, or raises `ValueError` when one has more rows."""
    given = (("source_ids", source_ids), ("target_ids", target_ids))
    if are_prepared(*given, special_ids=special[:3]):
        return [source_ids, target_ids]  # type: ignore[list-item]
    sides = [TokenStore.of_rows(name, rows, special) for name, rows in given]
    sources, targets = (len(side.lengths) for side in sides)
    if sources != targets:
        raise ValueError(
            "`source_ids` and `target_ids` must be equally many. "
            f"Received: {sources} rows of sources and {targets} of targets"
        )
    return sides
