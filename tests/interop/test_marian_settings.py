"""The YAML that Marian writes is read as settings, and nothing else is."""

from pathlib import Path

import pytest

from keras_transformer.interop.marian_settings import read_settings

PATH = Path("decoder.yml")
TEXT = """# a comment
---
models:
  - model.npz
vocabs:
- source.spm
- "target file.spm"
beam-size: 6
normalize: 0.6
relative-paths: true
transformer-preprocess: ""
transformer-tied-layers:
  []
devices: [0, 1]
empty: []
cost: -1.5e-3
word: yes
none: ~
version: v1.12.0 65bf82f: date
map:
  inside: 1
after: 'it'
"""


def test_values_are_numbers_texts_and_lists():
    assert read_settings(PATH, TEXT) == {
        "models": ["model.npz"],
        "vocabs": ["source.spm", "target file.spm"],
        "beam-size": 6,
        "normalize": 0.6,
        "relative-paths": True,
        "transformer-preprocess": "",
        "transformer-tied-layers": [],
        "devices": [0, 1],
        "empty": [],
        "cost": -0.0015,
        "word": "yes",
        "none": None,
        "version": "v1.12.0 65bf82f: date",
        "map": [None],
        "after": "it",
    }


def test_a_long_list_takes_no_longer_for_each_item():
    count = 50_000  # 15 s where each item copies those before it
    assert read_settings(PATH, "a:\n" + "- 1\n" * count) == {"a": [1] * count}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("beam-size 6", "line 1 must be name: value, each name once. Received: 'beam-size 6'"),
        ("a: 1\nb: 2\na: 3", "line 3 must be name: value, each name once. Received: 'a: 3'"),
        ("- item", "line 1 must follow a name. Received: '- item'"),
        ("a: 1\n- item", "line 2 must follow a name. Received: '- item'"),
        ("a: [1, 2", "line 1 must end its list"),
        ("a: [1, [2, 3]]", "line 1 must not have a list in a list. Received: '[2'"),
        # A call for each bracket would take the memory, and more calls than Python has.
        ("a: " + "[" * 5000 + "]" * 5000, "line 1 must not have a list in a list"),
        ('a: "open', "line 1 must end its quote"),
        ('a: "\\x41"', "line 1 must end its quote, without a backslash"),
    ],
)
def test_other_lines_are_refused(text, message):
    with pytest.raises(ValueError, match="decoder.yml: ") as caught:
        read_settings(PATH, text)
    assert message in str(caught.value)
