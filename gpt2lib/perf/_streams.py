"""Loops that do nothing but read memory, or copy it: compiled, and without the GIL."""

from __future__ import annotations

import numpy as np

from gpt2lib.runtimes.native import compiled


@compiled(fastmath=True)
def read_one(x):
    """Add an array up: one stream through memory."""
    total = np.float32(0)
    for i in range(x.size):
        total += x[i]
    return total


@compiled(fastmath=True)
def read_four(x):
    """Add an array up in four streams, which keeps more of a core's prefetchers busy."""
    quarter = x.size // 4
    a, b, c, d = x[:quarter], x[quarter : 2 * quarter], x[2 * quarter : 3 * quarter], x[-quarter:]
    total = np.float32(0)
    for i in range(quarter):
        total += (a[i] + b[i]) + (c[i] + d[i])
    return total


@compiled()
def copy_one(x, y):
    """Copy x into y, number by number."""
    for i in range(y.size):
        y[i] = x[i]
