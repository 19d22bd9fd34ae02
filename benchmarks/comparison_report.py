"""The tables and the picture of the comparison: quality by length, with intervals, and times."""

import numpy as np

from benchmarks import experiments
from benchmarks.experiments import bootstrap

NUM_BINS = 5
# Colours told apart by all eyes, and markers.
STYLES = {
    "no attention": ("#000000", "x"),
    "dot": ("#E69F00", "v"),
    "scaled dot": ("#0072B2", "s"),
    "cosine": ("#56B4E9", "D"),
    "general": ("#CC79A7", "P"),
    "additive": ("#D55E00", "^"),
    "Transformer": ("#009E73", "o"),
}
TIMES = {
    "s for a pass of the data": ("epoch_seconds", "epoch_cpu_seconds", 1),
    "ms for a translation alone": ("alone_ms", "alone_cpu_ms", 1),
    "ms among all": ("among_ms", "among_cpu_ms", 2),
}


def length_bins(lengths):
    """Pairs (shortest, longest) of at most `NUM_BINS` bins with about as many sentences each."""
    edges = np.unique(np.quantile(lengths, np.linspace(0, 1, NUM_BINS + 1)).astype(int))
    starts = [edges[0], *(edges[1:-1] + 1)]
    return list(zip(map(int, starts), map(int, edges[1:]), strict=True))


def label_bin(low, high):
    """A bin as people write it."""
    return f"{low}" if low == high else f"{low}-{high}"


def by_length(rows):
    """The quality of a model in each bin: mean and 95 % interval, (bins, 3)."""
    qualities, lengths = ([np.array(row[key]) for row in rows] for key in ("qualities", "lengths"))
    bins = [(lengths[0] >= low) & (lengths[0] <= high) for low, high in length_bins(lengths[0])]
    return np.array([bootstrap([values[inside] for values in qualities]) for inside in bins])


def read_lengths(rows):
    """The lengths of the test sentences, the same for every model."""
    return np.array(next(iter(rows.values()))[0]["lengths"])


def print_tables(rows, quality_name):
    """Prints the quality of each model, then its times."""
    bins = [label_bin(*ends) for ends in length_bins(read_lengths(rows))]
    bins[0] += " tokens"
    lines = []
    for name, found in rows.items():
        mean, low, high = bootstrap([row["qualities"] for row in found])
        cells = [name, f"{found[0]['parameters']:,}", f"{mean:.1f}", f"{low:.1f} to {high:.1f}"]
        lines.append([*cells, *(f"{quality:.1f}" for quality in by_length(found)[:, 0])])
    unit = " (%)" if quality_name == "exact match" else ""
    head = ["model", "parameters", f"{quality_name}{unit}", "95 % interval", *bins]
    experiments.print_markdown(head, lines)
    lines = [
        [name, *(format_time(found, *keys) for keys in TIMES.values())]
        for name, found in rows.items()
    ]
    experiments.print_markdown(["model", *TIMES], lines)


def format_time(rows, wall, cpu, digits):
    """A mean time of the wall clock, and in brackets that of the processor."""
    wall, cpu = (np.mean([row[key] for row in rows]) for key in (wall, cpu))
    return f"{wall:.{digits}f} ({cpu:.{digits}f})"


def draw(rows, quality_name, path):
    """Draws the quality by length of the source, and in a second panel what a pass costs."""
    figure, panels = experiments.new_panels(2, width=5.6, height=4.2)
    bins = length_bins(read_lengths(rows))
    shifts = np.linspace(-0.25, 0.25, len(rows))
    for (name, found), shift in zip(rows.items(), shifts, strict=True):
        color, marker = STYLES[name]
        middle, low, high = by_length(found).T
        places = np.arange(len(bins)) + shift
        style = {"color": color, "marker": marker, "label": name}
        errors = [middle - low, high - middle]
        panels[0].errorbar(places, middle, errors, capsize=2, linewidth=1, **style)
        mean, low, high = bootstrap([row["qualities"] for row in found])
        cost = np.mean([row["epoch_cpu_seconds"] for row in found])
        errors = [[mean - low], [high - mean]]
        panels[1].errorbar(cost, mean, errors, capsize=3, linestyle="none", **style)
    panels[0].set_xticks(range(len(bins)), [label_bin(*ends) for ends in bins])
    panels[0].set(xlabel="length of the source (tokens)", ylabel=f"{quality_name} (%)")
    panels[1].set(
        xlabel="seconds of the processor for a pass of the data", ylabel="all lengths (%)"
    )
    for panel in panels:
        panel.set_ylim(0, 103)
    panels[1].set_xlim(left=0)
    panels[1].legend(frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
    experiments.save(figure, path)
