"""Figures about threads: chunks of a step, how they are dealt out, races, laws of scaling."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from gpt2lib.figures._style import PALETTE, SERIES
from gpt2lib.perf.races import Move
from gpt2lib.perf.regions import Region
from gpt2lib.perf.scaling import amdahl, gustafson
from gpt2lib.perf.timeline import Timeline

__all__ = ["chunks", "crowd", "laws", "lock", "race", "schedules"]

_STYLES = ("-", "--", "-.", ":")


def lock(seconds: Mapping[str, tuple[float, float]]) -> Figure:
    """Draw two equal jobs, one after the other and on two threads, with a lock and without.

    Parameters
    ----------
    seconds
        Kind of work -> seconds of both jobs in turn, and on two threads.
    """
    fig, ax = plt.subplots(figsize=(7.0, 0.95 * len(seconds) + 0.9), layout="constrained")
    top = max(max(pair) for pair in seconds.values()) * 1000
    for y, pair in enumerate(seconds.values()):
        for aside, taken, color, hatch in zip(
            (-0.2, 0.2), pair, ("blue", "orange"), ("", "///"), strict=True
        ):
            ax.barh(
                y + aside, 1000 * taken, height=0.36, color=PALETTE[color], hatch=hatch,
                edgecolor=PALETTE["paper"], linewidth=0.6,
            )  # fmt: skip
            name = "in turn" if aside < 0 else "two threads"
            ax.text(1000 * taken + 0.01 * top, y + aside, f"{name}: {1000 * taken:.3g} ms",
                    va="center", fontsize=9)  # fmt: skip
    ax.set(xlim=(0, top * 1.3), xlabel="time of both jobs (ms)")
    ax.set_yticks(range(len(seconds)), list(seconds))
    ax.invert_yaxis()
    ax.grid(visible=False, axis="y")
    return fig


def chunks(regions: Sequence[Region], marks: Sequence[int] = (2, 112)) -> Figure:
    """Draw into how many chunks each kernel of a step is cut: no more threads than these can help.

    Parameters
    ----------
    regions
        Such as :func:`gpt2lib.perf.regions.of_step` gives.
    marks
        Numbers of threads to point out.
    """
    cut: dict[str, set[int]] = {}
    for region in regions:
        cut.setdefault(region.kernel, set()).add(region.chunks)
    rows = sorted(cut.items(), key=lambda item: (min(item[1]), max(item[1])))
    fig, ax = plt.subplots(figsize=(7.4, 0.27 * len(rows) + 1.1), layout="constrained")
    for y, (_, counts) in enumerate(rows):
        low, high = min(counts), max(counts)
        ax.plot([low, high], [y, y], color=PALETTE["blue"], linewidth=2.2, zorder=2)
        ax.plot(sorted(counts), [y] * len(counts), "o", color=PALETTE["blue"], zorder=3)
    for mark, style in zip(marks, _STYLES[1:], strict=False):
        ax.axvline(mark, color=PALETTE["orange"], linestyle=style, linewidth=1.4)
        ax.text(mark * 1.06, -0.75, f"{mark} threads", fontsize=9, color=PALETTE["muted"])
    ax.set(xscale="log", xlabel="chunks of a region (logarithmic)", ylim=(len(rows) - 0.4, -1.2))
    ticks = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000]
    most = max(max(counts) for counts in cut.values())
    ticks = [tick for tick in ticks if tick <= most * 1.5]
    ax.set_xticks(ticks, [str(tick) for tick in ticks])
    ax.minorticks_off()
    ax.set_xlim(0.85, max(most, *marks) * 2.2)
    ax.set_yticks(range(len(rows)), [name for name, _ in rows], family="monospace", fontsize=8.5)
    return fig


def schedules(timelines: Mapping[str, Timeline]) -> Figure:
    """Draw the same chunks dealt out in several ways, one above the other, on one axis of time.

    Idle time is hatched. The numbers in the bars are the chunks'.

    Parameters
    ----------
    timelines
        How they were dealt out -> what every thread did.
    """
    threads = max(timeline.threads for timeline in timelines.values())
    longest = max(timeline.duration for timeline in timelines.values())
    fig, axes = plt.subplots(
        len(timelines), 1, sharex=True, squeeze=False, layout="constrained",
        figsize=(7.4, len(timelines) * (0.34 * threads + 0.55) + 0.5),
    )  # fmt: skip
    scale, unit = _unit(longest)
    for ax, (name, timeline) in zip(axes[:, 0], timelines.items(), strict=True):
        _lanes(ax, timeline, scale, longest / scale)
        share = timeline.efficiency()
        ax.set_title(
            f"{name}: {timeline.duration / scale:.3g} {unit}, {share.parallel:.0%} of it used",
            fontsize=10,
        )
    axes[-1, 0].set(xlabel=f"time ({unit})", xlim=(0, longest / scale * 1.01))
    return fig


def _unit(nanoseconds: int) -> tuple[float, str]:
    for scale, unit in ((1e9, "s"), (1e6, "ms")):
        if nanoseconds >= scale:
            return scale, unit
    return 1e3, "µs"


def _lanes(ax: Axes, timeline: Timeline, scale: float, most: float) -> None:
    """Draw each thread's chunks from left to right, and hatch what is left of the time."""
    last = timeline.duration / scale
    for thread in range(timeline.threads):
        own = timeline.records[timeline.records["thread"] == thread]
        ax.barh(
            thread, last, height=0.8, color=PALETTE["panel"], hatch="////",
            edgecolor=PALETTE["grid"], linewidth=0,
        )  # fmt: skip
        for at, (_, chunk, _, start, end) in enumerate(own.tolist()):
            ax.barh(
                thread, (end - start) / scale, left=start / scale, height=0.8,
                color=PALETTE["blue" if at % 2 == 0 else "teal"], edgecolor=PALETTE["paper"],
                linewidth=0.8,
            )  # fmt: skip
            if (end - start) / scale > 0.022 * most:
                middle = (start + end) / 2 / scale
                ax.text(middle, thread, str(chunk), ha="center", va="center", fontsize=8,
                        color=PALETTE["paper"])  # fmt: skip
    ax.set(ylim=(timeline.threads - 0.5, -0.5))
    ax.set_yticks(range(timeline.threads), [f"thread {i}" for i in range(timeline.threads)])
    ax.grid(visible=False)


def race(games: Mapping[str, Sequence[Move]]) -> Figure:
    """Draw two threads that add to one number, move by move, beside what lies in memory.

    Parameters
    ----------
    games
        A title -> the moves, such as :func:`gpt2lib.perf.races.play` returns.
    """
    fig, axes = plt.subplots(
        1, len(games), squeeze=False, figsize=(3.9 * len(games), 3.1), layout="constrained"
    )
    for ax, (title, moves) in zip(axes[0], games.items(), strict=True):
        for at, move in enumerate(moves):
            _move(ax, at, move)
            ax.text(1, at, f"{move.memory:g}", ha="center", va="center", fontsize=10)
        ax.axvspan(0.82, 1.18, color=PALETTE["panel"], linewidth=0, zorder=0)
        ax.set(xlim=(-0.5, 2.5), ylim=(len(moves) - 0.4, -0.6), ylabel="time, move by move")
        ax.set_xticks([0, 1, 2], ["thread 0", "memory", "thread 1"])
        ax.xaxis.tick_top()
        ax.set_yticks([])
        ax.grid(visible=False)
        ax.set_title(title, fontsize=10, pad=8)
    return fig


def _move(ax: Axes, at: int, move: Move) -> None:
    """Draw one move in its thread's column: what is done, and what is then in hand."""
    color = PALETTE[("blue", "orange")[move.thread % 2]]
    place = 2 * (move.thread % 2)
    ax.text(
        place, at, f"{move.what}: {move.register:g}", ha="center", va="center", fontsize=9,
        bbox={"boxstyle": "round,pad=0.35", "facecolor": PALETTE["paper"], "edgecolor": color,
              "linewidth": 1.2},
    )  # fmt: skip
    if move.what != "add":  # an arrow to or from memory
        near, far = (place + np.sign(1 - place) * x for x in (0.42, 0.84))
        start, end = (near, far) if move.what == "store" else (far, near)
        ax.annotate(
            "", (end, at), (start, at),
            arrowprops={"arrowstyle": "->", "color": color, "linewidth": 1.3},
        )  # fmt: skip


def laws(
    serial: Sequence[float], points: Mapping[str, tuple[int, float]] | None = None, most: int = 128
) -> Figure:
    """Draw Amdahl's law and Gustafson's, side by side, for several serial parts.

    Parameters
    ----------
    serial
        The serial parts; at most four.
    points
        A name -> threads and measured speedup, drawn beside Amdahl's curves.
    most
        The largest number of threads.
    """
    fig, axes = plt.subplots(1, 2, figsize=(7.6, 3.4), layout="constrained", sharey=True)
    p = np.unique(np.geomspace(1, most, 80).round().astype(int))
    titles = ("Amdahl: the same work", "Gustafson: work that grows")
    for ax, law, title in zip(axes, (amdahl, gustafson), titles, strict=True):
        for f, color, style in zip(serial, SERIES, _STYLES, strict=False):
            gains = [law(int(n), f) for n in p]
            ax.plot(p, gains, color=PALETTE[color], linestyle=style, label=f"f = {f:.3g}")
        ax.set(xlabel="threads p", xlim=(0, most * 1.03), ylim=(0, most * 1.03))
        ax.set_title(title, fontsize=10)
    for (name, (threads, gain)), marker in zip((points or {}).items(), "Ds^v", strict=False):
        face = PALETTE["paper"] if marker in "sv" else PALETTE["ink"]
        axes[0].plot(
            threads, gain, marker, color=PALETTE["ink"], markerfacecolor=face, markersize=6,
            linestyle="", label=name,
        )  # fmt: skip
    axes[0].set_ylabel("speedup S(p)")
    fig.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return fig


def crowd(times: Mapping[str, Mapping[int, float]], cores: int) -> Figure:
    """Draw the time of a step over the number of threads, past the number of cores.

    Parameters
    ----------
    times
        A name -> threads -> seconds.
    cores
        How many cores there are: shaded beyond.
    """
    fig, ax = plt.subplots(figsize=(7.0, 3.0), layout="constrained")
    every = sorted({p for row in times.values() for p in row})
    for (name, row), color, style, marker in zip(
        times.items(), SERIES, _STYLES, "osD^", strict=False
    ):
        ax.plot(
            list(row), [1000 * s for s in row.values()], color=PALETTE[color], linestyle=style,
            marker=marker, label=name,
        )  # fmt: skip
    ax.axvspan(cores * 2**0.25, every[-1] * 2, color=PALETTE["gold"], alpha=0.2, linewidth=0)
    ax.set(xscale="log", xlabel="threads", ylabel="a step (ms)", ylim=(0, None))
    ax.set_xticks(every, [str(p) for p in every])
    ax.minorticks_off()
    ax.set_xlim(every[0] * 0.85, every[-1] * 1.18)
    ax.set_title(f"shaded: more threads than the {cores} cores", fontsize=10)
    if len(times) > 1:
        ax.legend()
    return fig
