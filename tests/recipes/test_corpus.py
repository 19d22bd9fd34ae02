import pytest

from keras_transformer.recipes.corpus import digest_pairs, read_corpus, split_sides
from keras_transformer.recipes.settings import Settings


def files(corpus, name):
    return tuple(str(corpus / f"{name}.{ending}") for ending in ("en", "xx"))


def test_two_files_are_pairs_and_what_is_not_given_is_held_out(corpus, capsys):
    found = read_corpus(Settings.from_preset(train=files(corpus, "text")))
    assert len(found.train) + len(found.validation) + len(found.test) <= 198
    held_out = {source for source, _ in [*found.validation, *found.test]}
    assert held_out
    assert held_out.isdisjoint(source for source, _ in found.train)
    printed = capsys.readouterr().out
    assert "2 training pairs have an empty line and are left out" in printed
    assert "no test files: held out some training pairs" in printed
    assert "no validation files: held out some training pairs" in printed
    assert f"{len(found.train):,} pairs to train" in printed


def test_a_test_keeps_its_empty_lines_so_that_translations_stand_line_by_line(corpus):
    parts = dict(train=files(corpus, "text"), test=files(corpus, "test"))
    found = read_corpus(Settings.from_preset(**parts, validation=files(corpus, "test")))
    assert (len(found.test), len(found.validation)) == (12, 10)
    assert found.test[5][0] == ""


def test_columns_of_one_file_are_pairs_too(corpus):
    found = read_corpus(Settings.from_preset(train=str(corpus / "words.tsv")))
    assert all(source == " ".join(word[::-1] for word in target.split())
               for source, target in found.train)  # fmt: skip
    symbols = read_corpus(Settings.from_preset(train=str(corpus / "words.tsv"), format="g2p"))
    assert len(symbols.validation) == 5  # 5 % of what the test leaves
    assert len(found.validation) == 1  # 1 %


@pytest.mark.parametrize("part", ["train", "validation"])
def test_files_without_a_pair_are_refused(corpus, tmp_path, part):
    (tmp_path / "blank").write_text("\n \n", encoding="utf-8")
    given = {"train": files(corpus, "text"), part: (str(tmp_path / "blank"),) * 2}
    with pytest.raises(ValueError, match="no pair has text on both sides. Check both files"):
        read_corpus(Settings.from_preset(**given))


def test_dates_are_made_and_the_seed_decides_which(monkeypatch):
    monkeypatch.setattr("keras_transformer.recipes.corpus.NUM_DATE_PAIRS", 3500)
    one, again, other = (read_corpus(Settings.from_preset(seed=seed)) for seed in (1, 1, 2))
    assert one == again != other
    assert (len(one.train), len(one.validation), len(one.test)) == (500, 1000, 2000)


def test_a_digest_tells_pairs_from_others():
    pairs = [("a", "b"), ("c", "d")]
    others = [[("c", "d"), ("a", "b")], [("a", "b")], [("ab", ""), ("c", "d")], [("a", "b\udcff")]]
    assert digest_pairs(pairs) == digest_pairs([list(pair) for pair in pairs]) != ""
    assert len({digest_pairs(other) for other in [pairs, *others]}) == 5


def test_sides_are_split_also_of_no_pairs():
    assert split_sides([("a", "b"), ("c", "d")]) == (["a", "c"], ["b", "d"])
    assert split_sides([]) == ([], [])
