"""The data and the page of the explorer: the model's weights, the search's own steps."""

import functools
import itertools
import json
import re
from types import SimpleNamespace

import keras
import numpy as np
import pytest

from keras_transformer import (
    BeamSearch,
    GreedySearch,
    RecurrentSeq2Seq,
    Sampling,
    Transformer,
)
from keras_transformer.recipes.attention_explorer import explore, make_page, write_page
from keras_transformer.recipes.watched_search import WatchedBeamSearch, collect_ids
from keras_transformer.serving import Translator
from keras_transformer.text import SentencePieceTokenizer
from tests.backends import randomise
from tests.recipes.explored_models import (
    BEAM,
    HEADS,
    LAYERS,
    LONGEST,
    SENTENCE,
    TOKENIZER,
    explored,
    transformer,
)


def recurrent(**options):
    model = RecurrentSeq2Seq(TOKENIZER.vocab_size, d_model=10, **options)
    model.build()
    return randomise(model, scale=0.5)


@functools.cache
def usual():
    """The data of one model and sentence, for those who only read it."""
    return explored()


def source_ids(sentence=SENTENCE):
    return np.array([[*TOKENIZER.tokenize([sentence])[0].numpy(), TOKENIZER.eos_id]])


def path_to(data, place):
    return [] if place < 0 else [*path_to(data, data["nodes"][place]["parent"]), place]


OPTIONS = [{"beam_size": 4}, {"beam_size": 1}, {"length_penalty": 2.0}, {"early_stopping": True}]
QUICK = [(transformer, OPTIONS[2]), (recurrent, OPTIONS[3])]


@pytest.mark.parametrize(
    ("make", "options"),
    [
        pytest.param(*case, marks=() if case in QUICK else pytest.mark.slow)
        for case in itertools.product([transformer, recurrent], OPTIONS)
    ],
)
def test_the_finished_hypotheses_are_those_that_generate_finds(make, options):
    model = make()
    options = {"beam_size": BEAM, **options}
    expected = model.generate(source_ids(), BeamSearch(**options), max_length=LONGEST)
    search = WatchedBeamSearch(**options)
    model.generate(source_ids(), search, max_length=LONGEST)
    nodes, steps = search.hypotheses(model.bos_id)
    lengths = np.asarray(expected.lengths)[0]
    found = [place for place in steps[-1].finished if nodes[place].score is not None]
    assert len(found) == (lengths > 0).sum() >= 1
    for place, ids, length, score in zip(
        found, np.asarray(expected.ids)[0], lengths, np.asarray(expected.scores)[0], strict=False
    ):
        assert collect_ids(nodes, place)[1:] == ids[:length].tolist()
        assert nodes[place].score == pytest.approx(score, abs=1e-5)
        normaliser = ((5 + length) / 6) ** search.length_penalty
        assert nodes[place].total / normaliser == pytest.approx(score, abs=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_every_hypothesis_has_the_log_probability_that_score_gives(seed):
    model, search = transformer(seed), WatchedBeamSearch(BEAM)
    model.generate(source_ids(), search)
    nodes, steps = search.hypotheses(model.bos_id)
    assert max(node.length for node in nodes) > 2
    for step in steps[1:4]:
        for place in (*step.live, *step.finished):
            rescored = model.score(source_ids(), np.array([collect_ids(nodes, place)[1:]]))
            assert nodes[place].total == pytest.approx(float(rescored.log_prob[0]), abs=1e-4)


def test_live_hypotheses_are_the_likeliest_extensions_that_have_not_ended():
    data = usual()
    eos = data["special"][1]
    for before, after in zip(data["steps"][:-1], data["steps"][1:], strict=True):
        followers = [
            (data["nodes"][place]["total"] + np.log(share / 1000), heir)
            for place in before["live"]
            for (piece, share), heir in zip(
                data["nodes"][place]["following"], data["nodes"][place]["taken"], strict=True
            )
            if share > 100 and piece != eos
        ]
        totals = [data["nodes"][place]["total"] for place in after["live"]]
        if not totals:  # at the largest length all have ended
            assert after is data["steps"][-1]
            continue
        assert totals == sorted(totals, reverse=True)
        survivors = {heir for _, heir in followers if heir is not None}
        assert survivors <= set(after["live"])
        dropped = [total for total, heir in followers if heir is None]
        if dropped and len(totals) == BEAM:
            assert max(dropped) <= min(totals) + 0.01  # shares are rounded


def test_survivors_go_on_and_what_is_taken_is_in_the_next_step():
    data = usual()
    heirs = 0
    for before, after in zip(data["steps"][:-1], data["steps"][1:], strict=True):
        taken = [h for place in before["live"] for h in data["nodes"][place]["taken"]]
        taken = {heir for heir in taken if heir is not None}
        new = set(after["finished"]) - set(before["finished"])
        assert taken == set(after["live"]) | new
        heirs += len(taken)
        for heir in taken:
            assert data["nodes"][heir]["parent"] in before["live"]
    assert heirs == len(data["nodes"]) - 1 > BEAM
    assert not any(data["nodes"][place]["following"] for place in data["steps"][-1]["live"])


def test_the_likeliest_next_tokens_are_the_models_own():
    model, data = transformer(), usual()
    targets = np.array([[model.bos_id]])
    logits = np.array(model((source_ids(), targets))[0, -1], "float64")
    shares = np.exp(logits - logits.max())
    shares = shares / shares.sum()
    shares[[model.pad_id, model.bos_id]] = 0.0
    best = np.argsort(-shares)[:6]
    following = data["nodes"][0]["following"][:6]
    assert [piece for piece, _ in following] == TOKENIZER.pieces(best)
    np.testing.assert_allclose([share for _, share in following], 1000 * shares[best], atol=0.6)


@pytest.mark.parametrize(
    "options",
    [{}, *(pytest.param(o, marks=pytest.mark.slow) for o in ({"norm_first": True}, {"window": 2}))],
)
def test_the_weights_are_the_models_for_each_word_of_the_translation(options):
    model = transformer(**options)
    data = explored(model)
    best = data["steps"][-1]["finished"][0]
    path = path_to(data, best)
    search = WatchedBeamSearch(BEAM)
    model.generate(source_ids(), search)
    nodes, _ = search.hypotheses(model.bos_id)
    inputs = np.array([collect_ids(nodes, best)[:-1]])
    of_source, of_target = model.self_attention_weights(source_ids(), inputs)
    cross = model.attention_weights(source_ids(), inputs)
    for layer in range(LAYERS):
        encoder = np.array(data["encoder"][layer])
        assert encoder.shape == (HEADS, source_ids().shape[1], source_ids().shape[1])
        np.testing.assert_allclose(encoder / 1000, of_source[layer][0], atol=6e-4)
        for position, place in enumerate(path[:-1]):
            weights = data["nodes"][place]["weights"]
            row = np.array(weights["cross"][layer]) / 1000
            np.testing.assert_allclose(row, cross[layer][0, :, position], atol=6e-4)
            row = np.array(weights["decoder"][layer]) / 1000
            assert row.shape == (HEADS, position + 1)
            expected = of_target[layer][0, :, position, : position + 1]
            np.testing.assert_allclose(row, expected, atol=6e-4)


def test_every_row_of_every_hypothesis_that_went_on_sums_to_1():
    data = usual()
    went_on = [node for node in data["nodes"] if node["following"]]
    assert len(went_on) > len(data["steps"])
    for node in went_on:
        for rows in node["weights"].values():
            sums = np.array(rows).sum(axis=-1)
            assert sums.shape == (LAYERS, HEADS)
            np.testing.assert_allclose(sums, 1000, atol=12)  # each is rounded
    np.testing.assert_allclose(np.sum(data["encoder"], axis=-1), 1000, atol=12)


@pytest.mark.slow
@pytest.mark.parametrize("attention", ["dot", "additive"])
def test_a_recurrent_model_shows_its_attention_to_the_source(attention):
    data = explored(recurrent(attention=attention))
    assert data["encoder"] is None
    weights = np.array(data["nodes"][0]["weights"]["cross"])
    assert weights.shape == (1, 1, len(SENTENCE) + 1)
    assert list(data["nodes"][0]["weights"]) == ["cross"]


@pytest.mark.parametrize(
    ("model", "sentence", "message"),
    [
        (transformer, "", "`sentence` must have from 1 to 100 tokens. Received: sentence='' of 0"),
        (transformer, "a" * 101, "Received: sentence='aaa.* of 101"),
        (lambda: recurrent(attention=None), "a", "Received: model with attention=None"),
    ],
)
def test_what_cannot_be_shown_is_refused(model, sentence, message):
    with pytest.raises(ValueError, match=message):
        explored(model(), sentence)


def test_a_model_of_another_kind_is_refused():
    with pytest.raises(ValueError, match="Received: model=Sequential"):
        explore(SimpleNamespace(model=keras.Sequential(), target_tokenizer=None), "a")


def test_a_sample_has_no_steps_to_show():
    with pytest.raises(ValueError, match="a BeamSearch or a GreedySearch. Received: search=Samp"):
        WatchedBeamSearch.like(Sampling())


TAGS = ["<2de>", "<2fr>"]


@pytest.mark.parametrize(
    ("search", "tags"),
    [
        (
            BeamSearch(3, 1.0, length_formula="power", suppressed_ids=[9], min_length=3),
            {"source_tag": "<2de>", "target_tag": "<2fr>"},
        ),
        (
            GreedySearch(no_repeat_ngram_size=1),
            {"source_tag": "<2fr>", "target_tag": "<2de>", "source_eos": False},
        ),
    ],
)
def test_the_translation_is_the_translators_with_its_tags_its_ends_and_its_search(search, tags):
    texts = ["a man rides", "a horse"]
    pieces = SentencePieceTokenizer.train(texts * 5, vocab_size=24).model
    tokenizer = SentencePieceTokenizer(pieces, tags=TAGS)
    sizes = {"num_layers": 1, "d_model": 12, "num_heads": 2, "d_ff": 13}
    model = Transformer(tokenizer.vocab_size, **sizes)
    model.build()
    randomise(model, scale=0.5)
    translator = Translator(
        model, tokenizer, search=search, max_length=6, jit_compile=False, **tags
    )
    for text in texts:
        data = explore(translator, text)
        ((best, score),) = translator.translate([text], num_hypotheses=1)[0]
        assert data["translation"] == best
        first, *rest = data["source"]
        assert first == tags["source_tag"]
        assert (rest[-1] == "</s>") == tags.get("source_eos", True)
        node = data["nodes"][data["steps"][-1]["finished"][0]]
        assert node["score"] == pytest.approx(score, abs=1e-4)
        assert data["nodes"][1]["piece"] == tags["target_tag"]
        assert len(data["nodes"][0]["weights"]["cross"][0][0]) == len(data["source"])


HOSTILE = "</script><script>alert(1)</script><!-- & {{script}} {{data}} \u2028 'א' \"\\u003c\""


def unpacked(data):
    """The data that a page was made of."""

    def weights(part):
        if not isinstance(part, str):
            return [weights(each) for each in part]
        return [ord(letter) - (93 if letter <= "~" else 127) for letter in part]

    for node in data["nodes"]:
        if "weights" in node:
            node["weights"] = {kind: weights(part) for kind, part in node["weights"].items()}
    return {**data, "encoder": weights(data["encoder"])}


def test_every_weight_from_0_to_1_can_be_packed():
    data = {**usual(), "encoder": [[list(range(1001))]]}
    (held,) = re.findall(r'id="data">(.*?)</script>', make_page(data))
    assert unpacked(json.loads(held)) == json.loads(json.dumps(data))


def test_hostile_text_stays_text():
    data = {**usual(), "sentence": HOSTILE, "source": [HOSTILE, "<b>"]}
    page = make_page(data)
    assert page.count("<script") == page.count("</script>") == 2
    assert "<!--" not in page
    (held,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page)
    assert unpacked(json.loads(held)) == json.loads(json.dumps(data))


def test_a_page_takes_about_one_byte_a_weight():
    data, weights = usual(), np.full((LAYERS, HEADS, 1000), 1)
    node = {**data["nodes"][0], "weights": {"cross": weights.tolist()}}
    small, large = (
        len(make_page({**data, "nodes": [first, *data["nodes"][1:]]}).encode())
        for first in (data["nodes"][0], node)
    )
    assert large - small < 1.05 * weights.size


def test_an_output_that_cannot_be_written_leaves_the_page_that_is_there(tmp_path):
    file = tmp_path / "page.html"
    write_page(file, usual())
    before = file.read_bytes()
    assert before.decode("utf-8") == make_page(usual())
    with pytest.raises(ValueError, match="surrogates not allowed"):
        write_page(file, {**usual(), "sentence": "a\ud800"})
    assert file.read_bytes() == before
    assert list(tmp_path.iterdir()) == [file]


def test_the_page_names_nothing_outside_of_itself():
    page = make_page(usual())
    assert "{{" not in page
    assert not re.search(r"https?:|//\w|\bsrc=|@import|url\(|fetch\(|XMLHttp|import\(", page)
    assert re.findall(r'href="([^"]*)"', page) == ["data:,"]  # the icon: none
