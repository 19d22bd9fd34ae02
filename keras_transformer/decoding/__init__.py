"""Searches for the best outputs of any step function. They know no model."""

from keras_transformer.decoding.beam_search import BeamSearch
from keras_transformer.decoding.greedy_search import GreedySearch
from keras_transformer.decoding.sampling import Sampling
from keras_transformer.decoding.search import DecodeResult, Search
from keras_transformer.decoding.shortlist import Shortlist

__all__ = ["BeamSearch", "DecodeResult", "GreedySearch", "Sampling", "Search", "Shortlist"]
