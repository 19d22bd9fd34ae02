"""PyTorch's weight files are read without PyTorch, and nothing in them is run."""

import io
import os
import pickle
import re
import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest

from keras_transformer.interop.tensor_files import open_tensors
from keras_transformer.interop.torch_file import described_by
from tests.interop.weight_files import (
    Named,
    refusal,
    some_arrays,
    storage,
    torch_bytes,
    torch_of,
    torch_pickle,
    view,
    zip_of,
)

SIX = {"0": np.arange(6, dtype=np.float32).tobytes()}


def of_six(start, shape, strides, size=6, storages=SIX):
    """Gives a file with one tensor, "a", of six floats."""
    return torch_bytes(
        {"a": view(storage("0", "FloatStorage", size), start, shape, strides)}, storages
    )


def opened(path, data):
    path.write_bytes(data)
    return open_tensors(path)


def test_arrays_are_read_back(tmp_path):
    tensors = opened(tmp_path / "pytorch_model.bin", torch_of(some_arrays()))
    assert list(tensors) == list(some_arrays())
    for name, array in some_arrays().items():
        assert (tensors[name].shape, tensors[name].dtype) == (array.shape, array.dtype)
        np.testing.assert_array_equal(tensors.read(name), array)


def test_a_view_has_its_start_and_strides(tmp_path):
    # Rows of the transposed: positions 1, 4 and 2, 5 of 0..5.
    tensors = opened(tmp_path / "file", of_six(1, (2, 2), (1, 3)))
    assert tensors.read("a").tolist() == [[1, 4], [2, 5]]
    assert tensors.read("a").flags.c_contiguous
    assert opened(tmp_path / "file", of_six(2, (4,), (1,))).read("a").tolist() == [2, 3, 4, 5]
    assert opened(tmp_path / "file", of_six(5, (), ())).read("a").tolist() == 5
    # The stride of an axis of one position says nothing.
    assert opened(tmp_path / "file", of_six(0, (1, 6), (2**60, 1))).read("a").shape == (1, 6)


def test_tied_tensors_are_one(tmp_path):
    stored = storage("0", "FloatStorage", 6)
    value = {"a": view(stored, 0, (2, 3), (3, 1)), "b": view(stored, 0, (2, 3), (3, 1))}
    tensors = opened(tmp_path / "file", torch_bytes(value, SIX))
    assert tensors["a"] == tensors["b"]
    first = tensors.read("a")
    assert tensors.read("b") is first


TORCH_CODE = """
import sys, torch
torch.manual_seed(0)
weight = torch.randn(5, 3)
tied = torch.nn.Parameter(torch.randn(7, 2))
module = torch.nn.BatchNorm1d(4)  # its state holds an integer of no axes
state = {
    "weight": weight,
    "transposed": weight.t(),
    "slice": weight[1:4, 1:],
    "tied": tied,
    "tied again": tied,
    "half": weight.half(),
    "brain": weight.bfloat16(),
    "count": torch.tensor(3),
    "flags": weight > 0,
    "none": torch.zeros(0, 3),
}
torch.save(state, sys.argv[1])
torch.save(module.state_dict(), sys.argv[2])
torch.save(torch.nn.Linear(2, 2), sys.argv[3])
values = {n: (v.float() if v.dtype == torch.bfloat16 else v) for n, v in state.items()}
import numpy
numpy.savez(sys.argv[4], **{n: v.detach().numpy() for n, v in values.items()})
"""


@pytest.mark.parity
def test_what_torch_saves_is_read_back(tmp_path):
    pytest.importorskip("torch")
    paths = [tmp_path / name for name in ("state", "module", "whole", "values.npz")]
    subprocess.run([sys.executable, "-c", TORCH_CODE, *paths], check=True, timeout=300)
    state, module = open_tensors(paths[0]), open_tensors(paths[1])
    with np.load(paths[3]) as values:
        assert set(values) == set(state)
        for name in state:
            np.testing.assert_array_equal(state.read(name).astype(values[name].dtype), values[name])
    assert state["tied"] == state["tied again"]
    assert state.read("brain").dtype == ml_dtypes.bfloat16
    assert module.read("num_batches_tracked").tolist() == 0
    assert module.read("running_var").tolist() == [1, 1, 1, 1]
    with pytest.raises(ValueError, match="it wants 'torch.nn.modules.linear.Linear'"):
        open_tensors(paths[2])


class Runs:
    """Pickled as a call of the system's shell."""

    def __init__(self, command):
        self.command = command

    def __reduce__(self):
        return os.system, (self.command,)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_pickle_that_would_run_code_is_not_run(tmp_path, protocol):
    marker = tmp_path / "marker"
    program = pickle.dumps({"a": Runs(f"touch {marker}")}, protocol)
    data = zip_of([("archive/data.pkl", program)])
    found = refusal(open_tensors, tmp_path / "pytorch_model.bin", data)
    assert not marker.exists()
    if protocol > 1:
        assert re.search(r"must not call .* Received: it wants '(posix|nt).system'", found)
    pickle.loads(program)  # so it is a program that works
    assert marker.exists()


@pytest.mark.parametrize(
    "called",
    [
        "builtins eval",
        "torch.storage _load_from_bytes",
        "torch._utils _rebuild_tensor_v3",
        "torch FloatTensor",
        "numpy.core.multiarray _reconstruct",
        "collections OrderedDict.fromkeys",
    ],
)
def test_what_makes_no_tensor_is_named(tmp_path, called):
    data = torch_bytes({"a": Named(*called.split(" "), "1+1")}, SIX)
    found = refusal(open_tensors, tmp_path / "file", data)
    assert f"it wants '{called.replace(' ', '.')}'" in found


def nested(depth, end=b"."):
    """Gives a pickle of tuples in tuples, each twice in the next: 2**depth in all."""
    return b"\x80\2)" + b"q\0h\0\x86" * depth + end


STORED = storage("0", "FloatStorage", 6)
WRONG = {
    "no pickle": (zip_of([("archive/version", b"3")]), "must have one member */data.pkl"),
    "two pickles": (zip_of([("a/data.pkl", b""), ("b/data.pkl", b"")]), "must have one member"),
    "empty pickle": (zip_of([("a/data.pkl", b"")]), "the pickle must be whole"),
    "no text": (zip_of([("a/data.pkl", b"\x80\2X\2\0\0\0\xff\xff.")]), "the pickle must be whole"),
    "a string of 4 GB": (zip_of([("a/data.pkl", b"\x80\2X\xff\xff\xff\xff.")]), "expected"),
    "a memo of 4 G": (zip_of([("a/data.pkl", b"\x80\2Nr\xff\xff\xff\xff.")]), "a dictionary"),
    "a number of many digits": (zip_of([("a/data.pkl", b"\x8b\xff\xff\xff\x7f\1.")]), "be whole"),
    "nested": (zip_of([("a/data.pkl", nested(60))]), "must hold a dictionary"),
    "a nested module": (
        zip_of([("a/data.pkl", nested(20, b"X\1\0\0\0a\x93."))]),
        "must have a text as its name. Received: ((",
    ),
    "a nested function": (
        zip_of([("a/data.pkl", b"\x80\2X\1\0\0\0a" + nested(20, b"\x93.")[2:])]),
        "must have a text as its name. Received: ((",
    ),
    "a long number": (
        zip_of([("a/data.pkl", b"F" + b"1" * 4000 + b"x\n.")]),
        "the pickle must be whole. Received: could not convert",
    ),
    "over a mark": (zip_of([("a/data.pkl", b"\x80\2}(s.")]), "the pickle must be whole"),
    "instance": (zip_of([("a/data.pkl", b"(ios\nsystem\n.")]), "the instruction INST"),
    "a list": (torch_bytes([view(STORED, 0, (6,), (1,))], SIX), "must hold a dictionary"),
    "a number": (torch_bytes({"a": 1}, SIX), "must hold tensors only. Received: 'a': 1"),
    "a name of no text": (torch_bytes({1: 1}, SIX), "must have each name once. Received: 1"),
    "no storage": (torch_bytes({"a": view("0", 0, (6,), (1,))}, SIX), "must have a storage"),
    "a called storage": (
        torch_bytes({"a": Named("torch", "FloatStorage", 10**12)}, SIX),
        "must call what makes tensors",
    ),
    "a missing storage": (of_six(0, (6,), (1,), storages={}), "24 bytes. Received: none"),
    "a short storage": (of_six(0, (7,), (1,), size=7), "28 bytes. Received: 24 bytes"),
    "a key that leads out": (
        torch_bytes({"a": view(storage("../0", "FloatStorage", 6), 0, (6,), (1,))}, SIX),
        "Received: none",
    ),
    "100 GB": (of_six(0, (25 * 2**30,), (1,)), "must be inside its storage of 6 elements"),
    "100 GB by repetition": (of_six(0, (25 * 2**30,), (0,)), "strides=(0,)"),
    "100 GB of storage": (of_six(0, (6,), (1,), size=25 * 2**30), "107374182400 bytes"),
    "overflow": (of_six(0, (2**32, 2**32), (1, 1)), "that an array can have"),
    "negative": (of_six(0, (-6,), (1,)), "must have a storage, a start"),
    "negative start": (of_six(-1, (6,), (1,)), "must have a storage, a start"),
    "negative stride": (of_six(5, (6,), (-1,)), "must have a storage, a start"),
    "behind the end": (of_six(1, (6,), (1,)), "must be inside its storage"),
    "a wide stride": (of_six(0, (2, 2), (5, 1)), "must be inside its storage"),
    "strides missing": (of_six(0, (2, 3), (1,)), "must be inside its storage"),
    "big-endian": (
        zip_of([("archive/data.pkl", torch_pickle({})), ("archive/byteorder", b"big")]),
        "the byteorder must be little",
    ),
}


@pytest.mark.parametrize(("data", "message"), WRONG.values(), ids=WRONG)
def test_a_wrong_file_is_refused(tmp_path, data, message):
    found = refusal(open_tensors, tmp_path / "file", data)
    assert message in found


def test_a_file_cut_anywhere_is_refused(tmp_path):
    data = torch_of(some_arrays())
    for size in range(4, len(data), 61):
        refusal(open_tensors, tmp_path / "file", data[:size])


def test_a_pickle_cut_anywhere_is_refused():
    program = torch_pickle({"a": view(STORED, 0, (2, 3), (3, 1)), "b": {}})
    for size in range(len(program)):
        with pytest.raises(ValueError, match="(?s).") as error:
            described_by(io.BytesIO(program[:size]))
        assert "\n" not in str(error.value)
