"""A small corpus, and short training runs on it."""

import random

import pytest

WORDS = ["red", "old", "tall", "cat", "dog", "bird", "sees", "likes", "a", "the", "my"]


@pytest.fixture(scope="session")
def corpus(tmp_path_factory):
    """Files of short sentences, the target each word of the source backwards."""
    directory = tmp_path_factory.mktemp("corpus")
    generator = random.Random(7)
    sources = [" ".join(generator.choices(WORDS, k=generator.randint(2, 6))) for _ in range(200)]
    targets = [" ".join(word[::-1] for word in source.split()) for source in sources]
    sources[5], targets[9] = "", " "
    for name, count in (("text", 200), ("test", 12)):
        for ending, texts in (("en", sources), ("xx", targets)):
            text = "".join(f"{line}\n" for line in texts[:count])
            (directory / f"{name}.{ending}").write_text(text, encoding="utf-8")
    pairs = zip(sources, targets, strict=True)
    lines = [f"{a}\t{b}\n" for a, b in pairs if a.strip() and b.strip()]
    (directory / "words.tsv").write_text("".join(lines[:120]), encoding="utf-8")
    return directory
