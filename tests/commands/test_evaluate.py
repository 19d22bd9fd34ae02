import pytest

from keras_transformer.commands.evaluate import NAMES
from keras_transformer.recipes.evaluation import METRICS
from tests.serving.trained import answer, translator, words


@pytest.fixture
def files(tmp_path):
    def write(**texts):
        for name, lines in texts.items():
            (tmp_path / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        return [str(tmp_path / name) for name in texts]

    return write


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


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([], "give either MODEL with --source, or --translations"),
        (["nowhere"], "--source needs MODEL, and MODEL needs --source"),
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
