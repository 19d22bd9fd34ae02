"""The batches of pass after pass over the pairs, each pass in an order of its own."""

import dataclasses
import functools
from typing import Any

import numpy as np

from keras_transformer.batches.token_store import TokenStore


@dataclasses.dataclass(frozen=True)
class Passes:
    """All batches of a training in a row: batch `i` follows from the fields and `i` alone.

    Args:
        sources: the source ids of all pairs, a `TokenStore` or what has its methods.
        targets: those of the targets.
        buckets: the shapes of batch, with the pairs of each.
        seed: of the order of each pass; None for from short to long.
        special: an object with `pad_id`, `bos_id` and `eos_id`, as a tokenizer.
        batches_per_update: batches whose weights are made together.
    """

    sources: TokenStore
    targets: TokenStore
    buckets: list
    seed: int | None
    special: Any
    batches_per_update: int = 1

    @functools.cached_property
    def num_batches(self):
        """The number of batches of a pass, filled up to whole updates."""
        return self.batches_per_update * -(
            -sum(bucket.num_batches for bucket in self.buckets) // self.batches_per_update
        )

    def batches(self, start, number):
        """Yields `number` batches, from batch `start` on."""
        current = None
        for position in range(start, start + number):
            if position // self.num_batches != current:
                current = position // self.num_batches
                batch_at = self.of_pass(current)
            yield batch_at(position % self.num_batches)

    def of_pass(self, number):
        """Returns a function from 0, 1, ... `num_batches` - 1 to the batches of pass `number`."""
        order = self._order(number)
        sides = zip((self.sources, self.targets), self.room, strict=True)
        stores = [side.of_pass(number, longest) for side, longest in sides]

        def batch_at(index):
            batch = self._batch(stores, *order[index])
            if self.batches_per_update > 1:
                first = index - index % self.batches_per_update
                update = order[first : first + self.batches_per_update]
                batch += (self._weights(stores[1], batch[1], update),)
            return batch

        return batch_at

    @functools.cached_property
    def room(self):
        """The most tokens of each source and each target, their special ids not counted."""
        room = np.zeros((2, len(self.sources.lengths)), "int64")
        for bucket in self.buckets:
            room[0, bucket.members] = bucket.source_length - 1
            room[1, bucket.members] = bucket.target_length - 1
        return room

    def _order(self, number):
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

    def _batch(self, stores, bucket, members):
        """Returns `((source_ids, target_in_ids), target_out_ids)` of one batch as arrays."""
        source_shape = bucket.rows, bucket.source_length
        target_shape = bucket.rows, bucket.target_length
        pad_id, bos_id, eos_id = self.special.pad_id, self.special.bos_id, self.special.eos_id
        sources, targets = stores
        source_ids = sources.padded(members, source_shape, pad_id, last_id=eos_id)
        target_in_ids = targets.padded(members, target_shape, pad_id, first_id=bos_id)
        target_out_ids = targets.padded(members, target_shape, pad_id, last_id=eos_id)
        return (source_ids, target_in_ids), target_out_ids

    def _weights(self, targets, labels, update):
        """Weights whose sums over an update's batches have as their mean the mean over tokens."""
        num_tokens = sum(int((targets.lengths_of(members) + 1).sum()) for _, members in update)
        weight = np.float32(len(update) / num_tokens)
        return np.where(labels != self.special.pad_id, weight, np.float32(0))
