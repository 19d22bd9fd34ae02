"""Positions against those of Hugging Face's models, with random weights."""

import numpy as np
import pytest

from keras_transformer.layers import (
    ALiBi,
    MultiHeadAttention,
    RelativePositionBias,
    RotaryPositionalEncoding,
)
from tests.backends import array, normal, randomise

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pytestmark = [pytest.mark.parity, pytest.mark.filterwarnings("default")]

HEADS, KEY_DIM, LENGTH = 4, 8, 300
WIDTH = HEADS * KEY_DIM


def llama(**rope):
    """A Llama attention and its rotary embedding."""
    from transformers.models.llama import modeling_llama

    config = transformers.LlamaConfig(
        hidden_size=WIDTH,
        num_attention_heads=HEADS,
        num_key_value_heads=2,
        max_position_embeddings=LENGTH,
        rope_parameters={"rope_theta": 10000.0, "rope_type": "default", **rope},
        attn_implementation="eager",
    )
    return (
        modeling_llama.LlamaAttention(config, layer_idx=0).eval(),
        modeling_llama.LlamaRotaryEmbedding(config),
    )


SCALINGS = {
    "plain": ({}, {}),
    "linear": ({"rope_type": "linear", "factor": 4.0}, {"scaling": "linear", "factor": 4.0}),
    "yarn": (
        {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 75},
        {"scaling": "yarn", "factor": 4.0, "original_max_length": 75},
    ),
}


@pytest.mark.parametrize("name", SCALINGS)
def test_rotary_attention_equals_llama(name):
    theirs_options, ours_options = SCALINGS[name]
    theirs, rotary = llama(**theirs_options)
    ours = MultiHeadAttention(
        HEADS,
        KEY_DIM,
        num_key_value_heads=2,
        use_bias=False,
        position=RotaryPositionalEncoding(**ours_options),
    )
    hidden = normal(1, 2, LENGTH, WIDTH)
    ours.build(hidden.shape, hidden.shape)
    randomise(ours)
    kernels = [kernel.reshape(WIDTH, -1).T for kernel in ours.get_weights()[:3]]
    kernels.append(ours.get_weights()[3].reshape(WIDTH, WIDTH).T)
    for projection, kernel in zip("qkvo", kernels, strict=True):
        getattr(theirs, f"{projection}_proj").weight.data = torch.tensor(kernel)
    causal = torch.full((LENGTH, LENGTH), float("-inf")).triu(1)[None, None]
    with torch.no_grad():
        tensor = torch.tensor(hidden)
        cos_sin = rotary(tensor, torch.arange(LENGTH)[None])
        expected = theirs(tensor, position_embeddings=cos_sin, attention_mask=causal)[0].numpy()
    output = array(ours(hidden, hidden, use_causal_mask=True))
    # Their angles are float32: up to 300 / 2 ** 24 of a radian off.
    np.testing.assert_allclose(output, expected, atol=1e-5 * np.abs(expected).max())


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("num_buckets", "max_distance"), [(32, 128), (8, 20), (16, 100)])
def test_relative_bias_equals_t5(causal, num_buckets, max_distance):
    from transformers.models.t5.modeling_t5 import T5Attention

    config = transformers.T5Config(
        num_heads=HEADS,
        relative_attention_num_buckets=num_buckets,
        relative_attention_max_distance=max_distance,
        is_decoder=causal,
    )
    theirs = T5Attention(config, has_relative_attention_bias=True, layer_idx=0)
    ours = RelativePositionBias(num_buckets, max_distance)
    ours.build_for_heads(HEADS, KEY_DIM)
    randomise(ours)
    theirs.relative_attention_bias.weight.data = torch.tensor(ours.get_weights()[0])
    with torch.no_grad():
        expected = theirs.compute_bias(LENGTH, LENGTH).numpy()
    bias = array(ours.bias(np.arange(LENGTH), np.arange(LENGTH), causal))
    if causal:  # what follows is masked there, whatever its bias
        past = np.tri(LENGTH, dtype=bool)
        bias, expected = bias[..., past], expected[..., past]
    np.testing.assert_allclose(bias, expected, atol=1e-6)


@pytest.mark.parametrize("heads", [1, 2, 3, 8, 12, 16, 20])
def test_alibi_equals_bloom(heads):
    from transformers.models.bloom.modeling_bloom import build_alibi_tensor

    attention_mask = torch.ones((1, LENGTH), dtype=torch.long)
    # Bloom adds slope * key position: the same as ours but for a constant of each query.
    theirs = build_alibi_tensor(attention_mask, heads, torch.float32).numpy()
    ours = ALiBi()
    ours.build_for_heads(heads, KEY_DIM)
    bias = array(ours.bias(np.array([LENGTH - 1]), np.arange(LENGTH)))[0, :, 0]
    constant = theirs[:, 0, -1:]
    # Theirs is a difference of float32 numbers up to 300.
    np.testing.assert_allclose(bias, theirs[:, 0] - constant, atol=5e-5)
