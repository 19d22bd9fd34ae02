"""Reads docstrings for the API pages: examples are code, what Keras calls is left out."""

import re

import griffe

EXAMPLE = re.compile(r"^>>> .*(?:\n.+)*", re.MULTILINE)
# Sections that the parser of docstrings does not know, and the shapes in one of them.
TITLE = re.compile(r"^(Masking|References?|Example):", re.MULTILINE)
SHAPES = re.compile(r"^Shapes:\n((?: .*(?:\n|$))+)", re.MULTILINE)
SHAPE = re.compile(r"(?<=\.) (?=[\w, ]+: )")
# Public for Keras or for a stack of layers, which call them. Much the same in every class.
FOR_KERAS = re.compile(
    r"build\w*|compute_\w+|on_\w+|update_state|token_values|get_config|get_build_config|from_config"
    r"|transform"
)


def shapes_list(section):
    """Gives the section with the shapes of inputs and output as a list."""
    shapes = SHAPE.split(" ".join(section[1].split()))
    return "**Shapes:**\n\n" + "".join(f"- {shape}\n" for shape in shapes)


def page_text(docstring):
    """Gives a docstring as the API pages show it."""
    text = EXAMPLE.sub(r"```pycon\n\g<0>\n```", docstring)
    return TITLE.sub(r"**\1:**", SHAPES.sub(shapes_list, text))


class ForReaders(griffe.Extension):
    """Shows classes to those who use them."""

    def on_instance(self, *, obj, **_):
        """Writes what the parser does not know as Markdown."""
        if obj.docstring:
            obj.docstring.value = page_text(obj.docstring.value)

    def on_attribute_instance(self, *, attr, **_):
        """Shows the default of a setting in place of the call that says its rules."""
        if isinstance(attr.value, griffe.ExprCall) and str(attr.value.function) == "option":
            attr.value = attr.value.arguments[0]

    def on_class_members(self, *, cls, **_):
        """Leaves out what Keras calls."""
        for name in [n for n, member in cls.members.items() if member.is_function]:
            if FOR_KERAS.fullmatch(name):
                del cls.members[name]
