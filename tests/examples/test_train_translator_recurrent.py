"""train_translator.py with --model recurrent: options, sizes, and a run as a user makes one."""

import csv
import json

import pytest

from tests.examples.translator_runs import TRAIN, TRANSLATE, job, run
from train_options import DATES, FILES, RECURRENT_SIZES, SIZES, parse_arguments
from train_translator import run_settings
from translator_models import describe, new_model, picture_title

IDS = {"pad_id": 0, "bos_id": 2, "eos_id": 3}


def parsed(monkeypatch, *options):
    monkeypatch.setattr("sys.argv", ["train_translator.py", *map(str, options)])
    return parse_arguments("")


def test_the_options_of_the_recurrent_model_have_defaults(monkeypatch):
    args = parsed(monkeypatch, "--model", "recurrent")
    assert (args.similarity, args.cell, args.scheduled_sampling) == ("additive", "lstm", 0.0)
    assert describe(args) == "recurrent, LSTM, additive attention, size mini"
    assert args.output == "runs/dates-en-fr-recurrent-lstm-additive"


def test_what_was_chosen_is_in_the_model_its_description_and_its_settings(monkeypatch):
    options = ["--model", "recurrent", "--similarity", "none", "--cell", "gru"]
    args = parsed(monkeypatch, *options, "--scheduled-sampling", 0.25)
    model = new_model(args, vocab_size=20, **IDS)
    assert (model.cell, model.attention, model.scheduled_sampling) == ("gru", None, 0.25)
    assert describe(args) == ("recurrent, GRU, no attention, scheduled sampling 0.25, size mini")
    settings = run_settings(args, train=[], validation=[])
    assert settings["model"] == "recurrent"
    assert [settings[name] for name in ("similarity", "cell", "scheduled_sampling")] == [
        "none",
        "gru",
        0.25,
    ]
    bilinear = parsed(monkeypatch, "--model", "recurrent", "--similarity", "general")
    assert new_model(bilinear, vocab_size=20, **IDS).attention == "general"
    assert picture_title(bilinear) == "Where the decoder looks (general)"


def test_the_settings_of_a_transformer_are_as_before_so_that_its_runs_go_on(monkeypatch):
    args = parsed(monkeypatch)
    assert describe(args) == "Transformer, size mini"
    settings = run_settings(args, train=[], validation=[])
    assert not {"model", "similarity", "cell", "scheduled_sampling"} & set(settings)
    assert args.output == "runs/dates-en-fr"


@pytest.mark.parametrize(
    ("options", "rule"),
    [
        (["--similarity=dot"], "--similarity needs --model recurrent"),
        (["--model=transformer", "--cell=gru"], "--cell needs --model recurrent"),
        (["--scheduled-sampling=0"], "--scheduled-sampling needs --model recurrent"),
        (
            ["--model=recurrent", "--scheduled-sampling=1"],
            "--scheduled-sampling must be at least 0 and below 1",
        ),
        (
            ["--model=recurrent", "--scheduled-sampling=-0.1"],
            "--scheduled-sampling must be at least 0 and below 1",
        ),
    ],
)
def test_options_that_do_not_go_together_are_refused(options, rule, capsys, monkeypatch):
    with pytest.raises(SystemExit) as stopped:
        parsed(monkeypatch, *options)
    assert stopped.value.code == 2
    assert capsys.readouterr().err.splitlines()[-1].endswith(f"error: {rule}")


@pytest.mark.slow
@pytest.mark.parametrize("size", SIZES)
def test_a_recurrent_model_has_about_as_many_parameters_as_the_transformer(size, monkeypatch):
    vocab_size = (DATES if size == "mini" else FILES)["vocab_size"]
    theirs, ours = (
        new_model(parsed(monkeypatch, *more, "--size", size), vocab_size=vocab_size, **IDS)
        for more in ([], ["--model", "recurrent"])
    )
    assert ours.d_model == RECURRENT_SIZES[size]["d_model"]
    assert ours.count_params() == pytest.approx(theirs.count_params(), rel=0.03)


@pytest.fixture(scope="module")
def trained(corpus, tmp_path_factory):
    """A run of one epoch that another command takes to its second."""
    output = tmp_path_factory.mktemp("recurrent") / "run"
    options = ["--model", "recurrent", "--similarity", "scaled_dot", "--cell", "gru"]
    options += ["--scheduled-sampling", 0.1, "--beam", 2]
    first = run(TRAIN, *job(corpus, output, *options, "--epochs", 1))
    return output, options, first, run(TRAIN, *job(corpus, output, *options, "--epochs", 2))


@pytest.mark.slow
def test_a_stopped_run_goes_on_and_says_which_model_it_is(trained):
    output, _, first, again = trained
    assert first.returncode == 0, first.stdout + first.stderr
    assert again.returncode == 0, again.stdout + again.stderr
    model = "recurrent, GRU, scaled_dot attention, scheduled sampling 0.1, size mini"
    assert f"({model})" in first.stdout
    assert "Going on from epoch 1" in again.stdout
    assert f"Model: {model}\n" in (output / "README.txt").read_text(encoding="utf-8")
    assert (
        json.loads((output / "settings.json").read_text(encoding="utf-8"))["similarity"]
        == "scaled_dot"
    )
    with open(output / "history.csv", newline="", encoding="utf-8") as file:
        assert [row["epoch"] for row in csv.DictReader(file)] == ["1", "2"]
    assert (output / "attention.png").read_bytes().startswith(b"\x89PNG")
    names = [line.split(":")[0] for line in again.stdout.splitlines()[-4:]]
    assert names == ["Exact match", "chrF", "BLEU", "lower-cased BLEU"]


@pytest.mark.slow
def test_its_export_translates_in_a_process_of_its_own(trained, corpus):
    output = trained[0]
    from_file = run(TRANSLATE, output / "export" / "1", corpus / "test.en")
    assert from_file.returncode == 0, from_file.stderr
    assert from_file.stdout == (output / "translations.txt").read_text(encoding="utf-8")
    assert len(set(from_file.stdout.splitlines())) > 3
    best = run(TRANSLATE, output / "export" / "1", "--n-best", 2, "--scores", text="my cat\n")
    scores = [float(line.split("\t")[1]) for line in best.stdout.splitlines()]
    assert len(scores) == 2
    assert scores[0] >= scores[1]


@pytest.mark.slow
def test_another_similarity_or_model_is_another_run(trained, corpus):
    output, options, _, _ = trained
    other = run(TRAIN, *job(corpus, output, *options, "--similarity", "dot"))
    assert other.returncode == 1
    assert "holds another run: similarity was 'scaled_dot' and is 'dot'" in other.stderr
    transformer = run(TRAIN, *job(corpus, output))
    assert transformer.returncode == 1
    assert "model was 'recurrent' and is None" in transformer.stderr


@pytest.mark.slow
def test_without_attention_there_is_no_picture_of_it(corpus, tmp_path):
    options = ["--model", "recurrent", "--similarity", "none", "--epochs", 1]
    done = run(TRAIN, *job(corpus, tmp_path / "run", *options, "--batches-per-epoch", 4))
    assert done.returncode == 0, done.stdout + done.stderr
    assert not (tmp_path / "run" / "attention.png").exists()
    assert (tmp_path / "run" / "learning_curve.png").exists()
