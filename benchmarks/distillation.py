"""Quality against speed: deep encoders with shallow decoders, with and without distillation.

    python -m benchmarks.distillation --dates 4 --data ../shared/data/multi30k --multi30k 8

A teacher with four layers on each side, and models with six and two, and with six and one. All
have as many updates. Each is trained on the pairs of the corpus, and on the teacher's translations.
Then the exports of all, in float32 and int8, are timed in turns on validation texts, and translate
the test. What is finished stays in --runs and --results.
"""

import argparse
import functools
import multiprocessing
import os
import shutil
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")


from benchmarks import experiments, timing
from benchmarks.experiments import Results
from keras_transformer.recipes import Settings, evaluate, load_translator, train
from keras_transformer.recipes.corpus import read_corpus, split_sides
from keras_transformer.recipes.distillation import open_translator
from keras_transformer.recipes.parallel_text import read_pairs
from keras_transformer.recipes.run_files import find_export, student_settings
from keras_transformer.recipes.teacher import translate_corpus
from keras_transformer.text import load_tokenizer

LAYERS = ((4, 4), (6, 2), (6, 1))
TEXTS = {1: 16, 8: 64}  # that are translated in a turn, by size of batch
NUM_TEST = 1000
SECONDS = 60.0  # of the turns of all exports
TASKS = {"dates": "exact match", "multi30k": "BLEU"}
# Both are short: neither the rate nor the dropout is that of a training run of an hour.
RECIPES = {
    "dates": dict(preset="dates", batches_per_epoch=240),
    "multi30k": dict(
        preset="tiny",
        vocab_size=4000,
        lowercase=True,
        max_length=64,
        max_shapes=3,
        tokens_per_batch=2048,
        batches_per_epoch=250,
        dropout=0.1,
        learning_rate=0.003,
        warmup_steps=500,
    ),
}
MARKERS = {"4+4": "o", "6+2": "s", "6+1": "^"}
COLORS = {"the corpus": experiments.BLUE, "the teacher": experiments.ORANGE}


def main():
    """Trains what is not trained, measures what is not measured, prints tables and draws."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dates", type=int, default=0, help="epochs of 240 updates; 0: none")
    parser.add_argument("--multi30k", type=int, default=0, help="epochs of 250 updates; 0: none")
    parser.add_argument("--data", type=Path, help="directory of Multi30K")
    parser.add_argument("--runs", type=Path, default=Path("runs/distillation"))
    parser.add_argument("--results", default="benchmarks/results/distillation.jsonl")
    parser.add_argument("--picture", default="docs/pictures/distillation.png")
    args = parser.parse_args()
    results = Results(args.results)
    for task in TASKS:
        if epochs := getattr(args, task):
            settings = make_settings(task, args.data, epochs)
            key = {"experiment": f"distillation {task}", "recipe": describe_recipe(settings)}
            if results.find(key) is None:
                runs = train_all(settings, args.runs / task)
                rows = measure_all(settings, runs, args.runs / task, TASKS[task])
                for row in list(rows):  # all, before the first is kept
                    results.add(key, row)
    report(results, args.picture)


def make_settings(task, data, epochs):
    """The settings of the teacher. Validation pairs are the test of the runs on Multi30K."""
    files = {}
    if task == "multi30k":
        files = {
            part: name_pair(data, name) for part, name in (("train", "train"), ("test", "val"))
        }
        files["validation"] = files["test"]
    recipe = dict(RECIPES[task], num_layers=4, epochs=epochs, **files)
    return Settings.from_preset(recipe.pop("preset"), **recipe)


def name_pair(data, name):
    """The English and the German file of a part."""
    return tuple(str(data / f"{name}.{language}") for language in ("en", "de"))


def describe_recipe(settings):
    """What tells a result from others: the settings without the places of files."""
    changes = settings.changes()
    return {n: v for n, v in changes.items() if n not in ("train", "validation", "test")}


def train_all(teacher, folder):
    """Trains all models; returns their runs by layers and by what they learn from."""
    runs = {}
    for encoder, decoder in LAYERS:
        name = f"{encoder}+{decoder}"
        layers = dict(num_layers=encoder, num_decoder_layers=decoder)
        settings = Settings.from_preset(teacher.preset, **{**teacher.changes(), **layers})
        runs[name, "the corpus"] = train(settings, folder / name).directory.path
    # It translates once for all of them, by greedy search.
    greedy, translations = folder / "4+4-greedy", folder / "translations"
    if not greedy.exists():
        load_translator(folder / "4+4", beam_size=1).export(greedy, verbose=False)
    translate_corpus(greedy, read_corpus(teacher), translations)
    for encoder, decoder in LAYERS:
        name = f"{encoder}+{decoder}"
        output = folder / f"{name}-distilled"
        if not output.exists():
            shutil.copytree(translations, output / "corpora")
        layers = dict(num_layers=encoder, num_decoder_layers=decoder)
        settings = student_settings(folder / "4+4", preset=teacher.preset, **layers)
        runs[name, "the teacher"] = train(settings, output).directory.path
    return runs


def measure_all(settings, runs, folder, metric):
    """Yields a row for each export: its quality on the test, and its speed."""
    exports = {}
    for (layers, source), run in runs.items():
        exports[layers, source, "float32"] = find_export(run)
        small = folder / f"{run.name}-int8"
        if not small.exists():
            load_translator(run, quantize="int8").export(small, verbose=False)
        exports[layers, source, "int8"] = small
    corpus = read_corpus(settings)
    test = corpus.test[:NUM_TEST]
    if settings.train:
        data = Path(settings.train[0]).parent
        test = read_pairs(*name_pair(data, "test_2016_flickr"))
    # Each in a process of its own: one has no room for what XLA compiles for all of them.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context, max_tasks_per_child=1) as pool:
        quality = {}
        for key, export in exports.items():
            task = pool.submit(measure_quality, export, test, metric, settings.lowercase)
            quality[key] = task.result()
            print(f"{', '.join(key)}: {metric} {quality[key]:.2f} on the test", flush=True)
    translators = {key: open_translator(export) for key, export in exports.items()}
    tokenizer = load_tokenizer(runs["4+4", "the corpus"] / "source.tokenizer")
    timed = {size: measure_speed(translators, tokenizer, corpus.validation, size) for size in TEXTS}
    for layers, source, weights in exports:
        key = layers, source, weights
        yield {
            "model": layers,
            "options": {"learns from": source, "weights": weights},
            "test": quality[key],
            "tokens_per_second": {str(size): timed[size][key] for size in TEXTS},
        }


def measure_speed(translators, tokenizer, pairs, size):
    """Tokens a second of each export in batches of `size`; ends of texts count."""
    sources = split_sides(pairs)[0][: TEXTS[size]]
    batches = [sources[start : start + size] for start in range(0, len(sources), size)]
    tokens = {}

    def translate_all(key):
        outputs = [text for batch in batches for text in translators[key](batch)]
        tokens[key] = len(outputs) + len(tokenizer.tokenize(outputs).flat_values)

    calls = {key: functools.partial(translate_all, key) for key in translators}
    taken = timing.interleaved(calls, seconds=SECONDS)
    return {key: tokens[key] / taken[key] * 1000 for key in translators}


def measure_quality(export, pairs, metric, lowercase):
    """Exact match or lower-cased BLEU of an export."""
    sources, references = split_sides(pairs)
    translate = open_translator(export)
    name = metric.lower().replace(" ", "_")
    (score,) = evaluate(translate(sources), references, [name], lowercase=lowercase)
    return score.value


def report(results, picture):
    """Prints a table of each task, and draws quality against speed."""
    tasks = {
        task: {read_cells(row): row for row in results.rows if row["experiment"].endswith(task)}
        for task in TASKS
    }
    for task, rows in tasks.items():
        if rows:
            experiments.print_markdown(*make_table(rows, TASKS[task]))
    draw({task: rows for task, rows in tasks.items() if rows}, picture)


def read_cells(row):
    """What a row is of: layers, what they learn from, and weights."""
    return row["model"], row["options"]["learns from"], row["options"]["weights"]


def make_table(rows, metric):
    """The head and the lines of a table, a line for each model."""
    speeds = [f"tokens a second at batch {size}" for size in TEXTS]
    names = [f"{metric}, test", *speeds]
    head = ["layers", "learns from"]
    head += [f"{name}{weights}" for name in names for weights in ("", ", int8")]
    lines = []
    teacher = rows["4+4", "the corpus", "float32"]["tokens_per_second"]
    for layers, source in {key[:2]: None for key in rows}:
        both = [rows[layers, source, weights] for weights in ("float32", "int8")]
        cells = [layers, source, *(f"{row['test']:.1f}" for row in both)]
        for size in teacher:
            for row in both:
                speed = row["tokens_per_second"][size]
                cells.append(f"{speed:,.0f} ({speed / teacher[size]:.1f})")
        lines.append(cells)
    return head, lines


def draw(tasks, path):
    """Draws a panel for each task and size of batch: quality on the test, and tokens a second."""
    figure, panels = experiments.new_panels(len(TEXTS), width=3.6, height=3.2, lines=len(tasks))
    places = [(task, size) for task in tasks for size in TEXTS]
    for panel, (task, size) in zip(panels, places, strict=True):
        for (layers, source, weights), row in tasks[task].items():
            color = COLORS[source]
            panel.plot(
                row["tokens_per_second"][str(size)],
                row["test"],
                MARKERS[layers],
                color=color,
                markersize=8,
                markerfacecolor=color if weights == "float32" else "none",
            )
        unit = " (%)" if TASKS[task] == "exact match" else ""
        panel.set_title(f"{task}, batch {size}", fontsize=10)
        panel.set_xlabel("tokens a second")
        panel.set_ylabel(f"{TASKS[task]}{unit}, test")
    for layers, marker in MARKERS.items():
        panels[0].plot([], [], marker, color=experiments.BLACK, label=f"{layers} layers")
    for source, color in COLORS.items():
        panels[0].plot([], [], "o", color=color, label=f"learns from {source}")
    panels[0].plot([], [], "o", color=experiments.BLACK, markerfacecolor="none", label="int8")
    figure.legend(loc="outside lower center", ncols=2, fontsize=9, frameon=False)
    experiments.save(figure, path)


if __name__ == "__main__":
    main()
