"""Times training and decoding on a GPU, beside PyTorch and Hugging Face in the same run.

    python -m benchmarks.accelerator [--only NAME ...] [--rounds 2] [--size base ...]

Each measurement is a process of its own, in turns, and prints one line of JSON. The tables follow.

Training: random ids in rows of 60 to 100 % of 64 tokens. An update has 32,768 positions of the
target. Both sides and the output share a vocabulary of 32,000. Dropout is 0.1, label smoothing 0.1,
Adam. Ours goes through `model.fit` on JAX in `mixed_bfloat16`. PyTorch's `nn.Transformer` attends
by `scaled_dot_product_attention` under autocast, with fused Adam. `peak` is the share of the chip's
bfloat16 products: three forward passes of products, padding included, by the seconds of a step.

Decoding: a model of random weights in bfloat16, a source of 64 and exactly 64 tokens of output.
Ours is one call of a program of `jax.jit`; Hugging Face's is `generate` of a Marian model.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import time

import numpy as np

from benchmarks.timing import collect_lines

# fmt: off
SIZES = {
    "smallest": dict(d_model=32, num_heads=2, d_ff=64, num_layers=1, rows=4),
    "base": dict(d_model=512, num_heads=8, d_ff=2048, num_layers=6, rows=512),
    "big": dict(d_model=1024, num_heads=16, d_ff=4096, num_layers=6, rows=512),
}
# fmt: on
LENGTH, VOCAB_SIZE, NUM_BATCHES, PAD, BOS, EOS = 64, 32_000, 4, 0, 2, 3
BATCHES = 1, 32, 256
PEAKS = {"H100": 989e12, "H200": 989e12, "A100": 312e12}  # bfloat16, dense, by the data sheets
SECONDS = 6.0


def batches(rows: int) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Source ids, target inputs and target outputs of a few batches."""
    random = np.random.default_rng(0)

    def side():
        ids = random.integers(4, VOCAB_SIZE, (NUM_BATCHES, rows, LENGTH), "int32")
        lengths = random.integers(round(0.6 * LENGTH), LENGTH + 1, (NUM_BATCHES, rows, 1))
        return np.where(np.arange(LENGTH) < lengths, ids, PAD).astype("int32")

    sources, targets = side(), side()
    inputs = np.concatenate([np.full_like(targets[..., :1], BOS), targets[..., :-1]], -1)
    return list(zip(sources, np.where(targets == PAD, PAD, inputs), targets, strict=True))


def step_products(d_model: int, d_ff: int, num_layers: int, rows: int, **_) -> float:
    """Floating-point operations of the products of a training step, with its padding."""
    positions, attention = rows * LENGTH, 4 * rows * LENGTH * LENGTH * d_model
    encoder = 2 * positions * (4 * d_model**2 + 2 * d_model * d_ff) + attention
    decoder = 2 * positions * (8 * d_model**2 + 2 * d_model * d_ff) + 2 * attention
    return 3 * (num_layers * (encoder + decoder) + 2 * positions * d_model * VOCAB_SIZE)


def our_training(size: str, distributed: bool = False, corpus: bool = False) -> dict:
    """Trains ours by `fit`: of arrays in memory, or of a corpus on disk with the same batches."""
    import jax
    import keras

    from benchmarks.ours_training import EpochClock
    from keras_transformer import FusedAdam, MaskedCrossentropy, Transformer

    keras.config.set_dtype_policy("mixed_bfloat16")
    keras.utils.set_random_seed(1)
    if distributed:
        keras.distribution.set_distribution(
            keras.distribution.DataParallel(auto_shard_dataset=False)
        )
    options = dict(SIZES[size])
    rows = options.pop("rows")
    rates = dict.fromkeys(("dropout", "attention_dropout", "feed_forward_dropout"), 0.1)
    model = Transformer(vocab_size=VOCAB_SIZE, **options, **rates)
    model.build()
    model.compile(
        optimizer=FusedAdam(1e-4, beta_1=0.9, beta_2=0.98, epsilon=1e-9),
        loss=MaskedCrossentropy(label_smoothing=0.1),
    )
    data = batches(rows)
    made = 0.0

    def endless(number):
        for index in range(number):
            source, inputs, outputs = data[index % NUM_BATCHES]
            yield (source, inputs), outputs

    def read(number):
        nonlocal made
        for index in range(number):
            begun = time.perf_counter()
            batch = pairs[index % len(pairs)]
            made += time.perf_counter() - begun
            yield batch

    source = endless
    if corpus:
        pairs, source = write_corpus(data, rows), read
    quiet = dict(verbose=0, shuffle=False)
    begun = time.perf_counter()
    model.fit(source(1), steps_per_epoch=1, **quiet)
    first = time.perf_counter() - begun
    begun = time.perf_counter()
    model.fit(source(3), steps_per_epoch=3, **quiet)
    steps = max(2, round(SECONDS / 4 / (time.perf_counter() - begun) * 3))
    made, clock = 0.0, EpochClock()
    model.fit(source(5 * steps), epochs=5, steps_per_epoch=steps, callbacks=[clock], **quiet)
    seconds = statistics.median(clock.seconds[1:]) / steps
    line = training_line(size, seconds, first, jax.devices()[0].device_kind)
    return line | ({"batch_share": round(made / 5 / steps / seconds, 4)} if corpus else {})


def write_corpus(data: list, rows: int):
    """A `PairDataset` of the same ids, read from files that are mapped into memory."""
    from keras_transformer.batches import PairDataset
    from keras_transformer.batches.prepared_corpus import PreparedSide

    folder, sides = tempfile.mkdtemp(), []
    for number in (0, 2):
        ids = np.concatenate([batch[number] for batch in data])
        lengths = np.minimum(np.sum(ids != PAD, axis=1), LENGTH - 1)  # with room for the end
        path = os.path.join(folder, f"{number}.npy")
        np.save(path, ids[np.arange(LENGTH) < lengths[:, None]])
        store = np.load(path, mmap_mode="r"), np.cumsum(lengths) - lengths, lengths
        sides.append(PreparedSide(*store, "random", "none", (PAD, BOS, EOS)))
    special = dict(pad_id=PAD, bos_id=BOS, eos_id=EOS)
    return PairDataset(*sides, **special, tokens_per_batch=rows * LENGTH, max_shapes=1, seed=1)


def torch_training(size: str, compiled: bool) -> dict:
    """Trains PyTorch's `nn.Transformer`, its output tied to its embeddings as ours is."""
    import torch
    from torch import nn

    options = SIZES[size]
    width, rows = options["d_model"], options["rows"]
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(VOCAB_SIZE, width, padding_idx=PAD)
            nn.init.normal_(self.embedding.weight, std=width**-0.5)
            layers = options["num_layers"]
            self.transformer = nn.Transformer(
                width, options["num_heads"], layers, layers, options["d_ff"], 0.1, batch_first=True
            )
            angles = torch.arange(LENGTH)[:, None] / 10_000 ** (torch.arange(0, width, 2) / width)
            waves = torch.stack([angles.sin(), angles.cos()], -1).reshape(LENGTH, width)
            self.register_buffer("waves", waves)
            self.register_buffer("future", torch.ones(LENGTH, LENGTH, dtype=torch.bool).triu(1))
            self.dropout = nn.Dropout(0.1)

        def forward(self, sources, inputs):
            source, target = (
                self.dropout(self.embedding(ids) * width**0.5 + self.waves)
                for ids in (sources, inputs)
            )
            padding = sources == PAD
            states = self.transformer(
                source, target, tgt_mask=self.future, src_key_padding_mask=padding,
                tgt_key_padding_mask=inputs == PAD, memory_key_padding_mask=padding,
            )  # fmt: skip
            return nn.functional.linear(states, self.embedding.weight)

    model = Model().to(device)
    optimizer = torch.optim.Adam(model.parameters(), 1e-4, (0.9, 0.98), 1e-9, fused=True)
    data = [[torch.from_numpy(part).long().to(device) for part in batch] for batch in batches(rows)]

    def compute_loss(sources, inputs, outputs):
        with torch.autocast(device, torch.bfloat16):
            logits = model(sources, inputs)
            return nn.functional.cross_entropy(
                logits.flatten(0, 1), outputs.flatten(), ignore_index=PAD, label_smoothing=0.1
            )

    compute_loss = torch.compile(compute_loss) if compiled else compute_loss

    def steps(number):
        begun = time.perf_counter()
        for index in range(number):
            optimizer.zero_grad(set_to_none=True)
            loss = compute_loss(*data[index % NUM_BATCHES])
            loss.backward()
            optimizer.step()
        float(loss)
        return time.perf_counter() - begun

    first = steps(1)
    number = max(2, round(SECONDS / 4 / steps(3) * 3))
    seconds = statistics.median([steps(number) for _ in range(4)]) / number
    return training_line(
        size, seconds, first, torch.cuda.get_device_name() if device == "cuda" else device
    )


def training_line(size: str, seconds: float, first: float, device: str) -> dict:
    """What is known of a training run."""
    peak = next((value for name, value in PEAKS.items() if name in device), None)
    products = step_products(**SIZES[size])
    return {
        "tok_s": round(SIZES[size]["rows"] * LENGTH / seconds),
        "step_ms": round(1000 * seconds, 1),
        "peak": peak and round(products / seconds / peak, 3),
        "first_s": round(first, 1),
        "device": device,
    }


def our_decoding(size: str, beam: int, batch: int) -> dict:
    """Searches under one `jax.jit`."""
    import jax
    import keras

    from keras_transformer import BeamSearch, GreedySearch, Transformer

    keras.config.set_dtype_policy("bfloat16")
    keras.utils.set_random_seed(1)
    options = {name: value for name, value in SIZES[size].items() if name != "rows"}
    model = Transformer(vocab_size=VOCAB_SIZE, **options)
    model.build()
    least = dict(min_length=LENGTH - 1)
    search = GreedySearch(**least) if beam == 1 else BeamSearch(beam, **least)
    weights = [variable.value for variable in model.variables]

    # The weights are an argument: as constants XLA would copy them into each program.
    @jax.jit
    def run(weights, ids):
        pairs = zip(model.variables, weights, strict=True)
        with keras.StatelessScope(state_mapping=pairs):
            return model.generate(ids, search, max_length=LENGTH)

    ids = draw_source(batch)
    begun = time.perf_counter()
    lengths = np.asarray(run(weights, ids).lengths)
    first = time.perf_counter() - begun
    if lengths.min() < LENGTH - 1:
        raise ValueError(f"every output must have {LENGTH} tokens. Received: {lengths.min()}")
    seconds = measure_median(lambda: run(weights, ids).ids.block_until_ready())
    return decoding_line(batch, seconds, first, jax.devices()[0].device_kind)


def hugging_face_decoding(size: str, beam: int, batch: int) -> dict:
    """Searches by `generate` of a Marian model with random weights."""
    import torch
    from transformers import MarianConfig, MarianMTModel

    options = SIZES[size]
    device = "cuda" if torch.cuda.is_available() else "cpu"
    sides = {
        f"{side}_{name}": options[ours]
        for side in ("encoder", "decoder")
        for name, ours in (
            ("layers", "num_layers"),
            ("attention_heads", "num_heads"),
            ("ffn_dim", "d_ff"),
        )
    }
    config = MarianConfig(
        vocab_size=VOCAB_SIZE, d_model=options["d_model"], **sides, pad_token_id=PAD,
        eos_token_id=EOS, decoder_start_token_id=BOS, forced_eos_token_id=None, bad_words_ids=None,
        max_position_embeddings=256, scale_embedding=True,
    )  # fmt: skip
    torch.manual_seed(1)
    model = MarianMTModel(config).to(device, torch.bfloat16).eval()
    ids = torch.from_numpy(draw_source(batch)).long().to(device)

    def run():
        with torch.inference_mode():
            return model.generate(
                input_ids=ids, attention_mask=torch.ones_like(ids), num_beams=beam,
                do_sample=False, min_new_tokens=LENGTH, max_new_tokens=LENGTH,
            ).cpu()  # fmt: skip

    begun = time.perf_counter()
    if run().shape != (batch, LENGTH + 1):
        raise ValueError(f"every output must have {LENGTH} tokens.")
    first = time.perf_counter() - begun
    name = torch.cuda.get_device_name() if device == "cuda" else device
    return decoding_line(batch, measure_median(run), first, name)


def draw_source(batch: int) -> np.ndarray:
    """Source ids without padding."""
    return np.random.default_rng(1).integers(4, VOCAB_SIZE, (batch, LENGTH), "int32")


def measure_median(function) -> float:
    """Median seconds of a call, warm."""
    taken, started = [], time.perf_counter()
    while len(taken) < 3 or time.perf_counter() - started < SECONDS / 4:
        begun = time.perf_counter()
        function()
        taken.append(time.perf_counter() - begun)
    return statistics.median(taken)


def decoding_line(batch: int, seconds: float, first: float, device: str) -> dict:
    """What is known of a search."""
    speed = round(batch * LENGTH / seconds)
    return {"batch": batch, "tok_s": speed, "first_s": round(first, 1), "device": device}


TRAININGS = {
    "ours": lambda size: our_training(size),
    "ours, DataParallel of one": lambda size: our_training(size, distributed=True),
    "ours, from a corpus": lambda size: our_training(size, corpus=True),
    "PyTorch eager": lambda size: torch_training(size, compiled=False),
    "PyTorch compiled": lambda size: torch_training(size, compiled=True),
}
DECODINGS = {"ours": our_decoding, "Hugging Face": hugging_face_decoding}


def measurements(what: list[str], sizes: list[str], only: list[str] | None) -> list[list[str]]:
    """The arguments of each process."""
    trainings = [["train", name, size] for size in sizes for name in TRAININGS]
    decodings = [
        ["decode", name, sizes[0], str(beam), str(batch)]
        for beam in (1, 4)
        for batch in BATCHES
        for name in DECODINGS
    ]
    chosen = only or [*TRAININGS, *DECODINGS]
    return [each for each in trainings + decodings if each[0] in what and each[1] in chosen]


def measured(arguments: list[str]) -> dict:
    """Measures in this process."""
    what, name, size, *numbers = arguments
    if what == "train":
        line = TRAININGS[name](size)
    else:
        line = DECODINGS[name](size, *map(int, numbers)) | {"beam": int(numbers[0])}
    return {"what": what, "contestant": name, "size": size, **line}


def main() -> None:
    """Measures each in a process, and prints the medians."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    kinds = dict(nargs="+", choices=("train", "decode"), default=["train", "decode"])
    parser.add_argument("--what", **kinds)
    parser.add_argument("--only", nargs="+", metavar="NAME", help="contestants; default: all")
    parser.add_argument("--size", nargs="+", choices=SIZES, default=["base", "big"])
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--measure", nargs="+", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.measure:
        print(json.dumps(measured(args.measure)), flush=True)
        return
    environment = {"KERAS_BACKEND": "jax", "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    found: dict[tuple, list[dict]] = {}
    for _ in range(args.rounds):
        for arguments in measurements(args.what, args.size, args.only):
            command = [sys.executable, "-m", "benchmarks.accelerator", "--measure", *arguments]
            for line in collect_lines(command, environment):
                print(json.dumps(line), flush=True)
                found.setdefault(tuple(arguments), []).append(line)
    for arguments, lines in found.items():
        speed = statistics.median(line["tok_s"] for line in lines)
        print(f"| {' | '.join(arguments)} | {speed:,.0f} | {lines[0].get('peak', '')} |")


if __name__ == "__main__":
    os.environ.setdefault("KERAS_BACKEND", "jax")
    main()
