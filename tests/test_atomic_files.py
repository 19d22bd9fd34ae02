"""A file or a directory appears whole or not at all."""

from pathlib import Path

import pytest

from keras_transformer import atomic_files
from keras_transformer.atomic_files import new_directory, new_file, write_atomically


def test_a_directory_appears_when_its_block_ends(tmp_path):
    path = tmp_path / "deep" / "model"
    with new_directory(path) as written:
        Path(written, "file").write_bytes(b"a")
        assert not path.exists()
    assert [entry.name for entry in path.parent.iterdir()] == ["model"]
    assert (path / "file").read_bytes() == b"a"


def test_an_error_leaves_no_directory(tmp_path):
    def write_half():
        with new_directory(tmp_path / "model") as written:
            Path(written, "file").write_bytes(b"half")
            raise RuntimeError("stopped")

    with pytest.raises(RuntimeError, match="stopped"):
        write_half()
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize("kind", ["file", "empty directory"])
def test_what_is_at_the_path_stays(tmp_path, kind):
    path = tmp_path / "model"
    if kind == "file":
        path.write_bytes(b"old")
    else:
        path.mkdir()
    with (
        pytest.raises(ValueError, match=r"`path` must not exist yet. Received: path='.*/model'"),
        new_directory(path),
    ):
        pass
    assert [entry.name for entry in tmp_path.iterdir()] == ["model"]
    assert path.is_dir() or path.read_bytes() == b"old"


def test_a_file_is_replaced_whole_or_stays(tmp_path, monkeypatch):
    path = tmp_path / "file"
    write_atomically(path, b"old")

    def fail(*_):
        raise OSError("no space left")

    monkeypatch.setattr(atomic_files.os, "replace", fail)
    with pytest.raises(OSError, match="no space left"):
        write_atomically(path, b"new")
    assert {entry.name: entry.read_bytes() for entry in tmp_path.iterdir()} == {"file": b"old"}


def test_a_new_file_takes_the_place_of_the_old_one_when_its_block_ends(tmp_path):
    path = tmp_path / "model.keras"
    path.write_bytes(b"old")
    (tmp_path / ".model.keras").write_bytes(b"half, of a writer that was killed")
    with new_file(path) as scratch:
        assert scratch.suffix == ".keras"  # by which Keras chooses a format
        scratch.write_bytes(b"new")
        assert path.read_bytes() == b"old"
    assert {entry.name: entry.read_bytes() for entry in tmp_path.iterdir()} == {path.name: b"new"}


def test_a_path_that_a_person_chose_costs_no_other_file(tmp_path):
    """A link stays and its target changes. No name that the person may have used is taken."""
    (tmp_path / ".env").write_bytes(b"theirs")
    path = tmp_path / "env"
    path.symlink_to(tmp_path / "target")
    (tmp_path / "target").write_bytes(b"old")
    (tmp_path / "ordinary").write_bytes(b"")
    for data in (b"new", b"newer"):
        with new_file(path, anywhere=True) as scratch:
            scratch.write_bytes(data)
        assert path.is_symlink()
        assert (tmp_path / "target").read_bytes() == data
    with pytest.raises(RuntimeError), new_file(path, anywhere=True):
        raise RuntimeError("stopped")
    assert (tmp_path / ".env").read_bytes() == b"theirs"
    assert {entry.name for entry in tmp_path.iterdir()} == {".env", "env", "target", "ordinary"}
    assert (tmp_path / "target").stat().st_mode == (tmp_path / "ordinary").stat().st_mode


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_an_error_leaves_the_old_file_alone(tmp_path, error):
    path = tmp_path / "file"
    path.write_bytes(b"old")

    def write_half():
        with new_file(path) as scratch:
            scratch.write_bytes(b"half")
            raise error("stopped")

    with pytest.raises(error, match="stopped"):
        write_half()
    assert {entry.name: entry.read_bytes() for entry in tmp_path.iterdir()} == {"file": b"old"}


def test_a_new_file_is_on_disk_before_it_has_its_name(tmp_path, monkeypatch):
    calls = []
    for name in ("fsync", "replace"):
        monkeypatch.setattr(atomic_files.os, name, lambda *_, name=name: calls.append(name))
    with new_file(tmp_path / "file") as scratch:
        scratch.write_bytes(b"new")
    assert calls == ["fsync", "replace"]
