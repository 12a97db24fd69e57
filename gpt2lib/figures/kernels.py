"""The picture of how an operation, its argument block, a runtime and a kernel fit together.

It is SVG written by hand, not by matplotlib: the file that pages take is then the same to the byte
whatever draws it. ``python -m gpt2lib.figures.kernels > book/_static/kernels.svg`` renews it.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from gpt2lib.figures._style import DARK, PALETTE

WIDTH, HEIGHT = 760, 560
ROWS, CHUNK = 256, 32  # what the picture's example computes: eight chunks

ALT = (
    "Four layers, from top to bottom. The operation layernorm_forward checks its arrays and cuts "
    "256 rows into 8 chunks of 32. It lays out an argument block: the words 256, 32, then the "
    "address and the lengths of each array. Three integers go down to the runtime: the address of "
    "the native entry, the address of the block, and 8. The runtime has two threads: thread 0 "
    "takes the chunks 0, 2, 4, 5 and 7, thread 1 the chunks 1, 3 and 6, and they end at about the "
    "same time. For each chunk the entry reads the block and calls the kernel's body for the rows "
    "of that chunk. The result has its eight pieces in the order 0 to 7, whoever computed them."
)
# Which chunks each thread of the example took, and how long each lasted (the unit is arbitrary).
LANES = (((0, 74), (2, 78), (4, 70), (5, 76), (7, 72)), ((1, 132), (3, 122), (6, 116)))


def picture_svg() -> str:
    """Return the picture as an ``<svg>`` element whose colours follow the page."""
    parts = [
        *_operation(14),
        *_arrow(380, 84, 118, "lays out"),
        *_block(120),
        *_arrow(380, 196, 246, "three integers: entry, block, 8"),
        *_runtime(248),
        *_arrow(380, 378, 412, "for each chunk: entry(chunk, block)"),
        *_body(414),
        *_result(506),
    ]
    variables = ";".join(f"--g2-{name}:{value}" for name, value in DARK.items())
    hosts = ("body[data-jp-theme-light=false]", "body.vscode-dark", "html[theme=dark]")
    dark = ",".join(f"{host} #g2-kernels" for host in hosts)
    return "\n".join(
        [
            f'<svg id="g2-kernels" xmlns="http://www.w3.org/2000/svg" '
            f'viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" role="img" '
            f'aria-label="{escape(ALT)}" '
            f'style="--g2-width:{WIDTH}px;max-width:100%;height:auto">',
            f"<style>{dark}{{{variables}}}</style>",
            *parts,
            "</svg>",
            "",
        ]
    )


# --- The four layers ------------------------------------------------------------------------------


def _operation(top: float) -> list[str]:
    return [
        *_layer(top, "operation", "gpt2lib/kernels/"),
        _box(160, top, 440, 68, "blue"),
        _text(380, top + 28, "layernorm_forward(x, weight, bias)", mono=True, middle=True),
        _text(380, top + 52, "checks its arrays; cuts 256 rows into 8 chunks of 32", middle=True),
    ]


def _block(top: float) -> list[str]:
    words = ["256", "32", "&x", "256", "768", "&weight", "768", "…", "eps"]
    widths = [52, 44, 62, 52, 52, 84, 52, 40, 52]
    left = 380 - sum(widths) / 2
    parts = _layer(top, "argument block", "8-byte words")
    for word, width in zip(words, widths, strict=True):
        parts.append(_box(left, top + 4, width, 34, "gold" if "&" in word else "muted"))
        parts.append(_text(left + width / 2, top + 26, word, mono=True, middle=True))
        left += width
    said = "how much work, how much is a chunk; then each array's address and lengths"
    return [*parts, _text(380, top + 62, said, middle=True, muted=True)]


def _runtime(top: float) -> list[str]:
    parts = [*_layer(top, "runtime", "gpt2lib/runtimes/"), _box(160, top, 500, 124, "teal")]
    for thread, lane in enumerate(LANES):
        y, x = top + 16 + 44 * thread, 246.0
        parts.append(_text(176, y + 21, f"thread {thread}"))
        for chunk, width in lane:
            parts.append(_box(x, y, width - 4, 32, "teal", filled=True))
            parts.append(_text(x + width / 2 - 2, y + 21, str(chunk), middle=True, paper=True))
            x += width
    said = "whoever is free takes the next chunk; the call returns when all are done"
    return [*parts, _text(410, top + 114, said, middle=True, muted=True)]


def _body(top: float) -> list[str]:
    return [
        *_layer(top, "kernel", "compiled, no GIL"),
        _box(160, top, 440, 68, "orange"),
        _text(380, top + 28, "layernorm_forward_rows(lo, hi, x, …)", mono=True, middle=True),
        _text(380, top + 52, "rows 32·chunk to 32·chunk + 32, and no others", middle=True),
    ]


def _result(top: float) -> list[str]:
    parts = _layer(top - 8, "result", "same bits, always")
    for chunk in range(ROWS // CHUNK):
        left = 160 + 55 * chunk
        parts.append(_box(left, top, 51, 30, "orange"))
        parts.append(_text(left + 25.5, top + 20, str(chunk), middle=True))
    parts.append(_text(612, top + 20, "in order of the chunks", muted=True))
    return parts


# --- Pieces ---------------------------------------------------------------------------------------


def _layer(top: float, name: str, where: str) -> list[str]:
    return [_text(14, top + 22, name, bold=True), _text(14, top + 42, where, muted=True)]


def _colour(name: str) -> str:
    return f"var(--g2-{name}, {PALETTE[name]})"


def _box(
    x: float, y: float, width: float, height: float, edge: str, *, filled: bool = False
) -> str:
    fill = _colour(edge if filled else "panel")
    return (
        f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="4" '
        f'style="fill: {fill}; stroke: {_colour(edge)}; stroke-width: 1.5"/>'
    )


def _text(
    x: float,
    y: float,
    words: str,
    *,
    mono: bool = False,
    middle: bool = False,
    bold: bool = False,
    muted: bool = False,
    paper: bool = False,
) -> str:
    family = "var(--g2-mono, monospace)" if mono else "var(--g2-font, sans-serif)"
    colour = _colour("paper" if paper else "muted" if muted else "ink")
    style = f"font: {600 if bold else 400} {13 if muted else 14}px {family}; fill: {colour}"
    anchor = ' text-anchor="middle"' if middle else ""
    return f'<text x="{x:g}" y="{y:g}"{anchor} style="{style}">{escape(words)}</text>'


def _arrow(x: float, start: float, stop: float, words: str) -> Sequence[str]:
    ink = _colour("muted")
    return [
        f'<path d="M {x:g} {start:g} V {stop - 6:g}" style="stroke: {ink}; stroke-width: 1.5"/>',
        f'<path d="M {x - 5:g} {stop - 9:g} h 10 l -5 9 z" style="fill: {ink}"/>',
        _text(x + 14, (start + stop) / 2 + 4, words, muted=True),
    ]


if __name__ == "__main__":
    print(picture_svg(), end="")
