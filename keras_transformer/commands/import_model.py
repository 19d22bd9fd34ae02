"""Makes a run of a model that another system trained.

It reads what Hugging Face's save_pretrained wrote (Marian, which all OPUS-MT models are, M2M100,
NLLB), Marian's own model.npz, and the directories of CTranslate2 (OpenNMT, Argos). All other
commands then take the run, and train --start-from goes on training it.
"""

import argparse
from typing import Any

from keras_transformer.commands.program import (
    Program,
    check_files,
    check_new_directory,
    examples,
    in_words,
    use_tensorflow,
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of the command."""
    parser.add_argument(
        "directory",
        metavar="DIRECTORY",
        help="the directory of the model, or a decoder.yml of Marian",
    )
    parser.add_argument("--output", metavar="RUN", required=True, help="a new directory")
    parser.add_argument(
        "--source-language",
        metavar="CODE",
        help="language of the sources, as the model names it: eng_Latn (NLLB), en (M2M100)",
    )
    parser.add_argument(
        "--target-language",
        metavar="CODE",
        help="language of the translations; of a Marian model of several, fra for >>fra<<",
    )
    for side in ("source", "target"):
        parser.add_argument(
            f"--{side}-tokenizer",
            metavar="FILE",
            help=f"sentencepiece model of the {side}s (Marian, CTranslate2; default: as found)",
        )
    parser.add_argument(
        "--tokenization",
        choices=("sentencepiece", "characters", "words"),
        help="what tokens are (Marian, CTranslate2; default: sentencepiece)",
    )
    parser.add_argument(
        "--tags",
        nargs="+",
        metavar="TAG",
        help="tokens that text never becomes (Marian, CTranslate2; default: language codes of the "
        "form eng_Latn, __en__ or >>fra<<). A source may begin with those of the last form",
    )
    for side, role in (("source", "every source"), ("target", "every translation")):
        parser.add_argument(
            f"--{side}-tag",
            metavar="TAG",
            help=f"tag that {role} begins with (Marian, CTranslate2)",
        )
    parser.add_argument(
        "--source-eos",
        action=argparse.BooleanOptionalAction,
        help="whether sources end in </s> (CTranslate2; default: as its config.json says, and yes "
        "for a model that seems to come from Hugging Face)",
    )
    parser.epilog = examples(
        "import opus-mt-en-de --output runs/en-de",
        "import nllb-200-distilled-600M --source-language eng_Latn --target-language deu_Latn "
        "--output runs/nllb",
        "import nllb-ct2 --source-tag eng_Latn --target-tag deu_Latn --output runs/nllb-ct2",
    )


def run(args: argparse.Namespace, program: Program) -> dict[str, Any]:
    """Writes the run, and says what the model is."""
    from keras_transformer.recipes.run_files import check_directory, is_decoder_file

    if not is_decoder_file(args.directory):
        check_directory(args.directory)
    check_new_directory(args.output)
    check_files(args.source_tokenizer, args.target_tokenizer)
    use_tensorflow()
    from keras_transformer.recipes.imported import OPTIONS, find_system, import_model

    system = find_system(args.directory)
    program.say(f"Reading {args.directory} ({system}) ...")
    options = {name: getattr(args, name) for name in OPTIONS if getattr(args, name) is not None}
    translator = import_model(args.directory, args.output, **options)
    model = translator.model
    sizes = " and ".join(f"{size:,}" for size in dict.fromkeys(model.vocabulary_sizes))
    search = in_words(translator.search)
    program.say(
        f"{args.output}: {model.count_params():,} weights, {model.num_encoder_layers} and "
        f"{model.num_decoder_layers} layers, {sizes} pieces, {search}, "
        f"sources {'with' if translator.source_eos else 'without'} an end"
    )
    return {
        "output": args.output,
        "from": system,
        "weights": model.count_params(),
        "layers": [model.num_encoder_layers, model.num_decoder_layers],
        "vocabulary_sizes": list(model.vocabulary_sizes),
        "search": search,
    }
