"""Softmax and cross-entropy in one: how surprised the model was, and the gradient of that."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpt2lib.ops._shapes import Array, buffer, check_targets, rows

_ROWS = 64  # rows of logits worked on at once: the scratch stays small, the (N, V) array is one


def cross_entropy_forward(
    logits: Array,
    targets: Any,
    *,
    ignore_index: int = -1,
    losses: Array | None = None,
    lse: Array | None = None,
) -> tuple[float, Array, Array]:
    r"""Return the mean negative log-probability of the targets, in nats.

    .. math::
        \ell_n = \underbrace{\log \sum_j e^{z_{nj}}}_{\mathrm{lse}_n} - z_{n,y_n}, \qquad
        \mathrm{loss} = \frac{1}{|\{n: y_n \ne \text{ignored}\}|} \sum_n \ell_n

    The log-sum-exp takes the maximum off first, so logits of 1000 are as good as logits of 1.

    Parameters
    ----------
    logits
        (..., V).
    targets
        (...) integers: the right token of each position, or ``ignore_index``.
    ignore_index
        The target that does not count.
    losses, lse
        (...) buffers for the loss of each position (0 where ignored) and the log-sum-exp.

    Returns
    -------
    tuple
        The mean loss as a float (0.0 when every target is ignored), ``losses`` and ``lse``.

    Raises
    ------
    ValueError
        For a target that is neither in the vocabulary nor ``ignore_index``.

    Notes
    -----
    The log-sum-exp trick: Blanchard, Higham and Higham (2021), section 1.
    """
    z = rows(logits)  # (N, V)
    y = check_targets(targets, z.shape[1], ignore_index, len(z))  # (N,)
    losses = buffer(losses, logits.shape[:-1], logits.dtype)
    lse = buffer(lse, logits.shape[:-1], logits.dtype)
    flat_lse, flat_losses = lse.reshape(-1), losses.reshape(-1)
    for lo in range(0, len(z), _ROWS):
        block = z[lo : lo + _ROWS]
        top = block.max(axis=1)
        flat_lse[lo : lo + _ROWS] = top + np.log(np.exp(block - top[:, None]).sum(axis=1))
    counted = y != ignore_index
    np.subtract(flat_lse, z[np.arange(len(z)), np.where(counted, y, 0)], out=flat_losses)
    flat_losses[~counted] = 0
    total = float(flat_losses.sum(dtype=np.float64))
    return total / max(int(counted.sum()), 1), losses, lse


def cross_entropy_backward(
    dloss: float,
    logits: Array,
    targets: Any,
    lse: Array,
    *,
    ignore_index: int = -1,
    out: Array | None = None,
) -> Array:
    r"""Return the gradient of the logits: probability minus truth.

    .. math::
        \frac{\partial\,\mathrm{loss}}{\partial z_{nj}} = \frac{p_{nj} - [j = y_n]}{N_{counted}}

    Each row adds up to zero: what the right token gains, the others lose.

    This is the one backward that *overwrites* its result, since nothing else flows into the
    logits; and ``out`` may be the logits themselves, which are not needed any more. So the largest
    array of the whole step exists once.

    Parameters
    ----------
    dloss
        Gradient of the loss, 1.0 in ordinary training.
    logits, targets, ignore_index
        What the forward took.
    lse
        What the forward returned.
    out
        (..., V) buffer for the result; may be ``logits``.

    Returns
    -------
    ndarray
        (..., V). Rows of ignored targets are exactly 0.
    """
    z = rows(logits)
    y = check_targets(targets, z.shape[1], ignore_index, len(z))
    out = buffer(out, logits.shape, logits.dtype)
    dz = rows(out)
    counted = y != ignore_index
    np.subtract(z, lse.reshape(-1, 1), out=dz)
    np.exp(dz, out=dz)  # the probabilities, (N, V)
    dz[np.flatnonzero(counted), y[counted]] -= 1
    dz *= dloss / max(int(counted.sum()), 1)
    dz[~counted] = 0
    return out
