"""Batches of pairs of ids for `fit`, on every backend; texts become ids in `text`."""

from keras_transformer.batches.pair_dataset import PairDataset
from keras_transformer.batches.prepared_corpus import CorpusReport, PreparedCorpus

__all__ = ["CorpusReport", "PairDataset", "PreparedCorpus"]
