"""Figures about embeddings: maps of words, similarities, positions."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from gpt2lib.figures._style import PALETTE, SERIES

Array = np.ndarray[Any, Any]


def cosine(x: Array) -> Array:
    """Return the (n, n) cosines between the rows of x (n, C)."""
    unit = x / np.linalg.norm(x, axis=1, keepdims=True)
    return unit @ unit.T


def plane(x: Array) -> tuple[Array, float]:
    """Return the rows of x (n, C) in the plane in which they differ most, and its share.

    The two directions are the first principal components: those along which the rows' variance is
    largest. The share is the part of all variance that the plane shows.
    """
    centred = x - x.mean(axis=0)
    u, s, _ = np.linalg.svd(centred, full_matrices=False)
    return u[:, :2] * s[:2], float((s[:2] ** 2).sum() / (s**2).sum())


def word_map(
    groups: Mapping[str, tuple[Sequence[str], Array]], *, unlabelled: Collection[str] = ()
) -> Figure:
    """Draw words as points of a plane, each group with its own colour and mark.

    Parameters
    ----------
    groups
        Group to its (words, (n, 2) points).
    unlabelled
        Groups whose points lie too close for their words to be written beside them.
    """
    fig, ax = plt.subplots(figsize=(7.0, 4.6), layout="constrained")
    for (group, (words, points)), name, marker in zip(
        groups.items(), SERIES, "os^Dv", strict=False
    ):
        ax.scatter(
            points[:, 0], points[:, 1], color=PALETTE[name], marker=marker, s=34, label=group
        )
        for word, point in zip(words, points, strict=True):
            if group in unlabelled:
                continue
            ax.annotate(
                word,
                point,
                xytext=(4, 3),
                textcoords="offset points",
                fontsize=8,
                color=PALETTE[name] if name != "gold" else PALETTE["ink"],
            )
    ax.set(xlabel="first direction", ylabel="second direction")
    ax.legend(loc="best")
    return fig


def heat(matrix: Array, *, label: str, axis: str, names: Sequence[str] | None = None) -> Figure:
    """Draw a square matrix of cosines as a heat map, from −1 to 1.

    Parameters
    ----------
    matrix
        (n, n).
    label
        What the colours mean.
    axis
        What the rows and columns are.
    names
        A name for each row, if there are few.
    """
    fig, ax = plt.subplots(figsize=(5.6, 4.6), layout="constrained")
    if isinstance(layout := fig.get_layout_engine(), ConstrainedLayoutEngine):
        layout.set(w_pad=0.12)  # a square axes is centred, its label hangs over
    image = ax.imshow(matrix, cmap="g2-diverging", vmin=-1, vmax=1)
    ax.set(xlabel=axis, ylabel=axis)
    if names is not None:
        ax.set_xticks(range(len(names)), names, rotation=90, fontsize=8)
        ax.set_yticks(range(len(names)), names, fontsize=8)
    ax.grid(False)
    fig.colorbar(image, ax=ax, label=label, shrink=0.85)
    return fig


def first_loss(stds: Array, losses: Array, uniform: float) -> Figure:
    """Draw the loss of an untrained model over the size of its initial weights.

    Parameters
    ----------
    stds
        Standard deviations of the initial embedding.
    losses
        The first loss at each, in nats a token.
    uniform
        ln V.
    """
    fig, ax = plt.subplots(figsize=(6.4, 3.0), layout="constrained")
    ax.loglog(stds, losses, marker="o", color=PALETTE["blue"])
    ax.axhline(uniform, color=PALETTE["muted"], linestyle="--")
    ax.text(stds[0], uniform * 1.1, "ln V: knows nothing", color=PALETTE["muted"])
    ax.axvline(0.02, color=PALETTE["orange"], linestyle=":")
    ax.text(0.021, losses.max() * 0.6, "GPT-2: 0.02", color=PALETTE["orange"])
    ax.set(xlabel="standard deviation of the initial embedding", ylabel="first loss (nats a token)")
    return fig
