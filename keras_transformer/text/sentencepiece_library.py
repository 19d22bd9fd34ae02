"""What the sentencepiece library does: learning a model."""

import io
import re

from keras_transformer.text.tokenizer import Tokenizer

SPACE_MARK = "\u2581"  # as sentencepiece writes a space


def train_model(lines, settings):
    """Returns the serialized model learnt from lines; `settings` are the library's."""
    sentencepiece = import_sentencepiece("Training a SentencePieceTokenizer")
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(lines),
            model_writer=model,
            pad_id=Tokenizer.pad_id,
            unk_id=Tokenizer.unk_id,
            bos_id=Tokenizer.bos_id,
            eos_id=Tokenizer.eos_id,
            minloglevel=2,
            **settings,
        )
    except RuntimeError as error:
        raise ValueError(explain(str(error), settings["vocab_size"])) from error
    return model.getvalue()


def explain(message, vocab_size):
    """Returns sentencepiece's message as a rule and what was received."""
    largest = re.search(r"too high.*<= (\d+)", message)
    if largest:
        return (
            f"`vocab_size` must be at most {largest[1]} for these texts; more text allows more, "
            "and `shrink_to_fit=True` takes the largest possible. "
            f"Received: vocab_size={vocab_size}"
        )
    smallest = re.search(r"smaller than required_chars\. \d+ vs (\d+)", message)
    if smallest:
        return (
            f"`vocab_size` must be at least {smallest[1]} to hold the characters of these texts. "
            f"Received: vocab_size={vocab_size}"
        )
    return f"`texts` must be text that sentencepiece can learn from. Received: {message}"


def import_sentencepiece(purpose):
    """Returns the library, or says what it is needed for."""
    try:
        import sentencepiece
    except ImportError as error:
        raise ImportError(
            f"{purpose} needs sentencepiece. Install it with "
            '`pip install "keras-transformer-components[tensorflow]"`'
        ) from error
    return sentencepiece
