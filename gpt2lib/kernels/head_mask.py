"""Switching heads off, compiled."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gpt2lib.kernels._check import Array, nothing, real, result, rows, same, sums
from gpt2lib.kernels._compile import Int, Real1, Real2, kernel
from gpt2lib.kernels._sums import add_partials
from gpt2lib.kernels._tiles import ELEMENTS, pieces

if TYPE_CHECKING:
    from gpt2lib.kernels import Backend


@kernel
def head_mask_forward_rows(
    lo: int, hi: int, x: Real2, mask: Real1, mean: Real2, out: Real2
) -> None:
    """Scale each head of each row; add what is missing of its mean, where means are given."""
    hs = x.shape[1] // mask.size
    for n in range(lo, hi):
        for h in range(mask.size):
            a, b = x[n, h * hs : (h + 1) * hs], out[n, h * hs : (h + 1) * hs]
            factor = mask[h]
            missing = x.dtype.type(1) - factor
            if mean.size:
                usual = mean[h]
                for c in range(b.size):
                    b[c] = factor * a[c] + missing * usual[c]
            else:
                for c in range(b.size):
                    b[c] = factor * a[c]


@kernel
def head_mask_backward_rows(
    lo: int, hi: int, dout: Real2, x: Real2, mask: Real1, mean: Real2, dx: Real2,
    dmasks: Real2, size: Int,
) -> None:  # fmt: skip
    """Add the input's gradient; leave this chunk's share of dmask in its row of ``dmasks``."""
    hs = x.shape[1] // mask.size
    for h in range(mask.size):
        factor, total = mask[h], x.dtype.type(0)
        for n in range(lo, hi):
            part = slice(h * hs, (h + 1) * hs)
            d, a, g = dout[n, part], x[n, part], dx[n, part]
            for c in range(d.size):
                g[c] += factor * d[c]
                total += d[c] * a[c]
            if mean.size:
                usual = mean[h]
                for c in range(d.size):
                    total -= d[c] * usual[c]
        dmasks[lo // size, h] = total


def head_mask_forward(
    self: Backend, x: Array, mask: Array, *, mean: Array | None = None, out: Array | None = None
) -> Array:
    """Scale each head's output: see :func:`gpt2lib.ops.head_mask_forward`."""
    x, mask, mean = _check(x, mask, mean)
    out = result(out, x.shape, x.dtype)
    size = max(1, ELEMENTS // x.shape[-1])
    self.run(head_mask_forward_rows, len(rows(x)), size, rows(x), mask, mean, rows(out))
    return out


def head_mask_backward(
    self: Backend,
    dout: Array,
    x: Array,
    mask: Array,
    *,
    mean: Array | None = None,
    dx: Array | None = None,
    dmask: Array | None = None,
) -> tuple[Array, Array]:
    """Add the gradients: see :func:`gpt2lib.ops.head_mask_backward`."""
    x, mask, mean = _check(x, mask, mean)
    dout = same(dout, "dout", x.shape, x.dtype)
    dx, dmask = sums(dx, x), sums(dmask, mask)
    N = len(rows(x))
    size = pieces(N, 16, 8, 16)
    dmasks = self.scratch((-(-N // size), mask.size), x.dtype)
    arguments = rows(dout), rows(x), mask, mean, rows(dx), dmasks, size
    self.run(head_mask_backward_rows, N, size, *arguments)
    self.run(add_partials, mask.size, mask.size, dmasks, dmask)
    return dx, dmask


def _check(x: Array, mask: Array, mean: Array | None) -> tuple[Array, Array, Array]:
    x = real(x, "x")
    mask = np.ascontiguousarray(mask, x.dtype)
    if mask.ndim != 1 or mask.size == 0 or x.shape[-1] % mask.size:
        raise ValueError(f"a mask {mask.shape} does not divide {x.shape[-1]} channels into heads.")
    if mean is None:
        return x, mask, nothing(x.dtype, 2)
    mean = np.ascontiguousarray(mean, x.dtype)
    return x, mask, same(mean, "mean", (mask.size, x.shape[-1] // mask.size), x.dtype)
