"""Figures about training: from a stream to targets, loss curves, what a run costs, resuming."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

from gpt2lib.figures._style import PALETTE, ROLES, SERIES

Array = np.ndarray[Any, Any]

_UNITS = (  # a time that a reader can feel, in seconds
    ("second", 1.0),
    ("minute", 60.0),
    ("hour", 3600.0),
    ("day", 86400.0),
    ("year", 365.25 * 86400),
)
_BIG = ("", " thousand", " million", " billion", " trillion")  # each a thousand of the one before


def stream(labels: Sequence[str], document: Sequence[int], seq: int) -> Figure:
    """Draw a row of tokens, and the windows that are cut from it: inputs, and targets below them.

    Parameters
    ----------
    labels
        The tokens, printable; what separates documents too.
    document
        For each token the number of its document; −1 for a separator.
    seq
        T, the length of a window. Whole windows are drawn, as many as there are targets for.
    """
    count = (len(labels) - 1) // seq
    fig, ax = plt.subplots(figsize=(8.4, 2.7), layout="constrained")
    gap = 0.45  # windows stand a little apart
    for at, (label, owner) in enumerate(zip(labels, document, strict=True)):
        _cell(ax, at, 0.0, label, owner)
    for at in range(count * seq):
        x = at + gap * (at // seq)
        _cell(ax, x, -1.75, labels[at], document[at])
        _cell(ax, x, -3.15, labels[at + 1], document[at + 1])
        if (at + 1) % seq:  # the token that comes next is this one's target
            _shift(ax, x + 1)
    for window in range(count):
        middle = (window + 0.5) * seq - 0.5 + gap * window
        ax.text(middle, -4.02, f"window {window}", ha="center", color=PALETTE["muted"], fontsize=9)
    for y, name in ((0.0, "stream"), (-1.75, "inputs"), (-3.15, "targets")):
        ax.text(-0.8, y, name, ha="right", va="center", fontsize=10)
    width = max(len(labels) - 1, count * seq + gap * (count - 1))
    ax.set(xlim=(-2.6, width + 0.6), ylim=(-4.3, 0.6))
    ax.axis("off")
    return fig


def _shift(ax: Axes, x: float) -> None:
    """Draw an arrow from the input at x down to the target of the input before it."""
    ax.annotate(
        "",
        (x - 0.8, -2.77),
        (x - 0.2, -2.13),
        arrowprops={
            "arrowstyle": "->",
            "color": PALETTE[ROLES["target"]],
            "linewidth": 1.2,
            "shrinkA": 0,
            "shrinkB": 0,
        },
    )


def _cell(ax: Axes, x: float, y: float, label: str, document: int) -> None:
    """Draw one token; separators are dark, documents take turns with the colours."""
    separator = document < 0
    color = PALETTE["ink"] if separator else PALETTE[SERIES[document % len(SERIES)]]
    box = FancyBboxPatch(
        (x - 0.45, y - 0.38),
        0.9,
        0.76,
        boxstyle="round,pad=0,rounding_size=0.12",
        facecolor=color,
        edgecolor=color,
        alpha=1.0 if separator else 0.2,
    )
    ax.add_patch(box)
    text = PALETTE["paper"] if separator else PALETTE["ink"]
    size = 8.5 if len(label) < 6 else 7.5
    ax.text(x, y, label, ha="center", va="center", family="monospace", fontsize=size, color=text)


def learning(
    losses: Array,
    validation: Mapping[int, float],
    *,
    levels: Mapping[str, float],
    marks: Sequence[int] = (),
) -> Figure:
    """Draw the loss of every step, the validation loss, and levels to hold them against.

    Parameters
    ----------
    losses
        (steps,) training losses in nats a token.
    validation
        Step to validation loss.
    levels
        What a horizontal line means to its height, such as the floor.
    marks
        Steps at which the model is made to speak: pointed out above the curve.
    """
    fig, ax = plt.subplots(figsize=(7.4, 3.8), layout="constrained")
    at = np.arange(1, len(losses) + 1)
    ax.plot(at, losses, color=PALETTE[ROLES["train"]], linewidth=1.0, label="training, each step")
    ax.plot(
        list(validation),
        list(validation.values()),
        color=PALETTE[ROLES["validation"]],
        marker="o",
        label="validation",
    )
    for (name, height), style in zip(levels.items(), ((0, (6, 3)), ":", "-."), strict=False):
        ax.axhline(height, color=PALETTE[ROLES["floor"]], linestyle=style, linewidth=1.3)
        low = height < losses.mean()  # the curve ends there: write where it begins
        ax.text(
            len(losses) * (0.0 if low else 0.99),
            height + 0.06,
            f"{name}: {height:.2f}",
            ha="left" if low else "right",
            va="bottom",
            fontsize=9,
            color=PALETTE["muted"],
        )
    top = max(float(losses.max()), *levels.values())
    if marks:
        high = np.full(len(marks), top + 0.75)
        ax.plot(marks, high, "v", color=PALETTE["ink"], label="made to speak")
    ax.set(xlabel="step", ylabel="loss (nats a token)", ylim=(0, top + 1.0))
    ax.set_xlim(-len(losses) * 0.015, len(losses) * 1.015)
    ax.legend(loc="center right", bbox_to_anchor=(1.0, 0.56))
    return fig


def kinds(
    steps: Sequence[int],
    losses: Mapping[str, Sequence[float]],
    later: Sequence[float] = (),
    name: str = "",
) -> Figure:
    """Draw how the loss of tokens of several kinds falls while a model is trained.

    Parameters
    ----------
    steps
        When it was measured.
    losses
        Kind of token to its mean loss at each of those steps, in nats.
    later
        The losses of another model, in the same order: drawn apart, at the right.
    name
        What that model is called.
    """
    fig, ax = plt.subplots(figsize=(7.0, 3.6), layout="constrained")
    styles = ("-", "--", ":", "-.", "-")
    beyond = steps[-1] * 1.12
    for number, (kind, values) in enumerate(losses.items()):
        look: dict[str, Any] = {"color": PALETTE[SERIES[number]], "marker": "os^Dv"[number]}
        ax.plot(steps, values, linestyle=styles[number], label=kind, **look)
        if len(later):
            aside = (number - (len(losses) - 1) / 2) * 0.025 * steps[-1]
            ax.plot([beyond + aside], [later[number]], markersize=7, clip_on=False, **look)
    if len(later):
        ax.axvline(steps[-1] * 1.06, color=PALETTE["muted"], linestyle=":", linewidth=1.2)
        ax.set_xlim(-0.03 * steps[-1], steps[-1] * 1.2)
        ticks = [tick for tick in ax.get_xticks() if 0 <= tick <= steps[-1]]
        ax.set_xticks([*ticks, beyond], [*(f"{tick:g}" for tick in ticks), name])
    ax.set(xlabel="step", ylabel="mean loss (nats)", ylim=(0, None))
    ax.legend(loc="upper right", bbox_to_anchor=(0.87 if len(later) else 1.0, 1.0))
    return fig


def overfitting(
    steps: Sequence[int], train: Sequence[float], validation: Sequence[float], floor: float
) -> Figure:
    """Draw training and validation loss apart, and the region that only memory can reach.

    Parameters
    ----------
    steps
        When they were measured.
    train, validation
        Losses in nats a token.
    floor
        The lowest loss that honest knowledge can reach.
    """
    fig, ax = plt.subplots(figsize=(7.0, 3.6), layout="constrained")
    for values, role, marker in ((train, "train", "o"), (validation, "validation", "s")):
        label = {"train": "the stories it is trained on", "validation": "stories it never saw"}
        ax.plot(steps, values, marker=marker, color=PALETTE[ROLES[role]], label=label[role])
    best = int(np.argmin(validation))
    ax.annotate(
        f"best here: {validation[best]:.2f}",
        (steps[best], validation[best]),
        xytext=(0, 16),
        textcoords="offset points",
        ha="center",
        arrowprops={"arrowstyle": "-", "color": PALETTE["muted"]},
    )
    ax.axhspan(0, floor, color=PALETTE["gold"], alpha=0.22, linewidth=0)
    ax.axhline(floor, color=PALETTE[ROLES["floor"]], linestyle=(0, (6, 3)))
    ax.text(
        steps[0],
        floor / 2,
        "below the floor: only what is known by heart",
        va="center",
        fontsize=9,
    )
    ax.set(xlabel="step", ylabel="loss (nats a token)", ylim=(0, None))
    ax.legend(loc="center right")  # between the two, which part
    return fig


def duration(seconds: float) -> str:
    """Return a time in words, to two digits: ``"3.4 hours"``, ``"12 thousand years"``."""
    name, size = next((u for u in reversed(_UNITS) if seconds >= u[1]), _UNITS[0])
    number, big = float(f"{seconds / size:.2g}"), 0
    while number >= 1000 and big + 1 < len(_BIG):
        number, big = number / 1000, big + 1
    plural = "" if number == 1 and not big else "s"
    return f"{number:g}{_BIG[big]} {name}{plural}"


def durations(rows: Mapping[str, float]) -> Figure:
    """Draw times that lie far apart as bars, on a logarithmic axis in units of daily life.

    Parameters
    ----------
    rows
        What takes the time, to the time in seconds.
    """
    fig, ax = plt.subplots(figsize=(7.4, 0.46 * len(rows) + 0.9), layout="constrained")
    at = np.arange(len(rows))
    seconds = np.array(list(rows.values()))
    low = min(1.0, float(seconds.min()) / 3)
    ax.barh(at, seconds, color=PALETTE["blue"], height=0.62, left=0)
    for y, value in enumerate(seconds):
        ax.text(value * 1.25, y, duration(value), va="center", fontsize=9)
    ticks = [size for _, size in _UNITS] + [size * 1000 for _, size in _UNITS[-1:]]
    names = [f"1 {name}" for name, _ in _UNITS] + ["1000 years"]
    ax.set(xscale="log", xlim=(low, float(seconds.max()) * 3000))
    ax.set_xticks(ticks, names)
    ax.minorticks_off()
    ax.grid(axis="x")
    ax.grid(visible=False, axis="y")
    ax.set_yticks(at, list(rows))
    ax.invert_yaxis()
    ax.set_xlabel("time (logarithmic)")
    return fig


def resumed(excess: Mapping[str, Sequence[float]], stopped: int) -> Figure:
    """Draw how much worse runs do after a stop than the run that never stopped.

    Parameters
    ----------
    excess
        How a run went on to the difference of the losses, step by step, in nats a token.
    stopped
        The last step before the stop.
    """
    fig, ax = plt.subplots(figsize=(7.0, 3.2), layout="constrained")
    looks: tuple[dict[str, Any], ...] = (
        {"color": PALETTE["blue"], "linewidth": 2.4},
        {"color": PALETTE["orange"], "linewidth": 1.8, "linestyle": "--"},
    )
    for (label, values), look in zip(excess.items(), looks, strict=False):
        ax.plot(stopped + 1 + np.arange(len(values)), values, label=label, **look)
    ax.set(xlabel="step", ylabel="loss above the run that\nnever stopped (nats a token)")
    ax.margins(y=0.12)
    ax.legend(loc="upper left", bbox_to_anchor=(0.45, 1.0))
    return fig
