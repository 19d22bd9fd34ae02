"""Dates and numbers in two languages: right, decidable, reproducible, split without overlap."""

import ast
import datetime
import itertools
import subprocess
import sys
from decimal import Decimal

import pytest

pytest.importorskip("babel")

from babel import Locale

from keras_transformer.recipes import dates

LOCALES = [("en", "fr"), ("en", "ko"), ("en_GB", "de"), ("en", "ja"), ("en", "ar"), ("ko", "en")]
MOMENT = datetime.datetime(2026, 11, 20, 15, 30, 5)


def kind_named(name):
    return {kind.name: kind for kind in dates.all_kinds()}[name]


def written(name, value, source, target):
    return dates.write_pair(kind_named(name), value, Locale.parse(source), Locale.parse(target))


def conflicts(pairs):
    """Gives the sources that come with two targets."""
    targets = {}
    for source, target in pairs:
        targets.setdefault(source, set()).add(target)
    return [source for source, seen in targets.items() if len(seen) > 1]


WRITTEN = """
full date       | en_GB | Friday, 20 November 2026  | fr | vendredi 20 novembre 2026
full date       | en    | Friday, November 20, 2026 | ko | 2026년 11월 20일 금요일
long date       | en    | November 20, 2026         | de | 20. November 2026
short date      | en    | 11/20/26                  | fr | 20/11/2026
yMMMM date      | en    | November 2026             | ja | 2026年11月
short time      | en    | 3:30 PM                   | fr | 15:30
medium time     | en    | 3:30:05 PM                | fr | 15:30:05
decimal         | en    | -1,234.5                  | fr | -1 234,5
percentage      | en    | -1,234.5%                 | fr | -1 234,5 %
EUR standard    | en    | €1,234.50                 | fr | 1 234,50 €
JPY standard    | en    | ¥1,234                    | fr | 1 234 JPY
USD name        | en    | 1,234.50 US dollars       | fr | 1 234,50 dollars des États-Unis
"""
CASES = [[cell.strip() for cell in line.split("|")] for line in WRITTEN.strip().splitlines()]


@pytest.mark.parametrize(("name", "source", "text", "target", "translation"), CASES)
def test_value_is_written_as_people_write_it(name, source, text, target, translation):
    value = MOMENT if kind_named(name).family == "moment" else Decimal("-1234.5")
    assert written(name, value, source, target) == (text, translation)


@pytest.mark.parametrize(
    ("source", "target", "count"),
    [
        ("en", "fr", 3_000),
        *(pytest.param(*pair, 30_000, marks=pytest.mark.slow) for pair in LOCALES),
    ],
)
def test_source_decides_the_target(source, target, count):
    stream = dates.stream_pairs(source, target, seed=3)
    pairs = list(itertools.islice(stream, count))
    assert len(set(pairs)) < count  # some come again, so the next line says something
    assert conflicts(pairs) == []


@pytest.mark.slow
@pytest.mark.parametrize(("source", "target"), LOCALES)
def test_source_decides_the_target_in_every_month_and_year(source, target):
    locales = Locale.parse(source), Locale.parse(target)
    kinds = [k for k in dates.usable_kinds(*locales) if k.name.endswith("date")]
    first = datetime.datetime.combine(dates.FIRST_DAY, datetime.time())
    pairs = []
    for number in range(0, (dates.LAST_DAY - dates.FIRST_DAY).days + 1, 11):
        day = first + datetime.timedelta(days=number)
        for kind in kinds:
            pair = dates.write_pair(kind, day, *locales)
            if not dates._is_taken(pair, kind, day, kinds, locales):
                pairs.append(pair)
    assert conflicts(pairs) == []


@pytest.mark.parametrize(
    ("source", "target"),
    [
        LOCALES[1],
        *(pytest.param(*pair, marks=pytest.mark.slow) for pair in LOCALES if pair != LOCALES[1]),
    ],
)
def test_every_kind_is_usable(source, target):
    usable = dates.usable_kinds(Locale.parse(source), Locale.parse(target))
    assert [k.name for k in usable] == [k.name for k in dates.all_kinds()]


def test_kind_whose_source_loses_a_field_is_left_out(monkeypatch):
    def month_to_full_date(moment, locale):
        return f"{moment:%B}" if locale.language == "en" else moment.isoformat()

    lossy = kind_named("full date")._replace(write=month_to_full_date)
    good = kind_named("long date")
    monkeypatch.setattr(dates, "all_kinds", lambda: [lossy, good])
    assert dates.usable_kinds(Locale("en"), Locale("fr")) == [good]
    assert dates.usable_kinds(Locale("fr"), Locale("en")) == [lossy, good]


def test_kind_that_a_locale_cannot_write_is_left_out(monkeypatch):
    def unknown(moment, locale):
        raise KeyError("yMMMd")

    odd = kind_named("full date")._replace(write=unknown)
    monkeypatch.setattr(dates, "all_kinds", lambda: [odd])
    assert dates.usable_kinds(Locale("en"), Locale("fr")) == []


def test_may_is_a_long_date_where_medium_says_the_same():
    may = datetime.datetime(2026, 5, 4)
    assert written("long date", may, "en", "ja") == ("May 4, 2026", "2026年5月4日")
    assert written("medium date", may, "en", "ja") == ("May 4, 2026", "2026/05/04")
    pairs = dict(dates.date_pairs(3000, "en", "ja"))
    mays = [target for source, target in pairs.items() if source.startswith("May ")]
    assert len(mays) > 20
    assert not [target for target in mays if "/" in target and ":" not in target]


@pytest.mark.slow
def test_pairs_are_different_and_as_many_as_asked():
    pairs = dates.date_pairs(5000)
    assert len(pairs) == len(dict(pairs)) == 5000
    assert all(text and text == " ".join(text.split()) for pair in pairs for text in pair)
    assert not set("".join(map("".join, pairs))) & {chr(code) for code in dates.PLAIN}


def test_pairs_depend_on_the_seed_alone():
    assert dates.date_pairs(200, seed=5) == dates.date_pairs(300, seed=5)[:200]
    assert dates.date_pairs(200, seed=5) != dates.date_pairs(200, seed=6)


@pytest.mark.slow
def test_another_process_makes_the_same_pairs():
    code = f"""
import runpy
print(ascii(runpy.run_path({dates.__file__!r})["date_pairs"](50, "en", "ko", seed=7)))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, encoding="utf-8", check=True
    )
    assert ast.literal_eval(done.stdout) == dates.date_pairs(50, "en", "ko", seed=7)


@pytest.mark.slow
def test_locale_may_be_written_with_a_hyphen():
    assert dates.date_pairs(20, "en-GB", "de") == dates.date_pairs(20, "en_GB", "de")


@pytest.mark.parametrize("name", ["source_locale", "target_locale"])
@pytest.mark.parametrize("locale", ["xx", "english", "", "e n"])
def test_unknown_locale_raises_one_line(name, locale):
    with pytest.raises(ValueError, match=f"Received: {name}='{locale}'") as caught:
        dates.date_pairs(1, **{name: locale})
    assert "\n" not in str(caught.value)


def test_too_many_pairs_raise(monkeypatch):
    quarters = [kind_named("yQQQ date")]
    monkeypatch.setattr(dates, "all_kinds", lambda: quarters)
    assert len(dates.date_pairs(400)) == 400
    with pytest.raises(ValueError, match="about 400. Received: num_pairs=401"):
        dates.date_pairs(401)


def test_split_keeps_held_out_sources_out_of_training():
    pairs = dates.date_pairs(1000)
    training, validation, test = dates.split_pairs([*pairs, *pairs[:100]], 60, 40, seed=1)
    assert (len(training), len(validation), len(test)) == (900, 60, 40)
    assert sorted([*training, *validation, *test]) == sorted(pairs)
    assert (training, validation, test) == dates.split_pairs(pairs, 60, 40, seed=1)
    assert test != dates.split_pairs(pairs, 60, 40, seed=2)[2]


@pytest.mark.parametrize(("num_validation", "num_test"), [(6, 4), (-1, 2), (2, -1), (11, 0)])
def test_split_that_leaves_nothing_to_train_on_raises(num_validation, num_test):
    pairs = [(str(number), str(number)) for number in range(10)]
    with pytest.raises(ValueError, match=f"num_validation={num_validation}, num_test={num_test}"):
        dates.split_pairs(pairs, num_validation, num_test)
