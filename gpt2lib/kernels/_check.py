"""What is asked of every array before compiled code sees its address.

Compiled kernels check no bounds: an array of another shape, type or layout would make them read or
write memory that is not theirs. So each op says here, in one line an array, what it needs.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gpt2lib.ops._shapes import buffer, check_ids, check_targets, gradient, rows

__all__ = [
    "Array",
    "buffer",
    "check_ids",
    "check_targets",
    "gradient",
    "nothing",
    "real",
    "result",
    "rows",
    "same",
    "sums",
]

Array = np.ndarray[Any, Any]

_NOTHING = {
    (dtype, dimensions): np.empty((0,) * dimensions, dtype)
    for dtype in ("f", "d")
    for dimensions in (1, 2, 3, 4)
}


def nothing(dtype: np.dtype[Any], dimensions: int) -> Array:
    """Return the empty array that stands for an argument that is not given."""
    return _NOTHING[dtype.char, dimensions]


def real(x: Array, what: str) -> Array:
    """Return ``x``, float32 or float64, C-contiguous (a copy where it was not)."""
    if not isinstance(x, np.ndarray) or x.dtype not in (np.float32, np.float64):
        kind = getattr(x, "dtype", type(x).__name__)
        raise ValueError(f"{what} must be a float32 or float64 array, got {kind}.")
    return x if x.flags.c_contiguous else np.ascontiguousarray(x)


def same(x: Array, what: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Return ``x``, C-contiguous, after checking that it has this shape and type."""
    if x.shape != shape or x.dtype != dtype:
        raise ValueError(f"{what} is {x.dtype} {x.shape}; needed: {dtype} {shape}.")
    return x if x.flags.c_contiguous else np.ascontiguousarray(x)


def result(out: Array | None, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Return ``out`` (checked: shape, type, C-contiguous, writable), or a new array."""
    return _writable(buffer(out, shape, dtype))


def sums(given: Array | None, like: Array) -> Array:
    """Return the gradient buffer to add to (checked like ``result``), or fresh zeros."""
    return _writable(gradient(given, like))


def _writable(out: Array) -> Array:
    if not (out.flags.c_contiguous and out.flags.writeable):
        raise ValueError(
            f"a buffer of shape {out.shape} is not C-contiguous and writable; pass a fresh array."
        )
    return out
