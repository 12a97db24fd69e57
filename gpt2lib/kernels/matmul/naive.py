"""The first rung: three loops, as one writes them down from the definition."""

from __future__ import annotations

import numpy as np


def matmul_naive(a: np.ndarray, b: np.ndarray, out: np.ndarray, alpha: float, beta: float) -> None:
    """Compute out = alpha * a @ b + beta * out, one number of ``out`` after the other.

    Each is a dot product of a row of a (M, K) and a column of b (K, N). The column's numbers are N
    apart in memory: from row to row of b the processor fetches a line of 64 bytes for 4 of them.
    """
    for i in range(out.shape[0]):
        for j in range(out.shape[1]):
            total = out.dtype.type(0)
            for k in range(a.shape[1]):
                total += a[i, k] * b[k, j]
            out[i, j] = alpha * total if beta == 0 else alpha * total + beta * out[i, j]
