"""The language-model head: a score for every token of the vocabulary, by the embedding itself."""

from __future__ import annotations

import numpy as np

from gpt2lib.ops._shapes import Array, buffer, gradient, rows


def head_forward(x: Array, wte: Array, *, out: Array | None = None) -> Array:
    r"""Score every token by its dot product with the final vector.

    .. math:: \mathrm{logits} = x\,W_e^\top

    The matrix is the token embedding: one tensor, used at both ends (it is *tied*). There is no
    bias.

    Parameters
    ----------
    x
        (..., C), after the last LayerNorm.
    wte
        (V, C) token embedding.
    out
        (..., V) buffer for the result.

    Returns
    -------
    ndarray
        (..., V) logits.

    Notes
    -----
    Press and Wolf (2017), section 3, on tying; Radford et al. (2018), equation 2.
    """
    out = buffer(out, (*x.shape[:-1], wte.shape[0]), x.dtype)
    np.matmul(rows(x), wte.T, out=rows(out))  # (N, C) @ (C, V)
    return out


def head_backward(
    dlogits: Array, x: Array, wte: Array, *, dx: Array | None = None, dwte: Array | None = None
) -> tuple[Array, Array]:
    r"""Add the gradients of the final vectors and of the embedding.

    .. math:: dx = d\mathrm{logits}\,W_e, \qquad dW_e = d\mathrm{logits}^\top x

    Every row of ``dwte`` gets something here, also those of tokens that occur nowhere: they were
    among the candidates. The look-up's part is added by
    :func:`gpt2lib.ops.embedding.embedding_backward`.

    Parameters
    ----------
    dlogits
        (..., V) gradient of the logits.
    x, wte
        What the forward took.
    dx, dwte
        Gradients to add to, (..., C) and (V, C).

    Returns
    -------
    tuple
        ``dx`` and ``dwte``.
    """
    dx, dwte = gradient(dx, x), gradient(dwte, wte)
    dy = rows(dlogits)
    dx_rows = rows(dx)
    dx_rows += dy @ wte  # (N, V) @ (V, C)
    dwte += dy.T @ rows(x)  # (V, N) @ (N, C)
    return dx, dwte
