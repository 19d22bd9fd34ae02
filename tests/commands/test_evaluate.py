import numpy as np
import pytest

from keras_transformer.commands.evaluate import NAMES
from keras_transformer.recipes.evaluation import METRICS
from keras_transformer.recipes.settings import Settings
from tests.serving.trained import answer, translator, words


@pytest.fixture
def files(tmp_path):
    def write(**texts):
        for name, lines in texts.items():
            (tmp_path / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        return [str(tmp_path / name) for name in texts]

    return write


@pytest.mark.slow
def test_translations_of_a_file_and_of_a_model_have_the_same_figures(run_directory, files, figures):
    sources = words(30, seed=11)
    references = [answer(word) for word in sources]
    source, reference, ours = files(
        source=sources, reference=references, ours=translator()(sources)
    )
    by_file = figures("evaluate", "--translations", ours, "--reference", reference)
    by_model = figures("evaluate", run_directory, "--source", source, "--reference", reference)
    assert by_file == by_model
    assert list(by_file) == [
        "exact_match",
        "word_error_rate",
        "character_error_rate",
        "chrf",
        "bleu",
    ]
    assert by_file["exact_match"]["value"] == 100 - by_file["word_error_rate"]["value"] > 80


def test_intervals_and_a_baseline_are_printed(files, command):
    ours, theirs, reference = files(ours="abcdefgh", theirs="abcdxxxx", reference="abcdefgx")
    status, out, _ = command(
        "evaluate", "--translations", ours, "--baseline", theirs, "--reference", reference,
        "--metrics", "exact_match", "chrf", "--bootstrap", 100,
    )  # fmt: skip
    assert status == 0
    exact, chrf = out.splitlines()
    assert exact.startswith("exact match   87.50  \u00b1 ")
    assert "baseline 62.50" in exact
    assert "p = " in exact
    assert chrf.startswith("chrf")


def test_the_command_has_the_metrics_of_the_function():
    assert NAMES == METRICS


@pytest.fixture
def symbols(tmp_path):
    """The directory of a run of characters, with the test that it was measured on."""
    settings = Settings.from_preset(train="words.tsv", format="characters")
    (tmp_path / "settings.toml").write_text(settings.to_toml(), encoding="utf-8")
    rows = ["source\treference\toutput", "a b\tb a\tb a", "c d\td c\tc c"]
    text = "".join(f"{row}\n" for row in rows)
    (tmp_path / "predictions.tsv").write_text(text, encoding="utf-8")
    (tmp_path / "model.keras").touch()
    return tmp_path


def test_a_run_alone_is_measured_on_its_own_test(symbols, figures, command):
    found = figures("evaluate", symbols, "--metrics", "exact_match", "word_error_rate")
    assert [found[name]["value"] for name in found] == [50, 25]
    (symbols / "predictions.tsv").unlink()
    status, _, err = command("evaluate", symbols)
    assert (status, err.count("\n")) == (1, 1)
    assert "has no predictions.tsv of a run. Give --source and --reference" in err


def test_a_model_of_symbols_reads_and_writes_what_the_files_hold(
    symbols, files, figures, command, monkeypatch
):
    from keras_transformer.recipes import runs

    class Reversing(dict):
        """The signatures of a model that writes symbols in the other order."""

        def __missing__(self, name):
            def function(text):
                turned = [" ".join(t.decode().split()[::-1]).encode() for t in text.numpy()]
                names = ("translations", "scores", "truncated", "translation")
                rows = [[[t] for t in turned], [[0.0]] * len(turned), [False] * len(turned), turned]
                return dict(zip(names, map(np.array, rows), strict=True))

            return function

    monkeypatch.setattr(runs, "open_signatures", lambda *given, **options: Reversing())
    source, reference = files(source=["ab", "c d"], reference=["ba", "d c"])
    given = ("--source", source, "--reference", reference, "--metrics", "exact_match")
    assert figures("evaluate", symbols, *given)["exact_match"]["value"] == 100
    assert command("translate", symbols, source)[1] == "ba\nd c\n"
    assert command("translate", symbols, "--raw", text=b"a b\n")[1] == "b a\n"
    status, _, err = command("translate", symbols, source, "--alignments")
    assert (status, err) == (
        1,
        "error: --alignments needs --raw for a model of the format characters\n",
    )


def test_a_bad_line_of_inflection_is_told_with_its_number(symbols, files, command, monkeypatch):
    from keras_transformer.recipes import runs

    monkeypatch.setattr(runs, "open_signatures", lambda *given, **options: {})
    settings = Settings.from_preset(train="words.tsv", format="inflection")
    (symbols / "settings.toml").write_text(settings.to_toml(), encoding="utf-8")
    source, reference = files(source=["go\tV", "go\twent\tV"], reference=["goes", "went"])
    given = (
        (symbols, "--source", source, "--reference", reference),
        (symbols, source),
    )
    for name, arguments in zip(("evaluate", "translate"), given, strict=True):
        status, _, err = command(name, *arguments)
        assert (status, err.count("\n")) == (1, 1)
        assert f"{source}: line 2 must have a lemma, or a lemma and its tags" in err


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([], "give either MODEL or --translations"),
        (["--source", "x", "--translations", "y"], "--source needs MODEL"),
        (["nowhere"], "MODEL with --reference needs --source, the texts to translate"),
        (["nowhere", "--source", "x"], "there is no such directory"),
        (["--translations", "nowhere"], "there is no such file"),
        (["--translations", "{reference}", "--baseline", "nowhere"], "there is no such file"),
        (["--translations", "{reference}", "--beam-size", "2"], "need MODEL"),
        (["--translations", "{reference}", "--bootstrap", "1"], "must be 0 or at least 2"),
        (["--translations", "{shorter}"], "Give files of equal length"),
    ],
)
def test_what_does_not_go_together_is_refused(given, message, files, command):
    reference, shorter = files(reference=["a", "b"], shorter=["a"])
    given = [option.format(reference=reference, shorter=shorter) for option in given]
    status, _, err = command("evaluate", *given, "--reference", reference)
    assert status == 1
    assert message in err
