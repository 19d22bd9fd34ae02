"""What the races count and print of each contestant."""

import json
import sys

import pytest

from benchmarks.timing import LOG_COMPILATIONS, lines_of

TENSORFLOW = """
import json, sys
import tensorflow as tf
double = tf.function(lambda x: x * 2, jit_compile=True)
for size in (1, 2, 2):
    double(tf.zeros(size))
print("no JSON")
print(json.dumps({"tok_s": 5}))
"""
JAX = """
import json
import jax
double = jax.jit(lambda x: x * 2)
for size in (1.0, 2, 2):
    double(size)
print(json.dumps({"tok_s": 5}))
"""


@pytest.mark.parametrize("program", [TENSORFLOW, JAX], ids=["tensorflow", "jax"])
def test_programs_that_xla_compiled_are_counted(program):
    pytest.importorskip("tensorflow" if program is TENSORFLOW else "jax")
    lines = lines_of([sys.executable, "-c", program], LOG_COMPILATIONS)
    assert lines == [{"tok_s": 5, "compilations": 2}]


def test_a_contestant_that_fails_is_named_and_has_no_lines(capsys):
    program = f"print('{json.dumps({'tok_s': 5})}'); raise SystemExit('no memory')"
    assert lines_of([sys.executable, "-c", program]) == []
    assert "no memory" in capsys.readouterr().err
