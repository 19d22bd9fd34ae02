"""Exports a run of dates for a page that translates them in the browser, without a server's model.

    keras-transformer train --preset dates --output runs/dates
    python examples/export_dates.py runs/dates runs/dates-page
    npm pack onnxruntime-web
    tar -xzf onnxruntime-web-*.tgz
    mv package/dist runs/dates-page/onnxruntime-web
    python -m http.server --directory runs/dates-page

The page is http://localhost:8000. It splits texts with the pieces of the vocabulary, which this
program writes, and runs `translator.onnx` with onnxruntime-web.
"""

import argparse
import json
import os
import shutil
from pathlib import Path

os.environ["KERAS_BACKEND"] = "tensorflow"  # texts and the export need it
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import sentencepiece

from keras_transformer.recipes.runs import load_translator
from keras_transformer.serving import export_onnx

PAGE = Path(__file__).with_name("translate_dates.html")
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6  # kinds of pieces


def main():
    """Writes the directory of the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", metavar="RUN")
    parser.add_argument("output", type=Path, metavar="DIR")
    args = parser.parse_args()
    write_page(load_translator(args.run, beam_size=1), args.output)
    size = (args.output / "translator.onnx").stat().st_size
    print(f"{args.output}: a page, and a model of {size / 2**20:.1f} MiB")


def write_page(translator, output):
    """Writes the model, the pieces and the page for a translator with lossless vocabularies."""
    tokenizers = {"source": translator.source_tokenizer, "target": translator.target_tokenizer}
    for side, tokenizer in tokenizers.items():
        if not getattr(tokenizer, "lossless", False):
            raise ValueError(
                f"the page reads lossless SentencePiece vocabularies. Received: {side} {tokenizer}"
            )
    export_onnx(translator, output)
    pieces = {side: list_pieces(tokenizer.model) for side, tokenizer in tokenizers.items()}
    text = json.dumps(pieces, ensure_ascii=False)
    (output / "pieces.json").write_text(text, encoding="utf-8")
    shutil.copyfile(PAGE, output / "index.html")


def list_pieces(model):
    """The text, the score and the kind of each piece."""
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    kinds = (
        (processor.is_unknown, UNKNOWN),
        (processor.is_control, CONTROL),
        (processor.is_unused, UNUSED),
        (processor.is_byte, BYTE),
    )
    return [
        [
            processor.id_to_piece(index),
            processor.get_score(index),
            next((kind for is_kind, kind in kinds if is_kind(index)), NORMAL),
        ]
        for index in range(processor.get_piece_size())
    ]


if __name__ == "__main__":
    main()
