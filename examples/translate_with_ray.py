"""Translates a collection of text files on a Ray cluster, by an export of this package.

    pip install "ray[data]" "tensorflow<2.22" "tensorflow-text<2.22"
    python examples/translate_with_ray.py runs/en-de/export/1 crawl crawl.de --actors 4

Each actor opens the model once and takes a processor; leave one for reading and writing. The
rows of the Parquet files in the output keep the order of the lines. A worker holds a whole file of
texts, plain or gzip. Without a cluster, Ray uses the processors of this machine.
"""

import argparse
import os

import ray


class Translate:
    """An actor: a model, called with batches of a column `text`."""

    def __init__(self, export):
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
        import tensorflow as tf
        import tensorflow_text  # noqa: F401  (registers the operations that read text)

        self.constant = tf.constant
        self.model = tf.saved_model.load(export)

    def __call__(self, batch):
        texts = self.constant([text.encode() for text in batch["text"]])
        found = self.model.signatures["serving_default"](text=texts)
        batch["translation"] = [text.decode() for text in found["translation"].numpy()]
        batch["too_long"] = found["truncated"].numpy()
        return batch


def split_lines(file):
    """The rows of a file. Only line feeds end a line: `read_text` also splits at U+2028."""
    lines = file["bytes"].decode("utf-8-sig", errors="replace").split("\n")
    for text in lines if lines[-1] else lines[:-1]:
        yield {"text": text.rstrip("\r")}


def address(path):
    """A path that workers in other directories understand; `gs://...` stays as it is."""
    return path if "://" in path else os.path.abspath(path)


def main():
    """Reads lines, translates them, and writes Parquet."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("export", help="the directory of a SavedModel, which all machines see")
    parser.add_argument("texts", help="a text file or a directory of them")
    parser.add_argument("output", help="the directory of the Parquet files")
    parser.add_argument("--actors", type=int, default=1, help="processes, each with the model")
    parser.add_argument("--batch-size", type=int, default=512, help="lines at a time")
    args = parser.parse_args()
    ray.data.DataContext.get_current().execution_options.preserve_order = True
    lines = ray.data.read_binary_files(address(args.texts)).flat_map(split_lines)
    translated = lines.map_batches(
        Translate,
        fn_constructor_args=(address(args.export),),
        compute=ray.data.ActorPoolStrategy(size=args.actors),
        batch_size=args.batch_size,
    )
    translated.write_parquet(address(args.output))
    print(f"{ray.data.read_parquet(address(args.output)).count():,} lines translated")


if __name__ == "__main__":
    main()
