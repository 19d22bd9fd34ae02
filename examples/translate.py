"""Translates a file or standard input, line by line, with a SavedModel that train_translator made.

    python examples/translate.py runs/dates-en-fr/export/1 FILE
    echo "Friday, November 20, 2026" | python examples/translate.py runs/dates-en-fr/export/1

Needs tensorflow and tensorflow_text, and parallel_text.py beside it. Answers come in order.
With --scores each line starts with the translation's score. With --n-best N each input line gets N
lines, numbered by input.
--split-sentences translates each sentence of a line on its own, --no-split-sentences a whole line
at once; without either the export does what it was made for.
"""

import argparse
import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import tensorflow as tf
import tensorflow_text  # noqa: F401  (registers the operations of the SavedModel)

from parallel_text import check_is_text


def main():
    """Runs the program; returns its exit status."""
    args = parse_arguments()
    # TensorFlow writes names in UTF-8; Python, as the locale says.
    directory = os.fsencode(args.directory).decode("utf-8", "surrogateescape")
    if not tf.saved_model.contains_saved_model(directory):
        return fail(f"{args.directory} holds no SavedModel; a run keeps its own in export/1")
    try:
        stream = open(args.file, "rb") if args.file else sys.stdin.buffer  # noqa: SIM115
    except OSError as error:
        return fail(f"{args.file}: {error.strerror}")
    sys.stdout.reconfigure(encoding="utf-8")  # whatever the locale says: so is the input
    model = tf.saved_model.load(directory)
    try:
        with stream:
            check_is_text(stream.peek(), args.file or "standard input")
            count, too_long = translate(model, stream, args)
    except ValueError as error:
        return fail(error)
    except (BrokenPipeError, KeyboardInterrupt):
        # The reader has gone, or the user has seen enough.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 130
    note = f"; {too_long:,} were too long for the model and have no translation" if too_long else ""
    print(f"{count:,} lines translated{note}", file=sys.stderr)
    return 0


def translate(model, stream, args):
    """Translates the lines of `stream`; returns how many there were and were too long."""
    count = too_long = 0
    for lines in batches(stream, args.batch_size):
        scores, translations, truncated = answers(model, lines, args)
        too_long += int(truncated.sum())
        for hypotheses in zip(translations, scores, strict=True):
            count += 1
            for text, score in zip(*hypotheses, strict=True):
                fields = [str(count)] if args.n_best else []
                fields += [f"{score:.4f}"] if args.scores else []
                print(*fields, " ".join(text.decode().split("\n")), sep="\t")
        sys.stdout.flush()
        if args.file:
            print(f"\r{count:,} lines", end="", file=sys.stderr, flush=True)
    if args.file:
        print("\r", end="", file=sys.stderr)
    return count, too_long


def answers(model, lines, args):
    """Scores and translations, each (lines, hypotheses), and which lines were too long."""
    text, n_best = tf.constant(lines), args.n_best
    if args.split_sentences is None and not n_best:
        answer = model.signatures["serving_default"](text=text)
        scores, translations = answer["score"][:, None], answer["translation"][:, None]
    else:
        if args.split_sentences is None:
            answer = model.signatures["n_best"](text=text)
        else:
            answer = divided(model.signatures["translate"], text, n_best, args.split_sentences)
        if n_best > answer["scores"].shape[1]:
            raise ValueError(
                f"--n-best must be at most {answer['scores'].shape[1]}, the beam of the model"
            )
        count = n_best or 1
        scores, translations = answer["scores"][:, :count], answer["translations"][:, :count]
    return scores.numpy(), translations.numpy(), answer["truncated"].numpy()


def divided(translate, text, n_best, split_sentences):
    """The answer of the signature `translate`, the export's own options but for one."""
    if "split_sentences" not in translate.structured_input_signature[1]:
        raise ValueError("this export cannot be told to divide texts: it is of an older version")
    count = tf.shape(text)
    return translate(
        text=text,
        prefix=tf.fill(count, ""),
        length_penalty=tf.fill(count, -1.0),
        max_length=tf.fill(count, 0),
        num_hypotheses=tf.fill(count, n_best or 1),
        split_sentences=tf.fill(count, int(split_sentences)),
    )


def batches(stream, size):
    """Lists of at most `size` lines; a person at a terminal is answered line by line."""
    lines = []
    for number, line in enumerate(stream):
        if number == 0:
            line = line.removeprefix(b"\xef\xbb\xbf")
        lines.append(line.rstrip(b"\r\n"))
        if len(lines) == size or stream.isatty():
            yield lines
            lines = []
    if lines:
        yield lines


def fail(message):
    """Prints why the program cannot go on."""
    print(f"error: {message}", file=sys.stderr)
    return 2


def parse_arguments():
    """Returns the command line's arguments."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("directory", metavar="DIR", help="the SavedModel, such as RUN/export/1")
    parser.add_argument("file", metavar="FILE", nargs="?", help="standard input when not given")
    parser.add_argument("--n-best", type=int, default=0, metavar="N", help="hypotheses a line")
    parser.add_argument("--scores", action="store_true", help="print the score before the text")
    parser.add_argument(
        "--split-sentences",
        action=argparse.BooleanOptionalAction,
        help="translate each sentence of a line on its own (default: as exported)",
    )
    parser.add_argument("--batch-size", type=int, default=512, help="lines read at a time")
    args = parser.parse_args()
    if args.batch_size < 1 or args.n_best < 0:
        parser.error("--batch-size must be at least 1 and --n-best at least 0")
    return args


if __name__ == "__main__":
    sys.exit(main())
