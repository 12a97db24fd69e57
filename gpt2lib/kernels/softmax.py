"""Softmax along the last axis, compiled."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpt2lib.kernels._check import Array, real, result, rows, same, sums
from gpt2lib.kernels._compile import Real2, kernel
from gpt2lib.kernels._math import exp, largest
from gpt2lib.kernels._tiles import ELEMENTS

if TYPE_CHECKING:
    from gpt2lib.kernels import Backend


@kernel
def softmax_forward_rows(lo: int, hi: int, x: Real2, out: Real2) -> None:
    """Exponentiate each row, less its maximum, and divide by the sum."""
    for n in range(lo, hi):
        a, p = x[n], out[n]
        top = largest(a)
        total = a.dtype.type(0)
        for k in range(a.size):
            p[k] = exp(a[k] - top)
            total += p[k]
        inverse = a.dtype.type(1) / total
        for k in range(p.size):
            p[k] *= inverse


@kernel
def softmax_backward_rows(lo: int, hi: int, dout: Real2, out: Real2, dx: Real2) -> None:
    """Add p * (dp - sum of p dp) to each row."""
    for n in range(lo, hi):
        d, p, g = dout[n], out[n], dx[n]
        along = d.dtype.type(0)
        for k in range(d.size):
            along += d[k] * p[k]
        for k in range(g.size):
            g[k] += p[k] * (d[k] - along)


def softmax_forward(self: Backend, x: Array, *, out: Array | None = None) -> Array:
    """Turn scores into probabilities: see :func:`gpt2lib.ops.softmax_forward`."""
    x = real(x, "x")
    out = result(out, x.shape, x.dtype)
    size = max(1, ELEMENTS // x.shape[-1])
    self.run(softmax_forward_rows, len(rows(x)), size, rows(x), rows(out))
    return out


def softmax_backward(self: Backend, dout: Array, out: Array, *, dx: Array | None = None) -> Array:
    """Add the gradient of the input: see :func:`gpt2lib.ops.softmax_backward`."""
    out = real(out, "out")
    dout = same(dout, "dout", out.shape, out.dtype)
    dx = sums(dx, out)
    size = max(1, ELEMENTS // out.shape[-1])
    self.run(softmax_backward_rows, len(rows(out)), size, rows(dout), rows(out), rows(dx))
    return dx
