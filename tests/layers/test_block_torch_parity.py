"""Encoder and decoder layers against those of torch.nn, with the same weights."""

import itertools

import numpy as np
import pytest

from keras_transformer.layers import DecoderLayer, EncoderLayer, MultiHeadAttention
from tests.backends import array, randomise
from tests.layers.blocks import D_FF, D_MODEL, HEADS, inputs_of

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.parity
OPTIONS = [*itertools.product([False, True], ["relu", "gelu"])]


def attention_weights(attention, prefix):
    """Heads side by side, as torch stores them: it keeps x W^T where Keras keeps x W."""
    w_q, b_q, w_k, b_k, w_v, b_v, w_o, b_o = attention.get_weights()
    flat = [kernel.reshape(D_MODEL, D_MODEL).T for kernel in (w_q, w_k, w_v)]
    return {
        f"{prefix}.in_proj_weight": np.concatenate(flat),
        f"{prefix}.in_proj_bias": np.concatenate([b_q.ravel(), b_k.ravel(), b_v.ravel()]),
        f"{prefix}.out_proj.weight": w_o.reshape(D_MODEL, D_MODEL).T,
        f"{prefix}.out_proj.bias": b_o,
    }


def block_weights(layer, residuals):
    w1, b1, w2, b2 = layer.feed_forward.get_weights()
    found = {
        "linear1.weight": w1.T,
        "linear1.bias": b1,
        "linear2.weight": w2.T,
        "linear2.bias": b2,
    }
    for number, residual in enumerate(residuals, start=1):
        gamma, beta = residual.norm.get_weights()
        found |= {f"norm{number}.weight": gamma, f"norm{number}.bias": beta}
    return found


def torch_layer(layer_class, weights, norm_first, activation):
    # torch's "gelu" is the exact one.
    layer = layer_class(
        D_MODEL, HEADS, D_FF, 0.0, activation, 1e-6, batch_first=True, norm_first=norm_first
    )
    layer.load_state_dict({name: torch.tensor(value) for name, value in weights.items()})
    return layer.eval()


def run_torch(layer, *tensors, **masks):
    with torch.no_grad():
        output = layer(*map(torch.tensor, tensors), **masks)
    return output.cpu().numpy()


def exact(activation):
    if activation == "relu":
        return activation
    import keras

    return lambda x: keras.activations.gelu(x, approximate=False)


@pytest.mark.parametrize(("norm_first", "activation"), OPTIONS)
def test_encoder_layer_equals_torch(norm_first, activation):
    hidden, mask, _, _ = inputs_of()
    ours = EncoderLayer(HEADS, D_FF, norm_first=norm_first, activation=exact(activation))
    ours.build(hidden.shape)
    randomise(ours)
    weights = attention_weights(ours.attention, "self_attn")
    weights |= block_weights(ours, [ours.attention_residual, ours.feed_forward_residual])
    theirs = torch_layer(torch.nn.TransformerEncoderLayer, weights, norm_first, activation)
    # torch marks what may not be attended to.
    expected = run_torch(theirs, hidden, src_key_padding_mask=torch.tensor(~mask))
    output = array(ours(hidden, padding_mask=mask))
    np.testing.assert_allclose(output[mask], expected[mask], atol=1e-5)


@pytest.mark.parametrize(("norm_first", "activation"), OPTIONS)
def test_decoder_layer_equals_torch(norm_first, activation):
    hidden, mask, memory, memory_mask = inputs_of()
    ours = DecoderLayer(HEADS, D_FF, norm_first=norm_first, activation=exact(activation))
    ours.build(hidden.shape, memory.shape)
    randomise(ours)
    weights = attention_weights(ours.self_attention, "self_attn")
    weights |= attention_weights(ours.cross_attention, "multihead_attn")
    residuals = [ours.self_attention_residual, ours.cross_attention_residual]
    weights |= block_weights(ours, [*residuals, ours.feed_forward_residual])
    theirs = torch_layer(torch.nn.TransformerDecoderLayer, weights, norm_first, activation)
    expected = run_torch(
        theirs,
        hidden,
        memory,
        tgt_mask=torch.tensor(~np.tri(hidden.shape[1], dtype=bool)),
        tgt_key_padding_mask=torch.tensor(~mask),
        memory_key_padding_mask=torch.tensor(~memory_mask),
    )
    output = array(ours(hidden, memory, padding_mask=mask, memory_padding_mask=memory_mask))
    np.testing.assert_allclose(output[mask], expected[mask], atol=1e-5)


@pytest.mark.parametrize(
    ("heads", "cross", "causal", "padded", "use_bias"),
    [*itertools.product([1, 3, 5], [False, True], [False, True], [False, True], [False, True])],
)
def test_attention_equals_torch(heads, cross, causal, padded, use_bias):
    hidden, mask, memory, memory_mask = inputs_of()
    memory, memory_mask = (memory, memory_mask) if cross else (hidden, mask)
    ours = MultiHeadAttention(heads, D_MODEL // heads, use_bias=use_bias)
    ours.build(hidden.shape, memory.shape)
    randomise(ours)
    theirs = torch.nn.MultiheadAttention(D_MODEL, heads, bias=use_bias, batch_first=True)
    parts = ours.get_weights()
    kernels, biases = (parts[::2], parts[1::2]) if use_bias else (parts, [])
    flat = [kernel.reshape(D_MODEL, D_MODEL).T for kernel in kernels[:3]]
    state = {
        "in_proj_weight": np.concatenate(flat),
        "out_proj.weight": kernels[3].reshape(D_MODEL, D_MODEL).T,
    }
    if use_bias:
        state["in_proj_bias"] = np.concatenate([bias.ravel() for bias in biases[:3]])
        state["out_proj.bias"] = biases[3]
    theirs.load_state_dict({name: torch.tensor(value) for name, value in state.items()})
    allowed = np.tri(hidden.shape[1], memory.shape[1], dtype=bool)
    with torch.no_grad():
        expected, weights = theirs.eval()(
            *map(torch.tensor, (hidden, memory, memory)),
            key_padding_mask=torch.tensor(~memory_mask) if padded else None,
            attn_mask=torch.tensor(~allowed) if causal else None,
            average_attn_weights=False,
        )
    options = {"value_mask": memory_mask if padded else None, "use_causal_mask": causal}
    output, own_weights = ours(hidden, memory, return_attention_scores=True, **options)
    np.testing.assert_allclose(array(output), expected.numpy(), atol=1e-5)
    np.testing.assert_allclose(array(own_weights), weights.numpy(), atol=1e-5)
    np.testing.assert_allclose(array(ours(hidden, memory, **options)), expected.numpy(), atol=1e-5)
