"""Figures about surprise: what a probability costs, and which way the gradient pushes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from gpt2lib.figures._quick import fixed
from gpt2lib.figures._style import PALETTE, text_on

Array = np.ndarray[Any, Any]

_TOKENS = 46  # bars in a row, so that the tokens below them can be read


def surprise(marks: Sequence[tuple[float, str]]) -> Figure:
    """Draw the surprise of an event, -ln p in nats, over its probability p.

    Parameters
    ----------
    marks
        (probability, label) pairs to point out on the curve.
    """
    fig, ax = plt.subplots(figsize=(6.4, 3.4))
    p = np.geomspace(1e-5, 1, 400)
    ax.plot(p, -np.log(p), color=PALETTE["blue"], linewidth=2)
    for probability, label in marks:
        nats = -np.log(probability)
        ax.plot(probability, nats, "o", color=PALETTE["orange"])
        ax.annotate(
            f"{label}: {nats:.2f} nats",
            (probability, nats),
            # at the right end the curve is low: write to its left, below what comes before
            xytext=(8, 4) if probability < 0.8 else (-8, -3),
            ha="left" if probability < 0.8 else "right",
            va="bottom" if probability < 0.8 else "center",
            textcoords="offset points",
            fontsize=9,
        )
    ax.set_xscale("log")
    ax.set(xlabel="probability the model gave it", ylabel="surprise (nats)", xlim=(8e-6, 6))
    ax.set_ylim(-0.4, 12.6)
    return fig


def push(labels: Sequence[str], logits: Array, target: int) -> Figure:
    """Draw logits, the probabilities they make, and the gradient p - y, token by token.

    Parameters
    ----------
    labels
        K names of tokens.
    logits
        (K,) scores.
    target
        Index of the right token; its bars are drawn in the target's colour and hatched.
    """
    p = np.exp(logits - logits.max())
    p /= p.sum()
    gradient = p - (np.arange(len(p)) == target)
    left = 0.16 + 0.075 * max(map(len, labels))  # inches
    width = (8.4 - left - 0.5) / 3
    fig, axes = fixed((8.4, 3.1), left=left, bottom=0.5, top=0.44, gap=0.2, widths=(width,) * 3)
    panels = (
        (logits, "logits z", "score"),
        (p, f"probabilities p\nloss {-np.log(p[target]):.2f} nats", "probability"),
        (gradient, "gradient p − y\nadds up to 0", "nats per unit of logit"),
    )
    at = np.arange(len(labels))
    for ax, (values, title, unit) in zip(axes, panels, strict=True):
        bars = ax.barh(at, values, color=PALETTE["blue"])
        bars[target].set(facecolor=PALETTE["teal"], hatch="///", edgecolor=PALETTE["paper"])
        ax.axvline(0, color=PALETTE["ink"], linewidth=0.8)
        ax.set(title=title, xlabel=unit)
        ax.margins(x=0.15)
        ax.set_yticks(at, labels if ax is axes[0] else [])
        ax.invert_yaxis()
    return fig


def token_losses(labels: Sequence[str], losses: Array, floor: float | None = None) -> Figure:
    """Draw the loss of every token of a text, as bars above the tokens.

    Parameters
    ----------
    labels
        The tokens, printable.
    losses
        Their losses in nats.
    floor
        The best mean that any model can reach, if it is known: a dashed line.
    """
    losses = np.asarray(losses)
    rows = -(-len(labels) // _TOKENS)
    width = -(-len(labels) // rows)  # rows of equal length
    fig, axes = plt.subplots(
        rows, 1, figsize=(8.2, 2.3 * rows + 0.2), sharey=True, squeeze=False, layout="constrained"
    )
    for row, ax in enumerate(axes[:, 0]):
        part = slice(row * width, (row + 1) * width)
        at = np.arange(len(labels[part]))
        ax.bar(at, losses[part], color=PALETTE["blue"], width=0.8)
        ax.axhline(float(losses.mean()), color=PALETTE["orange"], label="mean of this text")
        if floor is not None:
            style = {"color": PALETTE["muted"], "linestyle": "--"}
            ax.axhline(floor, label="floor: best possible mean", **style)
        ax.set_xticks(at, labels[part], rotation=90, fontsize=9)
        ax.set(ylabel="loss (nats)", xlim=(-0.8, width - 0.2))
    axes[0, 0].legend(loc="upper right")
    return fig


def jacobian(p: Array, labels: Sequence[str]) -> Figure:
    """Draw the softmax's Jacobian, diag(p) - p pᵀ, as a heat map with its numbers.

    Parameters
    ----------
    p
        (K,) probabilities.
    labels
        K names.
    """
    matrix = np.diag(p) - np.outer(p, p)
    top = float(np.abs(matrix).max())
    fig, ax = plt.subplots(figsize=(5.6, 4.4), layout="constrained")
    image = ax.imshow(matrix, cmap="g2-diverging", vmin=-top, vmax=top)
    for (row, column), value in np.ndenumerate(matrix):
        ax.text(
            column,
            row,
            f"{value:+.2f}".replace("-", "−") if abs(value) >= 0.005 else "0",
            ha="center",
            va="center",
            fontsize=9,
            color=text_on("g2-diverging", 0.5 + 0.5 * value / top),
        )
    ax.set_xticks(range(len(p)), labels)
    ax.set_yticks(range(len(p)), labels)
    ax.set(xlabel="… when this logit rises", ylabel="how this probability changes")
    ax.grid(False)
    fig.colorbar(image, ax=ax, label="∂p / ∂z (per unit of logit)", shrink=0.85)
    return fig


def reliability(claimed: Array, observed: Array, counts: Array) -> Figure:
    """Draw how often the model is right against how sure it is.

    Parameters
    ----------
    claimed, observed
        Mean probability of the model's first choice in each bin, and how often it was right.
    counts
        Predictions in each bin: the size of its dot.
    """
    fig, ax = plt.subplots(figsize=(4.6, 4.2), layout="constrained")
    ax.plot([0, 1], [0, 1], color=PALETTE["muted"], linestyle="--", label="perfectly calibrated")
    size = 20 + 280 * counts / counts.max()
    ax.scatter(claimed, observed, s=size, color=PALETTE["blue"], alpha=0.85, label="the model")
    ax.set(
        xlabel="probability of the first choice",
        ylabel="share of first choices that were right",
        xlim=(0, 1.04),
        ylim=(0, 1.04),
        aspect="equal",
    )
    ax.legend(loc="upper left")
    return fig


def overflow(limit: Array, naive: Array, stable: Array) -> Figure:
    """Draw a naive and a stable log-sum-exp over the size of the logits.

    Parameters
    ----------
    limit
        (K,) the logits' size.
    naive, stable
        (K,) what each formula gives; infinities leave a gap.
    """
    fig, ax = plt.subplots(figsize=(6.0, 3.0), layout="constrained")
    ax.plot(limit, stable, color=PALETTE["blue"], linewidth=5, alpha=0.45, label="with max off")
    ax.plot(limit, naive, color=PALETTE["orange"], linewidth=1.8, label="as the formula says")
    last = limit[np.isfinite(naive)][-1]
    ax.axvline(last, color=PALETTE["muted"], linestyle=":")
    ax.annotate(
        f"float32 overflows\nafter {last:.0f}",
        (last, stable[0]),
        xytext=(6, 6),
        textcoords="offset points",
        fontsize=9,
    )
    ax.set(xlabel="largest logit", ylabel="log-sum-exp")
    ax.legend(loc="upper left")
    return fig
