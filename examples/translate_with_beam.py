"""Translates a collection of text files by Apache Beam and an export of this package.

    pip install apache-beam "tensorflow<2.22" "tensorflow-text<2.22"
    python examples/translate_with_beam.py runs/en-de/export/1 "crawl/*.txt" crawl.de/part \
        --direct_running_mode=multi_processing --direct_num_workers=2

Beam gives lines in any order, so each is written as JSON with its translation. Options that this
program does not know are Beam's: `--runner DataflowRunner` and the like.

No file may begin as the output does: after a crash, delete those and run the program again.
"""

import argparse
import json
import os

import apache_beam as beam
from apache_beam.io.filesystems import FileSystems
from apache_beam.ml.inference.base import ModelHandler, PredictionResult, RunInference
from apache_beam.options.pipeline_options import PipelineOptions

NO_UTF8, TOO_LONG = "is not valid UTF-8", "is longer than the model reads"


class SavedModelHandler(ModelHandler):
    """Lines in; out come translations, or reasons why there are none.

    Beam's own handler of TensorFlow opens no SavedModel.
    """

    def __init__(self, export):
        super().__init__()
        self.export = export

    def load_model(self):
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
        import tensorflow as tf
        import tensorflow_text  # noqa: F401  (registers the operations that read text)

        return tf.saved_model.load(self.export)

    def run_inference(self, batch, model, inference_args=None):
        import tensorflow as tf

        shown = [line.decode(errors="backslashreplace") for line in batch]
        is_text = [text.encode() == line for text, line in zip(shown, batch, strict=True)]
        given = [line if fits else b"" for line, fits in zip(batch, is_text, strict=True)]
        found = model.signatures["serving_default"](text=tf.constant(given))
        columns = shown, is_text, found["translation"].numpy(), found["truncated"].numpy()
        for text, fits, translation, is_too_long in zip(*columns, strict=True):
            row = {"text": text, "translation": translation.decode()}
            if is_too_long or not fits:
                row |= {"translation": None, "reason": TOO_LONG if fits else NO_UTF8}
            yield PredictionResult(text, row)

    def batch_elements_kwargs(self):
        return {"min_batch_size": 64, "max_batch_size": 512}


def without_mark(line):
    """A line without a byte order mark. Beam leaves it in, and does not say which line is first."""
    return line.removeprefix(b"\xef\xbb\xbf")


def as_json(result):
    """A line of the output."""
    return json.dumps(result.inference, ensure_ascii=False)


def address(path):
    """A path that workers in other directories understand; `gs://...` stays as it is."""
    return path if "://" in path else os.path.abspath(path)


def check_is_new(output):
    """Ends the program where files begin alike: those of an earlier run would stay among these."""
    if found := FileSystems.match([f"{output}*"])[0].metadata_list:
        raise SystemExit(f"error: {found[0].path} exists. Delete it, or give another output.")


def count_lines(pipeline, name, pattern):
    """The number of lines of files, as a collection of one element."""
    lines = pipeline | f"read {name}" >> read_lines(pattern)
    return lines | f"count {name}" >> beam.combiners.Count.Globally()


def read_lines(pattern):
    """The lines of files, as bytes."""
    return beam.io.ReadFromText(pattern, coder=beam.coders.BytesCoder())


def check_counts(written, read):
    """Says how many lines there are, or that some are lost."""
    if read != written:
        raise ValueError(f"{read:,} lines were read and {written:,} rows written")
    print(f"{written:,} lines translated", flush=True)


def main():
    """Reads lines, translates them, and writes a JSON object for each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("export", help="the directory of a SavedModel, which all workers see")
    parser.add_argument("texts", help="text files, as a pattern")
    parser.add_argument("output", help="what the names of the output files begin with")
    args, options = parser.parse_known_args()
    texts, output = address(args.texts), address(args.output)
    check_is_new(output)
    with beam.Pipeline(options=PipelineOptions(options)) as pipeline:
        _ = (
            pipeline
            | read_lines(texts)
            | beam.Map(without_mark)
            | RunInference(SavedModelHandler(address(args.export)))
            | beam.Map(as_json)
            | beam.io.WriteToText(output, ".jsonl")
        )
    with beam.Pipeline(options=PipelineOptions(options)) as pipeline:
        read = count_lines(pipeline, "texts", texts)
        written = count_lines(pipeline, "rows", f"{output}*.jsonl")
        _ = written | beam.Map(check_counts, beam.pvalue.AsSingleton(read))


if __name__ == "__main__":
    main()
