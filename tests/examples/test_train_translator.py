"""The main job as a user runs it: real processes, interrupted, resumed, and given bad input."""

import csv
import json
import re
import signal
import sys
from types import SimpleNamespace

import keras
import numpy as np
import pytest

import train_translator
from keras_transformer import FusedAdam, RotaryPositionalEncoding
from keras_transformer.text import CharacterTokenizer
from tests.event_files import names_in_tensorboard
from tests.examples.translator_runs import TRAIN, TRANSLATE, job, run, run_and_stop
from train_options import SIZES, parse_arguments, run_name
from train_translator import reads_single_sentences, tokenizers
from translator_training import build_model, say_which_precision_pays

FILES = {
    "README.txt",
    "attention.png",
    "history.csv",
    "learning_curve.png",
    "model.keras",
    "settings.json",
    "source.tokenizer",
    "summary.txt",
    "translations.txt",
}


@pytest.fixture(scope="module")
def trained(corpus, tmp_path_factory):
    """A run of two epochs that was stopped by Ctrl-C in its second and then run again.

    Before it, in the same directory, a vocabulary that is refused.
    """
    output = tmp_path_factory.mktemp("runs") / "run"
    refused = run(TRAIN, *job(corpus, output, "--vocab-size", 5))
    assert refused.returncode == 1
    assert "error: `vocab_size` must be" in refused.stderr
    arguments = job(corpus, output, "--epochs", 2)
    status, interrupted = run_and_stop(TRAIN, *arguments, output=output, by=signal.SIGINT)
    return output, status, interrupted, run(TRAIN, *arguments)


@pytest.mark.slow
def test_a_run_stopped_and_started_again_ends_with_every_file(trained):
    output, status, interrupted, again = trained
    assert status == 130, interrupted
    assert "Interrupted. What was finished is in" in interrupted
    assert "Traceback" not in interrupted
    assert again.returncode == 0, again.stdout + again.stderr
    assert "Going on from epoch 1" in again.stdout
    names = {file.name for file in output.iterdir()}
    assert names >= FILES | {"export", "state.npz"}
    assert not [name for name in names if name.startswith(".")]
    with open(output / "history.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [row["epoch"] for row in rows] == ["1", "2"]
    assert {"loss", "val_loss", "val_perplexity", "learning_rate", "seconds"} <= set(rows[0])


@pytest.mark.slow
def test_it_says_what_it_left_out_and_ends_with_the_figures(trained):
    again = trained[-1]
    assert "2 training pairs have an empty line" in again.stdout
    assert "fewer than --vocab-size 5,000: going on with these" in again.stdout
    for shown in ("validation loss", "perplexity", "translated", "reference"):
        assert shown in again.stdout
    last = again.stdout.splitlines()[-4:]
    assert [line.split(":")[0] for line in last] == [
        "Exact match",
        "chrF",
        "BLEU",
        "lower-cased BLEU",
    ]
    assert "nrefs:1|case:lc" in last[-1]


@pytest.mark.slow
def test_the_export_translates_in_order_as_the_run_did(trained, corpus):
    output = trained[0]
    from_file = run(TRANSLATE, output / "export" / "1", corpus / "test.en", "--batch-size", 7)
    assert from_file.returncode == 0, from_file.stderr
    assert "40 lines translated" in from_file.stderr
    assert from_file.stdout == (output / "translations.txt").read_text(encoding="utf-8")
    translations = from_file.stdout.split("\n")[:-1]
    assert len(translations) == 40
    assert translations[5] == ""
    assert len(set(translations)) > 20

    piped = run(TRANSLATE, output / "export" / "1", "--n-best", 2, "--scores", text="my cat\n\n")
    rows = [line.split("\t") for line in piped.stdout.splitlines()]
    assert [row[0] for row in rows] == ["1", "1", "2", "2"]
    assert float(rows[0][1]) >= float(rows[1][1])
    best = run(TRANSLATE, output / "export" / "1", text="my cat\n")
    assert best.stdout == f"{rows[0][2]}\n"

    for data, what in (("my cat\n".encode("utf-16"), "UTF-16"), (b"\x1f\x8bx", "cannot be read")):
        (corpus / "other").write_bytes(data)
        refused = run(TRANSLATE, output / "export" / "1", corpus / "other")
        assert refused.returncode == 1
        assert what in refused.stderr.splitlines()[-1]

    text = "my cat . my dog .\n"
    alone = run(TRANSLATE, output / "export" / "1", text="my cat .\nmy dog .\n").stdout.split("\n")
    divided = run(TRANSLATE, output / "export" / "1", "--split-sentences", text=text)
    assert divided.stdout == f"{' '.join(alone[:2])}\n"

    too_many = run(TRANSLATE, output / "export" / "1", "--n-best", 9, text="my cat\n")
    assert too_many.returncode == 1
    expected = "error: --n-best must be at most 4, the beam of the model"
    assert too_many.stderr.splitlines()[-1].startswith(expected)


@pytest.mark.parametrize(
    ("sources", "given", "split"),
    [
        (["A dog runs."] * 20, [], True),
        (["A dog. It runs."] + ["A dog runs."] * 19, [], True),
        (["A dog. It runs."] * 4 + ["A dog runs."] * 16, [], False),
        (["A dog. It runs."] * 20, ["--split-sentences"], True),
        (["A dog runs."] * 20, ["--no-split-sentences"], False),
    ],
)
def test_the_export_divides_texts_where_the_training_had_single_sentences(
    sources, given, split, capsys
):
    args = arguments_of("--source", "a", "--target", "b", *given)
    assert reads_single_sentences(args, [(source, "") for source in sources]) is split
    shown = f"the export reads {'each sentence on its own' if split else 'texts whole'}"
    assert (shown in capsys.readouterr().out) == (not given)


def test_dates_are_read_whole():
    assert reads_single_sentences(arguments_of(), [("20. November", "")]) is False


@pytest.mark.slow
def test_the_recipe_of_the_paper_averages_accumulates_and_measures(corpus, tmp_path):
    """All options of a recipe at once, two vocabularies among them; killed it ends as the whole."""
    output = tmp_path / "run"
    recipe = ["--lowercase", "--accumulate", 2, "--average", 2, "--bleu-every", 1, "--beam", 2]
    recipe += ["--batches-per-epoch", 4, "--tensorboard", "--r-drop", 1, "--subword-dropout", 0.1]
    recipe += ["--separate-vocabularies", "--no-xla-export", "--bleu-tokenize", "char"]
    arguments = job(corpus, output, *recipe, "--epochs", 3)
    status, printed = run_and_stop(TRAIN, *arguments, output=output, by=signal.SIGKILL)
    assert status == -signal.SIGKILL, printed
    again = run(TRAIN, *arguments)
    assert again.returncode == 0, again.stdout + again.stderr
    assert re.search("Going on from epoch [12]", again.stdout)
    whole = run(TRAIN, *job(corpus, tmp_path / "whole", *recipe, "--epochs", 3))
    assert whole.returncode == 0, whole.stdout + whole.stderr
    parts, one = (
        np.load(run_directory / "epochs" / "weights-0003.npz")
        for run_directory in (output, tmp_path / "whole")
    )
    assert parts.files == one.files
    assert all(np.array_equal(parts[name], one[name]) for name in one.files)
    last = again.stdout.splitlines()[-1]
    assert "case:lc" in last
    assert "tok:char" in last
    names = {file.name for file in output.iterdir()}
    assert {"source.tokenizer", "target.tokenizer"} <= names
    from_file = run(TRANSLATE, output / "export" / "1", corpus / "test.en")
    assert from_file.stdout == (output / "translations.txt").read_text(encoding="utf-8")
    assert "(best so far)" in again.stdout
    assert {file.name for file in (output / "epochs").iterdir()} == {
        "weights-0002.npz",
        "weights-0003.npz",
    }
    with open(output / "history.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 3
    for name in ("val_bleu", "val_chrf", "tokens_per_second", "gradient_norm", "padding_ratio"):
        assert all(float(row[name]) >= 0 for row in rows), name
    assert set(names_in_tensorboard(output / "tensorboard" / "train")) >= {
        f"epoch_{name}"
        for name in ("loss", "padding_ratio", "tokens_per_second", "learning_rate", "gradient_norm")
    }
    best = max(range(3), key=lambda epoch: float(rows[epoch]["val_bleu"])) + 1
    assert json.loads((output / "model.keras.json").read_text(encoding="utf-8"))["epoch"] == best
    upper = run(TRANSLATE, output / "export" / "1", text="MY CAT\nmy cat\n").stdout.splitlines()
    assert upper[0] == upper[1] == upper[0].lower()
    other = run(TRAIN, *job(corpus, output, *recipe, "--epochs", 3, "--accumulate", 1))
    assert other.returncode == 1
    assert "holds another run: accumulate was 2 and is 1" in other.stderr
    assert json.loads((output / "settings.json").read_text(encoding="utf-8"))["accumulate"] == 2


def test_sources_may_be_normalised_more_than_targets(tmp_path):
    train = [("ﬁne １", "ｆein …")] * 20
    options = dict(source="a", start_from=None, vocab_size=60, lowercase=True)
    for rules, separate in ((("nfkc", "identity"), False), (("nmt_nfkc", "identity"), True)):
        directory = SimpleNamespace(path=tmp_path / rules[0])
        directory.path.mkdir()
        args = SimpleNamespace(
            **dict(zip(("source_normalization", "normalization"), rules, strict=True)),
            separate_vocabularies=separate,
            **options,
        )
        for _ in range(2):  # a run goes on with what it has
            source, target = tokenizers(directory, args, train)
            assert target.detokenize(target.tokenize(["ｆEIN …"])).numpy()[0].decode() == "ｆein …"
            assert source.detokenize(source.tokenize(["ﬁNE １"])).numpy()[0] == b"fine 1"
        assert (source.model == target.model) == (not separate)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--normalization", "nfc"], "need --source and --target"),
        (
            ["--source", "a", "--target", "b", "--source-normalization", "nmt_nfkc"],
            "--source-normalization must be one of identity, nfc, nfkc, or as --normalization",
        ),
    ],
)
def test_a_normalization_without_its_vocabulary_is_refused(arguments, message, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["train_translator.py", *arguments])
    with pytest.raises(SystemExit):
        parse_arguments("")
    assert message in capsys.readouterr().err


@pytest.mark.slow
def test_both_directions_come_first_and_two_parts_end_as_one(corpus, tmp_path):
    """Two epochs of twice the pairs, then one of the direction asked for; killed after one."""
    recipe = ["--both-directions", 2, "--average", 1, "--bleu-every", 3]
    recipe += ["--precision", "mixed_bfloat16"]
    output = tmp_path / "run"
    arguments = job(corpus, output, *recipe, "--epochs", 3)
    status, printed = run_and_stop(TRAIN, *arguments, output=output, by=signal.SIGKILL)
    assert status == -signal.SIGKILL, printed
    for name in ("run", "whole"):
        done = run(TRAIN, *job(corpus, tmp_path / name, *recipe, "--epochs", 3))
        assert done.returncode == 0, done.stdout + done.stderr
    # The last epoch of both directions is not the run's last, and killed there a run goes on.
    assert "epoch 3: bleu" in done.stdout
    assert "epoch 2: bleu" not in done.stdout
    parts, one = (
        np.load(tmp_path / output / "epochs" / "weights-0003.npz") for output in ("run", "whole")
    )
    assert parts.files == one.files
    assert all(np.array_equal(parts[name], one[name]) for name in one.files)
    with open(tmp_path / "whole" / "history.csv", newline="", encoding="utf-8") as file:
        tokens = [float(row["tokens"]) for row in csv.DictReader(file)]
    pairs = json.loads((tmp_path / "whole" / "settings.json").read_text(encoding="utf-8"))[
        "training_pairs"
    ]
    assert f"{2 * pairs:,} of {2 * pairs:,} pairs" in done.stderr
    assert tokens[0] == tokens[1]
    # The words backwards are as many tokens as the words are, but for the vocabulary.
    assert 1.8 < tokens[0] / tokens[2] < 2.2


@pytest.mark.slow
def test_a_run_may_start_from_another(trained, corpus, tmp_path):
    """It has the other's vocabulary and weights; a model of another size is refused."""
    before, start = trained[0], ["--start-from", trained[0], "--epochs", 1, "--warmup", 10]
    done = run(TRAIN, *job(corpus, tmp_path / "run", *start, "--peak", 1e-9))
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"Starting from the model of {before}" in done.stdout
    with (
        open(before / "history.csv", newline="", encoding="utf-8") as first,
        open(tmp_path / "run" / "history.csv", newline="", encoding="utf-8") as second,
    ):
        best = min(float(row["val_loss"]) for row in csv.DictReader(first))
        (row,) = csv.DictReader(second)
    assert float(row["val_loss"]) == pytest.approx(best, rel=1e-4)  # at a rate that is next to none
    before.rename(tmp_path / "moved")  # a run that has begun needs the other no more
    again = run(TRAIN, *job(corpus, tmp_path / "run", *start, "--peak", 1e-9))
    (tmp_path / "moved").rename(before)
    assert "Already trained: 1 epochs" in again.stdout, again.stdout + again.stderr
    for wrong, message in (
        (["--start-from", tmp_path], f"{tmp_path} holds no run with a model to start from"),
        ([*start, "--size", "tiny"], "is no run to start from: size was 'mini' and is 'tiny'"),
        ([*start, "--lowercase"], "is no run to start from: lowercase was False and is True"),
    ):
        refused = run(TRAIN, *job(corpus, tmp_path / "other", *wrong))
        assert refused.returncode == 1
        assert message in refused.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        ("missing", "there is no such file. Check the path."),
        ("unequal", "has 600 lines and"),
        ("invalid", "line 1 is not valid UTF-8. Convert the file"),
        ("not a run", "is no run of this program. Give another --output."),
        ("no pair", "no pair has text on both sides. Check both files."),
    ],
)
def test_bad_input_gives_one_clear_line(case, expected, corpus, tmp_path, monkeypatch):
    output = tmp_path / "run"
    source, target, more = corpus / "text.en", corpus / "text.xx", []
    if case == "missing":
        source = tmp_path / "nowhere"
    elif case == "unequal":
        target = tmp_path / "short"
        target.write_text("one\n", encoding="utf-8")
    elif case == "invalid":
        target = tmp_path / "latin"
        target.write_bytes("f\u00fcr\n".encode("latin-1") * 600)
    elif case == "not a run":
        output.mkdir()
        (output / "thesis.txt").write_text("precious", encoding="utf-8")
    else:
        blank = tmp_path / "blank"
        blank.write_text("\n \n", encoding="utf-8")
        more = ["--validation-source", blank, "--validation-target", blank]
    given = ["--source", source, "--target", target, "--output", output, *more]
    monkeypatch.setattr("sys.argv", ["train_translator.py", *map(str, given)])
    with pytest.raises(SystemExit) as ended:
        train_translator.main()
    assert ended.value.code.startswith("error: ")
    assert "\n" not in ended.value.code
    assert expected in ended.value.code


def test_one_side_alone_is_refused_in_one_line(corpus, tmp_path):
    done = run(TRAIN, "--source", corpus / "text.en", "--output", tmp_path / "run")
    assert done.returncode == 2
    assert "give both --source and --target, or neither" in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("option", "value", "rule"),
    [
        ("--epochs", 0, "--epochs must be at least 1"),
        ("--vocab-size", 0, "--vocab-size must be at least 1"),
        ("--max-length", 10, "--max-length must be at least 16"),
        ("--minutes", 0, "--minutes must be above 0"),
        ("--label-smoothing", 1, "--label-smoothing must be at least 0 and below 1"),
        ("--length-penalty", -1, "--length-penalty must be at least 0"),
        ("--seed", -1, "--seed must be at least 0"),
    ],
)
def test_a_bad_number_is_refused_before_anything_is_done(option, value, rule, capsys, monkeypatch):
    monkeypatch.setattr("sys.argv", ["train_translator.py", f"{option}={value}"])
    with pytest.raises(SystemExit) as stopped:
        parse_arguments("")
    assert stopped.value.code == 2
    assert capsys.readouterr().err.splitlines()[-1].endswith(f"error: {rule}")


@pytest.mark.parametrize(
    ("source", "target", "name"),
    [
        ("data/train.en", "data/train.de", "train-en-de-tiny"),
        ("train.en.gz", "train.de.gz", "train-en-de-tiny"),
        ("a/news.ja.gz", "b/news.ko", "news-ja-ko-tiny"),
    ],
)
def test_the_name_of_a_run_tells_its_languages(source, target, name):
    assert run_name(source, target, "tiny") == name


def arguments_of(*given):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["train_translator.py", *map(str, given)])
        return parse_arguments("")


def test_parts_of_the_recipe_may_be_given():
    given = ["--size", "tiny", "--peak", 0.005, "--warmup", 2000, "--dropout", 0.2, "--post-norm"]
    given += ["--r-drop", 5, "--subword-dropout", 0.1, "--position", "rotary", "--remat"]
    given += ["--both-directions", 2, "--start-from", "runs/other"]
    args, tokenizer = arguments_of(*given), CharacterTokenizer.train(["abc"])
    expected = {"peak": 0.005, "warmup": 2000, "dropout": 0.2, "pre_norm": False}
    expected |= {"r_drop": 5.0, "subword_dropout": 0.1, "position": "rotary"}
    expected |= {"both_directions": 2, "start_from": "runs/other"}
    assert args.own_recipe == expected
    model = build_model(args, tokenizer, tokenizer)
    assert (model.norm_first, model.dropout, model.r_drop) == (False, 0.2, 5.0)
    assert isinstance(model.encoder.position, RotaryPositionalEncoding)
    assert model.encoder.remat
    assert not build_model(arguments_of("--size", "tiny"), tokenizer, tokenizer).encoder.remat
    rates = [float(model.optimizer._learning_rate(step)) for step in (1999, 2000, 2001)]
    assert max(rates) == pytest.approx(0.005, rel=1e-3)
    assert rates[1] > rates[2]
    assert arguments_of("--size", "tiny").own_recipe == {}
    assert arguments_of("--position", "sinusoidal").own_recipe == {}
    for rates, recipe in ((["0", "0"], {}), ([0.1, 0.1], {"subword_dropout": 0.1})):
        assert arguments_of("--subword-dropout", *rates).own_recipe == recipe
    two_rates = arguments_of("--subword-dropout", 0.1, 0)
    assert two_rates.own_recipe == {"subword_dropout": [0.1, 0.0]}
    assert arguments_of("--size", "tiny", "--dropout", 0.3, "--pre-norm").own_recipe == {}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["--peak", "0"], "--peak must be a number above 0"),
        (["--peak", "inf"], "--peak must be a number above 0"),
        (["--warmup", "-1"], "--warmup must be a number above 0"),
        (["--dropout", "1"], "--dropout must be at least 0 and below 1"),
        (["--subword-dropout", "1"], "--subword-dropout must be at least 0 and below 1"),
        (["--subword-dropout", "0.1", "1"], "--subword-dropout must be at least 0 and below 1"),
        (["--subword-dropout", "0.1", "0", "0"], "two: of sources and of targets"),
        (["--both-directions", "-1"], "--both-directions must be at least 0"),
        (["--both-directions", "1", "--separate-vocabularies"], "needs one vocabulary"),
        (["--r-drop", "-1"], "--r-drop must be at least 0"),
        (["--model", "recurrent", "--r-drop", "1"], "--r-drop needs --model transformer"),
        (["--model", "recurrent", "--position", "rotary"], "--position needs --model transformer"),
        (["--model", "recurrent", "--remat"], "--remat needs --model transformer"),
        (["--model", "recurrent", "--pre-norm"], "need --model transformer"),
    ],
)
def test_a_bad_recipe_is_refused(given, message, capsys):
    with pytest.raises(SystemExit):
        arguments_of(*given)
    assert message in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("size", "widths", "dropout", "num_weights"),
    [
        ("mini", (2, 128, 4, 256), 0.1, 663_040),
        # Wu et al. 2021, "Good for Misconceived Reasons", table 1.
        ("tiny", (4, 128, 4, 256), 0.3, 1_325_568),
        ("small", (6, 512, 4, 1024), 0.3, 31_545_344),
        # Vaswani et al. 2017, table 3; what it counts has embeddings of 37,000 tokens besides.
        ("base", (6, 512, 8, 2048), 0.1, 44_138_496),
        ("big", (6, 1024, 16, 4096), 0.3, 176_357_376),
    ],
)
def test_every_size_is_the_published_one(size, widths, dropout, num_weights):
    # An attention has a = 4 (d d + d) weights, a feed-forward network f = 2 d d_ff + d_ff + d and a
    # norm n = 2 d. Layers: L (3 a + 2 f + 5 n), and two norms more where they come first.
    args = arguments_of("--size", size)
    tokenizer = CharacterTokenizer.train(["abc"])
    model = build_model(args, tokenizer, tokenizer)
    assert (model.num_layers, model.d_model, model.num_heads, model.d_ff) == widths
    assert (args.dropout, model.dropout) == (dropout, dropout)
    assert model.count_params() - tokenizer.vocab_size * model.d_model == num_weights
    assert model.jit_compile == (size in ("mini", "tiny"))  # on a processor, as tests are
    schedule, warmup = model.optimizer._learning_rate, SIZES[size]["warmup"]
    peak = SIZES[size]["peak"] or (SIZES[size]["d_model"] * warmup) ** -0.5
    assert float(schedule(warmup)) == pytest.approx(peak, rel=1e-2)
    assert float(schedule(2 * warmup)) < peak


@pytest.mark.parametrize(
    ("precision", "compute", "compiled"),
    [
        ("float32", "float32", True),
        ("mixed_bfloat16", "bfloat16", False),  # on a processor XLA gains nothing from it
        ("mixed_float16", "float16", True),
    ],
)
def test_a_precision_is_the_model_s_and_float16_scales_its_loss(precision, compute, compiled):
    args, tokenizer = arguments_of("--precision", precision), CharacterTokenizer.train(["abc"])
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(args.precision)  # as the program does
    try:
        model = build_model(args, tokenizer, tokenizer)
    finally:
        keras.config.set_dtype_policy(before)
    assert (model.compute_dtype, model.variable_dtype) == (compute, "float32")
    assert model.encoder.compute_dtype == compute
    assert model.jit_compile == compiled
    is_scaled = isinstance(model.optimizer, keras.optimizers.LossScaleOptimizer)
    assert is_scaled == (precision == "mixed_float16")
    optimizer = model.optimizer.inner_optimizer if is_scaled else model.optimizer
    assert isinstance(optimizer, FusedAdam)


@pytest.mark.parametrize(
    ("flags", "precision", "size", "said"),
    [
        ("fpu avx512f avx512_bf16", "float32", "base", "--precision mixed_bfloat16 is about 1.5"),
        ("fpu avx512f avx512_bf16", "float32", "tiny", ""),
        ("fpu avx512f avx512_bf16", "mixed_bfloat16", "base", ""),
        ("fpu avx2", "mixed_bfloat16", "base", "has no instructions for bfloat16"),
        ("fpu avx2", "float32", "base", ""),
        (None, "mixed_bfloat16", "base", ""),
    ],
)
def test_it_says_which_precision_the_processor_is_made_for(
    flags, precision, size, said, tmp_path, capsys
):
    cpuinfo = tmp_path / "cpuinfo"
    if flags is not None:
        cpuinfo.write_text(f"model name : a processor\nflags : {flags}\n", encoding="utf-8")
    say_which_precision_pays(arguments_of("--precision", precision, "--size", size), cpuinfo)
    printed = capsys.readouterr().out
    assert said in printed
    assert bool(said) == bool(printed)


def test_accumulation_in_float16_is_refused(capsys):
    with pytest.raises(SystemExit):
        arguments_of("--precision", "mixed_float16", "--accumulate", 2)
    assert "--accumulate goes with float32 or mixed_bfloat16" in capsys.readouterr().err


@pytest.mark.slow
def test_the_default_learns_dates_within_its_promise(tmp_path):
    done = run(TRAIN, "--output", tmp_path / "dates")
    assert done.returncode == 0, done.stderr
    figure = done.stdout.splitlines()[-1]
    assert figure.startswith("Exact match: ")
    assert float(figure.split()[2].rstrip("%")) >= 98.0
