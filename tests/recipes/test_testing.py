"""The test of a run: how its export reads texts, and the picture of attention.

What it leaves is tested with the training.
"""

import json
from types import SimpleNamespace

import numpy as np
import pytest

from keras_transformer import Transformer
from keras_transformer.recipes import testing
from keras_transformer.recipes.corpus import Corpus
from keras_transformer.recipes.graph_texts import GraphTexts
from keras_transformer.recipes.settings import Settings
from keras_transformer.recipes.testing import reads_single_sentences
from keras_transformer.text import SentencePieceTokenizer


@pytest.mark.parametrize(
    ("sources", "given", "split"),
    [
        (["A dog runs."] * 20, None, True),
        (["A dog. It runs."] + ["A dog runs."] * 19, None, True),
        (["A dog. It runs."] * 4 + ["A dog runs."] * 16, None, False),
        (["A dog. It runs."] * 20, True, True),
        (["A dog runs."] * 20, False, False),
    ],
)
def test_the_export_divides_texts_where_the_training_had_single_sentences(
    sources, given, split, capsys
):
    settings = Settings.from_preset(train=("a", "b"), split_sentences=given)
    assert reads_single_sentences(settings, [(source, "") for source in sources]) is split
    shown = f"the export reads {'each sentence on its own' if split else 'texts whole'}"
    assert (shown in capsys.readouterr().out) == (given is None)


def test_dates_are_read_whole():
    assert reads_single_sentences(Settings.from_preset(), [("20. November", "")]) is False


def test_the_picture_of_attention_has_the_tags_and_the_ends_of_an_import(tmp_path, monkeypatch):
    """Its model reads a tag and no end, and writes another tag first."""
    model = SentencePieceTokenizer.train(["a man rides"] * 5, vocab_size=20).model
    tokenizer = SentencePieceTokenizer(model, tags=["<2de>", "<2fr>"])
    for side in ("source", "target"):
        tokenizer.save(tmp_path / f"{side}.tokenizer")
    options = {"source_tag": "<2de>", "target_tag": "<2fr>", "source_eos": False}
    (tmp_path / "imported.json").write_text(json.dumps({"options": options}), encoding="utf-8")
    settings = Settings.from_preset(train=("a",), model="imported", start_from=str(tmp_path))
    texts = GraphTexts(tmp_path, settings, Corpus([], [], []))
    transformer = Transformer(tokenizer.vocab_size, num_layers=1, d_model=8, num_heads=2, d_ff=8)
    drawn = []

    def draw(weights, *pieces, **_):
        drawn.append((weights, *pieces))
        return SimpleNamespace(savefig=lambda *_, **__: None)

    monkeypatch.setattr(testing.plots, "attention_heads", draw)
    directory = SimpleNamespace(path=tmp_path)
    outputs = {"sources": ["a man"], "outputs": ["rides"]}
    testing.draw_attention(directory, settings, texts, transformer, **outputs)
    ((weights, written, read),) = drawn
    source, target = (tokenizer.tokenize([text]).to_list()[0] for text in ("a man", "rides"))
    first, second = map(tokenizer.tag_id, tokenizer.tags)
    assert read == tokenizer.pieces([first, *source])
    assert written == tokenizer.pieces([second, *target, tokenizer.eos_id])
    given = [[first, *source]], [[tokenizer.bos_id, second, *target]]
    expected = transformer.attention_weights(*map(np.array, given))[-1][0]
    np.testing.assert_array_equal(weights, expected)
