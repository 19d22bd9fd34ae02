"""What transduce.py and train_without_tensorflow.py write of a test."""

import csv
import os

from transduce_options import METRIC


def write_predictions(directory, sources, references, outputs):
    """Writes predictions.tsv into a run's directory, whole or not at all."""
    scratch = directory.path / ".predictions.tsv"
    with open(scratch, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, delimiter="\t", lineterminator="\n")
        writer.writerow(["source", "reference", "output"])
        writer.writerows(zip(sources, references, outputs, strict=True))
    os.replace(scratch, directory.path / "predictions.tsv")


def summary_of(form, outputs, references):
    """The line with the exact match, or the word error rate, of a test."""
    right = sum(map(str.__eq__, references, outputs))
    name, share = "Exact match", right / len(references)
    if METRIC.get(form) == "word_error_rate":
        name, share = "Word error rate", 1 - share
    return f"{name}: {share:.2%} ({right:,} of {len(references):,} test pairs are right)."
