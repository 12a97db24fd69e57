"""AdamW's update of one stretch of parameters, and the small passes over a flat buffer."""

from __future__ import annotations

import math

import numpy as np

from gpt2lib.ops._shapes import Array

_BLOCK = 1 << 15  # numbers worked on at once: parameter, gradient, m, v and scratch stay in cache


def adamw_update(
    parameters: Array,
    gradients: Array,
    m: Array,
    v: Array,
    *,
    learning_rate: float,
    beta1: float,
    beta2: float,
    eps: float,
    weight_decay: float,
    step: int,
    gradient_scale: float = 1.0,
    zero_gradients: bool = False,
) -> None:
    r"""Update parameters and moments in place.

    .. math::
        g' &= \mathrm{scale} \cdot g \\
        m &\leftarrow \beta_1 m + (1-\beta_1)\,g', \qquad
        v \leftarrow \beta_2 v + (1-\beta_2)\,g'^2 \\
        \theta &\leftarrow (1 - \eta\lambda)\,\theta
          - \eta\,\frac{m / (1-\beta_1^t)}{\sqrt{v / (1-\beta_2^t)} + \varepsilon}

    Decay shrinks the weight itself and does not pass through the moments: it is *decoupled*.
    :math:`\varepsilon` stands outside the root.

    Parameters
    ----------
    parameters, gradients, m, v
        1-D arrays of one length; all but ``gradients`` are changed in any case.
    learning_rate, beta1, beta2, eps, weight_decay
        :math:`\eta, \beta_1, \beta_2, \varepsilon, \lambda`.
    step
        t, counted from 1.
    gradient_scale
        A factor for the gradients: clipping, folded into this pass.
    zero_gradients
        Whether to clear the gradients when they have been used, ready for the next step.

    Raises
    ------
    ValueError
        When ``step`` is not at least 1 (the bias correction would divide by zero).

    Notes
    -----
    Kingma and Ba (2015), algorithm 1; Loshchilov and Hutter (2019), algorithm 2, with the learning
    rate itself in place of the schedule multiplier, as PyTorch has it.
    """
    if step < 1:
        raise ValueError(f"AdamW counts its steps from 1, got {step}.")
    rate = learning_rate / (1 - beta1**step)  # the bias corrections, once for all numbers
    root = 1 / math.sqrt(1 - beta2**step)
    scale = float(gradient_scale)  # a NumPy scalar would turn float32 gradients into float64
    for lo in range(0, parameters.size, _BLOCK):
        block = slice(lo, lo + _BLOCK)
        p, mm, vv = parameters[block], m[block], v[block]  # views
        g = gradients[block] * scale
        if zero_gradients:
            gradients[block] = 0
        mm *= beta1
        mm += (1 - beta1) * g
        vv *= beta2
        g *= g
        g *= 1 - beta2
        vv += g
        np.sqrt(vv, out=g)
        g *= root
        g += eps
        np.divide(mm, g, out=g)
        g *= rate
        if weight_decay:
            p *= 1 - learning_rate * weight_decay
        p -= g


def squared_norm(x: Array) -> float:
    """Return the sum of squares, added up in float64 in a fixed order.

    Parameters
    ----------
    x
        Any contiguous array.
    """
    flat = x.reshape(-1)
    total = 0.0
    for lo in range(0, flat.size, _BLOCK):
        block = flat[lo : lo + _BLOCK].astype(np.float64)
        total += float(block @ block)
    return total


def zero(x: Array) -> None:
    """Set every number to 0, in place."""
    x.fill(0)
