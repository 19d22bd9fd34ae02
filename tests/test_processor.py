"""What the processor likes, by the features that NumPy lists."""

import numpy as np
import pytest

from keras_transformer.processor import preferred_layout as of_this_processor


@pytest.mark.parametrize(
    ("baseline", "found", "expected"),
    [
        (["X86_V2"], ["X86_V3"], "columns"),
        (["X86_V2"], ["X86_V3", "X86_V4"], "rows"),
        (["SSE", "SSE2", "SSE3"], ["SSSE3", "AVX", "F16C", "FMA3", "AVX2"], "columns"),
        (["SSE", "SSE2", "SSE3"], ["AVX2", "AVX512F", "AVX512CD"], "rows"),
        (["SSE", "SSE2", "SSE3"], ["SSSE3", "SSE41"], "rows"),
        (["NEON", "NEON_FP16", "ASIMD"], ["ASIMDHP"], "rows"),
    ],
)
def test_the_processor_decides(baseline, found, expected, monkeypatch):
    extensions = {"SIMD Extensions": {"baseline": baseline, "found": found}}
    monkeypatch.setattr(np, "show_config", lambda mode: extensions)
    assert of_this_processor() == expected
