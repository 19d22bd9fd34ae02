"""Translates with a SavedModel by TensorFlow and TensorFlow Text alone: nothing of this package.

    python examples/translate_saved_model.py runs/train_translator/export/1 "May 3, 2026"

What TensorFlow Serving does, in a process of your own: any program that has the two packages can
use a model that `Translator.export` wrote.
"""

import argparse
import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import tensorflow as tf
import tensorflow_text  # noqa: F401  (registers the operations that read text)


def main():
    """Loads, translates, scores, and shows where each part comes from."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("export", help="the directory of a SavedModel")
    parser.add_argument("texts", nargs="+", metavar="TEXT", help="texts to translate")
    args = parser.parse_args()
    model = tf.saved_model.load(args.export)
    signatures = model.signatures
    print(f"Signatures: {', '.join(sorted(signatures))}")

    # Each takes named tensors and gives a dictionary. A batch may have any number of texts.
    texts = tf.constant(args.texts)
    best = signatures["serving_default"](text=texts)
    several = signatures["n_best"](text=texts)
    scores = signatures["score"](source=texts, target=best["translation"])
    for number, text in enumerate(args.texts):
        print(text)
        hypotheses = zip(several["translations"][number], several["scores"][number], strict=True)
        for translation, score in hypotheses:
            print(f"    {float(score):8.3f}  {translation.numpy().decode()}")
        tokens = int(scores["num_tokens"][number])
        print(f"    log-probability {float(scores['log_prob'][number]):.3f} of {tokens} tokens")
    if bool(tf.reduce_any(best["truncated"])):
        print("A text is longer than the model reads: its translation is empty.", file=sys.stderr)
    is_there = "is" if "keras_transformer" in sys.modules else "is not"
    print(f"{len(args.texts)} texts translated; keras_transformer {is_there} loaded here.")


if __name__ == "__main__":
    main()
