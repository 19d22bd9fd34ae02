"""Keras's own tests of its MultiHeadAttention, with our class in its place.

The installed wheel ships them. Those that ours is meant to fail are listed with the reason. To see
the table:

    python -m tests.layers.keras_own_tests
"""

import importlib.util
import types
import unittest
from pathlib import Path

import keras
import pytest

from keras_transformer.layers import MultiHeadAttention

OVERRIDE = "overrides or calls the private `_compute_attention`; ours to override is `attend`"
PRIVATE = "looks at private attributes of Keras's class; ours has them without the underscore"
WORDING = "expects Keras's wording; ours refuses the same values in its own"
FLOATS = "passes a mask of floats, which ours refuses: Keras reads an additive one inverted"
MEANT_TO_FAIL = {
    "test_causal_only_skipped_for_subclass": OVERRIDE,
    "test_compute_attention_combines_causal_and_explicit_mask_fused_fallback": OVERRIDE,
    "test_compute_attention_combines_causal_and_explicit_mask_manual_path": OVERRIDE,
    "test_initializer": PRIVATE,
    "test_mha_constraints": PRIVATE,
    "test_dtype_policy_map": PRIVATE,
    "test_quantize_int8": PRIVATE,
    "test_invalid_scalar_args_rejected": WORDING,
    "test_multi_head_attention_output_shape_error": WORDING,
    "test_flash_attention_with_errors": WORDING,
    "test_masking_with_different_shapes": FLOATS,
    "test_sliding_window_serialization": "looks for `sliding_window`, which ours saves as `window`",
}


def keras_test_case():
    """Keras's TestCase, with our class as `layers.MultiHeadAttention`."""
    folder = Path(keras.__file__).parent / "src" / "layers" / "attention"
    spec = importlib.util.spec_from_file_location(
        "keras_own_attention_tests", folder / "multi_head_attention_test.py"
    )
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    theirs = vars(module.layers)
    module.layers = types.SimpleNamespace(**{**theirs, "MultiHeadAttention": MultiHeadAttention})
    return module.MultiHeadAttentionTest


def names():
    return unittest.TestLoader().getTestCaseNames(keras_test_case())


def fault(name):
    """The error of one of Keras's tests, or None when it passes; skips as it does."""
    result = unittest.TestResult()
    keras_test_case()(name).run(result)
    faults = [text for _, text in result.failures + result.errors]
    if faults and "Skipped:" in faults[0].splitlines()[-1]:
        pytest.skip(faults[0].splitlines()[-1])
    if result.skipped:
        pytest.skip(result.skipped[0][1])
    return faults[0] if faults else None


if __name__ == "__main__":
    counts = {"passes": 0, "meant to fail": 0, "FAILS": 0, "skipped by Keras": 0}
    for test in names():
        try:
            error = fault(test)
            kind = "passes" if error is None else "FAILS"
            kind = "meant to fail" if error is not None and test in MEANT_TO_FAIL else kind
        except pytest.skip.Exception:
            kind = "skipped by Keras"
        counts[kind] += 1
        print(f"{kind:<16} {test}  {MEANT_TO_FAIL.get(test, '')}")
    print(", ".join(f"{count} {kind}" for kind, count in counts.items()))
