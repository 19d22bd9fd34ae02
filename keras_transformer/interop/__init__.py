"""Models of other systems: read into this package, and written for them."""

from keras_transformer.interop.hugging_face import load_hugging_face
from keras_transformer.interop.hugging_face_writer import save_hugging_face
from keras_transformer.interop.resizing import resize_vocabulary

__all__ = ["load_hugging_face", "resize_vocabulary", "save_hugging_face"]
