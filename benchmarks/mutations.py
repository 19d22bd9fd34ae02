"""Which of these faults in the core do the tests find? Plants one at a time in a copy.

    python -m benchmarks.mutations --output runs/mutations
    python -m benchmarks.mutations --output runs/mutations --whole   # the survivors, by all tests

Each fault replaces one piece of text of one file. It is found when a test fails. First the tests
beside the file run, or those that its row names. With `--whole` the whole default selection runs
for the faults that these did not find. What is done stands in `found.csv` and is not done again.
"""

import argparse
import csv
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

REPOSITORY = Path(__file__).resolve().parent.parent
PACKAGE = "keras_transformer/"
COLUMNS = ("fault", "tests", "found", "by", "seconds")


class Fault(NamedTuple):
    """One fault: what it breaks, the file, the text there, what replaces it, and tests to try."""

    name: str
    file: str
    old: str
    new: str
    tests: str


FAULTS = [
    # Masks
    Fault("a query sees the next token", "masking.py",
          "distance >= (0 if causal", "distance >= (-1 if causal",
          "tests/test_masking.py tests/layers"),
    Fault("a window is one position wider", "masking.py",
          "distance <= window", "distance <= window + 1", "tests/test_masking.py tests/layers"),
    Fault("masks are joined by or", "masking.py",
          "combined = ops.logical_and(combined, mask)", "combined = ops.logical_or(combined, mask)",
          "tests/test_masking.py tests/layers"),
    Fault("a prefix is one position longer", "masking.py",
          "< prefix_lengths[:, None]", "<= prefix_lengths[:, None]", "tests/test_masking.py"),
    Fault("masked values are multiplied by 0", "masking.py",
          "return ops.where(mask, values, ops.zeros((), dtype_name(values)))",
          "return values * ops.cast(mask, values.dtype)",
          "tests/test_masking.py tests/test_losses.py tests/layers"),
    Fault("attention reads padded keys", "layers/attention.py",
          "None if self.key_mask is None else ops.expand_dims(self.key_mask, (1, 2)),", "None,",
          "tests/layers tests/models"),
    Fault("queries without a key are not 0", "layers/attention.py",
          "return ops.where(_by_query(ops.any(mask, axis=-1)), context, 0)", "return context",
          "tests/layers"),
    Fault("NaN in a masked key is forgotten where it is read", "layers/attention.py",
          'ops.where(_by_query(poisoned), float("nan"), context)', "context", "tests/layers"),
    Fault("a layer gives no mask on", "layers/multi_head_attention.py",
          "output = self.attach_mask(output, mask=query_mask)", "output = output + 0",
          "tests/layers"),
    Fault("scores are divided by the width", "layers/attention.py",
          "scores = ops.cast(ops.einsum(\"bqhd,bkhd->bhqk\", query, key), \"float32\")",
          "scores = ops.cast(ops.einsum(\"bqhd,bkhd->bhqk\", query, key), \"float32\")\n"
          "    scores = scores * query.shape[-1] ** -0.5", "tests/layers"),
    # Layers
    Fault("post-norm adds after the normalisation", "layers/residual.py",
          "return summed if self.norm_first else self.norm(summed)",
          "return summed if self.norm_first else inputs + self.norm(outputs)", "tests/layers"),
    Fault("dropout keeps its scale at 1", "layers/dropout.py",
          "return scaled_where(self.kept(inputs), inputs, 1.0 / (1.0 - self.rate))",
          "return scaled_where(self.kept(inputs), inputs, 1.0)", "tests/layers/test_dropout.py"),
    Fault("dropout draws the same again", "layers/dropout.py",
          "seed = self.next_seed() if seeds is None else seeds[id(self)]",
          "seed = self.next_seed() * 0 if seeds is None else seeds[id(self)]",
          "tests/layers/test_dropout.py tests/models"),
    Fault("the gradient of relu and dropout keeps the scale at 1", "layers/dropout.py",
          "return scaled_where(outputs > 0, upstream, scale), ops.zeros_like(upstream)",
          "return scaled_where(outputs > 0, upstream, 1.0), ops.zeros_like(upstream)",
          "tests/layers"),
    Fault("large positions lose their highest digit", "layers/sinusoids.py",
          "NUM_DIGITS = 3", "NUM_DIGITS = 2", "tests/layers"),
    # Cache
    Fault("a step looks at the position after it", "models/transformer_step.py",
          "row = ops.take(self.encoding, index, axis=0)[None, None, :]",
          "row = ops.take(self.encoding, index + 1, axis=0)[None, None, :]", "tests/models"),
    Fault("a step reads padded sources", "models/transformer_step.py",
          "memory_padding_mask=self.memory_padding_mask,",
          "memory_padding_mask=self.memory_padding_mask | True,",
          "tests/models"),
    Fault("a step's heads share wrong keys", "layers/attention.py",
          "query = ops.reshape(query, (batch, shared, groups * queries, key_dim))",
          "query = ops.reshape(ops.flip(query, 1), (batch, shared, groups * queries, key_dim))",
          "tests/layers tests/models"),
    # Searches
    Fault("the length of a score is one shorter", "decoding/beam_search.py",
          "scores = log_probs / self._length_normaliser(task, index)",
          "scores = log_probs / self._length_normaliser(task, index - 1)", "tests/decoding"),
    Fault("a beam stops by the present length", "decoding/beam_search.py",
          "best_live / normaliser > worst_kept", "best_live > worst_kept", "tests/decoding"),
    Fault("a beam never stops early", "decoding/beam_search.py",
          "return ops.logical_and(alive, best_live / normaliser > worst_kept)", "return alive",
          "tests/decoding"),
    Fault("a group that has stopped goes on", "decoding/beam_search.py",
          "ended = ops.logical_or(self._by_group(ended), stopped)",
          "ended = self._by_group(ended)", "tests/decoding"),
    Fault("a pool keeps the newest", "decoding/hypotheses.py",
          "scores, best = ops.top_k(scores, self.scores.shape[2])",
          "best = ops.broadcast_to(ops.arange(self.scores.shape[2])[None, None], self.scores.shape)"
          "\n        scores = ops.take_along_axis(scores, best, axis=2)", "tests/decoding"),
    Fault("the states of beams are not reordered", "decoding/beam_search.py",
          "return change_state(lambda part: ops.take(part, rows, axis=0), state)",
          "return change_state(lambda part: part, state)", "tests/decoding tests/models"),
    Fault("chunks of the vocabulary come in the wrong order", "decoding/beam_search.py",
          'best = ops.sort(ops.cast(best, "int32"), axis=-1)',
          'best = ops.flip(ops.sort(ops.cast(best, "int32"), axis=-1), -1)', "tests/decoding"),
    Fault("groups may return one hypothesis twice", "decoding/hypotheses.py",
          "if groups > 1:", "if groups > 9:", "tests/decoding"),
    Fault("a smallest length counts one token less", "decoding/search.py",
          "too_short = index + 1 <", "too_short = index + 2 <", "tests/decoding"),
    Fault("padding may be written", "decoding/search.py",
          "for token in (task.pad_id, task.bos_id)", "for token in (task.bos_id,)",
          "tests/decoding"),
    Fault("nucleus sampling drops the token that passes p", "decoding/sampling.py",
          "held = ops.cumsum(odds, axis=-1) - odds", "held = ops.cumsum(odds, axis=-1)",
          "tests/decoding"),
    Fault("a beam reads the slots of others", "layers/attention.py",
          "own = ops.logical_and(own, visible[:, None])",
          "own = ops.logical_and(own | True, visible[:, None])", "tests/layers tests/models"),
    Fault("a path goes on in the slot of its parent", "decoding/hypotheses.py",
          'own = ops.arange(parents.shape[1], dtype="int32")[None, :, None]',
          'own = ops.cast(parents, "int32")[..., None]', "tests/decoding tests/models"),
    Fault("the attention of a parent is that of the best beam", "decoding/hypotheses.py",
          "return ops.take_along_axis(attention, parents[..., None], axis=1)",
          "return ops.take_along_axis(attention, 0 * parents[..., None], axis=1)",
          "tests/decoding"),
    # Layouts
    Fault("columns forget the bias", "layers/dense.py",
          "if bias is not None:\n        outputs = plus_bias",
          "if bias is not None and not in_columns:\n        outputs = plus_bias", "tests/layers"),
    Fault("candidate logits are those of other rows", "layers/candidate_logits.py",
          "logits = columns_product(self.matrix, rows)",
          "logits = columns_product(self.matrix[::-1], rows)", "tests/layers tests/decoding"),
    # Loss, metrics, schedule
    Fault("smoothing spreads over the others alone", "losses.py",
          "ops.where(is_label, 1.0 - label_smoothing, 0.0) + share",
          "ops.where(is_label, 1.0 - label_smoothing, share)",
          "tests/test_losses.py"),
    Fault("the loss is averaged over padding", "losses.py",
          "return zero_masked(losses, mask), gradient", "return losses, gradient",
          "tests/test_losses.py"),
    Fault("R-drop counts its divergence twice", "models/transformer.py",
          "self.r_drop / 4 * divergence", "self.r_drop / 2 * divergence", "tests/models"),
    Fault("warm-up begins with a rate of 0", "schedules.py",
          'step = ops.cast(step, "float32") + 1.0', 'step = ops.cast(step, "float32")',
          "tests/test_schedules.py"),
    Fault("accumulated batches pass warm-up", "schedules.py",
          "self.schedule(ops.floor_divide(step, self.batches_per_update))", "self.schedule(step)",
          "tests/test_schedules.py"),
    # Resume and averages
    Fault("a resumed run has a new optimizer", "callbacks/exact_resume.py",
          "*(v for optimizer in optimizers for v in optimizer.variables)",
          "*(v for optimizer in optimizers for v in optimizer.variables[:2])",
          "tests/callbacks"),
    Fault("an epoch left in its middle is saved", "callbacks/exact_resume.py",
          "return seen >= steps and math.isfinite", "return math.isfinite", "tests/callbacks"),
    Fault("a mean takes one epoch more", "callbacks/average_checkpoints.py",
          "if not epoch + 1 - self.last < number", "if not epoch - self.last < number",
          "tests/callbacks"),
    # Texts
    Fault("a long text is cut before its last word", "serving/segments.py",
          "start + best + 1)", "start + best)", "tests/serving/test_segments.py"),
    Fault("a cut prefers words to sentences", "serving/segments.py",
          "WORD, SENTENCE = 1, 2", "WORD, SENTENCE = 2, 1", "tests/serving/test_segments.py"),
    Fault("a segment may be one token too long", "serving/segments.py",
          "is_long = (lengths > self.longest)", "is_long = (lengths > self.longest + 1)",
          "tests/serving/test_segments.py"),
    Fault("a text has a translation without one of its segments", "serving/string_functions.py",
          "none = refused[:, None] | (worst <= IMPOSSIBLE / 2)", "none = refused[:, None]",
          "tests/serving/test_string_functions.py tests/serving/test_translator.py"),
    Fault("teacher forcing shows the label itself", "models/scoring.py",
          "before = ops.pad(target_ids, [(0, 0), (1, 0)], constant_values=pad_id)[:, :-1]",
          "before = target_ids", "tests/models"),
]  # fmt: skip


def copy_repository(target: Path) -> None:
    """Copies the files that git knows, and links the corpora beside the repository."""
    shutil.rmtree(target, ignore_errors=True)
    names = subprocess.run(
        ["git", "ls-files", "-z"], cwd=REPOSITORY, capture_output=True, check=True, encoding="utf-8"
    ).stdout.split("\0")
    for name in filter(None, names):
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(REPOSITORY / name, target / name)
    shared = target.parent / "shared"
    if not shared.exists() and (REPOSITORY.parent / "shared").exists():
        shared.symlink_to(REPOSITORY.parent / "shared")


def plant(fault: Fault, text: str) -> str:
    """Returns the file's text with the fault, or raises `ValueError` unless its place is one."""
    if text.count(fault.old) != 1:
        raise ValueError(
            f"{fault.file} must hold the text of {fault.name!r} once. "
            f"Received: {text.count(fault.old)} times {fault.old!r}"
        )
    return text.replace(fault.old, fault.new)


def failing_test(copy: Path, tests: list[str]) -> str | None:
    """Runs the tests in the copy until one fails: its name, or None when all pass."""
    own = {"PYTHONPATH": os.pathsep.join([str(copy), str(copy / "examples")]), "CI": "true"}
    options = ["-x", "-q", "-p", "no:cacheprovider", "--numprocesses", "0"]
    command = [sys.executable, "-m", "pytest", *options, *tests]
    done = subprocess.run(
        command, cwd=copy, env=os.environ | own, capture_output=True, check=False, encoding="utf-8"
    )
    if done.returncode == 0:
        return None
    failed = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    if done.returncode != 1 or not failed:
        raise RuntimeError(
            f"pytest must run the tests. Its status {done.returncode}: {done.stdout}"
        )
    return failed[0].split(" - ")[0]


def read_rows(file: Path) -> list[dict[str, str]]:
    """The rows of a table that may not exist yet."""
    if not file.exists():
        return []
    with open(file, encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(lines))


def main() -> None:
    """Runs the faults that are not done yet and prints which were found."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n", 1)[0])
    parser.add_argument("--output", type=Path, required=True, help="a directory for the results")
    parser.add_argument("--whole", action="store_true", help="run all default tests for survivors")
    parser.add_argument("--only", default="", help="only faults whose names hold this text")
    args = parser.parse_args()
    table = args.output / "found.csv"
    copy = args.output.resolve() / "copy"
    args.output.mkdir(parents=True, exist_ok=True)
    rows = {row["fault"]: row for row in read_rows(table)}
    chosen = [fault for fault in FAULTS if args.only in fault.name]
    copy_repository(copy)
    for number, fault in enumerate(chosen, 1):
        tests = [] if args.whole else fault.tests.split()
        done = rows.get(fault.name)
        if done is None or (args.whole and done["found"] == "no" and done["tests"] != "all"):
            file = copy / PACKAGE / fault.file
            text = file.read_text(encoding="utf-8")
            started = time.monotonic()
            try:
                file.write_text(plant(fault, text), encoding="utf-8")
                by = failing_test(copy, tests)
            finally:
                file.write_text(text, encoding="utf-8")
            seconds = round(time.monotonic() - started)
            found = "no" if by is None else "yes"
            values = (fault.name, " ".join(tests) or "all", found, by or "", str(seconds))
            rows[fault.name] = dict(zip(COLUMNS, values, strict=True))
            with open(table, "w", encoding="utf-8", newline="") as lines:
                writer = csv.DictWriter(lines, COLUMNS)
                writer.writeheader()
                writer.writerows(rows.values())
        row = rows[fault.name]
        by = f"by {row['by']}" if row["found"] == "yes" else "by no test"
        print(f"{number:3d}/{len(chosen)}  {row['seconds']:>5} s  {fault.name}: {by}", flush=True)
    found = sum(rows[fault.name]["found"] == "yes" for fault in chosen)
    print(f"found {found} of {len(chosen)}")


if __name__ == "__main__":
    main()
