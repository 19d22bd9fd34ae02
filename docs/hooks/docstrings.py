"""Reads docstrings for the API pages: examples are code, what Keras calls is left out."""

import re

import griffe

EXAMPLE = re.compile(r"^>>> .*(?:\n.+)*", re.MULTILINE)
# Public for Keras, which calls them, and the same in every layer.
FOR_KERAS = re.compile(
    r"build|compute_\w+|on_\w+|update_state|token_values|get_config|get_build_config|from_config"
)


class ForReaders(griffe.Extension):
    """Puts a fence around each example, which Markdown would take for a quotation."""

    def on_instance(self, *, obj, **_):
        """Called with each module, class and function once it is read."""
        if obj.docstring:
            obj.docstring.value = EXAMPLE.sub(r"```pycon\n\g<0>\n```", obj.docstring.value)
        if FOR_KERAS.fullmatch(obj.name):
            obj.public = False
