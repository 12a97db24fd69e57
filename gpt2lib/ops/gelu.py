"""GELU, the bend in GPT-2's MLP, alone and fused to the linear layer before it."""

from __future__ import annotations

import math

import numpy as np

from gpt2lib.ops._shapes import Array, buffer, gradient
from gpt2lib.ops.linear import linear_backward, linear_forward

# Python floats, not NumPy scalars: np.float64 constants would turn float32 work into float64.
SQRT_2_OVER_PI = math.sqrt(2 / math.pi)
CUBIC = 0.044715


def gelu_forward(x: Array, *, out: Array | None = None) -> Array:
    r"""Bend each number: the identity far to the right, zero far to the left.

    .. math:: y = \tfrac12 x \Bigl(1 + \tanh\bigl(\sqrt{2/\pi}\,(x + 0.044715\,x^3)\bigr)\Bigr)

    This is the tanh form, with which GPT-2 was trained; the exact form,
    :math:`x\,\Phi(x)`, differs from it by up to 4.7e-4.

    Parameters
    ----------
    x
        Any shape.
    out
        Buffer of the same shape. Not ``x`` itself: the backward needs it.

    Returns
    -------
    ndarray
        The shape of ``x``.

    Notes
    -----
    Hendrycks and Gimpel (2016), section 2.
    """
    out = buffer(out, x.shape, x.dtype)
    np.multiply(x, x, out=out)
    out *= CUBIC
    out += 1.0
    out *= x
    out *= SQRT_2_OVER_PI  # sqrt(2/pi) (x + 0.044715 x^3)
    np.tanh(out, out=out)
    out += 1.0
    out *= x
    out *= 0.5
    return out


def gelu_backward(dout: Array, x: Array, *, dx: Array | None = None) -> Array:
    r"""Add the gradient of the input.

    With :math:`t = \tanh(u)` and :math:`u = \sqrt{2/\pi}\,(x + 0.044715\,x^3)`,

    .. math:: \frac{dy}{dx} = \tfrac12 (1 + t)
              + \tfrac12 x\,(1 - t^2)\,\sqrt{2/\pi}\,(1 + 3 \cdot 0.044715\,x^2)

    :math:`1 - t^2` is :math:`\mathrm{sech}^2 u`, written so that nothing overflows: the textbook's
    :math:`1/\cosh^2 u` is infinity's reciprocal in float32 from :math:`|x|` of about 10 on. Where
    :math:`u` is so large that the slope is 1 or 0 to the last bit, :math:`x` is clamped first,
    lest :math:`0 \cdot \infty` give NaN.

    Parameters
    ----------
    dout
        Gradient of the output.
    x
        What the forward took.
    dx
        Gradient to add to.

    Returns
    -------
    ndarray
        ``dx``.
    """
    dx = gradient(dx, x)
    z = np.clip(x, -30.0, 30.0)
    square = z * z
    t = np.tanh(SQRT_2_OVER_PI * z * (1.0 + CUBIC * square))
    slope = 1.0 - t * t
    slope *= z
    slope *= SQRT_2_OVER_PI * (1.0 + 3.0 * CUBIC * square)
    slope += 1.0
    slope += t
    slope *= 0.5
    slope *= dout
    dx += slope
    return dx


def linear_gelu_forward(
    x: Array, weight: Array, bias: Array, *, out: Array | None = None, pre: Array | None = None
) -> tuple[Array, Array]:
    """Apply a linear layer, then GELU: the first half of the MLP.

    One operation, since a backend that compiles can bend each block of the product while it is
    still in cache; here it is just one after the other.

    Parameters
    ----------
    x, weight, bias
        As in :func:`gpt2lib.ops.linear.linear_forward`.
    out, pre
        (..., O) buffers for the result and for what goes into the bend.

    Returns
    -------
    tuple
        ``out`` and ``pre``, which the backward needs.
    """
    pre = linear_forward(x, weight, bias, out=pre)
    return gelu_forward(pre, out=out), pre


def linear_gelu_backward(
    dout: Array,
    pre: Array,
    x: Array,
    weight: Array,
    *,
    dpre: Array | None = None,
    dx: Array | None = None,
    dweight: Array | None = None,
    dbias: Array | None = None,
) -> tuple[Array, Array, Array]:
    """Undo the bend, then the linear layer.

    Parameters
    ----------
    dout
        (..., O) gradient of the output.
    pre, x, weight
        What the forward took and returned.
    dpre
        (..., O) scratch, overwritten. May be ``dout`` itself.
    dx, dweight, dbias
        Gradients to add to.

    Returns
    -------
    tuple
        ``dx``, ``dweight``, ``dbias``.
    """
    bent = gelu_backward(dout, pre)  # undoes: gelu_forward(pre)
    if dpre is not None:
        np.copyto(buffer(dpre, pre.shape, pre.dtype), bent)
    return linear_backward(bent, x, weight, dx=dx, dweight=dweight, dbias=dbias)
