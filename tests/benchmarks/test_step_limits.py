"""What the benchmark of a step counts is what a step computes."""

import pytest
import tensorflow as tf

from benchmarks.step_limits import build_products, count_work
from keras_transformer import Transformer
from keras_transformer.serving.stored_copy import columns_copy, quantized_copy

WIDTH, INNER, LAYERS, VOCAB = 16, 40, 2, 50
# Queries, keys, values and output of self-attention, queries and output of cross-attention.
MULTIPLIED = LAYERS * (6 * WIDTH**2 + 2 * WIDTH * INNER) + VOCAB * WIDTH


@pytest.mark.parametrize(
    ("quantize", "layout"),
    [(None, "rows"), (None, "columns"), pytest.param("int8", "rows", marks=pytest.mark.slow)],
)
def test_a_step_reads_each_matrix_of_the_decoder_but_those_of_the_memory(quantize, layout):
    model = Transformer(VOCAB, num_layers=LAYERS, d_model=WIDTH, num_heads=2, d_ff=INNER)
    model.build()
    if quantize:
        model = quantized_copy(model, quantize)
    elif layout == "columns":
        model = columns_copy(model)
    macs, size = count_work(model)
    assert macs == MULTIPLIED
    assert size == MULTIPLIED * (1 if quantize else 4)
    assert build_products(model)(tf.ones((3, 1, WIDTH))).shape == (3, 1, WIDTH)
