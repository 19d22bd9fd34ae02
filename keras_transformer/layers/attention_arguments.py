"""Checks of the arguments of `MultiHeadAttention`, where two names may say one thing."""

from keras_transformer import arguments
from keras_transformer.masking import boolean_mask


def checked_output_shape(output_shape, output_dim):
    """Returns the output's last axes as a tuple, or None for the query's width."""
    if output_dim is not None:
        output_dim = arguments.positive_integer("output_dim", output_dim)
        if output_shape is not None:
            raise ValueError(
                "give `output_shape` or `output_dim`, not both. "
                f"Received: output_shape={output_shape!r}, output_dim={output_dim!r}"
            )
        return (output_dim,)
    if output_shape is None:
        return None
    try:
        sizes = arguments.integers("output_shape", output_shape)
        return tuple(arguments.positive_integer("output_shape", size) for size in sizes)
    except ValueError:
        raise ValueError(
            "`output_shape` must be a positive integer or a tuple of them. "
            f"Received: output_shape={output_shape!r}"
        ) from None


def checked_axes(attention_axes):
    """Returns `attention_axes` as a tuple or None."""
    return arguments.optional(arguments.integers, "attention_axes", attention_axes)


def checked_window(window, sliding_window):
    """Returns how far a query sees, from one of the two ways to say it."""
    if sliding_window is None:
        return None if window is None else arguments.non_negative_integer("window", window)
    if window is not None:
        raise ValueError(
            "give `window` or `sliding_window`, not both. "
            f"Received: window={window!r}, sliding_window={sliding_window!r}"
        )
    return arguments.positive_integer("sliding_window", sliding_window) - 1


def checked_flash(flash_attention, dropout):
    """Returns `flash_attention`, or refuses it beside dropout on the weights."""
    if flash_attention and dropout:
        raise ValueError(
            "`dropout` must be 0 with `flash_attention=True`: the fused kernels have none. "
            f"Received: dropout={dropout}"
        )
    return arguments.plain(flash_attention)


def checked_key_value_heads(num_key_value_heads, num_heads):
    """Returns the number of heads of keys and values, a divisor of `num_heads`."""
    if num_key_value_heads is None:
        return num_heads
    num_key_value_heads = arguments.positive_integer("num_key_value_heads", num_key_value_heads)
    if num_heads % num_key_value_heads:
        raise ValueError(
            "`num_key_value_heads` must divide `num_heads`. "
            f"Received: num_key_value_heads={num_key_value_heads}, num_heads={num_heads}"
        )
    return num_key_value_heads


def check_lengths(value_shape, key_shape):
    """Raises `ValueError` when value and key differ in more than their widths."""
    if tuple(value_shape[1:-1]) != tuple(key_shape[1:-1]):
        raise ValueError(
            "the axes of `value` and `key` between batch and width must be equal. "
            f"Received: value of shape {tuple(value_shape)}, key of shape {tuple(key_shape)}"
        )


def per_head(attention_mask):
    """Gives an attention mask (batch, query, key) an axis for heads, and refuses other ranks."""
    mask = boolean_mask("attention_mask", attention_mask)
    if len(mask.shape) == 4:
        return mask
    if len(mask.shape) == 3:
        return mask[:, None]
    raise ValueError(
        "`attention_mask` must have shape (batch, query, key) or (batch, heads, query, key); "
        "a padding mask (batch, key) becomes one with mask[:, None, :]. "
        f"Received: attention_mask of shape {tuple(mask.shape)}"
    )
