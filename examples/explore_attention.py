"""Writes one HTML file that shows where a trained translator looks, and how its search decides.

    python examples/explore_attention.py runs/en-de "A man in an orange hat." --output hat.html

Open the file in a browser; it needs no server and no network. Point at a word to see where each
head of each layer looks; step through the decoding to see the hypotheses of the beam, what might
follow each, and which go on. The weights and the steps are the model's and the search's own.
"""

import argparse
import json
import os
import sys
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ["KERAS_BACKEND"] = "tensorflow"  # texts need it

import numpy as np
from keras import ops

from keras_transformer import RecurrentSeq2Seq, Transformer
from keras_transformer.text import load_tokenizer
from run_directory import RunDirectory, say
from watched_search import WatchedBeamSearch, hypotheses_of, ids_of

TEMPLATE = Path(__file__).with_suffix(".html")
SCRIPTS = ("explore_attention.js", "explore_attention_maps.js", "explore_attention_steps.js")
ROWS_PER_CALL = 32  # hypotheses whose weights are computed at once
LARGE = 10  # megabytes
MAX_TOKENS = 100  # of the sentence: a page with more could not be read


def main():
    """Runs the program; returns its exit status."""
    args = parse_arguments()
    sys.stdout.reconfigure(errors="replace")  # whatever the locale says
    try:
        say(f"Loading {args.directory} ...")
        model, *tokenizers = load_run(args.directory)
        search = WatchedBeamSearch(args.beam_size, args.length_penalty)
        say(f"Translating, beam {args.beam_size}, and reading every layer's weights ...")
        data = explore(model, *tokenizers, args.sentence, search)
        write_page(Path(args.output), data)
    except (OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    size = os.path.getsize(args.output) / 1e6
    steps, hypotheses = len(data["steps"]) - 1, len(data["nodes"]) - 1
    say(f"{steps} steps, {hypotheses} hypotheses, a page of {size:,.1f} MB")
    if size > LARGE:
        say("A smaller --beam-size or a shorter sentence gives a smaller page.")
    say(f"{args.output}: {data['translation']}")
    return 0


def load_run(path):
    """The model of a run that train_translator.py wrote, and its two tokenizers."""
    directory = RunDirectory(path)
    if not (directory.path / "model.keras").exists():
        raise ValueError(f"{path} must be the directory of a finished run: it has no model.keras")
    source = load_tokenizer(directory.path / "source.tokenizer")
    target = directory.path / "target.tokenizer"
    return directory.load_model(), source, load_tokenizer(target) if target.exists() else source


def explore(model, source_tokenizer, target_tokenizer, sentence, search):
    """Translates `sentence` and returns what the page shows, fit for JSON."""
    check_model(model)
    source_ids = checked_ids(source_tokenizer, sentence)
    model.generate(np.array([source_ids]), search)
    nodes, steps = hypotheses_of(search, model.bos_id)
    pieces = target_tokenizer.pieces
    texts = texts_of(target_tokenizer, nodes)
    weights = weights_of(model, source_ids, nodes)
    found = [node._asdict() for node in nodes]
    for place, node in enumerate(found):
        (node["piece"],) = pieces([node.pop("token")])
        if node["following"] is not None:
            tokens, log_probs = zip(*node["following"], strict=True)
            shares = rounded(np.exp(log_probs)).tolist()
            node["following"] = list(zip(pieces(tokens), shares, strict=True))
            node["taken"] = taken_of(nodes, place, tokens)
            node["weights"] = weights[place]
        if node["score"] is not None:
            node["text"] = texts[place]
    best = steps[-1].finished
    return {
        "sentence": sentence,
        "translation": texts[best[0]] if best else "",
        "source": source_tokenizer.pieces(source_ids),
        "special": pieces([model.bos_id, model.eos_id]),
        "beam_size": search.beam_size,
        "length_penalty": search.length_penalty,
        "encoder": weights["encoder"],
        "nodes": found,
        "steps": [step._asdict() for step in steps],
    }


def check_model(model):
    """Raises `ValueError` for a model that attends to nothing, or in a way that is not known."""
    if not isinstance(model, (Transformer, RecurrentSeq2Seq)):
        raise ValueError(
            "`model` must be a Transformer or a RecurrentSeq2Seq. "
            f"Received: model={type(model).__name__}"
        )
    if isinstance(model, RecurrentSeq2Seq) and not model.attention:
        raise ValueError("`model` must have attention. Received: model with attention=None")


def checked_ids(tokenizer, sentence):
    """The ids of `sentence` with `eos_id`, or `ValueError` when there are too few or too many."""
    ids = tokenizer.tokenize([sentence])[0].numpy().tolist()
    if not 0 < len(ids) <= MAX_TOKENS:
        raise ValueError(
            f"`sentence` must have from 1 to {MAX_TOKENS} tokens. "
            f"Received: sentence={sentence!r:.80} of {len(ids)}"
        )
    return [*ids, tokenizer.eos_id]


def texts_of(tokenizer, nodes):
    """The text of every hypothesis."""
    ids = [ids_of(nodes, place)[1:] for place in range(len(nodes))]
    return [text.decode("utf-8") for text in tokenizer.detokenize(ids).numpy()]


def taken_of(nodes, place, tokens):
    """The hypothesis that each of `tokens` made of the one at `place`, None where dropped."""
    children = {node.token: n for n, node in enumerate(nodes) if node.parent == place}
    return [children.get(token) for token in tokens]


def weights_of(model, source_ids, nodes):
    """By hypothesis, the weights with which its next token is written; and the encoder's.

    Those of a hypothesis are {"cross": [layer][head][source], "decoder": [layer][head][target]}.
    A model without self-attention gives "cross" alone, and None for the encoder.
    """
    weights = {"encoder": None}
    places = [place for place, node in enumerate(nodes) if node.following is not None]
    for start in range(0, len(places), ROWS_PER_CALL):
        some = places[start : start + ROWS_PER_CALL]
        longest = nodes[some[-1]].length + 1  # they are in the order of their lengths
        padding = [model.pad_id] * longest
        targets = np.array([(ids_of(nodes, place) + padding)[:longest] for place in some])
        kinds = attention_of(model, np.tile(source_ids, (len(some), 1)), targets)
        if "encoder" in kinds:
            weights["encoder"] = rounded(kinds.pop("encoder")[0]).tolist()
        for row, place in enumerate(some):
            last = nodes[place].length
            own = {kind: rounded(parts[row, :, :, last]) for kind, parts in kinds.items()}
            if "decoder" in own:
                own["decoder"] = own["decoder"][:, :, : last + 1]  # nothing comes after
            weights[place] = {kind: part.tolist() for kind, part in own.items()}
    return weights


def attention_of(model, source_ids, target_ids):
    """The model's weights of each kind, (batch, layers, heads, query, key)."""
    kinds = {"cross": model.attention_weights(source_ids, target_ids)}
    if isinstance(model, Transformer):
        own = model.self_attention_weights(source_ids, target_ids)
        kinds["encoder"], kinds["decoder"] = own
    return {
        kind: np.stack([ops.convert_to_numpy(layer) for layer in layers], axis=1)
        for kind, layers in kinds.items()
    }


def rounded(weights):
    """Shares as whole thousandths: what the page shows, in a third of the bytes."""
    return np.round(np.asarray(weights) * 1000).astype(int)


def packed(weights):
    """The last axis of nested lists of whole thousandths as text, a letter a weight.

    The least have the letters from "]" to "~", of one byte; the others, from U+00A1 on, have two.
    """
    if isinstance(weights[0], list):
        return [packed(part) for part in weights]
    return "".join(chr(weight + (93 if weight < 34 else 127)) for weight in weights)


def write_page(path, data):
    """Writes the page, whole or not at all."""
    page = page_of(data).encode("utf-8")
    scratch = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        scratch.write_bytes(page)
        os.replace(scratch, path)
    finally:
        scratch.unlink(missing_ok=True)


def page_of(data):
    """The HTML file; no text in `data` can end its script or be read as markup."""
    nodes = [
        {**node, "weights": {kind: packed(part) for kind, part in node["weights"].items()}}
        if "weights" in node
        else node
        for node in data["nodes"]
    ]
    encoder = data["encoder"] and packed(data["encoder"])
    data = {**data, "nodes": nodes, "encoder": encoder}
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    page = TEMPLATE.read_text(encoding="utf-8")
    scripts = [TEMPLATE.with_name(name).read_text(encoding="utf-8") for name in SCRIPTS]
    page = page.replace("{{script}}", "\n".join(scripts))
    before, after = page.split("{{data}}")  # put in last, so that nothing in it is replaced
    return f"{before}{text}{after}"


def parse_arguments():
    """Returns the command line's arguments."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("directory", metavar="RUN", help="the directory that a training wrote")
    parser.add_argument("sentence", metavar="SENTENCE", help="what to translate")
    parser.add_argument("--output", default="attention.html", metavar="FILE", help="the page")
    parser.add_argument("--beam-size", type=int, default=4, help="live hypotheses (default: 4)")
    parser.add_argument("--length-penalty", type=float, default=0.6, help="default: 0.6")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
