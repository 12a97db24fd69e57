"""The linear layer, where nearly all of a transformer's arithmetic is."""

from __future__ import annotations

import numpy as np

from gpt2lib.ops._shapes import Array, buffer, gradient, rows


def linear_forward(x: Array, weight: Array, bias: Array, *, out: Array | None = None) -> Array:
    r"""Multiply by a matrix and add a bias.

    .. math:: y = x W + b

    Parameters
    ----------
    x
        (..., I).
    weight
        (I, O): in, out, as GPT-2's checkpoints have it (PyTorch's ``nn.Linear`` has (out, in)).
    bias
        (O,).
    out
        (..., O) buffer for the result.

    Returns
    -------
    ndarray
        (..., O). It costs :math:`2 N I O` floating-point operations for N rows.
    """
    out = buffer(out, (*x.shape[:-1], weight.shape[1]), x.dtype)
    np.matmul(rows(x), weight, out=rows(out))  # (N, I) @ (I, O)
    out += bias
    return out


def linear_backward(
    dout: Array,
    x: Array,
    weight: Array,
    *,
    dx: Array | None = None,
    dweight: Array | None = None,
    dbias: Array | None = None,
) -> tuple[Array, Array, Array]:
    r"""Add the gradients of input, weight and bias.

    .. math:: dx = dy\,W^\top, \qquad dW = x^\top dy, \qquad db = \sum_{n} dy_n

    The shapes leave no choice: :math:`dW` has the shape of :math:`W`, and only
    :math:`x^\top dy` is (I, O).

    Parameters
    ----------
    dout
        (..., O) gradient of the output.
    x, weight
        What the forward took.
    dx, dweight, dbias
        Gradients to add to, (..., I), (I, O) and (O,).

    Returns
    -------
    tuple
        ``dx``, ``dweight``, ``dbias``.
    """
    dx, dweight = gradient(dx, x), gradient(dweight, weight)
    dbias = gradient(dbias, weight[0])
    dy = rows(dout)
    dbias += dy.sum(axis=0)  # undoes: out += bias
    dweight += rows(x).T @ dy  # (I, N) @ (N, O), undoes the matmul for the weight
    dx_rows = rows(dx)
    dx_rows += dy @ weight.T  # (N, O) @ (O, I), undoes the matmul for the input
    return dx, dweight, dbias
