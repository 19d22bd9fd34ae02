"""A small corpus for the trainings of the examples."""

import random

import pytest


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """Two files of short sentences, the target each word of the source backwards."""
    directory = tmp_path_factory.mktemp("corpus")
    generator = random.Random(7)
    words = ["red", "old", "tall", "cat", "dog", "bird", "sees", "likes", "a", "the", "my"]
    sources = [" ".join(generator.choices(words, k=generator.randint(2, 6))) for _ in range(600)]
    targets = [" ".join(word[::-1] for word in source.split()) for source in sources]
    sources[5], targets[9] = "", " "
    (directory / "test.en").write_text(
        "".join(f"{line}\n" for line in [*sources[:40]]), encoding="utf-8"
    )
    (directory / "test.xx").write_text(
        "".join(f"{line}\n" for line in [*targets[:40]]), encoding="utf-8"
    )
    (directory / "text.en").write_text("".join(f"{line}\n" for line in sources), encoding="utf-8")
    (directory / "text.xx").write_text("".join(f"{line}\n" for line in targets), encoding="utf-8")
    return directory
