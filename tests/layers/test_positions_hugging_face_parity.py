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


def llama(head_dim=KEY_DIM, max_position_embeddings=LENGTH, **rope):
    """A Llama attention and its rotary embedding."""
    from transformers.models.llama import modeling_llama

    config = transformers.LlamaConfig(
        hidden_size=WIDTH,
        num_attention_heads=HEADS,
        num_key_value_heads=2,
        head_dim=head_dim,
        max_position_embeddings=max_position_embeddings,
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
    with torch.no_grad():
        tensor = torch.tensor(hidden)
        cos_sin = rotary(tensor, torch.arange(LENGTH)[None])
        expected = theirs(tensor, position_embeddings=cos_sin, attention_mask=causal_scores())[
            0
        ].numpy()
    output = array(ours(hidden, hidden, use_causal_mask=True))
    # Their angles are float32: up to 300 / 2 ** 24 of a radian off.
    np.testing.assert_allclose(output, expected, atol=1e-5 * np.abs(expected).max())


@pytest.mark.parametrize("factor", [2.0, 4.0])
def test_yarn_equals_llama_at_8192_positions(factor):
    length = 8192
    scaling = {"factor": factor, "original_max_position_embeddings": int(length / factor)}
    _, theirs = llama(64, rope_type="yarn", max_position_embeddings=length, **scaling)
    ours = RotaryPositionalEncoding(
        scaling="yarn", factor=factor, original_max_length=int(length / factor)
    )
    ours.build_for_heads(HEADS, 64)
    np.testing.assert_allclose(ours.frequencies, theirs.inv_freq.numpy(), rtol=3e-7)
    assert ours.stretch == pytest.approx(theirs.attention_scaling)
    with torch.no_grad():
        cosine, sine = theirs(torch.zeros(1, 1, 1), torch.arange(length)[None])
    expected = torch.cat([cosine[0, :, :32], sine[0, :, :32]], dim=-1).numpy()
    heads = np.zeros((1, length, 1, 64), "float32")
    heads[..., :32] = 1  # each pair (1, 0) turns to (cos, sin)
    turned = array(ours.rotate(heads, np.arange(length)))[0, :, 0]
    # Their frequencies and angles are float32: up to 8,192 / 2 ** 24 of a radian off, twice.
    np.testing.assert_allclose(turned, expected, atol=1.14 * 8192 * 2**-23)


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


def causal_scores():
    """What Hugging Face adds to scores to hide what follows, (1, 1, query, key)."""
    return torch.full((LENGTH, LENGTH), float("-inf")).triu(1)[None, None]


def torch_kernels(layer):
    """Kernels of queries, keys, values and output, as torch stores them."""
    kernels = [w for w in layer.get_weights() if w.ndim == 3]
    flat = [kernel.reshape(WIDTH, WIDTH).T for kernel in kernels]
    return [torch.tensor(kernel) for kernel in flat]


@pytest.mark.parametrize("causal", [False, True])
def test_attention_with_the_relative_bias_equals_t5(causal):
    from transformers.models.t5.modeling_t5 import T5Attention

    config = transformers.T5Config(
        d_model=WIDTH,
        d_kv=KEY_DIM,
        num_heads=HEADS,
        is_decoder=causal,
        attn_implementation="eager",
    )
    theirs = T5Attention(config, has_relative_attention_bias=True, layer_idx=0).eval()
    ours = MultiHeadAttention(HEADS, KEY_DIM, use_bias=False, position=RelativePositionBias())
    hidden = normal(1, 2, LENGTH, WIDTH)
    ours.build(hidden.shape, hidden.shape)
    randomise(ours)
    query, key, value, output = torch_kernels(ours)
    # T5 leaves the scores undivided.
    weights = {"q": query * KEY_DIM**-0.5, "k": key, "v": value, "o": output}
    bias = torch.tensor(array(ours.position.bucket_bias))
    weights["relative_attention_bias"] = bias
    theirs.load_state_dict({f"{name}.weight": weight for name, weight in weights.items()})
    with torch.no_grad():
        expected, _, expected_weights = theirs(
            torch.tensor(hidden), mask=causal_scores() if causal else None, output_attentions=True
        )
    found, own_weights = ours(hidden, hidden, use_causal_mask=causal, return_attention_scores=True)
    np.testing.assert_allclose(array(own_weights), expected_weights.numpy(), atol=1e-5)
    expected = expected.numpy()
    for output in (found, ours(hidden, hidden, use_causal_mask=causal)):
        np.testing.assert_allclose(array(output), expected, atol=1e-5 * np.abs(expected).max())


def test_attention_with_alibi_equals_bloom():
    from transformers.models.bloom.modeling_bloom import BloomAttention, build_alibi_tensor

    config = transformers.BloomConfig(hidden_size=WIDTH, n_head=HEADS)
    theirs = BloomAttention(config, layer_idx=0).eval()
    ours = MultiHeadAttention(HEADS, KEY_DIM, position=ALiBi())
    hidden = normal(1, 2, LENGTH, WIDTH)
    ours.build(hidden.shape, hidden.shape)
    randomise(ours)
    *kernels, output = torch_kernels(ours)
    biases = [torch.tensor(array(d.bias)) for d in (ours.query_dense, ours.key_dense)]
    biases.append(torch.tensor(array(ours.value_dense.bias)))
    # One matrix for all three: (heads, of query or key or value, key_dim) by width.
    joint = torch.stack([kernel.reshape(HEADS, KEY_DIM, WIDTH) for kernel in kernels], dim=1)
    weights = {
        "query_key_value.weight": joint.reshape(3 * WIDTH, WIDTH),
        "query_key_value.bias": torch.stack(biases, dim=1).ravel(),
        "dense.weight": output,
        "dense.bias": torch.tensor(array(ours.output_dense.bias)),
    }
    theirs.load_state_dict(weights)
    tensor = torch.tensor(hidden)
    alibi = build_alibi_tensor(torch.ones((2, LENGTH), dtype=torch.long), HEADS, torch.float32)
    with torch.no_grad():
        expected, expected_weights = theirs(
            tensor, torch.zeros_like(tensor), alibi, causal_scores()
        )
    found, own_weights = ours(hidden, hidden, use_causal_mask=True, return_attention_scores=True)
    # Their scores are float32 numbers up to 75: 2 ** -18 off.
    np.testing.assert_allclose(array(own_weights), expected_weights.numpy(), atol=1e-5)
    expected = expected.numpy()
    for output in (found, ours(hidden, hidden, use_causal_mask=True)):
        np.testing.assert_allclose(array(output), expected, atol=2e-5 * np.abs(expected).max())


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
