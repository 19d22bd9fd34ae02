"""Translates with the ONNX or LiteRT files of an export, without TensorFlow and Keras.

    python portable_translator.py FILE
    echo "Friday, November 20, 2026" | python portable_translator.py

`keras-transformer export RUN --to onnx` or `--to litert` writes this file beside the model. It
needs numpy and onnxruntime or ai-edge-litert, and sentencepiece for such vocabularies. ONNX files
have the search of their translator inside. With LiteRT files the search is greedy.
"""

import argparse
import json
import sys
import unicodedata
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

BATCH_SIZE = 16
NOT_FOUND = -1e9  # the score of a hypothesis that a search did not find
# How lossless vocabularies write two characters.
ESCAPES = (("\ue000", "\ue000b"), ("\u2581", "\ue000a"))


def main() -> None:
    """Prints the translation of each line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", metavar="FILE", nargs="?", help="standard input when not given")
    args = parser.parse_args()
    print_translations(Path(__file__).parent, args.file)


def print_translations(directory: str | Path, file: str | None) -> None:
    """Prints the translation of each line of a file, or of the standard input."""
    sys.stdout.reconfigure(encoding="utf-8")  # type: ignore[union-attr]  # whatever the locale says
    try:
        translate = PortableTranslator(directory)
        with open(file or 0, encoding="utf-8-sig", newline="\n") as stream:
            lines = [line.rstrip("\r\n") for line in stream]
        for start in range(0, len(lines), BATCH_SIZE):
            print(*translate(lines[start : start + BATCH_SIZE]), sep="\n", flush=True)
    except (ImportError, OSError, ValueError) as error:
        sys.exit(f"error: {error}")


class PortableTranslator:
    """Called with a list of texts, gives their translations.

    Args:
        directory: what `export_onnx` or `export_litert` wrote.
        batch_size: the most texts that the model reads together.

    Raises:
        ImportError: without onnxruntime, ai-edge-litert or sentencepiece, where it is needed.
        ValueError: for a directory of another kind, or a vocabulary that this program cannot read.
    """

    def __init__(self, directory: str | Path, batch_size: int = BATCH_SIZE) -> None:
        directory = Path(directory)
        if not (directory / "settings.json").exists():
            raise ValueError(
                "`directory` must hold the ONNX or LiteRT files of an export. "
                f"Received: directory={str(directory)!r}"
            )
        self.settings = json.loads((directory / "settings.json").read_text(encoding="utf-8"))
        self.batch_size = batch_size
        if self.settings["leading_tags"]:
            raise ValueError("this program reads no vocabularies with `leading_tags`")
        self.source, self.target = (
            open_vocabulary(directory, side, self.settings) for side in ("source", "target")
        )
        if self.settings["split_sentences"]:
            print("note: give each sentence a line of its own", file=sys.stderr)
        if (directory / "translator.onnx").exists():
            self._search = open_onnx(directory / "translator.onnx")
        else:
            self._search = GreedyPair(directory, self.settings)

    def __call__(self, texts: Sequence[str]) -> list[str]:
        """The best translation of each text."""
        return [hypotheses[0][0] for hypotheses in self.n_best(texts)]

    def n_best(self, texts: Sequence[str]) -> list[list[tuple[str, float]]]:
        """The translations of each text that the search found, the best first, with their scores.

        An empty text has the empty translation, and the score 0.

        Raises:
            ValueError: when a text is longer than the model reads.
        """
        rows = [self.tokenize(text) for text in texts]
        most = self.settings["max_source_length"]
        for text, row in zip(texts, rows, strict=True):
            if len(row) > most:
                raise ValueError(
                    f"a text has {len(row)} tokens, and the model reads {most}: {text[:80]!r}"
                )
        answers = [[("", 0.0)] for _ in rows]
        with_text = [index for index, row in enumerate(rows) if self._has_text(row)]
        with_text.sort(key=lambda index: len(rows[index]))  # batches of like lengths
        for start in range(0, len(with_text), self.batch_size):
            chosen = with_text[start : start + self.batch_size]
            longest = max(len(rows[index]) for index in chosen)
            source_ids = np.full((len(chosen), longest), self.settings["pad_id"], np.int32)
            for place, index in enumerate(chosen):
                source_ids[place, : len(rows[index])] = rows[index]
            ids, scores, lengths = self.search(source_ids)
            for place, index in enumerate(chosen):
                found = zip(ids[place], scores[place], lengths[place], strict=True)
                answers[index] = [
                    (self.detokenize(row[:length]), float(score))
                    for rank, (row, score, length) in enumerate(found)
                    if not rank or score > NOT_FOUND / 2
                ]
        return answers

    def search(self, source_ids: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The ids (batch, n, length), scores (batch, n) and lengths (batch, n) of sources.

        Args:
            source_ids: int32 (batch, source) of at least one row, which `tokenize` made, padded.

        Raises:
            ValueError: for another shape. onnxruntime would end the process at an empty batch.
        """
        shape = np.shape(source_ids)
        if len(shape) != 2 or 0 in shape:
            raise ValueError(
                "`source_ids` must be (batch, source), with at least one row and one token. "
                f"Received: shape {shape}"
            )
        ids, scores, lengths = self._search(np.asarray(source_ids, np.int32))
        return ids, scores, lengths

    def fits(self, text: str) -> bool:
        """Whether a text is not longer than the model reads."""
        return len(self.tokenize(text)) <= int(self.settings["max_source_length"])

    def tokenize(self, text: str) -> list[int]:
        """The ids of a source, with its tag and its end."""
        settings = self.settings
        tag = settings["tag_ids"]["source"]
        first = [] if tag is None else [tag]
        last = [settings["eos_id"]] if settings["source_eos"] else []
        return [*first, *self.source.encode(fold(text, settings)), *last]

    def detokenize(self, ids: Sequence[int]) -> str:
        """The text of an output."""
        settings = self.settings
        special = {settings[name] for name in ("pad_id", "bos_id", "eos_id")}
        special.add(settings["tag_ids"]["target"])
        size, unknown = settings["vocab_size"]["target"], settings["unk_id"]["target"]
        # A model may have more tokens than its vocabulary has pieces.
        known = [number if number < size else unknown for number in map(int, ids)]
        return self.target.decode([number for number in known if number not in special])

    def _has_text(self, row: Sequence[int]) -> bool:
        extra = (self.settings["tag_ids"]["source"] is not None) + self.settings["source_eos"]
        return len(row) > extra


def open_onnx(file: Path) -> Callable[[np.ndarray], Any]:
    """The search of an ONNX file."""
    import onnxruntime

    session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    return lambda source_ids: session.run(["ids", "scores", "lengths"], {"source_ids": source_ids})


class GreedyPair:
    """A greedy search with the encoder and the decoder of LiteRT."""

    def __init__(self, directory: Path, settings: dict[str, Any]) -> None:
        self.settings = settings
        if settings["tag_ids"]["target"] is not None:
            raise ValueError("this program searches without a target tag; export to ONNX instead")
        self.encoder, self.decoder = (
            open_litert(directory / f"{name}.tflite") for name in ("encoder", "decoder")
        )

    def __call__(self, source_ids: np.ndarray) -> Any:
        settings = self.settings
        pad, bos, eos = settings["pad_id"], settings["bos_id"], settings["eos_id"]
        rows = len(source_ids)
        lengths = (source_ids != pad).sum(axis=1)
        # As `SequenceToSequence.limit_lengths`, which this program cannot import.
        limits = settings["max_length"] or lengths + settings["extra_length"]
        limits = np.minimum(limits, settings["longest"] or np.inf)
        memory = self.encoder(source_ids=source_ids)
        target_ids = np.full((rows, 1), bos, np.int32)
        scores, finished = np.zeros(rows), np.zeros(rows, bool)
        while not finished.all():
            logits = self.decoder(target_ids=target_ids, memory=memory, source_ids=source_ids)
            logits = logits - logits.max(axis=1, keepdims=True)
            log_probs = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
            log_probs[:, [number for number in (pad, bos) if number != eos]] = -np.inf
            scores += np.where(finished, 0, log_probs.max(axis=1))
            tokens = np.where(finished, pad, log_probs.argmax(axis=1)).astype(np.int32)
            target_ids = np.concatenate([target_ids, tokens[:, None]], axis=1)
            finished |= (tokens == eos) | (target_ids.shape[1] - 1 >= limits)
        ids = target_ids[:, None, 1:]
        return ids, scores[:, None], (ids != pad).sum(axis=2)


def open_litert(file: Path) -> Callable[..., np.ndarray]:
    """The function of named arrays in a LiteRT file."""
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(str(file))
    places = {found["name"]: found["index"] for found in interpreter.get_input_details()}

    def run(**arrays: np.ndarray) -> Any:
        for key, array in arrays.items():
            interpreter.resize_tensor_input(places[key], array.shape)
        interpreter.allocate_tensors()
        for key, array in arrays.items():
            interpreter.set_tensor(places[key], array)
        interpreter.invoke()
        return interpreter.get_tensor(interpreter.get_output_details()[0]["index"])

    return run


def open_vocabulary(directory: Path, side: str, settings: dict[str, Any]) -> Any:
    """What turns text into ids and back."""
    model = directory / f"{side}.model"
    if model.exists():
        if settings["own_ids"][side]:
            raise ValueError("this program reads no vocabularies that number pieces anew")
        import sentencepiece

        processor = sentencepiece.SentencePieceProcessor(model_file=str(model))
        return Lossless(processor) if settings["lossless"][side] else processor
    kind = settings["tokenizers"][side]
    if kind not in ("CharacterTokenizer", "SymbolTokenizer"):
        raise ValueError(f"this program reads no vocabularies of a {kind}")
    pieces = json.loads((directory / f"{side}.json").read_text(encoding="utf-8"))
    of_symbols, reverse = kind == "SymbolTokenizer", settings["reverse"][side]
    return Listed(pieces, of_symbols, settings["unk_id"][side], reverse)


def fold(text: str, settings: dict[str, Any]) -> str:
    """A source in its normal form and, where the vocabulary has it, in lower case."""
    form = settings["normalization"]["source"]
    if form != "identity":
        text = unicodedata.normalize(form.upper(), text)
    return text.lower() if settings["lowercase"]["source"] else text


class Lossless:
    """A sentencepiece vocabulary that keeps every character, two of them behind an escape."""

    def __init__(self, processor: Any) -> None:
        self.processor = processor

    def encode(self, text: str) -> list[int]:
        """The ids of a text."""
        for character, escaped in ESCAPES:
            text = text.replace(character, escaped)
        return self.processor.encode(text)

    def decode(self, ids: list[int]) -> str:
        """The text of ids."""
        text = self.processor.decode(ids)
        for character, escaped in reversed(ESCAPES):
            text = text.replace(escaped, character)
        return text


class Listed:
    """A vocabulary of characters, or of symbols between spaces, perhaps from last to first."""

    def __init__(self, pieces: list[str], of_symbols: bool, unk_id: int, reverse: bool) -> None:
        self.pieces = [piece.removeprefix(" ") if of_symbols else piece for piece in pieces]
        self.pieces[unk_id] = "\ufffd"
        self.ids = {piece: index for index, piece in enumerate(self.pieces) if index > 3}
        self.of_symbols, self.unk_id = of_symbols, unk_id
        self.step = -1 if reverse else 1

    def encode(self, text: str) -> list[int]:
        """The ids of a text."""
        items: Any = text
        if self.of_symbols:
            items = [item.decode() for item in text.encode().split()]
        return [self.ids.get(item, self.unk_id) for item in items][:: self.step]

    def decode(self, ids: list[int]) -> str:
        """The text of ids."""
        separator = " " if self.of_symbols else ""
        return separator.join(self.pieces[index] for index in ids[:: self.step])


if __name__ == "__main__":
    main()
