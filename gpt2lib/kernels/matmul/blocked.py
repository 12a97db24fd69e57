"""The second rung: tiles that stay in the cache, and an inner loop along the rows."""

from __future__ import annotations

import numpy as np

ROWS, INNER, COLUMNS = 64, 64, 256  # a tile of b is 64 KiB in float32, one of the sums too


def matmul_blocked(
    a: np.ndarray, b: np.ndarray, out: np.ndarray, alpha: float, beta: float
) -> None:
    """Compute out = alpha * a @ b + beta * out, tile by tile.

    Within a tile the loops are i, k, j: the innermost runs along a row of b and a row of sums, as
    both lie in memory, so the compiler makes vector instructions of it. A tile of b is used for 64
    rows of a before the next one is fetched.
    """
    M, N, K = out.shape[0], out.shape[1], a.shape[1]
    zero = out.dtype.type(0)
    tile = np.empty((INNER, COLUMNS), out.dtype)  # of b, in order whichever way b itself lies
    sums = np.empty((ROWS, COLUMNS), out.dtype)
    for m in range(0, M, ROWS):
        rows = min(ROWS, M - m)
        for n in range(0, N, COLUMNS):
            columns = min(COLUMNS, N - n)
            sums[:] = zero
            for k in range(0, K, INNER):
                inner = min(INNER, K - k)
                for p in range(inner):
                    for j in range(columns):
                        tile[p, j] = b[k + p, n + j]
                for i in range(rows):
                    total = sums[i, :columns]
                    for p in range(inner):
                        factor, line = a[m + i, k + p], tile[p, :columns]
                        for j in range(total.size):
                            total[j] += factor * line[j]
            for i in range(rows):
                for j in range(columns):
                    old = beta * out[m + i, n + j] if beta != 0 else zero
                    out[m + i, n + j] = alpha * sums[i, j] + old
