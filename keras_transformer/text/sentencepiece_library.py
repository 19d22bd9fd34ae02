"""What the sentencepiece library does: learning a model, and BPE dropout."""

import io
import re
import threading

from keras_transformer.text.tokenizer import Tokenizer

SEEDING = threading.Lock()  # the seed is sentencepiece's, and all threads share it


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


def bpe_dropout(model, texts, rate, seed):
    """Returns the ids of texts as sentencepiece splits them with BPE dropout."""
    sentencepiece = import_sentencepiece("BPE dropout")
    from sentencepiece import sentencepiece_model_pb2

    trainer = sentencepiece_model_pb2.ModelProto.FromString(model).trainer_spec
    if trainer.model_type != trainer.BPE:
        raise ValueError(
            "BPE dropout needs a tokenizer trained with `model_type='bpe'`. "
            f"Received: one of type {trainer.ModelType.Name(trainer.model_type).lower()!r}"
        )
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    found = []

    def encode():
        options = {"enable_sampling": rate > 0, "alpha": rate, "num_threads": 1}
        found.extend(processor.encode(texts, out_type=int, **options))

    # sentencepiece has a generator for each thread, which takes its seed when it is first used.
    with SEEDING:
        sentencepiece.set_random_generator_seed(seed)
        thread = threading.Thread(target=encode)
        thread.start()
        thread.join()
    return found


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
