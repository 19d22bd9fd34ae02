"""Translates a file or standard input, line by line.

A run translates with the model and the search of its own settings; an export, with what is in it.
A directory of exports stands for the newest. An export to ONNX translates too. Answers come in
order, one line each. With --n-best each input has several lines, which begin with the number of the
input and a tab.

With --shards it translates many files with an export, or the newest of a run. Each output has its
input's name, in the directory --output. Text lines, JSON lines (.jsonl) and Parquet, plain or gzip.
Stopped or killed, the same command goes on with the files that are not finished.
"""

import argparse
import contextlib
import gzip
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, TextIO

from keras_transformer.atomic_files import new_file
from keras_transformer.card_file import check_tag, is_onnx
from keras_transformer.commands.program import (
    Program,
    add_model,
    add_search,
    check_files,
    check_output,
    examples,
    need,
    positive_integer,
    use_tensorflow,
)
from keras_transformer.line_files import (
    ONE_LINE,
    check_is_text,
    damage_named,
    open_lines,
)
from keras_transformer.recipes.pair_formats import decode_target, encode_sources
from keras_transformer.recipes.run_files import (
    check_model,
    count_hypotheses,
    newest_export,
    read_format,
)

STANDARD_INPUT = "standard input"
REFUSED = -1e9  # the score of a text that is too long


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of the command."""
    add_model(parser)
    parser.add_argument(
        "file",
        metavar="FILE",
        nargs="?",
        help="a text a line, plain or gzip (default: standard input)",
    )
    parser.add_argument(
        "--output", metavar="FILE", help="gzip where it ends in .gz (default: standard output)"
    )
    parser.add_argument(
        "--n-best", type=positive_integer, metavar="N", help="translations of each line, best first"
    )
    parser.add_argument(
        "--scores", action="store_true", help="print the score and a tab before the text"
    )
    parser.add_argument(
        "--alignments",
        action="store_true",
        help="print which bytes of the source each piece of the translation is read from, as "
        "TARGET_START-TARGET_END:SOURCE_START-SOURCE_END",
    )
    parser.add_argument(
        "--split-sentences",
        action=argparse.BooleanOptionalAction,
        help="translate each sentence of a line on its own (default: as MODEL does)",
    )
    for side in ("source", "target"):
        parser.add_argument(
            f"--{side}-tag",
            metavar="TAG",
            help=f"a language code of the {side} vocabulary (default: as exported)",
        )
    parser.add_argument(
        "--batch-size",
        type=positive_integer,
        default=512,
        metavar="N",
        help="lines at a time (default: 512)",
    )
    parser.add_argument(
        "--raw",
        action="store_true",
        help="read and write symbols with spaces between them, where the model is of characters, "
        "phones or tags (default: words as the training file has them)",
    )
    add_search(parser)
    add_shards(parser)
    parser.epilog = examples(
        "translate runs/en-de news.en --output news.de",
        'translate runs/en-de/onnx --n-best 4 --json <<< "Two dogs run."',
        "translate runs/en-de --shards crawl/*.gz --output crawl.de --workers 4",
    )


def add_shards(parser: argparse.ArgumentParser) -> None:
    """Adds the options of a collection."""
    group = parser.add_argument_group("collections", "Many files, by several processes.")
    group.add_argument(
        "--shards", metavar="FILE", nargs="+", help="the files; --output is then a directory"
    )
    group.add_argument(
        "--workers",
        type=positive_integer,
        metavar="N",
        help="processes that translate a file each (default: 1)",
    )
    group.add_argument("--field", metavar="NAME", help="field or column of the texts")
    group.add_argument(
        "--output-field",
        metavar="NAME",
        help="field or column of the translations (default: translation)",
    )


def run(args: argparse.Namespace, program: Program) -> dict[str, Any] | None:
    """Translates, and tells how many lines were too long."""
    if args.shards:
        return run_shards(args)
    for name in ("workers", "field", "output_field"):
        if getattr(args, name) is not None:
            raise ValueError(f"--{name.replace('_', '-')} needs --shards")
    translate_lines(args)
    return None


def is_given(value: Any) -> bool:
    """Whether an option is given: a number 0 is, but not a flag that is off."""
    return value is not None and value is not False


def run_shards(args: argparse.Namespace) -> dict[str, int]:
    """Translates a collection; returns how many files and rows."""
    for name in ("file", "n_best", "scores", "alignments", "beam_size", "length_penalty"):
        if is_given(getattr(args, name)):
            option = "FILE" if name == "file" else f"--{name.replace('_', '-')}"
            raise ValueError(f"--shards goes without {option}")
    if not args.output:
        raise ValueError("--shards needs --output, a directory")
    check_files(*args.shards)
    check_model(args.model)
    export = newest_export(args.model)
    if not args.raw and (form := read_format(args.model)) not in ("text", "dates"):
        raise ValueError(f"--shards needs --raw for a model of the format {form}")
    use_tensorflow()
    from keras_transformer.serving import translate_shards

    report = translate_shards(
        export,
        args.shards,
        args.output,
        field=args.field,
        output_field=args.output_field or "translation",
        workers=args.workers or 1,
        batch_size=args.batch_size,
        source_tag=args.source_tag,
        target_tag=args.target_tag,
        split_sentences=args.split_sentences,
    )
    notes = {
        "finished before": report.finished,
        "another command has": report.busy,
        "rows without a translation, see *.wrong.jsonl": report.wrong,
    }
    more = [f"; {note}: {count:,}" for note, count in notes.items() if count]
    print(
        f"{report.rows:,} rows of {report.files:,} files translated{''.join(more)}", file=sys.stderr
    )
    return report._asdict()


def translate_lines(args: argparse.Namespace) -> None:
    """Translates one file or the standard input."""
    tags = {"source": args.source_tag, "target": args.target_tag}
    refused = (args.n_best, args.scores, args.split_sentences is not None, *tags.values())
    if args.alignments and any(refused):
        raise ValueError("--alignments goes without --n-best, --scores, --split-sentences and tags")
    if is_onnx(args.model):
        check_onnx(args)
    else:
        check_model(args.model, args.beam_size, args.length_penalty)
    check_files(args.file)
    check_output(args.output)
    check_differ(args.file, args.output)
    form = "text" if args.raw else read_format(args.model)
    if args.alignments and form not in ("text", "dates"):
        raise ValueError(f"--alignments needs --raw for a model of the format {form}")
    check_number(args.n_best, count_hypotheses(args.model, args.beam_size))
    # Whatever the locale says: so is the input.
    sys.stdout.reconfigure(encoding="utf-8", errors="strict")  # type: ignore[union-attr]
    with contextlib.ExitStack() as stack:
        stream = stack.enter_context(open_lines(args.file))
        stack.enter_context(damage_named(args.file))
        check_is_text(stream.peek(), args.file or STANDARD_INPUT)
        use_tensorflow()
        answer_lines: Callable[..., list[dict[str, Any]]]
        if is_onnx(args.model):
            from keras_transformer.serving.portable_translator import PortableTranslator

            answer_lines = partial(onnx_answers, PortableTranslator(args.model))
        else:
            from keras_transformer.recipes.runs import open_signatures

            signatures = open_signatures(
                args.model, beam_size=args.beam_size, length_penalty=args.length_penalty
            )
            check_tags(signatures, args.model, tags)
            answer_lines = partial(answers, signatures)
        output = stack.enter_context(open_output(args.output))
        count = too_long = 0
        for lines in batches(stream, args.batch_size):
            for answer in answer_lines(lines, count + 1, form, args):
                count += 1
                too_long += answer["truncated"]
                write(answer, count, args, output)
            output.flush()
            if args.file and sys.stderr.isatty():
                print(f"\r{count:,} lines", end="", file=sys.stderr, flush=True)
    note = f"; too long for the model, without a translation: {too_long:,}" if too_long else ""
    print(f"\r{count:,} line{'s' * (count != 1)} translated{note}", file=sys.stderr)


def check_differ(file: str | None, output: str | None) -> None:
    """Raises `ValueError` when the translations would take the place of the texts."""
    if file and output and os.path.isfile(output) and os.path.samefile(file, output):
        raise ValueError(f"--output must be another file than FILE. Received: {output}")


def check_number(count: int | None, most: int | None) -> None:
    """Raises `ValueError` for more translations of a text than the model gives."""
    if count is not None and most is not None and count > most:
        raise ValueError(
            f"--n-best must be at most {most}, the beam of the model. Received: {count}. "
            "With a run, --beam-size makes it wider"
        )


def check_tags(signatures: Any, model: str, tags: dict[str, str | None]) -> None:
    """Raises `ValueError` for a tag that the vocabulary of its side does not have."""
    from keras_transformer.recipes.runs import known_tags

    given = {side: tag for side, tag in tags.items() if tag is not None}
    if given and "source_tag" not in signatures["translate"].inputs:
        raise ValueError(f"--{min(given)}-tag needs a model whose vocabularies have tags")
    known = known_tags(model) if given else {}
    for side, tag in given.items():
        if side in known:
            check_tag(f"--{side}-tag", tag, known[side])


def check_onnx(args: argparse.Namespace) -> None:
    """Raises `ValueError` for an option that an ONNX file does not take."""
    need("formats", "onnxruntime")
    for name in (
        *("alignments", "split_sentences", "source_tag", "target_tag"),
        *("beam_size", "length_penalty"),
    ):
        if is_given(getattr(args, name)):
            raise ValueError(
                f"--{name.replace('_', '-')} needs a run or a SavedModel. "
                f"Received: {args.model}, an ONNX file"
            )


def onnx_answers(
    translator: Any, lines: list[bytes], first: int, form: str, args: argparse.Namespace
) -> list[dict[str, Any]]:
    """The answer of each line by an ONNX file: its translations and their scores."""
    sources = [line.decode("utf-8", "replace") for line in lines]
    texts = encode_sources(sources, form, args.file or STANDARD_INPUT, first)
    fitting = [text for text in texts if translator.fits(text)]
    found = iter(translator.n_best(fitting))
    made = []
    for source, text in zip(sources, texts, strict=True):
        fits = translator.fits(text)
        hypotheses = next(found)[: args.n_best or 1] if fits else [("", REFUSED)]
        translations = [decode_target(hypothesis, form) for hypothesis, _ in hypotheses]
        scores = [score for _, score in hypotheses]
        made.append(
            {"source": source, "translations": translations, "scores": scores}
            | {"truncated": not fits}
        )
    return made


def answers(
    signatures: Any, lines: list[bytes], first: int, form: str, args: argparse.Namespace
) -> list[dict[str, Any]]:
    """The answer of each line: its translations, their scores, and where they were read.

    `first` is the number of the first line in its file.
    """
    import tensorflow as tf

    sources = [line.decode("utf-8", "replace") for line in lines]
    if form in ("text", "dates"):
        text = tf.constant(lines)
    else:  # of symbols
        text = tf.constant(encode_sources(sources, form, args.file or STANDARD_INPUT, first))
    if args.alignments:
        found = signatures["align"](text=text)
        return [aligned(found, row, line) for row, line in enumerate(lines)]
    count = args.n_best or 1
    if args.split_sentences is None and not args.source_tag and not args.target_tag:
        found = signatures["n_best"](text=text)
    else:
        from keras_transformer.serving.export import arguments_of_translate

        translate = signatures["translate"]
        options = arguments_of_translate(
            translate.inputs,
            len(lines),
            source_tag=args.source_tag,
            target_tag=args.target_tag,
            split_sentences=args.split_sentences,
            num_hypotheses=count,
        )
        found = translate(text=text, **options)
    check_number(args.n_best, found["scores"].shape[1])
    made = []
    for row, source in enumerate(sources):
        answer = found_ones(found["translations"][row, :count], found["scores"][row, :count])
        answer["translations"] = [decode_target(text, form) for text in answer["translations"]]
        made.append({"source": source, **answer, "truncated": bool(found["truncated"][row])})
    return made


def found_ones(translations: Any, scores: Any) -> dict[str, list[Any]]:
    """The best translation of a text with its score, and the others that the search found."""
    from keras_transformer.serving.translator import hypotheses

    texts, numbers = zip(*hypotheses(translations, scores), strict=True)
    return {"translations": list(texts), "scores": list(numbers)}


def aligned(found: dict[str, Any], row: int, line: bytes) -> dict[str, Any]:
    """The answer of one line with the bytes that each piece was read from."""
    names = ("target_start", "target_end", "source_start", "source_end")
    columns = [found[name][row].tolist() for name in names]
    pieces = [piece for piece in zip(*columns, strict=True) if piece[0] >= 0]
    return {
        "source": line.decode("utf-8", "replace"),
        "translations": [found["translation"][row].decode()],
        "alignment": [{"target": piece[:2], "source": piece[2:]} for piece in pieces],
        "truncated": bool(found["truncated"][row]),
    }


def write(answer: dict[str, Any], number: int, args: argparse.Namespace, output: TextIO) -> None:
    """Writes the answer of one line."""
    if args.json:
        print(json.dumps(answer, ensure_ascii=False), file=output)
        return
    for rank, text in enumerate(answer["translations"]):
        fields = [str(number)] if args.n_best else []
        fields += [f"{answer['scores'][rank]:.4f}"] if args.scores else []
        fields.append(text.translate(ONE_LINE))
        if args.alignments:
            pieces = answer["alignment"]
            ranges = ["{}-{}:{}-{}".format(*p["target"], *p["source"]) for p in pieces]
            fields.append(" ".join(ranges))
        print(*fields, sep="\t", file=output)


def batches(stream: Iterable[bytes], size: int) -> Iterator[list[bytes]]:
    """Lists of at most `size` lines; a person at a terminal is answered line by line."""
    lines: list[bytes] = []
    by_line = getattr(stream, "isatty", bool)()
    for number, line in enumerate(stream):
        if number == 0:
            line = line.removeprefix(b"\xef\xbb\xbf")
        lines.append(line.rstrip(b"\r\n"))
        if len(lines) == size or by_line:
            yield lines
            lines = []
    if lines:
        yield lines


@contextlib.contextmanager
def open_output(file: str | None) -> Iterator[TextIO]:
    """The standard output, or a file that is there when it is whole; gzip where it ends in .gz."""
    if file is None:
        yield sys.stdout
        return
    is_device = os.path.exists(file) and not os.path.isfile(file)
    is_device |= os.path.abspath(file).startswith(("/dev/", "/proc/"))
    written = contextlib.nullcontext(file) if is_device else new_file(file, anywhere=True)
    opened = gzip.open if file.endswith(".gz") else open
    with (
        written as scratch,
        opened(scratch, "wt", encoding="utf-8") as stream,
    ):
        yield stream
