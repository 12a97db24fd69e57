"""Softmax: any numbers to probabilities."""

from __future__ import annotations

import numpy as np

from gpt2lib.ops._shapes import Array, buffer, gradient


def softmax_forward(x: Array, *, out: Array | None = None) -> Array:
    r"""Turn the numbers along the last axis into probabilities.

    .. math:: p_i = \frac{e^{x_i - m}}{\sum_j e^{x_j - m}}, \qquad m = \max_j x_j

    Taking off the maximum changes nothing (it cancels) and keeps ``exp`` from overflowing, which
    in float32 it does from 89 on. An entry of -inf gets probability 0.

    Parameters
    ----------
    x
        (..., K).
    out
        Buffer of the same shape; may be ``x``.

    Returns
    -------
    ndarray
        (..., K), each row adding up to 1.
    """
    out = buffer(out, x.shape, x.dtype)
    np.subtract(x, x.max(axis=-1, keepdims=True), out=out)
    np.exp(out, out=out)
    out /= out.sum(axis=-1, keepdims=True)
    return out


def softmax_backward(dout: Array, out: Array, *, dx: Array | None = None) -> Array:
    r"""Add the gradient of the input.

    .. math:: dx_i = p_i \Bigl(dp_i - \sum_j p_j\, dp_j\Bigr)

    Parameters
    ----------
    dout
        (..., K) gradient of the probabilities.
    out
        (..., K) the probabilities that the forward returned.
    dx
        Gradient to add to.

    Returns
    -------
    ndarray
        ``dx``. Each row of it adds up to 0: shifting all inputs alike changes nothing.
    """
    dx = gradient(dx, out)
    along = np.einsum("...k,...k->...", dout, out)  # (...)
    dx += out * (dout - along[..., None])
    return dx
