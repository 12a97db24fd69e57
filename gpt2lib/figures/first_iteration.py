"""Figures of the first iteration: what its difference from the later ones is made of."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from gpt2lib.figures._style import PALETTE
from gpt2lib.perf.first_iteration import CAUSES, COMPILING, Case, Step, cases, ratios

__all__ = ["faster", "waterfall"]


def waterfall(results: Mapping[str, Any], *, code: bool = True) -> Figure:
    """Draw the way down from iteration 0 to a later one, cause by cause, for each case.

    Each bar begins where the one above ended, so together they span the difference exactly. A
    hatched bar goes the other way: with that cause prepared, iteration 0 was slower. A thin line
    shows where the bar's end lay in the repeats, from the least to the most.

    Parameters
    ----------
    results
        What :func:`gpt2lib.perf.first_iteration.run` returned.
    code
        Whether to begin with compiling and loading the code. It can be so much that nothing else is
        seen beside it; without it the first bar is an iteration 0 whose code is there.
    """
    found = cases(results) if code else [_without_code(case) for case in cases(results)]
    top = "iteration 0" if code else "iteration 0, code loaded"
    titles = list(dict.fromkeys(step.title for case in found for step in case.steps[:-1]))
    titles = _in_order(found, titles)
    rows = [top, *titles, "not explained", "later iterations"]
    labels = [textwrap.fill(row, 28) for row in rows]
    lines = sum(1 + label.count("\n") for label in labels)
    fig, axes = plt.subplots(
        1,
        len(found),
        figsize=(7.6 if len(found) > 1 else 6.4, 1.3 + 0.17 * (len(rows) + lines)),
        sharey=True,
        squeeze=False,
        layout="constrained",
    )
    for ax, case in zip(axes[0], found, strict=True):
        _draw_case(ax, case, rows)
    axes[0, 0].set_yticks(range(len(rows)), labels)
    axes[0, 0].set_ylim(len(rows) - 0.5, -0.5)
    return fig


def _without_code(case: Case) -> Case:
    """Return the case as if code were never missing: its own causes, from where they begin."""
    keep = [i for i, s in enumerate(case.steps) if s.title not in (COMPILING, CAUSES[0].title)]
    gone = sum(step.ms for i, step in enumerate(case.steps) if i not in keep)
    return case._replace(first=case.first - gone, steps=tuple(case.steps[i] for i in keep))


def _in_order(found: Sequence[Case], titles: list[str]) -> list[str]:
    """Put the causes in the order of the case that has most of them."""
    longest = [s.title for s in max(found, key=lambda case: len(case.steps)).steps]
    return sorted(titles, key=lambda t: longest.index(t) if t in longest else -1)


def _draw_case(ax: Axes, case: Case, rows: Sequence[str]) -> None:
    """Draw one waterfall; a cause that this case does not have leaves its row empty."""
    height, right = 0.62, case.first
    steps = {step.title: step for step in case.steps}
    ends = _ends(case)
    ax.set_xlim(min(0.0, *ends), 1.32 * max(case.first, *ends))
    for at, value in ((0, case.first), (len(rows) - 1, case.steady)):
        ax.barh(at, value, height, color=PALETTE["muted"])
        _write(ax, value, at, f"{_number(value)} ms", bold=True)
    last = 0
    for at, name in enumerate(rows):
        step = steps.get(name)
        if step is None:
            continue
        left = right - step.ms
        ax.plot(
            [right, right], [last + height / 2, at - height / 2], color=PALETTE["muted"], lw=0.8
        )
        _bar(ax, at, right, step, height)
        _write(ax, max(left, right, right - step.low), at, f"{_number(step.ms)}")
        right, last = left, at
    at = len(rows) - 1
    ax.plot([right, right], [last + height / 2, at - height / 2], color=PALETTE["muted"], lw=0.8)
    ax.set(title=f"{case.name}: {_number(case.difference)} ms more", xlabel="time (ms)")
    ax.tick_params(axis="y", length=0)
    ax.grid(axis="y", visible=False)


def _bar(ax: Axes, at: int, right: float, step: Step, height: float) -> None:
    color = PALETTE[_color(step.title)]
    unexplained = step.title == "not explained"
    ax.barh(
        at,
        -step.ms,
        height,
        left=right,
        facecolor=PALETTE["paper"] if unexplained or step.ms < 0 else color,
        edgecolor=color,
        hatch="////" if step.ms < 0 else None,
        linewidth=1.0,
    )
    if step.low < step.high:
        ends = [right - step.high, right - step.low]
        ax.plot(ends, [at, at], "|-", color=PALETTE["ink"], linewidth=1, markersize=5, zorder=3)


def _write(ax: Axes, x: float, y: int, text: str, *, bold: bool = False) -> None:
    ax.annotate(
        text,
        (x, y),
        (4, 0),
        textcoords="offset points",
        va="center",
        fontsize=8.5,
        fontweight="bold" if bold else "normal",
    )


def _color(title: str) -> str:
    """Return the colour of a kind of cause: code, threads and BLAS; memory; caches; the rest."""
    if title == "not explained":
        return "ink"
    if title.startswith("first touch"):
        return "orange"
    return "teal" if title.startswith("caches") else "blue"


def _ends(case: Case) -> list[float]:
    """Return the ends of all bars and of the lines on them."""
    ends, right = [], case.first
    for step in case.steps:
        ends += [right - step.ms, right - step.low, right - step.high]
        right -= step.ms
    return ends


def _number(ms: float) -> str:
    """Write milliseconds with a sensible number of digits."""
    text = f"{ms:,.0f}" if abs(ms) >= 100 else f"{ms:.1f}"
    return text.replace(",", " ").replace("-", "−")


def faster(reports: Sequence[Mapping[str, Any]]) -> Figure:
    """Draw how many times as long as later the first time took, of what could make it faster.

    Parameters
    ----------
    reports
        What :func:`gpt2lib.perf.first_iteration.faster` returned: a dot for each process, a line
        at their median.
    """
    found = ratios(reports)
    fig, ax = plt.subplots(figsize=(7.6, 1.1 + 0.42 * len(found)), layout="constrained")
    low = min(0.8, 0.9 * min(min(values) for values in found.values()))
    high = 1.5 * max(max(values) for values in found.values())
    ax.axvspan(low, 1, color=PALETTE["panel"], zorder=0)
    ax.axvline(1, color=PALETTE["muted"], linewidth=1)
    for at, values in enumerate(found.values()):
        median = float(np.median(values))
        color, marker = _side(median)
        ax.plot(values, [at] * len(values), marker, color=color, markersize=5)
        ax.plot([median, median], [at - 0.3, at + 0.3], color=color, linewidth=2)
        ax.annotate(
            f"{median:.3g} ×",
            (max(values), at),
            (7, 0),
            textcoords="offset points",
            va="center",
            fontsize=8.5,
        )
    labels = [textwrap.fill(name, 34) for name in found]
    ax.set_yticks(range(len(found)), labels)
    ax.set(xscale="log", xlim=(low, 1.6 * high), ylim=(len(found) - 0.4, -0.6))
    ticks = [t for t in (0.5, 1, 2, 5, 10, 20, 50, 100, 200) if low <= t <= high]
    ax.set_xticks(ticks, [f"{t:g}" for t in ticks])
    ax.minorticks_off()
    ax.set_xlabel("first time ÷ later times (shaded: the first is faster)")
    ax.grid(axis="y", visible=False)
    return fig


def _side(ratio: float) -> tuple[str, str]:
    """Return colour and marker: faster, slower, or no difference beyond a hundredth."""
    if abs(ratio - 1) < 0.01:
        return PALETTE["muted"], "D"
    return (PALETTE["teal"], "o") if ratio < 1 else (PALETTE["orange"], "s")
