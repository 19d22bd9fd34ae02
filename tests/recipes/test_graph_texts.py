import json
import os
import pickle
from pathlib import Path

import pytest

from keras_transformer.recipes import large_files
from keras_transformer.recipes.corpus import Corpus, read_corpus
from keras_transformer.recipes.graph_texts import GraphTexts
from keras_transformer.recipes.plain_texts import PlainTexts
from keras_transformer.recipes.settings import Settings
from keras_transformer.text import SymbolTokenizer

PAIRS = [("ﬁne １", "ｆein …")] * 20


def texts_of(path, pairs=PAIRS, **given):
    settings = Settings.from_preset(**{"train": ("a",), "vocab_size": 60, **given})
    return GraphTexts(path, settings, Corpus(pairs, pairs[:3], pairs[:3]))


@pytest.mark.parametrize(
    ("rule", "separate"), [("nfkc", False), pytest.param("nmt_nfkc", True, marks=pytest.mark.slow)]
)
def test_sources_may_be_normalized_more_than_targets(tmp_path, rule, separate):
    given = dict(lowercase=True, source_normalization=rule, separate_vocabularies=separate)
    for _ in range(2):  # a run goes on with what it has
        texts = texts_of(tmp_path, **given)
        target, source = texts.target, texts.source
        assert target.detokenize(target.tokenize(["ｆEIN …"])).numpy()[0].decode() == "ｆein …"
        assert source.detokenize(source.tokenize(["ﬁNE １"])).numpy()[0] == b"fine 1"
    assert (source.model == target.model) == (not separate)
    sizes = {"source_vocab_size": source.vocab_size, "target_vocab_size": target.vocab_size}
    assert texts.vocab_sizes == (sizes if separate else {"vocab_size": source.vocab_size})


def test_symbols_and_a_sample_are_settings_of_the_vocabulary(tmp_path, capsys):
    pairs = [(f"<2de> line {n}", f"Zeile {n}") for n in range(50)]
    given = dict(user_defined_symbols=("<2de>",), input_sentence_size=40)
    texts = texts_of(tmp_path, pairs, **given)
    assert texts.source.pieces(texts.tokenize("source", "x<2de>y"))[-3] == "<2de>"
    assert "from 40 texts" in capsys.readouterr().out
    assert texts.special_ids == {"pad_id": 0, "bos_id": 2, "eos_id": 3}
    (tmp_path / "all").mkdir()
    whole = texts_of(tmp_path / "all", pairs, user_defined_symbols=("<2de>",))
    assert whole.source.model != texts.source.model


def test_it_says_that_the_texts_allow_fewer_pieces(tmp_path, capsys):
    texts = texts_of(tmp_path, vocab_size=5000)
    size = f"{texts.source.vocab_size:,}"
    assert f"allow {size} pieces, fewer than the 5,000 asked for" in capsys.readouterr().out


def test_symbols_of_targets_may_be_written_from_the_end(tmp_path):
    pairs = [("t o o l", "t uː l"), ("l o t", "l o t")]
    for right_to_left in (True, True, False):  # the second time from the files
        path = tmp_path / str(right_to_left)
        path.mkdir(exist_ok=True)
        given = dict(format="g2p", right_to_left=right_to_left)
        texts = texts_of(path, pairs, **given)
        assert isinstance(texts.source, SymbolTokenizer)
        assert (texts.source.reverse, texts.target.reverse) == (False, right_to_left)
        assert (
            texts.tokenize("target", "t l")[:-1]
            == texts.tokenize("source", "t l")[:-1][:: -1 if right_to_left else 1]
        )
        assert texts.pieces("source", texts.tokenize("source", "o t")) == ["o", "t", "</s>"]


def test_a_run_that_starts_from_another_has_its_vocabulary(tmp_path):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    first = texts_of(tmp_path / "one")
    other = [("x y z", "z y x")] * 20
    second = texts_of(tmp_path / "two", other, start_from=str(tmp_path / "one"))
    assert second.source.to_bytes() == first.source.to_bytes()


def test_both_directions_are_twice_the_pairs(tmp_path):
    texts = texts_of(tmp_path)
    assert texts.training_batches(0).report.num_pairs == 20
    assert texts.training_batches(0, turned_too=True).report.num_pairs == 40
    assert texts.validation_batches().report.num_pairs == 3


def read_kept(run, name):
    """A file of the only prepared corpus of a run, or its report."""
    (folder,) = (path.parent for path in run.glob("corpora/*/corpus.json"))
    if name == "report":
        return json.loads((folder / "corpus.json").read_text(encoding="utf-8"))[name]
    return (folder / name).read_bytes()


def call_here(function, items, *_):
    """Does in this process what another process, with TensorFlow, does for another backend."""
    for item in items:
        sent_function, sent = pickle.loads(pickle.dumps((function, item)))
        yield item, sent_function(sent, None)


@pytest.mark.parametrize(
    ("mixing", "counts"),
    [
        pytest.param({}, (60, 5), marks=pytest.mark.slow),
        ({"mixing_weights": (1, 2)}, (60, 10)),
        pytest.param({"mixing_temperature": 1e9}, (60, 60), marks=pytest.mark.slow),
    ],
)
def test_several_corpora_are_mixed_as_their_weights_say(mixing, counts, tmp_path, monkeypatch):
    files = []
    for corpus, count in (("large", 60), ("few", 5)):
        for side in ("en", "de"):
            files.append(str(tmp_path / f"{corpus}.{side}"))
            text = "".join(f"{corpus} {side} {n}\n" for n in range(count))
            Path(files[-1]).write_text(text, encoding="utf-8")
    monkeypatch.setattr(large_files, "call_in_processes", call_here)
    rows = []
    for backend, kind in (("tensorflow", GraphTexts), ("jax", PlainTexts)):
        settings = Settings.from_preset(
            train=files, validation=files[:2], test=files[:2], vocab_size=80, backend=backend,
            **mixing,
        )  # fmt: skip
        path = tmp_path / backend
        corpus = read_corpus(settings, path / "corpora")
        assert corpus.num_train == 65
        texts = kind(path, settings, corpus)
        rows.append(texts.training_batches(0).report.num_pairs)
    assert rows == [sum(counts)] * 2


def test_filters_leave_out_the_same_pairs_on_any_backend(tmp_path, capsys, monkeypatch):
    good = [(f"line {n}", f"Zeile {n}") for n in range(60)]
    bad = [
        good[0],
        ("\u03b1 \u03b2", "Zeile"),
        ("line", "\u03b1\u03b2\u03b3"),
        ("a", "ab " * 60),
        ("a", "ab " * 30),
    ]
    sides = zip(("en", "de"), zip(*good, *bad, strict=True), strict=True)
    files = []
    for name, side in sides:
        files.append(str(tmp_path / name))
        (tmp_path / name).write_text("".join(f"{text}\n" for text in side), encoding="utf-8")
    called = []

    def call_here(function, items, *_):
        """Does in this process what another process, with TensorFlow, does for another backend."""
        for item in items:
            sent_function, sent = pickle.loads(pickle.dumps((function, item)))
            called.append(sent[0].__name__)
            yield item, sent_function(sent, None)

    monkeypatch.setattr(large_files, "call_in_processes", call_here)
    found = []
    for backend, kind in (("tensorflow", GraphTexts), ("jax", PlainTexts)):
        settings = Settings.from_preset(
            train=files, vocab_size=60, max_length=50, max_ratio=9, source_scripts=["Latin"],
            target_scripts=["Latin"], drop_duplicates=True, backend=backend,
        )  # fmt: skip
        path = tmp_path / backend
        corpus = read_corpus(settings, path / "corpora")
        found.append((corpus, kind(path, settings, corpus).training_batches(0).report.num_pairs))
        said = "58 of 65 pairs; left out 2 of another script, 2 held out, 1 too long, 1 uneven, 1"
        assert said in capsys.readouterr().err
    assert found[0] == found[1]
    assert found[0][1] == 58
    assert called == ["_are_of_scripts", "prepare_files_of_run"]
    for others in ([], ["prepare_files_of_run"]):  # as they are; then a file of another time
        called.clear()
        again = PlainTexts(path, settings, corpus).training_batches(0)
        assert again.report.num_pairs == 58
        assert said in capsys.readouterr().err
        assert called == others
        os.utime(files[0], ns=(1, 1))
    for name in ("source.ids.npy", "target.ids.npy", "report"):
        ours, theirs = (read_kept(tmp_path / backend, name) for backend in ("tensorflow", "jax"))
        assert ours == theirs
