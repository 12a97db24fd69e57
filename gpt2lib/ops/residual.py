"""The residual connection: what a sub-layer finds is added to what was there."""

from __future__ import annotations

import numpy as np

from gpt2lib.ops._shapes import Array, buffer, gradient


def residual_forward(x: Array, y: Array, *, out: Array | None = None) -> Array:
    """Add: ``out = x + y``.

    Parameters
    ----------
    x
        The residual stream, any shape.
    y
        What a sub-layer adds to it, the same shape.
    out
        Buffer for the result; may be ``x`` or ``y``.

    Returns
    -------
    ndarray
        The sum.

    Notes
    -----
    He et al. (2016), section 3.1.
    """
    out = buffer(out, x.shape, x.dtype)
    np.add(x, y, out=out)
    return out


def residual_backward(
    dout: Array, *, dx: Array | None = None, dy: Array | None = None
) -> tuple[Array, Array]:
    """Hand the gradient on to both: a sum's derivative is 1 for each of its terms.

    Parameters
    ----------
    dout
        Gradient of the sum.
    dx, dy
        Gradients to add to.

    Returns
    -------
    tuple
        ``dx`` and ``dy``.
    """
    dx, dy = gradient(dx, dout), gradient(dy, dout)
    dx += dout
    dy += dout
    return dx, dy
