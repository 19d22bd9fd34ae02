"""The ways out of this package: the same texts through our export, Hugging Face and CTranslate2.

    python -m benchmarks.ways_out runs/multi30k --source test.en --target test.de

Takes the directory of a run of `keras-transformer train` or `import` with sentencepiece
vocabularies. The run goes to Hugging Face and comes back by `import`, so that all have the search
of Hugging Face. A line says whether its weights are the same bits. What came back goes to the other
engines. The engine "run" is the run itself under that search, without the change of the norms'
epsilon by the trip. Each engine translates all texts in a process of its own, in batches of texts
of similar lengths. The table has the number of translations equal to those of the first engine and
BLEU (sacreBLEU, 13a). It also has the target pieces a second of the best round on `--threads`
processors. Below it stands by how much our model prefers one of two translations that differ: a
difference of rounding is a tie. The last lines say how many translations of CTranslate2 are those
of our search that stops as early. Exports stay in `--output`, and for each engine the translations
that are not ours, with their scores.
"""

import argparse
import json
import operator
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

TIE = 1e-4  # scores that are nearer than this are one in float32
ENGINES = {  # what the table calls each
    "saved-model": "our SavedModel",
    "run": "SavedModel of the run itself",
    "saved-model-early": "our SavedModel, early_stopping=True",
    "saved-model-int8": "our SavedModel, int8",
    "hugging-face": "Hugging Face",
    "ctranslate2": "CTranslate2",
    "ctranslate2-int8": "CTranslate2, int8",
}


def main():
    """Exports, starts a process for each engine and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", help="directory of a run")
    parser.add_argument("--source", type=Path, required=True, help="texts, one a line")
    parser.add_argument("--target", type=Path, help="their translations, for BLEU")
    parser.add_argument("--output", type=Path, help="where what is written stays")
    parser.add_argument("--engines", nargs="+", choices=ENGINES, default=list(ENGINES))
    parser.add_argument("--batch", type=int, default=32, help="texts of a batch")
    parser.add_argument("--rounds", type=int, default=3, help="timed rounds, after one untimed")
    parser.add_argument("--threads", type=int, default=1, help="processors")
    parser.add_argument("--alone", choices=ENGINES, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.alone:
        print(json.dumps(measure(args)))
        return
    args.output = args.output or Path(tempfile.mkdtemp())
    texts = args.source.read_text(encoding="utf-8").splitlines()
    references = args.target.read_text(encoding="utf-8").splitlines() if args.target else None
    print(
        f"{len(texts):,} texts, batches of {args.batch}, {args.threads} processors; {args.output}"
    )
    export(args)
    print("| | ours | BLEU | pieces a second | MiB | seconds to load |\n|---|---|---|---|---|---|")
    translations, notes = {}, []
    for engine in args.engines:
        found = in_process(args, engine)
        translations[engine] = found["translations"]
        ours = translations[args.engines[0]]
        print(format_row(engine, found, ours, references), flush=True)
        pairs = zip(texts, ours, found["translations"], strict=True)
        different = [(text, one, other) for text, one, other in pairs if one != other]
        if different:
            notes.append(compared(args, engine, different))
    print("\n".join([*notes, *stopped_early(translations)]))


def stopped_early(translations):
    """Says how many translations of CTranslate2 are those of our search that stops as early."""
    early = translations.get("saved-model-early")
    return [
        f"{ENGINES[engine]}: {sum(map(operator.eq, found, early)):,} of {len(found):,} "
        f"translations are those of {ENGINES['saved-model-early']}"
        for engine, found in translations.items()
        if early is not None and engine.startswith("ctranslate2")
    ]


def compared(args, engine, different):
    """Writes the translations that are not ours with their scores, and sums up the differences.

    A score is the log-probability under our model, divided by the length to the power of the run's
    length penalty. The search of all engines has this score.
    """
    import tensorflow as tf

    from keras_transformer.recipes.run_files import read_run
    from keras_transformer.serving import load

    penalty = read_run(args.output / "run")[0].length_penalty
    score = load(args.output / "saved-model").signatures["score"]
    sources, *both = zip(*different, strict=True)
    scores = []
    for targets in both:
        answer = score(source=tf.constant(sources), target=tf.constant(targets))
        scores.append(answer["log_prob"].numpy() / answer["num_tokens"].numpy() ** penalty)
    lines = [
        "\t".join([*texts, f"{one:.6f}", f"{other:.6f}"])
        for texts, one, other in zip(different, *scores, strict=True)
    ]
    (args.output / f"{engine}.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    gains = scores[1] - scores[0]
    ties = sum(abs(gains) < TIE)
    return (
        f"{ENGINES[engine]}: {len(gains)} differ; {ties} are ties (scores within {TIE:g}). The "
        f"other's score is higher in {sum(gains >= TIE)}, by at most {max(gains):.4f}. It is lower "
        f"in {sum(gains <= -TIE)}, by at most {-min(gains):.4f}"
    )


def format_row(engine, found, ours, references):
    """A line of the table."""
    import sacrebleu

    same = sum(one == other for one, other in zip(ours, found["translations"], strict=True))
    bleu = sacrebleu.corpus_bleu(found["translations"], [references]).score if references else None
    figures = f"{same:,} | {'' if bleu is None else f'{bleu:.2f}'} | {found['pieces']:,.0f}"
    return f"| {ENGINES[engine]} | {figures} | {found['MiB']:.1f} | {found['load']:.1f} |"


def find_directory(args, engine):
    """Where the export of an engine lies; "run" is the run that came back."""
    return args.output / ("run-itself" if engine == "run" else engine)


def export(args):
    """Writes each directory that is not there yet, from the run that came back."""
    back = args.output / "run"
    if not back.exists():
        command(
            "export", args.run, "--to", "hugging-face", "--output", args.output / "hugging-face"
        )
        command("import", args.output / "hugging-face", "--output", back)
    print(same_bits(args.run, back))
    options = {
        "saved-model": [],
        "saved-model-int8": ["--int8"],
        "ctranslate2": ["--to", "ctranslate2"],
        "ctranslate2-int8": ["--to", "ctranslate2", "--int8"],
    }
    for engine in args.engines:
        directory = find_directory(args, engine)
        if directory.exists():
            continue
        if engine == "saved-model-early":
            export_with(back, directory, early_stopping=True)
        elif engine == "run":
            export_with(args.run, directory, length_formula="power")
        else:
            command("export", back, *options[engine], "--output", directory)


def export_with(run, directory, **changes):
    """Writes a SavedModel of a run, with changes of its beam search."""
    from keras_transformer.decoding import BeamSearch
    from keras_transformer.recipes import load_translator

    search = load_translator(run).search
    if isinstance(search, BeamSearch):
        search = BeamSearch.from_config({**search.get_config(), **changes})
    load_translator(run, search=search).export(directory)


def command(*arguments):
    """Runs `keras-transformer`."""
    program = [sys.executable, "-m", "keras_transformer"]
    subprocess.run([*program, *arguments], check=True)


def same_bits(run, back):
    """How many weights of two runs are equal in every bit."""
    import numpy as np

    from keras_transformer.interop.weights import halves_order, read_weights, reordered
    from keras_transformer.recipes.runs import load_model

    one, other = (load_model(Path(path) / "model.keras") for path in (run, back))
    order = range(one.d_model)
    if one.position.layout != other.position.layout:
        order = halves_order(one.d_model)
    ours, back_weights = read_weights(one), read_weights(other)
    equal = sum(
        np.array_equal(back_weights[name], reordered(name, values, order))
        for name, values in ours.items()
    )
    return f"out to Hugging Face and back: {equal} of {len(ours)} weights the same bits"


def in_process(args, engine):
    """What `measure` returns in a process of its own, on the first processors alone."""
    variables = {"OMP_NUM_THREADS": str(args.threads), "CUDA_VISIBLE_DEVICES": ""}
    out = subprocess.run(
        [sys.executable, "-m", "benchmarks.ways_out", *sys.argv[1:], "--alone", engine]
        + ["--output", args.output],
        check=True,
        env={**os.environ, **variables},
        stdout=subprocess.PIPE,
        encoding="utf-8",
    ).stdout
    return json.loads(out.splitlines()[-1])


def measure(args):
    """Loads one engine, translates all texts once, then in timed rounds."""
    os.sched_setaffinity(0, list(os.sched_getaffinity(0))[: args.threads])
    texts = args.source.read_text(encoding="utf-8").splitlines()
    by_length = sorted(range(len(texts)), key=lambda number: len(texts[number]))
    batches = [by_length[i : i + args.batch] for i in range(0, len(texts), args.batch)]
    directory = find_directory(args, args.alone)
    started = time.perf_counter()
    openers = {"hugging": hugging_face, "ctranslate2": ctranslate2}
    open_engine = openers.get(args.alone.partition("-")[0], saved_model)
    translate, count = open_engine(directory, args)
    loaded = time.perf_counter() - started
    translations = [""] * len(texts)
    best = float("inf")
    for number in range(args.rounds + 1):
        started = time.perf_counter()
        for batch in batches:
            found = translate([texts[place] for place in batch])
            for place, translation in zip(batch, found, strict=True):
                translations[place] = translation
        if number:
            best = min(best, time.perf_counter() - started)
    size = sum(file.stat().st_size for file in directory.rglob("*") if file.is_file()) / 2**20
    pieces = sum(map(count, translations)) / best
    return {"translations": translations, "pieces": pieces, "MiB": size, "load": loaded}


def counter(args):
    """A function that counts the pieces of a translation, and its end."""
    import sentencepiece

    path = next(
        path
        for name in ("target.spm", "spiece.model")
        if (path := args.output / "hugging-face" / name).exists()
    )
    processor = sentencepiece.SentencePieceProcessor(model_file=str(path))
    return lambda text: len(processor.encode(text)) + 1


def saved_model(directory, args):
    """Our export, strings to strings."""
    import tensorflow as tf

    from keras_transformer.serving import load

    signature = load(directory).signatures["serving_default"]

    def translate(texts):
        answer = signature(text=tf.constant(texts))["translation"].numpy()
        return [text.decode("utf-8") for text in answer]

    return translate, counter(args)


def hugging_face(directory, args):
    """Its own classes, with the search of its generation_config.json but an exact stop."""
    import torch
    import transformers

    torch.set_num_threads(args.threads)
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(directory).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(directory)
    stop = {"early_stopping": "never"} if model.generation_config.num_beams > 1 else {}

    def translate(texts):
        rows = tokenizer(list(texts), return_tensors="pt", padding=True)
        with torch.no_grad():
            ids = model.generate(**rows, **stop)
        return tokenizer.batch_decode(ids, skip_special_tokens=True)

    return translate, counter(args)


def ctranslate2(directory, args):
    """The engine in C++, with the beams and the length penalty of the run."""
    import ctranslate2 as engine
    import sentencepiece

    from keras_transformer.recipes.run_files import read_run

    settings, _ = read_run(args.output / "run")
    options = {"inter_threads": 1, "intra_threads": args.threads}
    compute = "int8" if directory.name.endswith("int8") else "float32"
    translator = engine.Translator(str(directory), compute_type=compute, **options)
    source, target = (
        sentencepiece.SentencePieceProcessor(model_file=str(directory / f"{side}.spm"))
        for side in ("source", "target")
    )
    search = {"beam_size": settings.beam_size, "length_penalty": settings.length_penalty}

    def translate(texts):
        rows = [source.encode(text, out_type=str) for text in texts]
        found = translator.translate_batch(rows, **search)
        return [target.decode(result.hypotheses[0]) for result in found]

    return translate, counter(args)


if __name__ == "__main__":
    main()
