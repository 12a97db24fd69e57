"""Figures about tokens: text in boxes, merges as a stair, and what a vocabulary saves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

from gpt2lib.figures._quick import fixed
from gpt2lib.figures._style import PALETTE, SERIES

Array = np.ndarray[Any, Any]

_COLUMNS = 84  # characters in a line of boxes, with what lies around each piece
_PAD = 0.5  # around a piece, in characters: else two bytes look like one number
_MONO: dict[str, Any] = {"family": "monospace", "fontsize": 9.5}


def boxes(rows: Mapping[str, Sequence[str]], *, wrap: int = _COLUMNS) -> Figure:
    """Draw text cut into pieces, each piece in a box; neighbours differ in colour and edge.

    Parameters
    ----------
    rows
        A label to the pieces of one way to cut the text, printable (``tokenizer.token_label``).
    wrap
        Characters in a line.
    """
    margin = max([len(label) for label in rows] + [0])
    lines = {label: _wrap(pieces, wrap) for label, pieces in rows.items()}
    count = sum(len(block) for block in lines.values())
    size = (7.6, 0.36 * count + 0.25 * len(lines))
    fig, (ax,) = fixed(size, left=0.05, right=0.05, bottom=0.05, top=0.05)
    y = 0.0
    for label, block in lines.items():
        ax.text(-1.0, y, label, ha="right", va="center", color=PALETTE["muted"])
        first = 0
        for line in block:
            _line(ax, line, y, first)
            first += len(line)
            y -= 1.0
        y -= 0.45
    ax.set(xlim=(-margin - 2, wrap + 1), ylim=(y + 0.7, 0.8))
    ax.axis("off")
    return fig


def _wrap(pieces: Sequence[str], wrap: int) -> list[list[str]]:
    """Break pieces into lines of at most ``wrap`` characters."""
    lines: list[list[str]] = [[]]
    width = 0.0
    for piece in pieces:
        if lines[-1] and width + len(piece) + _PAD > wrap:
            lines.append([])
            width = 0.0
        lines[-1].append(piece)
        width += len(piece) + _PAD
    return lines


def _line(ax: Axes, pieces: Sequence[str], y: float, first: int) -> None:
    """Draw one line of boxes, one unit of x for each character."""
    x = 0.0
    for index, piece in enumerate(pieces, start=first):
        color = PALETTE[SERIES[index % len(SERIES)]]
        box = FancyBboxPatch(
            (x + 0.06, y - 0.36),
            len(piece) + _PAD - 0.12,
            0.72,
            boxstyle="round,pad=0,rounding_size=0.25",
            facecolor=color,
            edgecolor=color,
            alpha=0.22,
        )
        ax.add_patch(box)
        ax.text(x + (len(piece) + _PAD) / 2, y, piece, ha="center", va="center", **_MONO)
        x += len(piece) + _PAD


def stair(states: Sequence[Sequence[str]], ranks: Sequence[int | None]) -> Figure:
    """Draw a word on its way from bytes to tokens, one merge a line.

    Parameters
    ----------
    states
        The pieces at each state.
    ranks
        When the merge that comes next was learned (0: first); None at the end.
    """
    fig, ax = plt.subplots(figsize=(6.8, 0.42 * len(states) + 0.3), layout="constrained")
    width = sum(len(piece) + _PAD for piece in states[0])
    for row, (pieces, rank) in enumerate(zip(states, ranks, strict=True)):
        _line(ax, pieces, -row, 0)
        note = "done: no pair left to merge" if rank is None else f"next: merge number {rank}"
        ax.text(width + 1.5, -row, note, va="center", color=PALETTE["muted"], fontsize=9)
    ax.set(xlim=(-0.5, width + 22), ylim=(0.4 - len(states), 0.6))
    ax.axis("off")
    return fig


def pair_counts(pairs: Sequence[str], counts: Sequence[int]) -> Figure:
    """Draw how often the most frequent pairs of neighbours occur.

    Parameters
    ----------
    pairs
        Labels, the most frequent first; that one is merged next and drawn in its own colour.
    counts
        How often each occurs.
    """
    fig, ax = plt.subplots(figsize=(6.4, 0.27 * len(pairs) + 0.7), layout="constrained")
    bars = ax.barh(range(len(pairs)), counts, color=PALETTE["blue"])
    bars[0].set(facecolor=PALETTE["orange"], hatch="//", edgecolor=PALETTE["paper"])
    ax.set_yticks(range(len(pairs)), pairs, family="monospace", fontsize=9)
    ax.invert_yaxis()
    ax.set_xlabel("times that the two stand side by side")
    return fig


def compression(sizes: Sequence[int], curves: Mapping[str, Sequence[float]]) -> Figure:
    """Draw bytes per token over the size of the vocabulary.

    Parameters
    ----------
    sizes
        Vocabulary sizes.
    curves
        A text to its mean bytes per token at each size.
    """
    fig, ax = plt.subplots(figsize=(6.4, 3.3), layout="constrained")
    for (label, curve), name, marker in zip(curves.items(), SERIES, "os^Dv", strict=False):
        ax.plot(sizes, curve, marker=marker, color=PALETTE[name], label=label)
    ax.set(xlabel="tokens in the vocabulary", ylabel="bytes per token", xscale="log")
    ax.set_xticks(sizes, [f"{size:,}" for size in sizes], rotation=30)
    ax.minorticks_off()
    ax.set_ylim(0, None)
    ax.legend()
    return fig


def languages(tokens: Mapping[str, tuple[int, int]]) -> Figure:
    """Draw how many tokens one and the same sentence costs in several languages.

    Parameters
    ----------
    tokens
        Language to (tokens, characters).
    """
    fig, ax = plt.subplots(figsize=(6.4, 0.42 * len(tokens) + 0.9), layout="constrained")
    at = np.arange(len(tokens))
    counts = np.array(list(tokens.values()))
    ax.barh(at - 0.2, counts[:, 0], 0.4, color=PALETTE["blue"], label="tokens")
    ax.barh(
        at + 0.2,
        counts[:, 1],
        0.4,
        color=PALETTE["gold"],
        hatch="..",
        edgecolor=PALETTE["paper"],
        label="characters",
    )
    ax.set_yticks(at, list(tokens))
    ax.invert_yaxis()
    ax.set_xlabel("how many")
    ax.legend()
    return fig
