"""What a training recipe needs beside Keras's own callbacks."""

from keras_transformer.callbacks.average_checkpoints import AverageCheckpoints
from keras_transformer.callbacks.exact_resume import ExactResume
from keras_transformer.callbacks.measured_tensor_board import MeasuredTensorBoard
from keras_transformer.callbacks.training_log import TrainingLog
from keras_transformer.callbacks.translation_quality import TranslationQuality

__all__ = [
    "AverageCheckpoints",
    "ExactResume",
    "MeasuredTensorBoard",
    "TrainingLog",
    "TranslationQuality",
]
