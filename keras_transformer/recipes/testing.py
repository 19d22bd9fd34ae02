"""The test of a trained run: translations and their scores, pictures, and the export."""

import importlib.util
import sys
from typing import Any, NamedTuple

import keras
import numpy as np

from keras_transformer import plots
from keras_transformer.recipes.corpus import split_sides
from keras_transformer.recipes.evaluation import Score, evaluate
from keras_transformer.recipes.parallel_text import Pair
from keras_transformer.recipes.run_directory import SUMMARY, RunDirectory, say
from keras_transformer.recipes.runs import FEW_TEXTS, search_of_run, share_of_several
from keras_transformer.recipes.settings import Settings
from keras_transformer.recipes.texts import Texts

NAMES = {"bleu": "BLEU", "lowercase_bleu": "lower-cased BLEU", "chrf": "chrF"}
NAMES |= {"phone_error_rate": "Phone error rate", "wrong_words": "Word error rate"}
READABLE_LENGTH = 13  # tokens with `eos_id` of the sentence whose attention is drawn


class Run(NamedTuple):
    """What `train` made: the directory, the scores of the test, and the lines that say them."""

    directory: RunDirectory
    scores: list[Score]
    summary: str


def finish_run(directory: RunDirectory, settings: Settings, texts: Texts) -> Run:
    """Translates the test set with the chosen model, measures, and writes the files of the run."""
    model = directory.load_model()
    search = search_of_run(directory.path, settings)
    options: dict[str, Any] = {}
    if settings.backend == "tensorflow":
        options["jit_compile"] = settings.xla_export
        options["split_sentences"] = reads_single_sentences(settings, texts.corpus.train)
    translator = texts.translator(model, search, **options)
    sources, _ = split_sides(texts.corpus.test)
    say(f"Translating {len(sources):,} test sentences, {settings.search_name} ...")
    outputs = translator(sources, progress=sys.stdout.isatty())
    directory.write_translations(texts.corpus.test, outputs)
    made = measure(directory, settings, texts.corpus.test, outputs)
    if importlib.util.find_spec("matplotlib"):
        directory.draw_learning_curve()
        draw_attention(directory, settings, texts, model, sources=sources, outputs=outputs)
    if settings.backend == "tensorflow":
        directory.note(split_sentences=options["split_sentences"])
        directory.export(translator, made.summary)
    directory.write(SUMMARY, f"{made.summary}\n")
    if settings.backend == "tensorflow":
        directory.write_readme()
        say(f"Wrote {directory.path}: see README.txt there.")
    else:
        say(f"Export it where TensorFlow is: keras-transformer export {directory.path}")
    return made


def reads_single_sentences(settings: Settings, train: list[Pair]) -> bool:
    """Whether the export divides texts into sentences: as asked, or as the training texts are."""
    if settings.split_sentences is not None or settings.format != "text":
        return bool(settings.split_sentences)
    share = share_of_several([source for source, _ in train])
    split = share < FEW_TEXTS
    how = "each sentence on its own" if split else "texts whole"
    say(f"{share:.1%} of the sources have several sentences: the export reads {how}")
    return split


def measure(
    directory: RunDirectory, settings: Settings, test: list[Pair], outputs: list[str]
) -> Run:
    """The run with the scores of its outputs."""
    references = split_sides(test)[1]
    scores = measure_test(settings, outputs, references)
    return Run(directory, scores, summarize(settings, scores, len(references)))


def measure_test(settings: Settings, outputs: list[str], references: list[str]) -> list[Score]:
    """The scores of a test; the main figure comes last."""
    exact = evaluate(outputs, references, ["exact_match"], lowercase=settings.lowercase)
    if settings.format == "g2p":  # each text is one word of phones: SIGMORPHON's error rates
        (phones,) = evaluate(outputs, references, ["word_error_rate"])
        wrong = Score("wrong_words", 100 - exact[0].value, exact[0].signature)
        return [*exact, phones._replace(name="phone_error_rate"), wrong]
    if settings.format != "text":
        return exact
    options: dict[str, Any] = {"tokenize": settings.bleu_tokenize}
    chrf = evaluate(outputs, references, ["chrf"], lowercase=settings.lowercase)
    bleu = evaluate(outputs, references, ["bleu"], **options)
    folded = evaluate(outputs, references, ["bleu"], lowercase=True, **options)
    return [*exact, *chrf, *bleu, folded[0]._replace(name="lowercase_bleu")]


def summarize(settings: Settings, scores: list[Score], count: int) -> str:
    """The lines that say how good the translations are; the main figure comes last."""
    exact, *others = scores
    lines = [f"Exact match: {exact.value:.2f}% of {count:,} held-out pairs."]
    for score in others:
        lines.append(f"{NAMES[score.name]}: {score.value:.2f}  ({score.signature})")
    return "\n".join(lines)


def draw_attention(
    directory: RunDirectory,
    settings: Settings,
    texts: Texts,
    model: keras.Model,
    *,
    sources: list[str],
    outputs: list[str],
) -> None:
    """Draws the attention for one sentence of readable length."""
    if settings.similarity == "none":
        return
    ids = [texts.tokenize("source", source) for source in sources[:200]]
    chosen = min(range(len(ids)), key=lambda number: abs(len(ids[number]) - READABLE_LENGTH))
    source_ids, output_ids = ids[chosen], texts.tokenize("target", outputs[chosen])
    target_ids = [model.bos_id, *output_ids[:-1]]
    weights = model.attention_weights(np.array([source_ids]), np.array([target_ids]))[-1]
    title = "Where each head of the last decoder layer looks while it writes"
    if settings.model == "recurrent":
        title = f"Where the decoder looks ({settings.similarity})"
    # The row of an input token is where the model looks while it writes the next token.
    figure = plots.attention_heads(
        keras.ops.convert_to_numpy(weights)[0],
        texts.pieces("target", output_ids),
        texts.pieces("source", source_ids),
        title=title,
    )
    figure.savefig(directory.path / "attention.png", dpi=120)
