"""Figures of the block chapter: the map of the forward, LayerNorm, the MLP, the residual stream.

Each drawing takes numbers that a cell has computed and returns a matplotlib figure for
:func:`gpt2lib.figures.show`; :func:`costs` counts what the map shows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from matplotlib import pyplot as plt
from matplotlib.patches import FancyBboxPatch

from gpt2lib.config import GPT2Config
from gpt2lib.figures._style import PALETTE, SEQUENTIAL, SERIES, text_on
from gpt2lib.figures.attention import _bare, _token_ticks

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Array = np.ndarray[Any, Any]

FLOAT = 4  # bytes


class Cost(NamedTuple):
    """What one box of the forward takes: its output's shape, parameters, FLOPs and bytes."""

    name: str
    shape: tuple[int, ...]
    parameters: int
    flops: int
    bytes: int
    per_block: bool


def costs(config: GPT2Config, batch: int, seq: int) -> list[Cost]:
    r"""Count each box of the forward, in the order in which they run.

    FLOPs are those of the matrix products, two for each multiply-add; LayerNorm, GELU and the
    additions count as 0, being limited by bytes. Bytes are inputs and weights read once and the
    output written once, in float32. Attention's scores stay on the way and are not counted.

    Parameters
    ----------
    config
        The model's shape.
    batch, seq
        B and T.

    Returns
    -------
    list of Cost
        The parts of a block stand there once, with ``per_block`` set. ``wte`` counts with the
        embedding; the head, which uses it again, has no parameters of its own.
    """
    B, T, C, V = batch, seq, config.channels, config.vocab_size
    N, vocab_matrix = B * T, V * C

    def norm(name: str, per_block: bool = True) -> Cost:
        return Cost(name, (B, T, C), 2 * C, 0, FLOAT * (2 * N * C + 2 * C), per_block)

    def linear(name: str, inner: int, outer: int) -> Cost:
        weights = inner * outer + outer
        moved = FLOAT * (N * inner + weights + N * outer)
        return Cost(name, (B, T, outer), weights, 2 * N * inner * outer, moved, True)

    def pointwise(name: str, width: int, inputs: int) -> Cost:
        return Cost(name, (B, T, width), 0, 0, FLOAT * (inputs + 1) * N * width, True)

    attention_flops = 4 * N * T * C  # q·k and p·v, the full square as is usual
    return [
        Cost(
            "embedding",
            (B, T, C),
            vocab_matrix + config.context * C,
            0,
            8 * N + FLOAT * 3 * N * C,
            False,
        ),
        norm("ln_1"),
        linear("attn.c_attn", C, 3 * C),
        Cost("attention", (B, T, C), 0, attention_flops, FLOAT * 4 * N * C, True),
        linear("attn.c_proj", C, C),
        pointwise("add", C, 2),
        norm("ln_2"),
        linear("mlp.c_fc", C, 4 * C),
        pointwise("GELU", 4 * C, 1),
        linear("mlp.c_proj", 4 * C, C),
        pointwise("add", C, 2),
        norm("ln_f", per_block=False),
        Cost(
            "head",
            (B, T, V),
            0,
            2 * N * vocab_matrix,
            FLOAT * (N * C + vocab_matrix + N * V),
            False,
        ),
    ]


def totals(rows: Sequence[Cost], layers: int) -> tuple[int, int, int]:
    """Add up parameters, FLOPs and bytes, each part of a block ``layers`` times."""
    times = [layers if row.per_block else 1 for row in rows]
    columns = ("parameters", "flops", "bytes")
    sums = (sum(getattr(r, c) * n for r, n in zip(rows, times, strict=True)) for c in columns)
    parameters, flops, moved = sums
    return parameters, flops, moved


def forward_map(config: GPT2Config, batch: int, seq: int) -> Figure:
    """Draw the forward from ids to logits, with what each box costs beside it.

    Parameters
    ----------
    config
        The model's shape.
    batch, seq
        B and T.
    """
    rows = costs(config, batch, seq)
    fig, ax = plt.subplots(figsize=(9.2, 7.4))
    stream, branch = 1.0, 2.6  # where the residual stream and the branches run
    y = -np.arange(len(rows), dtype=float) * 1.0
    bottom = y[-1] - 0.6
    ax.plot([stream, stream], [1.05, bottom + 0.35], color=PALETTE["blue"], lw=5, zorder=1)
    ax.text(stream, 1.2, f"ids ({batch}, {seq})", ha="center", va="bottom")
    _frame(ax, (0.25, y[10] - 0.5), (4.35, y[1] - y[10] + 1.0), f"block, {config.layers} times")
    for first, last in ((1, 5), (6, 10)):
        _branch(ax, stream, branch, y[first], y[last])
    for place, row in zip(y, rows, strict=True):
        at = stream if row.name in ("embedding", "add", "ln_f", "head") else branch
        _box(ax, at, place, row)
        _row(ax, place, row)
    _header(ax, 0.95)
    parameters, flops, moved = totals(rows, config.layers)
    words = (f"all, ×{config.layers}", f"{parameters:,}", _mega(flops), _mega(moved))
    ax.axhline(bottom - 0.15, 0.45, 1, color=PALETTE["muted"], lw=0.8)
    for x, word in zip((6.55, 8.15, 9.6, 10.9), words, strict=True):
        ax.text(x, bottom - 0.55, word, ha="right", va="center", fontsize=9, fontweight="bold")
    ax.set(xlim=(-0.2, 11.0), ylim=(bottom - 0.9, 1.7))
    ax.axis("off")
    return fig


def stream(
    init: Mapping[str, Sequence[float]], blocks: Sequence[float], writes: Mapping[str, Array]
) -> Figure:
    """Draw the size of the residual stream: fresh models on the left, a trained one on the right.

    Parameters
    ----------
    init
        Words to root mean squares after 0, 1, 2, … blocks.
    blocks
        The trained model's, after 0, 1, … blocks.
    writes
        Words to the root mean squares of what each block adds to the stream.
    """
    fig, (left, right) = plt.subplots(1, 2, figsize=(9.0, 3.5))
    for (words, values), name, style in zip(
        init.items(), ("orange", "blue"), ("--", "-"), strict=True
    ):
        left.plot(values, color=PALETTE[name], ls=style)
        left.annotate(
            words, (len(values) - 1, values[-1]), (0, 6), textcoords="offset points",
            ha="right", color=PALETTE[name], fontsize=9,
        )  # fmt: skip
    left.set(xlabel="blocks passed", ylabel="root mean square (no unit)", title="fresh weights")
    left.set_ylim(0, 1.18 * max(max(values) for values in init.values()))
    right.plot(blocks, "o-", color=PALETTE["ink"], label="stream")
    width = 0.8 / len(writes)
    for number, (words, added) in enumerate(writes.items()):
        at = np.arange(len(added)) + 0.5 + (number - (len(writes) - 1) / 2) * width
        right.bar(at, added, width, color=PALETTE[SERIES[number]], label=words)
    right.set(xlabel="blocks passed", title="trained", ylim=(0, None))
    right.set_xticks(range(len(blocks)))
    right.legend()
    return fig


def layernorm_steps(panels: Mapping[str, Array]) -> Figure:
    """Draw the same few numbers on a number line after each step of LayerNorm.

    Parameters
    ----------
    panels
        Title to the numbers, from top to bottom.
    """
    low = min(float(values.min()) for values in panels.values())
    high = max(float(values.max()) for values in panels.values())
    fig, axes = plt.subplots(len(panels), 1, figsize=(6.6, 0.95 * len(panels) + 0.3), sharex=True)
    for ax, (title, values) in zip(np.atleast_1d(axes), panels.items(), strict=True):
        mean, std = float(values.mean()), float(values.std())
        ax.plot([mean - std, mean + std], [0, 0], color=PALETTE["gold"], lw=9, alpha=0.55)
        ax.plot(values, np.zeros(len(values)), "o", color=PALETTE["blue"], ms=8)
        ax.plot(mean, 0, "|", color=PALETTE["ink"], ms=18)
        ax.text(0, 1.02, title, transform=ax.transAxes, fontsize=9)
        words = f"mean {_signed(mean)}, std {std:.3f}"
        ax.text(1, 1.02, words, transform=ax.transAxes, ha="right", fontsize=9)
        ax.set(yticks=[], ylim=(-1, 1), xlim=(low - 0.4, high + 0.4))
        ax.spines["left"].set_visible(False)
        ax.grid(visible=True, axis="x")
    return fig


def orders() -> Figure:
    """Draw the two places of LayerNorm side by side: on the branch, and on the stream."""
    fig, axes = plt.subplots(1, 2, figsize=(8.4, 2.5))
    for ax, title, on_stream in zip(
        axes, ("GPT-2: before (pre-LN)", "2017: after (post-LN)"), (False, True), strict=True
    ):
        ax.plot([0, 6.4], [0, 0], color=PALETTE["blue"], lw=5, zorder=1)
        ax.plot([0.8, 0.8, 4.3], [0, 1.5, 1.5], color=PALETTE["muted"], lw=1.4, zorder=1)
        ax.annotate(
            "", (4.3, 0.24), (4.3, 1.52),
            arrowprops={"arrowstyle": "-|>", "color": PALETTE["muted"], "lw": 1.4},
        )  # fmt: skip
        if not on_stream:
            _label_box(ax, 1.75, 1.5, "LayerNorm", "muted")
        _label_box(ax, 3.3, 1.5, "sub-layer", "teal")
        _label_box(ax, 4.3, 0, "+", "paper", width=0.5, height=0.5)
        if on_stream:
            _label_box(ax, 5.45, 0, "LayerNorm", "muted")
        ax.text(0, -0.35, "stream", color=PALETTE["blue"], va="top")
        ax.set(title=title, xlim=(-0.1, 6.5), ylim=(-0.9, 2.2))
        ax.axis("off")
    return fig


def survival(measured: Mapping[str, Array], predicted: Mapping[str, Array]) -> Figure:
    """Draw how much of the stack's input is left in the stream after each sub-layer.

    Parameters
    ----------
    measured
        Order to cosines with the input.
    predicted
        The same orders to the formula's values.
    """
    fig, ax = plt.subplots(figsize=(6.4, 3.4))
    for (words, values), name, mark in zip(
        measured.items(), ("blue", "orange"), ("o", "s"), strict=True
    ):
        ax.plot(predicted[words], color=PALETTE[name], lw=1.2, ls=":")
        ax.plot(values, mark, color=PALETTE[name], label=words, ms=4)
    ax.set_yscale("log")
    ax.set(xlabel="sub-layers passed", ylabel="cosine with the input", ylim=(5e-4, 1.4))
    ax.legend(loc="lower left")
    return fig


def bends(x: Array, curves: Mapping[str, Array], gap: Array) -> Figure:
    """Draw activation functions over their input, and the gap between two of them.

    Parameters
    ----------
    x
        Inputs.
    curves
        Name to outputs.
    gap
        tanh form minus exact form.
    """
    fig, (left, right) = plt.subplots(1, 2, figsize=(9.0, 3.5))
    for (name, values), colour, style in zip(
        curves.items(), ("muted", "blue", "orange"), ("--", "-", ":"), strict=True
    ):
        width = 3.0 if style == ":" else 1.8
        left.plot(x, values, color=PALETTE[colour], ls=style, label=name, lw=width)
    left.set(xlabel="input", ylabel="output", title="the bend", ylim=(-0.4, 3.1))
    left.legend(loc="upper left")
    right.axhline(0, color=PALETTE["muted"], lw=0.8)
    right.plot(x, gap * 1e4, color=PALETTE["blue"])
    right.set(xlabel="input", ylabel="tanh form − exact form (10⁻⁴)", title="the gap")
    return fig


def firing(values: Array, tokens: Sequence[str], units: Sequence[str]) -> Figure:
    """Draw how strongly a few hidden units of an MLP fire on each token.

    Parameters
    ----------
    values
        (units, T) activations after GELU.
    tokens
        T labels.
    units
        A name for each row.
    """
    fig, ax = plt.subplots(figsize=(9.4, 1.6 + 0.28 * len(units)))
    ax.imshow(np.maximum(values, 0), aspect="auto", vmin=0)
    _token_ticks(ax, units, tokens, size=7.5)
    _bare(ax)
    ax.set_ylabel("unit")
    fig.colorbar(ax.images[0], ax=ax, label="after GELU (no unit)", pad=0.01)
    return fig


def lens(
    guesses: Sequence[Sequence[str]], p: Array, tokens: Sequence[str], rows: Sequence[str]
) -> Figure:
    """Draw what each layer would predict at each position, if it were the last.

    Parameters
    ----------
    guesses
        For each row the T first guesses.
    p
        (rows, T) probability that the layer gives to the token that really follows.
    tokens
        T labels of the tokens read.
    rows
        Names of the layers, from the first to the last.
    """
    L, T = p.shape
    fig, ax = plt.subplots(figsize=(9.4, 1.3 + 0.42 * L))
    ax.imshow(p[::-1], aspect="auto", vmin=0, vmax=1)  # the last layer on top
    for (row, column), share in np.ndenumerate(p):
        ax.text(
            column, L - 1 - row, guesses[row][column], ha="center", va="center",
            fontsize=7.5, color=text_on(SEQUENTIAL, float(share)), parse_math=False,
        )  # fmt: skip
    _token_ticks(ax, list(rows)[::-1], tokens, size=8.5)
    ax.set_xticks(range(T), tokens, rotation=35, ha="right", fontsize=8.5, parse_math=False)
    _bare(ax)
    ax.set_xlabel("token read")
    fig.colorbar(ax.images[0], ax=ax, label="probability of the truth", pad=0.01)
    return fig


def shares(presets: Sequence[str]) -> Figure:
    """Draw where the parameters of each preset are, as shares of all.

    Parameters
    ----------
    presets
        Names that :meth:`gpt2lib.config.GPT2Config.preset` knows.
    """
    fig, ax = plt.subplots(figsize=(7.4, 0.9 + 0.5 * len(presets)))
    labels = ("embeddings", "attention", "MLP", "LayerNorm")
    for row, name in enumerate(presets):
        config = GPT2Config.preset(name)
        parts, left = _parts(config), 0.0
        for label, colour, count in zip(
            labels, ("plum", "blue", "teal", "orange"), parts, strict=True
        ):
            share = count / config.parameter_count
            ax.barh(row, share, left=left, color=PALETTE[colour], height=0.68,
                    label=label if not row else None)  # fmt: skip
            if share > 0.06:
                ax.text(
                    left + share / 2, row, f"{share:.0%}", ha="center", va="center",
                    color=PALETTE["paper"],
                )  # fmt: skip
            left += share
    ax.set_yticks(range(len(presets)), presets)
    ax.set(xlim=(0, 1), xlabel="share of all parameters", ylim=(len(presets) - 0.5, -0.5))
    ax.xaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    ax.grid(visible=False)
    ax.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=4)
    return fig


def _parts(config: GPT2Config) -> tuple[int, int, int, int]:
    """Return the parameters in embeddings, attention, MLPs and LayerNorms; biases with theirs."""
    C, L = config.channels, config.layers
    embeddings = (config.vocab_size + config.context) * C
    return embeddings, L * (4 * C * C + 4 * C), L * (8 * C * C + 5 * C), (4 * L + 2) * C


_COLOURS = {
    "embedding": "plum",
    "head": "plum",
    "attention": "blue",
    "attn.c_attn": "blue",
    "attn.c_proj": "blue",
    "mlp.c_fc": "teal",
    "mlp.c_proj": "teal",
    "GELU": "teal",
    "add": "paper",
}


def _box(ax: Axes, x: float, y: float, row: Cost) -> None:
    if row.name == "add":
        _label_box(ax, x, y, "+", "paper", width=0.45, height=0.5)
    else:
        colour = _COLOURS.get(row.name, "muted")
        _label_box(ax, x, y, row.name, colour, width=1.75 if x > 2 else 1.5, height=0.62)


def _label_box(
    ax: Axes,
    x: float,
    y: float,
    text: str,
    colour: str,
    *,
    width: float = 1.35,
    height: float = 0.6,
) -> None:
    ax.add_patch(
        FancyBboxPatch(
            (x - width / 2, y - height / 2), width, height,
            boxstyle="round,pad=0,rounding_size=0.12", facecolor=PALETTE[colour],
            edgecolor=PALETTE["blue"] if colour == "paper" else PALETTE["paper"],
            lw=1.6 if colour == "paper" else 0.8, zorder=3,
        )
    )  # fmt: skip
    ink = PALETTE["ink" if colour == "paper" else "paper"]
    ax.text(x, y, text, ha="center", va="center_baseline", color=ink, fontsize=9, zorder=4)


def _frame(ax: Axes, corner: tuple[float, float], size: tuple[float, float], title: str) -> None:
    ax.add_patch(
        FancyBboxPatch(
            corner, *size, boxstyle="round,pad=0,rounding_size=0.2",
            facecolor=PALETTE["panel"], edgecolor=PALETTE["grid"], lw=1.0, zorder=0,
        )
    )  # fmt: skip
    ax.text(
        corner[0] + size[0] - 0.12, corner[1] + 0.16, title, ha="right", fontsize=9,
        color=PALETTE["muted"],
    )  # fmt: skip


def _branch(ax: Axes, stream: float, branch: float, first: float, last: float) -> None:
    """Draw a branch that leaves the stream above its first box and joins it at its last."""
    start = first + 0.55
    ax.plot(
        [stream, branch, branch], [start, start, last], color=PALETTE["muted"], lw=1.4, zorder=1
    )
    ax.annotate(
        "", (stream + 0.24, last), (branch, last),
        arrowprops={"arrowstyle": "-|>", "color": PALETTE["muted"], "lw": 1.4}, zorder=2,
    )  # fmt: skip


def _header(ax: Axes, y: float) -> None:
    names = ("output", "parameters", "MFLOP", "MB moved")
    for x, name in zip((6.55, 8.15, 9.6, 10.9), names, strict=True):
        ax.text(x, y, name, ha="right", va="center", fontsize=9, color=PALETTE["muted"])


def _row(ax: Axes, y: float, row: Cost) -> None:
    shape = f"({', '.join(f'{n}' for n in row.shape)})"
    words = (shape, f"{row.parameters:,}" if row.parameters else "–", _mega(row.flops))
    for x, word in zip((6.55, 8.15, 9.6, 10.9), (*words, _mega(row.bytes)), strict=True):
        ax.text(x, y, word, ha="right", va="center", fontsize=9)
    ax.axhline(y - 0.5, 0.45, 1, color=PALETTE["grid"], lw=0.6, zorder=0)


def _mega(count: int) -> str:
    """Write a count in millions with three digits that matter."""
    if not count:
        return "–"
    value = count / 1e6
    digits = max(0, 2 - math.floor(math.log10(value)))
    return f"{value:,.{min(digits, 3)}f}"


def _signed(value: float) -> str:
    return f"{value:.3f}".replace("-", "−") if abs(value) > 5e-4 else "0.000"
