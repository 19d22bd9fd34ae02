"""The example of Apache Beam, run by its local runner: the translations of `translate --shards`."""

import json
import re

import pytest

pytestmark = pytest.mark.slow
LOCAL = ("--direct_running_mode=multi_processing", "--direct_num_workers=2")


def test_beam_gives_the_translations_of_shards(collection, exported, run_example, tmp_path):
    pytest.importorskip("apache_beam")
    texts, expected = collection
    (tmp_path / "export").symlink_to(exported)
    # Relative paths: the workers are in other directories.
    program = ("translate_with_beam.py", "export", f"{texts}/*", "out/part", *LOCAL)
    printed = run_example(*program, folder=tmp_path)
    assert printed == f"{len(expected)} lines translated"
    rows = [
        json.loads(line)
        for path in (tmp_path / "out").iterdir()
        for line in path.read_text(encoding="utf-8").split("\n")[:-1]
    ]
    found = [(row["text"], row["translation"], row.get("reason")) for row in rows]
    assert sorted(found, key=repr) == sorted(expected, key=repr)
    said = run_example(*program, folder=tmp_path, fails=True)
    assert re.fullmatch(r"error: .*out/part-.* exists\. Delete it, or give another output\.", said)


def test_addresses_stay_as_they_are():
    pytest.importorskip("apache_beam")
    from translate_with_beam import address

    assert address("gs://bucket/crawl/*.txt") == "gs://bucket/crawl/*.txt"
    assert address("crawl").startswith("/")
