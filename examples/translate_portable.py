"""Translates lines with the ONNX or LiteRT files of an export, without TensorFlow and Keras.

    python examples/translate_portable.py DIR FILE
    echo "Friday, November 20, 2026" | python examples/translate_portable.py DIR

`keras-transformer export RUN --to onnx` or `--to litert` makes DIR. Its `portable_translator.py`
does the work, and needs numpy and onnxruntime or ai-edge-litert, and sentencepiece for such
vocabularies. Read it as the pattern for a runtime of your own.
"""

import argparse
import importlib.util
from pathlib import Path


def main():
    """Prints the translation of each line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("directory", type=Path, metavar="DIR")
    parser.add_argument("file", metavar="FILE", nargs="?", help="standard input when not given")
    args = parser.parse_args()
    program = args.directory / "portable_translator.py"
    if not program.exists():
        parser.exit(1, f"error: {args.directory} must be an export to ONNX or LiteRT\n")
    spec = importlib.util.spec_from_file_location(program.stem, program)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.print_translations(args.directory, args.file)


if __name__ == "__main__":
    main()
