"""How CTranslate2 writes a model of ours: the variables of its weights, by our names.

A matrix is (outputs, inputs). Query, key and value of a self-attention are one matrix, one below
the other, and so are key and value of a cross-attention.
"""

from typing import NamedTuple

from keras_transformer.layers.stack import Stack
from keras_transformer.models import Transformer

# By the number that CTranslate2 gives them: 1 and 4 are approximations of GELU.
ACTIVATIONS = {0: "relu", 2: "silu", 3: "gelu", 5: "tanh", 6: "sigmoid"}
GATES = {"silu": "swiglu", "gelu": "geglu"}
POSITIONS = "position_encodings/encodings"
EMBEDDINGS = {
    "encoder": ("encoder/embeddings_0/weight", "encoder/embeddings/weight"),
    "decoder": ("decoder/embeddings/weight",),
}
PROJECTION = "decoder/projection/weight"
PROJECTION_BIAS = "decoder/projection/bias"

PARTS = {
    "attention": "self_attention",
    "self_attention": "self_attention",
    "cross_attention": "attention",
    "feed_forward": "ffn",
}
KINDS = {"kernel": "weight", "bias": "bias", "gamma": "gamma", "scale": "gamma", "beta": "beta"}
SIDES = {"source": "encoder", "target": "decoder"}


class Place(NamedTuple):
    """Where a weight lies: in the rows `begin` to `begin + size` of a variable."""

    variable: str
    begin: int
    size: int


def places(model: Transformer, shapes: dict[str, tuple[int, ...]]) -> dict[str, Place]:
    """Returns the place of each weight of a model but those that have a row for each token.

    Args:
        model: the model, built or not.
        shapes: its `weight_shapes`.
    """
    found = {}
    for name, shape in shapes.items():
        side, _, rest = name.partition("/")
        if side in ("encoder", "decoder"):
            stack = model.encoder if side == "encoder" else model.decoder
            variable, begin = inside_stack(name, stack, model.d_model)
        elif side.endswith("_norm"):
            side = SIDES[side.removesuffix("_norm")]
            variable, begin = f"{side}/layernorm_embedding/{KINDS[rest]}", 0
        elif side.endswith("_positions"):
            variable, begin = f"{SIDES[side.removesuffix('_positions')]}/{POSITIONS}", 0
        else:
            continue
        found[name] = Place(variable, begin, shape[-1] if name.endswith("kernel") else shape[0])
    return found


def inside_stack(name: str, stack: Stack, d_model: int) -> tuple[str, int]:
    """Returns the variable of a weight of an encoder or decoder, and its first row there."""
    side, layer, *rest, kind = name.split("/")
    if layer == "final_norm":
        return f"{side}/layer_norm/{KINDS[kind]}", 0
    part, sublayer = rest
    if kind == "bucket_bias":
        return relative_bias(side, 0), 0
    if part.endswith("_residual"):
        part = PARTS[part.removesuffix("_residual")]
        return f"{side}/{layer}/{part}/layer_norm/{KINDS[kind]}", 0
    linear, begin = locate_linear(part, sublayer, stack, d_model)
    return f"{side}/{layer}/{PARTS[part]}/{linear}/{KINDS[kind]}", begin


def relative_bias(side: str, layer: int) -> str:
    """Returns the variable of T5's position bias, which all layers of a side have alike."""
    return f"{side}/layer_{layer}/self_attention/relative_attention_bias"


def locate_linear(part: str, sublayer: str, stack: Stack, d_model: int) -> tuple[str, int]:
    """Returns the name of the matrix that holds a sub-layer of a part, and the first row there."""
    if part == "feed_forward":
        gated = isinstance(stack.activation, str)
        inner = "linear_0_noact" if gated else "linear_0"
        return {"gate": "linear_0", "inner": inner, "outer": "linear_1"}[sublayer], 0
    width = d_model // stack.num_heads * stack.num_key_value_heads
    if part == "cross_attention":
        return {
            "query": ("linear_0", 0),
            "key": ("linear_1", 0),
            "value": ("linear_1", width),
            "attention_output": ("linear_2", 0),
        }[sublayer]
    return {
        "query": ("linear_0", 0),
        "key": ("linear_0", d_model),
        "value": ("linear_0", d_model + width),
        "attention_output": ("linear_1", 0),
    }[sublayer]


def variable_shapes(
    placed: dict[str, Place], shapes: dict[str, tuple[int, ...]]
) -> dict[str, tuple[int, ...]]:
    """Returns the shape of each variable that holds weights with a place."""
    found: dict[str, tuple[int, ...]] = {}
    for name, place in placed.items():
        inputs = shapes[name][:1] if name.endswith("kernel") else shapes[name][1:]
        before = found.get(place.variable, (0,))[0]
        found[place.variable] = (before + place.size, *inputs)
    return found
