"""What the commands do, as functions: opening runs, evaluation, and the pages they draw."""

from keras_transformer.recipes.evaluation import Score, evaluate
from keras_transformer.recipes.runs import find_export, load_translator

__all__ = ["Score", "evaluate", "find_export", "load_translator"]
