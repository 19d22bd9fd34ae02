"""Batches of pairs of ids for `fit`, on every backend; texts become ids in `text`."""

from keras_transformer.batches.pair_dataset import PairDataset

__all__ = ["PairDataset"]
