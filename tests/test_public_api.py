"""The public interface is what `__all__` says, documented, and known to Keras's loader."""

import inspect
import re
import types

import keras
import pytest

from tests.public_modules import FILES, FOLDERS, MODULES, load, public_objects

AT_THE_TOP = {"MaskedAccuracy", "MaskedCrossentropy", "Transformer", "WarmupSchedule"}
KERAS_CLASSES = (
    keras.layers.Layer,  # models are layers
    keras.losses.Loss,
    keras.metrics.Metric,
    keras.optimizers.Optimizer,
    keras.optimizers.schedules.LearningRateSchedule,
)
EXAMPLE = re.compile(r"^ *Examples?:\s*$", re.MULTILINE)


def exported_names(module):
    """Gives the public names of a module that are this package's own and no modules."""
    return sorted(
        name
        for name, value in vars(module).items()
        if not name.startswith("_")
        and not isinstance(value, types.ModuleType)
        and getattr(value, "__module__", module.__name__).startswith("keras_transformer")
    )


def docstring_faults(value):
    """Says what a docstring lacks: a first line that is a sentence, an example."""
    text = inspect.getdoc(value) if value.__doc__ else None
    if not text:
        return ["no docstring"]
    faults = []
    if not text.splitlines()[0].endswith("."):
        faults.append("the first line must end with a period")
    if not EXAMPLE.search(text):
        faults.append("no Example section")
    return faults


@pytest.mark.parametrize("name", MODULES)
def test_all_is_sorted_and_has_no_name_twice(name):
    assert load(name).__all__ == sorted(set(load(name).__all__))


@pytest.mark.parametrize("name", FOLDERS)
def test_all_equals_what_a_folder_exports(name):
    module = load(name)
    objects = {key: getattr(module, key) for key in module.__all__}
    kept = [key for key, value in objects.items() if not isinstance(value, types.ModuleType)]
    assert kept == exported_names(module)


@pytest.mark.parametrize("name", FILES)
def test_all_names_what_a_file_defines(name):
    # A file may lend further functions to others of the package: these are not a promise to users.
    objects = public_objects(load(name))
    assert sorted(objects) == load(name).__all__
    assert {value.__module__ for value in objects.values()} == {name}


@pytest.mark.parametrize("name", MODULES)
def test_every_public_object_is_documented(name):
    faults = {key: docstring_faults(value) for key, value in public_objects(load(name)).items()}
    assert {key: value for key, value in faults.items() if value} == {}


@pytest.mark.parametrize("name", MODULES)
def test_every_keras_class_is_registered(name):
    for key, value in public_objects(load(name)).items():
        if inspect.isclass(value) and issubclass(value, KERAS_CLASSES):
            assert keras.saving.get_registered_name(value) == f"keras_transformer>{key}"


def test_names_of_the_readme_are_at_the_top():
    assert set(load("keras_transformer").__all__) >= AT_THE_TOP


def test_names_at_the_top_are_the_same_objects_below():
    top = load("keras_transformer")
    for name in ["layers", "models", "losses", "metrics", "optimizers", "schedules"]:
        below = load(f"keras_transformer.{name}")
        for key in set(top.__all__) & set(below.__all__):
            assert getattr(top, key) is getattr(below, key)


def test_docstring_faults_are_found():
    def good():
        """Returns nothing.

        Example:

        >>> good()
        """

    def bad():
        """returns nothing"""

    assert docstring_faults(good) == []
    assert docstring_faults(bad) == ["the first line must end with a period", "no Example section"]
    assert docstring_faults(lambda: None) == ["no docstring"]


def test_exported_names_leave_out_modules_and_what_others_made():
    module = types.ModuleType("keras_transformer.made_up")
    module.keras, module.Path, module._private = keras, re.Pattern, 1
    module.Layer = type("Layer", (), {"__module__": "keras_transformer.made_up"})
    module.LIMIT = 3
    assert exported_names(module) == ["LIMIT", "Layer"]
