"""Figures about matrix products and memory: orders of reading, tiles, panels, rungs, passes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from gpt2lib.figures._style import PALETTE


def reading_orders(rows: int = 8, columns: int = 8, line: int = 4) -> Figure:
    """Draw the two ways through a matrix, and below each the memory that is fetched for it.

    Parameters
    ----------
    rows, columns
        The shape of the matrix.
    line
        How many numbers the processor fetches at once; a divisor of ``columns``.
    """
    fig, axes = plt.subplots(1, 2, figsize=(8.2, 3.7), layout="constrained")
    down = [(r, 0) for r in range(rows)]
    along = [(0, c) for c in range(columns)]
    for ax, path, title in (
        (axes[0], down, "down a column"),
        (axes[1], along, "along a row"),
    ):
        _matrix(ax, rows, columns, path, line)
        lines = {(r * columns + c) // line for r, c in path}
        words = f"{len(path)} numbers used, {len(lines) * line} fetched"
        ax.set_title(f"{title}: {words}", fontsize=10)
        _strip(ax, rows, columns, path, lines, line)
        ax.set(xlim=(-0.3, columns + 0.3), ylim=(rows + 2.5, -0.3), aspect="equal")
        ax.axis("off")
    return fig


def _matrix(ax: Axes, rows: int, columns: int, path: Sequence[tuple[int, int]], line: int) -> None:
    """Draw a matrix whose fetched lines are pale, with the numbers used in order."""
    fetched = {(r, c // line) for r, c in path}
    for r in range(rows):
        for c in range(columns):
            pale = (r, c // line) in fetched
            _square(ax, c, r, "gold" if pale else "panel", alpha=0.35 if pale else 1.0)
    for order, (r, c) in enumerate(path):
        _square(ax, c, r, "blue")
        ax.text(c + 0.5, r + 0.5, str(order + 1), color=PALETTE["paper"], ha="center", va="center")
    for cut in range(0, columns + 1, line):
        ax.plot([cut, cut], [0, rows], color=PALETTE["muted"], linewidth=1.2)


def _strip(
    ax: Axes,
    rows: int,
    columns: int,
    path: Sequence[tuple[int, int]],
    lines: set[int],
    line: int,
) -> None:
    """Draw the same numbers as they lie in memory, one after the other."""
    top, width = rows + 1.0, columns / (rows * columns)
    used = {r * columns + c for r, c in path}
    for at in range(rows * columns):
        colour = "blue" if at in used else "gold" if at // line in lines else "panel"
        alpha = 0.35 if colour == "gold" else 1.0
        _square(ax, at * width, top, colour, width=width, height=0.8, alpha=alpha)
    ax.text(0, top + 1.4, "the same in memory, row after row", color=PALETTE["muted"], fontsize=9)


def _square(
    ax: Axes,
    x: float,
    y: float,
    colour: str,
    *,
    width: float = 1.0,
    height: float = 1.0,
    alpha: float = 1.0,
) -> None:
    edge = PALETTE["grid"] if colour == "panel" else PALETTE["muted"]
    ax.add_patch(
        Rectangle(
            (x, y),
            width,
            height,
            facecolor=PALETTE[colour],
            edgecolor=edge,
            linewidth=0.7,
            alpha=alpha,
        )
    )


def strides(times: Mapping[int, float], line: int = 16) -> Figure:
    """Draw what a number costs that stands ``stride`` numbers behind the one before.

    Parameters
    ----------
    times
        Stride, in numbers, to nanoseconds a number.
    line
        How many numbers the processor fetches at once: marked.
    """
    fig, ax = plt.subplots(figsize=(6.8, 2.9), layout="constrained")
    ax.plot(list(times), list(times.values()), color=PALETTE["blue"], marker="o")
    ax.axvline(line, color=PALETTE["muted"], linestyle="--", linewidth=1.2)
    ax.set(xscale="log", yscale="log", xlabel="distance of two numbers that are read (numbers)")
    ax.set_ylabel("ns a number")
    ax.set_xticks(list(times), [str(stride) for stride in times])
    ax.xaxis.set_minor_locator(NullLocator())
    _plain_logarithmic(ax, "y")
    ax.text(
        line * 0.93, 0.04, f"a cache line: {line} numbers", ha="right", fontsize=9,
        color=PALETTE["muted"], transform=ax.get_xaxis_transform(),
    )  # fmt: skip
    return fig


def _plain_logarithmic(ax: Axes, which: str) -> None:
    """Write 0.1, 1, 10 on a logarithmic axis instead of powers; on a short one also 2 and 5."""
    axis = ax.yaxis if which == "y" else ax.xaxis
    low, high = sorted(ax.get_ylim() if which == "y" else ax.get_xlim())
    axis.set_major_locator(LogLocator(subs=(1, 2, 5) if high < 300 * low else (1,)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(FuncFormatter(lambda value, _: ""))


def blocks(tile: tuple[int, int, int], item: int = 4) -> Figure:
    """Draw what one piece of the result needs: by the definition, and by tiles.

    Parameters
    ----------
    tile
        Rows of the result, inner dimension, columns of the result: of one tile.
    item
        Bytes of a number.
    """
    rows, inner, columns = tile
    fig, axes = plt.subplots(2, 1, figsize=(7.6, 4.6), layout="constrained")
    size = {
        "a": f"{rows} × {inner}\n{_bytes(rows * inner * item)}",
        "b": f"{inner} × {columns}\n{_bytes(inner * columns * item)}",
        "out": f"{rows} × {columns}\n{_bytes(rows * columns * item)}",
    }
    _product(axes[0], (0.25, 4), (4, 0.25), {}, "three loops: one number at a time")
    _product(axes[1], (1, 1), (1, 2), size, "tiles: all three pieces stay in the cache")
    return fig


def _product(
    ax: Axes,
    a: tuple[float, float],
    b: tuple[float, float],
    sizes: Mapping[str, str],
    title: str,
) -> None:
    """Draw out = a @ b, with the pieces of ``a`` and ``b`` that meet in one piece of ``out``."""
    matrices = {  # left edge, height, width, and the piece that is used
        "out": (0.0, 3, 6, (1.0, 2.0, a[0], b[1])),
        "a": (7.5, 3, 4, (1.0, 0.0 if a[1] == 4 else 1.0, *a)),
        "b": (13.0, 4, 6, (0.0 if b[0] == 4 else 1.0, 2.0, *b)),
    }
    colours = {"out": "teal", "a": "blue", "b": "orange"}
    for name, (left, height, width, (top, start, high, wide)) in matrices.items():
        _square(ax, left, 0, "panel", width=width, height=height)
        _square(ax, left + start, top, colours[name], width=wide, height=high)
        ax.text(left, -0.25, name, fontsize=11, family="monospace", va="bottom")
        if name in sizes:
            beside = start + wide + 0.15
            ax.text(left + beside, top + high / 2, sizes[name], va="center", fontsize=8.5)
    for x, sign in ((6.75, "="), (12.25, "@")):
        ax.text(x, 1.5, sign, ha="center", va="center", fontsize=13)
    ax.set_title(title, fontsize=10, loc="left")
    ax.set(xlim=(-0.1, 19.1), ylim=(4.1, -0.9), aspect="equal")
    ax.axis("off")


def _bytes(count: int) -> str:
    """Write a number of bytes in KiB or MiB."""
    return f"{count / 1024:g} KiB" if count < 1 << 20 else f"{count / 2**20:g} MiB"


def register_tile(rows: int, lanes: int, inner: int) -> Figure:
    """Draw the micro-kernel: two panels, read in order, and the tile that stays in registers.

    Parameters
    ----------
    rows
        Rows of the tile of the result.
    lanes
        Numbers in a vector register; the tile is two of them wide.
    inner
        Numbers along the inner dimension in one panel.
    """
    fig, ax = plt.subplots(figsize=(7.8, 4.4), layout="constrained")
    depth, vector = 7, 5.0  # drawn steps of the inner dimension; width of a vector
    for k in range(depth):  # the panel of b, above: each row is two vectors
        for p in range(2):
            _square(ax, p * vector, k, "orange", width=vector, alpha=1.0 if k == 2 else 0.3)
        for r in range(rows):  # the panel of a, at the left: each column is one step
            _square(ax, -1.5 - depth + k, depth + 1 + r, "blue", alpha=1.0 if k == 2 else 0.3)
    for r in range(rows):
        for p in range(2):
            left, top = p * vector, depth + 1 + r
            _square(ax, left, top, "teal", width=vector)
            number = f"sum {2 * r + p + 1}"
            middle = left + vector / 2, top + 0.5
            ax.text(*middle, number, color=PALETTE["paper"], ha="center", va="center", fontsize=8.5)
    words = {
        (vector, -0.35): (f"panel of b: {inner} rows of 2 × {lanes} numbers", "center"),
        (-1.5 - depth / 2, depth + 0.6): (f"panel of a: {inner} × {rows}", "center"),
        (2 * vector + 0.3, 2.5): ("step k: two vectors of b …", "left"),
        (2 * vector + 0.3, depth + 1 + rows / 2): (
            f"{2 * rows} registers, in which\nthe sums stay for\nall {inner} steps", "left",
        ),
        (-1.5 - depth, depth + rows + 1.7): (f"… times {rows} numbers of a", "left"),
    }  # fmt: skip
    for (x, y), (said, side) in words.items():
        ax.text(x, y, said, ha=side, va="center", fontsize=9.5)
    ax.set(xlim=(-2 - depth, 2 * vector + 7.2), ylim=(depth + rows + 2.2, -1.2), aspect="equal")
    ax.axis("off")
    return fig


def rungs(rates: Mapping[str, float], ceiling: float, extrapolated: Sequence[str] = ()) -> Figure:
    """Draw the ladder: the rate of each rung beside the machine's ceiling.

    Parameters
    ----------
    rates
        Rung to GFLOP/s, from the slowest up.
    ceiling
        GFLOP/s of one large product by BLAS.
    extrapolated
        The rungs that were measured at a smaller size: hatched.
    """
    fig, ax = plt.subplots(figsize=(7.4, 0.5 * len(rates) + 1.3), layout="constrained")
    low = min(rates.values()) / 2
    for y, (name, rate) in enumerate(rates.items()):
        small = name in extrapolated
        ax.barh(
            y, rate, height=0.62, facecolor="none" if small else PALETTE["blue"],
            edgecolor=PALETTE["blue"], hatch="///" if small else None,
        )  # fmt: skip
        share = f"{100 * rate / ceiling:.0f} %" if rate > ceiling / 100 else "below 1 %"
        inside = rate > ceiling / 8  # no room between the bar and the ceiling
        ax.text(
            rate * (0.9 if inside else 1.15), y, f"{rate:.2g} GFLOP/s, {share}", va="center",
            ha="right" if inside else "left", fontsize=9,
            color=PALETTE["paper" if inside else "ink"],
        )  # fmt: skip
    ax.axvline(ceiling, color=PALETTE["orange"], linestyle="--", linewidth=1.6)
    ax.text(
        ceiling * 0.93, len(rates) - 0.42, f"sgemm, large matrices: {ceiling:.0f}", ha="right",
        va="bottom", fontsize=9,
    )  # fmt: skip
    ax.set(xscale="log", xlim=(low, max(ceiling, *rates.values()) * 1.4), xlabel="GFLOP/s")
    ax.set_ylim(-0.6, len(rates) + 0.1)
    ax.set_yticks(range(len(rates)), list(rates))
    ax.grid(visible=False, axis="y")
    _plain_logarithmic(ax, "x")
    return fig


def passes(pairs: Mapping[str, tuple[float, float]], names: tuple[str, str]) -> Figure:
    """Draw pairs of times: the same work in several passes over memory, and in one.

    Parameters
    ----------
    pairs
        What is done to its two times in ms.
    names
        What the first and the second time are of.
    """
    fig, ax = plt.subplots(figsize=(7.4, 0.8 * len(pairs) + 1.2), layout="constrained")
    looks: tuple[dict[str, Any], ...] = (
        {"facecolor": "none", "edgecolor": PALETTE["orange"], "hatch": "///"},
        {"facecolor": PALETTE["blue"], "edgecolor": PALETTE["blue"]},
    )
    for which, look in enumerate(looks):
        at = np.arange(len(pairs)) + 0.36 * (which - 0.5)
        values = [pair[which] for pair in pairs.values()]
        ax.barh(at, values, height=0.34, label=names[which], **look)
        for y, value in zip(at, values, strict=True):
            ax.text(value * 1.04, y, f"{value:.3g} ms", va="center", fontsize=9)
    values = [value for pair in pairs.values() for value in pair]
    ax.set(xscale="log", xlim=(min(values) / 3, max(values) * 2.2), xlabel="ms (logarithmic)")
    ax.set_yticks(range(len(pairs)), list(pairs))
    ax.invert_yaxis()
    ax.grid(visible=False, axis="y")
    ax.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2)
    _plain_logarithmic(ax, "x")
    return fig


def by_rows(rates: Mapping[int, float], roof: Mapping[int, float]) -> Figure:
    """Draw the rate of a linear layer by its number of rows, below what the machine allows.

    Parameters
    ----------
    rates
        Rows to measured GFLOP/s.
    roof
        Rows to the GFLOP/s that the measured ceilings allow.
    """
    fig, ax = plt.subplots(figsize=(6.8, 3.2), layout="constrained")
    ax.plot(
        list(roof), list(roof.values()), color=PALETTE["orange"], linestyle="--",
        label="what the ceilings allow",
    )  # fmt: skip
    ax.plot(list(rates), list(rates.values()), color=PALETTE["blue"], marker="o", label="measured")
    ax.set(xscale="log", yscale="log", xlabel="rows (tokens) that share one reading of the weight")
    ax.set_ylabel("GFLOP/s")
    ax.set_xticks(list(rates), [str(rows) for rows in rates])
    ax.xaxis.set_minor_locator(NullLocator())
    _plain_logarithmic(ax, "y")
    ax.legend(loc="lower right")
    return fig
