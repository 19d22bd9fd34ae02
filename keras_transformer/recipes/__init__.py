"""What the commands do, as functions: settings, training, opening runs, evaluation, pages."""

from keras_transformer.command_process import is_command as _is_command

__all__ = [
    "Score",
    "Settings",
    "distill",
    "evaluate",
    "find_export",
    "load_translator",
    "train",
]

if not _is_command():
    from keras_transformer.recipes.distillation import distill
    from keras_transformer.recipes.evaluation import Score, evaluate
    from keras_transformer.recipes.run_files import find_export
    from keras_transformer.recipes.runs import load_translator
    from keras_transformer.recipes.settings import Settings
    from keras_transformer.recipes.training import train
