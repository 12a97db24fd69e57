"""The residual stream's additions, compiled: passes at the speed of memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpt2lib.kernels._check import Array, real, result, same, sums
from gpt2lib.kernels._compile import Real1, kernel
from gpt2lib.kernels._tiles import ELEMENTS

if TYPE_CHECKING:
    from gpt2lib.kernels import Backend


@kernel
def residual_forward_elements(lo: int, hi: int, x: Real1, y: Real1, out: Real1) -> None:
    """Add two arrays."""
    a, b, c = x[lo:hi], y[lo:hi], out[lo:hi]
    for i in range(c.size):
        c[i] = a[i] + b[i]


@kernel
def residual_backward_elements(lo: int, hi: int, dout: Real1, dx: Real1, dy: Real1) -> None:
    """Pass the gradient on to both branches."""
    d, a, b = dout[lo:hi], dx[lo:hi], dy[lo:hi]
    for i in range(d.size):
        a[i] += d[i]
        b[i] += d[i]


def residual_forward(self: Backend, x: Array, y: Array, *, out: Array | None = None) -> Array:
    """Add what a layer computed to the stream: see :func:`gpt2lib.ops.residual_forward`."""
    x = real(x, "x")
    y = same(y, "y", x.shape, x.dtype)
    out = result(out, x.shape, x.dtype)
    flat = x.reshape(-1), y.reshape(-1), out.reshape(-1)
    self.run(residual_forward_elements, x.size, ELEMENTS, *flat)
    return out


def residual_backward(
    self: Backend, dout: Array, *, dx: Array | None = None, dy: Array | None = None
) -> tuple[Array, Array]:
    """Add the gradient to both branches: see :func:`gpt2lib.ops.residual_backward`."""
    dout = real(dout, "dout")
    dx, dy = sums(dx, dout), sums(dy, dout)
    flat = dout.reshape(-1), dx.reshape(-1), dy.reshape(-1)
    self.run(residual_backward_elements, dout.size, ELEMENTS, *flat)
    return dx, dy
