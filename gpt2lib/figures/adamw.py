"""Figures about optimisation: paths through a ravine, moments, decay, schedules, memory."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from gpt2lib.figures._quick import fixed, tick_marks
from gpt2lib.figures._style import PALETTE, SERIES

Array = np.ndarray[Any, Any]

STEEP = 20.0  # the ravine's second axis is this many times as steep as its first


def ravine(xy: Array) -> Array:
    """Return the height of the ravine, (x² + 20 y²) / 2, at points (..., 2)."""
    return 0.5 * (xy[..., 0] ** 2 + STEEP * xy[..., 1] ** 2)


def ravine_gradient(xy: Array) -> Array:
    """Return the ravine's gradient (x, 20 y) at points (..., 2)."""
    return xy * np.array([1.0, STEEP])


def descend(
    update: Callable[..., None], steps: int, start: Sequence[float] = (-4.0, 0.9), **settings: float
) -> Array:
    """Follow an optimizer down the ravine.

    Parameters
    ----------
    update
        Called as :func:`gpt2lib.ops.adamw_update` is, and changes the point in place.
    steps
        How many steps.
    start
        Where to begin.
    **settings
        Handed on to ``update``.

    Returns
    -------
    ndarray
        (steps + 1, 2) points.
    """
    xy = np.array(start, dtype=np.float64)
    m, v = np.zeros(2), np.zeros(2)
    path = [xy.copy()]
    for step in range(1, steps + 1):
        update(xy, ravine_gradient(xy), m, v, step=step, **settings)
        path.append(xy.copy())
    return np.array(path)


def paths(named: Mapping[str, Array]) -> Figure:
    """Draw paths through the ravine, seen from above, and the height along each.

    Parameters
    ----------
    named
        Label to (steps + 1, 2) points.
    """
    fig, (ax, down) = fixed((8.6, 3.2), left=0.66, bottom=0.5, top=0.08, gap=0.8, widths=(4.5, 2.5))
    x, y = np.meshgrid(np.linspace(-5, 2.6, 160), np.linspace(-1.7, 1.7, 120))
    height = ravine(np.stack([x, y], axis=-1))
    ax.contour(
        x, y, height, levels=np.geomspace(0.05, 40, 10), colors=PALETTE["grid"], linewidths=1
    )
    for (label, path), name, marker in zip(named.items(), SERIES, "o^sDv", strict=False):
        color = PALETTE[name]
        ax.plot(*path.T, color=color, marker=marker, markersize=3, linewidth=1.2, label=label)
        down.semilogy(ravine(path), color=color, marker=marker, markersize=3, linewidth=1.2)
    ax.plot(0, 0, marker="*", color=PALETTE["ink"], markersize=11)
    ax.set(xlabel="first parameter", ylabel="second parameter", xlim=(-5, 2.6), ylim=(-1.7, 1.7))
    ax.legend(loc="upper right")
    down.set(xlabel="step", ylabel="height above the valley", ylim=(1e-4, 60))
    decades = 10.0 ** np.arange(-4, 2)
    down.set_yticks(decades, [f"{decade:g}" for decade in decades])
    down.minorticks_off()  # a tick is six artists: draw the small marks as one
    marks = np.outer(decades, np.arange(2, 10))
    tick_marks(down, "y", marks[marks < 60], length=2)
    return fig


def bias_correction(steps: int, beta1: float, beta2: float) -> Figure:
    """Draw the size of a step, in learning rates, for a gradient that never changes.

    Parameters
    ----------
    steps
        How many steps to draw.
    beta1, beta2
        The moments' decay rates.
    """
    t = np.arange(1, steps + 1)
    raw = (1 - beta1**t) / np.sqrt(1 - beta2**t)
    fig, ax = plt.subplots(figsize=(6.4, 3.0), layout="constrained")
    ax.plot(t, raw, color=PALETTE["orange"], label="without correction")
    ax.plot(t, np.ones_like(raw), color=PALETTE["blue"], label="with correction")
    ax.set(xlabel="step t", ylabel="step size (learning rates)", xscale="log", ylim=(0, None))
    ax.legend()
    return fig


def decay(coupled: Mapping[str, Array], decoupled: Mapping[str, Array]) -> Figure:
    """Draw weights that only decay acts on: through the gradient (left), by itself (right).

    Parameters
    ----------
    coupled, decoupled
        Label of a weight to its size over the steps.
    """
    fig, axes = plt.subplots(1, 2, figsize=(8.2, 3.0), sharey=True, layout="constrained")
    titles = ("L2: decay added to the gradient", "AdamW: decay beside it")
    for ax, curves, title in zip(axes, (coupled, decoupled), titles, strict=True):
        for (label, curve), name, style in zip(
            curves.items(), SERIES, ("-", "--", ":"), strict=False
        ):
            ax.plot(curve, color=PALETTE[name], linestyle=style, linewidth=2, label=label)
        ax.set(title=title, xlabel="step", ylim=(0, 1.05))
    axes[0].set_ylabel("size of the weight")
    axes[0].legend()
    return fig


def schedule(rates: Mapping[str, Array]) -> Figure:
    """Draw learning rates over the steps.

    Parameters
    ----------
    rates
        Label to one rate a step.
    """
    fig, ax = plt.subplots(figsize=(6.4, 2.8), layout="constrained")
    for (label, rate), name, style in zip(rates.items(), SERIES, ("-", "--", ":"), strict=False):
        ax.plot(rate, color=PALETTE[name], linestyle=style, linewidth=2, label=label)
    ax.set(xlabel="step", ylabel="learning rate", ylim=(0, None))
    ax.legend()
    return fig


def curves(losses: Mapping[str, Array], floor: float | None = None, window: int = 5) -> Figure:
    """Draw training losses, smoothed over a few steps, with the floor where it is known.

    Parameters
    ----------
    losses
        Label to one loss a step, in nats a token.
    floor
        The lowest loss that any model can reach.
    window
        How many steps each point is the mean of.
    """
    fig, ax = plt.subplots(figsize=(6.8, 3.4), layout="constrained")
    for (label, loss), name, style in zip(
        losses.items(), SERIES, ("-", "--", ":", "-.", "-"), strict=False
    ):
        smooth = np.convolve(loss, np.ones(window) / window, mode="valid")
        at = np.arange(window - 1, len(loss))
        ax.plot(at, smooth, color=PALETTE[name], linestyle=style, linewidth=1.8, label=label)
    if floor is not None:
        ax.axhline(floor, color=PALETTE["muted"], linestyle=(0, (6, 3)), label="floor")
    ax.set(xlabel="step", ylabel="loss (nats a token)", ylim=(0, None))
    ax.legend()
    return fig


def update_ratios(ratios: Mapping[str, float], matrices: Collection[str]) -> Figure:
    """Draw how far one step moves each tensor, relative to the tensor's own size.

    Parameters
    ----------
    ratios
        Tensor name to |update| / |weight| (root mean squares).
    matrices
        Which of them are matrices.
    """
    names = list(ratios)
    fig, ax = plt.subplots(figsize=(7.2, 0.24 * len(names) + 1.0), layout="constrained")
    at = np.arange(len(names))
    matrix = np.array([name in matrices for name in names])
    values = np.array(list(ratios.values()))
    for kind, color, marker, label in (
        (matrix, "blue", "o", "matrices"),
        (~matrix, "orange", "D", "biases and gains"),
    ):
        ax.plot(values[kind], at[kind], marker, color=PALETTE[color], markersize=5, label=label)
    ax.axvline(1e-3, color=PALETTE["muted"], linestyle="--", label="one thousandth")
    ax.set(xscale="log", xlabel="size of the update / size of the tensor")
    ax.set_yticks(at, names, fontsize=8.5)
    ax.invert_yaxis()
    ax.legend(loc="lower right")
    return fig


def memory(parts: Mapping[str, Mapping[str, float]]) -> Figure:
    """Draw what training keeps in memory, one stacked bar a model.

    Parameters
    ----------
    parts
        Model to its parts, each in GB.
    """
    fig, ax = plt.subplots(figsize=(7.2, 0.6 * len(parts) + 1.2), layout="constrained")
    hatches = ("", "//", "..", "xx", "")
    for row, shares in enumerate(parts.values()):
        left = 0.0
        for (label, size), name, hatch in zip(shares.items(), SERIES, hatches, strict=False):
            ax.barh(
                row,
                size,
                left=left,
                color=PALETTE[name],
                hatch=hatch,
                edgecolor=PALETTE["paper"],
                label=label if row == 0 else None,
            )
            left += size
        ax.annotate(f"{left:.1f} GB", (left, row), (6, 0), textcoords="offset points", va="center")
    ax.set_yticks(range(len(parts)), list(parts))
    ax.invert_yaxis()
    ax.margins(x=0.16)
    ax.set_xlabel("memory (GB)")
    ax.legend(loc="upper right")
    return fig
