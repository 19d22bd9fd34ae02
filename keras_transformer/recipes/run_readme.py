"""README.txt of a training run: how to use what it made."""

import shlex
from os import PathLike
from pathlib import Path
from typing import Any

README = """\
A model trained with keras_transformer.
Model: {model}

{summary}

What goes in{languages}, one text a line:
{input}
What comes out:
{output}
The first pair that it was tested with:
    {source}
    {target}

Translate a file or standard input:
    keras-transformer translate {run} FILE

In Python:
    import tensorflow as tf, tensorflow_text
    translator = tf.saved_model.load({saved_model!r})
    translator.signatures["serving_default"](text=tf.constant([{source!r}]))

TensorFlow Serving takes the directory of exports as the model's base path:
    tensorflow_model_server --rest_api_port=8501 --model_name=translator \\
        --model_base_path={export}{flag}
{advice}To try it in a browser:
    keras-transformer serve {run}

{files}
"""
FLAG = " --xla_cpu_compilation_enabled=true"
ADVICE = """\
The last flag is needed because XLA compiles the search. Where it cannot be given, export again with
`keras-transformer export --no-xla`.
"""
FILES = {
    "model.keras": "the chosen model: import keras_transformer; keras.saving.load_model(FILE)",
    "source.tokenizer": "the tokenizer; keras_transformer.text.load_tokenizer opens it",
    "target.tokenizer": "the target's, where it is not that of the source",
    "history.csv": "loss, perplexity, learning rate and seconds of each epoch",
    "learning_curve.png": "the history as a picture",
    "attention.png": "where the decoder looks while it writes one sentence",
    "translations.txt": "the translations of the test set, line by line",
    "predictions.tsv": "source, reference and output of each test pair",
    "summary.txt": "the figures of the test set",
    "settings.toml": "the settings of the run; `keras-transformer train --config` reads them",
    "export": "SavedModels; model_card.json in assets.extra says what each is",
    "state.npz": "the last epoch, to go on from: run the same command again with more --epochs",
}


def make_readme(
    path: str | PathLike[str],
    *,
    model: str,
    summary: str,
    pair: tuple[str, str],
    version: str,
    card: dict[str, Any],
) -> str:
    """The text of README.txt.

    Args:
        path: the directory of the run.
        model: what was trained, in a few words.
        summary: the figures of the test.
        pair: a source and its reference.
        version: the number of the run's export.
        card: its model card.
    """
    path = Path(path).absolute()
    languages = card["languages"]
    texts = {
        side: "\n".join(f"    - {line}" for line in card["texts"][side])
        for side in ("input", "output")
    }
    source, target = (" ".join(text.split("\n")) for text in pair)
    files = {name: told for name, told in FILES.items() if (path / name).exists()}
    known = languages["source"] and languages["target"]
    return README.format(
        model=model,
        summary=summary,
        languages=f" (from {languages['source']} to {languages['target']})" if known else "",
        **texts,
        source=source,
        target=target,
        run=shlex.quote(str(path)),
        export=shlex.quote(str(path / "export")),
        saved_model=str(path / "export" / version),
        flag=FLAG if card["jit_compile"] else "",
        advice=ADVICE if card["jit_compile"] else "",
        files="\n".join(f"{name:<19} {told}" for name, told in files.items()),
    )
