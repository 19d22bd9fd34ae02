"""Which part of a Transformer each device holds, for `keras.distribution` on JAX."""

import re

import keras

from keras_transformer import arguments
from keras_transformer.process_group import own_process

__all__ = ["TransformerParallel", "transformer_layout_map"]

BATCH, MODEL = "batch", "model"  # the axes of a mesh
# The path of a variable, the axis of the mesh that divides each of its own, and what is divided.
# Other variables are whole on each device.
# fmt: off
LAYOUTS: dict[str, tuple[tuple[str | None, ...], str]] = {
    r".*/query/kernel": ((None, MODEL, None), "num_heads"),
    r".*/query/bias": ((MODEL, None), "num_heads"),
    r".*/(key|value)/kernel": ((None, MODEL, None), "num_heads, or num_key_value_heads,"),
    r".*/(key|value)/bias": ((MODEL, None), "num_heads, or num_key_value_heads,"),
    r".*/attention_output/kernel": ((MODEL, None, None), "num_heads"),
    r".*/bucket_bias": ((None, MODEL), "num_heads"),
    r".*/(gate|inner)/kernel": ((None, MODEL), "d_ff"),
    r".*/(gate|inner)/bias": ((MODEL,), "d_ff"),
    r".*/outer/kernel": ((MODEL, None), "d_ff"),
    r".*/embedding/embeddings": ((MODEL, None), "vocab_size"),
    r".*/embedding/reverse_embeddings": ((None, MODEL), "vocab_size"),
    r".*/logits_bias": ((MODEL,), "vocab_size"),
}
# fmt: on


def transformer_layout_map(
    mesh: keras.distribution.DeviceMesh,
) -> keras.distribution.LayoutMap:
    """Returns the layout of the weights of a `Transformer`, or of any of its layers.

    Attention is divided by heads. A device has the columns of its heads in the matrices of query,
    key and value. It has their rows in the output's matrix. The feed-forward network is divided by
    its inner width, embeddings and logits by the vocabulary. Norms, biases of outputs and learned
    positions are whole on each device. A layer then needs one sum over the devices after the
    attention and one after the feed-forward network.

    Args:
        mesh: a `keras.distribution.DeviceMesh` with the axes "batch" and "model".

    Returns:
        A `keras.distribution.LayoutMap`, to which layouts of layers of your own can be added.

    Raises:
        ValueError: when the mesh has other axes, or Keras does not run on JAX.

    Reference: Shoeybi et al. 2019, "Megatron-LM", section 3.

    Example:

    >>> if keras.backend.backend() == "jax":
    ...     devices = keras.distribution.list_devices()[:1]
    ...     mesh = keras.distribution.DeviceMesh((1, 1), ("batch", "model"), devices)
    ...     layouts = transformer_layout_map(mesh)
    ...     axes = layouts["decoder/layer_0/feed_forward/outer/kernel"].axes  # ("model", None)
    """
    check_backend()
    if set(mesh.axis_names) != {BATCH, MODEL}:
        raise ValueError(
            f"`mesh` must have the axes {BATCH!r} and {MODEL!r}. "
            f"Received: axis_names={tuple(mesh.axis_names)}"
        )
    layouts = keras.distribution.LayoutMap(mesh)
    for path, (axes, _) in LAYOUTS.items():
        layouts[path] = axes
    return layouts


class TransformerParallel(keras.distribution.ModelParallel):
    """Divides batches over some devices, and the weights of a `Transformer` over others.

    Set it before the model is made. Then `fit`, `evaluate` and `generate` run on all devices, and
    loss, metrics and weights are those of one device. The rows of each batch must be a multiple of
    `data_parallel`: `PairDataset(rows_multiple=)` makes them so.

    Args:
        data_parallel: number of parts of a batch, a multiple of the number of processes.
        model_parallel: number of parts of the weights. It divides `num_heads` (and
            `num_key_value_heads`), `d_ff` and the sizes of the vocabularies.
        devices: list of `data_parallel * model_parallel` names of devices; None takes the first of
            `keras.distribution.list_devices()`.

    Raises:
        ValueError: when Keras does not run on JAX, or there are too few devices. With several
            processes, when some of their devices have nothing to do. Also when a process does not
            have all parts of the weights. When the model is made, if a size of it cannot be
            divided. At the first batch, if `model_parallel` divides no variable at all.

    Example:

    >>> if keras.backend.backend() == "jax":
    ...     keras.distribution.set_distribution(TransformerParallel(1, 1))
    ...     keras.distribution.set_distribution(None)
    """

    def __init__(
        self, data_parallel: int = 1, model_parallel: int = 1, devices: list[str] | None = None
    ) -> None:
        check_backend()
        self.data_parallel = arguments.positive_integer("data_parallel", data_parallel)
        self.model_parallel = arguments.positive_integer("model_parallel", model_parallel)
        number = self.data_parallel * self.model_parallel
        found = keras.distribution.list_devices() if devices is None else list(devices)
        if len(found) < number or (devices is not None and len(found) > number):
            raise ValueError(
                f"`data_parallel` * `model_parallel`, {number}, must be the number of devices. "
                f"Received: data_parallel={data_parallel}, model_parallel={model_parallel}, and "
                f"{len(found)} device(s): {', '.join(found)}"
            )
        num_processes = own_process()[1]
        if num_processes > 1 and (number != len(found) or self.data_parallel % num_processes):
            raise ValueError(
                f"In several processes `data_parallel` must be a multiple of their number, "
                f"{num_processes}, and `data_parallel` * `model_parallel` the number of all "
                f"devices, {len(found)}. With one device in each process `model_parallel` must "
                "be 1: for more, start fewer processes, each with several devices. Received: "
                f"data_parallel={data_parallel}, model_parallel={model_parallel}"
            )
        shape = self.data_parallel, self.model_parallel
        mesh = keras.distribution.DeviceMesh(shape, (BATCH, MODEL), found[:number])
        # What reads the data divides it among processes. Keras can do that for tf.data alone.
        super().__init__(layout_map=transformer_layout_map(mesh), auto_shard_dataset=False)
        self._num_divided = self._num_whole = 0  # of the variables that were made

    def get_variable_layout(self, variable: keras.Variable) -> keras.distribution.TensorLayout:
        """Returns the layout of a variable, or raises `ValueError` if it cannot be divided."""
        layout = super().get_variable_layout(variable)
        for size, axis in zip(variable.shape, layout.axes, strict=True):
            if axis == MODEL and size % self.model_parallel:
                names = (
                    name for path, (_, name) in LAYOUTS.items() if re.fullmatch(path, variable.path)
                )
                name = next(names, "each size")
                raise ValueError(
                    f"{name} must be a multiple of `model_parallel`, {self.model_parallel}: choose "
                    f"another size, or another number of devices. Received: {variable.path} of "
                    f"shape {tuple(variable.shape)}"
                )
        if MODEL in layout.axes:
            self._num_divided += 1
        else:
            self._num_whole += 1
        return layout

    def get_data_layout(self, data_shape: tuple[int, ...]) -> keras.distribution.TensorLayout:
        """Returns the layout of a batch, or raises `ValueError` if no variable is divided."""
        if self.model_parallel > 1 and self._num_whole and not self._num_divided:
            raise ValueError(
                "`model_parallel` must be 1 for a model without a weight that "
                "`transformer_layout_map` divides, or that was made before the distribution was "
                f"set. Received: model_parallel={self.model_parallel}, and {self._num_whole} "
                "variables, each whole on every device"
            )
        return super().get_data_layout(data_shape)


def check_backend() -> None:
    """Raises `ValueError` unless Keras runs on JAX: elsewhere it takes a distribution for none."""
    if keras.backend.backend() != "jax":
        raise ValueError(
            "`keras.distribution` must run on JAX: set KERAS_BACKEND=jax. On TensorFlow use "
            f"`tf.distribute.MirroredStrategy`. Received: backend={keras.backend.backend()!r}"
        )
