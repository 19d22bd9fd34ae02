"""Weight files of before PyTorch 1.6 are read without PyTorch, and nothing in them is run."""

import os
import pickle
import re
import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest

from keras_transformer.interop.tensor_files import open_tensors
from keras_transformer.interop.torch_legacy_file import MAGIC, MAGIC_NUMBER
from tests.interop.weight_files import (
    MACHINE,
    Named,
    refusal,
    some_arrays,
    storage,
    torch_legacy_bytes,
    torch_legacy_of,
    torch_pickle,
    view,
)

STORED = storage("0", "FloatStorage", 6)
SIX = np.arange(6, dtype=np.float32).tobytes()
A = {"a": view(STORED, 0, (2, 3), (3, 1))}
GOOD = {"0": (6, SIX)}


def opened(path, data):
    path.write_bytes(data)
    return open_tensors(path)


def test_arrays_are_read_back(tmp_path):
    tensors = opened(tmp_path / "pytorch_model.bin", torch_legacy_of(some_arrays()))
    assert list(tensors) == list(some_arrays())
    for name, array in some_arrays().items():
        assert (tensors[name].shape, tensors[name].dtype) == (array.shape, array.dtype)
        np.testing.assert_array_equal(tensors.read(name), array)


def test_the_first_versions_kept_parts_of_storages(tmp_path):
    """A view of the elements 2 to 5: its tensors count from there."""
    part = (*STORED, ("1", 2, 4))
    value = {"a": view((*STORED, None), 1, (2,), (1,)), "b": view(part, 1, (2,), (1,))}
    tensors = opened(tmp_path / "file", torch_legacy_bytes(value, GOOD))
    assert tensors.read("a").tolist() == [1, 2]
    assert tensors.read("b").tolist() == [3, 4]


TORCH_CODE = """
import sys, numpy, torch
torch.manual_seed(0)
weight = torch.randn(5, 3)
tied = torch.nn.Parameter(torch.randn(7, 2))
state = {
    "weight": weight,
    "transposed": weight.t(),
    "slice": weight[1:4, 1:],
    "row": weight[3],
    "expanded": weight[:, :1].expand(5, 1),
    "tied": tied,
    "tied again": tied,
    "half": weight.half(),
    "half transposed": torch.randn(4, 6).half().t(),
    "brain": weight.bfloat16(),
    "count": torch.tensor(3),
    "flags": weight > 0,
    "none": torch.zeros(0, 3),
}
options = {"_use_new_zipfile_serialization": False}
protocol = int(sys.argv[4])
torch.save(state, sys.argv[1], pickle_protocol=protocol, **options)
module = torch.nn.BatchNorm1d(4)  # its state has versions beside the tensors
torch.save(module.state_dict(), sys.argv[2], pickle_protocol=protocol, **options)
torch.save(torch.nn.Linear(2, 2), sys.argv[3], **options)
values = {n: (v.float() if v.dtype == torch.bfloat16 else v) for n, v in state.items()}
numpy.savez(sys.argv[5], **{n: v.detach().numpy() for n, v in values.items()})
"""


@pytest.mark.parity
@pytest.mark.parametrize("protocol", [2, 5])
def test_what_torch_saves_is_read_back(tmp_path, protocol):
    pytest.importorskip("torch")
    state, module, whole, values = (tmp_path / n for n in ("state", "module", "whole", "v.npz"))
    command = [sys.executable, "-c", TORCH_CODE, state, module, whole, f"{protocol}", values]
    subprocess.run(command, check=True, timeout=300)
    tensors, module = open_tensors(state), open_tensors(module)
    with np.load(values) as saved:
        assert set(saved) == set(tensors)
        for name in tensors:
            found = tensors.read(name).astype(saved[name].dtype)
            np.testing.assert_array_equal(found, saved[name])
    assert tensors["tied"] == tensors["tied again"]
    assert tensors["weight"].offset < tensors["row"].offset  # one storage
    assert tensors.read("brain").dtype == ml_dtypes.bfloat16
    assert tensors.read("half transposed").dtype == np.float16
    assert module.read("num_batches_tracked").tolist() == 0
    assert module.read("running_var").tolist() == [1, 1, 1, 1]
    with pytest.raises(ValueError, match="it wants|must have a type"):
        open_tensors(whole)
    data = state.read_bytes()
    for size in [*range(20, 400, 37), *range(400, len(data), 97), len(data) - 1]:
        refusal(open_tensors, tmp_path / "cut", data[:size])


class Runs:
    """Pickled as a call of the system's shell."""

    def __init__(self, command):
        self.command = command

    def __reduce__(self):
        return os.system, (self.command,)


@pytest.mark.parametrize("place", range(1, 5))
def test_a_pickle_that_would_run_code_is_not_run(tmp_path, place):
    marker = tmp_path / "marker"
    program = pickle.dumps({"a": Runs(f"touch {marker}")}, 2)
    pickles = [torch_pickle(part) for part in (MAGIC_NUMBER, 1001, MACHINE, {}, [])]
    pickles[place] = program
    found = refusal(open_tensors, tmp_path / "pytorch_model.bin", b"".join(pickles))
    assert re.search(r"must not call .* Received: it wants '(posix|nt).system'", found)
    assert not marker.exists()
    pickle.loads(program)  # so it is a program that works
    assert marker.exists()


LONG = storage("0", "LongStorage", 3)
WRONG = {
    "another magic number": (
        torch_pickle(7) + torch_legacy_bytes(A, GOOD),
        "the magic number must be 119547037146038801333356. Received: 7",
    ),
    "a call in its place": (b"\x80\2cposix\nsystem\n" + MAGIC, "it wants 'posix.system'"),
    "another version": (
        torch_legacy_bytes(A, GOOD, version=1002),
        "the version must be 1001. Received: 1002",
    ),
    "big-endian": (
        torch_legacy_bytes(A, GOOD, machine={**MACHINE, "little_endian": False}),
        "must be little-endian",
    ),
    "no facts": (torch_legacy_bytes(A, GOOD, machine=3), "must be little-endian. Received: 3"),
    "a list": (torch_legacy_bytes([A["a"]], GOOD), "must hold a dictionary"),
    "a number": (torch_legacy_bytes({"a": 1}, {}), "must hold tensors only. Received: 'a': 1"),
    "a call": (torch_legacy_bytes({"a": Named("torch", "load", "x")}, {}), "wants 'torch.load'"),
    "keys of no list": (torch_legacy_bytes(A, GOOD, keys={"0": 1}), "a key must be that of"),
    "a key of no text": (torch_legacy_bytes(A, GOOD, keys=[["0"]]), "Received: ['0']"),
    "a key missing": (torch_legacy_bytes(A, {}), "must have 24 bytes. Received: none"),
    "a key of nothing": (torch_legacy_bytes(A, {**GOOD, "1": (6, SIX)}), "Received: '1'"),
    "a key twice": (torch_legacy_bytes(A, GOOD, keys=["0", "0"]), "and stand once. Received: '0'"),
    "two types of one storage": (
        torch_legacy_bytes({**A, "b": view(LONG, 0, (3,), (1,))}, GOOD),
        "must have one type and one size. Received: float32, 6 and int64, 3",
    ),
    "a smaller count": (torch_legacy_bytes(A, {"0": (5, SIX)}), "Received: a count of 5"),
    "a larger count": (torch_legacy_bytes(A, {"0": (7, SIX)}), "Received: a count of 7"),
    "a negative count": (torch_legacy_bytes(A, {"0": (-6, SIX)}), "Received: a count of -6"),
    "a count of nothing": (torch_legacy_bytes(A, {"0": (0, b"")}), "Received: a count of 0"),
    "too few bytes": (torch_legacy_bytes(A, {"0": (6, SIX[:-1])}), "inside the file of"),
    "too many bytes": (torch_legacy_bytes(A, {"0": (6, SIX + b"x")}), "Received: 1 bytes more"),
    "100 GB": (
        torch_legacy_bytes(
            {"a": view(storage("0", "FloatStorage", 25 * 2**30), 0, (25 * 2**30,), (1,))},
            {"0": (25 * 2**30, SIX)},
        ),
        "must be its 26843545600 elements inside the file",
    ),
    "beyond all files": (
        torch_legacy_bytes(
            {"a": view(storage("0", "FloatStorage", 2**61), 0, (6,), (1,))}, {"0": (2**61, SIX)}
        ),
        "inside the file of",
    ),
    "behind the end": (
        torch_legacy_bytes({"a": view(STORED, 1, (6,), (1,))}, GOOD),
        "must be inside its storage of 6 elements",
    ),
    "behind the end of a part": (
        torch_legacy_bytes({"a": view((*STORED, ("1", 2, 4)), 0, (5,), (1,))}, GOOD),
        "must be inside its storage of 4 elements",
    ),
    "a part behind the end": (
        torch_legacy_bytes({"a": view((*STORED, ("1", 2, 5)), 0, (2,), (1,))}, GOOD),
        "a storage must have a type, a key and a size",
    ),
    "a part before the beginning": (
        torch_legacy_bytes({"a": view((*STORED, ("1", -1, 5)), 0, (2,), (1,))}, GOOD),
        "a storage must have a type, a key and a size",
    ),
}


@pytest.mark.parametrize(("data", "message"), WRONG.values(), ids=WRONG)
def test_a_wrong_file_is_refused(tmp_path, data, message):
    found = refusal(open_tensors, tmp_path / "file", data)
    assert message in found


def test_a_file_cut_anywhere_is_refused(tmp_path):
    data = torch_legacy_of(some_arrays())
    for size in range(4, len(data), 61):
        refusal(open_tensors, tmp_path / "file", data[:size])


def test_a_large_file_is_opened_without_reading_it(tmp_path):
    stored = storage("0", "FloatStorage", 2**32)
    path = tmp_path / "pytorch_model.bin"
    value = {"a": view(stored, 2**32 - 2, (2,), (1,))}
    path.write_bytes(torch_legacy_bytes(value, {"0": (2**32, b"")}))
    os.truncate(path, path.stat().st_size + 2**34)  # 16 GiB that take no place
    assert open_tensors(path).read("a").tolist() == [0, 0]
