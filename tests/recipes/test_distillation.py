"""A student of a run: what it learns, runs stopped and gone on with, and figures of both."""

import contextlib
import shutil

import pytest

pytest.importorskip("babel")

from keras_transformer.recipes import build, corpus, distillation, teacher, training
from keras_transformer.recipes.corpus import Corpus, split_sides
from keras_transformer.recipes.dates import date_pairs
from keras_transformer.recipes.distillation import Distilled, distill, measure_speed
from keras_transformer.recipes.evaluation import Score
from keras_transformer.recipes.large_files import LargeFiles
from keras_transformer.recipes.run_directory import RunDirectory
from keras_transformer.recipes.runs import load_translator
from keras_transformer.recipes.settings import Settings
from keras_transformer.recipes.teacher import translate_corpus
from keras_transformer.recipes.testing import Run
from keras_transformer.recipes.training import train
from keras_transformer.serving import shards
from tests.recipes.interruptions import Stop
from tests.serving.trained import translator, words


def writing(text):
    """Stands for `shards.open_export`: each translation is `text`."""
    return lambda job: lambda texts: ([text] * len(texts), [False] * len(texts))


@contextlib.contextmanager
def interrupted(count):
    """Interrupts a translation after `count` parts."""
    left = iter(range(count))
    translate_shard = shards.translate_shard

    def stop(*given):
        if next(left, None) is None:
            raise KeyboardInterrupt
        return translate_shard(*given)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shards, "translate_shard", stop)
        with pytest.raises(KeyboardInterrupt):
            yield


@pytest.fixture
def letters(monkeypatch):
    """Words for the trained translator of letters, in parts of five, with other targets."""
    monkeypatch.setattr(teacher, "LINES_PER_PART", 5)
    sources = [*words(12, seed=3), "a" * 2000]  # the last is longer than the translator reads
    return Corpus([(source, "?") for source in sources], [("a", "A")], [("b", "B")])


@pytest.mark.slow
def test_translations_take_the_place_of_the_targets_for_training(
    letters, exported, tmp_path, capsys
):
    with interrupted(1):
        translate_corpus(exported, letters, tmp_path)
    (done,) = tmp_path.glob("teacher-*/translations/*.txt")
    done.write_text("".join(f"kept {number}\n" for number in range(5)), encoding="utf-8")
    found = translate_corpus(exported, letters, tmp_path)
    sources = split_sides(letters.train)[0]
    expected = [f"kept {number}" for number in range(5)]  # what was finished is not made again
    expected += translator()(sources[5:12])
    assert found.train == list(zip(sources[:12], expected, strict=True))
    assert "  1 sources have no translation by the teacher" in capsys.readouterr().out
    assert found[1:] == letters[1:]
    assert [path.suffix for path in tmp_path.iterdir()] == [".txt"]
    # The translations are there: the teacher is needed no more.
    assert translate_corpus("nowhere", letters, tmp_path) == found


@pytest.mark.slow
def test_other_texts_or_another_teacher_are_translated_anew(
    letters, exported, tmp_path, monkeypatch
):
    with interrupted(1):
        translate_corpus(exported, letters, tmp_path)
    (done,) = tmp_path.glob("teacher-*/translations/*.txt")
    done.write_text("kept\n" * 5, encoding="utf-8")
    other = tmp_path / "other"
    shutil.copytree(exported, other)
    with open(other / "variables" / "variables.index", "ab") as stream:
        stream.write(b"x")
    monkeypatch.setattr(shards, "open_export", writing("new"))
    targets = split_sides(translate_corpus(other, letters, tmp_path).train)[1]
    assert set(targets) == {"new"}
    assert [path.suffix for path in tmp_path.glob("teacher-*")] == [".txt"]
    fewer = letters._replace(train=letters.train[:3])
    assert len(translate_corpus(exported, fewer, tmp_path).train) == 3


@pytest.mark.slow
def test_large_files_are_translated_line_by_line_on_disk(letters, exported, tmp_path):
    lines = ["ab", "", "cd"] * 3
    (tmp_path / "a.en").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    large = LargeFiles([(str(tmp_path / "a.en"), "a.de")], 9, "digest", letters.train)
    found = translate_corpus(exported, letters._replace(large=large), tmp_path)
    assert found.train == letters.train
    ((source_file, target_file),) = found.large.files
    assert source_file == large.files[0][0]
    with open(target_file, encoding="utf-8") as stream:
        assert stream.read().split("\n") == [*translator()(lines), ""]
    assert found.large[1:] == large[1:]


def test_a_teacher_that_writes_nothing_is_refused(letters, exported, tmp_path, monkeypatch):
    monkeypatch.setattr(shards, "open_export", writing(""))
    with pytest.raises(ValueError, match="has an empty translation of every source"):
        translate_corpus(exported, letters, tmp_path)


SMALL = dict(d_model=16, num_heads=2, d_ff=16, max_shapes=1, tokens_per_batch=512, beam_size=2)
SMALL |= dict(warmup_steps=10, learning_rate=0.01, vocab_size=340, xla_export=False)


@pytest.fixture
def few_dates(monkeypatch):
    """Dates make 160 pairs for training, translated in parts of 50; XLA compiles nothing."""
    pairs = date_pairs(200)
    parts = Corpus(pairs[:160], pairs[160:180], pairs[180:])
    monkeypatch.setattr(corpus, "make_dates", lambda settings: parts)
    monkeypatch.setattr(teacher, "LINES_PER_PART", 50)
    monkeypatch.setattr(build, "xla_pays", lambda settings: False)
    monkeypatch.setattr(training, "NUM_SAMPLES", 0)
    monkeypatch.setattr(distillation, "ROUNDS", 1)
    return parts


@pytest.mark.slow
def test_a_student_of_dates_stopped_twice_ends_with_figures_of_both(
    few_dates, tmp_path, monkeypatch
):
    own = Settings.from_preset("dates", num_layers=1, epochs=3, **SMALL)
    taught = train(own, tmp_path / "teacher")
    given = dict(num_layers=2, num_decoder_layers=1, epochs=2)
    output = tmp_path / "student"
    with interrupted(2):
        distill(tmp_path / "teacher", output, **given)
    assert len(list(output.glob("corpora/teacher-*/translations/*.txt"))) == 2
    with monkeypatch.context() as patch:
        patch.setattr(training, "CheckLoss", lambda: Stop(epoch=1))
        with pytest.raises(KeyboardInterrupt):
            distill(tmp_path / "teacher", output, **given)
    assert RunDirectory(output).epochs_done() == 1
    learned = []

    def open_texts(directory, settings, corpus):
        learned.append(corpus)
        return whole(directory, settings, corpus)

    whole = training.open_texts
    monkeypatch.setattr(training, "open_texts", open_texts)
    monkeypatch.setattr(shards, "translate_shard", None)  # nothing is translated again
    made = distill(tmp_path / "teacher", output, **given)

    sources = split_sides(few_dates.train)[0]
    translations = load_translator(tmp_path / "teacher")(sources)
    pairs = [pair for pair in zip(sources, translations, strict=True) if pair[1].strip()]
    assert learned[0].train == pairs
    assert pairs != few_dates.train
    assert learned[0][1:3] == few_dates[1:3]
    files = [(path / "source.tokenizer").read_bytes() for path in (tmp_path / "teacher", output)]
    assert files[0] == files[1]
    model = made.run.directory.load_model()
    assert (len(model.encoder.layers), len(model.decoder.layers)) == (2, 1)
    assert made.teacher_scores == taught.scores
    assert made.run.scores[0].signature == "texts:20|unit:exact"
    assert set(made.speeds) == {1, 8}
    assert all(speed > 0 for both in made.speeds.values() for speed in both.values())


def test_speed_is_tokens_of_outputs_by_the_median_of_rounds_without_the_first(monkeypatch):
    # Seconds of each round: a, b. The first compiles; the medians of the others are 2 and 1.
    seconds = iter([90, 90, 2, 1, 1, 7, 2, 1, 2, 1, 8, 1])
    now = [0.0]
    monkeypatch.setattr(distillation.time, "perf_counter", lambda: now[0])
    sizes = []

    def translate(texts):
        sizes.append(len(texts))
        if len(sizes) % 2 == 0:  # the second batch of a round
            now[0] += next(seconds)
        return [f"{text} {text}" for text in texts]

    def count(texts):
        return sum(len(text.split()) for text in texts)

    found = measure_speed({"a": translate, "b": translate}, count, ["x", "y", "z"], 2)
    assert found == {"a": 6 / 2, "b": 6 / 1}
    assert sizes == [2, 1] * 12


def test_the_table_compares_the_main_figures_and_the_speeds():
    scores = [[Score("exact_match", 1.0, ""), Score("bleu", value, "")] for value in (40.0, 39.5)]
    speeds = {1: {"teacher": 100.0, "student": 210.0}, 8: {"teacher": 1000.0, "student": 1500.0}}
    made = Distilled(Run(None, scores[1], ""), scores[0], speeds)
    assert made.summary == [
        ["", "BLEU", "tokens a second at batch 1", "tokens a second at batch 8"],
        ["teacher", "40.00", "100", "1,000"],
        ["student", "39.50", "210", "1,500"],
        ["", "-0.50", "2.10 times", "1.50 times"],
    ]
