"""Causal attention in tiles, compiled: memory grows with T, not with T².

A tile of scores, QUERIES x KEYS, is made by one small matmul, turned into probabilities while it
is in the cache, and multiplied with the values by another. Each row keeps a running maximum and a
running sum; when a later tile raises the maximum, what was added so far is scaled down. Tiles above
the diagonal are never made. The backward makes the same tiles again from the rows' log-sum-exp.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gpt2lib.kernels._blas import matmul
from gpt2lib.kernels._check import Array, real, result, same, sums
from gpt2lib.kernels._compile import Int, Real3, Real4, contiguous, kernel, part
from gpt2lib.kernels._math import exp, largest

if TYPE_CHECKING:
    from gpt2lib.kernels import Backend

QUERIES = 64  # rows of a tile
KEYS = 512  # 128 KiB of scores in float32: half as many are a third slower, twice as many a quarter


@part
def _attend(gemm, q, k, v, out, lse, first, scores):
    """Attend from q (R, hs), at positions first, first + 1, ..., to k and v (S, hs), S = first + R.

    Fills out (R, hs) and lse (R,). ``scores`` is scratch for (R, KEYS).
    """
    zero, one = q.dtype.type(0), q.dtype.type(1)
    scale = one / np.sqrt(q.dtype.type(q.shape[1]))
    top, total = np.empty(q.shape[0], q.dtype), np.empty(q.shape[0], q.dtype)
    top[:] = -np.inf
    total[:] = zero
    for begin in range(0, first + q.shape[0], KEYS):
        end = min(begin + KEYS, first + q.shape[0])
        s = scores[: q.shape[0], : end - begin]
        matmul(gemm, q, k[begin:end].T, s, scale, 0)
        for r in range(q.shape[0]):
            seen = max(0, min(end, first + r + 1) - begin)  # the causal mask: keys up to here
            s[r, seen:] = zero
            if seen == 0:  # this row's keys all lie before the tile
                continue
            row = contiguous(s[r, :seen])
            highest = max(top[r], largest(row))
            shrink = exp(top[r] - highest)  # 0 at the first tile
            part = zero
            for j in range(row.size):
                row[j] = exp(row[j] - highest)
                part += row[j]
            total[r] = total[r] * shrink + part
            top[r] = highest
            if begin > 0:
                z = contiguous(out[r])
                for c in range(z.size):
                    z[c] *= shrink
        matmul(gemm, s, v[begin:end], out, one, 0 if begin == 0 else 1)
    for r in range(q.shape[0]):
        lse[r] = top[r] + np.log(total[r])
        z, inverse = contiguous(out[r]), one / total[r]
        for c in range(z.size):
            z[c] *= inverse


@kernel
def attention_forward_blocks(
    lo: int, hi: int, gemm: Int, qkv: Real3, out: Real3, lse: Real3
) -> None:
    """Compute blocks of QUERIES rows of one head; they are numbered by sequence, head, block."""
    T, C = out.shape[1], out.shape[2]
    heads = lse.shape[1]
    hs = C // heads
    blocks = -(-T // QUERIES)
    scores = np.empty((min(QUERIES, T), min(KEYS, T)), qkv.dtype)
    for number in range(lo, hi):
        b, rest = number // (heads * blocks), number % (heads * blocks)
        h, first = rest // blocks, (rest % blocks) * QUERIES
        last, x = min(first + QUERIES, T), qkv[b]
        q = x[first:last, h * hs : (h + 1) * hs]
        k = x[:, C + h * hs : C + (h + 1) * hs]
        v = x[:, 2 * C + h * hs : 2 * C + (h + 1) * hs]
        z = out[b, first:last, h * hs : (h + 1) * hs]
        _attend(gemm, q, k, v, z, lse[b, h, first:last], first, scores)


@kernel
def attention_probabilities_heads(
    lo: int, hi: int, gemm: Int, qkv: Real3, lse: Real3, probabilities: Real4
) -> None:
    """Write the (T, T) probabilities of whole heads: for figures, not for training."""
    T, C, heads = qkv.shape[1], qkv.shape[2] // 3, lse.shape[1]
    hs = C // heads
    scale = qkv.dtype.type(1) / np.sqrt(qkv.dtype.type(hs))
    for number in range(lo, hi):
        b, h = number // heads, number % heads
        q, k = qkv[b, :, h * hs : (h + 1) * hs], qkv[b, :, C + h * hs : C + (h + 1) * hs]
        p = probabilities[b, h]
        matmul(gemm, q, k.T, p, scale, 0)
        for t in range(T):
            row, shift = p[t, : t + 1], lse[b, h, t]
            for j in range(row.size):
                row[j] = exp(row[j] - shift)
            p[t, t + 1 :] = 0


@part
def _tile_gradients(p, dp, lse, along, seen_first, scale):
    """Turn scaled scores into probabilities, and dp into the gradient of q @ k.T, in place."""
    for r in range(p.shape[0]):
        seen = min(p.shape[1], seen_first + r)
        row, d = contiguous(p[r, :seen]), contiguous(dp[r, :seen])
        shift, a = lse[r], along[r]
        for j in range(row.size):
            row[j] = exp(row[j] - shift)
            d[j] = row[j] * (d[j] - a) * scale
        p[r, seen:] = 0
        dp[r, seen:] = 0


@kernel
def attention_backward_heads(
    lo: int, hi: int, gemm: Int, dout: Real3, qkv: Real3, out: Real3, lse: Real3, dqkv: Real3
) -> None:
    """Add the gradients of whole heads: no two chunks share a query, a key or a value."""
    T, C, heads = out.shape[1], out.shape[2], lse.shape[1]
    hs = C // heads
    scale = qkv.dtype.type(1) / np.sqrt(qkv.dtype.type(hs))
    p_scratch = np.empty((min(QUERIES, T), min(KEYS, T)), qkv.dtype)
    dp_scratch = np.empty((min(QUERIES, T), min(KEYS, T)), qkv.dtype)
    along = np.empty(min(QUERIES, T), qkv.dtype)
    for number in range(lo, hi):
        b, h = number // heads, number % heads
        x, dx, part = qkv[b], dqkv[b], slice(h * hs, (h + 1) * hs)
        for first in range(0, T, QUERIES):
            last = min(first + QUERIES, T)
            q, dq, dz, z = (
                x[first:last, part],
                dx[first:last, part],
                dout[b, first:last, part],
                out[b, first:last, part],
            )
            for r in range(last - first):
                row, other, total = contiguous(dz[r]), contiguous(z[r]), qkv.dtype.type(0)
                for c in range(row.size):
                    total += row[c] * other[c]
                along[r] = total  # equals the sum of p * dp over the row
            for begin in range(0, last, KEYS):
                end = min(begin + KEYS, last)
                key, value = (
                    slice(C + h * hs, C + (h + 1) * hs),
                    slice(2 * C + h * hs, 2 * C + (h + 1) * hs),
                )
                k, v = x[begin:end, key], x[begin:end, value]
                p, dp = (
                    p_scratch[: last - first, : end - begin],
                    dp_scratch[: last - first, : end - begin],
                )
                matmul(gemm, q, k.T, p, scale, 0)
                matmul(gemm, dz, v.T, dp, 1, 0)  # undoes: p @ v, for p
                _tile_gradients(p, dp, lse[b, h, first:last], along, first + 1 - begin, scale)
                matmul(gemm, p.T, dz, dx[begin:end, value], 1, 1)  # undoes: p @ v, for v
                matmul(gemm, dp, k, dq, 1, 1)  # undoes: q @ k.T, for q
                matmul(gemm, dp.T, q, dx[begin:end, key], 1, 1)  # undoes: q @ k.T, for k


@part
def _store(x, cache, position):
    """Copy rows (T, hs) to the cache (context, hs), from ``position`` on."""
    for t in range(x.shape[0]):
        row, place = contiguous(x[t]), contiguous(cache[position + t])
        for c in range(place.size):
            place[c] = row[c]


@kernel
def attention_cached_heads(
    lo: int, hi: int, gemm: Int, qkv: Real3, keys: Real4, values: Real4, position: Int, out: Real3
) -> None:
    """Store the new keys and values of whole heads; attend from the new tokens to all so far."""
    T, C, heads = out.shape[1], out.shape[2], keys.shape[1]
    hs = C // heads
    scores, lse = np.empty((min(QUERIES, T), KEYS), qkv.dtype), np.empty(T, qkv.dtype)
    for number in range(lo, hi):
        b, h = number // heads, number % heads
        x, k, v = qkv[b], keys[b, h, :, :hs], values[b, h, :, :hs]
        _store(x[:, C + h * hs : C + (h + 1) * hs], k, position)
        _store(x[:, 2 * C + h * hs : 2 * C + (h + 1) * hs], v, position)
        for first in range(0, T, QUERIES):
            last = min(first + QUERIES, T)
            q = x[first:last, h * hs : (h + 1) * hs]
            z = out[b, first:last, h * hs : (h + 1) * hs]
            _attend(gemm, q, k, v, z, lse[first:last], position + first, scores)


@kernel
def attention_cached_one_heads(
    lo: int, hi: int, qkv: Real3, keys: Real4, values: Real4, position: Int, out: Real3
) -> None:
    """Do the same for a single new token, without BLAS: two streams, over keys and over values."""
    C, heads = out.shape[2], keys.shape[1]
    hs = C // heads
    zero, one = qkv.dtype.type(0), qkv.dtype.type(1)
    scale = one / np.sqrt(qkv.dtype.type(hs))
    p = np.empty(position + 1, qkv.dtype)
    for number in range(lo, hi):
        b, h = number // heads, number % heads
        q, z = qkv[b, 0, h * hs : (h + 1) * hs], out[b, 0, h * hs : (h + 1) * hs]
        k, v = qkv[b, 0, C + h * hs : C + (h + 1) * hs], qkv[b, 0, 2 * C + h * hs :]
        new_key, new_value = keys[b, h, position], values[b, h, position]
        for c in range(z.size):
            new_key[c] = k[c]
            new_value[c] = v[c]
            z[c] = zero
        for j in range(p.size):
            row, s = keys[b, h, j], zero
            for c in range(row.size):
                s += q[c] * row[c]
            p[j] = s * scale
        top, total = largest(p), zero
        for j in range(p.size):
            p[j] = exp(p[j] - top)
            total += p[j]
        inverse = one / total
        for j in range(p.size):
            row, weight = values[b, h, j], p[j] * inverse
            for c in range(row.size):
                z[c] += weight * row[c]


def attention_forward(
    self: Backend,
    qkv: Array,
    n_head: int,
    *,
    out: Array | None = None,
    lse: Array | None = None,
    probabilities: Array | None = None,
) -> tuple[Array, Array]:
    """Attend causally, head by head: see :func:`gpt2lib.ops.attention_forward`."""
    qkv = _check(qkv, n_head)
    B, T, C = qkv.shape[0], qkv.shape[1], qkv.shape[2] // 3
    out = result(out, (B, T, C), qkv.dtype)
    lse = result(lse, (B, n_head, T), qkv.dtype)
    gemm = self.gemm(qkv.dtype)
    blocks = B * n_head * -(-T // QUERIES)
    self.run(attention_forward_blocks, blocks, 1, gemm, qkv, out, lse)
    if probabilities is not None:
        result(probabilities, (B, n_head, T, T), qkv.dtype)
        self.run(attention_probabilities_heads, B * n_head, 1, gemm, qkv, lse, probabilities)
    return out, lse


def attention_backward(
    self: Backend,
    dout: Array,
    qkv: Array,
    out: Array,
    lse: Array,
    n_head: int,
    *,
    dqkv: Array | None = None,
) -> Array:
    """Add the gradients: see :func:`gpt2lib.ops.attention_backward`."""
    qkv = _check(qkv, n_head)
    B, T, C = qkv.shape[0], qkv.shape[1], qkv.shape[2] // 3
    dout = same(dout, "dout", (B, T, C), qkv.dtype)
    out = same(out, "out", (B, T, C), qkv.dtype)
    lse = same(lse, "lse", (B, n_head, T), qkv.dtype)
    dqkv = sums(dqkv, qkv)
    arguments = self.gemm(qkv.dtype), dout, qkv, out, lse, dqkv
    self.run(attention_backward_heads, B * n_head, 1, *arguments)
    return dqkv


def attention_cached(
    self: Backend,
    qkv: Array,
    keys: Array,
    values: Array,
    position: int,
    n_head: int,
    *,
    out: Array | None = None,
) -> Array:
    """Attend from new tokens to a cache: see :func:`gpt2lib.ops.attention_cached`."""
    qkv = _check(qkv, n_head)
    B, T, C = qkv.shape[0], qkv.shape[1], qkv.shape[2] // 3
    shape = (B, n_head, keys.shape[2], C // n_head)
    keys, values = result(keys, shape, qkv.dtype), result(values, shape, qkv.dtype)
    if position < 0 or position + T > shape[2]:
        raise ValueError(f"{position + T} tokens do not fit a cache for {shape[2]}.")
    out = result(out, (B, T, C), qkv.dtype)
    work = T * (position + T) * shape[3]  # of one head; with little of it, heads share a chunk
    size = max(1, (1 << 15) // work)
    arguments = qkv, keys, values, position, out
    if T == 1:
        self.run(attention_cached_one_heads, B * n_head, size, *arguments)
    else:
        self.run(attention_cached_heads, B * n_head, size, self.gemm(qkv.dtype), *arguments)
    return out


def _check(qkv: Array, n_head: int) -> Array:
    qkv = real(qkv, "qkv")
    if qkv.ndim != 3 or n_head < 1 or qkv.shape[2] % (3 * n_head):
        raise ValueError(f"qkv {qkv.shape} does not hold 3 times {n_head} heads side by side.")
    return qkv
