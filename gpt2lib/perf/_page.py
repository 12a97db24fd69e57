"""Pages that are one file: no script, no request, light and dark as the reader's system is."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from gpt2lib._files import atomic_write

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_RULES = """
:root { color-scheme: light dark }
* { box-sizing: border-box }
body { margin: 0; background: var(--g2-paper); color: var(--g2-ink);
  font: 16px/1.55 var(--g2-font) }
main { max-width: 72rem; margin: 0 auto; padding: 1.5rem 1rem 4rem }
h1 { font-size: 1.6rem; line-height: 1.25; margin: .5rem 0 }
h2 { font-size: 1.2rem; margin: 2.6rem 0 .6rem; padding-top: .8rem;
  border-top: 1px solid var(--g2-grid) }
p, figcaption, li { max-width: 46rem; overflow-wrap: anywhere }
.lead, figcaption, .note { color: var(--g2-muted) }
code, td.text { overflow-wrap: anywhere }
code { font-size: .92em }
.wide { overflow-x: auto; margin: .8rem 0; border: 1px solid var(--g2-grid); border-radius: 6px }
.wide:focus-visible { outline: 3px solid var(--g2-blue) }
table { border-collapse: collapse; font-size: .875rem; font-variant-numeric: tabular-nums;
  min-width: 100% }
th, td { padding: .35rem .6rem; text-align: right; white-space: nowrap;
  border-bottom: 1px solid var(--g2-grid) }
tr:last-child > * { border-bottom: 0 }
thead th { background: var(--g2-panel); vertical-align: bottom }
th.text, td.text { text-align: left }
td.text ~ td.text { white-space: normal; min-width: 12rem }
.facts th { width: 1%; font-weight: 400; color: var(--g2-muted) }
.facts td { text-align: left; white-space: normal; overflow-wrap: anywhere; min-width: 10rem }
figure { margin: 1rem 0 }
figcaption { margin-top: .6rem }
.canvas { overflow-x: auto; background: var(--g2-paper) }
.canvas svg { display: block; min-width: 34rem }
.warning { border-left: 4px solid var(--g2-orange); background: var(--g2-panel);
  padding: .5rem .9rem; margin: .8rem 0 }
.slower { color: var(--g2-orange); font-weight: 600 }
.faster { color: var(--g2-teal); font-weight: 600 }
"""


class Plate(NamedTuple):
    """A figure for a page.

    Attributes
    ----------
    name
        Of its file and its ids.
    svg
        Inline SVG whose colours are CSS variables.
    caption
        What it shows, with numbers; plain text.
    """

    name: str
    svg: str
    caption: str

    def html(self) -> str:
        """Return it with its caption."""
        return (
            f'<figure id="{self.name}"><div class="canvas" tabindex="0" role="region" '
            f'aria-label="figure: {escape(self.name.replace("-", " "))}">{self.svg}</div>'
            f"<figcaption>{escape(self.caption)}</figcaption></figure>"
        )

    def write(self, folder: Path) -> Path:
        """Write it as a file of its own, for viewers that know no CSS variables."""
        svg = re.sub(r"var\(--[\w-]+,\s*([^()]*)\)", r"\1", self.svg)
        path = folder / f"{self.name}.svg"
        write(path, '<?xml version="1.0" encoding="UTF-8"?>\n' + svg + "\n")
        return path


def plate(name: str, fig: Figure, caption: str) -> Plate:
    """Render a figure and close it; its caption is its accessible name too."""
    from matplotlib import pyplot as plt

    from gpt2lib.figures import to_svg

    try:
        return Plate(name, to_svg(fig, alt=caption, prefix=f"g2-{name}"), caption)
    finally:
        plt.close(fig)


def page(title: str, lead: str, sections: Iterable[tuple[str, str]]) -> str:
    """Return a page of sections, each a heading and HTML."""
    body = "".join(f"<section><h2>{escape(name)}</h2>{html}</section>" for name, html in sections)
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title>"
        f"<style>{_variables()}{_RULES}</style></head>"
        f'<body><main><h1>{escape(title)}</h1><p class="lead">{escape(lead)}</p>{body}'
        "</main></body></html>\n"
    )


def table(
    columns: Sequence[str], rows: Iterable[Sequence[str]], *, text: int = 1, about: str
) -> str:
    """Return a table that scrolls by itself where it is wider than the page.

    Parameters
    ----------
    columns, rows
        Plain text.
    text
        How many columns hold text; the others hold numbers and stand on the right.
    about
        What the table is, for a reader who does not see it.
    """

    def cells(tag: str, values: Sequence[str]) -> str:
        return "".join(
            f"<{tag}{' class=text' if i < text else ''}>{escape(value)}</{tag}>"
            for i, value in enumerate(values)
        )

    body = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    return (
        f'<div class="wide" tabindex="0" role="region" aria-label="{escape(about)}"><table>'
        f"<thead><tr>{cells('th', columns)}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def facts(values: Mapping[str, Any]) -> str:
    """Return names and values as a table of two columns."""
    rows = "".join(
        f'<tr><th class="text" scope="row">{escape(name)}</th>'
        f"<td>{escape(in_words(value))}</td></tr>"
        for name, value in values.items()
    )
    return f'<div class="wide facts"><table><tbody>{rows}</tbody></table></div>'


def in_words(value: Any) -> str:
    """Return a value of a JSON file as text.

    >>> in_words({"L2": 512, "L3": None}), in_words([1, 2]), in_words(True), in_words(None)
    ('L2: 512, L3: not known', '1, 2', 'yes', 'not known')
    """
    if value is None:
        return "not known"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return ", ".join(f"{name}: {in_words(item)}" for name, item in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(in_words(item) for item in value)
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def write(path: Path, text: str) -> None:
    """Write a text file as a whole."""
    with atomic_write(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def _variables() -> str:
    """Return the palette as CSS variables, and the font."""
    from gpt2lib.figures import DARK, PALETTE

    font = "--g2-font: 'IBM Plex Sans', system-ui, sans-serif"
    light = "; ".join(f"--g2-{name}: {color}" for name, color in PALETTE.items())
    dark = "; ".join(f"--g2-{name}: {color}" for name, color in DARK.items())
    return (
        f":root {{ {font}; {light} }}\n"
        f"@media (prefers-color-scheme: dark) {{ :root {{ {dark} }} }}\n"
    )
