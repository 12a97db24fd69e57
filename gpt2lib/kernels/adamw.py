"""AdamW and the passes over a flat buffer, compiled: each at the speed of memory."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from gpt2lib.kernels._check import Array, real, result, same
from gpt2lib.kernels._compile import Double1, Int, Real, Real1, kernel

if TYPE_CHECKING:
    from gpt2lib.kernels import Backend

CHUNK = 1 << 17  # numbers: half a MiB of each array


@kernel
def adamw_update_elements(
    lo: int, hi: int, parameters: Real1, gradients: Real1, m: Real1, v: Real1,
    scale: Real, beta1: Real, beta2: Real, rest1: Real, rest2: Real,
    rate: Real, root: Real, eps: Real, keep: Real, zero_gradients: Int,
) -> None:  # fmt: skip
    """Read four arrays and write three, once; bias corrections are folded into rate and root."""
    p, g, mm, vv = parameters[lo:hi], gradients[lo:hi], m[lo:hi], v[lo:hi]
    for i in range(p.size):
        x = g[i] * scale
        first = beta1 * mm[i] + rest1 * x
        second = beta2 * vv[i] + rest2 * (x * x)
        mm[i] = first
        vv[i] = second
        p[i] = keep * p[i] - rate * (first / (np.sqrt(second) * root + eps))
    if zero_gradients:
        g[:] = 0


@kernel
def squared_norm_elements(lo: int, hi: int, x: Real1, totals: Double1, size: Int) -> None:
    """Leave the chunk's sum of squares, added up in float64, in its place of ``totals``."""
    a = x[lo:hi]
    total = 0.0
    for i in range(a.size):
        total += np.float64(a[i]) * np.float64(a[i])
    totals[lo // size] = total


@kernel
def zero_elements(lo: int, hi: int, x: Real1) -> None:
    """Clear the chunk."""
    x[lo:hi] = 0


def adamw_update(
    self: Backend,
    parameters: Array,
    gradients: Array,
    m: Array,
    v: Array,
    *,
    learning_rate: float,
    beta1: float,
    beta2: float,
    eps: float,
    weight_decay: float,
    step: int,
    gradient_scale: float = 1.0,
    zero_gradients: bool = False,
) -> None:
    """Update parameters and moments in place: see :func:`gpt2lib.ops.adamw_update`.

    With ``zero_gradients`` the gradients are cleared in the same pass, while they are in the cache.
    """
    if step < 1:
        raise ValueError(f"AdamW counts its steps from 1, got {step}.")
    shape, dtype = real(parameters, "parameters").shape, parameters.dtype
    result(parameters, shape, dtype)
    result(m, shape, dtype)
    result(v, shape, dtype)
    gradients = same(gradients, "gradients", shape, dtype)
    if zero_gradients:
        result(gradients, shape, dtype)
    flat = [x.reshape(-1) for x in (parameters, gradients, m, v)]
    self.run(
        adamw_update_elements,
        parameters.size, CHUNK, *flat,
        gradient_scale, beta1, beta2, 1 - beta1, 1 - beta2,
        learning_rate / (1 - beta1**step), 1 / math.sqrt(1 - beta2**step), eps,
        1 - learning_rate * weight_decay, int(zero_gradients),
    )  # fmt: skip


def squared_norm(self: Backend, x: Array) -> float:
    """Return the sum of squares in float64: see :func:`gpt2lib.ops.squared_norm`."""
    flat = real(x, "x").reshape(-1)
    totals = np.zeros(-(-flat.size // CHUNK))
    self.run(squared_norm_elements, flat.size, CHUNK, flat, totals, CHUNK)
    return math.fsum(totals)


def zero(self: Backend, x: Array) -> None:
    """Set every number to 0, in place."""
    flat = result(x, x.shape, real(x, "x").dtype).reshape(-1)
    self.run(zero_elements, flat.size, CHUNK, flat)
