"""Linear layers, compiled: single-threaded BLAS on each tile, GELU where it follows.

Where a bias or a gradient so far is to be added, BLAS adds it (``beta = 1``): no pass of its own.
One or a few rows (generation, token by token) are not worth BLAS, which would first copy the whole
weight into its own order: a stream over the weight takes its place.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpt2lib.kernels._blas import matmul
from gpt2lib.kernels._check import Array, nothing, real, result, rows, same, sums
from gpt2lib.kernels._compile import Int, Real1, Real2, Real3, kernel
from gpt2lib.kernels._math import gelu, gelu_slope
from gpt2lib.kernels._tiles import ELEMENTS, FEW, pieces, tile, tile_count, tile_shape

if TYPE_CHECKING:
    from gpt2lib.kernels import Backend

# A stream over a weight is cut into as few chunks as keep most machines' memory busy: every chunk
# leaves a row of partial sums, which one thread then adds up. None reads less than STREAM numbers.
STREAMS, STREAM = 16, 1 << 16


@kernel
def linear_forward_tiles(
    lo: int, hi: int, gemm: Int, x: Real2, weight: Real2, bias: Real1, out: Real2,
    height: Int, width: Int,
) -> None:  # fmt: skip
    """Lay the bias out, then have BLAS add x @ weight to it."""
    for number in range(lo, hi):
        top, bottom, left, right = tile(number, out.shape[0], out.shape[1], height, width)
        b = bias[left:right]
        for n in range(top, bottom):
            row = out[n, left:right]
            for c in range(row.size):  # not a slice's assignment: that takes seconds to compile
                row[c] = b[c]
        matmul(gemm, x[top:bottom], weight[:, left:right], out[top:bottom, left:right], 1, 1)


@kernel
def linear_gelu_forward_tiles(
    lo: int, hi: int, gemm: Int, x: Real2, weight: Real2, bias: Real1, pre: Real2, out: Real2,
    height: Int, width: Int,
) -> None:  # fmt: skip
    """Do as ``linear_forward_tiles`` does, and apply GELU while the tile is in the cache."""
    for number in range(lo, hi):
        top, bottom, left, right = tile(number, out.shape[0], out.shape[1], height, width)
        b = bias[left:right]
        for n in range(top, bottom):
            row = pre[n, left:right]
            for c in range(row.size):
                row[c] = b[c]
        matmul(gemm, x[top:bottom], weight[:, left:right], pre[top:bottom, left:right], 1, 1)
        for n in range(top, bottom):
            row, bent = pre[n, left:right], out[n, left:right]
            for c in range(bent.size):
                bent[c] = gelu(row[c])


@kernel
def linear_stream_rows(
    lo: int, hi: int, x: Real2, weight: Real2, partials: Real3, size: Int
) -> None:
    """Multiply the inputs [lo, hi) by their rows of the weight, which are read once.

    In four streams, each of which reads a quarter of the rows in order: the running sums are loaded
    and stored a quarter as often as with one. Rows that lie side by side would make streams only a
    row apart, which a core's prefetcher follows at half the speed.
    """
    zero = x.dtype.type(0)
    quarter = (hi - lo) // 4
    for n in range(x.shape[0]):
        total = partials[lo // size, n]
        total[:] = zero
        for i in range(lo, lo + quarter):
            w0, w1 = weight[i], weight[i + quarter]
            w2, w3 = weight[i + 2 * quarter], weight[i + 3 * quarter]
            x0, x1 = x[n, i], x[n, i + quarter]
            x2, x3 = x[n, i + 2 * quarter], x[n, i + 3 * quarter]
            for c in range(total.size):
                total[c] += (x0 * w0[c] + x1 * w1[c]) + (x2 * w2[c] + x3 * w3[c])
        for i in range(lo + 4 * quarter, hi):
            w0, x0 = weight[i], x[n, i]
            for c in range(total.size):
                total[c] += x0 * w0[c]


@kernel
def linear_stream_finish(
    lo: int, hi: int, partials: Real3, bias: Real1, out: Real2, bent: Real2
) -> None:
    """Add the bias and the chunks' sums in order, in columns [lo, hi); then GELU into ``bent``."""
    b = bias[lo:hi]
    for n in range(out.shape[0]):
        total = out[n, lo:hi]
        for c in range(total.size):
            total[c] = b[c]
        for k in range(partials.shape[0]):
            row = partials[k, n, lo:hi]
            for c in range(total.size):
                total[c] += row[c]
        if bent.size:
            g = bent[n, lo:hi]
            for c in range(g.size):
                g[c] = gelu(total[c])


@kernel
def weight_gradient_tiles(
    lo: int, hi: int, gemm: Int, dout: Real2, x: Real2, dweight: Real2, dbias: Real1,
    height: Int, width: Int,
) -> None:  # fmt: skip
    """Add x.T @ dout to tiles of dweight; the tiles of the first row also own dbias there."""
    for number in range(lo, hi):
        top, bottom, left, right = tile(number, dweight.shape[0], dweight.shape[1], height, width)
        if top == 0:
            total = dbias[left:right]
            for n in range(dout.shape[0]):
                row = dout[n, left:right]
                for c in range(total.size):
                    total[c] += row[c]
        matmul(gemm, x[:, top:bottom].T, dout[:, left:right], dweight[top:bottom, left:right], 1, 1)


@kernel
def gelu_gradient_elements(lo: int, hi: int, dout: Real1, pre: Real1, dpre: Real1) -> None:
    """Take the gradient back through GELU, in a pass that costs little beside the two products."""
    d, p, out = dout[lo:hi], pre[lo:hi], dpre[lo:hi]
    if d.ctypes.data == out.ctypes.data:  # in place: told so, LLVM makes a vector loop of it
        for i in range(out.size):
            out[i] *= gelu_slope(p[i])
    else:
        for i in range(out.size):
            out[i] = d[i] * gelu_slope(p[i])


@kernel
def input_gradient_tiles(
    lo: int, hi: int, gemm: Int, dout: Real2, weight: Real2, dx: Real2, height: Int, width: Int
) -> None:
    """Add dout @ weight.T to tiles of dx."""
    for number in range(lo, hi):
        top, bottom, left, right = tile(number, dx.shape[0], dx.shape[1], height, width)
        matmul(gemm, dout[top:bottom], weight[left:right].T, dx[top:bottom, left:right], 1, 1)


def linear_forward(
    self: Backend, x: Array, weight: Array, bias: Array, *, out: Array | None = None
) -> Array:
    """Return x @ weight + bias: see :func:`gpt2lib.ops.linear_forward`."""
    x, weight, bias = _check(x, weight, bias)
    out = result(out, (*x.shape[:-1], weight.shape[1]), x.dtype)
    if out.size <= FEW * weight.shape[1]:
        _stream(self, rows(x), weight, bias, rows(out), nothing(x.dtype, 2))
    else:
        shape = len(rows(x)), weight.shape[1]
        tiles = tile_shape(*shape)
        arguments = self.gemm(x.dtype), rows(x), weight, bias, rows(out), *tiles
        self.run(linear_forward_tiles, tile_count(*shape, tiles), 1, *arguments)
    return out


def linear_gelu_forward(
    self: Backend,
    x: Array,
    weight: Array,
    bias: Array,
    *,
    out: Array | None = None,
    pre: Array | None = None,
) -> tuple[Array, Array]:
    """Return GELU(x @ weight + bias): see :func:`gpt2lib.ops.linear_gelu_forward`."""
    x, weight, bias = _check(x, weight, bias)
    shape = (*x.shape[:-1], weight.shape[1])
    out, pre = result(out, shape, x.dtype), result(pre, shape, x.dtype)
    if out.size <= FEW * weight.shape[1]:
        _stream(self, rows(x), weight, bias, rows(pre), rows(out))
    else:
        tiles = tile_shape(len(rows(x)), weight.shape[1])
        arguments = self.gemm(x.dtype), rows(x), weight, bias, rows(pre), rows(out), *tiles
        self.run(
            linear_gelu_forward_tiles,
            tile_count(len(rows(x)), shape[-1], tiles),
            1,
            *arguments,
        )
    return out, pre


def linear_backward(
    self: Backend,
    dout: Array,
    x: Array,
    weight: Array,
    *,
    dx: Array | None = None,
    dweight: Array | None = None,
    dbias: Array | None = None,
) -> tuple[Array, Array, Array]:
    """Add the gradients: see :func:`gpt2lib.ops.linear_backward`."""
    x, weight, _ = _check(x, weight, None)
    dout = same(dout, "dout", (*x.shape[:-1], weight.shape[1]), x.dtype)
    dx, dweight, dbias = sums(dx, x), sums(dweight, weight), sums(dbias, weight[0])
    _gradients(self, dout, x, weight, dx, dweight, dbias)
    return dx, dweight, dbias


def linear_gelu_backward(
    self: Backend,
    dout: Array,
    pre: Array,
    x: Array,
    weight: Array,
    *,
    dpre: Array | None = None,
    dx: Array | None = None,
    dweight: Array | None = None,
    dbias: Array | None = None,
) -> tuple[Array, Array, Array]:
    """Add the gradients: see :func:`gpt2lib.ops.linear_gelu_backward`."""
    x, weight, _ = _check(x, weight, None)
    shape = (*x.shape[:-1], weight.shape[1])
    dout, pre = same(dout, "dout", shape, x.dtype), same(pre, "pre", shape, x.dtype)
    dpre = result(dpre, shape, x.dtype)
    dx, dweight, dbias = sums(dx, x), sums(dweight, weight), sums(dbias, weight[0])
    flat = dout.reshape(-1), pre.reshape(-1), dpre.reshape(-1)
    self.run(gelu_gradient_elements, dpre.size, ELEMENTS, *flat)
    _gradients(self, dpre, x, weight, dx, dweight, dbias)
    return dx, dweight, dbias


def _check(x: Array, weight: Array, bias: Array | None) -> tuple[Array, Array, Array]:
    """Check what every linear op is given: x (..., I), weight (I, O), bias (O)."""
    x = real(x, "x")
    if weight.ndim != 2 or x.ndim < 1 or x.shape[-1] != weight.shape[0]:
        raise ValueError(f"x {x.shape} cannot be multiplied by a weight {weight.shape}.")
    weight = same(weight, "weight", weight.shape, x.dtype)
    bias = weight[0] if bias is None else same(bias, "bias", weight.shape[1:], x.dtype)
    return x, weight, bias


def _gradients(
    self: Backend, dout: Array, x: Array, weight: Array, dx: Array, dweight: Array, dbias: Array
) -> None:
    """Add the three gradients of x @ weight + bias."""
    gemm, d = self.gemm(x.dtype), rows(dout)
    tiles = tile_shape(*weight.shape)
    count = tile_count(weight.shape[0], weight.shape[1], tiles)
    self.run(weight_gradient_tiles, count, 1, gemm, d, rows(x), dweight, dbias, *tiles)
    tiles = tile_shape(len(d), weight.shape[0])
    count = tile_count(len(d), weight.shape[0], tiles)
    self.run(input_gradient_tiles, count, 1, gemm, d, weight, rows(dx), *tiles)


def _stream(self: Backend, x: Array, weight: Array, bias: Array, out: Array, bent: Array) -> None:
    """Multiply a few rows: partial sums over ranges of inputs, then added up in order."""
    inputs, outputs = weight.shape
    count = max(1, min(STREAMS, weight.size // STREAM))
    size = pieces(inputs, count, 4, 8)
    partials = self.scratch((-(-inputs // size), len(x), outputs), x.dtype)
    self.run(linear_stream_rows, inputs, size, x, weight, partials, size)
    self.run(linear_stream_finish, outputs, outputs, partials, bias, out, bent)
