"""Models of other systems: read into this package, and written for them."""

from keras_transformer.interop.ctranslate2 import load_ctranslate2
from keras_transformer.interop.ctranslate2_save import save_ctranslate2
from keras_transformer.interop.hugging_face import load_hugging_face
from keras_transformer.interop.hugging_face_writer import save_hugging_face
from keras_transformer.interop.marian import load_marian
from keras_transformer.interop.resizing import resize_vocabulary

__all__ = [
    "load_ctranslate2",
    "load_hugging_face",
    "load_marian",
    "resize_vocabulary",
    "save_ctranslate2",
    "save_hugging_face",
]
