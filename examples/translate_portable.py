"""Translates lines with the ONNX or LiteRT files of an export, without TensorFlow.

    python examples/translate_portable.py DIR FILE
    echo "Friday, November 20, 2026" | python examples/translate_portable.py DIR

`keras-transformer export RUN --to onnx` or `--to litert` makes DIR. Needs numpy and onnxruntime or
ai-edge-litert, and sentencepiece for such vocabularies. The search is greedy.
"""

import argparse
import json
import sys
import unicodedata
from pathlib import Path

import numpy as np

BATCH_SIZE = 16


def main():
    """Prints the translation of each line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("directory", type=Path, metavar="DIR")
    parser.add_argument("file", metavar="FILE", nargs="?", help="standard input when not given")
    args = parser.parse_args()
    sys.stdout.reconfigure(encoding="utf-8")  # whatever the locale says
    try:
        translate = PortableTranslator(args.directory)
        with open(args.file or 0, encoding="utf-8-sig", newline="\n") as stream:
            lines = [line.rstrip("\r\n") for line in stream]
        for start in range(0, len(lines), BATCH_SIZE):
            print(*translate(lines[start : start + BATCH_SIZE]), sep="\n", flush=True)
    except (ImportError, OSError, ValueError) as error:
        sys.exit(f"error: {error}")


class PortableTranslator:
    """Called with a list of texts, gives their greedy translations."""

    def __init__(self, directory):
        self.settings = json.loads((directory / "settings.json").read_text(encoding="utf-8"))
        self.source, self.target = (
            vocabulary(directory, side, self.settings) for side in ("source", "target")
        )
        if self.settings["split_sentences"]:
            print("note: give each sentence a line of its own", file=sys.stderr)
        self.encoder, self.decoder = (part(directory, name) for name in ("encoder", "decoder"))

    def __call__(self, texts):
        if not texts:
            return []
        settings = self.settings
        pad, bos, eos = settings["pad_id"], settings["bos_id"], settings["eos_id"]
        rows = [[*self.source.encode(fold(text, settings)), eos] for text in texts]
        lengths = np.array([len(row) for row in rows])
        longest, most = lengths.max(), settings["max_source_length"]
        if longest > most:
            raise ValueError(f"a text has {longest} tokens, and the model reads {most}")
        source_ids = np.array([row + [pad] * (longest - len(row)) for row in rows], np.int32)
        limits = settings["max_length"] or lengths + settings["extra_length"]
        memory = self.encoder(source_ids=source_ids)
        target_ids = np.full((len(rows), 1), bos, np.int32)
        finished = lengths == 1  # an empty text, which is its end alone, has an empty translation
        while not finished.all():
            logits = self.decoder(target_ids=target_ids, memory=memory, source_ids=source_ids)
            logits[:, [pad, bos]] = -np.inf
            tokens = np.where(finished, pad, logits.argmax(axis=1)).astype(np.int32)
            target_ids = np.concatenate([target_ids, tokens[:, None]], axis=1)
            finished |= (tokens == eos) | (target_ids.shape[1] - 1 >= limits)
        outputs = [[int(n) for n in row if n not in (pad, bos, eos)] for row in target_ids]
        return [self.target.decode(ids) for ids in outputs]


def part(directory, name):
    """A function of named arrays, run by the runtime whose file is there."""
    onnx, litert = directory / f"{name}.onnx", directory / f"{name}.tflite"
    if onnx.exists():
        import onnxruntime

        session = onnxruntime.InferenceSession(str(onnx), providers=["CPUExecutionProvider"])
        return lambda **arrays: session.run(None, arrays)[0]
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(str(litert))
    places = {found["name"]: found["index"] for found in interpreter.get_input_details()}

    def run(**arrays):
        for key, array in arrays.items():
            interpreter.resize_tensor_input(places[key], array.shape)
        interpreter.allocate_tensors()
        for key, array in arrays.items():
            interpreter.set_tensor(places[key], array)
        interpreter.invoke()
        return interpreter.get_tensor(interpreter.get_output_details()[0]["index"])

    return run


def vocabulary(directory, side, settings):
    """What turns text into ids and back."""
    model = directory / f"{side}.model"
    if model.exists():
        if settings["lossless"][side]:
            raise ValueError("this program reads no vocabularies of lossless tokenizers")
        import sentencepiece

        return sentencepiece.SentencePieceProcessor(model_file=str(model))
    kind = settings["tokenizers"][side]
    if kind not in ("CharacterTokenizer", "SymbolTokenizer"):
        raise ValueError(f"this program reads no vocabularies of a {kind}")
    pieces = json.loads((directory / f"{side}.json").read_text(encoding="utf-8"))
    of_symbols, reverse = kind == "SymbolTokenizer", settings["reverse"][side]
    return Listed(pieces, of_symbols, settings["unk_id"], reverse)


def fold(text, settings):
    """A source in its normal form and, where the vocabulary has it, in lower case."""
    form = settings["normalization"]["source"]
    if form != "identity":
        text = unicodedata.normalize(form.upper(), text)
    return text.lower() if settings["lowercase"]["source"] else text


class Listed:
    """A vocabulary of characters, or of symbols between spaces, perhaps from last to first."""

    def __init__(self, pieces, of_symbols, unk_id, reverse):
        self.pieces = [piece.removeprefix(" ") if of_symbols else piece for piece in pieces]
        self.pieces[unk_id] = "\ufffd"
        self.ids = {piece: index for index, piece in enumerate(self.pieces) if index > 3}
        self.of_symbols, self.unk_id = of_symbols, unk_id
        self.step = -1 if reverse else 1

    def encode(self, text):
        """The ids of a text."""
        items = [item.decode() for item in text.encode().split()] if self.of_symbols else text
        return [self.ids.get(item, self.unk_id) for item in items][:: self.step]

    def decode(self, ids):
        """The text of ids."""
        separator = " " if self.of_symbols else ""
        return separator.join(self.pieces[index] for index in ids[:: self.step])


if __name__ == "__main__":
    main()
