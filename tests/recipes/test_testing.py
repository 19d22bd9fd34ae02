"""The test of a run: how its export reads texts. What it leaves is tested with the training."""

import pytest

from keras_transformer.recipes.settings import Settings
from keras_transformer.recipes.testing import reads_single_sentences


@pytest.mark.parametrize(
    ("sources", "given", "split"),
    [
        (["A dog runs."] * 20, None, True),
        (["A dog. It runs."] + ["A dog runs."] * 19, None, True),
        (["A dog. It runs."] * 4 + ["A dog runs."] * 16, None, False),
        (["A dog. It runs."] * 20, True, True),
        (["A dog runs."] * 20, False, False),
    ],
)
def test_the_export_divides_texts_where_the_training_had_single_sentences(
    sources, given, split, capsys
):
    settings = Settings.from_preset(train=("a", "b"), split_sentences=given)
    assert reads_single_sentences(settings, [(source, "") for source in sources]) is split
    shown = f"the export reads {'each sentence on its own' if split else 'texts whole'}"
    assert (shown in capsys.readouterr().out) == (given is None)


def test_dates_are_read_whole():
    assert reads_single_sentences(Settings.from_preset(), [("20. November", "")]) is False
