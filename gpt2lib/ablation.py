"""Heads switched off: the mask of a whole model, and what stands in for what is missing."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from gpt2lib.config import GPT2Config
from gpt2lib.ops._shapes import Array

ABLATIONS = ("zero", "mean")


def heads_off(config: GPT2Config, heads: Iterable[tuple[int, int]]) -> Array:
    """Return the head mask (L, NH) that switches some heads off: 0 for these, 1 for the others.

    Parameters
    ----------
    config
        The model's shape.
    heads
        Pairs (layer, head), both counted from 0.

    Raises
    ------
    ValueError
        For a layer or a head that the model does not have.

    Examples
    --------
    >>> heads_off(GPT2Config.preset("tiny"), [(0, 1)])[0].tolist()
    [1.0, 0.0, 1.0, 1.0]
    """
    mask = np.ones((config.layers, config.heads), np.float32)
    for layer, head in heads:
        if not (0 <= layer < config.layers and 0 <= head < config.heads):
            raise ValueError(
                f"there is no head {layer}.{head}: layers go from 0 to {config.layers - 1}, heads "
                f"from 0 to {config.heads - 1}."
            )
        mask[layer, head] = 0
    return mask


class HeadMask:
    """A factor for each head, (L, NH), with what stands in for a head that is off.

    Parameters
    ----------
    factors
        (L, NH): 1 leaves a head as it is, 0 switches it off.
    ablation
        ``"zero"``: nothing stands in. ``"mean"``: the head's mean output does.
    means
        (L, NH, hs) means for ``"mean"``; None takes those over the batch at hand.
    """

    def __init__(self, factors: Array, ablation: str = "zero", means: Array | None = None) -> None:
        self.factors = factors
        self.means = means if ablation == "mean" else None
        self.own_means = ablation == "mean" and means is None
        self.gradient = np.zeros_like(factors)

    @classmethod
    def checked(
        cls, config: GPT2Config, dtype: Any, factors: Any, ablation: str, means: Array | None
    ) -> HeadMask | None:
        """Return the mask after checking every shape; None where no factors are given.

        Raises
        ------
        ValueError
            For an ablation that does not exist, another shape, a factor that is not finite, or
            means that nothing would be done with.
        """
        if ablation not in ABLATIONS:
            raise ValueError(f"ablation must be one of {', '.join(ABLATIONS)}, got {ablation!r}.")
        if means is not None and ablation != "mean":
            raise ValueError('head means are of use with ablation="mean" only; leave them out.')
        if factors is None:
            return None
        L, NH, hs = config.layers, config.heads, config.head_size
        factors = np.array(factors, dtype)
        if factors.shape != (L, NH):
            raise ValueError(
                f"the head mask must be (layers, heads) = {(L, NH)}, got {factors.shape}."
            )
        if not np.isfinite(factors).all():
            raise ValueError("the head mask holds a number that is not finite.")
        if means is not None and np.shape(means) != (L, NH, hs):
            raise ValueError(
                f"head means must be (layers, heads, head size) = {(L, NH, hs)}, "
                f"got {np.shape(means)}."
            )
        return cls(factors, ablation, means)

    def refuse_own_means(self) -> None:
        """Raise a ValueError where the means would be those of a batch, and there is none.

        Who reads token by token has seen one position when the first mean is asked for.
        """
        if self.own_means:
            raise ValueError(
                'ablation="mean" needs head_means (layers, heads, head size) here: token by token '
                "there is no batch to take them over."
            )

    def mean(self, layer: int, heads: Array) -> Array | None:
        """Return the (NH, hs) means of a layer: the given ones, this batch's, or None for zero."""
        if self.own_means:
            NH = self.factors.shape[1]
            return heads.reshape(-1, NH, heads.shape[-1] // NH).mean(axis=0)
        return None if self.means is None else self.means[layer]

    def forward(self, ops: Any, layer: int, heads: Array, out: Array) -> Array:
        """Return the heads (B, T, C) of a layer with the mask applied, in ``out``."""
        mean = self.mean(layer, heads)
        return ops.head_mask_forward(heads, self.factors[layer], mean=mean, out=out)

    def backward(self, ops: Any, layer: int, dout: Array, heads: Array, dx: Array) -> Array:
        """Add the gradient of the heads to ``dx``, that of the factors to ``self.gradient``."""
        mean = self.mean(layer, heads)
        ops.head_mask_backward(
            dout, heads, self.factors[layer], mean=mean, dx=dx, dmask=self.gradient[layer]
        )
        if self.own_means:  # the means are of this very batch, so they move with it
            NH = self.factors.shape[1]
            share = dout.reshape(-1, NH, dout.shape[-1] // NH)  # (N, NH, hs)
            off = (1 - self.factors[layer])[:, None] * share.mean(axis=0)  # (NH, hs)
            dx += off.reshape(-1)
        return dx
