"""Softmax and cross-entropy in one, compiled: no second (N, V) array, the backward in place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gpt2lib.kernels._check import Array, check_targets, real, result, rows, same
from gpt2lib.kernels._compile import Int, Int1, Real, Real1, Real2, kernel
from gpt2lib.kernels._math import exp, largest
from gpt2lib.kernels._tiles import ELEMENTS

if TYPE_CHECKING:
    from gpt2lib.kernels import Backend


BLOCK = 1024  # numbers that wait in the first-level cache until they are written back


@kernel
def cross_entropy_forward_rows(
    lo: int, hi: int, logits: Real2, targets: Int1, ignored: Int, losses: Real1, lse: Real1
) -> None:
    """Find each row's log-sum-exp, and how far the target's logit lies below it."""
    for n in range(lo, hi):
        z = logits[n]
        top = largest(z)
        total = z.dtype.type(0)
        for k in range(z.size):
            total += exp(z[k] - top)
        lse[n] = top + np.log(total)
        losses[n] = 0
        if targets[n] != ignored:
            losses[n] = lse[n] - z[targets[n]]


@kernel
def cross_entropy_backward_rows(
    lo: int, hi: int, logits: Real2, targets: Int1, ignored: Int, lse: Real1, scale: Real,
    out: Real2,
) -> None:  # fmt: skip
    """Write (probabilities - one-hot target) * scale; a row may be written over its logits.

    It goes through a small block: a loop that reads and writes the same row would not become
    vector code, since the compiler has to fear that a number is read after it was replaced.
    """
    block = np.empty(BLOCK, logits.dtype)
    for n in range(lo, hi):
        z, d, shift = logits[n], out[n], lse[n]
        if targets[n] == ignored:
            d[:] = 0
            continue
        for begin in range(0, z.size, BLOCK):
            part, place = z[begin : begin + BLOCK], d[begin : begin + BLOCK]
            values = block[: part.size]
            for k in range(values.size):
                values[k] = exp(part[k] - shift) * scale
            for k in range(place.size):
                place[k] = values[k]
        d[targets[n]] -= scale


def cross_entropy_forward(
    self: Backend,
    logits: Array,
    targets: Any,
    *,
    ignore_index: int = -1,
    losses: Array | None = None,
    lse: Array | None = None,
) -> tuple[float, Array, Array]:
    """Return the mean loss: see :func:`gpt2lib.ops.cross_entropy_forward`."""
    logits = real(logits, "logits")
    z = rows(logits)
    y = _targets(targets, z, ignore_index)
    losses = result(losses, logits.shape[:-1], logits.dtype)
    lse = result(lse, logits.shape[:-1], logits.dtype)
    arguments = z, y, ignore_index, losses.reshape(-1), lse.reshape(-1)
    self.run(cross_entropy_forward_rows, len(z), _chunk(z), *arguments)
    counted = int(np.count_nonzero(y != ignore_index))
    return float(losses.sum(dtype=np.float64)) / max(counted, 1), losses, lse


def cross_entropy_backward(
    self: Backend,
    dloss: float,
    logits: Array,
    targets: Any,
    lse: Array,
    *,
    ignore_index: int = -1,
    out: Array | None = None,
) -> Array:
    """Write the gradient of the logits: see :func:`gpt2lib.ops.cross_entropy_backward`."""
    logits = real(logits, "logits")
    z = rows(logits)
    y = _targets(targets, z, ignore_index)
    lse = same(lse, "lse", logits.shape[:-1], logits.dtype)
    out = result(out, logits.shape, logits.dtype)
    counted = int(np.count_nonzero(y != ignore_index))
    arguments = z, y, ignore_index, lse.reshape(-1), dloss / max(counted, 1), rows(out)
    self.run(cross_entropy_backward_rows, len(z), _chunk(z), *arguments)
    return out


def _targets(targets: Any, z: Array, ignore_index: int) -> Array:
    return np.ascontiguousarray(check_targets(targets, z.shape[1], ignore_index, len(z)), np.int64)


def _chunk(z: Array) -> int:
    """Return how many rows a chunk has: about four of GPT-2's vocabulary."""
    return max(1, 6 * ELEMENTS // z.shape[1])
