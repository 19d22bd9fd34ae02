"""What the processor of this machine likes."""

import numpy as np


def preferred_layout() -> str:
    """The layout of the matrices in an export that suits this processor: "rows" or "columns".

    "rows" multiplies `inputs @ kernel`, and "columns" `transpose(kernel) @ transpose(inputs)` with
    a kernel that is stored transposed. XLA reads the kernels of products with few rows faster in
    columns where a processor has AVX2 and no AVX-512.

    Example:

    >>> preferred_layout() in ("rows", "columns")
    True
    """
    found = np.show_config(mode="dicts")["SIMD Extensions"]  # type: ignore[index]
    features = {*found["baseline"], *found["found"]}
    # From version 2.4 on NumPy names groups of features: v3 has AVX2, v4 has AVX-512.
    has_avx2 = not features.isdisjoint({"AVX2", "X86_V3"})
    has_avx512 = not features.isdisjoint({"AVX512F", "X86_V4"})
    return "columns" if has_avx2 and not has_avx512 else "rows"
