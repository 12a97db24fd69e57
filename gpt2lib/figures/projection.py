"""Figures of the model of a step's time over threads. Every one says that it shows a model."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from gpt2lib.figures._style import PALETTE, SERIES
from gpt2lib.perf.projection import Parts, Projection

__all__ = ["parts", "speedups"]

_STYLES = ("-", "--", "-.", ":", (0, (6, 1, 1, 1, 1, 1)))
_HATCHES = ("", "///", "...", "xxx", "\\\\\\")
_NAMES = ("work, shared equally", "shared memory", "chunks and rounds", "hand-over", "Python")


def speedups(
    models: Mapping[str, Projection],
    *,
    points: Sequence[Mapping[str, Any]] = (),
    measured: Mapping[int, float] | None = None,
    most: int = 448,
) -> Figure:
    """Draw the speedup that models predict, beside what was measured.

    Parameters
    ----------
    models
        What is assumed to the model; at most five.
    points
        Measurements by others: ``runtime``, ``threads``, ``speedup``, such as the rows of
        :func:`gpt2lib.perf.scaling.wiki`.
    measured
        Threads -> the speedup that was measured where the models were calibrated.
    most
        The largest number of threads.
    """
    fig, ax = plt.subplots(figsize=(7.4, 4.4), layout="constrained")
    p = np.unique(np.geomspace(1, most, 160).round().astype(int))
    ax.plot([1, most], [1, most], color=PALETTE["muted"], linewidth=1.0, linestyle=(0, (2, 3)))
    for (name, model), color, style in zip(models.items(), SERIES, _STYLES, strict=False):
        gains = [model.speedup(int(n)) for n in p]
        ax.plot(p, gains, color=PALETTE[color], linestyle=style, label=f"model: {name}")
    for row, marker, aside in zip(_others(points), "Ds^v", (6, -13, 6, -13), strict=False):
        face = PALETTE["paper"] if marker in "sv" else PALETTE["ink"]
        ax.plot(
            row["threads"], row["speedup"], marker, color=PALETTE["ink"], markersize=6,
            markerfacecolor=face,
        )  # fmt: skip
        ax.annotate(
            f"{row['runtime']}: {row['speedup']:g}",
            (row["threads"], row["speedup"]),
            xytext=(9, aside),
            textcoords="offset points",
            fontsize=9,
        )
    if measured:
        ax.plot(
            list(measured), list(measured.values()), "o", color=PALETTE["ink"],
            markerfacecolor=PALETTE["paper"], markersize=8, label="measured here", zorder=5,
        )  # fmt: skip
    _threads_axis(ax, most)
    ax.set(yscale="log", ylabel="speedup S(p)", title="a model, but for the points")
    ticks = [t for t in (1, 2, 5, 10, 20, 50, 100, 200, 400) if t <= most]
    ax.set_yticks(ticks, [str(t) for t in ticks])
    ax.minorticks_off()
    ax.set_ylim(0.8, most * 1.2)
    ax.legend(loc="upper left")
    return fig


def _others(points: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the measurements on more than one thread: one thread's speedup is 1 by definition."""
    return [row for row in points if row["threads"] > 1]


def _threads_axis(ax: Axes, most: int) -> None:
    ticks = [t for t in (1, 2, 4, 8, 16, 32, 56, 112, 224, 448, 896) if t <= most]
    ax.set(xscale="log", xlabel="threads p (logarithmic)", xlim=(0.9, most * 1.15))
    ax.set_xticks(ticks, [str(t) for t in ticks])


def parts(model: Projection, threads: Sequence[int] = (1, 2, 8, 32, 112, 448)) -> Figure:
    """Draw what a step's time is made of, in shares, for several numbers of threads.

    Parameters
    ----------
    model
        The model.
    threads
        Which numbers of threads; a bar each.
    """
    fig, ax = plt.subplots(figsize=(7.4, 0.46 * len(threads) + 1.5), layout="constrained")
    shares = np.array([np.divide(model.parts(p), model.seconds(p)) for p in threads])
    left = np.zeros(len(threads))
    for number in range(len(Parts._fields)):
        ax.barh(
            range(len(threads)), shares[:, number], left=left, height=0.66,
            color=PALETTE[SERIES[number]], hatch=_HATCHES[number], edgecolor=PALETTE["paper"],
            linewidth=0.6, label=_NAMES[number],
        )  # fmt: skip
        left += shares[:, number]
    for y, p in enumerate(threads):
        ax.text(1.01, y, _time(model.seconds(p)), va="center", fontsize=9)
    ax.set(xlim=(0, 1.14), xlabel="share of the step's time; at the right the time: a model")
    ax.set_yticks(range(len(threads)), [f"p = {p}" for p in threads])
    ax.set_xticks(np.linspace(0, 1, 6), [f"{x:.0%}" for x in np.linspace(0, 1, 6)])
    ax.invert_yaxis()
    ax.grid(visible=False, axis="y")
    fig.legend(loc="outside upper center", ncols=3, fontsize=9)
    return fig


def _time(seconds: float) -> str:
    """Return a time with three digits, in ms or s."""
    if seconds >= 1:
        return f"{seconds:.2f} s"
    digits = max(0, 2 - math.floor(math.log10(1000 * seconds)))
    return f"{1000 * seconds:.{digits}f} ms"
