"""What the processor of this machine is, and which layout of matrices suits it."""

import numpy as np

# "AVX-512 FP16" has half precision too: Intel from Sapphire Rapids on, and no AMD up to Zen 5.
KINDS = ("AVX-512 FP16", "AVX-512", "AVX2", "other")


def processor_features() -> list[str]:
    """The features of this processor, as NumPy names them.

    Example:

    >>> all(isinstance(name, str) for name in processor_features())
    True
    """
    found = np.show_config(mode="dicts")["SIMD Extensions"]
    # NumPy leaves out a list that is empty.
    return [*found.get("baseline", []), *found.get("found", [])]


def processor_kind() -> str:
    """The instructions of this processor that decide a layout: one of `KINDS`.

    Example:

    >>> processor_kind() in KINDS
    True
    """
    features = set(processor_features())
    if "AVX512_SPR" in features:
        return "AVX-512 FP16"
    # From version 2.4 on NumPy names groups of features: v3 has AVX2, v4 has AVX-512.
    if not features.isdisjoint({"AVX512F", "X86_V4"}):
        return "AVX-512"
    return "other" if features.isdisjoint({"AVX2", "X86_V3"}) else "AVX2"


def preferred_layout() -> str:
    """The layout of the matrices in an export that suits this processor: "rows" or "columns".

    "rows" multiplies `inputs @ kernel`, and "columns" `transpose(kernel) @ transpose(inputs)` with
    a kernel that is stored transposed. XLA reads the kernels of products with few rows faster in
    columns on processors with AVX2 and without AVX-512. It does so on newer ones of Intel, too.

    Example:

    >>> preferred_layout() in ("rows", "columns")
    True
    """
    return "columns" if processor_kind() in ("AVX-512 FP16", "AVX2") else "rows"
