"""What the processor likes, by the features that NumPy lists."""

import numpy as np
import pytest

from keras_transformer.processor import preferred_layout as of_this_processor
from keras_transformer.processor import processor_kind as kind_of_this_processor


@pytest.mark.parametrize(
    ("baseline", "found", "kind", "layout"),
    [
        (["X86_V2"], ["X86_V3"], "AVX2", "columns"),
        (["X86_V2"], ["X86_V3", "X86_V4"], "AVX-512", "rows"),
        (["SSE", "SSE2", "SSE3"], ["SSSE3", "AVX", "F16C", "FMA3", "AVX2"], "AVX2", "columns"),
        (["SSE", "SSE2", "SSE3"], ["AVX2", "AVX512F", "AVX512CD"], "AVX-512", "rows"),
        (["SSE", "SSE2", "SSE3"], ["SSSE3", "SSE41"], "other", "rows"),
        (["NEON", "NEON_FP16", "ASIMD"], ["ASIMDHP"], "other", "rows"),
        (["X86_V2"], ["X86_V3", "X86_V4", "AVX512_ICL"], "AVX-512", "rows"),
        (["X86_V2"], ["X86_V3", "X86_V4", "AVX512_ICL", "AVX512_SPR"], "AVX-512 FP16", "columns"),
        (["X86_V2"], [], "other", "rows"),
        (["X86_V2", "X86_V3"], [], "AVX2", "columns"),
    ],
)
def test_the_processor_decides(baseline, found, kind, layout, monkeypatch):
    lists = {"baseline": baseline, "found": found}
    # NumPy leaves out a list that is empty.
    extensions = {"SIMD Extensions": {name: names for name, names in lists.items() if names}}
    monkeypatch.setattr(np, "show_config", lambda mode: extensions)
    assert kind_of_this_processor() == kind
    assert of_this_processor() == layout
