"""Figures of the attention chapter: queries and keys, the scores in stages, heads and their maps.

Each function takes numbers that a cell has computed and returns a matplotlib figure for
:func:`gpt2lib.figures.show`. None of them computes attention.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from matplotlib import pyplot as plt
from matplotlib.patches import Rectangle

from gpt2lib.figures._quick import edge_labels, fixed, rectangles, tick_marks
from gpt2lib.figures._style import DIVERGING, PALETTE, ROLES, SEQUENTIAL, text_on

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Array = np.ndarray[Any, Any]

LABELS_UP_TO = 80  # tokens; more labels than that cannot be read
TOKENS_UP_TO = 256  # a map of more is a blur, and a heavy page
HEADS_UP_TO = 16  # maps in one row of `cut`

QUERY, KEY, VALUE = (PALETTE[ROLES[role]] for role in ("query", "key", "value"))


class Panel(NamedTuple):
    """One heat map of :func:`stages`: its title, its numbers, and whether they have a sign."""

    title: str
    values: Array
    signed: bool = True


def plane(keys: Mapping[str, Sequence[float]], query: tuple[str, Sequence[float]]) -> Figure:
    """Draw keys and one query as arrows, and each key's shadow on the query's direction.

    Parameters
    ----------
    keys
        Token to its key, two numbers each.
    query
        The token that asks, and its query.
    """
    fig, ax = plt.subplots(figsize=(6.0, 4.4))
    name, q = query[0], np.asarray(query[1], float)
    unit = q / np.linalg.norm(q)
    everything = np.array([*keys.values(), q], float)
    low, high = everything.min(0) - 0.9, everything.max(0) + 0.9
    ax.axline((0, 0), tuple(unit), color=PALETTE["grid"], lw=1.2, ls=(0, (4, 3)))
    for token, key in keys.items():
        k = np.asarray(key, float)
        shadow = unit * (k @ unit)
        if np.linalg.norm(k):
            ax.plot(*zip(k, shadow, strict=True), color=PALETTE["muted"], lw=0.8, ls=":")
            _arrow(ax, k, KEY, 1.8)
        ax.plot(*shadow, "o", color=KEY, ms=4)
        score = f"{q @ k:+.0f}".replace("-", "−") if q @ k else "0"
        _beside(ax, k, f"“{token}”  {score}", PALETTE["ink"])
    _arrow(ax, q, QUERY, 2.6)
    ax.annotate(f"query of “{name}”", tuple(q), (8, -8), textcoords="offset points", color=QUERY)
    ax.set(xlim=(low[0], high[0] + 1.0), ylim=(low[1], high[1]), aspect="equal")
    ax.set(xlabel="first number: girl (+) or boy (−)", ylabel="second number: a name")
    ax.grid(visible=False)
    return fig


def stages(panels: Sequence[Panel], tokens: Sequence[str]) -> Figure:
    """Draw a strip of small matrices with their numbers; what is −∞ or NaN stays empty.

    Parameters
    ----------
    panels
        From left to right; each (T, T), or (T, any) for the values.
    tokens
        T labels for the rows.
    """
    widths = [panel.values.shape[1] for panel in panels]
    fig, axes = plt.subplots(
        1, len(panels), figsize=(9.6, 2.7), gridspec_kw={"width_ratios": widths}, squeeze=False
    )
    for number, (ax, panel) in enumerate(zip(axes[0], panels, strict=True)):
        square = panel.values.shape[1] == len(tokens)
        numbered(ax, panel.values, signed=panel.signed)
        ax.set_title(panel.title, fontsize=9.5)
        _token_ticks(ax, tokens if not number else [], tokens if square else [], size=8)
    axes[0, 0].set_ylabel("query of")
    axes[0, 0].set_xlabel("key of")
    return fig


def numbered(ax: Axes, values: Array, *, signed: bool, digits: int = 2) -> None:
    """Draw a matrix as a heat map with a number in each cell; −∞ and NaN are crossed out."""
    finite = np.isfinite(values)
    top = float(np.abs(values[finite]).max(initial=1e-9))
    low, cmap = (-top, DIVERGING) if signed else (0.0, SEQUENTIAL)
    top = top if signed else max(top, 1.0)
    ax.imshow(np.ma.masked_where(~finite, values), cmap=cmap, vmin=low, vmax=top)
    for (row, column), value in np.ndenumerate(values):
        if finite[row, column]:
            colour = text_on(cmap, (float(value) - low) / (top - low))
            value = float(value) if abs(value) >= 0.5 * 10**-digits else 0.0  # no "−0.00"
            text = f"{value:.{digits}f}".replace("-", "−")
            ax.text(column, row, text, ha="center", va="center", fontsize=7, color=colour)
        else:
            ax.text(column, row, "×", ha="center", va="center", fontsize=8, color=PALETTE["muted"])
    _bare(ax)


def score_terms(q: Array, k: Array, *, query: str, key: str, place: str = "") -> Figure:
    """Draw one score term by term: each channel's product, and their running sum.

    Parameters
    ----------
    q, k
        (hs,) the query and the key.
    query, key
        The two tokens.
    place
        Which layer and head, for the title.
    """
    terms = q * k
    running, channels = np.cumsum(terms), np.arange(len(terms))
    fig, (ax,) = fixed((6.8, 3.4), left=0.65, bottom=0.55, top=0.55)
    for sign, name, label in ((1, "blue", "one channel's product"), (-1, "orange", None)):
        bars = np.where(sign * terms >= 0, terms, 0)
        rectangles(ax, channels - 0.375, 0, 0.75, bars, color=PALETTE[name], label=label)
    ax.step(channels, running, where="mid", color=PALETTE["ink"], lw=1.5, label="sum so far")
    ax.plot(channels[-1], running[-1], "o", color=PALETTE["ink"])
    scaled = running[-1] / np.sqrt(len(terms))
    title = f"“{query}” asks, “{key}” answers  {place}".rstrip()
    title += f"\nq·k = {running[-1]:.2f}, over √hs {scaled:.2f}"
    ax.set_title(title, parse_math=False, fontsize=9.5)
    ax.axhline(0, color=PALETTE["muted"], lw=0.8)
    ax.set(xlabel="channel of the head", ylabel="product (no unit)")
    ax.legend(loc="best")
    return fig


def entropies(sizes: Sequence[int], plain: Array, scaled: Array, keys: int) -> Figure:
    r"""Draw the mean entropy of attention over head sizes, with and without the division.

    Parameters
    ----------
    sizes
        Head sizes hs.
    plain, scaled
        Mean entropies in nats, without and with :math:`1/\sqrt{hs}`.
    keys
        How many keys a query met; ln of it is the largest entropy.
    """
    fig, ax = plt.subplots(figsize=(6.2, 3.4))
    ax.axhline(np.log(keys), color=PALETTE["muted"], ls=(0, (4, 3)), lw=1.2)
    ax.text(sizes[0], np.log(keys) + 0.06, f"ln {keys}: every key alike", color=PALETTE["muted"])
    ax.plot(sizes, scaled, "o-", color=PALETTE["blue"])
    ax.plot(sizes, plain, "s--", color=PALETTE["orange"])
    ax.text(sizes[-1], scaled[-1] - 0.38, "q·k / √hs", ha="right", color=PALETTE["blue"])
    middle = len(sizes) // 2
    ax.text(sizes[middle] * 1.2, plain[middle] + 0.1, "q·k alone", color=PALETTE["orange"])
    ax.set_xscale("log", base=2)
    ax.set_xticks(list(sizes), [str(size) for size in sizes])
    ax.minorticks_off()
    ax.set(xlabel="head size hs (channels)", ylabel="entropy (nats)", ylim=(0, None))
    return fig


def influence(panels: Mapping[str, Array], tokens: Sequence[str]) -> Figure:
    """Draw who is changed by whom: (T, T) changes of the logits, rows read, columns replaced.

    Parameters
    ----------
    panels
        Title to a matrix: entry (i, j) is the change at position i when token j is replaced.
    tokens
        T labels.
    """
    fig, axes = plt.subplots(1, len(panels), figsize=(3.9 * len(panels), 3.6), squeeze=False)
    top = max(float(values.max()) for values in panels.values())
    for ax, (title, values) in zip(axes[0], panels.items(), strict=True):
        image = ax.imshow(values, vmin=0, vmax=top)
        for row, column in zip(*np.nonzero(values == 0), strict=True):
            ax.text(column, row, "0", ha="center", va="center", size=7, color=PALETTE["muted"])
        _token_ticks(ax, tokens, tokens, size=8)
        _bare(ax)
        ax.set_title(title)
        ax.set_xlabel("token replaced")
    axes[0, 0].set_ylabel("logits looked at")
    fig.colorbar(image, ax=axes[0].tolist(), label="largest change of a logit", shrink=0.85)
    return fig


def cheating(masked: Sequence[float], unmasked: Sequence[float], vocab: int, seq: int) -> Figure:
    """Draw the losses of a model that cannot see the future and of one that can.

    Parameters
    ----------
    masked, unmasked
        Losses step by step, nats a token.
    vocab, seq
        V and T of the random text: the floors are ln V, and ln V / T.
    """
    fig, ax = plt.subplots(figsize=(6.6, 3.4))
    # The lower label stands where the curve that comes down to it is still high.
    for floor, words, x, ha in (
        (np.log(vocab), f"ln {vocab}: the best on random tokens", len(masked), "right"),
        (np.log(vocab) / seq, f"ln {vocab} / {seq}: one guess a row", 0, "left"),
    ):
        ax.axhline(floor, color=PALETTE["muted"], ls=(0, (4, 3)), lw=1.2)
        ax.text(x, floor + 0.07, words, ha=ha, color=PALETTE["muted"], size=9)
    ax.plot(masked, color=PALETTE["blue"], label="with the mask")
    ax.plot(unmasked, color=PALETTE["orange"], ls="--", label="without")
    ax.set(xlabel="training step", ylabel="loss (nats/token)", ylim=(0, np.log(vocab) + 0.5))
    ax.legend(loc="center right")
    return fig


def head_views(heads: int, head_size: int, seq: int = 5) -> Figure:
    """Draw how one row of 3C numbers is cut into queries, keys and values of NH heads.

    Parameters
    ----------
    heads, head_size
        NH and hs.
    seq
        How many rows (tokens) to draw.
    """
    fig, ax = plt.subplots(figsize=(8.4, 3.9))
    width = 9.0 / (3 * heads)
    for part, (word, colour) in enumerate((("queries", QUERY), ("keys", KEY), ("values", VALUE))):
        left = part * heads * width
        for head in range(heads):
            _slab(ax, left + head * width, 3.2, width, seq * 0.26, colour, head, heads)
            x, y = part * 3.1 + 0.2 + 0.16 * head, 0.95 - 0.2 * head
            _slab(ax, x, y, width * 1.6, seq * 0.2, colour, head, heads)
        ax.text(left + heads * width / 2, 4.62, f"{word}: C", ha="center", color=colour)
        ax.annotate(
            "",
            (part * 3.1 + 0.9, 2.15),
            (left + heads * width / 2, 3.08),
            arrowprops={"arrowstyle": "-|>", "color": PALETTE["muted"], "lw": 1.2},
        )
        ax.text(part * 3.1 + 0.2 + 0.16 * heads + width * 1.6, 0.75, f"{word}", color=colour)
    ax.text(-0.12, 3.2 + seq * 0.13, "T", ha="right", va="center")
    ax.text(9.1, 3.2 + seq * 0.13, f"(B, T, 3C)\n3C = 3·{heads}·{head_size}", va="center")
    ax.text(9.1, 1.1, f"(B, NH, T, hs)\nNH = {heads}, hs = {head_size}", va="center")
    ax.set(xlim=(-0.4, 11.2), ylim=(0.95 - 0.2 * heads, 4.95))
    ax.axis("off")
    return fig


def map_grid(probabilities: Array) -> Figure:
    """Draw the attention maps of all heads: one row a layer, one column a head.

    Parameters
    ----------
    probabilities
        (L, NH, T, T).
    """
    L, NH = probabilities.shape[:2]
    names = [[f"layer {layer}, head {head}" for head in range(NH)] for layer in range(L)]
    side = min(2.3, 9.4 / NH)
    fig, ax = plt.subplots(figsize=(side * NH, (side + 0.06) * L))
    _mosaic(ax, probabilities, names if side > 1 else None)
    if side <= 1:  # no room for a name over each: number the edges
        ax.set(xlabel=f"head 0 … {NH - 1}", ylabel=f"layer {L - 1} … 0")
    return fig


def _mosaic(ax: Axes, maps: Array, names: Sequence[Sequence[str]] | None) -> None:
    """Draw (R, K, T, T) maps as tiles of one picture, which is far quicker than axes for each.

    The square root of the weights lifts the small ones into sight.
    """
    R, K, T, _ = maps.shape
    _check_length(T)
    above, beside = (max(5, T // 6) if names else 1), max(2, T // 12)
    picture = np.full((R * (T + above), K * (T + beside)), np.nan)
    tiles = picture.reshape(R, T + above, K, T + beside)
    future = np.triu(np.ones((T, T), bool), 1)
    tiles[:, above:, :, :T] = np.where(future, np.nan, np.sqrt(maps)).transpose(0, 2, 1, 3)
    ax.imshow(np.ma.masked_invalid(picture), vmin=0, vmax=1)
    for (row, column), name in np.ndenumerate(np.array(names if names else [[]], dtype=object)):
        x, y = column * (T + beside), row * (T + above) + above - 1.5
        ax.text(x, y, name, fontsize=8, fontweight="bold", va="bottom")
    _bare(ax)
    ax.set_xticks([])
    ax.set_yticks([])


def draw_map(ax: Axes, p: Array) -> None:
    """Draw one (T, T) map; the square root of the weights lifts the small ones into sight."""
    future = np.triu(np.ones(p.shape, bool), 1)
    ax.imshow(np.ma.masked_where(future, np.sqrt(p)), vmin=0, vmax=1)
    _bare(ax)
    ax.set_xticks([])
    ax.set_yticks([])


def head_map(p: Array, tokens: Sequence[str], *, title: str = "") -> Figure:
    """Draw one head's map with its tokens and a scale.

    Parameters
    ----------
    p
        (T, T) attention weights; row i says where position i reads.
    tokens
        T labels.
    title
        Above the map.
    """
    T = len(tokens)
    _check_length(T)
    side = min(6.6, 1.4 + 0.12 * T)  # inches
    fig, (ax, scale) = fixed(
        (side + 2.7, side + 1.6), left=1.2, bottom=1.2, top=0.35, gap=0.35, widths=(side, 0.18)
    )
    draw_map(ax, p)
    if T <= LABELS_UP_TO:
        size = min(9.0, 0.78 * 72 * side / T)
        edge_labels(ax, "x", tokens, size=size, rotation=90)
        edge_labels(ax, "y", tokens, size=size)
    ax.set_title(title)
    ax.set(xlabel="read from (key)", ylabel="reader (query)")
    bar = fig.colorbar(ax.images[0], cax=scale, label="attention weight")
    weights = (0, 0.05, 0.25, 0.5, 1)  # the colours follow the square root
    bar.set_ticks([weight**0.5 for weight in weights], labels=[f"{w:g}" for w in weights])
    return fig


def head_values(values: Array, *, label: str, signed: bool = True, digits: int = 2) -> Figure:
    """Draw one number for each head, as a table of L rows and NH columns.

    Parameters
    ----------
    values
        (L, NH).
    label
        What the numbers are, with their unit.
    signed
        Whether zero is the middle of the colours.
    digits
        Digits after the point.
    """
    L, NH = values.shape
    fig, ax = plt.subplots(figsize=(min(9.0, 2.4 + 0.75 * NH), min(8.0, 1.2 + 0.55 * L)))
    numbered(ax, values, signed=signed, digits=digits)
    ax.set_aspect("auto")
    ax.set_xticks(range(NH), [str(head) for head in range(NH)])
    ax.set_yticks(range(L), [str(layer) for layer in range(L)])
    ax.set(xlabel="head", ylabel="layer")
    fig.colorbar(ax.images[0], ax=ax, label=label)
    return fig


def switched(
    tokens: Sequence[str],
    before: Array,
    after: Array,
    mask: Array,
    changed: Sequence[tuple[int, str, str]],
) -> Figure:
    """Draw what a text's tokens cost with all heads on and with some off.

    Parameters
    ----------
    tokens
        T labels: the token that each position has to predict.
    before, after
        (T,) losses in nats.
    mask
        (L, NH): 1 on, 0 off.
    changed
        (position, first guess before, first guess after), where the first guess changed.
    """
    fig, (left, right) = fixed(
        (9.4, 4.0), left=0.5, bottom=1.05, top=0.35, gap=0.6, widths=(1.35, 6.85)
    )
    _switchboard(left, mask)
    positions = np.arange(len(tokens))
    x, worse = positions - 0.4, np.maximum(after - before, 0)
    rectangles(right, x, 0, 0.8, before, color=PALETTE["blue"], label="all heads on")
    rectangles(right, x, before, 0.8, worse, color=PALETTE["orange"], label="more")
    right.plot(positions, after, "_", color=PALETTE["ink"], ms=5, label="now")
    mean = f"loss {before.mean():.3f} → {after.mean():.3f} nats/token"
    right.set_title(f"{mean}; {len(changed)} of {len(tokens)} first guesses change")
    if len(tokens) <= LABELS_UP_TO:
        tick_marks(right, "x", positions)
        edge_labels(right, "x", tokens, size=6.5, pad=6.5, rotation=90)
    right.margins(x=0.01)
    right.set(ylabel="loss (nats)", xlabel="token to be predicted")
    right.legend(loc="upper right", ncols=3)
    top = float(max(before.max(initial=0), after.max(initial=0), 1.0))
    named: list[int] = []
    for position, old, new in sorted(changed, key=lambda c: -abs(after[c[0]] - before[c[0]])):
        if len(named) == 3 or any(abs(position - other) < 12 for other in named):
            continue  # no room: labels would lie on each other
        named.append(position)
        text, near_end = f"{old} → {new}", position > 0.85 * len(tokens)
        right.text(
            position + 0.5 * near_end,
            max(before[position], after[position]) + 0.03 * top,
            text,
            ha="right" if near_end else "center",
            fontsize=7.5,
            parse_math=False,
        )
    right.set_ylim(0, 1.22 * top)
    return fig


def cut(probabilities: Array, *, title: str) -> Figure:
    """Draw the maps of one layer's heads, up to sixteen of them.

    Parameters
    ----------
    probabilities
        (NH, T, T).
    title
        Above all maps.
    """
    NH, T, _ = probabilities.shape
    shown = min(NH, HEADS_UP_TO)
    columns = math.ceil(math.sqrt(shown))
    rows = -(-shown // columns)
    maps = np.full((rows * columns, T, T), np.nan)
    maps[:shown] = probabilities[:shown]
    names = [f"head {head}" if head < shown else "" for head in range(rows * columns)]
    fig, (ax,) = fixed((7.6, 7.8), left=0.1, bottom=0.1, top=0.35)
    _mosaic(ax, maps.reshape(rows, columns, T, T), np.reshape(names, (rows, columns)).tolist())
    more = "" if shown == NH else f" (the first {shown} of them)"
    ax.set_title(title + more)
    return fig


def samples(maps: Mapping[str, Array]) -> Figure:
    """Draw a few maps in a row, each with its name.

    Parameters
    ----------
    maps
        Name to a (T, T) map.
    """
    fig, ax = plt.subplots(figsize=(9.4, 3.5))
    _mosaic(ax, np.stack(list(maps.values()))[None], [list(maps)])
    return fig


def growth(lengths: Array, curves: Mapping[str, Array], *, ylabel: str) -> Figure:
    """Draw how something grows with the length of the text, both axes logarithmic.

    Parameters
    ----------
    lengths
        T.
    curves
        Words to values, one for each length.
    ylabel
        What is drawn, with its unit.
    """
    fig, ax = plt.subplots(figsize=(6.6, 3.4))
    for (words, values), name, style in zip(
        curves.items(), ("orange", "blue", "teal"), ("--", "-", ":"), strict=False
    ):
        ax.plot(lengths, values, color=PALETTE[name], ls=style)
        ax.annotate(
            words, (lengths[-1], values[-1]), (-4, 5), textcoords="offset points",
            ha="right", color=PALETTE[name],
        )  # fmt: skip
    ax.set_xscale("log", base=2)
    ax.set_yscale("log")
    ax.set_xticks(list(lengths), [f"{length:,}" for length in lengths])
    ax.minorticks_off()
    ax.set(xlabel="tokens T", ylabel=ylabel)
    return fig


def _switchboard(ax: Axes, mask: Array) -> None:
    """Draw which heads are on: filled squares, and empty ones with a cross."""
    L, NH = mask.shape
    for on, colour in ((True, PALETTE["blue"]), (False, "none")):
        layers, heads = np.nonzero((np.asarray(mask) > 0) == on)
        look = {"facecolor": colour, "edgecolor": PALETTE["muted"], "linewidth": 0.8}
        rectangles(ax, heads - 0.4, layers - 0.4, 0.8, 0.8, **look)
    for layer, head in np.argwhere(np.asarray(mask) == 0):
        size = min(10, 80 / max(L, NH))
        ax.text(head, layer, "×", ha="center", va="center", color=PALETTE["orange"], size=size)
    ax.set(xlim=(-0.6, NH - 0.4), ylim=(L - 0.4, -0.6), aspect="equal", title="on")
    ax.set(xlabel="head", ylabel="layer")
    tick_marks(ax, "x", range(NH))
    tick_marks(ax, "y", range(L))
    edge_labels(ax, "x", _numbers(NH), size=9, pad=6.5)
    edge_labels(ax, "y", _numbers(L), size=9, pad=6.5)
    ax.grid(visible=False)


def _numbers(count: int) -> list[str]:
    """Return 0 … count - 1 as labels; where there are many, each second or third has room."""
    step = -(-count // 9)
    return [str(number) if number % step == 0 else "" for number in range(count)]


def _slab(
    ax: Axes, x: float, y: float, w: float, h: float, colour: str, head: int, heads: int
) -> None:
    """Draw one head's slice; a later head is paler, and each carries its number."""
    ax.add_patch(Rectangle((x, y), w, h, facecolor=PALETTE["paper"], lw=0))
    shade = 0.9 - 0.55 * head / max(heads - 1, 1)
    ax.add_patch(
        Rectangle((x, y), w, h, facecolor=colour, alpha=shade, edgecolor=PALETTE["paper"], lw=0.8)
    )
    if w > 0.3:
        ink = PALETTE["paper"] if shade > 0.55 else PALETTE["ink"]
        ax.text(x + w - 0.06, y + h - 0.05, str(head), ha="right", va="top", size=8, color=ink)


def _arrow(ax: Axes, tip: Array, colour: str, width: float) -> None:
    ax.annotate(
        "", tuple(tip), (0, 0), arrowprops={"arrowstyle": "-|>", "color": colour, "lw": width}
    )


def _beside(ax: Axes, tip: Array, text: str, colour: str) -> None:
    """Write at an arrow's tip, on the side away from the origin."""
    right = tip[0] > 0 or tip[1] < 0
    ax.annotate(
        text, tuple(tip), (6 if right else -6, -12 if tip[1] < 0 else 5),
        textcoords="offset points", ha="left" if right else "right", color=colour,
    )  # fmt: skip


def _token_ticks(
    ax: Axes, rows: Sequence[str], columns: Sequence[str], *, size: float = 9.0
) -> None:
    """Label rows and columns with tokens, taken as they are (a dollar sign is no formula)."""
    ax.set_yticks(range(len(rows)), rows, fontsize=size, parse_math=False)
    ax.set_xticks(range(len(columns)), columns, rotation=90, fontsize=size, parse_math=False)


def _bare(ax: Axes) -> None:
    """Remove grid, frame and tick marks: a heat map needs none."""
    ax.grid(visible=False)
    ax.spines[:].set_visible(False)
    ax.tick_params(length=0)


def _check_length(tokens: int) -> None:
    if tokens > TOKENS_UP_TO:
        raise ValueError(
            f"a map of {tokens} tokens cannot be read: take a text of at most {TOKENS_UP_TO}."
        )
