"""Figures about the backward pass: a small graph, the mirror of forward and backward, the V."""

from __future__ import annotations

import ast
import html
import inspect
import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from gpt2lib.figures._style import PALETTE, ROLES

Array = np.ndarray[Any, Any]


def chain(steps: Sequence[tuple[str, float, float]]) -> Figure:
    """Draw a chain of operations: values run to the right, gradients run back.

    Parameters
    ----------
    steps
        (name, value, gradient of the loss with respect to it), in the order of the forward.
    """
    fig, ax = plt.subplots(figsize=(1.7 * len(steps), 2.1), layout="constrained")
    for at, (name, value, gradient) in enumerate(steps):
        ax.text(
            at,
            0,
            name,
            ha="center",
            va="center",
            fontsize=12,
            bbox={"boxstyle": "round,pad=0.45", "fc": PALETTE["panel"], "ec": PALETTE["ink"]},
        )
        ax.text(at, 0.62, f"{value:g}", ha="center", color=PALETTE[ROLES["forward"]], fontsize=11)
        ax.text(
            at, -0.78, f"{gradient:g}", ha="center", color=PALETTE[ROLES["backward"]], fontsize=11
        )
        if at:
            _arrow(ax, at - 1, at, 0.30, ROLES["forward"])
            _arrow(ax, at, at - 1, -0.30, ROLES["backward"])
    ax.text(-0.62, 0.62, "value", ha="right", color=PALETTE[ROLES["forward"]])
    ax.text(-0.62, -0.78, "gradient", ha="right", color=PALETTE[ROLES["backward"]])
    ax.set(xlim=(-1.4, len(steps) - 0.4), ylim=(-1.1, 1.0))
    ax.axis("off")
    return fig


def _arrow(ax: Axes, start: float, stop: float, height: float, role: str) -> None:
    direction = 0.28 if stop > start else -0.28
    ax.annotate(
        "",
        (stop - direction, height),
        (start + direction, height),
        arrowprops={"arrowstyle": "->", "color": PALETTE[role], "linewidth": 1.6},
    )


def v_curve(epsilons: Array, errors: Mapping[str, Array]) -> Figure:
    """Draw the error of central differences over the step, both axes logarithmic.

    Parameters
    ----------
    epsilons
        The steps.
    errors
        Label (the type) to one relative error a step.
    """
    fig, ax = plt.subplots(figsize=(6.6, 3.6), layout="constrained")
    for (label, error), name, marker in zip(
        errors.items(), ("orange", "blue"), ("s", "o"), strict=True
    ):
        ax.loglog(
            epsilons, np.maximum(error, 1e-16), marker=marker, markersize=3, color=PALETTE[name]
        )
        best = int(np.argmin(error))
        ax.annotate(
            f"{label}: best near {epsilons[best]:.0e}",
            (epsilons[best], error[best]),
            xytext=(0, -14),
            textcoords="offset points",
            ha="center",
            va="top",
            color=PALETTE[name],
        )
    ax.axhline(1e-6, color=PALETTE["muted"], linestyle="--")
    ax.text(epsilons.min(), 1.5e-6, "asked for: 1e-6", color=PALETTE["muted"])
    ax.set(xlabel="step ε", ylabel="relative error", ylim=(1e-12, 30))
    return fig


def directions(cosines: Mapping[str, Array]) -> Figure:
    """Draw how well the gradient of each block's input agrees with the last block's.

    Parameters
    ----------
    cosines
        Label to (L + 1,) cosines, from the embedding to the last block's output.
    """
    fig, ax = plt.subplots(figsize=(6.4, 3.0), layout="constrained")
    for (label, cosine), name, marker in zip(
        cosines.items(), ("blue", "orange"), ("o", "s"), strict=True
    ):
        ax.plot(np.arange(len(cosine)), cosine, marker=marker, color=PALETTE[name], label=label)
    ax.axhline(0, color=PALETTE["ink"], linewidth=0.8)
    ax.set(xlabel="after block (0: the embedding)", ylabel="cosine with the last gradient")
    ax.set_xticks(range(max(len(cosine) for cosine in cosines.values())))
    ax.set_ylim(-0.2, 1.08)
    ax.legend(loc="center left")
    return fig


def rows_of_wte(groups: Mapping[str, tuple[float, float]]) -> Figure:
    """Draw the two parts of the embedding's gradient, for rows of each kind.

    Parameters
    ----------
    groups
        Kind of row to the mean norms of its (look-up, head) parts.
    """
    fig, ax = plt.subplots(figsize=(6.6, 2.8), layout="constrained")
    at = np.arange(len(groups))
    lookup, head = (np.array(part) for part in zip(*groups.values(), strict=True))
    ax.bar(at - 0.2, lookup, 0.4, color=PALETTE["blue"], label="from the look-up")
    ax.bar(at + 0.2, head, 0.4, color=PALETTE["orange"], hatch="//", label="from the head")
    ax.set_xticks(at, list(groups))
    ax.set(ylabel="mean norm of a row's gradient", yscale="log", xlabel="the token occurs …")
    ax.legend(loc="upper right")
    ax.margins(y=0.3)
    return fig


class Mirror:
    """A table of a forward and the backward that undoes it, line by line from their source."""

    def __init__(self, rows: list[tuple[str, str, str]]) -> None:
        self.rows = rows

    def _repr_html_(self) -> str:
        body = "".join(
            f"<tr><td><code>{html.escape(f)}</code></td><td><code>{html.escape(b)}</code></td>"
            f"<td>{html.escape(saved)}</td></tr>"
            for f, b, saved in self.rows
        )
        return (
            '<table class="g2-mirror"><thead><tr><th scope="col">forward, read downwards</th>'
            '<th scope="col">backward, read upwards</th><th scope="col">what the forward saved '
            f"for it</th></tr></thead><tbody>{body}</tbody></table>"
        )

    def __repr__(self) -> str:
        return "\n".join(f"{f:28} {b:28} {saved}" for f, b, saved in self.rows)


def mirror(forward: Callable[..., Any], backward: Callable[..., Any]) -> Mirror:
    """Set a forward method's operations beside those of its backward.

    Parameters
    ----------
    forward, backward
        Methods of :class:`gpt2lib.model.GPT2`, such as ``_mlp`` and ``_mlp_backward``.

    Returns
    -------
    Mirror
        Displays as a table. A residual has no line on the right: its gradient goes on unchanged.
    """
    undone: dict[str, list[str]] = {
        name.removesuffix("_backward"): [] for name, _ in _calls(backward)
    }
    for name, saved in _calls(backward):
        undone[name.removesuffix("_backward")].append(saved)
    rows = []
    for name, _ in _calls(forward):
        base = name.removesuffix("_forward")
        if undone.get(base):
            rows.append((name, f"{base}_backward", undone[base].pop()))
        else:
            rows.append((name, "(nothing to do)", ""))
    return Mirror(rows)


def _calls(method: Callable[..., Any]) -> list[tuple[str, str]]:
    """Return (name, saved activations) of each ``ops.x_forward``/``x_backward`` of a method."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(method)))
    found = []
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
            continue
        name = node.func.attr
        if name.endswith(("_forward", "_backward")) and ast.unparse(node.func.value) == "ops":
            names = [ast.unparse(argument) for argument in node.args[1:]]
            saved = [
                n.removeprefix("a.").split("[")[0]
                for n in names
                if n.startswith("a.") or n == "heads"
            ]
            found.append((node.lineno, name, ", ".join(s for s in saved if not s.startswith("d"))))
    return [(name, saved) for _, name, saved in sorted(found)]
