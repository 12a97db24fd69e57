"""GELU by itself, compiled. The layers use it fused into a matmul: see ``linear.py``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpt2lib.kernels._check import Array, real, result, same, sums
from gpt2lib.kernels._compile import Real1, kernel
from gpt2lib.kernels._math import gelu, gelu_slope
from gpt2lib.kernels._tiles import ELEMENTS

if TYPE_CHECKING:
    from gpt2lib.kernels import Backend


@kernel
def gelu_forward_elements(lo: int, hi: int, x: Real1, out: Real1) -> None:
    """Apply GELU."""
    a, b = x[lo:hi], out[lo:hi]
    for i in range(b.size):
        b[i] = gelu(a[i])


@kernel
def gelu_backward_elements(lo: int, hi: int, dout: Real1, x: Real1, dx: Real1) -> None:
    """Add the gradient: GELU's slope at x, times what arrives."""
    d, a, b = dout[lo:hi], x[lo:hi], dx[lo:hi]
    for i in range(b.size):
        b[i] += d[i] * gelu_slope(a[i])


def gelu_forward(self: Backend, x: Array, *, out: Array | None = None) -> Array:
    """Apply GELU: see :func:`gpt2lib.ops.gelu_forward`."""
    x = real(x, "x")
    out = result(out, x.shape, x.dtype)
    self.run(gelu_forward_elements, x.size, ELEMENTS, x.reshape(-1), out.reshape(-1))
    return out


def gelu_backward(self: Backend, dout: Array, x: Array, *, dx: Array | None = None) -> Array:
    """Add the gradient of the input: see :func:`gpt2lib.ops.gelu_backward`."""
    x = real(x, "x")
    dout = same(dout, "dout", x.shape, x.dtype)
    dx = sums(dx, x)
    flat = dout.reshape(-1), x.reshape(-1), dx.reshape(-1)
    self.run(gelu_backward_elements, x.size, ELEMENTS, *flat)
    return dx
