"""Times our exported search in this process; `benchmarks.decoding` starts it.

python -m benchmarks.ours_decoding export DIR --size base [--beam 4] [--quantize int8]
    [--layout rows] [--room 512]
python -m benchmarks.ours_decoding time DIR --batches 1 8 32
python -m benchmarks.ours_decoding turns DIR OTHER --batches 1 8 32
python -m benchmarks.ours_decoding export-onnx DIR --size base [--beam 4] [--quantize int8]
python -m benchmarks.ours_decoding time-onnx DIR --batches 1 8 32
python -m benchmarks.ours_decoding recompute --size base --batches 1 32
python -m benchmarks.ours_decoding export-texts DIR --size base
python -m benchmarks.ours_decoding start DIR

`--target` tokens are written, 32 by default, and the search has room for `--room`, the same by
default. `turns` loads two exports into one process, where they take turns: so it tells small
differences on a machine whose speed changes. `start` answers texts from a whole export, as
`export-texts` writes it, and prints the seconds of each stage of its process. `time-onnx` runs
`translator.onnx` by onnxruntime alone: this process has neither Keras nor TensorFlow.
"""

import time

STARTED = time.perf_counter()

import argparse  # noqa: E402
import json  # noqa: E402
import resource  # noqa: E402
import statistics  # noqa: E402

SIZES = {
    "base": {"num_layers": 6, "d_model": 512, "num_heads": 8, "d_ff": 2048},
    "tiny": {"num_layers": 4, "d_model": 128, "num_heads": 4, "d_ff": 256},
}
VOCAB, SOURCE, BUCKET = 8000, 24, 32
THREADS = 2  # of onnxruntime
LETTERS = "abcdefghijklmnopqrstuvwxyz"
TEXT = "many small dogs run over the green grass"


def main():
    """Runs one of the jobs; each measurement is printed as one line of JSON."""
    jobs = {
        "export": export,
        "time": time_export,
        "turns": time_in_turns,
        "export-onnx": export_onnx_file,
        "time-onnx": time_onnx_file,
        "recompute": recompute,
        "export-texts": export_texts,
        "start": start,
    }
    parser = argparse.ArgumentParser()
    parser.add_argument("job", choices=jobs)
    parser.add_argument("directory", nargs="?")
    parser.add_argument("other", nargs="?", help="a second export, for `turns`")
    parser.add_argument("--size", choices=SIZES, default="base")
    parser.add_argument("--beam", type=int, default=1)
    parser.add_argument("--quantize", choices=["int8"])
    parser.add_argument("--layout", choices=["auto", "rows", "columns"], default="auto")
    parser.add_argument("--target", type=int, default=32, help="tokens that are written")
    parser.add_argument("--room", type=int, help="for tokens, at least those that are written")
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--seconds", type=float, default=2.0)
    args = parser.parse_args()
    jobs[args.job](args)


def export(args):
    """Writes the search over ids as the export of a translator has it."""
    import keras
    import tensorflow as tf

    id_functions = translator(args, args.quantize).for_export().id_functions
    ids = tf.TensorSpec([None, None], tf.int32)
    search_ids = tf.function(lambda rows: id_functions.search_ids(rows), [ids], autograph=False)
    archive = keras.export.ExportArchive()
    archive.track(id_functions)
    archive.add_endpoint("search_ids", search_ids)
    archive.write_out(args.directory, verbose=False)


def export_onnx_file(args):
    """Writes `translator.onnx` and the files beside it."""
    from keras_transformer.serving import export_onnx

    export_onnx(translator(args), args.directory, quantization=args.quantize)


def export_texts(args):
    """Writes a whole export of texts in and texts out, its vocabulary of 8,000 invented words."""
    import random

    from keras_transformer.text import SentencePieceTokenizer

    draw = random.Random(1)
    lines = [" ".join("".join(draw.choices(LETTERS, k=6)) for _ in range(8)) for _ in range(5_000)]
    tokenizer = SentencePieceTokenizer.train(lines, VOCAB, shrink_to_fit=True)
    translator(args, args.quantize, tokenizer).export(args.directory, verbose=False)


def translator(args, quantize=None, tokenizer=None):
    """A translator with random weights, whose outputs have exactly `--target` tokens."""
    import keras

    from keras_transformer import BeamSearch, GreedySearch, Transformer
    from keras_transformer.serving import Translator
    from keras_transformer.text import CharacterTokenizer

    keras.utils.set_random_seed(0)
    # Where strings are left out of the timing the tokenizer is not that of the model.
    vocab_size = tokenizer.vocab_size if tokenizer else VOCAB
    tokenizer = tokenizer or CharacterTokenizer.train(["any"])
    model = Transformer(vocab_size, **SIZES[args.size])
    model.build()
    room = args.room or args.target
    forced = {"min_length": args.target}
    if room > args.target:
        forced["max_length_ratio"] = args.target / SOURCE
    search = GreedySearch(**forced) if args.beam == 1 else BeamSearch(args.beam, **forced)
    options = {"search": search, "max_length": room, "quantize": quantize}
    return Translator(model, tokenizer, layout=args.layout, **options)


def source_ids(batch):
    """Random sources of 24 tokens, padded to the bucket that a translator chooses."""
    import numpy as np

    ids = np.random.default_rng(1).integers(4, VOCAB, (batch, SOURCE))
    return np.pad(ids, [(0, 0), (0, BUCKET - SOURCE)]).astype("int32")


def time_export(args):
    """Times the loaded search on each batch size."""
    import tensorflow as tf

    loaded = tf.saved_model.load(args.directory)
    for batch in args.batches:
        ids = tf.constant(source_ids(batch))

        def run(ids=ids):
            loaded.search_ids(ids)[1].numpy()

        report(run, batch, args)
        written = tf.math.count_nonzero(loaded.search_ids(ids)[0], axis=-1)  # padding is 0
        check_lengths(written.numpy(), args)


def time_in_turns(args):
    """Times two loaded searches in turns on each batch size."""
    import tensorflow as tf

    from benchmarks.timing import interleaved

    names = [args.directory, args.other]
    loaded = [tf.saved_model.load(name) for name in names]
    for batch in args.batches:
        ids = tf.constant(source_ids(batch))
        functions = {
            place: lambda one=one, ids=ids: one.search_ids(ids)[1].numpy()
            for place, one in enumerate(loaded)
        }
        taken = interleaved(functions, args.seconds)
        line = {"batch": batch, "milliseconds": [taken[0], taken[1]], "ratio": taken[0] / taken[1]}
        print(json.dumps(line), flush=True)


def time_onnx_file(args):
    """Times the search of `translator.onnx` on each batch size."""
    import os

    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = THREADS
    path = os.path.join(args.directory, "translator.onnx")
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    for batch in args.batches:
        ids = source_ids(batch)

        def run(ids=ids):
            session.run(None, {"source_ids": ids})

        report(run, batch, args)
        check_lengths(session.run(["lengths"], {"source_ids": ids})[0], args)


def check_lengths(lengths, args):
    """Ends the process when an output has another number of tokens than `--target`."""
    if (lengths != args.target).any():
        raise SystemExit(f"outputs have {lengths.tolist()} tokens, not {args.target}")


def recompute(args):
    """Times the loop that decodes the whole prefix anew for each token, greedily."""
    import tensorflow as tf

    from keras_transformer import Transformer

    model = Transformer(VOCAB, **SIZES[args.size])
    model.build()

    def next_token(source, target):
        logits = model((source, target), training=False)[:, -1]
        return tf.argmax(logits[:, 4:], axis=-1, output_type=tf.int32)[:, None] + 4

    ids = tf.TensorSpec([None, None], tf.int32)
    next_token = tf.function(next_token, input_signature=[ids, ids])
    for batch in args.batches:
        source = tf.constant(source_ids(batch)[:, :SOURCE])

        def run(source=source):
            target = tf.fill([source.shape[0], 1], model.bos_id)
            for _ in range(args.target):
                target = tf.concat([target, next_token(source, target)], axis=1)
            target.numpy()

        report(run, batch, args)


def report(run, batch, args):
    """Prints tokens a second of `run`, the median over `--seconds`."""
    started = time.perf_counter()
    run()
    first = time.perf_counter() - started
    run()
    taken, started = [], time.perf_counter()
    while time.perf_counter() - started < args.seconds or len(taken) < 3:
        begun = time.perf_counter()
        run()
        taken.append(time.perf_counter() - begun)
    line = {
        "batch": batch,
        "tokens_per_second": batch * args.target / statistics.median(taken),
        "first_seconds": first,
        "peak_mebibytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }
    print(json.dumps(line), flush=True)


def start(args):
    """Seconds of each stage of this process up to its second answer; the first one compiles."""
    import tensorflow as tf
    import tensorflow_text  # noqa: F401  (its operations are in the export)

    times = [STARTED, time.perf_counter()]
    translate = tf.saved_model.load(args.directory).signatures["serving_default"]
    times.append(time.perf_counter())
    for _ in range(2):
        translate(text=tf.constant([TEXT]))["translation"].numpy()
        times.append(time.perf_counter())
    stages = ["imports", "load", "first answer", "second answer"]
    line = {name: times[i + 1] - times[i] for i, name in enumerate(stages)}
    line["from the start to the first answer"] = times[3] - STARTED
    print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
