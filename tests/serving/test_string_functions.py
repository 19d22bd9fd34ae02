"""What a request may ask for: options of its own, alignments, vectors."""

import numpy as np
import pytest
import tensorflow as tf

from keras_transformer import GreedySearch, Transformer
from keras_transformer.serving import Translator
from keras_transformer.text import CharacterTokenizer, SentencePieceTokenizer
from tests.backends import randomise
from tests.serving.trained import OPTIONS, log_prob_of, translator, words


def request(texts, penalty=-1.0, longest=0, count=0, prefixes=None, split=-1):
    """The answer of the signature `translate`; an option is one value or one for each text."""
    size = len(texts)
    options = (
        tf.fill([size], np.float32(penalty)) if np.isscalar(penalty) else tf.constant(penalty),
        tf.fill([size], longest) if np.isscalar(longest) else tf.constant(longest),
        tf.fill([size], count) if np.isscalar(count) else tf.constant(count),
    )
    answer = translator().string_functions.translate(
        tf.constant(texts, tf.string, [size]),
        *options,
        tf.constant(prefixes or [""] * size, tf.string, [size]),
        tf.fill([size], split) if np.isscalar(split) else tf.constant(split),
    )
    return {name: column.numpy() for name, column in answer.items()}


@pytest.mark.slow
def test_without_options_it_answers_as_n_best_does():
    texts = [*words(7, seed=31), "", "a" * 40]
    ours, theirs = translator().translate(texts), translator().n_best(texts)
    for mine, other in zip(ours, theirs, strict=True):
        assert [text for text, _ in mine] == [text for text, _ in other]
        np.testing.assert_allclose([s for _, s in mine], [s for _, s in other], atol=1e-4)


def test_each_text_has_the_length_penalty_it_asks_for():
    texts = ["feed", "cab", "gabe"]
    together = request(texts, penalty=[0.0, 2.0, np.nan])["scores"]
    for text, penalty, scores in zip(texts, (0.0, 2.0, 0.6), together, strict=True):
        for (hypothesis, score), in_batch in zip(
            translator().translate([text], length_penalty=penalty)[0], scores, strict=True
        ):
            np.testing.assert_allclose(score, in_batch, rtol=1e-4)
            log_prob, count = log_prob_of(text, hypothesis)
            expected = log_prob / ((5 + count) / 6) ** penalty
            # A log-probability near 0 is the difference of numbers about 10, whose spacing is 1e-6.
            np.testing.assert_allclose(score, expected, rtol=1e-4, atol=1e-6)


def test_a_penalty_without_end_is_the_largest_one():
    endless, largest = (request(["abc"], penalty=value)["scores"] for value in (np.inf, 10.0))
    np.testing.assert_array_equal(endless, largest)
    assert np.all(np.isfinite(endless))


def test_each_text_has_the_length_it_asks_for():
    answer = request(["abcdef"] * 3, longest=[2, 0, 100], count=1)["translations"]
    assert [len(text) for text in answer[:, 0]] == [2, 6, 6]
    assert translator().translate(["abcdef"], max_length=2)[0][0][0] == "FE"


def test_each_text_has_as_many_hypotheses_as_it_asks_for():
    answer = request(["abc", "de", "fg"], count=[1, 2, -5])
    assert answer["translations"].shape == answer["scores"].shape == (3, 3)
    assert [list(row != b"") for row in answer["translations"]] == [
        [True, False, False],
        [True, True, False],
        [True, True, True],
    ]
    assert np.all((answer["scores"] == -1e9) == (answer["translations"] == b""))
    assert request([])["scores"].shape == (0, 3)  # the beam
    assert [len(row) for row in translator().translate(["abc", "de"], num_hypotheses=2)] == [2, 2]


def test_a_translation_begins_with_the_prefix_it_is_given():
    prefixes = ["", "GG", "CBA"]
    answer = request(["abc"] * 3, prefixes=prefixes)["translations"]
    for prefix, hypotheses in zip(prefixes, answer, strict=True):
        assert all(text.startswith(prefix.encode()) for text in hypotheses)
    assert answer[0, 0] == b"CBA"
    assert translator().translate(["abc"], prefixes=["GG"])[0][0][0].startswith("GG")


def test_a_prefix_is_written_as_its_tokenizer_writes_it():
    prefixes = ["G\u00e9", "\ufb01"]  # unknown to the vocabulary
    answer = request(["abc"] * 2, prefixes=prefixes)["translations"]
    tokenizer = translator().target_tokenizer
    for hypotheses, prefix in zip(answer, prefixes, strict=True):
        written = tokenizer.detokenize(tokenizer.tokenize([prefix])).numpy()[0]
        assert hypotheses[0].startswith(written)
        assert written != prefix.encode()


def test_a_prefix_is_only_that_of_the_first_part():
    long = "a" * 31 + "bc"
    first, second = request([long], prefixes=["G"])["translations"][0, 0].split(b" ")
    assert first.startswith(b"G")
    assert second == b"CB"


def test_a_prefix_longer_than_the_translation_may_be_is_refused():
    answer = request(["abc"] * 3, longest=[2, 3, 0], prefixes=["ABC", "ABC", "A" * 13])
    assert answer["truncated"].tolist() == [True, False, True]
    assert answer["translations"][1, 0] == b"ABC"
    assert answer["translations"][::2].tolist() == [[b"", b"", b""]] * 2


@pytest.mark.usefixtures("eagerly")
@pytest.mark.parametrize("max_length", [None, 12])
def test_a_prefix_longer_than_the_search_allows_for_its_source_is_refused(max_length):
    own, search = translator(), GreedySearch(max_length_ratio=1.0)
    options = {**OPTIONS, "search": search, "max_length": max_length, "jit_compile": False}
    limited = Translator(own.model, own.source_tokenizer, **options)
    # "ab" and `eos_id` are 3 tokens, so 3 may come out.
    with pytest.warns(UserWarning, match=r"1 text\(s\) were too long, or their prefixes"):
        refused, kept, long = limited.translate(
            ["ab", "ab", "abc"], prefixes=["GGGG", "GGG", "GGGG"]
        )
    assert refused == [("", -1e9)]
    assert [kept[0][0], long[0][0]] == ["GGG", "GGGG"]


def test_a_text_has_no_hypothesis_that_one_of_its_parts_has_not():
    # Forced to its whole length, the first part has one hypothesis alone.
    long = "a" * 31 + "bc"
    answer = request([long, "bc"], longest=3, prefixes=["ABC", ""])
    assert answer["translations"][0, 0].startswith(b"ABC ")
    assert answer["translations"][0, 1:].tolist() == [b"", b""]
    assert answer["scores"][0, 1:].tolist() == [-1e9, -1e9]
    assert (answer["scores"][1] > -1e8).all()
    assert len(translator().translate([long], max_length=3, prefixes=["ABC"])[0]) == 1


def test_a_prefix_longer_than_the_model_reads_is_refused():
    answer = request(["abc", "abc"], prefixes=["A" * 32, ""])
    assert answer["truncated"].tolist() == [True, False]
    assert answer["translations"][0].tolist() == [b"", b"", b""]
    assert answer["translations"][1, 0] == b"CBA"


def test_each_text_may_be_divided_into_its_sentences():
    text, own = "abc\ndef", translator()(["abc\ndef"])[0]
    answer = request([text, text, text, "fed", ""], split=[1, 0, -1, 1, 1])
    assert answer["translations"][:, 0].tolist() == [
        b"CBA FED",
        own.encode(),
        own.encode(),
        b"DEF",
        b"",
    ]
    assert own != "CBA FED"
    assert translator().translate([text], split_sentences=True)[0][0][0] == "CBA FED"
    assert translator().translate([text], split_sentences=False)[0][0][0] == own


@pytest.mark.slow
@pytest.mark.usefixtures("eagerly")
def test_what_stands_for_sentences_is_what_stands_for_the_parts_of_a_long_text():
    divides = divider()
    sentences = ["abc", "gf", "bde"]
    text = "\n".join(sentences)
    (hypotheses,), alone = divides.n_best([text]), divides.n_best(sentences)
    for rank, (translation, score) in enumerate(hypotheses):
        assert translation == " ".join(row[rank][0] for row in alone)
        assert score == pytest.approx(sum(row[rank][1] for row in alone), abs=1e-5)
    # With `eos_id`, 4, 3 and 4 tokens.
    vectors = divides.encode(sentences)
    np.testing.assert_allclose(
        divides.encode([text])[0], np.average(vectors, 0, [4, 3, 4]), atol=1e-5
    )


@pytest.mark.slow
@pytest.mark.usefixtures("eagerly")
def test_a_call_may_say_other_than_a_translator_that_divides():
    divides = divider()
    text = "abc\ngf\nbde"
    assert divides([text, "fed"]) == ["CBA FG EDB", "DEF"]
    assert divides.translate([text], split_sentences=False) == translator().translate([text])
    assert divides.score(["abc\nde"], ["CBA"]) == translator().score(["abc\nde"], ["CBA"])
    # An output that is cut has as many letters as tokens, and no `eos_id`.
    (answer,) = divides.translate([text], max_length=2, prefixes=["G"])
    assert answer[0][0].startswith("G")
    assert all(len(word) <= 2 for word in answer[0][0].split())


@pytest.mark.usefixtures("eagerly")
def test_pieces_of_all_sentences_are_aligned_in_their_text():
    (translation, pairs), (first, first_pairs), (second, second_pairs) = divider().align(
        ["\n abc \n\nde", "abc", "de"]
    )
    assert translation == f"{first} {second}"
    moved = [(shifted(target, 0), shifted(source, 2)) for target, source in first_pairs]
    moved += [(shifted(target, 4), shifted(source, 8)) for target, source in second_pairs]
    assert pairs == moved


def shifted(part, by):
    return slice(part.start + by, part.stop + by)


def divider():
    """The translator, which divides every text."""
    own = translator()
    options = {**OPTIONS, "split_sentences": True, "jit_compile": False}
    return Translator(own.model, own.source_tokenizer, **options)


@pytest.mark.usefixtures("eagerly")
def test_each_side_is_read_and_written_with_its_own_vocabulary():
    # An id means something else to each side, and the sizes differ.
    sides = [CharacterTokenizer("abcdefg"), CharacterTokenizer("GXFEDYCBAZ")]
    names = ("source_vocab_size", "target_vocab_size")
    sizes = {name: side.vocab_size for name, side in zip(names, sides, strict=True)}
    model = Transformer(**sizes, num_layers=1, d_model=8, num_heads=2, d_ff=16)
    model.build()
    randomise(model, scale=1.0)
    two = Translator(model, *sides, search=GreedySearch(), max_length=6, jit_compile=False)
    source, target = sides
    ids = [[*source.tokenize(["fade"]).to_list()[0], model.eos_id]]
    found = model.generate(np.array(ids), GreedySearch(), max_length=6)
    (expected,) = target.detokenize(found.ids[:, 0]).numpy()
    assert expected
    assert two.n_best(["fade"])[0][0][0] == expected.decode()
    labels = [*target.tokenize(["FED"]).to_list()[0], model.eos_id]
    log_prob = model.score(np.array(ids), np.array([labels])).log_prob[0]
    assert two.score(["fade"], ["FED"]) == [(pytest.approx(float(log_prob), rel=1e-5), 4)]


def test_options_are_as_many_as_texts():
    with pytest.raises(tf.errors.InvalidArgumentError, match="as many options"):
        request(["abc", "de"], count=[1])


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("length_penalty", -1),
        ("length_penalty", 10.5),
        ("max_length", 0),
        ("num_hypotheses", 4),
        ("num_hypotheses", 1.5),
        ("split_sentences", 1),
        ("prefixes", ["a", "b"]),
        ("prefixes", "a"),
    ],
)
def test_a_bad_option_raises_and_names_it(option, value):
    with pytest.raises(ValueError, match=f"`{option}` must"):
        translator().translate(["abc"], **{option: value})


def greedy():
    own = translator()
    options = {**OPTIONS, "search": GreedySearch(), "jit_compile": False}
    return Translator(own.model, own.source_tokenizer, **options)


def test_a_greedy_search_has_no_penalty_to_change():
    with pytest.raises(ValueError, match="`length_penalty` must be None for a search that has no"):
        greedy().translate(["abc"], length_penalty=2.0)


@pytest.mark.slow
@pytest.mark.usefixtures("eagerly")
def test_a_greedy_search_translates_without_options_as_n_best():
    own = greedy()
    assert own.translate(["abc"]) == own.n_best(["abc"])


@pytest.mark.usefixtures("eagerly")
def test_each_letter_is_read_from_the_one_it_stands_for():
    # The model has learned to reverse: letter t is read from place -t.
    texts = ["abcdef", "gab", "", "fd"]
    translations = translator()(texts)
    right = total = 0
    for number, (text, (translation, pairs)) in enumerate(
        zip(texts, translator().align(texts), strict=True)
    ):
        assert translation == translations[number]
        assert [target for target, _ in pairs] == [slice(n, n + 1) for n in range(len(pairs))]
        for target, source in pairs:
            total += 1
            right += text[source].upper() == translation[target]
    assert total == 11
    assert right >= 9


@pytest.mark.slow
def test_pieces_of_all_parts_of_a_long_text_are_aligned():
    text = "a" * 31 + "b" * 31
    ((translation, pairs),) = translator().align([text])
    assert translation == translator()([text])[0]
    written = "".join(translation[target] for target, _ in pairs)
    assert written == translation.replace(" ", "")
    for target, source in pairs:
        assert (source.start >= 31) == (target.start > translation.index(" "))


@pytest.mark.usefixtures("eagerly")
def test_alignments_are_bytes_of_pieces_without_their_spaces():
    texts = ["ein müder Hund läuft"] * 9
    tokenizer = SentencePieceTokenizer.train(texts, 40, shrink_to_fit=True)
    model = Transformer(tokenizer.vocab_size, num_layers=1, d_model=16, num_heads=2, d_ff=32)
    untrained = Translator(model, tokenizer, max_length=12, jit_compile=False)
    ((translation, pairs),) = untrained.align(["müder  Hund"])
    translation, source = translation.encode(), "müder  Hund".encode()
    assert pairs
    words_read = {source[part] for _, part in pairs}
    assert all(b" " not in word for word in words_read)
    joined = b"".join(translation[part] for part, _ in pairs)
    assert joined == translation.replace(b" ", b"")


@pytest.mark.slow
def test_what_is_refused_has_no_pairs_and_leaves_others_theirs():
    with pytest.warns(UserWarning, match="too long"):
        refused, kept = translator().align(["a" * 600, "abc"])
    assert refused == ("", [])
    assert kept == translator().align(["abc"])[0]
    with pytest.warns(UserWarning, match="too long"):
        assert translator().align(["a" * 600]) == [("", [])]
    assert translator().align([""]) == [("", [])]
    assert translator().align([]) == []


def test_a_vector_is_the_mean_of_the_encoder_over_the_tokens():
    texts = ["abc", "", "gfedcb"]
    vectors = translator().encode(texts)
    assert vectors.shape == (3, 32)
    assert vectors.dtype == np.float32
    model, tokenizer = translator().model, translator().source_tokenizer
    for text, vector in zip(texts, vectors, strict=True):
        ids = [[*tokenizer.tokenize([text]).to_list()[0], model.eos_id]]
        np.testing.assert_allclose(
            vector, np.mean(model.encode(np.array(ids))[0], axis=0), atol=1e-5
        )


def test_the_vector_of_a_long_text_is_the_mean_over_all_its_tokens():
    parts = ["a" * 31, "b" * 5]
    first, second = translator().encode(parts)
    (whole,) = translator().encode(["".join(parts)])
    np.testing.assert_allclose(whole, (32 * first + 6 * second) / 38, atol=1e-5)
    with pytest.warns(UserWarning, match="too long"):
        assert np.all(translator().encode(["a" * 600]) == 0)
    assert translator().encode([]).shape == (0, 32)
