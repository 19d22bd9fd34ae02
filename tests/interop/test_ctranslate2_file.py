"""`model.bin` of CTranslate2 is read in all its versions, and its integers as numbers."""

import struct

import numpy as np
import pytest

from keras_transformer.interop.ctranslate2_file import CTranslate2File
from tests.interop.weight_files import (
    INT8_ARRAYS,
    ctranslate2_bytes,
    ctranslate2_of,
    refusal,
    some_arrays,
    variable,
)


def opened(path, data):
    path.write_bytes(data)
    return CTranslate2File(path)


@pytest.mark.parametrize("version", range(2, 7))
def test_each_version_is_read_back(tmp_path, version):
    file = opened(tmp_path / "model.bin", ctranslate2_of(INT8_ARRAYS, version))
    assert (file.version, file.kind, file.revision) == (version, "TransformerSpec", 7)
    assert list(file) == list(INT8_ARRAYS)
    for name, array in INT8_ARRAYS.items():
        assert file.read(name).dtype == array.dtype
        np.testing.assert_array_equal(file.read(name), array)
    # By hand: 127 / 127, -127 / 127, 0; 64 / 2, 1 / 2, -2 / 2.
    assert file.dequantized("encoder/weight").tolist() == [[1, -1, 0], [32, 0.5, -1]]
    assert file.dequantized("encoder/weight").dtype == np.float32
    assert file.dequantized("encoder/bias").tolist() == [0.5, -1.5]
    assert file.quantization == "int8"


def test_all_dtypes_are_read_back(tmp_path):
    arrays = {n: a for n, a in some_arrays().items() if n != "count"}
    arrays["integers"] = np.array([-7, 2**30], np.int32)
    file = opened(tmp_path / "model.bin", ctranslate2_of(arrays))
    for name, array in arrays.items():
        assert file[name].dtype == array.dtype
        np.testing.assert_array_equal(file.read(name), array)
    assert file.quantization is None
    half = file.dequantized("half")
    assert half.dtype == np.float32
    np.testing.assert_array_equal(half, arrays["half"])


def test_int16_has_one_scale_and_an_old_file_none(tmp_path):
    weight = np.array([[1000, -500], [0, 250]], np.int16)
    arrays = {"weight": weight, "weight_scale": np.array(500, np.float32)}
    file = opened(tmp_path / "model.bin", ctranslate2_of(arrays))
    assert file.dequantized("weight").tolist() == [[2, -1], [0, 0.5]]
    assert file.dequantized("weight").dtype == np.float32
    assert file.quantization == "int16"
    # CTranslate2 took 1000 for every weight before it stored a scale.
    file = opened(tmp_path / "model.bin", ctranslate2_of({"weight": weight}, version=2))
    assert file.dequantized("weight").tolist() == [[1, -0.5], [0, 0.25]]
    assert file.dequantized("weight").dtype == np.float32


def test_an_int8_convolution_has_a_scale_for_each_row(tmp_path):
    arrays = {
        "conv/weight": np.arange(12, dtype=np.int8).reshape(2, 3, 2),
        "conv/weight_scale": np.array([1, 2], np.float32),
    }
    values = opened(tmp_path / "model.bin", ctranslate2_of(arrays)).dequantized("conv/weight")
    assert values[0].tolist() == [[0, 1], [2, 3], [4, 5]]
    assert values[1].tolist() == [[3, 3.5], [4, 4.5], [5, 5.5]]


def test_an_alias_is_the_variable_and_its_scale(tmp_path):
    variables = [variable(n, a) for n, a in INT8_ARRAYS.items()]
    aliases = [("decoder/weight", "encoder/weight"), ("decoder/bias", "encoder/bias")]
    file = opened(tmp_path / "model.bin", ctranslate2_bytes(variables, aliases))
    assert file.aliases == {
        "decoder/weight": "encoder/weight",
        "decoder/weight_scale": "encoder/weight_scale",
        "decoder/bias": "encoder/bias",
    }
    assert file["decoder/weight"] == file["encoder/weight"]
    values = file.read("encoder/weight")
    assert file.read("decoder/weight") is values
    expected = file.dequantized("encoder/weight")
    np.testing.assert_array_equal(file.dequantized("decoder/weight"), expected)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"encoder/weight_scale": None}, "must be one number, or 2. Received: shape=none"),
        ({"encoder/weight_scale": np.ones(3, np.float32)}, r"Received: shape=\(3,\)"),
        (
            {"encoder/weight_scale": np.array([1, 0], np.float32)},
            "at least 8e-37. Received: 0.0 to 1.0",
        ),
        ({"encoder/weight_scale": np.array([1, np.nan], np.float32)}, "Received: nan to nan"),
        ({"encoder/weight_scale": np.array([1, 1e-37], np.float32)}, "at least 8e-37. Received"),
        ({"encoder/weight_scale": np.ones(2, np.int32)}, "must be of a float dtype"),
        ({"encoder/weight_zero": np.ones(2, np.float32)}, "Received: AWQ's integers"),
    ],
)
def test_a_scale_that_does_not_fit_is_refused(tmp_path, changes, message):
    arrays = {n: a for n, a in {**INT8_ARRAYS, **changes}.items() if a is not None}
    file = opened(tmp_path / "model.bin", ctranslate2_of(arrays))
    with pytest.raises(ValueError, match=message) as error:
        file.dequantized("encoder/weight")
    assert "\n" not in str(error.value)


def test_integers_that_are_none_of_a_weight_are_no_numbers(tmp_path):
    file = opened(tmp_path / "model.bin", ctranslate2_of(INT8_ARRAYS))
    assert not file.is_quantized("encoder/num_heads")
    with pytest.raises(ValueError, match="num_heads must be of a float dtype. Received: dtype=int"):
        file.dequantized("encoder/num_heads")
    with pytest.raises(ValueError, match="must hold the tensor decoder/bias. Received: "):
        file.dequantized("decoder/bias")


ONE = np.zeros((2, 3), np.float32)
HEAD = ctranslate2_bytes([], version=6)
WRONG = {
    "empty": (b"", "a number must be inside the file. Received: 4 bytes at 0, where 0 are left"),
    "version 1": (ctranslate2_bytes([], version=1), "must be from 2 to 6. Received: 1"),
    "version 7": (ctranslate2_bytes([], version=7), "must be from 2 to 6. Received: 7"),
    "a text": (b"PK\3\4" + bytes(50), "must be from 2 to 6. Received: 67324752"),
    "count of 4 G": (ctranslate2_bytes([], count=2**32 - 1), "a name must be UTF-8"),
    "one more": (ctranslate2_bytes([variable("a", ONE)], count=2), "a name must be UTF-8"),
    "one less": (
        ctranslate2_bytes([variable("a", ONE), variable("b", ONE)], count=1),
        "a name must be inside the file. Received: 514 bytes at 78, where 40 are left",
    ),
    "twice": (ctranslate2_bytes([variable("a", ONE)] * 2), "must stand once. Received: 'a' twice"),
    "no UTF-8": (ctranslate2_bytes([variable(b"\xff", ONE)]), "a name must be UTF-8"),
    "NUL inside": (ctranslate2_bytes([variable(b"a\0b", ONE)]), "a name must be UTF-8"),
    "a line feed": (ctranslate2_bytes([variable("a\n", ONE)]), "must be printable text"),
    "no name": (ctranslate2_bytes([variable("", ONE)]), "must be printable text"),
    "100 GB": (
        ctranslate2_bytes([variable("a", ONE, dims=(25 * 2**10, 2**20))]),
        "must have the bytes of its shape (25600, 1048576), float32. Received: 24 bytes",
    ),
    "4 GB": (
        ctranslate2_bytes([variable("a", ONE, dims=(2**29, 2), num_bytes=2**32 - 4)]),
        "must have the bytes of its shape",
    ),
    "4 GB that fit": (
        ctranslate2_bytes([variable("a", ONE, dims=(2**30 - 1,), num_bytes=2**32 - 4)]),
        "'a' must be inside the file. Received: 4294967292 bytes",
    ),
    "100 GB in version 2": (
        ctranslate2_bytes(
            [variable("a", ONE, 2, dims=(2**30 - 1, 4), num_bytes=2**32 - 4)], version=2
        ),
        "'a' must be inside the file. Received: 17179869168 bytes",
    ),
    "overflow": (
        ctranslate2_bytes([variable("a", ONE, dims=(2**31, 2**31, 4), num_bytes=0)]),
        "that an array can have",
    ),
    "many axes": (ctranslate2_bytes([variable("a", ONE, dims=(1,) * 255)]), "at most 16 integers"),
    "a dtype of 6": (
        ctranslate2_bytes([variable("a", ONE).replace(struct.pack("<BI", 0, 24), b"\6\x18\0\0\0")]),
        "the dtype of 'a' must be one of 0, 1, 2, 3, 4, 5. Received: 6",
    ),
    "an element of 8 bytes": (
        ctranslate2_bytes([variable("a", np.zeros(3), 3)], version=3),
        "the bytes of an element of 'a' must be one of 1, 2, 4. Received: 8",
    ),
    "alias of none": (
        ctranslate2_bytes([variable("a", ONE)], [("b", "c")]),
        "'b' must name a variable. Received: 'c'",
    ),
    "alias of an alias": (
        ctranslate2_bytes([variable("a", ONE)], [("b", "a"), ("c", "b")]),
        "'c' must name a variable. Received: 'b'",
    ),
    "alias of itself": (ctranslate2_bytes([variable("a", ONE)], [("a", "a")]), "must stand once"),
    "alias twice": (ctranslate2_bytes([variable("a", ONE)], [("b", "a")] * 2), "must stand once"),
    "more behind": (HEAD + b"\0", "must end behind its variables. Received: 1 bytes more"),
    "aliases of 4 G": (HEAD[:-4] + b"\xff\xff\xff\xff", "must be inside the file"),
}


@pytest.mark.parametrize(("data", "message"), WRONG.values(), ids=WRONG)
def test_a_wrong_file_is_refused(tmp_path, data, message):
    found = refusal(CTranslate2File, tmp_path / "model.bin", data)
    assert message in found, found


@pytest.mark.parametrize("version", [2, 3, 6])
def test_a_file_cut_anywhere_is_refused(tmp_path, version):
    data = ctranslate2_of(INT8_ARRAYS, version)
    for size in range(len(data)):
        refusal(CTranslate2File, tmp_path / "model.bin", data[:size])


def test_a_genuine_file_is_read(shared):
    exact = CTranslate2File(shared("data/ctranslate2/aren_transliteration/model.bin"))
    assert (exact.version, exact.kind, exact.revision) == (2, "TransformerBase", 2)
    assert exact.quantization is None
    assert exact["decoder/embeddings/weight"].shape == (43, 32)
    assert exact.dequantized("encoder/layer_0/ffn/linear_0/weight").dtype == np.float32
    rounded = CTranslate2File(shared("data/ctranslate2/aren_transliteration_int8/model.bin"))
    assert rounded.quantization == "int8"
    assert set(exact) == {name for name in rounded if not name.endswith("_scale")}
    quantized = [name for name in exact if rounded.is_quantized(name)]
    assert len(quantized) == len(rounded) - len(exact) == 69
    for name in exact:
        values = exact.read_float32(name)
        if name in quantized:  # to the nearest of 127 steps of a row's largest number, or below
            steps = np.abs(values).max(axis=1, keepdims=True) / 127
            assert (np.abs(rounded.dequantized(name) - values) <= 1.001 * steps).all()
        else:
            np.testing.assert_array_equal(rounded.dequantized(name), values)


@pytest.mark.parity
@pytest.mark.parametrize("quantization", [None, "int8", "int16", "float16", "bfloat16"])
def test_what_the_library_saves_is_read_back(tmp_path, quantization):
    specs = pytest.importorskip("ctranslate2.specs")
    if quantization == "bfloat16":
        pytest.importorskip("torch")
    spec = specs.TransformerSpec.from_config((2, 1), 2, pre_norm=True)
    random = np.random.default_rng(3)
    shapes = {"embeddings": (11, 6), "self_attention/linear_0": (18, 6), "linear_0": (10, 6)}

    def fill(layer, name, value):
        if value is not None or not name.endswith(("weight", "bias", "gamma", "beta", "encodings")):
            return
        key = next((k for k in shapes if k in name), "")
        shape = shapes.get(key, (6, 6)) if name.endswith(("weight", "encodings")) else (6,)
        setattr(layer, name.rsplit("/", 1)[-1], random.normal(size=shape).astype(np.float32))

    spec._visit(fill)
    # Tied, so that the library writes an alias.
    spec.decoder.projection.weight = spec.decoder.embeddings.weight
    spec.register_source_vocabulary([*"abcdefghijk"])
    spec.register_target_vocabulary([*"abcdefghijk"])
    spec.validate()
    before = {n: v.numpy().copy() for n, v in spec.variables().items() if not isinstance(v, str)}
    spec.optimize(quantization=quantization)
    spec.save(str(tmp_path))
    file = CTranslate2File(tmp_path / "model.bin")
    assert (file.version, file.kind) == (6, "TransformerSpec")
    assert file.quantization == (quantization if quantization in ("int8", "int16") else None)
    written = {n: v for n, v in spec.variables().items() if not isinstance(v, str)}
    assert set(written) | set(file.aliases) == set(file)
    for name, value in written.items():
        assert file[name].dtype.name == value.dtype
        if value.dtype == "bfloat16":
            np.testing.assert_array_equal(file.read_float32(name), value.tensor.float().numpy())
        else:
            np.testing.assert_array_equal(file.read(name), value.numpy())
    assert file.aliases["decoder/projection/weight"] == "decoder/embeddings/weight"
    # int8 rounds to 127 steps of a row's largest number, int16 to 1024 of the whole weight's.
    error = {None: 0, "int8": 4 / 254, "int16": 4 / 2048, "float16": 2e-3, "bfloat16": 2e-2}
    for name in before:
        if before[name].dtype == np.float32:
            np.testing.assert_allclose(
                file.dequantized(name), before[name], rtol=0, atol=1.01 * error[quantization]
            )
