"""Asks for the packages that a program would miss after its training."""

import importlib.util


def check_installed(*names, extras="tensorflow,plots,eval", more=""):
    """Raises `ImportError` now for a module that would be missed after the training.

    `extras` and `more` are what pip is to install.
    """
    for name in names:
        if importlib.util.find_spec(name) is None:
            raise ImportError(
                f"{name} is not installed. Install everything that the examples need with "
                f'pip install "keras-transformer-components[{extras}]"{more}'
            )
