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

from sentencepiece import sentencepiece_model_pb2

from keras_transformer.recipes.runs import load_translator
from keras_transformer.serving import export_onnx

PAGE = Path(__file__).with_name("translate_dates.html")
USER_DEFINED = 4  # the kind of a piece that is never split


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
    """Writes the model, the pieces and the page for a translator with lossless BPE vocabularies."""
    tokenizers = {"source": translator.source_tokenizer, "target": translator.target_tokenizer}
    pieces = {side: list_pieces(side, tokenizer) for side, tokenizer in tokenizers.items()}
    for name, plain in {"source_tag": None, "target_tag": None, "source_eos": True}.items():
        if (value := getattr(translator, name)) != plain:
            raise ValueError(f"the page needs `{name}` to be {plain}. Received: {name}={value!r}")
    export_onnx(translator, output)
    text = json.dumps(pieces, ensure_ascii=False)
    (output / "pieces.json").write_text(text, encoding="utf-8")
    shutil.copyfile(PAGE, output / "index.html")


def list_pieces(side, tokenizer):
    """The text, the score and the kind of each piece, as the page reads them."""
    if not getattr(tokenizer, "lossless", False) or tokenizer.reverse:
        raise ValueError(
            f"the page reads lossless SentencePiece vocabularies. Received: {side} {tokenizer}"
        )
    model = sentencepiece_model_pb2.ModelProto.FromString(tokenizer.model)
    spec = model.trainer_spec
    if spec.model_type != spec.BPE:
        raise ValueError(
            "the page joins pieces as `model_type='bpe'` does. Received: a vocabulary of the "
            f"{side} of type {spec.ModelType.Name(spec.model_type).lower()!r}"
        )
    symbols = [each.piece for each in model.pieces if each.type == USER_DEFINED]
    if symbols:
        raise ValueError(
            f"the page reads no user-defined symbols. Received: {symbols[:3]} of the {side}"
        )
    return [[each.piece, each.score, each.type] for each in model.pieces]


if __name__ == "__main__":
    main()
