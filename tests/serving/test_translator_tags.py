"""Tags: what a translator reads and writes is what its model gives for ids made by hand."""

import functools
import json
import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_transformer import BeamSearch, Transformer
from keras_transformer.serving import Translator, load
from keras_transformer.serving.model_card import model_card
from keras_transformer.serving.server_files import warm_up_requests
from keras_transformer.text import CharacterTokenizer, SentencePieceTokenizer
from tests.text.sentencepiece_models import MODEL, shuffled_vocabulary

TEXTS = ["a man rides a horse", "", "  é 日"]
TAGS = [">>deu<<", ">>fra<<"]
LONGEST = 6
SEARCH = BeamSearch(beam_size=2, length_penalty=0.6)


@pytest.fixture(autouse=True)
def run_eagerly():
    """Runs every TensorFlow function as Python: each translator here is called a few times."""
    tokenizer(), model()  # trained and built as ever
    tf.config.run_functions_eagerly(True)
    yield
    tf.config.run_functions_eagerly(False)


@pytest.fixture
def run_graphs(run_eagerly):
    """Traces TensorFlow functions all the same, as an export must."""
    tf.config.run_functions_eagerly(False)


@functools.cache
def tokenizer():
    """Ids of a vocabulary of others, none of the special ones where ours are."""
    return SentencePieceTokenizer(
        MODEL, vocabulary=shuffled_vocabulary(MODEL), tags=TAGS, leading_tags=True
    )


@functools.cache
def model():
    own = tokenizer()
    keras.utils.set_random_seed(3)
    made = Transformer(
        own.vocab_size, num_layers=1, d_model=16, num_heads=2, d_ff=32, dropout=0.0,
        pad_id=own.pad_id, bos_id=own.bos_id, eos_id=own.eos_id,
    )  # fmt: skip
    made.build(None)
    made.set_weights([3 * weight for weight in made.get_weights()])  # so that inputs matter
    return made


@functools.cache
def translator(source_tag=None, target_tag=None, **options):
    options = {"max_length": LONGEST, "max_source_length": 16, **options}
    return Translator(
        model(), tokenizer(), search=SEARCH, jit_compile=False, max_batch_tokens=64,
        source_tag=source_tag, target_tag=target_tag, **options,
    )  # fmt: skip


@functools.cache
def by_hand(text, source_tag=None, target_tag=None):
    """(text, score) of each hypothesis of the model for ids that are put together here."""
    own = tokenizer()
    ids = [own.tag_id(tag) for tag in [source_tag] if tag]
    ids += own.without_leading_tags().tokenize([text]).to_list()[0]
    prefix = [[own.tag_id(target_tag)]] if target_tag else None
    found = model().generate(
        np.array([[*ids, own.eos_id]]), SEARCH, max_length=LONGEST, prefix_ids=prefix
    )
    if target_tag:
        assert set(found.ids[0, :, 0].numpy()) == {own.tag_id(target_tag)}
    return list(zip(own.detokenize(found.ids[0]).numpy(), found.scores[0].numpy(), strict=True))


def assert_same(found, expected):
    assert [text for text, _ in found] == [text.decode() for text, _ in expected]
    np.testing.assert_allclose([s for _, s in found], [s for _, s in expected], rtol=1e-4)


PAIRS = [(None, None), (">>fra<<", None), (None, ">>deu<<"), (">>fra<<", ">>deu<<")]
CASES = [pytest.param(*case, marks=() if all(case) else pytest.mark.slow) for case in PAIRS]


@pytest.mark.slow
@pytest.mark.parametrize(("source_tag", "target_tag"), PAIRS)
def test_the_model_reads_and_writes_the_tags(source_tag, target_tag):
    own = translator(source_tag, target_tag)
    found = own.n_best(TEXTS)
    for text, hypotheses in zip(TEXTS, found, strict=True):
        if text:
            assert_same(hypotheses, by_hand(text, source_tag, target_tag))
    assert own(TEXTS) == [hypotheses[0][0] for hypotheses in found]
    assert found[1] == [("", 0.0)] * 2
    for row, hypotheses in zip(own.translate(TEXTS), found, strict=True):
        assert_same(row, [(text.encode(), score) for text, score in hypotheses])


@pytest.mark.slow
def test_tags_change_what_is_written():
    assert len({by_hand(TEXTS[0], *pair)[0][0] for pair in PAIRS}) > 2


@pytest.mark.parametrize(
    "default", [pytest.param((None, None), marks=pytest.mark.slow), (">>deu<<", ">>fra<<")]
)
def test_a_call_may_ask_for_other_tags(default):
    tags = {"source_tag": ">>fra<<", "target_tag": ">>deu<<"}
    (row,) = translator(*default).translate(TEXTS[:1], **tags)
    assert_same(row, by_hand(TEXTS[0], ">>fra<<", ">>deu<<"))


@pytest.mark.slow
def test_a_tag_of_the_text_itself_comes_first():
    own = translator(">>deu<<")
    texts = [">>fra<< a man", "a man", ">>fra<<", ">>fra<<\n"]
    found = own.translate(texts, source_tag=">>deu<<")
    assert_same(found[0], by_hand(" a man", ">>fra<<"))
    assert_same(found[1], by_hand("a man", ">>deu<<"))
    assert found[2][0] == found[3][0] == ("", 0.0)
    assert_same(own.n_best(texts[:1])[0], by_hand(" a man", ">>fra<<"))


@pytest.mark.slow
def test_every_part_of_a_divided_text_has_the_tag():
    own = translator(">>fra<<", ">>deu<<")
    words = "a man rides a brown horse two dogs play in the snow! she said a man (ever)"
    segments = own.string_functions.splitter.split(tf.constant([words]), tf.constant([False]))
    parts = [text.decode() for text in tokenizer().detokenize(segments.tokens).numpy()]
    assert len(parts) > 1
    assert segments.tokens.bounding_shape()[1] <= 16 - 2  # room for the tag and the end
    expected = [by_hand(part, ">>fra<<", ">>deu<<") for part in parts]
    for rank, (text, score) in enumerate(own.n_best([words])[0]):
        assert text == " ".join(part[rank][0].decode() for part in expected)
        np.testing.assert_allclose(score, sum(part[rank][1] for part in expected), rtol=1e-4)
    plain = translator()
    (tagged,) = plain.n_best([f">>fra<< {words}"])
    assert_same(tagged, [(t.encode(), s) for t, s in translator(">>fra<<").n_best([words])[0]])
    sentences = "a man. two dogs."
    (row,) = plain.translate([f">>fra<<{sentences}"], split_sentences=True)
    expected = [by_hand(part, ">>fra<<")[0][0].decode() for part in ("a man.", "two dogs.")]
    assert row[0][0] == " ".join(expected)


@pytest.mark.parametrize(("source_tag", "target_tag"), CASES)
def test_a_score_is_that_of_the_search(source_tag, target_tag):
    own, pieces = translator(source_tag, target_tag), tokenizer()
    source, target = "a man rides", "two dogs play"
    ids = pieces.without_leading_tags().tokenize([source, target]).to_list()
    rows = [
        [*([pieces.tag_id(tag)] if tag else []), *row, pieces.eos_id]
        for tag, row in zip((source_tag, target_tag), ids, strict=True)
    ]
    expected = float(model().score(*(np.array([row]) for row in rows)).log_prob[0])
    ((log_prob, num_tokens),) = own.score([source], [target])
    np.testing.assert_allclose(log_prob, expected, rtol=1e-5)
    assert num_tokens == len(rows[1])
    with pytest.warns(UserWarning, match="too long"):
        assert own.score(["a man " * 20], [target])[0][0] == -1e9


@pytest.mark.slow
def test_a_prefix_comes_behind_the_tag():
    own, pieces = translator(None, ">>deu<<"), tokenizer()
    prefix = [pieces.tag_id(">>deu<<"), *pieces.tokenize(["two dogs"]).to_list()[0]]
    ids = [[*pieces.tokenize(["a man"]).to_list()[0], pieces.eos_id]]
    found = model().generate(np.array(ids), SEARCH, max_length=LONGEST, prefix_ids=[prefix])
    expected = list(
        zip(pieces.detokenize(found.ids[0]).numpy(), found.scores[0].numpy(), strict=True)
    )
    (row,) = own.translate(["a man"], prefixes=["two dogs"])
    assert_same(row, expected)
    assert row[0][0].startswith("two dogs")
    with pytest.warns(UserWarning, match="1 text"):  # the tag takes one of three tokens
        (row,) = own.translate(["a man"], prefixes=["two dogs"], max_length=len(prefix) - 1)
    assert row == [("", np.float32(-1e9))]
    own.translate(["a man"], prefixes=["two dogs"], max_length=len(prefix))


@pytest.mark.slow
@pytest.mark.parametrize(("source_tag", "target_tag"), PAIRS)
def test_pieces_of_the_text_are_aligned_and_the_tags_are_not(source_tag, target_tag):
    own = translator(source_tag, target_tag)
    for text, expected, (written, pairs) in zip(TEXTS, own(TEXTS), own.align(TEXTS), strict=True):
        data = text.encode()
        assert written == expected
        places = [pair[0] for pair in pairs]
        assert b"".join(written.encode()[place] for place in places).replace(b" ", b"") == (
            written.encode().replace(b" ", b"")
        )
        assert all(0 <= source.start <= source.stop <= len(data) for _, source in pairs)
        assert not text or pairs


def test_the_bytes_of_an_alignment_count_from_the_beginning_of_the_text():
    text = "a man rides a horse two dogs play in the snow a horse"
    ((translation, plain),) = translator(">>fra<<").align([text])
    ((again, pairs),) = translator().align([f">>fra<<{text}"])
    assert again == translation
    size = len(">>fra<<")
    assert pairs == [(t, slice(s.start + size, s.stop + size)) for t, s in plain]
    assert {s.start for _, s in plain} != {0}


@pytest.mark.slow
def test_a_piece_is_read_from_where_its_model_attends_most():
    own, pieces, text = translator(">>fra<<", ">>deu<<"), tokenizer(), "a man rides a horse"
    ids, starts, ends = pieces.tokenize_with_offsets([text])
    source_ids = [[pieces.tag_id(">>fra<<"), *ids.to_list()[0], pieces.eos_id]]
    search = BeamSearch(beam_size=2, length_penalty=0.6, return_alignments=True)
    found = model().generate(
        np.array(source_ids), search, max_length=LONGEST, prefix_ids=[[pieces.tag_id(">>deu<<")]]
    )
    written = [i for i in found.ids[0, 0].numpy() if i not in (pieces.eos_id, pieces.pad_id)]
    places = found.alignments[0, 0].numpy()[1 : len(written), 1:-1].argmax(axis=-1)
    ((_, pairs),) = own.align([text])
    expected = [(int(starts[0][place]), int(ends[0][place])) for place in places]
    shown = [text.encode()[start:end].strip() for start, end in expected]
    assert [text.encode()[source] for _, source in pairs] == shown


def test_encode_reads_the_tag():
    own, pieces = translator(">>fra<<"), tokenizer()
    ids = [[pieces.tag_id(">>fra<<"), *pieces.tokenize(["a man"]).to_list()[0], pieces.eos_id]]
    expected = model().encode(np.array(ids)).numpy().mean(axis=1)
    np.testing.assert_allclose(own.encode(["a man"]), expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(
        translator().encode([">>fra<<a man"]), expected, rtol=1e-4, atol=1e-5
    )


def call(function, texts, **options):
    defaults = {
        "length_penalty": -1.0,
        "max_length": 0,
        "num_hypotheses": 0,
        "prefix": "",
        "split_sentences": -1,
    }
    inputs = {name: tf.fill([len(texts)], value) for name, value in defaults.items()}
    inputs |= {name: tf.constant(value) for name, value in options.items()}
    return function(text=tf.constant(texts), **inputs)


def test_each_text_of_a_request_has_its_own_tags_and_an_unknown_one_refuses_it():
    function = translator(">>deu<<").string_functions.translate_with_options
    tags = [">>fra<<", "", ">>xxx<<", ">>fra<<"]
    answer = call(function, ["a man"] * 4, source_tag=tags, target_tag=["", ">>fra<<", "", "a man"])
    assert answer["truncated"].numpy().tolist() == [False, False, True, True]
    rows = list(zip(answer["translations"].numpy(), answer["scores"].numpy(), strict=True))
    decoded = [[(text.decode(), score) for text, score in zip(*row, strict=True)] for row in rows]
    assert_same(decoded[0], by_hand("a man", ">>fra<<"))
    assert_same(decoded[1], by_hand("a man", ">>deu<<", ">>fra<<"))
    assert decoded[2] == decoded[3] == [("", np.float32(-1e9))] * 2


def test_only_vocabularies_with_tags_make_them_inputs():
    letters = CharacterTokenizer("abc")
    made = Transformer(letters.vocab_size, num_layers=1, d_model=8, num_heads=2, d_ff=16)
    plain = Translator(made, letters, max_length=4, jit_compile=False)
    names = ["text", "length_penalty", "max_length", "num_hypotheses", "prefix", "split_sentences"]
    for own, expected in ((plain, names), (translator(), [*names, "source_tag", "target_tag"])):
        function = own.string_functions.translate_with_options
        assert [spec.name for spec in function.input_signature] == expected
        requests = dict(warm_up_requests(own))
        assert set(requests["translate"]) == set(expected)
    assert plain.translate(["a"])[0]


@pytest.mark.parametrize("name", ["source_tag", "target_tag"])
def test_an_unknown_tag_raises_with_those_there_are(name):
    message = rf"`{name}`: a tag must be one of .* >>deu<<, >>fra<<\. Received: '>>xxx<<'"
    with pytest.raises(ValueError, match=message):
        Translator(model(), tokenizer(), **{name: ">>xxx<<"})
    with pytest.raises(ValueError, match=message):
        translator().translate(["a"], **{name: ">>xxx<<"})
    with pytest.raises(ValueError, match=rf"`{name}`: a tag must be"):
        Translator(model(), tokenizer(), **{name: 3})


def test_the_card_says_the_tags():
    card = model_card(translator(">>fra<<", ">>deu<<"), {}, [])
    assert (card["source_tag"], card["target_tag"]) == (">>fra<<", ">>deu<<")
    assert card["vocabulary"]["source"]["tags"] == TAGS
    said = " ".join(card["texts"]["input"])
    for part in ("tag >>fra<< is put", "may begin with a tag", "that of the tag >>deu<<"):
        assert part in said


CLEAN_PROCESS = """
import json, sys
import tensorflow as tf
import tensorflow_text
serve = tf.saved_model.load(sys.argv[1]).signatures
texts = tf.constant(json.loads(sys.argv[2]))
found = {"align": serve["align"](text=texts), "best": serve["serving_default"](text=texts)}
print(json.dumps({
    f"{name}/{key}": repr(value.numpy().tolist())
    for name, answer in found.items() for key, value in answer.items() if "score" not in key
}))
assert "keras_transformer" not in sys.modules
"""


def answers(serve, texts):
    """What `CLEAN_PROCESS` prints."""
    texts = tf.constant(texts)
    found = {"align": serve["align"](text=texts), "best": serve["serving_default"](text=texts)}
    return {
        f"{name}/{key}": repr(value.numpy().tolist())
        for name, answer in found.items()
        for key, value in answer.items()
        if "score" not in key
    }


@pytest.mark.slow
def test_an_export_gives_the_same_in_a_clean_process(run_graphs, tmp_path):
    own = translator(">>fra<<", ">>deu<<")
    own.export(tmp_path / "1", verbose=False)
    texts = [*TEXTS[:3], ">>deu<< a man", "a man " * 30, ">>xxx<< dogs"]
    command = [sys.executable, "-c", CLEAN_PROCESS, str(tmp_path / "1"), json.dumps(texts)]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", timeout=600)
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found == answers(own.string_functions.signatures, texts)


@pytest.mark.slow
def test_an_export_takes_the_tags(run_graphs, tmp_path, export_only):
    export_only("translate_tagged")
    own = translator(">>fra<<", ">>deu<<")
    own.export(tmp_path / "1", verbose=False)
    function = load(tmp_path / "1").signatures["translate_tagged"]
    tags = {"source_tag": ["", ">>deu<<"], "target_tag": ["", ">>fra<<"]}
    answer = call(function, ["a man", "two dogs"], **tags)
    here = call(own.string_functions.translate_tagged, ["a man", "two dogs"], **tags)
    assert answer["translations"].numpy().tolist() == here["translations"].numpy().tolist()
    rows = answer["translations"].numpy()
    assert rows[0][0] == by_hand("a man", ">>fra<<", ">>deu<<")[0][0]
    assert rows[1][0] == by_hand("two dogs", ">>deu<<", ">>fra<<")[0][0]
