"""What every thread did, drawn: a row a thread, idle time shaded, and where the time was lost."""

from __future__ import annotations

from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from gpt2lib.figures._style import PALETTE
from gpt2lib.perf.timeline import PHASES, Efficiency, Timeline

__all__ = ["GROUPS", "describe", "group_of", "timeline"]

#: Group of kernels -> its colour and, for a figure in grey, its hatch.
GROUPS: dict[str, tuple[str, str]] = {
    "linear layers": ("blue", ""),
    "attention": ("orange", ""),
    "head and loss": ("teal", "\\\\\\\\"),
    "LayerNorm, GELU, residual": ("gold", ""),
    "AdamW": ("plum", "...."),
}
_OTHER = "LayerNorm, GELU, residual"
_BEGINNINGS = {
    "linear": "linear layers",
    "weight_gradient": "linear layers",
    "input_gradient": "linear layers",
    "multiply": "linear layers",
    "attention": "attention",
    "head_mask": "attention",
    "head_": "head and loss",
    "cross_entropy": "head and loss",
    "adamw": "AdamW",
    "squared_norm": "AdamW",
}
_HEIGHT = 0.8  # of a thread's bar, in rows
_MANY = 1000  # more chunks than this are drawn as one picture inside the figure
_SHORT = 0.07  # a phase that is shorter than this share of the figure has no name above it


def group_of(name: str) -> str:
    """Return the group of a kernel or an operation: one of ``GROUPS``.

    Embeddings, ``zero`` and sums of parts are with LayerNorm and its like: passes over memory.

    Examples
    --------
    >>> group_of("attention_backward_heads"), group_of("weight_gradient_tiles")
    ('attention', 'linear layers')
    """
    return next((group for start, group in _BEGINNINGS.items() if name.startswith(start)), _OTHER)


def timeline(record: Timeline, *, title: str = "") -> Figure:
    """Draw the chunks of every thread, and the parallel efficiency as a product of its factors.

    Where nothing is drawn on a thread's grey bar, the thread is idle. With notes, the phases stand
    above, and each chunk has the colour of its operation; without, that of its kernel.

    Parameters
    ----------
    record
        What to draw; more than some thousand chunks are drawn as a picture inside the figure.
    title
        Above everything.
    """
    lanes = min(0.42 * record.threads, 6.0) + (0.35 if record.notes is not None else 0)
    fig, (above, below) = plt.subplots(
        2, 1, figsize=(8.4, lanes + 2.75), height_ratios=[lanes + 0.9, 1.35], layout="constrained"
    )
    scale, unit = _unit(record.duration)
    used = _draw_lanes(above, record, scale)
    above.set(xlabel=f"time ({unit})", xlim=(0, record.duration / scale))
    _draw_phases(above, record, scale)
    handles = [_patch(group) for group in GROUPS if group in used]
    handles.append(Patch(facecolor=PALETTE["grid"], label="idle"))
    above.legend(
        handles=handles,
        loc="lower center",
        bbox_to_anchor=(0.48, 1.0),
        ncols=len(handles),
        fontsize=8.5,
        columnspacing=1.2,
        handlelength=1.4,
    )
    if title:
        fig.suptitle(title)
    if len(record.records):
        _draw_efficiency(below, record.efficiency())
    else:
        below.axis("off")
    return fig


def describe(record: Timeline) -> str:
    """Return the figure's alternative text: what it shows, with its numbers."""
    shares, busy = record.efficiency(), record.busy() / record.duration
    scale, unit = _unit(record.duration)
    threads = f"{record.threads} threads" if record.threads > 1 else "one thread"
    if record.threads > 1:
        idle = f"Between {1 - busy.max():.0%} and {1 - busy.min():.0%} of a thread's time is idle."
    else:
        idle = f"{1 - busy[0]:.0%} of its time is idle."
    return (
        f"A row for each of {threads} over {record.duration / scale:.3g} {unit}, with "
        f"{len(record.records)} chunks coloured by their kind. {idle} Below, the parallel "
        f"efficiency of {shares.parallel:.3f} as a product: load balance "
        f"{shares.load_balance:.3f}, communication {shares.communication:.3f}, serial part "
        f"{shares.serial:.3f}."
    )


def _unit(duration: int) -> tuple[float, str]:
    for nanoseconds, unit in ((1e9, "s"), (1e6, "ms")):
        if duration >= 2 * nanoseconds:
            return nanoseconds, unit
    return 1e3, "µs"


def _patch(group: str) -> Patch:
    color, hatch = GROUPS[group]
    return Patch(facecolor=PALETTE[color], edgecolor=PALETTE["paper"], hatch=hatch, label=group)


def _groups(record: Timeline) -> np.ndarray[Any, Any]:
    """Return the index of each record's group."""
    names = list(GROUPS)
    regions = record.records["region"]
    found = np.empty(len(regions), np.int64)
    for region in np.unique(regions).tolist():
        found[regions == region] = names.index(group_of(record.label(region)))
    if record.notes is not None:  # a sum of parts belongs to the operation that made them
        for number, operation in enumerate(record.operations):
            found[record.notes["operation"] == number] = names.index(group_of(operation))
    return found


def _draw_lanes(ax: Axes, record: Timeline, scale: float) -> set[str]:
    """Draw a bar a thread and its chunks on it; return the groups that there are."""
    last = record.duration / scale
    for thread in range(record.threads):
        ax.barh(thread, last, _HEIGHT, color=PALETTE["grid"], zorder=1)
    r, groups = record.records, _groups(record)
    many, few = len(r) > _MANY, len(r) < 200
    for number, (_, (color, hatch)) in enumerate(GROUPS.items()):
        own = r[groups == number]
        if len(own) == 0:
            continue
        boxes = PolyCollection(
            list(_corners(own, scale)),
            facecolor=PALETTE[color],
            edgecolor=PALETTE["paper" if few or hatch else color],  # a hatch has this colour too
            linewidth=0.4 if few or not hatch else 0,
            hatch=hatch or None,
            rasterized=many,
            zorder=2,
        )
        ax.add_collection(boxes, autolim=False)
    ax.set_ylim(record.threads - 0.45, -0.55)
    named = range(0, record.threads, -(-record.threads // 20))
    ax.set_yticks(named, [f"thread {i}" for i in named])
    ax.tick_params(axis="y", length=0)
    ax.grid(visible=False)
    return {name for number, name in enumerate(GROUPS) if np.any(groups == number)}


def _corners(records: np.ndarray[Any, Any], scale: float) -> np.ndarray[Any, Any]:
    """Return the four corners of each chunk's box, (n, 4, 2)."""
    left, right = records["start_ns"] / scale, records["end_ns"] / scale
    top, bottom = records["thread"] - _HEIGHT / 2, records["thread"] + _HEIGHT / 2
    x = np.stack([left, right, right, left], axis=1)
    y = np.stack([top, top, bottom, bottom], axis=1)
    return np.stack([x, y], axis=2)


def _draw_phases(ax: Axes, record: Timeline, scale: float) -> None:
    """Mark the phases above the threads, and where each iteration begins."""
    spans = record.spans()
    if not spans:
        return
    ax.set_ylim(record.threads - 0.45, -1.25)
    for span in spans:
        left, width = span.start / scale, (span.end - span.start) / scale
        shade = ("muted", "ink", "plum")[span.phase]
        ax.barh(-0.72, width, 0.12, left=left, color=PALETTE[shade], zorder=2)
        if span.end - span.start > _SHORT * record.duration:
            ax.text(
                left + width / 2,
                -0.84,
                PHASES[span.phase],
                ha="center",
                va="bottom",
                fontsize=8,
                color=PALETTE["muted"],
            )
    begins: dict[int, int] = {}
    for span in spans:
        begins.setdefault(span.iteration, span.start)
    for start in list(begins.values())[1:]:
        ax.axvline(
            start / scale, color=PALETTE["ink"], linewidth=0.8, linestyle=(0, (4, 3)), zorder=3
        )


def _draw_efficiency(ax: Axes, shares: Efficiency) -> None:
    """Draw the three factors and their product as bars from 0 to 1."""
    rows = {
        "load balance": (shares.load_balance, "equal work for all"),
        "communication": (shares.communication, "the busiest thread never waits for another"),
        "serial part": (shares.serial, "somebody is always at work"),
        "parallel efficiency": (
            shares.parallel,
            "their product: the share of all threads' time used",
        ),
    }
    for at, (name, (share, _)) in enumerate(rows.items()):
        product = name == "parallel efficiency"
        ax.barh(at, 1, 0.66, color=PALETTE["panel"], edgecolor=PALETTE["grid"])
        ax.barh(at, share, 0.66, color=PALETTE["ink" if product else "muted"])
        ax.annotate(
            f"{share:.3f}", (1, at), (6, 0), textcoords="offset points", va="center", fontsize=9
        )
    signs = ["", "× ", "× ", "= "]
    ax.set_yticks(
        range(4), [sign + name for sign, name in zip(signs, rows, strict=True)], fontsize=9
    )
    for at, (_, why) in enumerate(rows.values()):
        ax.annotate(
            why, (1, at), (44, 0), textcoords="offset points", va="center", fontsize=8.5,
            color=PALETTE["muted"],
        )  # fmt: skip
    ax.set(xlim=(0, 2.1), ylim=(3.6, -0.6))
    ax.set_xticks([0, 0.5, 1], ["0", "0.5", "1"])
    ax.tick_params(axis="y", length=0)
    ax.grid(visible=False)
    ax.spines["bottom"].set_bounds(0, 1)
    ax.set_xlabel("share", x=0.5 / 2.1)
