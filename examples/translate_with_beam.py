"""Translates a collection of text files by Apache Beam and an export of this package.

    pip install apache-beam "tensorflow<2.22" "tensorflow-text<2.22"
    python examples/translate_with_beam.py runs/en-de/export/1 "crawl/*.txt" crawl.de/part \
        --direct_running_mode=multi_processing --direct_num_workers=2

Beam gives lines in any order, so each is written as JSON with its translation. Options that this
program does not know are Beam's: `--runner DataflowRunner` and the like.
"""

import argparse
import json
import os

import apache_beam as beam
from apache_beam.ml.inference.base import ModelHandler, PredictionResult, RunInference
from apache_beam.options.pipeline_options import PipelineOptions


class SavedModelHandler(ModelHandler):
    """Strings in, strings out; Beam's own handler of TensorFlow opens no SavedModel."""

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

        found = model.signatures["serving_default"](text=tf.constant(batch))
        columns = batch, found["translation"].numpy(), found["truncated"].numpy()
        for text, translation, is_too_long in zip(*columns, strict=True):
            yield PredictionResult(text, None if is_too_long else translation.decode())

    def batch_elements_kwargs(self):
        return {"min_batch_size": 64, "max_batch_size": 512}


def as_json(result):
    """A line of the output; null is the translation of a text that is too long."""
    row = {"text": result.example.decode(errors="replace"), "translation": result.inference}
    return json.dumps(row, ensure_ascii=False)


def address(path):
    """A path that workers in other directories understand; `gs://...` stays as it is."""
    return path if "://" in path else os.path.abspath(path)


def main():
    """Reads lines, translates them, and writes a JSON object for each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("export", help="the directory of a SavedModel, which all workers see")
    parser.add_argument("texts", help="text files, as a pattern")
    parser.add_argument("output", help="what the names of the output files begin with")
    args, options = parser.parse_known_args()
    with beam.Pipeline(options=PipelineOptions(options)) as pipeline:
        translated = (
            pipeline
            | beam.io.ReadFromText(address(args.texts), coder=beam.coders.BytesCoder())
            | RunInference(SavedModelHandler(address(args.export)))
        )
        _ = translated | beam.Map(as_json) | beam.io.WriteToText(address(args.output), ".jsonl")
        counts = translated | beam.combiners.Count.Globally()
        _ = counts | beam.Map(lambda count: print(f"{count:,} lines translated", flush=True))


if __name__ == "__main__":
    main()
