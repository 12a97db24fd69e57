"""Switching attention heads off: a factor for each head, and what stands in for it."""

from __future__ import annotations

import numpy as np

from gpt2lib.ops._shapes import Array, buffer, gradient


def head_mask_forward(
    x: Array, mask: Array, *, mean: Array | None = None, out: Array | None = None
) -> Array:
    r"""Scale each head's output, and fill what is missing with its mean.

    .. math:: y_h = m_h\,x_h + (1 - m_h)\,\bar x_h

    A factor of 1 leaves a head as it is, 0 switches it off. Off means zero (``mean`` not given,
    zero-ablation) or its mean (mean-ablation): the model then gets what the head says on average,
    so that only what it says about *this* text is missing.

    Parameters
    ----------
    x
        (B, T, C), the heads side by side, before ``c_proj``.
    mask
        (NH,) factors.
    mean
        (NH, hs) means, or None for zeros.
    out
        (B, T, C) buffer for the result; may be ``x``.

    Returns
    -------
    ndarray
        (B, T, C).

    Notes
    -----
    Michel, Levy and Neubig (2019), section 2.1.
    """
    B, T, _ = x.shape
    out = buffer(out, x.shape, x.dtype)
    heads = (B, T, mask.shape[0], -1)  # (B, T, NH, hs)
    factor = np.asarray(mask, x.dtype)[:, None]  # (NH, 1)
    np.multiply(x.reshape(heads), factor, out=out.reshape(heads))
    if mean is not None:
        view = out.reshape(heads)
        view += (1 - factor) * np.asarray(mean, x.dtype)
    return out


def head_mask_backward(
    dout: Array,
    x: Array,
    mask: Array,
    *,
    mean: Array | None = None,
    dx: Array | None = None,
    dmask: Array | None = None,
) -> tuple[Array, Array]:
    r"""Add the gradients of the input and of the factors.

    .. math:: dx_h = m_h\,dy_h, \qquad dm_h = \sum_{b,t} dy_h \cdot (x_h - \bar x_h)

    :math:`dm_h` says, to first order, what the loss would lose with the head: its importance.
    The means count as constants.

    Parameters
    ----------
    dout
        (B, T, C) gradient of the output.
    x, mask, mean
        What the forward took.
    dx, dmask
        Gradients to add to, (B, T, C) and (NH,).

    Returns
    -------
    tuple
        ``dx`` and ``dmask``.
    """
    heads = (*x.shape[:2], mask.shape[0], -1)  # (B, T, NH, hs)
    factor = np.asarray(mask, x.dtype)
    dx, dmask = gradient(dx, x), gradient(dmask, factor)
    view, dy = dx.reshape(heads), dout.reshape(heads)
    view += dy * factor[:, None]
    difference = x.reshape(heads)
    if mean is not None:
        difference = difference - np.asarray(mean, x.dtype)
    dmask += np.einsum("bthd,bthd->h", dy, difference)
    return dx, dmask
