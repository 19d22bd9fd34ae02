"""The batches of pass after pass over the pairs, each pass in an order of its own."""

import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np

from keras_transformer.batches.buckets import Bucket
from keras_transformer.batches.token_store import SpecialIds

# ((source_ids, target_in_ids), target_out_ids), and as a third the weights of the target tokens
# where several batches make an update.
Batch: TypeAlias = tuple[Any, ...]
BatchMembers: TypeAlias = tuple[Bucket, np.ndarray]  # its shape, and the indices of its pairs


class SideInPass(Protocol):
    """The ids of all sources, or of all targets, in one pass; see `TokenStore`."""

    def count_tokens(self, members: np.ndarray) -> np.ndarray: ...

    def padded(
        self,
        members: np.ndarray,
        shape: tuple[int, int],
        pad_id: int,
        first_id: int | None = None,
        last_id: int | None = None,
    ) -> np.ndarray: ...


class Side(Protocol):
    """The ids of all sources, or of all targets; see `TokenStore`."""

    @property
    def lengths(self) -> np.ndarray: ...

    @property
    def expected_lengths(self) -> np.ndarray: ...

    def of_pass(self, number: int, room: Callable[[], np.ndarray]) -> SideInPass: ...


@dataclasses.dataclass(frozen=True)
class Passes:
    """All batches of a training run in a row: batch `i` follows from the fields and `i` alone.

    Args:
        sources: the source ids of all pairs, a `TokenStore` or what has its methods.
        targets: those of the targets.
        buckets: the shapes of batch, with the pairs of each.
        seed: of the order of each pass; None for from short to long.
        special: the ids that are not tokens.
        batches_per_update: batches whose weights are made together.
    """

    sources: Side
    targets: Side
    buckets: list[Bucket]
    seed: int | None
    special: SpecialIds
    batches_per_update: int = 1

    @functools.cached_property
    def num_batches(self) -> int:
        """The number of batches of a pass, filled up to whole updates."""
        return self.batches_per_update * -(
            -sum(bucket.num_batches for bucket in self.buckets) // self.batches_per_update
        )

    def count_batches(self, batches_per_epoch: int | None) -> int:
        """Returns the batches of an epoch, those of a pass for None, or raises `ValueError`."""
        if batches_per_epoch is None:
            return self.num_batches
        if batches_per_epoch % self.batches_per_update:
            raise ValueError(
                "`batches_per_epoch` must be a multiple of `batches_per_update`. Received: "
                f"batches_per_epoch={batches_per_epoch}, "
                f"batches_per_update={self.batches_per_update}"
            )
        return batches_per_epoch

    def batches(self, start: int, number: int) -> Iterator[Batch]:
        """Yields `number` batches, from batch `start` on."""
        current = None
        for position in range(start, start + number):
            if position // self.num_batches != current:
                current = position // self.num_batches
                batch_at = self.last_pass(current)
            yield batch_at(position % self.num_batches)

    @functools.cached_property
    def last_pass(self) -> Callable[[int], Callable[[int], Batch]]:
        """As `of_pass`, but the last one stays: short epochs ask again, and an order takes long."""
        return functools.lru_cache(maxsize=1)(self.of_pass)

    def of_pass(self, number: int) -> Callable[[int], Batch]:
        """Returns a function from 0, 1, ... `num_batches` - 1 to the batches of pass `number`."""
        order = self._order(number)
        stores = [
            self.sources.of_pass(number, lambda: self.room[0]),
            self.targets.of_pass(number, lambda: self.room[1]),
        ]

        def batch_at(index: int) -> Batch:
            batch = self._batch(stores, *order[index])
            if self.batches_per_update == 1:
                return batch
            first = index - index % self.batches_per_update
            update = order[first : first + self.batches_per_update]
            return (*batch, self._weights(stores[1], batch[1], update))

        return batch_at

    @functools.cached_property
    def room(self) -> np.ndarray:
        """The most tokens of each source and each target, their special ids not counted."""
        room = np.zeros((2, len(self.sources.lengths)), "int32")
        for bucket in self.buckets:
            room[0, bucket.members] = bucket.source_length - 1
            room[1, bucket.members] = bucket.target_length - 1
        return room

    def _order(self, number: int) -> list[BatchMembers]:
        """Returns the batches of pass `number` as (bucket, members)."""
        random = None if self.seed is None else np.random.default_rng([self.seed, number])
        order = []
        for bucket in self.buckets:
            members = bucket.members if random is None else random.permutation(bucket.members)
            for start in range(0, len(members), bucket.rows):
                order.append((bucket, members[start : start + bucket.rows]))
        if random is not None:
            order = [order[index] for index in random.permutation(len(order))]
        first = self.buckets[0]
        return order + [(first, first.members[:0])] * (self.num_batches - len(order))

    def _batch(
        self, stores: Sequence[SideInPass], bucket: Bucket, members: np.ndarray
    ) -> tuple[tuple[np.ndarray, np.ndarray], np.ndarray]:
        """Returns `((source_ids, target_in_ids), target_out_ids)` of one batch as arrays."""
        source_shape = bucket.rows, bucket.source_length
        target_shape = bucket.rows, bucket.target_length
        pad_id, bos_id, eos_id = self.special.pad_id, self.special.bos_id, self.special.eos_id
        sources, targets = stores
        source_end = eos_id if self.special.source_eos else pad_id
        source_ids = sources.padded(members, source_shape, pad_id, last_id=source_end)
        target_in_ids = targets.padded(members, target_shape, pad_id, first_id=bos_id)
        target_out_ids = targets.padded(members, target_shape, pad_id, last_id=eos_id)
        return (source_ids, target_in_ids), target_out_ids

    def _weights(
        self, targets: SideInPass, labels: np.ndarray, update: Sequence[BatchMembers]
    ) -> np.ndarray:
        """Weights whose sums over an update's batches have as their mean the mean over tokens."""
        num_tokens = sum(int((targets.count_tokens(members) + 1).sum()) for _, members in update)
        weight = np.float32(len(update) / num_tokens)
        return np.where(labels != self.special.pad_id, weight, np.float32(0))
