"""Figures about sampling: temperature, the nucleus, and what the key/value cache saves."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from gpt2lib.figures._style import PALETTE

Array = np.ndarray[Any, Any]

CUT = {"color": PALETTE["grid"], "hatch": "////", "edgecolor": PALETTE["muted"], "linewidth": 0.0}


def entropy(p: Array) -> float:
    """Return the entropy of a distribution p (V,), in nats."""
    p = np.asarray(p, np.float64)
    p = p[p > 0]
    return float(-(p * np.log(p)).sum()) + 0.0  # never −0


def temperatures(labels: Sequence[str], shares: Mapping[str, Array], top: int = 10) -> Figure:
    """Draw one next-token distribution at several temperatures, side by side.

    Parameters
    ----------
    labels
        (V,) the tokens, printable.
    shares
        Title of a panel to its probabilities (V,). The first decides which tokens are drawn, and
        in which order; the last bar is all the others together.
    top
        How many tokens to draw.
    """
    first = np.asarray(next(iter(shares.values())))
    order = np.argsort(-first, kind="stable")[:top]
    fig, axes = plt.subplots(
        1, len(shares), figsize=(8.4, 0.24 * (top + 1) + 0.9), sharey=True, layout="constrained"
    )
    at = np.arange(top + 1)
    widest = 1.08 * max(max(p[order].max(), 1 - p[order].sum()) for p in shares.values())
    for ax, (title, p) in zip(np.atleast_1d(axes), shares.items(), strict=True):
        ax.barh(at[:-1], p[order], color=PALETTE["blue"])
        ax.barh(at[-1], 1 - p[order].sum(), color=PALETTE["gold"], hatch="//")
        ax.set_title(f"{title}\n{entropy(p):.2f} nats", fontsize=9.5)
        ax.set(xlim=(0, widest), xlabel="probability")
        ax.locator_params(axis="x", nbins=3)
        ax.grid(axis="x")
        ax.grid(visible=False, axis="y")
    left = np.atleast_1d(axes)[0]
    left.set_yticks(at, [*(labels[i] for i in order), "all others"], fontsize=9)
    left.invert_yaxis()
    return fig


def nucleus(contexts: Mapping[str, tuple[Sequence[str], Array]], top_p: float) -> Figure:
    """Draw sorted probabilities with their running sum, and where top-p cuts them off.

    Parameters
    ----------
    contexts
        Title of a panel to (labels, probabilities): the most probable tokens, in order. They may
        be fewer than it takes.
    top_p
        The share to keep.
    """
    fig, axes = plt.subplots(1, len(contexts), figsize=(8.4, 3.3), sharey=True, squeeze=False)
    for ax, (title, (labels, p)) in zip(axes[0], contexts.items(), strict=True):
        total = np.cumsum(p)
        keep = int(np.searchsorted(total, top_p * (1 - 1e-9))) + 1
        at = np.arange(len(p))
        ax.bar(at[:keep], p[:keep], color=PALETTE["blue"], label="kept")
        ax.bar(at[keep:], p[keep:], **CUT, label="cut off")
        ax.plot(at, total, color=PALETTE["orange"], marker="o", markersize=3, label="running sum")
        ax.axhline(top_p, color=PALETTE["muted"], linestyle="--", linewidth=1.2)
        ax.axvline(keep - 0.5, color=PALETTE["ink"], linewidth=1.2)
        ax.set_xticks(at, labels, rotation=90, fontsize=8.5)
        enough = f"{keep} of the tokens reach" if keep <= len(p) else f"more than {len(p)} reach"
        ax.set_title(f"{title}\n{enough} {top_p:g}", fontsize=9.5)
        ax.set(ylim=(0, 1.04), xlim=(-0.7, len(p) - 0.3))
    axes[0][0].set_ylabel("probability")
    axes[0][0].legend(loc="center right")
    return fig


def choice(labels: Sequence[str], before: Array, after: Array, text: str) -> Figure:
    """Draw what temperature and filters make of a distribution, and a text that was drawn so.

    Parameters
    ----------
    labels
        The tokens, the most probable first.
    before, after
        Their probabilities as the model gives them, and as they are drawn from.
    text
        A sampled text, printed below.
    """
    # Drawn anew at every change of a control: fixed places instead of a layout, and thick lines
    # and texts instead of bars and ticks, make it three times as quick.
    fig = plt.figure(figsize=(7.6, 3.4), layout="none")
    ax = fig.add_axes((0.08, 0.40, 0.90, 0.56))
    at = np.arange(len(labels))
    top = max(0.42, 1.05 * float(after.max()), 1.05 * float(before.max()))
    panels = (
        (-0.21, before, "grid", "as the model says", 0.86),
        (0.21, after, "blue", "as it is drawn from", 0.76),
    )
    width = 0.40 * 72 * 6.84 / (len(labels) + 0.2)  # points: two fifths of a token's place
    for offset, p, name, meaning, height in panels:
        ax.vlines(at + offset, 0, p, colors=PALETTE[name], linewidth=width, capstyle="butt")
        ax.plot(0.74, height + 0.02, "s", transform=ax.transAxes, color=PALETTE[name], markersize=8)
        ax.text(0.765, height, meaning, transform=ax.transAxes, fontsize=9)
    for x, label in enumerate(labels):
        ax.text(x, -0.04 * top, label, ha="center", va="top", rotation=60, fontsize=8.5)
    ax.set_xticks([])
    ax.set_yticks(np.arange(0, top, 0.2 if top < 0.6 else 0.5))
    ax.set(ylabel="probability", ylim=(0, top), xlim=(-0.6, len(labels) - 0.4))
    fig.text(0.03, 0.17, textwrap.fill(text, 88), va="top", fontsize=9.5, linespacing=1.5)
    return fig


def recomputed(prompt: int, steps: int) -> Figure:
    """Draw which positions the model computes at each step, without and with a cache.

    Parameters
    ----------
    prompt
        Tokens of the prompt.
    steps
        Tokens that are generated.
    """
    fig, axes = plt.subplots(1, 2, figsize=(8.0, 0.28 * steps + 1.2), sharey=True)
    width = prompt + steps - 1
    for ax, cached in zip(axes, (False, True), strict=True):
        count = 0
        for step in range(steps):
            last = prompt + step
            first = last - 1 if cached and step else 0
            count += last - first
            for at in range(last):
                _square(ax, at, step, computed=at >= first)
        title = "with the cache" if cached else "without a cache"
        ax.set_title(f"{title}: {count} positions computed")
        ax.set(xlim=(-0.6, width - 0.4), ylim=(steps - 0.4, -0.6), xlabel="position")
        ax.set_aspect("auto")
        ax.grid(visible=False)
    axes[0].set_ylabel("token that is made")
    axes[0].set_yticks(range(steps), [str(step + 1) for step in range(steps)])
    return fig


def _square(ax: Axes, x: int, y: int, *, computed: bool) -> None:
    """Draw one position: filled where it is computed, hollow where it is only looked up."""
    look: dict[str, Any] = {"facecolor": PALETTE["blue"], "edgecolor": PALETTE["blue"]}
    if not computed:
        look = {"facecolor": "none", "edgecolor": PALETTE["muted"], "linestyle": ":"}
    ax.add_patch(plt.Rectangle((x - 0.4, y - 0.36), 0.8, 0.72, linewidth=1.0, **look))


def cache_costs(
    counted: Mapping[str, tuple[Array, Array]], measured: Mapping[str, tuple[Array, Array]]
) -> Figure:
    """Draw what one more token costs over the length of what comes before it.

    Parameters
    ----------
    counted
        Label to (lengths, floating-point operations for the next token).
    measured
        Label to (lengths, seconds for the next token).
    """
    fig, axes = plt.subplots(1, 2, figsize=(8.4, 3.2))
    panels = (
        (axes[0], counted, 1e6, "counted (million operations)"),
        (axes[1], measured, 1e-3, "measured (ms)"),
    )
    for ax, curves, unit, title in panels:
        for (label, (lengths, values)), name, style in zip(
            curves.items(), ("orange", "blue"), ("--", "-"), strict=True
        ):
            ax.plot(lengths, values / unit, color=PALETTE[name], linestyle=style, label=label)
        ax.set(title=title, xlabel="tokens before it", ylim=(0, None))
    axes[0].set_ylabel("cost of one token")
    axes[0].legend(loc="upper left")
    return fig
