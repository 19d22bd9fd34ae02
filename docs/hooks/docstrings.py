"""Reads docstrings for the API pages: examples are code, what Keras calls is left out."""

import re

import griffe

EXAMPLE = re.compile(r"^>>> .*(?:\n.+)*", re.MULTILINE)
# Public for Keras, which calls them, and much the same in every class.
FOR_KERAS = re.compile(
    r"build\w*|compute_\w+|on_\w+|update_state|token_values|get_config|get_build_config|from_config"
)


class ForReaders(griffe.Extension):
    """Shows classes to those who use them."""

    def on_instance(self, *, obj, **_):
        """Puts a fence around each example, which Markdown would take for a quotation."""
        if obj.docstring:
            obj.docstring.value = EXAMPLE.sub(r"```pycon\n\g<0>\n```", obj.docstring.value)

    def on_class_members(self, *, cls, **_):
        """Leaves out what Keras calls."""
        for name in [name for name in cls.members if FOR_KERAS.fullmatch(name)]:
            del cls.members[name]
