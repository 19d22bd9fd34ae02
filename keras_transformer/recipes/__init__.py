"""What the commands do, as functions: opening runs, evaluation, and the pages they draw."""

import importlib

from keras_transformer.recipes.evaluation import Score, evaluate
from keras_transformer.recipes.runs import find_export, load_translator

__all__ = ["Score", "evaluate", "find_export", "load_translator"]

# A saved model may hold any class of the package, and Keras finds those of imported modules.
for _module in ("layers", "losses", "metrics", "models", "optimizers", "schedules"):
    importlib.import_module(f"keras_transformer.{_module}")
