"""Writes weight files byte by byte, right and wrong ones, and opens those that must be refused."""

import io
import json
import pickle
import struct
import tracemalloc
import zipfile
from collections import OrderedDict

import ml_dtypes
import numpy as np
import pytest

SAFETENSORS = {
    "float32": "F32",
    "float16": "F16",
    "bfloat16": "BF16",
    "int8": "I8",
    "int64": "I64",
    "bool": "BOOL",
}
TORCH = {
    "float32": "FloatStorage",
    "float16": "HalfStorage",
    "bfloat16": "BFloat16Storage",
    "int64": "LongStorage",
}
# What PyTorch's files began with before version 1.6.
MAGIC_NUMBER = 0x1950A86A20F9469CFC6C
MACHINE = {
    "protocol_version": 1001,
    "little_endian": True,
    "type_sizes": {"short": 2, "int": 4, "long": 4},
}
CTRANSLATE2 = ["float32", "int8", "int16", "int32", "float16", "bfloat16"]
# What a `model.bin` in 8-bit integers holds.
INT8_ARRAYS = {
    "encoder/weight": np.array([[127, -127, 0], [64, 1, -2]], np.int8),
    "encoder/weight_scale": np.array([127, 2], np.float32),
    "encoder/bias": np.array([0.5, -1.5], np.float32),
    "encoder/num_heads": np.array(8, np.int16),
}


def some_arrays():
    """Gives arrays of unequal sizes and dtypes by name, one of no axes and one with none in it."""
    values = np.arange(-35, 70).astype(np.float32) / 7
    return {
        "embeddings": values.reshape(21, 5),
        "half": values[:21].reshape(3, 7).astype(np.float16),
        "brain": values[:11].astype(ml_dtypes.bfloat16),
        "count": np.array(-3, np.int64),
        "none": np.zeros((0, 3), np.float32),
    }


def safetensors_bytes(header, data=b""):
    """Gives a safetensors file of a header, which may be text or bytes already."""
    if not isinstance(header, bytes):
        header = (header if isinstance(header, str) else json.dumps(header)).encode()
    return struct.pack("<Q", len(header)) + header + data


def safetensors_of(arrays):
    """Gives the right safetensors file of arrays."""
    header, data = {"__metadata__": {"format": "np"}}, b""
    for name, array in arrays.items():
        offsets = [len(data), len(data) + array.nbytes]
        dtype = SAFETENSORS[array.dtype.name]
        header[name] = {"dtype": dtype, "shape": array.shape, "data_offsets": offsets}
        data += array.tobytes()
    return safetensors_bytes(header, data)


def zip_of(members, compression=zipfile.ZIP_STORED):
    """Gives a zip file of (name, bytes) pairs."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", compression) as archive:
        for name, data in members:
            archive.writestr(name, data)
    return stream.getvalue()


def npz_of(arrays):
    """Gives NumPy's file of arrays that it knows."""
    stream = io.BytesIO()
    np.savez(stream, **arrays)
    return stream.getvalue()


class Named:
    """Pickled as a name of a module; called, it is pickled as that call."""

    def __init__(self, module, name, *arguments):
        self.module, self.name, self.arguments = module, name, arguments


class TorchPickler(pickle._Pickler):
    """Writes what PyTorch writes: calls by name, and storages as persistent ids."""

    def persistent_id(self, obj):
        return obj if isinstance(obj, tuple) and obj[:1] == ("storage",) else None

    def save_named(self, obj):
        if obj.arguments:
            self.save_named(Named(obj.module, obj.name))
            self.save(obj.arguments if obj.arguments != ("none",) else ())
            self.write(pickle.REDUCE)
        else:
            self.write(f"c{obj.module}\n{obj.name}\n".encode())

    dispatch = {**pickle._Pickler.dispatch, Named: save_named}


def torch_pickle(value):
    """Gives the pickle of a value with `Named` in it."""
    stream = io.BytesIO()
    TorchPickler(stream, 2).dump(value)
    return stream.getvalue()


def storage(key, dtype, size):
    """Gives what PyTorch pickles of a storage."""
    return ("storage", Named("torch", dtype), key, "cpu", size)


def view(stored, start, shape, strides):
    """Gives what PyTorch pickles of a tensor."""
    hooks = Named("collections", "OrderedDict", "none")
    return Named("torch._utils", "_rebuild_tensor_v2", stored, start, shape, strides, False, hooks)


def torch_bytes(value, storages):
    """Gives a `pytorch_model.bin` of a value and the bytes of its storages by key."""
    members = [("archive/data.pkl", torch_pickle(value)), ("archive/byteorder", b"little")]
    members += [(f"archive/data/{key}", data) for key, data in storages.items()]
    return zip_of([*members, ("archive/version", b"3\n")])


def torch_legacy_bytes(
    value, storages, keys=None, magic=MAGIC_NUMBER, version=1001, machine=MACHINE
):
    """Gives a `pytorch_model.bin` of before PyTorch 1.6.

    Args:
        value: what the pickle holds.
        storages: by key the count of elements that the file claims, and their bytes.
        keys: the list of keys that it claims.
    """
    keys = list(storages) if keys is None else keys
    pickles = [torch_pickle(part) for part in (MAGIC_NUMBER, version, machine, value, keys)]
    data = [struct.pack("<q", count) + values for count, values in storages.values()]
    return b"".join(pickles + data)


def torch_value(arrays):
    """Gives what PyTorch pickles of arrays, and the count and bytes of each storage."""
    value, storages = OrderedDict(), {}
    for key, (name, array) in enumerate(arrays.items()):
        strides = tuple(step // array.itemsize for step in array.strides)
        stored = storage(str(key), TORCH[array.dtype.name], array.size)
        value[name] = view(stored, 0, array.shape, strides)
        storages[str(key)] = array.size, array.tobytes()
    return dict(value), storages


def torch_of(arrays):
    """Gives the right `pytorch_model.bin` of arrays."""
    value, storages = torch_value(arrays)
    return torch_bytes(value, {key: data for key, (_, data) in storages.items()})


def torch_legacy_of(arrays):
    """Gives the right `pytorch_model.bin` of arrays, as versions before 1.6 wrote it."""
    return torch_legacy_bytes(*torch_value(arrays))


def text(value):
    """Gives a string of a `model.bin`."""
    data = (value if isinstance(value, bytes) else value.encode()) + b"\0"
    return struct.pack("<H", len(data)) + data


def variable(name, array, version=6, dims=None, num_bytes=None):
    """Gives a variable of a `model.bin`, which may claim other sizes than it has."""
    dims = array.shape if dims is None else dims
    if version >= 4:
        dtype, size = CTRANSLATE2.index(array.dtype.name), array.nbytes
    else:
        dtype, size = array.itemsize, array.size
    size = size if num_bytes is None else num_bytes
    head = struct.pack(f"<B{len(dims)}IBI", len(dims), *dims, dtype, size)
    return text(name) + head + array.tobytes()


def ctranslate2_bytes(
    variables, aliases=(), version=6, count=None, kind="TransformerSpec", revision=7
):
    """Gives a `model.bin` of variables as `variable` gives them."""
    count = len(variables) if count is None else count
    data = struct.pack("<I", version) + text(kind) + struct.pack("<II", revision, count)
    data += b"".join(variables)
    if version >= 3:
        data += struct.pack("<I", len(aliases)) + b"".join(text(a) + text(b) for a, b in aliases)
    return data


def ctranslate2_of(arrays, version=6, **options):
    """Gives the right `model.bin` of arrays."""
    variables = [variable(n, a, version) for n, a in arrays.items()]
    return ctranslate2_bytes(variables, version=version, **options)


def read_all(tensors):
    """Reads each tensor of a file, one at a time, and returns the bytes of the largest."""
    return max((tensors.read(name).nbytes for name in tensors), default=0)


def refusal(open_file, path, data):
    """Writes a file, and gives the error of one line that opening and reading it must raise.

    No more memory may be taken than twice the file's size and a little, and nothing be written.
    """
    path.write_bytes(data)
    before = sorted(path.parent.iterdir())
    tracemalloc.start()
    try:
        with pytest.raises(ValueError) as error:  # noqa: PT011  (each test looks at the text)
            read_all(open_file(path))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert error.type is ValueError
    assert peak <= 2 * len(data) + 500_000
    assert sorted(path.parent.iterdir()) == before
    message = str(error.value)
    assert "\n" not in message
    assert len(message) < 600
    assert message.startswith(str(path))
    assert "Received: " in message
    return message.removeprefix(f"{path}: ")
