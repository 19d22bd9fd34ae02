"""Lower case and normal forms: what Python gives, in the graph, over all of Unicode."""

import itertools
import unicodedata

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

tf = pytest.importorskip("tensorflow")
pytest.importorskip("tensorflow_text")

from keras_transformer.text import (  # noqa: E402
    CharacterTokenizer,
    SentencePieceTokenizer,
    SymbolTokenizer,
    WordPieceTokenizer,
)
from keras_transformer.text.folding import Folding  # noqa: E402

POINTS = [chr(point) for point in range(0x110000) if not 0xD800 <= point < 0xE000]
ASSIGNED = [point for point in POINTS if unicodedata.category(point) != "Cn"]
# Letters whose lower case is longer, shorter, or depends on what stands around a sigma.
HARD = "ΣςσΑα'’·\u0301\u0345:. İIıiKÅẞßⱯȺᲐა\u13a0ꭰ𐐀\u00ad\u200b\n1"
LOWER, PLAIN = Folding("identity", lowercase=True), Folding("identity", lowercase=False)
TRACED = tf.function(LOWER, [tf.TensorSpec([None], tf.string)], autograph=False)
CLASSES = [CharacterTokenizer, SentencePieceTokenizer, SymbolTokenizer, WordPieceTokenizer]
OPTIONS = {SentencePieceTokenizer: {"shrink_to_fit": True}}


def folded(folding, texts):
    return [text.decode() for text in folding(tf.constant(texts, tf.string)).numpy()]


def differences(folding, function, texts):
    """What differs, line by line; many texts in a string, as lines are words of their own."""
    strings = ["\n".join(texts[start : start + 1000]) for start in range(0, len(texts), 1000)]
    return [
        (string, ours, theirs)
        for string, found in zip(strings, folded(folding, strings), strict=True)
        if found != function(string)
        for ours, theirs in zip(found.split("\n"), function(string).split("\n"), strict=True)
        if ours != theirs
    ]


@pytest.mark.parametrize(
    "around",
    ["αΣ{}α"]
    + [
        pytest.param(a, marks=pytest.mark.slow)
        for a in ("α{}Σ", "{}", "αΣ{}", "{}Σ", "αΣ\u0301{}α")
    ],
)
def test_every_character_has_the_lower_case_of_python_beside_a_sigma_too(around):
    assert not differences(LOWER, str.lower, [around.format(point) for point in POINTS])


@settings(max_examples=100, deadline=None)
@given(st.lists(st.text(st.sampled_from(HARD), max_size=12) | st.text(max_size=12), max_size=5))
@example(["Ο ΜΕΓΑΛΟΣ ΣΚΥΛΟΣ", "", "Σ", "ΑΣ", "ΣΑ"])
@example(["Α", "Σ", "Α", ".Σ"])  # what ends one text is not before the next
@example(["İSTANBUL'DA İ", "ΑΣ'Α ΑΣ' ΑΣ'."])
def test_any_text_has_the_lower_case_of_python(texts):
    texts = [text.encode("utf-8", "replace").decode() for text in texts]
    assert folded(TRACED, texts) == [text.lower() for text in texts]


@pytest.mark.parametrize("form", ["nfc", "nfkc"])
def test_every_assigned_character_has_the_normal_form_of_python(form):
    def function(text):
        return unicodedata.normalize(form.upper(), text)

    assert not differences(Folding(form, False), function, ASSIGNED)
    both = Folding(form, lowercase=True)
    assert not differences(both, lambda text: function(text).lower(), ASSIGNED)


def test_text_is_left_as_it_is_unless_asked():
    assert not differences(PLAIN, str, POINTS)


def test_lower_case_is_that_of_no_locale():
    """TensorFlow's own operation gives "ıstanbul" where the locale is Turkish."""
    operations = {node.op for node in TRACED.get_concrete_function().graph.as_graph_def().node}
    assert "StringLower" not in operations


@pytest.mark.parametrize(
    "cls",
    [pytest.param(c, marks=() if c is CharacterTokenizer else pytest.mark.slow) for c in CLASSES],
)
def test_a_tokenizer_in_lower_case_gives_what_python_gives(cls):
    text = "Ο ΜΕΓΑΛΟΣ ΣΚΥΛΟΣ ΤΗΣ İSTANBUL ᲐᲑ"
    tokenizer = cls.train([text] * 9, vocab_size=90, lowercase=True, **OPTIONS.get(cls, {}))
    assert tokenizer.lowercase is True
    for again in (tokenizer, cls.from_bytes(tokenizer.to_bytes())):
        ids = again.tokenize([text, text.lower()])
        assert ids[0].numpy().tolist() == ids[1].numpy().tolist()
        assert tokenizer.unk_id not in ids.flat_values.numpy()
        assert again.detokenize(ids).numpy()[0].decode() == text.lower()


@pytest.mark.parametrize(
    "cls", [*CLASSES[:3], pytest.param(WordPieceTokenizer, marks=pytest.mark.slow)]
)
def test_a_tokenizer_takes_other_spellings_for_the_one_it_knows(cls):
    known, spelled = "thé fin 10", "the\u0301 ﬁn １0"
    options = {"vocab_size": 60, **OPTIONS.get(cls, {})}
    tokenizer = cls.train([known] * 9, normalization="nfkc", **options)
    ids = tokenizer.tokenize([known, spelled]).to_list()
    assert ids[0] == ids[1]
    plain = cls.train([known, spelled] * 9, **options).tokenize([known, spelled]).to_list()
    assert plain[0] != plain[1]


@pytest.mark.parametrize("cls", CLASSES)
def test_a_normal_form_and_a_case_must_be_known(cls):
    with pytest.raises(ValueError, match="`normalization` must be .* normalization='nfd'"):
        cls.train(["a text"] * 9, vocab_size=60, normalization="nfd")
    with pytest.raises(ValueError, match="`lowercase` must be .* Received: lowercase=1"):
        cls.train(["a text"] * 9, vocab_size=60, lowercase=1)


@pytest.mark.parametrize("cls", CLASSES)
def test_a_tokenizer_without_folding_has_the_file_that_it_always_had(cls):
    tokenizer = cls.train(["a text"] * 9, vocab_size=60, **OPTIONS.get(cls, {}))
    header = tokenizer.to_bytes().partition(b"\n")[0]
    assert b"lowercase" not in header
    assert b"normalization" not in header


@pytest.mark.parametrize(
    ("form", "lowercase"),
    [
        pytest.param(*case, marks=() if case == ("nfkc", True) else pytest.mark.slow)
        for case in itertools.product(["nfkc", "identity", "nfc"], [True, False])
    ],
)
def test_offsets_are_those_of_the_text_as_it_was_given(form, lowercase):
    letters = "ab ıiI\u0307\u0301éςσΑΣKkßẞⱥ１1½⁄2ﬁf…."
    tokenizer = CharacterTokenizer(dict.fromkeys(letters), form, lowercase)
    text = "AΑΣ.İK ẞb ⱥȺé e\u0301 １½ﬁ…"
    ids, starts, ends = tokenizer.tokenize_with_offsets([text, "", "É"])
    assert ids.to_list() == tokenizer.tokenize([text, "", "É"]).to_list()
    spans = list(zip(starts[0].numpy().tolist(), ends[0].numpy().tolist(), strict=True))
    flat = [offset for span in spans for offset in span]
    assert flat == sorted(flat)
    read = [text.encode()[start:end].decode() for start, end in spans]
    assert "".join(read) == text
    assert starts[1].shape == [0]
    assert (starts[2].numpy()[0], ends[2].numpy()[-1]) == (0, 2)


def test_of_what_folding_lengthens_or_shortens_each_piece_has_its_own_bytes():
    tokenizer = CharacterTokenizer("i\u0307kⱥß", lowercase=True)
    text = "İKȺẞi"
    _, starts, ends = tokenizer.tokenize_with_offsets([text])
    spans = zip(starts[0].numpy(), ends[0].numpy(), strict=True)
    read = [text.encode()[start:end].decode() for start, end in spans]
    assert read == ["", "İ", "K", "Ⱥ", "ẞ", "i"]
