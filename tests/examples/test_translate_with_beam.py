"""The example of Apache Beam, run by its local runner: the translations of `translate --shards`."""

import json

import pytest

pytestmark = pytest.mark.slow
LOCAL = ("--direct_running_mode=multi_processing", "--direct_num_workers=2")


def test_beam_gives_the_translations_of_shards(collection, exported, run_example, tmp_path):
    pytest.importorskip("apache_beam")
    texts, expected = collection
    (tmp_path / "export").symlink_to(exported)
    # Relative paths: the workers are in other directories.
    printed = run_example(
        *("translate_with_beam.py", "export", f"{texts}/*", "out/part", *LOCAL), folder=tmp_path
    )
    assert printed == f"{len(expected)} lines translated"
    rows = [
        json.loads(line)
        for path in (tmp_path / "out").iterdir()
        for line in path.read_text(encoding="utf-8").split("\n")[:-1]
    ]
    found = sorted((row["text"], row["translation"] or "") for row in rows)
    assert found == sorted(expected)
    assert [len(row["text"]) for row in rows if row["translation"] is None] == [999, 999]


def test_addresses_stay_as_they_are():
    pytest.importorskip("apache_beam")
    from translate_with_beam import address

    assert address("gs://bucket/crawl/*.txt") == "gs://bucket/crawl/*.txt"
    assert address("crawl").startswith("/")
