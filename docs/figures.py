"""Writes the pictures of README and of pages as SVG: `python docs/figures.py`.

Plain Python: the pictures are text, and the same at every run. `python docs/figures.py --record`
first trains on dates and translates, and keeps what the commands print in docs/recording.txt.
`--card` draws the card that other sites show beside a link, with matplotlib.
Colours are those of Okabe and Ito, which people with any colour vision can tell apart.
"""

import argparse
import html
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

DOCS = Path(__file__).resolve().parent
REPOSITORY = DOCS.parent
RECORDING = DOCS / "recording.txt"
BLUE, ORANGE, GREEN, PURPLE = "#0072b2", "#d55e00", "#009e73", "#cc79a7"
EPOCH = re.compile(r"^  epoch (\d+): validation .*$", re.MULTILINE)
# Neither an example, nor Keras's progress, nor too long for a terminal.
OTHER = re.compile(r"(?!    (?:source|translated|reference) |Epoch \d|\d+/\d+ |  epoch \d).{1,100}")
INK, GREY = "#1f2933", "#5b6670"
BARS = ((8, 36, BLUE), (8, 24, ORANGE), (36, 36, BLUE), (36, 24, ORANGE), (36, 12, GREEN))
BATCH = 32_768  # target tokens of a device's step
# Parameters with a vocabulary of 32,000, tokens a second of one H100, colour and mark.
SIZES = {"base": (60.5e6, 621_983, BLUE, "circle"), "big": (209e6, 284_910, ORANGE, "square")}
# Bytes a second, the dashes of its lines, and for how many devices it holds.
BANDWIDTHS = {450e9: ("", 8), 50e9: ("7 4", 32)}
DEVICES = (1, 2, 4, 8, 16, 24, 32)
FILLS = {BLUE: "#e5f1f8", ORANGE: "#fdeee3", GREEN: "#e3f4ee", PURPLE: "#f9edf4", GREY: "#f1f3f5"}
ARROW_HEAD = (
    "<defs><marker id='head' viewBox='0 0 8 8' refX='7' refY='4' markerWidth='7' "
    f"markerHeight='7' orient='auto'><path d='M0 0L8 4L0 8z' fill='{GREY}'/></marker></defs>\n"
)
SANS = "font-family='system-ui, -apple-system, Segoe UI, Roboto, sans-serif'"
MONO = "font-family='ui-monospace, SFMono-Regular, Menlo, Consolas, monospace'"


def document(width, height, title, body, style=""):
    """Gives a whole SVG document with a title for those who hear it."""
    return (
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {width} {height}' "
        f"width='{width}' height='{height}' role='img' aria-label='{html.escape(title)}'>\n"
        f"<title>{html.escape(title)}</title>\n{style}{body}</svg>\n"
    )


def panel(width, height, title, parts):
    """Gives a document of parts on a white ground of its own, which dark pages need."""
    ground = (
        f"<rect x='1' y='1' width='{width - 2}' height='{height - 2}' rx='14' fill='#ffffff' "
        f"stroke='#d5dbe0'/>\n<g {SANS}>\n"
    )
    return document(width, height, title, ground + "".join(parts) + "</g>\n")


def label(x, y, text, size=13, color=INK, anchor="middle", weight=400):
    """Gives a line of text."""
    return (
        f"<text x='{x}' y='{y}' font-size='{size}' fill='{color}' text-anchor='{anchor}' "
        f"font-weight='{weight}'>{html.escape(text)}</text>\n"
    )


def box(x, y, name, file, color, note="", width=210, height=44):
    """Gives a box around the point (x, y) that links to a file of the package."""
    link = f"keras_transformer/{file}"
    if not (REPOSITORY / link).is_file():
        raise ValueError(f"`file` must be a file of the package. Received: file={file}")
    left, top = x - width / 2, y - height / 2
    second = note or file
    return (
        f"<a href='../../{link}'><title>{html.escape(name)}: {link}</title>"
        f"<rect x='{left}' y='{top}' width='{width}' height='{height}' rx='7' "
        f"fill='{FILLS[color]}' stroke='{color}' stroke-width='1.6'/>\n"
        f"{label(x, y - 3, name, 13, weight=600)}{label(x, y + 13, second, 10.5, GREY)}</a>\n"
    )


def path(*points, color=GREY, dashed=False, head=True):
    """Gives a line through points, with an arrow head at its end."""
    line = " ".join(f"{'ML'[number > 0]}{x} {y}" for number, (x, y) in enumerate(points))
    dashes = " stroke-dasharray='5 4'" if dashed else ""
    marker = " marker-end='url(#head)'" if head else ""
    return f"<path d='{line}' fill='none' stroke='{color}' stroke-width='1.5'{dashes}{marker}/>\n"


def frame(left, top, width, height, text, link):
    """Gives the frame of a stack of layers, with its name."""
    return (
        f"<rect x='{left}' y='{top}' width='{width}' height='{height}' rx='12' fill='#fbfcfd' "
        f"stroke='#aab4bd' stroke-width='1.2'/>\n"
        f"<a href='../../keras_transformer/{link}'>"
        f"{label(left + 14, top + 20, text, 12, INK, 'start', 600)}</a>\n"
    )


def architecture():
    """Gives figure 1 of "Attention Is All You Need" in the names of this package."""
    left, right = 235, 620
    parts = [
        ARROW_HEAD,
        "<rect x='1' y='1' width='878' height='748' rx='14' fill='#ffffff' stroke='#d5dbe0'/>\n",
        f"<g {SANS} transform='translate(0 -66)'>\n",
        frame(95, 380, 280, 250, "Encoder: N layers", "layers/encoder.py"),
        frame(480, 284, 280, 346, "Decoder: N layers", "layers/decoder.py"),
    ]
    for x, ids, tokens in ((left, "source_ids", "source"), (right, "target_ids", "target")):
        parts += [
            label(x, 805, f"{tokens} text", 12, GREY),
            path((x, 791), (x, 777)),
            box(x, 754, f"Tokenizer: {ids}", "text/tokenizer.py", GREY),
            path((x, 732), (x, 727)),
            box(x, 704, "TokenEmbedding", "layers/token_embedding.py", PURPLE),
            path((x, 682), (x, 677)),
            box(x, 654, "PositionalEncoding", "layers/positional_encoding.py", PURPLE),
            path((x, 632), (x, 613)),
        ]
    attention, residual = "layers/multi_head_attention.py", "layers/residual.py"
    encoder = (
        (590, "MultiHeadAttention", attention, ORANGE, "all source tokens"),
        (540, "Residual", residual, GREEN, "add and normalise"),
        (490, "FeedForward", "layers/feed_forward.py", BLUE, ""),
        (440, "Residual", residual, GREEN, "add and normalise"),
    )
    decoder = (
        (590, "MultiHeadAttention", attention, ORANGE, "causal: only tokens before"),
        (540, "Residual", residual, GREEN, "add and normalise"),
        (490, "MultiHeadAttention", attention, ORANGE, "attends to the memory"),
        (440, "Residual", residual, GREEN, "add and normalise"),
        (390, "FeedForward", "layers/feed_forward.py", BLUE, ""),
        (340, "Residual", residual, GREEN, "add and normalise"),
    )
    for x, layers in ((left, encoder), (right, decoder)):
        for y, name, file, color, note in layers:
            parts.append(box(x, y, name, file, color, note, height=40))
            if y < 590:
                parts.append(path((x, y + 30), (x, y + 21)))
    parts += [
        path((right, 320), (right, 262)),
        box(
            right, 239, "TokenEmbedding.logits", "layers/token_embedding.py", PURPLE, "tied output"
        ),
        path((right, 217), (right, 199)),
        box(right, 176, "Search", "decoding/beam_search.py", GREY, "greedy, beam, sampling"),
        path((right, 154), (right, 136)),
        box(right, 113, "Tokenizer.detokenize", "text/tokenizer.py", GREY),
        path((right, 91), (right, 78)),
        label(right + 12, 83, "translation", 12, GREY, "start"),
        path((725, 176), (835, 176), (835, 704), (727, 704), dashed=True),
        label(826, 660, "next token", 11.5, GREY, "end"),
        path((left, 420), (left, 358), (430, 358), (430, 490), (513, 490)),
        label(405, 350, "memory", 12.5, INK, "middle", 600),
        box(left, 316, "Masks", "masking.py", GREY, "masking.py: True may attend"),
        path((130, 316), (60, 316), (60, 590), (128, 590), dashed=True),
        path((340, 316), (455, 316), (455, 590), (513, 590), dashed=True),
        box(left, 113, "Transformer: the whole", "models/transformer.py", GREY),
        box(left, 176, "WarmupSchedule", "schedules.py", GREY),
        box(left, 239, "MaskedCrossentropy", "losses.py", GREY),
        path((515, 239), (342, 239), dashed=True),
        label(428, 232, "logits in fit", 11.5, GREY),
        "</g>\n",
    ]
    title = "The Transformer of figure 1, each box a file of keras_transformer"
    return document(880, 750, title, "".join(parts))


def ways_in_and_out():
    """Gives what becomes a `Translator`, and what is written from one."""
    left, middle, right, center = 150, 440, 730, 185
    ways_in = (
        ("Hugging Face", "interop/hugging_face.py", ORANGE, "Marian, M2M100, NLLB, Pegasus"),
        ("Marian", "interop/marian.py", ORANGE, "model.npz and its vocabularies"),
        ("CTranslate2", "interop/ctranslate2.py", ORANGE, "OpenNMT, Argos, LibreTranslate"),
        ("train", "recipes/training.py", GREY, "your own pairs of texts"),
    )
    ways_out = (
        ("SavedModel", "serving/export.py", BLUE, "strings in, strings out"),
        ("ONNX, LiteRT", "serving/onnx_export.py", BLUE, "without TensorFlow"),
        ("Hugging Face", "interop/hugging_face_writer.py", GREEN, "Marian, Pegasus"),
        ("CTranslate2", "interop/ctranslate2_save.py", GREEN, "also in 8 bits"),
    )
    parts = [
        ARROW_HEAD,
        "<rect x='1' y='1' width='878' height='368' rx='14' fill='#ffffff' stroke='#d5dbe0'/>\n",
        f"<g {SANS}>\n",
    ]
    for number, (name, file, color, note) in enumerate(ways_in):
        y = 65 + 80 * number
        parts += [
            box(left, y, name, file, color, note),
            path((left + 107, y), (middle - 112, center + (y - center) / 6)),
        ]
    parts.append(box(middle, center, "Translator", "serving/translator.py", PURPLE, height=80))
    for number, (name, file, color, note) in enumerate(ways_out):
        y = 65 + 80 * number
        parts += [
            path((middle + 107, center + (y - center) / 6), (right - 112, y)),
            box(right, y, name, file, color, note),
        ]
    title = (
        "Models of Hugging Face, Marian and CTranslate2, and your own, become a Translator. It is "
        "written as a SavedModel, ONNX or LiteRT, and for Hugging Face and CTranslate2."
    )
    return document(880, 370, title, "".join(parts) + "</g>\n")


def recording(text):
    """Gives a terminal in which the lines of a recording appear one after the other."""
    lines, rows, time = text.rstrip("\n").split("\n"), [], 0.0
    for number, line in enumerate(lines):
        command = line.startswith("$ ")
        time += (0.9 if command else 0.3) if number else 0.0  # the first command is there at once
        color = "#ffffff" if command else "#b9c4cf"
        moves = f" class='line' style='animation-delay:{time:.2f}s'" if number else ""
        prompt = f"<tspan fill='#56b4e9'>$ </tspan>{html.escape(line[2:])}"
        rows.append(
            f"<text{moves} x='20' y='{62 + 20 * number}' fill='{color}' xml:space='preserve'>"
            f"{prompt if command else html.escape(line)}</text>\n"
        )
    width, height = 40 + 8.05 * max(map(len, lines)), 76 + 20 * len(lines)
    # Where nothing moves, every line is there from the start.
    style = (
        "<style>.line{animation:appear .2s both}"
        "@keyframes appear{from{opacity:0}}"
        "@media (prefers-reduced-motion:reduce){.line{animation:none}}</style>\n"
    )
    dots = "".join(f"<circle cx='{22 + 18 * n}' cy='22' r='5.5' fill='#4a5560'/>" for n in range(3))
    body = (
        f"<rect width='{width:.0f}' height='{height}' rx='10' fill='#1b2229'/>\n{dots}\n"
        f"<g {MONO} font-size='13.4'>\n{''.join(rows)}</g>\n"
    )
    title = "A terminal: keras-transformer trains on dates and translates one"
    return document(round(width), height, title, body, style)


def tokens_per_second(size, devices, bytes_per_second):
    """Gives the speed of data parallelism in which nothing overlaps; see docs/scale.md."""
    parameters, speed, *_ = SIZES[size]
    exchange = 2 * (devices - 1) / devices * 4 * parameters / bytes_per_second
    return devices * BATCH / (BATCH / speed + exchange)


def scaling():
    """Gives the tokens a second of base and big by the number of devices."""
    width, height, left, right, top, bottom = 760, 440, 84, 566, 58, 372
    most = 20e6

    def place(devices, speed):
        x = left + (right - left) * devices / DEVICES[-1]
        return round(x, 1), round(bottom - (bottom - top) * speed / most, 1)

    parts = [
        label(left - 60, 34, "million target tokens a second", 13, INK, "start", 600),
        label((left + right) / 2, 418, "devices, each with 32,768 tokens a step", 13, weight=600),
    ]
    for speed in range(0, 21, 5):
        x, y = place(0, speed * 1e6)
        parts.append(f"<path d='M{x} {y}H{right}' stroke='#e1e6ea'/>\n")
        parts.append(label(x - 8, y + 4, str(speed), 12, GREY, "end"))
    parts += [label(place(n, 0)[0], bottom + 20, str(n), 12, GREY) for n in DEVICES if n != 2]
    for size, (_, speed, color, _) in SIZES.items():
        (x, y), (end_x, end_y) = place(0, 0), place(DEVICES[-1], DEVICES[-1] * speed)
        parts.append(
            f"<path d='M{x} {y}L{end_x} {end_y}' stroke='{color}' stroke-width='1.2' "
            f"stroke-dasharray='1.5 4' stroke-linecap='round'/>\n"
        )
        for bandwidth, (dashes, most_devices) in BANDWIDTHS.items():
            numbers = [n for n in DEVICES if n <= most_devices]
            points = [place(n, tokens_per_second(size, n, bandwidth)) for n in numbers]
            line = "L".join(f"{x} {y}" for x, y in points)
            parts.append(
                f"<path d='M{line}' fill='none' stroke='{color}' stroke-width='2.2' "
                f"stroke-dasharray='{dashes or 'none'}'/>\n"
            )
            parts += [mark(x, y, size) for x, y in points]
            x, y = points[-1]
            text = f"{size}, {bandwidth / 1e9:.0f} GB/s"
            across, down, anchor = 12, 4, "start"
            if most_devices < DEVICES[-1]:  # beside the other lines
                across, down, anchor = (-12, -8, "end") if size == "base" else (12, 16, "start")
            parts.append(label(x + across, y + down, text, 13, color, anchor, 600))
    parts += [label(left + 18, top + 14, "dotted: no exchange of gradients", 12, GREY, "start")]
    title = (
        "Calculated tokens a second against devices. With 8 devices at 450 GB/s base has 4.9 "
        "million, big 2.2 million. With 32 devices at 50 GB/s base has 16.9 million, big 7.1 "
        "million."
    )
    return panel(width, height, title, parts)


def table(page, first):
    """Gives the rows of a page's table whose first head is `first`, as lists of cells."""
    text = (DOCS / page).read_text(encoding="utf-8")
    lines = text[text.index(f"\n| {first} |") + 1 :].partition("\n\n")[0].splitlines()
    return [[cell.strip(" *") for cell in line.split("|")[1:-1]] for line in lines[2:]]


def bars(groups, title):
    """Gives bars with their figures: groups are (heading, largest value, rows).

    A row is (name, value, what stands beside it, colour).
    """
    width, left, right, step = 760, 250, 660, 26
    top, parts = 26, []
    for heading, most, rows in groups:
        parts.append(label(24, top + 10, heading, 14, INK, "start", 600))
        top += 24
        for name, value, text, color in rows:
            length = round((right - left) * value / most, 1)
            parts += [
                label(left - 10, top + 15, name, 12.5, INK, "end"),
                f"<rect x='{left}' y='{top + 2}' width='{length}' height='{step - 7}' rx='3' "
                f"fill='{color}'/>\n",
                label(left + length + 8, top + 15, text, 12.5, INK, "start"),
            ]
            top += step
        top += 24
    return panel(width, top, title, parts)


def training_speed():
    """Gives the tokens a second of training, from the tables of speed.md, a bar a row."""
    groups = []
    for size, heading in {"tiny, float32": "tiny", "base": "base"}.items():
        speeds = {name: int(cell.replace(",", "")) for name, cell, *_ in table("speed.md", size)}
        rows = [
            (name, speed, f"{speed:,}", BLUE if name.startswith("this package") else GREY)
            for name, speed in speeds.items()
        ]
        groups.append((f"{heading}, tokens a second", max(speeds.values()), rows))
    return bars(
        groups,
        "Bars of tokens a second in training. In each of the settings this package is ahead of "
        "KerasHub, the Keras tutorial and PyTorch.",
    )


def results():
    """Gives the results on processors beside the published ones, from the table of results.md."""
    groups = []
    for task, metric, *cells in table("results.md", "task"):
        here, published = (re.search(r"\d+(?:\.\d+)?", cell) for cell in cells[:2])
        if published and "GPU" not in task and "its own" not in task:
            is_error = metric == "word error rate"
            figures = [("this package", here[0], BLUE), ("published", published[0], GREY)]
            rows = [
                (name, 100 - float(figure) if is_error else float(figure), figure, color)
                for name, figure, color in figures
            ]
            if is_error:
                rows = [(name, value, f"{value:.1f}", color) for name, value, _, color in rows]
            groups.append((f"{task}: {'words right' if is_error else metric}", 100, rows))
    return bars(
        groups,
        "Bars of results on processors beside published ones. Inflection and phonemes are ahead, "
        "Multi30K and SCAN just below.",
    )


def learning():
    """Gives BLEU over the minutes of an hour's training on Multi30K, from a table of the lab."""
    rows = table("lab/training-curves.md", "epoch | 5 | 10 | 15")
    minutes, bleu = ([float(cell.strip("*")) for cell in row[1:]] for row in rows[:2])
    width, height, left, right, top, bottom = 760, 380, 64, 730, 56, 318

    def place(minute, value):
        x = left + (right - left) * minute / 60
        return round(x, 1), round(bottom - (bottom - top) * value / 45, 1)

    parts = [
        label(left - 40, 34, "BLEU of the validation texts", 13, INK, "start", 600),
        label((left + right) / 2, 360, "minutes of training", 13, weight=600),
    ]
    for value in range(0, 46, 10):
        x, y = place(0, value)
        parts.append(f"<path d='M{x} {y}H{right}' stroke='#e1e6ea'/>\n")
        parts.append(label(x - 8, y + 4, str(value), 12, GREY, "end"))
    parts += [label(place(n, 0)[0], bottom + 20, str(n), 12, GREY) for n in range(0, 61, 10)]
    points = [place(*point) for point in zip(minutes, bleu, strict=True)]
    line = "L".join(f"{x} {y}" for x, y in points)
    parts.append(f"<path d='M{line}' fill='none' stroke='{BLUE}' stroke-width='2.2'/>\n")
    parts += [mark(x, y, "base") for x, y in points]
    title = (
        f"BLEU over minutes: {bleu[0]} after {minutes[0]:.0f}, {bleu[-1]} after {minutes[-1]:.0f}."
    )
    return panel(width, height, title, parts)


def mark(x, y, size):
    """Gives the mark of a size of model at a point."""
    _, _, color, shape = SIZES[size]
    if shape == "circle":
        return f"<circle cx='{x}' cy='{y}' r='4' fill='{color}'/>\n"
    return f"<rect x='{x - 3.5:.1f}' y='{y - 3.5:.1f}' width='7' height='7' fill='{color}'/>\n"


def favicon():
    """Gives the mark of the site: two stacks, and the memory between them."""
    body = "<rect width='64' height='64' rx='12' fill='#ffffff'/>\n" + "".join(
        f"<rect x='{x}' y='{y}' width='20' height='9' rx='2' fill='{color}'/>\n"
        for x, y, color in BARS
    )
    return document(64, 64, "keras_transformer", body)


def card(file):
    """Draws the card for links, 1200 x 630 pixels: the name, what it does, and one alignment."""
    from matplotlib.figure import Figure
    from matplotlib.image import imread

    figure = Figure(figsize=(12, 6.3), dpi=100, facecolor="white")
    figure.text(0.06, 0.77, "keras_transformer", fontsize=38, weight="bold", color=INK)
    words = (
        "Train a text-to-text Transformer with Keras 3.",
        "Serve it as a SavedModel: strings in, strings out.",
        "TensorFlow, JAX and PyTorch.",
    )
    for number, line in enumerate(words):
        figure.text(0.06, 0.63 - 0.085 * number, line, fontsize=18, color=GREY)
    bars = figure.add_axes((0.06, 0.1, 0.16, 0.2))
    for x, y, color in BARS:
        bars.barh(y, 20, height=9, left=x, color=color)
    bars.set(xlim=(8, 56), ylim=(50, 6))
    bars.set_axis_off()
    picture = figure.add_axes((0.58, 0.06, 0.4, 0.88))
    picture.imshow(imread(DOCS / "pictures" / "alignment_korean.png"))
    picture.set_axis_off()
    figure.savefig(file, metadata={"Software": None})


def record():
    """Runs the commands of the recording, and gives what they print."""
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    program, lines = [sys.executable, "-m", "keras_transformer"], []
    date = "Friday, November 20, 2026"
    with tempfile.TemporaryDirectory() as directory:

        def run(shown, *arguments, stdin=None):
            done = subprocess.run(
                [*program, *arguments],
                input=stdin,
                env=environment,
                cwd=directory,
                check=True,
                stdout=subprocess.PIPE,
                encoding="utf-8",
            )
            lines.extend([f"$ {shown}", *kept(done.stdout.splitlines())])

        run("keras-transformer train --output runs/dates", "train", "--output", "runs/dates")
        run(
            f'echo "{date}" | keras-transformer translate runs/dates',
            *("translate", "runs/dates"),
            stdin=f"{date}\n",
        )
    return "\n".join(lines) + "\n"


def kept(lines):
    """Gives the lines of a training run that the recording shows.

    Of three epochs and the last: the loss, and the first example. A line "..." stands for others.
    """
    found, epoch, examples = [], 0, 0
    last = max((int(number) for number in EPOCH.findall("\n".join(lines))), default=0)
    for line in lines:
        if match := EPOCH.match(line):
            epoch, examples = int(match[1]), 0
        elif line.startswith("    source "):
            examples += 1
        is_example = line.startswith(("    source ", "    translated "))
        if 3 < epoch < last:
            if found[-1] != "  ...":
                found.append("  ...")
        elif match or (is_example and examples == 1) or OTHER.fullmatch(line):
            found.append(line)
    return found


def main():
    """Writes the pictures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--record", action="store_true", help="run the commands again, first")
    parser.add_argument("--card", action="store_true", help="draw pictures/card.png too")
    options = parser.parse_args()
    if options.record:
        RECORDING.write_text(record(), encoding="utf-8")
    if options.card:
        card(DOCS / "pictures" / "card.png")
    pictures = {
        "pictures/architecture.svg": architecture(),
        "pictures/dates.svg": recording(RECORDING.read_text(encoding="utf-8")),
        "pictures/scaling.svg": scaling(),
        "pictures/learning.svg": learning(),
        "pictures/results.svg": results(),
        "pictures/training_speed.svg": training_speed(),
        "pictures/ways_in_and_out.svg": ways_in_and_out(),
        "favicon.svg": favicon(),
    }
    for name, picture in pictures.items():
        (DOCS / name).write_text(picture, encoding="utf-8")
        print(f"{name}: {len(picture) // 1024} KiB")


if __name__ == "__main__":
    main()
