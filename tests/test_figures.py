"""The figures of README and docs are what their script draws, and lead to files."""

import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from tests.backends import on_tensorflow
from tests.scripts import load_script

pytestmark = on_tensorflow  # the figures are the same whatever the backend

DOCS = Path(__file__).resolve().parents[1] / "docs"


@pytest.fixture(scope="module")
def figures():
    return load_script(DOCS / "figures.py")


def drawn(figures):
    recording = figures.RECORDING.read_text(encoding="utf-8")
    return {
        "pictures/architecture.svg": figures.architecture(),
        "pictures/dates.svg": figures.recording(recording),
        "pictures/scaling.svg": figures.scaling(),
        "pictures/learning.svg": figures.learning(),
        "pictures/results.svg": figures.results(),
        "pictures/training_speed.svg": figures.training_speed(),
        "pictures/ways_in_and_out.svg": figures.ways_in_and_out(),
        "favicon.svg": figures.favicon(),
    }


def test_the_figures_are_those_that_the_script_draws(figures):
    for name, text in drawn(figures).items():
        assert (DOCS / name).read_text(encoding="utf-8") == text, f"run {figures.__file__}"


def test_every_figure_is_well_formed_and_has_a_title(figures):
    for text in drawn(figures).values():
        root = ElementTree.fromstring(text)
        assert root.get("aria-label")
        assert root[0].tag.endswith("title")


def test_the_table_and_the_picture_of_many_devices_are_of_one_calculation(figures):
    page = (DOCS / "scale.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (base|big), (\d+) GB/s \| (.+) \|$", page, re.MULTILINE)
    assert len(rows) == len(figures.SIZES) * len(figures.BANDWIDTHS)
    for size, bandwidth, cells in rows:
        most = figures.BANDWIDTHS[float(bandwidth) * 1e9][1]
        numbers = [n for n in (1, 2, 8, 32) if n <= most]
        speeds = [figures.tokens_per_second(size, n, float(bandwidth) * 1e9) for n in numbers]
        expected = [f"{speed / speeds[0]:.1f}" for speed in speeds[1:]]
        assert cells.split(" | ") == expected + ["–"] * (3 - len(expected))
        told = f"{speeds[-1] / 1e6:.1f} million"
        assert told in ElementTree.fromstring(figures.scaling()).get("aria-label")


def test_every_link_of_the_architecture_leads_to_a_file(figures):
    links = re.findall(r"<a href='([^']+)'", figures.architecture())
    assert len(links) > 20
    for link in links:
        assert (DOCS / "pictures" / link).resolve().is_file(), link


def test_a_box_of_no_file_is_refused(figures):
    with pytest.raises(ValueError, match=r"`file` must be .* Received: file=none\.py"):
        figures.box(0, 0, "None", "none.py", figures.GREY)


def test_a_recording_shows_every_line_and_escapes_it(figures):
    text = figures.recording('$ echo "a < b"\na < b\n')
    assert "a &lt; b" in text
    assert (text.count("<text x="), text.count("<text class='line'")) == (1, 1)
    assert "echo" in "".join(ElementTree.fromstring(text).itertext())


def test_a_recording_keeps_the_first_example_of_few_epochs(figures):
    def epoch(number):
        said = f"  epoch {number}: validation cross-entropy 0.5 a token, perplexity 1.65"
        examples = [f"    {part} {pair}" for pair in "ab" for part in ("source", "translated")]
        return [
            "Epoch 1/5",
            f"  epoch {number}, batch 2: loss 1",
            said,
            *examples,
            "2/2 - 1s - loss: 1",
        ]

    lines = [
        "Reading ...",
        "",
        "x" * 101,
        *(line for number in range(1, 7) for line in epoch(number)),
    ]
    shown = figures.kept([*lines, "Test: 99 %"])
    assert shown[:4] == ["Reading ...", epoch(1)[2], "    source a", "    translated a"]
    assert shown[-5:] == ["  ...", epoch(6)[2], "    source a", "    translated a", "Test: 99 %"]
    assert len(shown) == 1 + 3 * 3 + 1 + 3 + 1
    assert figures.kept(["a translation"]) == ["a translation"]
