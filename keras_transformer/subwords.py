"""What sentencepiece learns subwords from, and why it refuses; with and without TensorFlow."""

import re
from collections.abc import Iterable, Iterator

# sentencepiece leaves out training lines of more than 4192 bytes; a character has at most 4.
MAX_LINE_CHARACTERS = 1024


def training_lines(texts: Iterable[str]) -> Iterator[str]:
    """Yields the lines of `texts`, none longer than sentencepiece reads.

    >>> [len(line) for line in training_lines(["a b\\nc", "d" * 1500])]
    [3, 1, 1024, 476]
    """
    for text in texts:
        for line in re.split(r"[\r\n]+", text):
            for start in range(0, len(line), MAX_LINE_CHARACTERS):
                yield line[start : start + MAX_LINE_CHARACTERS]


def explain(message: str, vocab_size: int) -> str:
    """Returns sentencepiece's message as a rule and what was received."""
    largest = re.search(r"too high.*<= (\d+)", message)
    if largest:
        return (
            f"`vocab_size` must be at most {largest[1]} for these texts; more text allows more, "
            "and `shrink_to_fit=True` takes the largest possible. "
            f"Received: vocab_size={vocab_size}"
        )
    smallest = re.search(r"smaller than required_chars\. \d+ vs (\d+)", message)
    if smallest:
        return (
            f"`vocab_size` must be at least {smallest[1]} to hold the characters of these texts. "
            f"Received: vocab_size={vocab_size}"
        )
    return f"`texts` must be text that sentencepiece can learn from. Received: {message}"
