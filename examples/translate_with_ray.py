"""Translates a collection of text files on a Ray cluster, by an export of this package.

    pip install "ray[data]" "tensorflow<2.22" "tensorflow-text<2.22"
    python examples/translate_with_ray.py runs/en-de/export/1 crawl crawl.de --actors 4

Each actor opens the model once and takes a processor; leave one for reading and writing. The
rows of the Parquet files in the output keep the order of the lines. A worker holds a whole file of
texts, plain or gzip. Without a cluster, Ray uses the processors of this machine.

The output must be a new directory: after a crash, delete it and run the program again.
"""

import argparse
import os

import pyarrow
import pyarrow.fs
import ray

NO_UTF8, TOO_LONG = "is not valid UTF-8", "is longer than the model reads"


class Translate:
    """An actor: a model, called with tables of the columns `text` and `reason`."""

    def __init__(self, export):
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
        import tensorflow as tf
        import tensorflow_text  # noqa: F401  (registers the operations that read text)

        self.constant = tf.constant
        self.model = tf.saved_model.load(export)

    def __call__(self, table):
        texts, reasons = (table.column(name).to_pylist() for name in ("text", "reason"))
        given = [b"" if why else text.encode() for text, why in zip(texts, reasons, strict=True)]
        found = self.model.signatures["serving_default"](text=self.constant(given))
        truncated = found["truncated"].numpy()
        reasons = [
            why or (TOO_LONG if is_too_long else None)
            for why, is_too_long in zip(reasons, truncated, strict=True)
        ]
        translations = [
            None if why else text.decode()
            for why, text in zip(reasons, found["translation"].numpy(), strict=True)
        ]
        # Of strings, also where all values of a table are null.
        table = table.drop_columns("reason")
        for name, column in (("translation", translations), ("reason", reasons)):
            table = table.append_column(name, pyarrow.array(column, pyarrow.string()))
        return table


def split_lines(file):
    """The rows of a file. Only line feeds end a line: `read_text` also splits at U+2028."""
    lines = file["bytes"].removeprefix(b"\xef\xbb\xbf").split(b"\n")
    for line in lines if lines[-1] else lines[:-1]:
        line = line.rstrip(b"\r")
        text = line.decode("utf-8", "backslashreplace")
        yield {"text": text, "reason": "" if text.encode() == line else NO_UTF8}


def address(path):
    """A path that workers in other directories understand; `gs://...` stays as it is."""
    return path if "://" in path else os.path.abspath(path)


def check_is_new(output):
    """Ends the program where there are files: Ray would write among those of an earlier run."""
    system, folder = pyarrow.fs.FileSystem.from_uri(output)
    if system.get_file_info(pyarrow.fs.FileSelector(folder, allow_not_found=True)):
        raise SystemExit(f"error: {output} has files. Delete them, or give a new directory.")


def main():
    """Reads lines, translates them, and writes Parquet."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("export", help="the directory of a SavedModel, which all machines see")
    parser.add_argument("texts", help="a text file or a directory of them")
    parser.add_argument("output", help="the new directory of the Parquet files")
    parser.add_argument("--actors", type=int, default=1, help="processes, each with the model")
    parser.add_argument("--batch-size", type=int, default=512, help="lines at a time")
    args = parser.parse_args()
    output = address(args.output)
    check_is_new(output)
    ray.data.DataContext.get_current().execution_options.preserve_order = True
    lines = ray.data.read_binary_files(address(args.texts)).flat_map(split_lines)
    translated = lines.map_batches(
        Translate,
        fn_constructor_args=(address(args.export),),
        compute=ray.data.ActorPoolStrategy(size=args.actors),
        batch_size=args.batch_size,
        batch_format="pyarrow",
    )
    translated.write_parquet(output)
    read, written = lines.count(), ray.data.read_parquet(output).count()
    if read != written:
        raise SystemExit(f"error: {read:,} lines were read and {written:,} rows written.")
    print(f"{written:,} lines translated")


if __name__ == "__main__":
    main()
