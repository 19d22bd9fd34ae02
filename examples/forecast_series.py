"""Forecasts time series: an `Encoder` over numbers, with an explicit `padding_mask`.

The series are made on the spot: a daily and a weekly season, a trend and noise, all of random
size. The histories differ in length, and the mask says where each begins. Runs on any Keras
backend, on two cores in about two minutes with TensorFlow; nothing to download:

    python examples/forecast_series.py --output runs/forecast

A picture of four forecasts goes to forecast.png in the output directory.
"""

import argparse
import os
from pathlib import Path
from typing import NamedTuple

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
from matplotlib.figure import Figure

from keras_transformer import Encoder, PositionalEncoding
from keras_transformer.checks import check_padding_invariance

DAY, WEEK = 8, 56  # a value every three hours
LONGEST = 2 * WEEK  # values of history; the shortest has a week
HORIZON = 3 * DAY  # values to forecast
NUM_TRAINING, NUM_TEST = 8000, 1000
BATCH_SIZE = 64
GREY, BLUE, ORANGE = "#777777", "#0072B2", "#D55E00"  # told apart by all eyes


class Series(NamedTuple):
    """Series whose history the model sees, padded on the left: all end at the present."""

    history: np.ndarray  # (series, LONGEST), NaN at padding
    padding_mask: np.ndarray  # (series, LONGEST), True at values
    future: np.ndarray  # (series, HORIZON)
    noise: np.ndarray  # (series, HORIZON), what of the future is chance


def main():
    """Makes the series, trains, tests, and draws."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=1, help="of the series and the model")
    parser.add_argument("--epochs", type=int, default=8, help="passes over the series")
    parser.add_argument("--output", type=Path, default="runs/forecast", help="directory to fill")
    args = parser.parse_args()
    args.output.mkdir(parents=True, exist_ok=True)
    keras.utils.set_random_seed(args.seed)
    random = np.random.default_rng(args.seed)

    train, test = make_series(NUM_TRAINING, random), make_series(NUM_TEST, random)
    model = build_model(num_updates=args.epochs * NUM_TRAINING // BATCH_SIZE)
    print(f"Training a model of {model.count_params():,} parameters on {NUM_TRAINING:,} series ...")
    inputs, mean, deviation = standardise(train)
    targets = (train.future - mean) / deviation
    model.fit(inputs, targets, batch_size=BATCH_SIZE, epochs=args.epochs, verbose=2)

    inputs, mean, deviation = standardise(test)
    few = {name: part[:4] for name, part in inputs.items()}
    leak = check_padding_invariance(model, few, tolerance=1e-4, side="left")
    print(f"More padding, or none, changes no forecast by more than {leak:.1e} deviations.")
    forecast = model.predict(inputs, verbose=0) * deviation + mean
    draw(test, forecast).savefig(args.output / "forecast.png", dpi=120)
    print(f"Wrote {args.output / 'forecast.png'}")
    last_value, last_week = test.history[:, -1:], test.history[:, -WEEK : HORIZON - WEEK]
    print(
        f"Mean absolute error of {NUM_TEST:,} new series: {error(forecast, test):.3f}; "
        f"the same days a week before: {error(last_week, test):.3f}; "
        f"the last value: {error(last_value, test):.3f}; "
        f"noise, which nothing can forecast: {np.abs(test.noise).mean():.3f}."
    )


def make_series(count, random):
    """Returns `count` series of seasons, trend and noise of random size, phase and length."""

    def uniform(low, high):
        return random.uniform(low, high, (count, 1))

    time = np.arange(LONGEST + HORIZON)
    daily = uniform(0.5, 2) * np.sin(2 * np.pi * (time / DAY + uniform(0, 1)))
    weekly = uniform(0.5, 2) * np.sin(2 * np.pi * (time / WEEK + uniform(0, 1)))
    trend = uniform(-10, 10) + uniform(-1, 1) * time / WEEK
    noise = uniform(0.1, 0.6) * random.normal(size=(count, len(time)))
    values = daily + weekly + trend + noise
    lengths = random.integers(WEEK, LONGEST + 1, (count, 1))
    padding_mask = np.arange(LONGEST) >= LONGEST - lengths
    history = np.where(padding_mask, values[:, :LONGEST], np.nan)
    return Series(history, padding_mask, values[:, LONGEST:], noise[:, LONGEST:])


def standardise(series):
    """Returns the model's inputs, and the mean and standard deviation of each history."""
    mean = np.nanmean(series.history, axis=1, keepdims=True)
    deviation = np.nanstd(series.history, axis=1, keepdims=True)
    values = np.where(series.padding_mask, (series.history - mean) / deviation, 0.0)
    return {"values": values[..., None], "padding_mask": series.padding_mask}, mean, deviation


def build_model(num_updates):
    """Returns the compiled forecaster, which reads the forecast off the last value.

    It reads back from there, so that more padding at the far end shifts no position.
    """
    values = keras.Input((None, 1), name="values")
    padding_mask = keras.Input((None,), dtype="bool", name="padding_mask")
    hidden = PositionalEncoding()(keras.ops.flip(keras.layers.Dense(64)(values), axis=1))
    encoder = Encoder(num_layers=2, num_heads=4, d_ff=128, dropout=0.0, norm_first=True)
    hidden = encoder(hidden, padding_mask=keras.ops.flip(padding_mask, axis=1))
    # -> (series, length, 64), the last value first
    forecast = keras.layers.Dense(HORIZON)(hidden[:, 0])
    model = keras.Model({"values": values, "padding_mask": padding_mask}, forecast)
    schedule = keras.optimizers.schedules.CosineDecay(2e-3, num_updates)
    model.compile(keras.optimizers.Adam(schedule), loss="mean_absolute_error")
    return model


def error(forecast, series):
    """Returns the mean absolute error of a forecast."""
    return np.abs(forecast - series.future).mean()


def draw(series, forecast):
    """Returns a figure of history, truth and forecast of four series."""
    figure = Figure(figsize=(10, 9), layout="constrained")
    days, days_ahead = np.arange(1 - LONGEST, 1) / DAY, np.arange(1, HORIZON + 1) / DAY
    for number, panel in enumerate(figure.subplots(4, 1, sharex=True)):
        ours = np.abs(forecast[number] - series.future[number]).mean()
        panel.plot(days, series.history[number], color=GREY, label="history")
        panel.plot(days_ahead, forecast[number], color=ORANGE, lw=2, label="forecast")
        panel.plot(days_ahead, series.future[number], "o", color=BLUE, ms=4, label="what followed")
        panel.axvline(0, color="black", lw=0.8)
        panel.set_title(f"mean absolute error {ours:.2f}", fontsize=10, loc="right")
        panel.spines[["top", "right"]].set_visible(False)
    panel.set_xticks(range(-LONGEST // DAY, HORIZON // DAY + 1))
    handles, labels = panel.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=3, frameon=False)
    figure.supxlabel("days from now")
    figure.supylabel("value")
    return figure


if __name__ == "__main__":
    main()
