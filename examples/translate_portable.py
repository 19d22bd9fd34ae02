"""Translates lines with the ONNX or LiteRT files of an export, without TensorFlow.

    python examples/translate_portable.py DIR FILE
    echo "Friday, November 20, 2026" | python examples/translate_portable.py DIR

DIR was made by keras_transformer.serving.export_onnx or export_litert. Needs numpy and onnxruntime
or ai-edge-litert, and sentencepiece for such vocabularies. The search is greedy.
"""

import argparse
import json
import sys
import unicodedata
from pathlib import Path

import numpy as np


def main():
    """Runs the program; returns its exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("directory", metavar="DIR")
    parser.add_argument("file", metavar="FILE", nargs="?", help="standard input when not given")
    parser.add_argument("--batch-size", type=int, default=16, help="lines at once (default: 16)")
    args = parser.parse_args()
    for stream in (sys.stdin, sys.stdout):
        stream.reconfigure(encoding="utf-8")  # whatever the locale says
    try:
        translate = PortableTranslator(args.directory)
        stream = open(args.file, "rb") if args.file else sys.stdin.buffer  # noqa: SIM115
        with stream:
            data = stream.read()
        text = data.removeprefix(b"\xef\xbb\xbf").decode("utf-8")
        lines = [line.rstrip("\r") for line in text.removesuffix("\n").split("\n")]
        lines = lines if data else []
        for start in range(0, len(lines), max(args.batch_size, 1)):
            for text in translate(lines[start : start + max(args.batch_size, 1)]):
                print(text, flush=True)
    except (ImportError, OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


class PortableTranslator:
    """Called with a list of texts, gives their greedy translations."""

    def __init__(self, directory):
        directory = Path(directory)
        self.settings = json.loads((directory / "settings.json").read_text(encoding="utf-8"))
        self.source, self.target = (
            vocabulary(directory, side, self.settings) for side in ("source", "target")
        )
        if self.settings.get("split_sentences"):
            print(
                "note: this program translates each line as one text. The translator divides it "
                "into sentences; give each sentence a line of its own.",
                file=sys.stderr,
            )
        self.encoder, self.decoder = (part(directory, name) for name in ("encoder", "decoder"))

    def __call__(self, texts):
        if not texts:
            return []
        settings = self.settings
        texts = [fold(text, settings) for text in texts]
        rows = [[*self.source.encode(text), settings["eos_id"]] for text in texts]
        longest = max(map(len, rows))
        if longest > settings["max_source_length"]:
            raise ValueError(
                f"a text has {longest} tokens, more than the {settings['max_source_length']} that "
                "the model reads"
            )
        pad = settings["pad_id"]
        source_ids = np.array([row + [pad] * (longest - len(row)) for row in rows], np.int32)
        lengths = np.array([len(row) for row in rows])
        limits = lengths + settings["extra_length"]
        if settings["max_length"]:
            limits = np.full(len(rows), settings["max_length"])
        memory = self.encoder(source_ids=source_ids)
        target_ids = np.full((len(rows), 1), settings["bos_id"], np.int32)
        finished = np.zeros(len(rows), bool)
        while not finished.all():
            logits = self.decoder(target_ids=target_ids, memory=memory, source_ids=source_ids)
            logits[:, [pad, settings["bos_id"]]] = -np.inf
            tokens = np.where(finished, pad, logits.argmax(axis=1)).astype(np.int32)
            target_ids = np.concatenate([target_ids, tokens[:, None]], axis=1)
            finished |= (tokens == settings["eos_id"]) | (target_ids.shape[1] - 1 >= limits)
        special = {pad, settings["bos_id"], settings["eos_id"]}
        kept = [[int(token) for token in row if token not in special] for row in target_ids]
        # Nothing to translate: the translation is empty too.
        return [
            self.target.decode(row) if n > 1 else "" for row, n in zip(kept, lengths, strict=True)
        ]


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
    reverse = settings.get("reverse", {}).get(side, False)
    return Listed(pieces, kind == "SymbolTokenizer", settings["unk_id"], reverse)


def fold(text, settings):
    """A source in its normal form and, where the vocabulary has it, in lower case."""
    form = settings.get("normalization", {}).get("source", "identity")
    if form != "identity":
        text = unicodedata.normalize(form.upper(), text)
    return text.lower() if settings.get("lowercase", {}).get("source") else text


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
        return (" " if self.of_symbols else "").join(
            self.pieces[index] for index in ids[:: self.step]
        )


if __name__ == "__main__":
    sys.exit(main())
