"""Weights are opened by what is in the file, from one file or several."""

import ast
import json
from pathlib import Path

import numpy as np
import pytest

from keras_transformer.interop import tensor_files
from keras_transformer.interop.tensor_files import open_tensors
from tests.interop.weight_files import (
    npz_of,
    refusal,
    safetensors_of,
    some_arrays,
    torch_legacy_of,
    torch_of,
)

WRITERS = {"model.safetensors": safetensors_of, "pytorch_model.bin": torch_of, "model.npz": npz_of}


def arrays_for(name):
    arrays = some_arrays()
    if name == "model.npz":
        del arrays["brain"]
    return arrays


@pytest.mark.parametrize(
    ("name", "write"), [*WRITERS.items(), ("pytorch_model.bin", torch_legacy_of)]
)
def test_the_format_is_told_by_the_content(tmp_path, name, write):
    arrays = arrays_for(name)
    (tmp_path / name).write_bytes(write(arrays))
    (tmp_path / "renamed").write_bytes((tmp_path / name).read_bytes())
    for path in (tmp_path, str(tmp_path / name), tmp_path / "renamed"):
        tensors = open_tensors(path)
        assert list(tensors) == list(arrays)
        np.testing.assert_array_equal(tensors.read("embeddings"), arrays["embeddings"])


def test_of_several_files_the_safest_is_opened(tmp_path):
    for name, write in WRITERS.items():
        (tmp_path / name).write_bytes(write({"a": np.zeros(2, np.float32)}))
    assert open_tensors(tmp_path).path.name == "model.safetensors"
    (tmp_path / "model.safetensors").unlink()
    assert open_tensors(tmp_path).path.name == "pytorch_model.bin"


def write_shards(directory, name, shard_name, weight_map=None):
    """Writes the arrays in two files, and their index."""
    arrays = some_arrays()
    shards = {shard_name.format(1): ["embeddings", "half"], shard_name.format(2): ["brain", "none"]}
    for shard, names in shards.items():
        (directory / shard).write_bytes(WRITERS[name]({n: arrays[n] for n in names}))
    found = {n: shard for shard, names in shards.items() for n in names}
    index = {"metadata": {"total_size": 1}, "weight_map": {**found, **(weight_map or {})}}
    path = directory / f"{name}.index.json"
    path.write_text(json.dumps(index), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("name", "shard_name"),
    [
        ("model.safetensors", "model-{:05}-of-00002.safetensors"),
        ("pytorch_model.bin", "pytorch_model-{:05}-of-00002.bin"),
    ],
)
def test_several_files_are_opened_by_their_index(tmp_path, name, shard_name):
    write_shards(tmp_path, name, shard_name)
    tensors = open_tensors(tmp_path)
    assert set(tensors) == {"embeddings", "half", "brain", "none"}
    for n in tensors:
        np.testing.assert_array_equal(tensors.read(n), some_arrays()[n])


@pytest.mark.parametrize(
    ("weight_map", "message"),
    [
        ({"x": "../model-1"}, "must be named without a path. Received: '../model-1'"),
        ({"x": "/etc/passwd"}, "must be named without a path. Received: '/etc/passwd'"),
        ({"x": "a\\b"}, "must be named without a path"),
        ({"x": "c:b"}, "must be named without a path"),
        ({"x": ".."}, "must be named without a path. Received: '..'"),
        ({"x": "a\0"}, "must be named without a path"),
        ({"x": 3}, "must be named without a path. Received: 3"),
        ({"x": "model-3"}, "`path` must be a file. Received: .*model-3', which is nothing"),
        ({"x": "model-1"}, r"model-1: must hold x. Received: \['embeddings', 'half'\]"),
        ({"\n": "model-1"}, "must be printable text"),
    ],
)
def test_a_wrong_index_is_refused(tmp_path, weight_map, message):
    path = write_shards(tmp_path, "model.safetensors", "model-{}", weight_map)
    with pytest.raises(ValueError, match=message) as error:
        open_tensors(path)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("data", [b"[]", b"{}", b'{"weight_map": []}', b'{"weight_map"', b"\xff"])
def test_an_index_of_the_wrong_type_is_refused(tmp_path, data):
    refusal(open_tensors, tmp_path / "model.safetensors.index.json", data)


def test_a_directory_without_weights_says_what_it_has(tmp_path):
    (tmp_path / "config.json").touch()
    with pytest.raises(ValueError, match=r"must hold model.safetensors or .*: config.json$"):
        open_tensors(tmp_path)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "begins with b''"),
        (b"\x80\2\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.\x80\2M", "the pickle must be whole"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:", "a pointer of Git LFS"),
        (b"<!doctype html><html>", "begins with b'<!doctype html><'"),
        (b"\x89HDF\r\n\x1a\n" + bytes(40), "must be safetensors, a pytorch_model.bin or a .npz"),
    ],
)
def test_another_format_is_refused(tmp_path, data, message):
    assert message in refusal(open_tensors, tmp_path / "file", data)


def test_a_path_of_nothing_or_of_no_file_is_refused(tmp_path):
    with pytest.raises(ValueError, match="must be a file. Received: '.*', which is nothing"):
        open_tensors(tmp_path / "missing")
    with pytest.raises(ValueError, match="Received: '/dev/zero', which is not an ordinary file"):
        open_tensors("/dev/zero")


def test_the_readers_of_files_know_no_framework():
    folder = Path(tensor_files.__file__).parent
    names = "files tensor_file tensor_files ctranslate2_file vocabulary_files"
    names += " npz_file safetensors_file stored_zip torch_file torch_legacy_file"
    for name in names.split():
        tree = ast.parse((folder / f"{name}.py").read_text(encoding="utf-8"))
        modules = [n.module for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)]
        modules += [a.name for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names]
        roots = {module.split(".")[0] for module in modules}
        assert not roots & {"keras", "tensorflow", "torch", "safetensors", "ctranslate2"}, name
