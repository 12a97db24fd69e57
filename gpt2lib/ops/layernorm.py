"""Layer normalisation: each token's vector to mean 0 and variance 1, then scaled and shifted."""

from __future__ import annotations

import numpy as np

from gpt2lib.ops._shapes import Array, buffer, gradient, rows


def layernorm_forward(
    x: Array,
    weight: Array,
    bias: Array,
    *,
    eps: float = 1e-5,
    out: Array | None = None,
    mean: Array | None = None,
    rstd: Array | None = None,
) -> tuple[Array, Array, Array]:
    r"""Normalise over the channels.

    .. math::
        \mu = \tfrac1C \sum_c x_c, \quad \sigma^2 = \tfrac1C \sum_c (x_c-\mu)^2, \quad
        \hat x = \frac{x - \mu}{\sqrt{\sigma^2 + \varepsilon}}, \quad y = \gamma \hat x + \beta

    The variance is the population's (divided by C) and is taken of ``x - mean``: the shortcut
    :math:`E[x^2] - E[x]^2` loses every digit in float32 when the mean is large.

    Parameters
    ----------
    x
        (..., C).
    weight, bias
        (C,) gain :math:`\gamma` and bias :math:`\beta`.
    eps
        Added to the variance, inside the root.
    out, mean, rstd
        Buffers for the results, (..., C), (...) and (...).

    Returns
    -------
    tuple
        ``out`` and, for the backward, ``mean`` and ``rstd`` (the reciprocal standard deviation).

    Notes
    -----
    Ba, Kiros and Hinton (2016), section 3, equation 4. GPT-2 normalises before each sub-layer.
    """
    C = x.shape[-1]
    out = buffer(out, x.shape, x.dtype)
    mean = buffer(mean, x.shape[:-1], x.dtype)
    rstd = buffer(rstd, x.shape[:-1], x.dtype)
    np.mean(x, axis=-1, out=mean)  # (...)
    np.subtract(x, mean[..., None], out=out)  # (..., C) centred
    np.einsum("...c,...c->...", out, out, out=rstd)  # (...) sum of squares
    rstd /= C  # the variance
    rstd += eps
    np.sqrt(rstd, out=rstd)
    np.reciprocal(rstd, out=rstd)
    out *= rstd[..., None]  # x-hat
    out *= weight
    out += bias
    return out, mean, rstd


def layernorm_backward(
    dout: Array,
    x: Array,
    weight: Array,
    mean: Array,
    rstd: Array,
    *,
    dx: Array | None = None,
    dweight: Array | None = None,
    dbias: Array | None = None,
) -> tuple[Array, Array, Array]:
    r"""Add the gradients of input, gain and bias.

    With :math:`g = \gamma \odot dy`, the gradient that reaches :math:`\hat x`,

    .. math::
        dx = \frac{1}{\sqrt{\sigma^2+\varepsilon}}
             \Bigl(g - \tfrac1C\sum_c g_c - \hat x\,\tfrac1C\sum_c g_c \hat x_c\Bigr), \quad
        d\gamma = \sum_{b,t} dy \odot \hat x, \quad d\beta = \sum_{b,t} dy

    The second term is there since ``x`` moves the mean, the third since it moves the variance.

    Parameters
    ----------
    dout
        (..., C) gradient of the output.
    x, weight, mean, rstd
        What the forward took and returned.
    dx, dweight, dbias
        Gradients to add to, (..., C), (C,) and (C,).

    Returns
    -------
    tuple
        ``dx``, ``dweight``, ``dbias``.
    """
    dx, dweight, dbias = gradient(dx, x), gradient(dweight, weight), gradient(dbias, weight)
    x_hat = (x - mean[..., None]) * rstd[..., None]  # (..., C)
    dbias += rows(dout).sum(axis=0)  # undoes: out += bias
    dweight += np.einsum("nc,nc->c", rows(dout), rows(x_hat))  # undoes: out *= weight
    g = dout * weight  # (..., C) reaches x-hat
    along = np.einsum("...c,...c->...", g, x_hat) / x.shape[-1]  # (...)
    g -= g.mean(axis=-1, keepdims=True)  # undoes: x - mean
    g -= x_hat * along[..., None]  # undoes the division by the standard deviation
    g *= rstd[..., None]
    dx += g
    return dx, dweight, dbias
