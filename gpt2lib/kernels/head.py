"""The head, compiled: the (N, V) logits and the two gradients of the largest matrix product.

V is the long side, so everything is cut along V: each chunk reads its own rows of ``wte`` once. The
gradient of the input is a sum over V; each chunk leaves its part of it, and the parts are added in
order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpt2lib.kernels._blas import matmul
from gpt2lib.kernels._check import Array, real, result, rows, same, sums
from gpt2lib.kernels._compile import Int, Real2, kernel
from gpt2lib.kernels._sums import add_partials
from gpt2lib.kernels._tiles import ELEMENTS, FEW, pieces

if TYPE_CHECKING:
    from gpt2lib.kernels import Backend


@kernel
def head_forward_tokens(lo: int, hi: int, gemm: Int, x: Real2, wte: Real2, out: Real2) -> None:
    """Compute the logits of the tokens [lo, hi)."""
    matmul(gemm, x, wte[lo:hi].T, out[:, lo:hi], 1, 0)


@kernel
def head_stream_tokens(lo: int, hi: int, x: Real2, wte: Real2, out: Real2) -> None:
    """Compute the logits of the tokens [lo, hi) for a few rows, reading wte once, in order."""
    for v in range(lo, hi):
        w = wte[v]
        for n in range(x.shape[0]):
            a = x[n]
            total = a.dtype.type(0)
            for c in range(w.size):
                total += a[c] * w[c]
            out[n, v] = total


@kernel
def head_backward_tokens(
    lo: int, hi: int, gemm: Int, dlogits: Real2, x: Real2, wte: Real2, dwte: Real2,
    partials: Real2, size: Int,
) -> None:  # fmt: skip
    """Add the tokens' rows of dwte; leave their part of dx (N, C) as one row of ``partials``."""
    d = dlogits[:, lo:hi]
    part = partials[lo // size].reshape(x.shape)
    matmul(gemm, d, wte[lo:hi], part, 1, 0)  # (N, v) @ (v, C)
    matmul(gemm, d.T, x, dwte[lo:hi], 1, 1)  # (v, N) @ (N, C)


def head_forward(self: Backend, x: Array, wte: Array, *, out: Array | None = None) -> Array:
    """Return the logits x @ wte.T: see :func:`gpt2lib.ops.head_forward`."""
    x, wte = _check(x, wte)
    V = wte.shape[0]
    out = result(out, (*x.shape[:-1], V), x.dtype)
    if len(rows(x)) <= FEW:
        size = max(1, 4 * ELEMENTS // x.shape[-1])
        self.run(head_stream_tokens, V, size, rows(x), wte, rows(out))
    else:
        size = pieces(V, max(8, V // 1024), 16, 128)
        self.run(head_forward_tokens, V, size, self.gemm(x.dtype), rows(x), wte, rows(out))
    return out


def head_backward(
    self: Backend,
    dlogits: Array,
    x: Array,
    wte: Array,
    *,
    dx: Array | None = None,
    dwte: Array | None = None,
) -> tuple[Array, Array]:
    """Add the gradients: see :func:`gpt2lib.ops.head_backward`."""
    x, wte = _check(x, wte)
    V = wte.shape[0]
    dlogits = same(dlogits, "dlogits", (*x.shape[:-1], V), x.dtype)
    dx, dwte = sums(dx, x), sums(dwte, wte)
    size = pieces(V, 16, 16, 128)
    partials = self.scratch((-(-V // size), x.size), x.dtype)
    arguments = self.gemm(x.dtype), rows(dlogits), rows(x), wte, dwte, partials, size
    self.run(head_backward_tokens, V, size, *arguments)
    self.run(add_partials, x.size, ELEMENTS, partials, dx.reshape(-1))
    return dx, dwte


def _check(x: Array, wte: Array) -> tuple[Array, Array]:
    x = real(x, "x")
    return x, same(wte, "wte", (wte.shape[0], x.shape[-1]), x.dtype)
