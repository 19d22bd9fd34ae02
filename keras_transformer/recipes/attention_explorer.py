"""One HTML file that shows where a trained translator looks, and how its search decides.

The weights and the steps are the model's and the search's own. The page needs no server and no
network.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_transformer.atomic_files import write_atomically
from keras_transformer.models import RecurrentSeq2Seq, Transformer
from keras_transformer.recipes.watched_search import (
    Node,
    WatchedBeamSearch,
    collect_ids,
)
from keras_transformer.serving import Translator
from keras_transformer.text.tokenization import TaggedTokenizer

TEMPLATE = Path(__file__).with_suffix(".html")
SCRIPTS = [f"attention_explorer{part}.js" for part in ("", "_maps", "_steps")]
ROWS_PER_CALL = 32  # hypotheses whose weights are computed at once
MAX_TOKENS = 100  # of the sentence: a page with more could not be read


def explore(translator: Translator, sentence: str) -> dict[str, Any]:
    """Translates `sentence` as `translator` does; returns what the page shows, fit for JSON."""
    model, target_tokenizer = translator.model, translator.target_tokenizer
    check_model(model)
    search: Any = WatchedBeamSearch.like(translator.search)
    source_ids, prefix_ids = checked_ids(translator, sentence), None
    if translator.target_tag is not None:
        prefix_ids = np.array([[target_tokenizer.tag_id(translator.target_tag)]])
    model.generate(np.array([source_ids]), search, translator.max_length, prefix_ids=prefix_ids)
    nodes, steps = search.hypotheses(model.bos_id)
    pieces = target_tokenizer.pieces
    texts = detokenize_nodes(target_tokenizer, nodes)
    weights = collect_weights(model, source_ids, nodes)
    found = [node._asdict() for node in nodes]
    for place, node in enumerate(found):
        (node["piece"],) = pieces([node.pop("token")])
        if node["following"] is not None:
            tokens, log_probs = zip(*node["following"], strict=True)
            shares = rounded(np.exp(log_probs)).tolist()
            node["following"] = list(zip(pieces(tokens), shares, strict=True))
            node["taken"] = find_taken(nodes, place, tokens)
            node["weights"] = weights[place]
        if node["score"] is not None:
            node["text"] = texts[place]
    best = steps[-1].finished
    return {
        "sentence": sentence,
        "translation": texts[best[0]] if best else "",
        "source": translator.source_tokenizer.pieces(source_ids),
        "special": pieces([model.bos_id, model.eos_id]),
        "beam_size": search.beam_size,
        "length_penalty": search.length_penalty,
        "encoder": weights["encoder"],
        "nodes": found,
        "steps": [step._asdict() for step in steps],
    }


def check_model(model: keras.Model) -> None:
    """Raises `ValueError` for a model that attends to nothing, or in a way that is not known."""
    if not isinstance(model, (Transformer, RecurrentSeq2Seq)):
        raise ValueError(
            "`model` must be a Transformer or a RecurrentSeq2Seq. "
            f"Received: model={type(model).__name__}"
        )
    if isinstance(model, RecurrentSeq2Seq) and not model.attention:
        raise ValueError("`model` must have attention. Received: model with attention=None")


def checked_ids(translator: Translator, sentence: str) -> list[int]:
    """The ids that the model reads, or `ValueError` when `sentence` has too few or too many."""
    tokenizer: Any = translator.source_tokenizer
    if translator.source_tag is not None:
        tokenizer = TaggedTokenizer(tokenizer, translator.source_tag)
    ids = tokenizer.tokenize([sentence])[0].numpy().tolist()
    if not 0 < len(ids) <= MAX_TOKENS:
        raise ValueError(
            f"`sentence` must have from 1 to {MAX_TOKENS} tokens. "
            f"Received: sentence={sentence!r:.80} of {len(ids)}"
        )
    return [*ids, tokenizer.eos_id] if translator.source_eos else ids


def detokenize_nodes(tokenizer: Any, nodes: Sequence[Node]) -> list[str]:
    """The text of every hypothesis."""
    ids = [collect_ids(nodes, place)[1:] for place in range(len(nodes))]
    return [text.decode("utf-8") for text in tokenizer.detokenize(ids).numpy()]


def find_taken(nodes: Sequence[Node], place: int, tokens: Sequence[int]) -> list[int | None]:
    """The hypothesis that each of `tokens` made of the one at `place`, None where dropped."""
    children = {node.token: n for n, node in enumerate(nodes) if node.parent == place}
    return [children.get(token) for token in tokens]


def collect_weights(
    model: keras.Model, source_ids: Sequence[int], nodes: Sequence[Node]
) -> dict[Any, Any]:
    """By hypothesis, the weights with which its next token is written; and the encoder's.

    Those of a hypothesis are {"cross": [layer][head][source], "decoder": [layer][head][target]}.
    A model without self-attention gives "cross" alone, and None for the encoder.
    """
    weights: dict[Any, Any] = {"encoder": None}
    places = [place for place, node in enumerate(nodes) if node.following is not None]
    for start in range(0, len(places), ROWS_PER_CALL):
        some = places[start : start + ROWS_PER_CALL]
        longest = nodes[some[-1]].length + 1  # they are in the order of their lengths
        padding = [model.pad_id] * longest
        targets = np.array([(collect_ids(nodes, place) + padding)[:longest] for place in some])
        kinds = compute_attention(model, np.tile(source_ids, (len(some), 1)), targets)
        if "encoder" in kinds:
            weights["encoder"] = rounded(kinds.pop("encoder")[0]).tolist()
        for row, place in enumerate(some):
            last = nodes[place].length
            own = {kind: rounded(parts[row, :, :, last]) for kind, parts in kinds.items()}
            if "decoder" in own:
                own["decoder"] = own["decoder"][:, :, : last + 1]  # nothing comes after
            weights[place] = {kind: part.tolist() for kind, part in own.items()}
    return weights


def compute_attention(
    model: keras.Model, source_ids: np.ndarray, target_ids: np.ndarray
) -> dict[str, np.ndarray]:
    """The model's weights of each kind, (batch, layers, heads, query, key)."""
    kinds = {"cross": model.attention_weights(source_ids, target_ids)}
    if isinstance(model, Transformer):
        own = model.self_attention_weights(source_ids, target_ids)
        kinds["encoder"], kinds["decoder"] = own
    return {
        kind: np.stack([ops.convert_to_numpy(layer) for layer in layers], axis=1)
        for kind, layers in kinds.items()
    }


def rounded(weights: Any) -> np.ndarray:
    """Shares as whole thousandths: what the page shows, in a third of the bytes."""
    return np.round(np.asarray(weights) * 1000).astype(int)


def packed(weights: Any) -> Any:
    """The last axis of nested lists of whole thousandths as text, a letter a weight.

    The least have the letters from "]" to "~", of one byte; the others, from U+00A1 on, have two.
    """
    if isinstance(weights[0], list):
        return [packed(part) for part in weights]
    return "".join(chr(weight + (93 if weight < 34 else 127)) for weight in weights)


def write_page(path: Path, data: dict[str, Any]) -> None:
    """Writes the page, whole or not at all."""
    write_atomically(path, make_page(data).encode("utf-8"))


def make_page(data: dict[str, Any]) -> str:
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
