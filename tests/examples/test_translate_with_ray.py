"""The example of Ray Data, run by a local Ray: the translations of `translate --shards`."""

import os

import pytest

pytestmark = pytest.mark.slow


def test_ray_gives_the_translations_of_shards_in_their_order(
    collection, exported, run_example, tmp_path
):
    pytest.importorskip("ray")
    if (os.cpu_count() or 1) < 2:
        pytest.skip("Ray needs a processor beside that of the actor")
    parquet = pytest.importorskip("pyarrow.parquet")
    texts, expected = collection
    (tmp_path / "export").symlink_to(exported)
    # Relative paths: the workers are in other directories.
    program = ("translate_with_ray.py", "export", texts, "out")
    printed = run_example(*program, folder=tmp_path)
    assert printed == f"{len(expected)} lines translated"
    rows = parquet.read_table(tmp_path / "out").to_pylist()
    assert [(row["text"], row["translation"], row["reason"]) for row in rows] == expected
    said = run_example(*program, folder=tmp_path, fails=True)
    assert said == f"error: {tmp_path / 'out'} has files. Delete them, or give a new directory."


def test_addresses_stay_as_they_are():
    pytest.importorskip("ray")
    from translate_with_ray import address

    assert address("gs://bucket/crawl") == "gs://bucket/crawl"
    assert address("crawl").startswith("/")
