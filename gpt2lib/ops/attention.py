"""Causal multi-head attention: where one position reads from the others."""

from __future__ import annotations

import math

import numpy as np

from gpt2lib.ops._shapes import Array, buffer, gradient


def split_heads(x: Array, parts: int, n_head: int) -> tuple[Array, ...]:
    """View (B, T, parts·C) as ``parts`` arrays (B, NH, T, hs), without copying.

    Parameters
    ----------
    x
        (B, T, parts·C); for queries, keys and values side by side ``parts`` is 3.
    parts
        How many arrays of C channels lie side by side.
    n_head
        NH.
    """
    B, T, _ = x.shape
    split = x.reshape(B, T, parts, n_head, -1)  # (B, T, parts, NH, hs)
    return tuple(split[:, :, part].transpose(0, 2, 1, 3) for part in range(parts))


def attention_forward(
    qkv: Array,
    n_head: int,
    *,
    out: Array | None = None,
    lse: Array | None = None,
    probabilities: Array | None = None,
) -> tuple[Array, Array]:
    r"""Let each position take a weighted mean of the values at and before it, head by head.

    .. math::
        s_{ij} = \frac{q_i \cdot k_j}{\sqrt{hs}} \;(j \le i), \qquad
        p_{ij} = \frac{e^{s_{ij}}}{\sum_{j' \le i} e^{s_{ij'}}}, \qquad
        z_i = \sum_{j \le i} p_{ij} v_j

    The mask is by index: an entry above the diagonal is never part of the sum. The (T, T) scores
    live for one sequence of the batch at a time and are not kept; the backward makes them again
    from the log-sum-exp of each row.

    Parameters
    ----------
    qkv
        (B, T, 3C): queries, keys, values side by side.
    n_head
        NH, which divides C.
    out
        (B, T, C) buffer for the result, the heads side by side.
    lse
        (B, NH, T) buffer for :math:`\log\sum_j e^{s_{ij}}`.
    probabilities
        (B, NH, T, T) buffer, filled with :math:`p` when it is given.

    Returns
    -------
    tuple
        ``out`` and ``lse``.

    Notes
    -----
    Vaswani et al. (2017), section 3.2. Keeping only the log-sum-exp is from Dao et al. (2022),
    section 3.1 and appendix B.
    """
    B, T, C3 = qkv.shape
    out = buffer(out, (B, T, C3 // 3), qkv.dtype)
    lse = buffer(lse, (B, n_head, T), qkv.dtype)
    if probabilities is not None:
        buffer(probabilities, (B, n_head, T, T), qkv.dtype)
    q, k, v = split_heads(qkv, 3, n_head)  # each (B, NH, T, hs)
    (z,) = split_heads(out, 1, n_head)  # (B, NH, T, hs), a view of out
    future = _future(T)
    for b in range(B):
        p = _scores(q[b], k[b])  # (NH, T, T)
        np.copyto(p, -np.inf, where=future)  # exp makes it an exact 0
        top = p.max(axis=-1, keepdims=True)  # (NH, T, 1)
        p -= top
        np.exp(p, out=p)
        total = p.sum(axis=-1, keepdims=True)  # (NH, T, 1), at least 1
        p /= total
        np.matmul(p, v[b], out=z[b])  # (NH, T, T) @ (NH, T, hs)
        lse[b] = (top + np.log(total))[..., 0]
        if probabilities is not None:
            probabilities[b] = p
    return out, lse


def attention_backward(
    dout: Array, qkv: Array, out: Array, lse: Array, n_head: int, *, dqkv: Array | None = None
) -> Array:
    r"""Add the gradients of queries, keys and values.

    .. math::
        dv_j = \sum_{i \ge j} p_{ij}\,dz_i, \qquad
        ds_{ij} = p_{ij}\,(dz_i \cdot v_j - dz_i \cdot z_i), \qquad
        dq_i = \sum_{j \le i} \frac{ds_{ij}}{\sqrt{hs}} k_j, \qquad
        dk_j = \sum_{i \ge j} \frac{ds_{ij}}{\sqrt{hs}} q_i

    The probabilities are computed again, :math:`p_{ij} = e^{s_{ij} - \mathrm{lse}_i}`; and the
    softmax's :math:`\sum_j p_{ij}\,dp_{ij}` is :math:`dz_i \cdot z_i`, which needs no (T, T).

    Parameters
    ----------
    dout
        (B, T, C) gradient of the output.
    qkv, out, lse, n_head
        What the forward took and returned.
    dqkv
        (B, T, 3C) gradient to add to.

    Returns
    -------
    ndarray
        ``dqkv``.

    Notes
    -----
    Dao et al. (2022), appendix B.2.
    """
    T = qkv.shape[1]
    dqkv = gradient(dqkv, qkv)
    q, k, v = split_heads(qkv, 3, n_head)
    dq, dk, dv = split_heads(dqkv, 3, n_head)  # views of dqkv
    (z,), (dz,) = split_heads(out, 1, n_head), split_heads(dout, 1, n_head)
    scale, future = 1.0 / math.sqrt(q.shape[-1]), _future(T)
    for b in range(qkv.shape[0]):
        p = _scores(q[b], k[b])  # (NH, T, T)
        p -= lse[b][..., None]
        np.copyto(p, -np.inf, where=future)
        np.exp(p, out=p)
        dv[b] += p.swapaxes(-1, -2) @ dz[b]  # undoes: p @ v, for v
        ds = dz[b] @ v[b].swapaxes(-1, -2)  # (NH, T, T), undoes: p @ v, for p
        ds -= np.einsum("htd,htd->ht", dz[b], z[b])[..., None]  # undoes the division by total
        ds *= p  # undoes: exp
        ds *= scale  # undoes: the scale in _scores
        dq[b] += ds @ k[b]  # undoes: q @ k.T, for q
        dk[b] += ds.swapaxes(-1, -2) @ q[b]  # undoes: q @ k.T, for k
    return dqkv


def attention_cached(
    qkv: Array,
    keys: Array,
    values: Array,
    position: int,
    n_head: int,
    *,
    out: Array | None = None,
) -> Array:
    r"""Attend from T new tokens to themselves and to everything in the cache before them.

    Row t of the new tokens is at position ``position + t`` and reads from 0 to there.

    Parameters
    ----------
    qkv
        (B, T, 3C) of the new tokens.
    keys, values
        (B, NH, context, hs) cache; rows [position, position + T) are written.
    position
        How many tokens are in the cache already.
    n_head
        NH.
    out
        (B, T, C) buffer for the result.

    Returns
    -------
    ndarray
        (B, T, C).

    Raises
    ------
    ValueError
        When the new tokens do not fit the cache.
    """
    B, T, C3 = qkv.shape
    stop = position + T
    if position < 0 or stop > keys.shape[2]:
        raise ValueError(f"{stop} tokens do not fit a cache for {keys.shape[2]}.")
    out = buffer(out, (B, T, C3 // 3), qkv.dtype)
    q, k, v = split_heads(qkv, 3, n_head)
    keys[:, :, position:stop] = k
    values[:, :, position:stop] = v
    (z,) = split_heads(out, 1, n_head)
    future = np.arange(stop) > position + np.arange(T)[:, None]  # (T, stop)
    for b in range(B):
        p = _scores(q[b], keys[b, :, :stop])  # (NH, T, stop)
        np.copyto(p, -np.inf, where=future)
        p -= p.max(axis=-1, keepdims=True)
        np.exp(p, out=p)
        p /= p.sum(axis=-1, keepdims=True)
        np.matmul(p, values[b, :, :stop], out=z[b])  # (NH, T, stop) @ (NH, stop, hs)
    return out


def _scores(q: Array, k: Array) -> Array:
    """Return scaled dot products (NH, T, S) of queries (NH, T, hs) and keys (NH, S, hs)."""
    scores = q @ k.swapaxes(-1, -2)
    scores *= 1.0 / math.sqrt(q.shape[-1])  # so that their variance does not grow with hs
    return scores


def _future(T: int) -> Array:
    """Return the (T, T) boolean mask of what position i must not see: every j > i."""
    position = np.arange(T)
    return position[None, :] > position[:, None]
