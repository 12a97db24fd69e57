"""LayerNorm, compiled: a chunk is a range of rows."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from gpt2lib.kernels._check import Array, real, result, rows, same, sums
from gpt2lib.kernels._compile import Int, Real, Real1, Real2, kernel
from gpt2lib.kernels._sums import add_partials
from gpt2lib.kernels._tiles import pieces

if TYPE_CHECKING:
    from gpt2lib.kernels import Backend


@kernel
def layernorm_forward_rows(
    lo: int,
    hi: int,
    x: Real2,
    weight: Real1,
    bias: Real1,
    out: Real2,
    mean: Real1,
    rstd: Real1,
    eps: Real,
) -> None:
    """Normalise each row to mean 0 and variance 1, then scale and shift."""
    one = x.dtype.type(1)
    inverse = one / x.dtype.type(weight.size)  # 1 / C
    for n in range(lo, hi):
        a, b = x[n], out[n]
        total = x.dtype.type(0)
        for c in range(a.size):
            total += a[c]
        m = total * inverse
        squares = x.dtype.type(0)
        for c in range(a.size):  # the row is in the first-level cache by now
            squares += (a[c] - m) * (a[c] - m)
        r = one / np.sqrt(squares * inverse + eps)
        for c in range(b.size):
            b[c] = (a[c] - m) * r * weight[c] + bias[c]
        mean[n] = m
        rstd[n] = r


@kernel
def layernorm_backward_rows(
    lo: int,
    hi: int,
    dout: Real2,
    x: Real2,
    weight: Real1,
    mean: Real1,
    rstd: Real1,
    dx: Real2,
    dweights: Real2,
    dbiases: Real2,
    size: Int,
) -> None:
    """Add the input's gradient; leave the chunk's dweight and dbias in its row of partials."""
    dweight, dbias = dweights[lo // size], dbiases[lo // size]
    dweight[:] = 0
    dbias[:] = 0
    inverse = x.dtype.type(1) / x.dtype.type(weight.size)
    for n in range(lo, hi):
        d, a, g = dout[n], x[n], dx[n]
        m, r = mean[n], rstd[n]
        total = x.dtype.type(0)  # sum of dx_hat
        along = x.dtype.type(0)  # sum of dx_hat * x_hat
        for c in range(d.size):
            x_hat = (a[c] - m) * r
            dx_hat = d[c] * weight[c]  # undoes: ... * weight
            total += dx_hat
            along += dx_hat * x_hat
            dweight[c] += d[c] * x_hat
            dbias[c] += d[c]
        total *= inverse
        along *= inverse
        for c in range(g.size):
            x_hat = (a[c] - m) * r
            g[c] += (d[c] * weight[c] - total - x_hat * along) * r


def layernorm_forward(
    self: Backend,
    x: Array,
    weight: Array,
    bias: Array,
    *,
    eps: float = 1e-5,
    out: Array | None = None,
    mean: Array | None = None,
    rstd: Array | None = None,
) -> tuple[Array, Array, Array]:
    """Normalise each row: see :func:`gpt2lib.ops.layernorm_forward`."""
    x = real(x, "x")
    C, dtype = x.shape[-1], x.dtype
    weight, bias = same(weight, "weight", (C,), dtype), same(bias, "bias", (C,), dtype)
    out = result(out, x.shape, dtype)
    mean = result(mean, x.shape[:-1], dtype)
    rstd = result(rstd, x.shape[:-1], dtype)
    N = math.prod(x.shape[:-1])
    moments = mean.reshape(-1), rstd.reshape(-1)
    self.run(layernorm_forward_rows, N, 32, rows(x), weight, bias, rows(out), *moments, eps)
    return out, mean, rstd


def layernorm_backward(
    self: Backend,
    dout: Array,
    x: Array,
    weight: Array,
    mean: Array,
    rstd: Array,
    *,
    dx: Array | None = None,
    dweight: Array | None = None,
    dbias: Array | None = None,
) -> tuple[Array, Array, Array]:
    """Add the gradients: see :func:`gpt2lib.ops.layernorm_backward`."""
    x = real(x, "x")
    C, dtype = x.shape[-1], x.dtype
    dout, weight = same(dout, "dout", x.shape, dtype), same(weight, "weight", (C,), dtype)
    mean = same(mean, "mean", x.shape[:-1], dtype).reshape(-1)
    rstd = same(rstd, "rstd", x.shape[:-1], dtype).reshape(-1)
    dx, dweight, dbias = sums(dx, x), sums(dweight, weight), sums(dbias, weight)
    N = mean.size
    size = pieces(N, 16, 8, 16)
    chunks = -(-N // size)
    partials = self.scratch((2, chunks, C), dtype)
    self.run(
        layernorm_backward_rows,
        N, size, rows(dout), rows(x), weight, mean, rstd, rows(dx), partials[0], partials[1], size,
    )  # fmt: skip
    self.run(add_partials, C, C, partials[0], dweight)
    self.run(add_partials, C, C, partials[1], dbias)
    return dx, dweight, dbias
