"""Learning curves show every form of history, of one run or of several."""

from types import SimpleNamespace

import keras
import numpy as np
import pytest

pytest.importorskip("matplotlib")

from keras_transformer import plots
from tests.figure_files import saved_png, saved_svg, texts_of

HISTORY = {
    "loss": [4.0, 3.0, 2.0],
    "val_loss": [3.5, 2.5, 2.6],
    "masked_accuracy": [0.1, 0.2, 0.3],
    "val_perplexity": [100.0, 30.0, 5.0],
    "learning_rate": [0.1, 0.2, 0.15],
    "seconds": [60.0, 61.0, 62.0],
}
PANELS = ["loss", "perplexity", "masked accuracy", "learning rate"]


def history_file(folder, columns, start):
    values = zip(range(start, start + 3), *columns.values(), strict=True)
    rows = [",".join(map(str, row)) for row in [["epoch", *columns], *values]]
    path = folder / "history.csv"
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")
    return path


@pytest.mark.parametrize("form", ["dict", "fit", "rows", "csv from 0", "csv from 1"])
def test_learning_curve_reads_every_form_of_history(form, tmp_path):
    history = {
        "dict": lambda: HISTORY,
        "fit": lambda: SimpleNamespace(history=HISTORY),
        "rows": lambda: [{k: v[i] for k, v in HISTORY.items()} for i in range(3)],
        "csv from 0": lambda: history_file(tmp_path, HISTORY, 0),
        "csv from 1": lambda: str(history_file(tmp_path, HISTORY, 1)),
    }[form]()
    figure = plots.learning_curve(history)
    assert [axes.get_ylabel() for axes in figure.axes] == PANELS
    training, validation = figure.axes[0].lines
    assert training.get_xdata().tolist() == [1, 2, 3]
    assert training.get_ydata().tolist() == [4, 3, 2]
    assert validation.get_ydata().tolist() == [3.5, 2.5, 2.6]
    assert validation.get_label() == "validation (best 2.5)"
    assert figure.axes[2].lines[0].get_label() == "training (best 0.3)"
    assert figure.axes[1].get_yscale() == "log"  # 100 is more than ten times 5
    saved_png(figure)


def test_learning_curve_of_one_epoch_has_one_tick():
    figure = plots.learning_curve({"loss": [2.0], "val_loss": [float("nan")]})
    figure.canvas.draw()
    assert len(figure.axes[0].lines) == 1
    assert 1 in figure.axes[0].get_xticks()
    saved_png(figure)


def test_a_line_joins_the_epochs_that_were_measured():
    rows = [
        {"loss": 3.0, "val_loss": ""},
        {"loss": 2.0, "val_loss": 1.5},
        {"loss": 1.0, "val_loss": "NA"},
        {"loss": 0.5, "val_loss": 1.0},
    ]
    for figure in (plots.learning_curve(rows), plots.learning_curves({"run": rows})):
        line = figure.axes[0].lines[1]
        np.testing.assert_array_equal(line.get_xdata(), [2, 4])
        np.testing.assert_array_equal(line.get_ydata(), [1.5, 1.0])


def test_of_a_word_error_rate_the_lowest_is_the_best():
    figure = plots.learning_curve({"loss": [3.0, 2.0], "val_word_error_rate": [40.0, 50.0]})
    (text,) = figure.axes[1].get_legend().get_texts()
    assert text.get_text() == "validation (best 40)"


@pytest.mark.parametrize(
    ("history", "message"),
    [
        ({"val_loss": [1.0]}, "column loss.*Received: {'val_loss': 1}"),
        ([], "column loss.*Received: {}"),
        ({"loss": []}, "column loss.*Received: {}"),
        ({"loss": [1.0, 2.0], "val_loss": [1.0]}, "equal length.*{'loss': 2, 'val_loss': 1}"),
        ({"loss": ["low"]}, "hold numbers. Received: loss='low'"),
        ({"loss": [[1.0, 2.0]]}, r"hold numbers. Received: loss=\[1.0, 2.0\]"),
        ({"loss": 3.0}, "hold a list of numbers for each name. Received: loss=3.0"),
        ({"loss": None}, "hold a list of numbers for each name. Received: loss=None"),
        ([[3.0, 2.0]], r"must be what `fit` returned.*Received: history=\[\[3.0, 2.0\]\]"),
        ([3.0, 2.0], r"must be what `fit` returned.*Received: history=\[3.0, 2.0\]"),
        (None, "must be what `fit` returned.*Received: history=None"),
        (3.0, "must be what `fit` returned.*Received: history=3.0"),
    ],
)
def test_history_that_cannot_be_drawn_raises(history, message):
    with pytest.raises(ValueError, match=message):
        plots.learning_curve(history)


RUNS = {
    "base": {"loss": [4.0, 3.0, 2.0], "val_loss": [3.5, 2.5, 2.6], "val_bleu": [1.0, 5.0, 4.0]},
    "опыт": [{"loss": 3.0, "lr": 0.1}, {"loss": 2.75, "lr": 0.2}],
}


def named_lines(panel):
    return {line.get_label(): line for line in panel.lines if not line.get_label().startswith("_")}


def test_learning_curves_have_a_panel_a_metric_and_a_colour_a_run():
    figure = plots.learning_curves({**RUNS, "опыт": {"loss": [3.0, 2.75], "lr": [0.1, 0.2]}})
    loss, bleu, rate = figure.axes
    assert [panel.get_ylabel() for panel in figure.axes] == ["loss", "bleu", "learning rate"]
    lines = named_lines(loss)
    assert list(lines) == ["base: 2.5", "опыт: 2.75"]
    assert lines["base: 2.5"].get_ydata().tolist() == [3.5, 2.5, 2.6]
    assert lines["опыт: 2.75"].get_ydata().tolist() == [3.0, 2.75]
    assert lines["опыт: 2.75"].get_xdata().tolist() == [1, 2]
    assert [line.get_linestyle() for line in loss.lines] == ["--", "-", "--"]
    assert loss.lines[0].get_ydata().tolist() == [4.0, 3.0, 2.0]  # training, of the same colour
    assert loss.lines[0].get_color() == loss.lines[1].get_color() != loss.lines[2].get_color()
    assert list(named_lines(bleu)) == ["base: 5"]  # the highest is the best
    assert list(named_lines(rate)) == ["опыт"]
    assert named_lines(rate)["опыт"].get_color() == loss.lines[2].get_color()


def test_learning_curves_name_the_runs_beside_each_panel_and_the_kinds_of_line(tmp_path):
    figure = plots.learning_curves({"a": RUNS["base"], "$b$": RUNS["base"]})
    loss = figure.axes[0].get_legend()
    assert texts_of(loss.get_texts()) == ["a: 2.5", "$b$: 2.5"]
    assert loss.get_title().get_text() == "best"
    (kinds,) = figure.legends
    assert texts_of(kinds.get_texts()) == ["validation", "training"]
    assert "$b$: 2.5" in saved_svg(figure, tmp_path / "curves.svg")[1]
    saved_png(figure)


def test_learning_curves_read_every_form_of_history(tmp_path):
    path = history_file(tmp_path, HISTORY, 0)
    fitted = SimpleNamespace(history=HISTORY)
    figure = plots.learning_curves({"dict": HISTORY, "file": path, "fit": fitted})
    assert [axes.get_ylabel() for axes in figure.axes] == PANELS
    for panel in figure.axes:
        lines = list(named_lines(panel).values())
        assert len(lines) == 3
        for line in lines[1:]:
            np.testing.assert_array_equal(line.get_xydata(), lines[0].get_xydata())


def test_thirteen_runs_differ_in_colour_or_marker():
    runs = {str(n): {"loss": [3.0, 2.0 + n], "val_loss": [3.0, n]} for n in range(13)}
    lines = named_lines(plots.learning_curves(runs).axes[0]).values()
    assert len({(line.get_color(), line.get_marker()) for line in lines}) == 13


@pytest.mark.parametrize("histories", [{}, [HISTORY], None])
def test_histories_are_a_dict_of_runs(histories):
    with pytest.raises(ValueError, match="`histories` must be a dict.*Received: histories="):
        plots.learning_curves(histories)


def test_a_history_of_several_that_cannot_be_drawn_is_named():
    with pytest.raises(ValueError, match=r"`histories\['b'\]` must have a column.*Received: {}"):
        plots.learning_curves({"a": {"loss": [1.0]}, "b": {}})
    with pytest.raises(ValueError, match=r"`histories\['a'\]` must hold.*Received: loss='x'"):
        plots.learning_curves({"a": {"loss": ["x"]}})


def test_the_epochs_are_those_of_fit():
    def fit(history, first, last):
        model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse", run_eagerly=keras.backend.backend() == "tensorflow")
        plan = dict(initial_epoch=first, epochs=last, verbose=0, callbacks=[history])
        model.fit(np.ones((2, 1)), np.ones((2, 1)), **plan)
        return history

    def epochs_of(drawn):
        figures = plots.learning_curve(drawn), plots.learning_curves({"run": drawn})
        first, second = (figure.axes[0].lines[0].get_xdata().tolist() for figure in figures)
        assert first == second
        return first

    later = fit(keras.callbacks.History(), 5, 8)
    assert epochs_of(later) == [6, 7, 8]
    assert epochs_of(later.history) == [1, 2, 3]  # a dict does not tell
    both = fit(fit(keras.callbacks.History(), 0, 2), 2, 4)
    assert both.epoch == [2, 3]  # of the second `fit` alone
    assert epochs_of(both) == [1, 2, 3, 4]


def test_a_column_that_tells_the_measured_epochs_is_followed_and_not_drawn():
    history = {
        "loss": [5.0, 4.0, 3.0, 2.0],
        "val_bleu": [20.0, 20.0, 20.0, 15.0],
        "val_bleu_epoch": [5, 5, 8, 9],  # a training run that goes on after epoch 6
        "epoch": [7, 8, 9, 10],
    }
    for figure in (plots.learning_curve(history), plots.learning_curves({"run": history})):
        assert [panel.get_ylabel() for panel in figure.axes] == ["loss", "bleu"]
        (line,) = figure.axes[1].lines
        assert line.get_xydata().tolist() == [[5, 20], [8, 20], [9, 15]]
    # A file may begin with rows that did not tell.
    history |= {"val_bleu": ["", 18.0, 20.0, 20.0], "val_bleu_epoch": ["", "", 9, 9]}
    (line,) = plots.learning_curve(history).axes[1].lines
    assert line.get_xydata().tolist() == [[8, 18], [9, 20]]


def test_a_run_whose_name_begins_with_an_underscore_is_in_the_legends(tmp_path):
    runs = {"_base": {**RUNS["base"], "lr": [0.1, 0.2, 0.3]}, "__": {"loss": [3.0], "lr": [0.1]}}
    figure = plots.learning_curves(runs)
    legends = [texts_of(panel.get_legend().get_texts()) for panel in figure.axes]
    assert legends == [["_base: 2.5", "__: 3"], ["_base: 5"], ["_base", "__"]]
    handles = figure.axes[0].get_legend().legend_handles
    validation, other = figure.axes[0].lines[1:]
    assert [line.get_color() for line in handles] == [validation.get_color(), other.get_color()]
    assert {"_base: 2.5", "__: 3", "_base", "__"} < set(saved_svg(figure, tmp_path / "a.svg")[1])
