"""Whether wide dot products need scaling: the softmax at the start, and what is learned from it."""

import keras
import numpy as np

from benchmarks import experiments, symbols
from benchmarks.experiments import BLUE, GREEN, ORANGE, interval, plus_minus
from keras_transformer import SimilarityAttention

WIDTHS = [4, 16, 64, 256, 1024]
TRAINED_WIDTHS = [4, 16, 64, 256]
SIMILARITIES = {"dot": (ORANGE, "o"), "scaled_dot": (BLUE, "s"), "additive": (GREEN, "^")}
NUM_QUERIES, NUM_KEYS = 400, 16  # at the start
QUANTILES = (0.1, 0.5, 0.9)
RECIPE = dict(updates=400, batch=64, rate=0.01, entries=8, test=2000, test_seed=999)


def make_key(similarity, width, seed):
    """What a result is found by: every setting."""
    sizes = dict(keys=symbols.NUM_KEYS, values=symbols.NUM_VALUES, value_width=symbols.VALUE_WIDTH)
    key = {"experiment": "scaling", "similarity": similarity, "d_k": width, "seed": seed}
    return {**key, "recipe": {**RECIPE, **sizes}}


def check_scaling(results, args):
    """Measures the softmax at the start by width, and how well each similarity then learns."""
    for similarity in SIMILARITIES:
        for width in TRAINED_WIDTHS:
            model = None
            for seed in args.seeds:
                key = make_key(similarity, width, seed)
                if results.find(key):
                    continue
                model = model or compiled_lookup(similarity, width)
                began = experiments.clock()
                accuracy = trained_lookup(model, similarity, width, seed)
                seconds, cpu = experiments.clock() - began
                shown = {"cpu_seconds": round(cpu, 1), "seconds": round(seconds, 1)}
                results.add(key, {"accuracy": accuracy, **shown})
    start = {name: [measure_start(name, width) for width in WIDTHS] for name in SIMILARITIES}
    accuracies = {
        name: [
            [100 * results.find(make_key(name, width, seed))["accuracy"] for seed in args.seeds]
            for width in TRAINED_WIDTHS
        ]
        for name in SIMILARITIES
    }
    print_scaling(start, accuracies)
    draw_scaling(start, accuracies, f"{args.pictures}/statement_scaling.png")


def normal_vectors(width):
    """Queries (rows, width) and keys (rows, keys, width), normal with variance 1."""
    generator = np.random.default_rng(0)
    query = generator.normal(size=(NUM_QUERIES, width))
    return query, generator.normal(size=(NUM_QUERIES, NUM_KEYS, width))


def scores_and_slopes(similarity, query, memory):
    """The scores of an untrained attention, (rows, keys), and their gradients by the query.

    The gradients are (rows, keys, width). That of a dot product is the key, divided by the root of
    its width when scaled. That of the additive similarity comes back through tanh.
    """
    if similarity == "additive":
        keras.utils.set_random_seed(0)
        layer = SimilarityAttention(similarity)
        layer.build(query[:, None].shape, memory.shape)
        weights = (layer.query_kernel, layer.memory_kernel, layer.vector)
        by_query, by_memory, vector = (keras.ops.convert_to_numpy(part) for part in weights)
        hidden = np.tanh((query @ by_query)[:, None] + memory @ by_memory)
        return (hidden @ vector)[..., 0], ((1 - hidden**2) * vector[:, 0]) @ by_query.T
    slopes = memory / memory.shape[-1] ** 0.5 if similarity == "scaled_dot" else memory
    return np.einsum("bd,bkd->bk", query, slopes), slopes


def weights_and_gradients(similarity, query, memory):
    """The weights of an untrained attention, (rows, keys), and the norms of their gradients.

    The gradient of the weights w by the query q is a matrix with a row for each key. For scores s,
    `dw_j/dq = w_j (ds_j/dq - sum_i w_i ds_i/dq)`. Its norm is the root of the sum of all squares,
    one number a query. Where it is near 0, no gradient passes from the weights to q.
    """
    scores, slopes = scores_and_slopes(similarity, query, memory)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
    mean = np.einsum("bk,bkd->bd", weights, slopes)[:, None]
    gradients = weights[..., None] * (slopes - mean)
    return weights, np.linalg.norm(gradients, axis=(1, 2))


def measure_start(similarity, width):
    """What an untrained attention gives for normal queries and keys of variance 1.

    Returns the mean entropy of its weights in nats, and figures of the norm of their gradient. They
    are the mean, the 10 % quantile, the median and the 90 % quantile over the queries.
    """
    weights, norms = weights_and_gradients(similarity, *normal_vectors(width))
    entropy = -(weights * np.log(np.maximum(weights, 1e-300))).sum(axis=-1).mean()
    return entropy, norms.mean(), *np.quantile(norms, QUANTILES)


def compiled_lookup(similarity, width):
    """A compiled model for the task of looking up."""
    model = symbols.lookup_model(similarity, width)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("adam", loss, metrics=["accuracy"], jit_compile=False)
    return model


def trained_lookup(model, similarity, width, seed):
    """Trains from new weights; returns the accuracy on new tables."""
    experiments.restarted(model, lambda: symbols.lookup_model(similarity, width), seed)
    model.optimizer.learning_rate = RECIPE["rate"]
    count, batch, entries = RECIPE["updates"] * RECIPE["batch"], RECIPE["batch"], RECIPE["entries"]
    inputs, answers = symbols.lookups(count, entries, seed)
    model.fit(inputs, answers, batch_size=batch, verbose=0)
    inputs, answers = symbols.lookups(RECIPE["test"], entries, seed=RECIPE["test_seed"])
    return model.evaluate(inputs, answers, batch_size=500, verbose=0)[1]


def print_scaling(start, accuracies):
    """Prints variance, entropy, gradient and accuracy, a column a width."""
    lines = [["variance of q · k", *(f"{variance(width):,.1f}" for width in WIDTHS)]]
    for name, found in start.items():
        lines.append([f"entropy, {shown(name)}", *(f"{entropy:.2f}" for entropy, *_ in found)])
    for name, found in start.items():
        cells = (f"{small(mid)} ({small(low)} to {small(high)})" for *_, low, mid, high in found)
        lines.append([f"gradient, {shown(name)}", *cells])
    for name, found in start.items():
        lines.append([f"its mean, {shown(name)}", *(small(mean) for _, mean, *_ in found)])
    for name, found in accuracies.items():
        blank = [""] * (len(WIDTHS) - len(TRAINED_WIDTHS))
        lines.append([f"right (%), {shown(name)}", *map(plus_minus, found), *blank])
    experiments.print_markdown(["d_k", *(f"{width:,}" for width in WIDTHS)], lines)


def variance(width):
    """The variance of the dot products of queries and keys."""
    query, memory = normal_vectors(width)
    return np.einsum("bd,bkd->bk", query, memory).var()


def shown(name):
    """A similarity as the pages write it."""
    return name.replace("_", " ")


def small(value):
    """A number as text, with two digits where it is small."""
    if value < 1e-4:
        mantissa, exponent = f"{value:.0e}".split("e")
        return f"{mantissa}e{int(exponent)}"
    return f"{value:#.2g}" if value < 0.1 else f"{value:.2f}"


def draw_scaling(start, accuracies, path):
    """Draws entropy, gradient and accuracy by width."""
    figure, panels = experiments.new_panels(3, width=4.0, height=3.6)
    for name, (color, marker) in SIMILARITIES.items():
        entropy, _, low, middle, high = np.array(start[name]).T
        style = {"color": color, "marker": marker, "label": shown(name)}
        panels[0].plot(WIDTHS, entropy, **style)
        panels[1].plot(WIDTHS, middle, **style)
        panels[1].fill_between(WIDTHS, low, high, color=color, alpha=0.15)
        middle, half = np.array([interval(values) for values in accuracies[name]]).T
        errors = [half, np.minimum(half, 100 - middle)]
        panels[2].errorbar(TRAINED_WIDTHS, middle, errors, capsize=3, **style)
    panels[0].axhline(np.log(NUM_KEYS), color="#777777", linestyle=":")
    panels[0].annotate("equal weights", (64, np.log(NUM_KEYS)), (0, 4), textcoords="offset points")
    chance = 100 / symbols.NUM_VALUES
    panels[2].axhline(chance, color="#777777", linestyle=":")
    panels[2].annotate("guessing", (4, chance), (0, 4), textcoords="offset points")
    titles = (
        "entropy of the weights (nats)",
        "gradient of the weights by the query,\nmedian and 10 % to 90 %",
        "right after training (%)",
    )
    for panel, title in zip(panels, titles, strict=True):
        panel.set(xscale="log", xlabel="width of queries and keys, d_k", ylabel=title)
        panel.set_ylim(bottom=0)
        panel.minorticks_off()
        panel.set_xticks(WIDTHS, WIDTHS)
    panels[1].set(yscale="log", ylim=(1e-4, 20))  # the lowest quantiles lie below
    panels[0].legend(frameon=False)
    experiments.save(figure, path)
