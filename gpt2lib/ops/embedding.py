"""Token and position embedding: a look-up, and the scatter-add that undoes it."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpt2lib.ops._shapes import Array, buffer, check_ids, rows


def embedding_forward(
    ids: Any, wte: Array, wpe: Array, *, position: int = 0, out: Array | None = None
) -> Array:
    r"""Look up each token's vector and add its position's.

    .. math:: x_{b,t} = W_e[\mathrm{ids}_{b,t}] + W_p[\mathrm{position} + t]

    Parameters
    ----------
    ids
        (B, T) integers in [0, V).
    wte, wpe
        (V, C) token and (context, C) position embeddings.
    position
        The position of the first token, when earlier ones are in a key/value cache.
    out
        (B, T, C) buffer for the result.

    Returns
    -------
    ndarray
        (B, T, C).

    Raises
    ------
    ValueError
        For an id outside the vocabulary, or a position past the context.

    Notes
    -----
    Radford et al. (2018), section 3.1, equation 2.
    """
    ids = check_ids(ids, wte.shape[0])
    T, context = ids.shape[-1], wpe.shape[0]
    if position < 0 or position + T > context:
        raise ValueError(
            f"positions {position} to {position + T - 1} do not fit a context of {context}."
        )
    out = buffer(out, (*ids.shape, wte.shape[1]), wte.dtype)
    np.take(wte, ids, axis=0, out=out, mode="clip")  # (B, T, C); the ids are checked above
    out += wpe[position : position + T]  # (T, C) on every row of the batch
    return out


def embedding_backward(
    dout: Array, ids: Any, *, dwte: Array, dwpe: Array, position: int = 0
) -> tuple[Array, Array]:
    r"""Add each position's gradient to the rows it was looked up from.

    .. math::
        dW_e[k] \mathrel{+}= \sum_{b,t:\,\mathrm{ids}_{b,t}=k} dx_{b,t}, \qquad
        dW_p[\mathrm{position}+t] \mathrel{+}= \sum_b dx_{b,t}

    A token that occurs n times gets n contributions. ``dwte[ids] += dout`` would keep only the
    last of them; so equal ids are first brought together, then summed, then added once.

    Parameters
    ----------
    dout
        (B, T, C) gradient of the embedding's output.
    ids
        (B, T) the ids of the forward.
    dwte, dwpe
        (V, C) and (context, C) gradients to add to.
    position
        As in the forward.

    Returns
    -------
    tuple
        ``dwte`` and ``dwpe``.
    """
    flat = check_ids(ids, dwte.shape[0]).reshape(-1)  # (N,)
    T, C = dout.shape[-2:]
    buffer(dwte, (len(dwte), C), dout.dtype)
    buffer(dwpe, (len(dwpe), C), dout.dtype)
    # undoes: out += wpe[position : position + T]
    dwpe[position : position + T] += dout.reshape(-1, T, C).sum(axis=0)
    # undoes: np.take(wte, ids)
    order = np.argsort(flat, kind="stable")  # equal ids side by side, in order of position
    values, first = np.unique(flat[order], return_index=True)
    dwte[values] += np.add.reduceat(rows(dout)[order], first, axis=0)  # each row named once
    return dwte, dwpe
