"""Figures of measured speed: times, scaling, where the time goes, the roofline, what has changed.

Every function takes the content of a ``results.json``, as ``gpt2lib bench`` writes it, or a
:class:`gpt2lib.perf.compare.Comparison`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullLocator, PercentFormatter

from gpt2lib.figures._labels import place_labels
from gpt2lib.figures._style import PALETTE, ROLES, SERIES
from gpt2lib.perf.reading import (
    Curve,
    Operation,
    curves,
    in_order,
    operations,
    pair_name,
    pick,
    steady,
)

if TYPE_CHECKING:
    from gpt2lib.perf.compare import Comparison, Row

Array = np.ndarray[Any, Any]

_STYLES: tuple[Any, ...] = ("-", "--", "-.", ":", (0, (6, 1.5, 1, 1.5, 1, 1.5)))
_MARKERS = ("o", "s", "^", "D", "v")
_BROAD = 6.0  # above this ratio of the longest to the shortest time the axis is logarithmic
_MANY = 8  # above this ratio of the most to the fewest threads too
_SMALL = 0.01  # operations below this share of the time are summed


# --- Iterations -----------------------------------------------------------------------------------


def iteration_times(results: Mapping[str, Any]) -> Figure:
    """Draw the time of every iteration of every run, iteration 0 with a mark of its own.

    Parameters
    ----------
    results
        The content of a ``results.json``. There is a panel for each runtime; all share their axes,
        which are logarithmic where the times differ more than six-fold.
    """
    runs = [run for run in results["runs"] if run["iterations"]]
    if not runs:
        raise ValueError("these results have no finished run: let gpt2lib bench go on.")
    runtimes = in_order(results, {run["runtime"] for run in runs})
    columns = min(2, len(runtimes))
    rows = -(-len(runtimes) // columns)
    fig, axes = plt.subplots(
        rows, columns, figsize=(7.4, 0.9 + 2.15 * rows), sharex=True, sharey=True,
        squeeze=False, layout="constrained",
    )  # fmt: skip
    counts = sorted({run["threads"] for run in runs})
    for ax, runtime in zip(axes.flat, runtimes, strict=False):
        for number, p in enumerate(counts):
            own = [r for r in runs if (r["runtime"], r["threads"]) == (runtime, p)]
            _draw_runs(ax, own, number)
        ax.set_title(runtime)
    for ax in axes.flat[len(runtimes) :]:
        ax.axis("off")
    _time_axis(axes[0, 0], [s["total_ms"] for run in runs for s in run["iterations"]])
    for ax in axes[:, 0]:
        ax.set_ylabel("time of a step (ms)")
    for ax in axes.flat[max(0, len(runtimes) - columns) : len(runtimes)]:
        ax.set_xlabel("iteration")
        ax.tick_params(labelbottom=True)
    _legend_of_threads(fig, counts)
    return fig


def _draw_runs(ax: Axes, runs: Sequence[Mapping[str, Any]], number: int) -> None:
    """Draw the runs of a pair: a line each, and a hollow mark on its iteration 0."""
    turn = (number + number // 5) % 5  # a sixth number of threads: a used colour, another style
    look: dict[str, Any] = {"color": PALETTE[SERIES[number % 5]], "linestyle": _STYLES[turn]}
    for run in runs:
        times = [step["total_ms"] for step in run["iterations"]]
        ax.plot(times, linewidth=1.1, alpha=0.85, **look)
        ax.plot(
            0, times[0], _MARKERS[turn], color=look["color"],
            markersize=6, markerfacecolor=PALETTE["paper"], markeredgewidth=1.4, zorder=3,
        )  # fmt: skip


def _time_axis(ax: Axes, times: Sequence[float]) -> None:
    """Begin the time at zero, or make its axis logarithmic where the times lie far apart."""
    low, high = min(times), max(times)
    if high < _BROAD * low:
        ax.set_ylim(0, 1.06 * high)
        return
    ax.set_yscale("log")
    ax.set_ylim(0.8 * low, 1.25 * high)
    _log_ticks(ax.yaxis, 0.8 * low, 1.25 * high)


def _legend_of_threads(fig: Figure, counts: Sequence[int]) -> None:
    """Say above the panels which line is how many threads, and what the hollow marks are."""
    lines: list[Any] = [
        plt.Line2D([], [], color=PALETTE[SERIES[i % 5]], linestyle=_STYLES[(i + i // 5) % 5],
                   label=f"{p} thread{'s' if p > 1 else ''}")
        for i, p in enumerate(counts)
    ]  # fmt: skip
    lines.append(
        plt.Line2D([], [], color=PALETTE["ink"], marker="o", linestyle="", markersize=6,
                   markerfacecolor=PALETTE["paper"], label="iteration 0")
    )  # fmt: skip
    fig.legend(handles=lines, loc="outside upper center", ncols=min(5, len(lines)))


def _log_ticks(axis: Any, low: float, high: float) -> None:
    """Label a logarithmic axis with plain numbers: 1, 2, 5, or only 1 on a long one."""
    steps = (1, 2, 5) if high / low < 300 else (1,)
    decades = range(int(np.floor(np.log10(low))), int(np.ceil(np.log10(high))) + 1)
    ticks = [s * 10.0**d for d in decades for s in steps if low <= s * 10.0**d <= high]
    axis.set_major_locator(plt.FixedLocator(ticks))
    axis.set_major_formatter(FuncFormatter(lambda value, _: _plain(value)))
    axis.set_minor_locator(NullLocator())


def _plain(value: float) -> str:
    """Return a number to three digits, with narrow spaces between the thousands."""
    if value >= 1000:
        return f"{value:,.0f}".replace(",", "\N{NARROW NO-BREAK SPACE}")
    return f"{value:.3g}"


# --- Means ----------------------------------------------------------------------------------------


def means(results: Mapping[str, Any]) -> Figure:
    """Draw the mean time of a step for every runtime and number of threads, the fastest first.

    Parameters
    ----------
    results
        The content of a ``results.json``. Iteration 0 is left out. The black line spans the middle
        half of all iterations, the white dots are the medians of the runs.
    """
    times = steady(results)
    order = sorted(times, key=lambda pair: float(np.mean(np.concatenate(times[pair]))))
    fig, ax = plt.subplots(figsize=(7.4, 1.0 + 0.36 * len(order)), layout="constrained")
    longest = 0.0
    for y, pair in enumerate(order):
        longest = max(longest, _draw_mean(ax, y, pair, times[pair]))
    ax.set_yticks(range(len(order)), [pair_name(*pair) for pair in order])
    ax.invert_yaxis()
    ax.grid(axis="x")
    ax.grid(visible=False, axis="y")
    ax.tick_params(axis="y", length=0)
    ax.set_xlim(0, 1.42 * longest)
    ax.set_xlabel("mean time of a step (ms), without iteration 0; line: the middle half")
    return fig


def _draw_mean(ax: Axes, y: int, pair: tuple[str, int], runs: Sequence[Array]) -> float:
    """Draw one bar with its spread and say both; return how far it reaches."""
    every = np.concatenate(runs)
    mean, (low, middle, high) = float(np.mean(every)), np.percentile(every, [25, 50, 75])
    ax.barh(y, mean, height=0.62, color=PALETTE["gold" if pair[1] == 1 else "blue"], alpha=0.8)
    ax.plot([low, high], [y, y], color=PALETTE["ink"], linewidth=2.2)
    ax.plot(
        [np.median(run) for run in runs], np.full(len(runs), y), "o", markersize=4.2,
        color=PALETTE["paper"], markeredgecolor=PALETTE["ink"], markeredgewidth=0.8,
    )  # fmt: skip
    reach = max(mean, float(high), *(float(np.median(run)) for run in runs))
    spread = (high - low) / middle
    ax.annotate(
        f"{_plain(mean)} ms, spread {spread:.1%}", (reach, y), xytext=(7, 0),
        textcoords="offset points", va="center", fontsize=9,
    )  # fmt: skip
    return reach


# --- Scaling --------------------------------------------------------------------------------------


def scaling(results: Mapping[str, Any]) -> Figure:
    """Draw speedup and efficiency over the threads, with Amdahl's law laid through the times.

    Parameters
    ----------
    results
        The content of a ``results.json``. With one number of threads only there is nothing to
        draw, and the figure says so.
    """
    found = [curve for curve in curves(results) if curve.fit is not None]
    if not found:
        return _nothing_to_scale()
    fig, (left, right) = plt.subplots(1, 2, figsize=(7.6, 3.9), layout="constrained")
    most = max(int(curve.threads[-1]) for curve in found)
    p = np.geomspace(1, most, 200)
    ideal = {"color": PALETTE["muted"], "linewidth": 1.2, "linestyle": (0, (1, 2))}
    left.plot(p, p, label="ideal", **ideal)
    right.plot(p, np.ones_like(p), **ideal)
    for number, curve in enumerate(found):
        assert curve.fit is not None
        law = _law(curve, p)
        look: dict[str, Any] = {"color": PALETTE[SERIES[number % 5]]}
        dots = {"marker": _MARKERS[number % 5], "linestyle": "", "markersize": 6, **look}
        said = f"{curve.runtime}: serial part {curve.fit.serial:.1%}"
        for ax, factor in ((left, 1.0), (right, 1 / p)):
            ax.plot(p, law * factor, linestyle=_STYLES[number % 5], linewidth=1.3, **look)
        left.plot(curve.threads, curve.speedup, **dots)
        left.plot([], [], **{**dots, "linestyle": _STYLES[number % 5]}, linewidth=1.3, label=said)
        right.plot(curve.threads, curve.speedup / curve.threads, **dots)
    best = max(float(np.max(curve.speedup / curve.threads)) for curve in found)
    top = 1.1 * most * max(1.0, best)
    left.set(ylabel="speedup S(p)", ylim=(0, top))
    right.set(ylabel="efficiency E(p) = S(p) / p", ylim=(0, 1.08 * max(1.0, best)))
    right.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    for ax in (left, right):
        _thread_axis(ax, sorted({int(n) for curve in found for n in curve.threads}))
    if left.get_xscale() == "log":
        low = 0.8 * min(float(curve.speedup.min()) for curve in found)
        left.set(yscale="log", ylim=(low, top))
        _log_ticks(left.yaxis, low, top)
    fig.legend(loc="outside upper center", ncols=min(3, len(found) + 1))
    return fig


def _law(curve: Curve, p: Array) -> Array:
    """Return the fitted law's speedup over the same reference as the measured one."""
    assert curve.fit is not None
    serial, one = curve.fit.serial, curve.fit.one_thread
    reference = float(curve.milliseconds[0] * curve.speedup[0])
    return reference / (one * (serial + (1 - serial) / p))


def karp_flatt(results: Mapping[str, Any]) -> Figure:
    r"""Draw the serial part that each measured speedup would need, were Amdahl's law all there is.

    Parameters
    ----------
    results
        The content of a ``results.json``. With one number of threads only there is nothing to
        draw, and the figure says so.
    """
    from gpt2lib.perf.scaling import karp_flatt as serial_part

    found = [curve for curve in curves(results) if curve.fit is not None]
    if not found:
        return _nothing_to_scale()
    fig, ax = plt.subplots(figsize=(7.0, 3.4), layout="constrained")
    counts = sorted({int(p) for curve in found for p in curve.threads if p > 1})
    every = []
    for number, curve in enumerate(found):
        points = [
            (p, serial_part(gain, p))
            for p, gain in zip(curve.threads.tolist(), curve.speedup.tolist(), strict=True)
            if p > 1
        ]
        every += [e for _, e in points]
        ax.plot(
            *zip(*points, strict=True), color=PALETTE[SERIES[number % 5]], markersize=6,
            marker=_MARKERS[number % 5], linestyle=_STYLES[number % 5], label=curve.runtime,
        )  # fmt: skip
    ax.axhline(0, color=PALETTE["muted"], linewidth=1)
    room = 0.12 * max(0.02, *(abs(e) for e in every))
    ax.set(ylabel="serial part e (Karp and Flatt)", ylim=(min(0, *every) - room, max(every) + room))
    ax.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=1 if max(every) < 0.2 else 0))
    _thread_axis(ax, counts)
    fig.legend(loc="outside upper center", ncols=min(5, len(found)))
    return fig


def _thread_axis(ax: Axes, counts: Sequence[int]) -> None:
    """Put a tick at every number of threads that was measured, as far as there is room.

    The axis is logarithmic where they reach far.
    """
    low, high = counts[0], counts[-1]
    far = high > _MANY * low

    def along(p: int) -> float:
        return (
            float(np.log(p / low) / np.log(high / low)) if far else (p - low) / max(1, high - low)
        )

    ticks: list[int] = []
    for p in reversed(counts):
        if not ticks or along(ticks[-1]) - along(p) >= 0.07:
            ticks.append(p)
    if far:
        ax.set(xscale="log", xlim=(low / 1.25, high * 1.25))
    else:
        margin = 0.06 * max(1, high - low)
        ax.set_xlim(low - margin, high + margin)
    ax.set_xticks(ticks, [str(p) for p in ticks])
    ax.xaxis.set_minor_locator(NullLocator())
    ax.set_xlabel("threads p" + " (logarithmic)" * far)


def _nothing_to_scale() -> Figure:
    """Return a figure that says why it is empty."""
    fig, ax = plt.subplots(figsize=(7.0, 1.4), layout="constrained")
    ax.axis("off")
    ax.text(
        0.5, 0.5,
        "No runtime was measured on two different numbers of threads,\n"
        "so there is no scaling to draw: gpt2lib bench --threads 1,2",
        ha="center", va="center", color=PALETTE["muted"],
    )  # fmt: skip
    return fig


# --- Operations -----------------------------------------------------------------------------------


def breakdown(
    results: Mapping[str, Any], runtime: str | None = None, threads: int | None = None
) -> Figure:
    """Draw where the time of a step goes, operation by operation.

    Parameters
    ----------
    results
        The content of a ``results.json``.
    runtime, threads
        Which runs; by default the fastest.
    """
    pair = pick(results, runtime, threads)
    every = operations(results, *pair)
    small = [op for op in every if op.share < _SMALL]
    shown = [op for op in every if op.share >= _SMALL]
    if len(small) == 1:
        shown, small = every, []
    count = len(shown) + bool(small)
    fig, ax = plt.subplots(figsize=(7.4, 1.2 + 0.27 * count), layout="constrained")
    bars = [(_counted(op), op.ms, op.share, phase(op.name)) for op in shown]
    if small:
        ms, share = sum(op.ms for op in small), sum(op.share for op in small)
        bars.append((f"{len(small)} others, each below {_SMALL:.0%}", ms, share, "other"))
    for y, (_, ms, share, kind) in enumerate(bars):
        ax.barh(y, ms, height=0.66, color=PALETTE[_PHASES[kind][0]], hatch=_PHASES[kind][2])
        ax.annotate(
            f"{_plain(ms)} ms · {share:.1%}", (ms, y), xytext=(4, 0),
            textcoords="offset points", va="center", fontsize=8.5,
        )  # fmt: skip
    ax.set_yticks(range(count), [name for name, *_ in bars], fontsize=8.5)
    ax.invert_yaxis()
    ax.grid(axis="x")
    ax.grid(visible=False, axis="y")
    ax.tick_params(axis="y", length=0)
    ax.set(xlim=(0, 1.32 * max(ms for _, ms, *_ in bars)), xlabel="time in a step (ms)")
    ax.set_title(f"{pair_name(*pair)}: {_plain(sum(op.ms for op in every))} ms a step, op by op")
    _legend_of_phases(ax, {kind for *_, kind in bars}, "lower right")
    return fig


def _counted(op: Operation) -> str:
    return f"{op.label}  ×{op.calls}" if op.calls else op.label


# Phase -> colour, marker, hatch: told apart in grey too.
_PHASES: dict[str, tuple[str, str, str]] = {
    "forward": (ROLES["forward"], "o", ""),
    "backward": (ROLES["backward"], "s", "///"),
    "update": ("teal", "^", "xxx"),
    "other": ("muted", "D", ""),
}


def phase(operation: str) -> str:
    """Return which part of a step an operation belongs to.

    >>> [phase(name) for name in ("linear_forward", "head_backward", "adamw_update", "zero")]
    ['forward', 'backward', 'update', 'other']
    """
    for kind in ("forward", "backward", "update"):
        if operation.endswith(kind) or f"_{kind}_" in operation:
            return kind
    return "other"


def _legend_of_phases(ax: Axes, kinds: Iterable[str], place: Any) -> None:
    handles = [
        plt.Rectangle(
            (0, 0),
            1,
            1,
            facecolor=PALETTE[color],
            edgecolor=PALETTE["paper"],
            linewidth=0,
            hatch=hatch,
            label=kind,
        )
        for kind, (color, _, hatch) in _PHASES.items()
        if kind in set(kinds)
    ]
    ax.legend(handles=handles, loc=place)


# --- The roofline ---------------------------------------------------------------------------------


def roofline(
    results: Mapping[str, Any], runtime: str | None = None, threads: int | None = None
) -> Figure:
    r"""Draw every operation below what the machine can do at best.

    .. math:: P(I) = \min(P_\text{sgemm},\; I \cdot \beta)

    with I an operation's arithmetic intensity in FLOP per byte and :math:`\beta` the bandwidth of
    the memory. All three ceilings were measured with the same number of threads.

    Parameters
    ----------
    results
        The content of a ``results.json``.
    runtime, threads
        Which runs; by default the fastest. Operations without arithmetic have no place on a
        roofline and are named below it.

    Notes
    -----
    Williams, Waterman and Patterson (2009). The bytes are those that have to move at least. What
    is found in a cache may lie above the memory's roof.
    """
    pair = pick(results, runtime, threads)
    every = operations(results, *pair)
    shown = [op for op in every if op.flops > 0 and op.bytes > 0 and op.ms > 0]
    if not shown:
        raise ValueError(f"no operation of {pair_name(*pair)} has FLOPs to draw a roofline with.")
    ceilings = [c for c in results["ceilings"] if c["threads"] == pair[1]]
    x = np.array([op.flops / op.bytes for op in shown])
    y = np.array([op.flops / op.ms / 1e6 for op in shown])
    fig, ax = plt.subplots(figsize=(7.6, 5.4), layout="constrained")
    roofs = _roofs(ax, ceilings[-1] if ceilings else None, x, y)
    for px, py, op in zip(x, y, shown, strict=True):
        color, marker, _ = _PHASES[phase(op.name)]
        ax.plot(px, py, marker, color=PALETTE[color], markersize=3.5 + 9 * op.share**0.5, alpha=0.9)
    ax.set_xlabel("arithmetic intensity (FLOP per byte)" + _left_out(every, shown))
    ax.set(ylabel="GFLOP/s", title=f"{pair_name(*pair)}; the area of a mark is its share of time")
    ax.grid(visible=True, axis="both")
    for kind in [kind for kind in _PHASES if kind in {phase(op.name) for op in shown}]:
        color, marker, _ = _PHASES[kind]
        ax.plot([], [], marker, color=PALETTE[color], markersize=6, label=kind)
    legend = ax.legend(loc="upper left", ncols=1)
    fig.draw_without_rendering()
    place_labels(
        ax, list(zip(x, y, strict=True)), [_short(op) for op in shown],
        colors=[PALETTE[_PHASES[phase(op.name)][0]] for op in shown],
        keep_off=[legend.get_window_extent()], lines=roofs,
    )  # fmt: skip
    return fig


def _roofs(ax: Axes, ceiling: Mapping[str, Any] | None, x: Array, y: Array) -> list[Array]:
    """Set the axes and draw the ceilings; return their lines."""
    left, right = float(x.min()) / 3, float(x.max()) * 40
    low, high = float(y.min()) / 2.5, float(y.max()) * 4
    lines = []
    if ceiling is not None:
        top = float(ceiling["sgemm_gflops"])
        high = max(high, top * 3.5)
        flat = top / float(ceiling["read_gbs"])
        lines.append(np.array([[flat, top], [right, top]]))
        ax.plot(*lines[-1].T, color=PALETTE["ink"], label=f"sgemm: {_plain(top)} GFLOP/s")
        for kind, style in (("read", (0, (6, 2))), ("copy", (0, (1.5, 1.5)))):
            beta = float(ceiling[f"{kind}_gbs"])
            lines.append(np.array([[left, left * beta], [top / beta, top]]))
            ax.plot(
                *lines[-1].T, color=PALETTE["ink"], linewidth=1.4, linestyle=style,
                label=f"memory, {kind}: {_plain(beta)} GB/s",
            )  # fmt: skip
            low = min(low, left * beta)
    else:
        ax.plot([], [], " ", label="ceilings: not measured")
    ax.set(xscale="log", yscale="log", xlim=(left, right), ylim=(low, high))
    _log_ticks(ax.xaxis, left, right)
    _log_ticks(ax.yaxis, low, high)
    return lines


def _short(op: Operation) -> str:
    """Return a short label: only the backward is said, colour and mark say the rest."""
    name = op.name
    for kind in ("_forward", "_backward", "_update"):
        name = name.removesuffix(kind)
    back = ", back" if phase(op.name) == "backward" else ""
    return f"{name} {op.shape}".strip().replace(" -> ", "→") + back


def _left_out(every: Sequence[Operation], shown: Sequence[Operation]) -> str:
    """Name the operations that are not on the roofline."""
    names = dict.fromkeys(op.name for op in every if op not in shown and op.calls)
    return f"\nwithout arithmetic, not shown: {', '.join(names)}" if names else ""


# --- What has changed -----------------------------------------------------------------------------

_VERDICTS = {"slower": ("orange", ">"), "faster": ("teal", "<"), "same": ("muted", "o")}


def change(comparison: Comparison, most: int = 48) -> Figure:
    """Draw how many times as long everything takes as before, with its interval.

    Parameters
    ----------
    comparison
        What :func:`gpt2lib.perf.compare.compare` found.
    most
        How many rows have room. Totals come first, then what has changed, then the operations of
        the first pair, which stands for all of them. Totals are bold, the rows below are theirs.
    """
    rows = _chosen(comparison.rows, most)
    fig, ax = plt.subplots(figsize=(7.6, 1.5 + 0.235 * len(rows)), layout="constrained")
    edge = 1 + comparison.threshold
    ax.axvspan(1 / edge, edge, color=PALETTE["grid"], alpha=0.6, linewidth=0)
    ax.axvline(1, color=PALETTE["muted"], linewidth=1)
    for y, row in enumerate(rows):
        _draw_change(ax, y, row)
    labels = ax.set_yticks(range(len(rows)), [row.label for row in rows], fontsize=8)
    for tick, row in zip(labels, rows, strict=True):
        if row.operation == "total":
            tick.label1.set_fontweight("bold")
    ax.set_ylim(len(rows) - 0.4, -0.6)
    low = min(1 / edge, *(row.low for row in rows))
    high = max(edge, *(row.high for row in rows))
    verdicts = {row.verdict for row in rows}
    room = 1.02, (high / low) ** 0.28  # for words, where there are any
    left, right = room["faster" in verdicts], room["slower" in verdicts]
    ax.set(xscale="log", xlim=(low / left, high * right))
    ticks = _ratio_ticks(low, high)
    ax.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    ax.xaxis.set_minor_locator(NullLocator())
    ax.grid(axis="x")
    ax.grid(visible=False, axis="y")
    hidden = len(comparison.rows) - len(rows)
    ax.set_xlabel(
        f"time of {comparison.after} over time of {comparison.before}; grey: a change below "
        f"{comparison.threshold:.0%}\n(line: interval, {comparison.confidence:.4g} for all rows "
        "together" + (f"; {hidden} more rows are the same)" if hidden else ")"),
        fontsize=9,
    )
    return fig


def _draw_change(ax: Axes, y: int, row: Row) -> None:
    """Draw a ratio and its interval, and say so where it is a change."""
    color, marker = _VERDICTS[row.verdict]
    ax.plot([row.low, row.high], [y, y], color=PALETTE[color], linewidth=1.6)
    ax.plot(row.ratio, y, marker, color=PALETTE[color], markersize=7)
    if row.verdict != "same":
        after = row.verdict == "slower"
        ax.annotate(
            f"{row.verdict}, × {row.ratio:.2f}",
            (row.high if after else row.low, y),
            xytext=(6 if after else -6, 0),
            textcoords="offset points",
            ha="left" if after else "right",
            va="center",
            fontsize=8.5,
        )


def _chosen(rows: Sequence[Row], most: int) -> list[Row]:
    """Return the totals, what has changed, and the first pair's operations, in their own order."""
    first = rows[0].runtime, rows[0].threads
    rank = sorted(
        (
            i
            for i, row in enumerate(rows)
            if row.operation == "total"
            or row.verdict != "same"
            or (row.runtime, row.threads) == first
        ),
        key=lambda i: (rows[i].operation != "total", rows[i].verdict == "same", i),
    )
    return [rows[i] for i in sorted(rank[:most])]


def _ratio_ticks(low: float, high: float) -> list[float]:
    """Return ratios to label, close together where the axis is short."""
    if high / low > 20:
        every = [10.0**d for d in range(-6, 7)]
    elif high / low > 3:
        every = [0.1, 0.2, 0.5, 1, 2, 5, 10, 20]
    elif high / low > 1.5:
        every = [0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1, 1.2, 1.4, 1.6, 2, 2.5, 3]
    else:
        every = [0.7, 0.8, 0.85, 0.9, 0.95, 1, 1.05, 1.1, 1.15, 1.2, 1.3, 1.4, 1.5]
    return [tick for tick in every if low / 1.02 <= tick <= high * 1.02] or [1]
