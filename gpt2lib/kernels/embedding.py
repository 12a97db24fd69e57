"""Token and position embeddings, compiled."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gpt2lib.kernels._check import Array, check_ids, real, result, rows, same, sums
from gpt2lib.kernels._compile import Int, Int1, Real2, kernel

if TYPE_CHECKING:
    from gpt2lib.kernels import Backend

ROWS = 32  # of the forward's chunks
CHANNELS = 64  # of the backward's chunks: four cache lines of float32
RUN = 64  # occurrences of a token that are added up before they join the sum


@kernel
def embedding_forward_rows(
    lo: int, hi: int, ids: Int1, wte: Real2, wpe: Real2, position: Int, time: Int, out: Real2
) -> None:
    """Add the token's row and the position's row."""
    for n in range(lo, hi):
        token, place, row = wte[ids[n]], wpe[position + n % time], out[n]
        for c in range(row.size):
            row[c] = token[c] + place[c]


@kernel
def embedding_backward_channels(
    lo: int, hi: int, dout: Real2, ids: Int1, order: Int1, time: Int, position: Int,
    dwte: Real2, dwpe: Real2,
) -> None:  # fmt: skip
    """Add each position's gradient to the rows it came from, in channels [lo, hi).

    A chunk owns its channels in every row, so a token that occurs in thousands of positions makes
    no two chunks meet. ``order`` brings equal ids together; of one token, up to RUN occurrences
    are added up by themselves first, which keeps the rounding error of a long sum small.
    """
    run = np.empty(hi - lo, dout.dtype)
    n = 0
    while n < order.size:
        token = ids[order[n]]
        run[:] = 0
        stop = min(n + RUN, order.size)
        while n < stop and ids[order[n]] == token:
            row = dout[order[n], lo:hi]
            for c in range(run.size):
                run[c] += row[c]
            n += 1
        total = dwte[token, lo:hi]
        for c in range(run.size):
            total[c] += run[c]
    for t in range(time):
        run[:] = 0
        for first in range(0, dout.shape[0], time):
            row = dout[first + t, lo:hi]
            for c in range(run.size):
                run[c] += row[c]
        total = dwpe[position + t, lo:hi]
        for c in range(run.size):
            total[c] += run[c]


def embedding_forward(
    self: Backend,
    ids: Any,
    wte: Array,
    wpe: Array,
    *,
    position: int = 0,
    out: Array | None = None,
) -> Array:
    """Look tokens and positions up: see :func:`gpt2lib.ops.embedding_forward`."""
    wte = real(wte, "wte")
    ids = check_ids(ids, wte.shape[0])
    T, C = ids.shape[-1], wte.shape[1]
    wpe = same(wpe, "wpe", (wpe.shape[0], C), wte.dtype)
    _check_positions(position, T, wpe.shape[0])
    out = result(out, (*ids.shape, C), wte.dtype)
    flat = _flat(ids)
    self.run(embedding_forward_rows, flat.size, ROWS, flat, wte, wpe, position, T, rows(out))
    return out


def embedding_backward(
    self: Backend, dout: Array, ids: Any, *, dwte: Array, dwpe: Array, position: int = 0
) -> tuple[Array, Array]:
    """Add the gradients of both tables: see :func:`gpt2lib.ops.embedding_backward`."""
    dout = real(dout, "dout")
    C, dtype = dout.shape[-1], dout.dtype
    dwte, dwpe = sums(dwte, dwte), sums(dwpe, dwpe)
    same(dwte, "dwte", (dwte.shape[0], C), dtype)
    same(dwpe, "dwpe", (dwpe.shape[0], C), dtype)
    flat, T = _flat(check_ids(ids, dwte.shape[0])), dout.shape[-2]
    same(dout, "dout", (*np.shape(ids), C), dtype)
    _check_positions(position, T, dwpe.shape[0])
    order = np.argsort(flat, kind="stable").astype(np.int64, copy=False)
    self.run(
        embedding_backward_channels,
        C, CHANNELS, rows(dout), flat, order, T, position, dwte, dwpe,
    )  # fmt: skip
    return dwte, dwpe


def _flat(ids: Array) -> Array:
    return np.ascontiguousarray(ids, np.int64).reshape(-1)


def _check_positions(position: int, T: int, context: int) -> None:
    if position < 0 or position + T > context:
        raise ValueError(
            f"positions {position} to {position + T - 1} do not fit a context of {context}."
        )
