"""The operations that an export may have: refused beyond the list, and as old as TF Text."""

import pytest

from keras_transformer.serving.operations import (
    TENSORFLOW,
    TENSORFLOW_TEXT,
    check_operations,
    oldest_tensorflow_text,
)


def test_the_oldest_tensorflow_text_is_that_of_the_youngest_operation():
    assert oldest_tensorflow_text(["Add", "MatMul"]) is None
    assert oldest_tensorflow_text(["SentencepieceOp", "Add"]) == "2.0"
    assert oldest_tensorflow_text(TENSORFLOW_TEXT) == "2.9"


def test_operations_beyond_the_list_are_refused_unless_allowed():
    check_operations(TENSORFLOW | set(TENSORFLOW_TEXT), ())
    with pytest.raises(ValueError, match="Received: a graph with EagerPyFunc, MyOp"):
        check_operations({"MyOp", "EagerPyFunc", "Add2"} - {"Add2"}, ())
    check_operations({"MyOp"}, ("MyOp",))
