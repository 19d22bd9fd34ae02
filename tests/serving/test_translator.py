"""Translator: order, scores, sizes of batch, long and empty texts, and what it refuses."""

import json
import os
import subprocess
import sys

import keras
import numpy as np
import pytest

from keras_transformer import BeamSearch, GreedySearch, LearnedPositionalEncoding, Transformer
from keras_transformer.serving import Translator
from keras_transformer.text import CharacterTokenizer
from tests.numpy_arguments import in_numpy
from tests.serving.trained import answer, compiled_translator, log_prob_of, translator, words


def small_model(**options):
    defaults = dict(vocab_size=11, num_layers=1, d_model=8, num_heads=2, d_ff=16)
    return Transformer(**{**defaults, **options})


@pytest.mark.slow
def test_it_translates_words_it_has_never_seen():
    texts = sorted(set(words(60, seed=99)) - set(words(2000, seed=1)))
    assert len(texts) > 10
    right = [translator()([text]) == [answer(text)] for text in texts]
    assert np.mean(right) > 0.8


def test_a_text_is_translated_alike_alone_and_among_others():
    texts = words(11, seed=3)  # more than two batches of 4, of unequal lengths
    together = translator()(texts)
    assert translator()(texts[::-1]) == together[::-1]
    assert [translator()([text])[0] for text in texts] == together


def test_no_texts_give_no_translations():
    assert translator()([]) == []
    assert translator().n_best([]) == []
    assert translator().score([], []) == []


def test_an_empty_text_has_an_empty_translation_and_leaves_the_others_alone():
    assert translator()(["", "abc", ""]) == ["", translator()(["abc"])[0], ""]


def test_hypotheses_are_distinct_best_first_and_the_first_is_the_translation():
    (hypotheses,) = translator().n_best(["abcd"])
    texts, scores = zip(*hypotheses, strict=True)
    assert len(set(texts)) == 3
    assert list(scores) == sorted(scores, reverse=True)
    assert [texts[0]] == translator()(["abcd"])


def test_the_score_of_a_hypothesis_is_its_log_probability_under_the_length_penalty():
    ((best, *others),) = translator().n_best(["fade"])
    for text, score in (best, *others):
        log_prob, num_tokens = log_prob_of("fade", text)
        np.testing.assert_allclose(log_prob / ((5 + num_tokens) / 6) ** 0.6, score, atol=1e-5)
    assert len(best[0]) < 12  # not cut, so `score` finds the same ids
    np.testing.assert_allclose(
        translator().score(["fade"], [best[0]]), [log_prob_of("fade", best[0])], atol=1e-5
    )


def test_the_score_of_a_pair_does_not_depend_on_the_others():
    sources, targets = ["ab", "gfedcb", "a"], ["BA", "BCDEFG", "CCCCCCCCCCCCCCCCCC"]
    together = translator().score(sources, targets)
    alone = [translator().score([s], [t])[0] for s, t in zip(sources, targets, strict=True)]
    np.testing.assert_allclose(together, alone, rtol=1e-5)


def test_a_text_longer_than_the_model_reads_is_translated_in_parts():
    long = "a" * 31 + "b" * 31 + "abc"  # each part fits, with `eos_id`
    (joined,) = translator()([long])
    assert joined.split(" ") == translator()(["a" * 31, "b" * 31, "abc"])
    parts = [translator().n_best([part])[0] for part in ("a" * 31, "b" * 31, "abc")]
    (hypotheses,) = translator().n_best([long])
    for rank, (text, score) in enumerate(hypotheses):
        assert text == " ".join(part[rank][0] for part in parts)
        np.testing.assert_allclose(score, sum(part[rank][1] for part in parts), rtol=1e-5)


def test_a_text_of_too_many_parts_is_refused_and_said_to_be():
    with pytest.warns(UserWarning, match="1 text.* too long.* and have no translation"):
        translations = translator()(["ab", "a" * (31 * 16 + 1)])
    assert translations == [translator()(["ab"])[0], ""]
    translator()(["a" * 31 * 16])  # fits; a warning would be an error


def test_a_pair_too_long_to_score_is_refused_and_said_to_be():
    with pytest.warns(UserWarning, match="1 text.* too long"):
        scores = translator().score(["ab", "a" * 32, "a"], ["BA", "A", "A" * 31])
    assert scores[1] == (-1e9, 2)
    np.testing.assert_allclose(scores[::2], translator().score(["ab", "a"], ["BA", "A" * 31]), 1e-5)


def test_progress_is_shown_when_asked(capsys):
    translator()(["ab", "cd"], progress=True)
    assert "2/2" in capsys.readouterr().out


def test_without_a_maximum_length_the_limit_is_a_sentences_own():
    # An untrained model rarely ends, so its hypotheses run to their limits.
    keras.utils.set_random_seed(2)
    options = {"search": GreedySearch(), "max_source_length": 32, "jit_compile": False}
    never_ends = Translator(small_model(), CharacterTokenizer.train(["abcdefg"]), **options)
    ids = np.zeros([2, 32], "int32")  # the short one shares a shape with the long one
    ids[0, :3], ids[1, :22] = [4, 5, 3], [*[4, 5, 6] * 7, 3]
    search = never_ends.id_functions.search_ids
    together, alone = (search(part)[0].numpy()[:, 0] for part in (ids, ids[:1, :16]))
    assert np.count_nonzero(together, axis=1).tolist() == [3 + 50, 22 + 50]
    assert together[0, :53].tolist() == alone[0, :53].tolist()


def test_a_lone_surrogate_is_text_like_any_other_invalid_text():
    found = translator()(["\ud800ab", "abc"])
    # Each of its three bytes reads as one replacement character.
    assert found == translator()(["\ufffd\ufffd\ufffdab", "abc"])
    assert found[0] != translator()(["ab"])[0]


@pytest.mark.parametrize("texts", ["abc", [b"abc"], [1], None])
def test_texts_must_be_a_list_of_strings(texts):
    with pytest.raises(ValueError, match="`texts` must be a list of strings. Received: texts="):
        translator()(texts)


def test_pairs_to_score_must_be_equally_many():
    with pytest.raises(ValueError, match="equally many. Received: 2 and 1"):
        translator().score(["a", "b"], ["a"])


def test_special_ids_must_agree_with_the_model():
    tokenizer = CharacterTokenizer.train(["abc"])
    with pytest.raises(ValueError, match="`eos_id` of the source tokenizer .* Received: 3 and 4"):
        Translator(small_model(eos_id=4), tokenizer)


def test_the_vocabulary_must_fit_the_model():
    tokenizer = CharacterTokenizer.train(["abcdefghijkl"])
    with pytest.raises(ValueError, match="source tokenizer's vocabulary .* Received: 16 and 11"):
        Translator(small_model(), tokenizer)
    model = small_model(vocab_size=None, source_vocab_size=16, target_vocab_size=11)
    with pytest.raises(ValueError, match="target tokenizer's vocabulary .* Received: 16 and 11"):
        Translator(model, tokenizer)


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("max_length", 0),
        ("max_source_length", 8),
        ("max_batch_tokens", 0),
        ("max_batch_tokens", 2.5),
    ],
)
def test_a_bad_size_raises_and_names_it(argument, value):
    with pytest.raises(ValueError, match=f"{argument}={value}"):
        Translator(small_model(), CharacterTokenizer.train(["abc"]), **{argument: value})


@pytest.mark.slow
def test_numpy_numbers_in_every_argument_give_the_export_that_python_numbers_give(
    tmp_path, export_only
):
    letters = CharacterTokenizer("abcdefg")
    arguments = dict(
        max_length=5, max_source_length=32, max_batch_tokens=64, jit_compile=False,
        max_segments=3, quantize="int8", separator="-", split_sentences=True,
    )  # fmt: skip
    options = dict(length_penalty=0.5, max_length=3, num_hypotheses=2, split_sentences=False)
    texts, cards, answers = ["abc", "gab"], [], []
    export_only("translate", "n_best")
    for name, convert in (("python", lambda value: value), ("numpy", in_numpy)):
        keras.utils.set_random_seed(3)
        model = small_model(**convert({"vocab_size": 11, "d_ff": 16, "dropout": 0.25}))
        search = BeamSearch(**convert({"beam_size": 2, "length_penalty": 0.5}))
        made = Translator(model, letters, search=search, **convert(arguments))
        answers.append((made.translate(texts, **convert(options)), made.n_best(texts)))
        scores = {"bleu": 1.5, "numbers": [1, 2]}
        made.export(tmp_path / name, card=convert({"scores": scores}), verbose=convert(False))
        written = (tmp_path / name / "assets.extra" / "model_card.json").read_text(encoding="utf-8")
        cards.append(json.loads(written))
    assert answers[0] == answers[1]
    assert cards[0] == cards[1]
    assert cards[1]["scores"] == scores


def translator_of_40_positions():
    tokenizer = CharacterTokenizer.train(["abcdefg"])
    model = small_model(position=LearnedPositionalEncoding(40))
    options = {"search": BeamSearch(2), "max_batch_tokens": 80, "jit_compile": False}
    return Translator(model, tokenizer, **options)


def test_positions_that_end_limit_what_is_read_and_written():
    own = translator_of_40_positions()
    assert max(length for _, length in own.shapes) == 40
    for argument in ("max_length", "max_source_length"):
        with pytest.raises(ValueError, match=f"`{argument}` must be at most 40, the model's last"):
            Translator(own.model, own.source_tokenizer, **{argument: 41})


@pytest.mark.slow
def test_texts_longer_than_the_positions_are_translated():
    own = translator_of_40_positions()
    texts = ["abc", "a" * 35, "b" * 60]
    assert own(texts) == [own([text])[0] for text in texts]


@pytest.mark.parametrize("made", [compiled_translator, translator])
def test_products_of_a_step_are_kept_apart_where_xla_compiles(made):
    search = made().id_functions.search_ids.function.get_concrete_function()
    graph = search.graph.as_graph_def()
    names = {node.op for function in graph.library.function for node in function.node_def}
    assert ("XlaOptimizationBarrier" in names) == made().jit_compile
    assert search.function_def.attr["_XlaMustCompile"].b == made().jit_compile


def test_without_xla_nothing_is_compiled():
    translator()(["abc"])
    assert translator().num_compilations == 0


COUNTED = """
import sys
from pathlib import Path
import keras
from keras_transformer import GreedySearch, Transformer
from keras_transformer.serving import Translator
from keras_transformer.text import CharacterTokenizer

tokenizer = CharacterTokenizer.train(["abc"])
model = Transformer(tokenizer.vocab_size, num_layers=1, d_model=8, num_heads=2, d_ff=16)
quantize = sys.argv[2] or None
options = dict(search=GreedySearch(), max_length=3, max_batch_tokens=64, quantize=quantize)
own = Translator(model, tokenizer, **options)
for texts in (["a"], ["b"], ["ab" * 12], ["a"] * 9, ["abc", "b"]):
    own(texts)
own.score(["a"], ["b"])
own.score(["c"], ["a"])
own.translate(["abc"], max_length=2, prefixes=["a"])
for function in (own.align, own.align, own.encode):
    function(["ab"])
programs = [path.name for path in Path(sys.argv[1]).glob("*.before_optimizations.txt")]
names = ("search_ids", "search_with_options", "align_ids", "score_ids", "encode_ids")
made = sum(any(name in program for name in names) for program in programs)
print(own.num_compilations, made)
"""


@pytest.mark.slow
@pytest.mark.parametrize("quantize", ["int8"])
def test_the_number_of_compilations_is_that_of_the_programs_xla_made(quantize, tmp_path):
    flags = {"XLA_FLAGS": f"--xla_dump_to={tmp_path} --xla_dump_hlo_as_text"}
    done = subprocess.run(
        [sys.executable, "-c", COUNTED, str(tmp_path), quantize],
        env={**os.environ, **flags},
        capture_output=True,
        encoding="utf-8",
        check=True,
    )
    counted, made = map(int, done.stdout.split())
    assert counted == made >= 7


@pytest.mark.slow
def test_texts_of_many_lengths_come_back_in_order(monkeypatch):
    monkeypatch.setattr("keras_transformer.serving.translator.TEXTS_PER_CALL", 7)
    texts = words(30, seed=8)
    assert translator()(texts) == [translator()([text])[0] for text in texts]
    assert [best[0][0] for best in translator().n_best(texts)] == translator()(texts)


def test_what_it_is_made_of_can_be_read_and_not_changed():
    tokenizers = [CharacterTokenizer.train([text]) for text in ("abcd", "efg")]
    sizes = {"source_vocab_size": 8, "target_vocab_size": 7}
    model, search = small_model(vocab_size=None, **sizes), BeamSearch(2)
    own = Translator(model, *tokenizers, search=search, quantize="int8")
    assert own.model is model
    assert own.search is search
    assert [own.source_tokenizer, own.target_tokenizer] == tokenizers
    assert (own.max_length, own.max_source_length, own.max_segments) == (None, 256, 16)
    one_side = Translator(small_model(), tokenizers[0])
    assert one_side.target_tokenizer is tokenizers[0]
    assert isinstance(one_side.search, BeamSearch)
    for name in ("model", "source_tokenizer", "target_tokenizer", "search", "separator"):
        with pytest.raises(AttributeError, match=f"`{name}` of a Translator .* {name}='other'"):
            setattr(own, name, "other")
    assert own.search is search


@pytest.mark.slow
def test_it_compiles_once_for_each_shape_that_it_meets():
    own, plain = compiled_translator(), translator()
    # Of 1, 2 and 4 rows, and of 1 and 2; two and more are searched as two halves.
    assert own.shapes == [(1, 16), (2, 16), (1, 32)]
    before = own.num_compilations
    ids = np.full((2, 16), own.model.pad_id, "int32")
    for row, tokens in zip(
        ids, own.source_tokenizer.tokenize(["abcd", "gef"]).to_list(), strict=True
    ):
        row[: len(tokens) + 1] = [*tokens, own.model.eos_id]
    for part in (ids, ids, ids[:1]):  # two halves of (1, 16), and (1, 16) again
        (found, scores), (expected, others) = (
            each.id_functions.search_ids(part) for each in (own, plain)
        )
        np.testing.assert_array_equal(found, expected)
        np.testing.assert_allclose(scores, others, atol=1e-5)
        assert own.num_compilations == before + 1


@pytest.mark.slow
def test_texts_of_every_shape_are_translated_as_without_xla():
    own = compiled_translator.__wrapped__()
    assert own.num_compilations == 0
    texts = ["abc" * 9, *"aabbc"]
    assert own(texts) == translator()(texts)  # two halves of (1, 32), and of (2, 16)
    assert own.num_compilations == 2
    texts = ["abc"[: n % 4] * (n % 10) for n in range(40)]
    own(texts)
    assert own.num_compilations == len(own.shapes) == 3
    own.score(["abc"], ["a"])
    assert own.num_compilations == 4
