"""What 8-bit integers cost in quality and save in size: a trained translator with and without.

    python -m benchmarks.quantization runs/multi30k --source test.en --target test.de

Takes the directory of a run of `keras-transformer train`. Both exports translate the same texts
from a SavedModel in this process; BLEU is sacreBLEU's, lower-cased (13a).
"""

import argparse
import os
import tempfile
import time
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
import sacrebleu
import tensorflow as tf

from keras_transformer import BeamSearch, GreedySearch
from keras_transformer.serving import Translator, load
from keras_transformer.text import load_tokenizer

TEXTS_PER_CALL = 256


def main():
    """Exports both, translates with both, and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path, help="directory of a finished or stopped run")
    parser.add_argument("--source", type=Path, required=True, help="texts, one a line")
    parser.add_argument("--target", type=Path, required=True, help="their translations")
    parser.add_argument("--beam", type=int, default=4)
    args = parser.parse_args()
    sources, targets = (
        path.read_text(encoding="utf-8").splitlines() for path in (args.source, args.target)
    )
    model = keras.saving.load_model(args.run / "model.keras", compile=False)
    source_tokenizer = load_tokenizer(args.run / "source.tokenizer")
    own = args.run / "target.tokenizer"
    target_tokenizer = load_tokenizer(own) if own.exists() else source_tokenizer
    search = GreedySearch() if args.beam == 1 else BeamSearch(args.beam)
    print(f"{model.count_params():,} parameters, {len(sources):,} texts, beam {args.beam}")
    print(f"{'':<10} {'BLEU':>6} {'MiB':>7} {'MiB of variables':>17} {'seconds':>8}")
    found = {}
    for quantize in (None, "int8"):
        translator = Translator(
            model, source_tokenizer, target_tokenizer, search=search, quantize=quantize
        )
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "1"
            translator.export(path)
            size, of_variables = measure_size(path), measure_size(path / "variables")
            translations, seconds = translated(load(path), sources)
        bleu = sacrebleu.corpus_bleu(translations, [targets], lowercase=True).score
        found[quantize] = (bleu, size, translations)
        name = quantize or "float32"
        print(f"{name:<10} {bleu:6.2f} {size:7.1f} {of_variables:17.2f} {seconds:8.1f}", flush=True)
    (bleu, size, texts), (bleu_int8, size_int8, texts_int8) = found[None], found["int8"]
    same = np.mean([one == other for one, other in zip(texts, texts_int8, strict=True)])
    print(
        f"int8: {bleu_int8 - bleu:+.2f} BLEU, {size_int8 / size:.3f} of the size, "
        f"{same:.1%} of the translations the same"
    )


def measure_size(directory):
    """MiB of all the files in a directory."""
    return sum(file.stat().st_size for file in directory.rglob("*") if file.is_file()) / 2**20


def translated(loaded, sources):
    """The translations by an export, and the seconds they took, compiling included."""
    started, translations = time.perf_counter(), []
    bar = keras.utils.Progbar(len(sources), unit_name="text")
    for start in range(0, len(sources), TEXTS_PER_CALL):
        part = tf.constant(sources[start : start + TEXTS_PER_CALL])
        answer = loaded.signatures["serving_default"](text=part)["translation"].numpy()
        translations += [text.decode("utf-8") for text in answer]
        bar.update(len(translations))
    return translations, time.perf_counter() - started


if __name__ == "__main__":
    main()
