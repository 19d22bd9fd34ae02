"""The benchmarks of fine-tuning, of low-rank training and of the ways out, on a few sentences."""

import re
import subprocess
import sys

import pytest

pytest.importorskip("accelerate")  # of Hugging Face's Trainer
pytest.importorskip("ctranslate2")
pytest.importorskip("sacrebleu")

pytestmark = pytest.mark.long  # what the default and slow runs have, together
NUM_PAIRS, NUM_HELD_OUT = 600, 24


@pytest.fixture(scope="module")
def data(shared, tmp_path_factory):
    """A small Multi30K."""
    folder = tmp_path_factory.mktemp("data")
    for part in ("train", "val", "test_2016_flickr"):
        for language in ("en", "de"):
            name = f"{part}.{language}"
            text = shared(f"data/multi30k/{name}").read_text(encoding="utf-8")
            number = NUM_PAIRS if part == "train" else NUM_HELD_OUT
            lines = text.splitlines()[:number]
            (folder / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def fine_tuned(data, tmp_path_factory):
    """What the benchmark of fine-tuning writes and prints."""
    folder = tmp_path_factory.mktemp("fine-tuned")
    options = ["--epochs-there", "1", "--epochs-here", "2", "--vocab-size", "600"]
    return folder, printed("fine_tuning", "--data", data, "--output", folder, *options)


def printed(name, *arguments):
    command = [sys.executable, "-m", f"benchmarks.{name}", *arguments]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, encoding="utf-8").stdout


def test_fine_tuning_goes_on_where_hugging_face_ends(fine_tuned):
    _, text = fine_tuned
    there, loaded, first, second = map(float, re.findall("validation loss ([0-9.]+)", text))
    assert loaded == pytest.approx(there, abs=2e-4)
    assert second < first < loaded
    assert f"{NUM_HELD_OUT} of {NUM_HELD_OUT} translations are those of there" in text
    # The logits of old pieces, with 200 new ones. Some processors add wider products otherwise.
    (difference,) = re.findall("differ by at most ([0-9.e+-]+)", text)
    assert float(difference) < 1e-5
    assert re.search(r"\d+ texts with new pieces, asked through `serve`: as in Python: True", text)
    assert len(re.findall("SavedModel, .*; as in Python: True", text)) == 2


def test_a_low_rank_change_leaves_on_three_ways(fine_tuned, data, tmp_path):
    directory, _ = fine_tuned
    options = ["--epochs", "1", "--ways", "rank 16, all matrices"]
    text = printed(
        "low_rank", directory / "hugging-face", "--data", data, "--output", tmp_path, *options
    )
    (row,) = [line for line in text.splitlines() if line.startswith("| rank 16, all matrices |")]
    # Queries, keys and values go from 256 to 4 heads of 64. A change has 16 columns for each head
    # and 16 rows of 64. The three attentions of a pair of layers have an output each, and
    # there are two feed-forward networks.
    attention = 3 * (4 * 256 + 64) + (256 + 256)
    assert row.split(" | ")[1] == f"{3 * 16 * (3 * attention + 4 * (256 + 512)):,}"
    same = re.findall(f": ([0-9]+) of {NUM_HELD_OUT} translations the same", text)
    assert same == [str(NUM_HELD_OUT)] * 3

    options = ["--source", data / "val.en", "--target", data / "val.de", "--rounds", "1"]
    text = printed(
        "ways_out", tmp_path / "run", *options, "--output", tmp_path / "out",
        "--engines", "saved-model", "run", "saved-model-early", "hugging-face", "ctranslate2",
    )  # fmt: skip
    out, back = re.search("back: ([0-9]+) of ([0-9]+) weights the same bits", text).groups()
    assert out == back
    assert f"| Hugging Face | {NUM_HELD_OUT} |" in text
    assert f"| SavedModel of the run itself | {NUM_HELD_OUT} |" in text  # epsilon 1e-5 already
    early = rf"CTranslate2: \d+ of {NUM_HELD_OUT} translations are those of our SavedModel, early"
    assert re.search(early, text)
