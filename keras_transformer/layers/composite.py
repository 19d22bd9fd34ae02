"""Layers made of layers: `trainable` reaches all of them, whenever it is set, and is saved."""

import warnings
from typing import Any, TypedDict

import keras

from keras_transformer.arguments import plain


class LayerOptions(TypedDict, total=False):
    """The arguments of every Keras layer, and that of every `Composite`."""

    activity_regularizer: keras.regularizers.Regularizer | None
    trainable: bool
    dtype: str | keras.DTypePolicy | dict[str, Any] | None
    autocast: bool
    name: str | None
    trainable_inside: dict[str, bool] | None


class Composite(keras.layers.Layer):
    """A layer or a model that makes layers of its own, in its constructor or in `build`.

    Keras's setter of `trainable` reaches the layers that exist. `adopt` passes the value on to
    those made later, and the configuration names the layers inside whose value is another.

    Args:
        trainable_inside: what `get_config` saves: `{path: trainable}` of the layers inside that
            differ from the layer around them. A path is made of attributes, as
            "layers.0/attention"; a path of no layer gives a warning.
        **kwargs: the arguments of every Keras layer.

    Raises:
        ValueError: for `trainable_inside` of another form.
    """

    built: bool

    def __init__(self, *, trainable_inside: dict[str, bool] | None = None, **kwargs: Any) -> None:
        super().__init__(**{name: plain(value) for name, value in kwargs.items()})
        self._num_adopted = 0
        self._trainable_later = checked_values(trainable_inside)  # of layers not made yet

    def __setattr__(self, name: str, value: object) -> None:
        """Sets `trainable` of all layers inside even where this layer's value stays the same.

        On TensorFlow Keras leaves out an assignment that would not change the attribute.
        """
        if name != "trainable":
            super().__setattr__(name, value)
            return
        self._trainable_later = {}
        keras.layers.Layer.trainable.fset(self, value)

    def adopt(self) -> None:
        """Passes `trainable` on to the layers made since the last call.

        A constructor or a `build` that makes layers calls it at its end.
        """
        inside = layers_inside(self)
        if not self.trainable:
            for layer in inside[self._num_adopted :]:
                layer.trainable = False
        self._num_adopted = len(inside)
        if self._trainable_later:
            set_trainable_inside(self, self._trainable_later)

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments of every layer, and which layers inside differ in `trainable`."""
        differing = trainable_inside(self)
        own = {"trainable_inside": differing} if differing else {}
        return {**super().get_config(), **own}


def checked_values(values: Any) -> dict[str, bool]:
    """Returns a new `{path: trainable}`, empty for None, or raises `ValueError`."""
    if values is None:
        return {}
    is_good = isinstance(values, dict) and all(
        isinstance(path, str) and isinstance(value, bool) for path, value in values.items()
    )
    if not is_good:
        raise ValueError(
            "`trainable_inside` must be a dictionary of True and False by path. "
            f"Received: trainable_inside={values!r}"
        )
    return dict(values)


def layers_inside(layer: Any) -> list[keras.layers.Layer]:
    """The layers that `layer` itself holds, in the order in which they were made."""
    return layer._flatten_layers(include_self=False, recursive=False)


def list_children(layer: Any) -> dict[str, keras.layers.Layer]:
    """The layers that `layer` itself holds, by what tells them apart in another process.

    That is the attribute that holds them, "head" or "layers.0": Keras counts up the names that it
    gives by itself. A functional or `Sequential` model saves the names of its layers.
    """
    left = {id(child): child for child in layers_inside(layer)}
    children: dict[str, keras.layers.Layer] = {}
    saves_names = isinstance(layer, keras.Sequential) or hasattr(layer, "operations")
    attributes = {} if saves_names else {**vars(layer), **vars(layer).get("_modules", {})}
    for name, value in attributes.items():
        if name in ("_layers", "_modules"):
            continue
        items = {name: value}
        if isinstance(value, (list, tuple)):
            items = {f"{name}.{number}": item for number, item in enumerate(value)}
        elif isinstance(value, dict):
            items = {f"{name}.{key}": item for key, item in value.items()}
        children |= {key: left.pop(id(item)) for key, item in items.items() if id(item) in left}
    return {**children, **{child.name: child for child in left.values()}}


def trainable_inside(layer: Any) -> dict[str, bool]:
    """`{path: trainable}` of all layers inside that differ from the layer around them."""
    differing = {}
    for key, child in list_children(layer).items():
        if child.trainable != layer.trainable:
            differing[key] = child.trainable
        deeper = trainable_inside(child)
        differing.update({f"{key}/{path}": value for path, value in deeper.items()})
    return {**differing, **getattr(layer, "_trainable_later", {})}


def set_trainable_inside(layer: Any, values: dict[str, bool]) -> None:
    """Sets `{path: trainable}`; a composite layer keeps those of layers that it has yet to make."""
    inside, later = list_children(layer), {}
    for path, value in values.items():
        key, _, deeper = path.partition("/")
        if key not in inside:
            later[path] = value
        elif deeper:
            child = inside[key]
            kept = getattr(child, "_trainable_later", {})
            set_trainable_inside(child, {**kept, deeper: value})
        else:
            inside[key].trainable = value
    if isinstance(layer, Composite):
        layer._trainable_later = later
    if later and layer.built:
        warnings.warn(
            f"`trainable_inside` names layers that {layer.name} does not have: "
            f"{', '.join(sorted(later))}. They change nothing.",
            stacklevel=2,
        )
