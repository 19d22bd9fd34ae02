"""ONNX files of a run against its SavedModel: translations, scores, memory, operations of a step.

    python -m benchmarks.onnx_files RUN FILE --lines 1000
    python -m benchmarks.onnx_files base FILE --beams 4 --weights float32

For greedy search and a beam of 4 it exports float32 and int8, and translates the lines of FILE with
onnxruntime alone. The table compares each n-best list with that of the SavedModel. It has the share
of equal best translations, the share of equal lists, and the largest difference between their
scores. `operations` counts the nodes of one decoding step.

In place of a run, the name of a preset makes a model of random weights, whose vocabulary is learned
from the whole of FILE. Nothing has taught it to end, so each output has 32 tokens.

Each export translates in a process of its own, in batches of 16 lines of similar lengths. `memory`
is the largest that this process had, in MiB. The SavedModel has no XLA.
"""

import argparse
import importlib.util
import json
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

BEAMS = (1, 4)
WEIGHTS = ("float32", "int8")
MAX_LENGTH = 32  # of outputs of random weights
BATCH_SIZE = 16


def main():
    """Prints the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", help="directory of a run, or name of a preset")
    parser.add_argument("file", type=Path, help="texts, one a line")
    parser.add_argument("--lines", type=int, default=1000)
    parser.add_argument("--beams", type=int, nargs="+", default=BEAMS)
    parser.add_argument("--weights", nargs="+", choices=WEIGHTS, default=WEIGHTS)
    parser.add_argument("--recurrent", action="store_true", help="of a preset's size, recurrent")
    parser.add_argument("--alone", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    texts = args.file.read_text(encoding="utf-8").splitlines()
    if args.alone:
        print(json.dumps(translate(args.alone, texts[: args.lines])))
        return
    import onnx

    from keras_transformer.serving import export_onnx

    print(f"{len(texts[: args.lines]):,} lines of {args.file.name}\n")
    print("| search | weights | same best | same list | scores | MiB | operations |", end="")
    print(" memory | seconds |\n|---|---|---|---|---|---|---|---|---|")
    make_translator = opened if Path(args.run).is_dir() else invented
    for beam_size in args.beams:
        name = "greedy" if beam_size == 1 else f"beam {beam_size}"
        translator = make_translator(args, texts, beam_size)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "saved_model"
            translator.export(path, verbose=False)
            expected = in_process(path)
        measured = f"{expected['memory']:,.0f} | {expected['seconds']:.1f}"
        print(f"| {name} | SavedModel | | | | | | {measured} |", flush=True)
        for weights in args.weights:
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / "onnx"
                quantization = None if weights == "float32" else weights
                export_onnx(translator, path, quantization=quantization)
                found = in_process(path)
                file = path / "translator.onnx"
                row = compare(expected["found"], found["found"])
                row += [f"{file.stat().st_size / 2**20:.2f}", count_step(onnx.load(file).graph)]
            row += [f"{found['memory']:,.0f}", f"{found['seconds']:.1f}"]
            print("|", *(f"{cell} |" for cell in (name, weights, *row)), flush=True)


def opened(args, texts, beam_size):
    """The translator of a run."""
    from keras_transformer.recipes.runs import load_translator

    return load_translator(args.run, beam_size=beam_size, jit_compile=False)


def invented(args, texts, beam_size):
    """A translator of random weights, the same ones each time."""
    import keras

    from keras_transformer import BeamSearch, GreedySearch
    from keras_transformer.recipes.build import build_model
    from keras_transformer.recipes.settings import Settings
    from keras_transformer.serving import Translator
    from keras_transformer.text import SentencePieceTokenizer

    keras.utils.set_random_seed(1)
    kind = {"model": "recurrent"} if args.recurrent else {}
    settings = Settings.from_preset(args.run, **kind)
    tokenizer = SentencePieceTokenizer.train(texts, 8000, shrink_to_fit=True)
    model = build_model(settings, vocab_size=tokenizer.vocab_size)
    search = GreedySearch() if beam_size == 1 else BeamSearch(beam_size)
    options = {"search": search, "max_length": MAX_LENGTH, "jit_compile": False}
    return Translator(model, tokenizer, **options)


def in_process(path):
    """What `translate` returns in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.onnx_files", *sys.argv[1:], "--alone", str(path)]
    out = subprocess.run(command, check=True, stdout=subprocess.PIPE, encoding="utf-8").stdout
    return json.loads(out.splitlines()[-1])


def translate(path, texts):
    """The n-best lists of texts, the seconds that they took, and the memory of this process."""
    n_best = open_onnx(path) if (path / "translator.onnx").exists() else open_saved_model(path)
    begun = time.perf_counter()
    order = sorted(range(len(texts)), key=lambda index: len(texts[index]))
    found = [None] * len(texts)
    for start in range(0, len(order), BATCH_SIZE):
        chosen = order[start : start + BATCH_SIZE]
        for index, hypotheses in zip(chosen, n_best([texts[i] for i in chosen]), strict=True):
            found[index] = hypotheses
    seconds = time.perf_counter() - begun
    # That of `getrusage` begins with the memory of the process that started this one.
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    kibibytes = re.search(r"VmHWM:\s+(\d+)", status)[1]
    return {"found": found, "seconds": seconds, "memory": int(kibibytes) / 1024}


def open_onnx(path):
    """The n-best lists by the program of an export, which imports neither Keras nor TensorFlow."""
    spec = importlib.util.spec_from_file_location("program", path / "portable_translator.py")
    program = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)
    return program.PortableTranslator(path).n_best


def open_saved_model(path):
    """The n-best lists by a SavedModel's own signature."""
    import tensorflow as tf
    import tensorflow_text  # noqa: F401  (its operations are in the SavedModel)

    function = tf.saved_model.load(str(path)).signatures["n_best"]

    def n_best(texts):
        answer = function(text=tf.constant(texts))
        rows = zip(answer["translations"].numpy(), answer["scores"].numpy(), strict=True)
        return [
            [(text.decode(), float(score)) for text, score in zip(*row, strict=True)]
            for row in rows
        ]

    return n_best


def compare(expected, found):
    """Shares of equal best translations and lists, and how far scores of equal ones differ."""
    pairs = list(zip(expected, found, strict=True))
    best = sum(one[0][0] == two[0][0] for one, two in pairs)
    alike = [pair for pair in pairs if [t for t, _ in pair[0]] == [t for t, _ in pair[1]]]
    apart = [
        abs(one - two)
        for own, other in alike
        for (_, one), (_, two) in zip(own, other, strict=True)
    ]
    shares = [f"{100 * number / len(pairs):.1f} %" for number in (best, len(alike))]
    return [*shares, f"{max(apart, default=float('nan')):.1e}"]


def count_step(graph):
    """The nodes of the body of the search's loop; of a condition, those of its larger branch."""
    loops = [node for node in graph.node if node.op_type == "Loop"]
    bodies = [attribute.g for node in loops for attribute in node.attribute]
    # A recurrent encoder has loops too, which are smaller.
    return max(map(count_nodes, bodies))


def count_nodes(graph):
    """The nodes of a graph that run each time."""
    total = 0
    for node in graph.node:
        inner = [count_nodes(part.g) for part in node.attribute if part.HasField("g")]
        total += 1 + max(inner, default=0)
    return total


if __name__ == "__main__":
    main()
