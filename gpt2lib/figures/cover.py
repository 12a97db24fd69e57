"""The picture on the cover: what the small model attends to while it reads a story."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import PathPatch
from matplotlib.path import Path

from gpt2lib.figures._style import PALETTE

Array = np.ndarray[Any, Any]

LAYER_COLOURS = ("gold", "teal", "orange", "blue", "plum")
__all__ = ["arcs", "strongest"]


def strongest(probabilities: Array, least: float = 0.3) -> list[tuple[int, int, int, int, float]]:
    """Return what each head attends to most, token by token, where it is clear and not itself.

    Parameters
    ----------
    probabilities
        (L, NH, T, T) attention probabilities.
    least
        The smallest probability to report.

    Returns
    -------
    list
        (layer, head, from, to, probability), where ``to`` lies before ``from`` and is not the
        first position, at which heads look when they have nothing to say.
    """
    found = []
    best = probabilities.argmax(axis=-1)  # (L, NH, T)
    for layer, head, t in np.ndindex(best.shape):
        j = int(best[layer, head, t])
        p = float(probabilities[layer, head, t, j])
        if 0 < j < t and p >= least:
            found.append((layer, head, t, j, p))
    return found


def arcs(labels: Sequence[str], probabilities: Array, least: float = 0.3) -> Figure:
    """Draw a story along a line, with an arc from each token to what a head attends to.

    Parameters
    ----------
    labels
        The T tokens.
    probabilities
        (L, NH, T, T).
    least
        The smallest probability that gets an arc.

    Returns
    -------
    Figure
        Arcs in the colour of their layer, wider for a larger probability; short ones in front.
    """
    T = len(labels)
    fig, ax = plt.subplots(figsize=(11.0, 4.6), layout="none")
    fig.subplots_adjust(left=0.005, right=0.995, bottom=0.17, top=0.995)
    found = sorted(strongest(probabilities, least), key=lambda arc: arc[3] - arc[2])
    for layer, _, start, stop, p in found:
        color = PALETTE[LAYER_COLOURS[layer % len(LAYER_COLOURS)]]
        ax.add_patch(
            PathPatch(
                _arc(start, stop),
                facecolor="none",
                edgecolor=color,
                alpha=0.25 + 0.6 * p,
                linewidth=0.4 + 1.5 * p**2,
                capstyle="round",
            )
        )
    ax.plot(np.arange(T), np.zeros(T), "o", color=PALETTE["ink"], markersize=2.2)
    for t, label in enumerate(labels):
        ax.text(t, -0.6, label, rotation=90, ha="center", va="top", fontsize=7.5)
    highest = max((start - stop for _, _, start, stop, _ in found), default=1)
    ax.set(xlim=(-1, T), ylim=(-0.5, 0.37 * highest + 1))
    ax.axis("off")
    return fig


def _arc(start: int, stop: int) -> Path:
    """Return a flat half-ellipse over the stretch from ``stop`` to ``start``."""
    height = 0.48 * (start - stop)
    points = [(stop, 0), (stop, height), (start, height), (start, 0)]
    return Path(points, [Path.MOVETO, Path.CURVE4, Path.CURVE4, Path.CURVE4])
