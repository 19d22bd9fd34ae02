"""How a Transformer tells positions apart, by the names that command lines have for it."""

from keras_transformer import (
    ALiBi,
    PositionalEncoding,
    RelativePositionBias,
    RotaryPositionalEncoding,
)

# The paper's own first. The others act inside self-attention, where distances alone count.
POSITIONS = {
    "sinusoidal": PositionalEncoding,
    "rotary": RotaryPositionalEncoding,
    "relative": RelativePositionBias,
    "alibi": ALiBi,
}
