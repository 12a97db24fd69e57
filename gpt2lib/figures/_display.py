"""From a matplotlib figure to inline SVG that follows the theme of the page it stands in."""

from __future__ import annotations

import base64
import hashlib
import html
import io
import re
from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib import pyplot as plt
from matplotlib.axis import Axis
from matplotlib.cbook import is_math_text
from matplotlib.collections import Collection, QuadMesh
from matplotlib.patheffects import Normal
from matplotlib.text import Text

from gpt2lib.figures._style import VARIABLES, use_style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# An artist with more pieces than this becomes a picture inside the SVG: smaller, and quick to draw.
RASTERIZE_ABOVE = 4000
# A picture with more colours than this (half-transparent edges count) is a photo, not the book's.
_COLOURS_UP_TO = 8192

# Light hex -> CSS variable. Black and white are what matplotlib falls back on.
_BY_HEX = {light: name for name, (light, _) in VARIABLES.items()}
_BY_HEX |= {"#000000": "--g2-ink", "#ffffff": "--g2-paper"}
_LIGHT_RGB = np.array([[int(v[0][i : i + 2], 16) for i in (1, 3, 5)] for v in VARIABLES.values()])
_DARK_RGB = np.array([[int(v[1][i : i + 2], 16) for i in (1, 3, 5)] for v in VARIABLES.values()])
# Notebook front ends that set no --g2 variables of their own, when they are dark.
_DARK_HOSTS = ("body[data-jp-theme-light=false]", "body.vscode-dark", "html[theme=dark]")
_DARK_PAGES = ("html[data-theme=dark]", *_DARK_HOSTS)

_occurrences: Counter[str] = (
    Counter()
)  # the same picture twice on a page still gets two sets of ids


class Picture:
    """A displayed figure: ``text/html`` for pages and notebooks, its alt text everywhere else."""

    def __init__(self, markup: str, alt: str) -> None:
        self.html = markup
        self.alt = alt

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return {"text/html": self.html, "text/plain": self.alt}

    def __repr__(self) -> str:
        return self.alt


def show(fig: Figure, alt: str = "", caption: str = "") -> None:
    """Display a figure as inline SVG that follows the page's theme, and close it.

    Parameters
    ----------
    fig : matplotlib.figure.Figure
        The figure, drawn with the colours of ``PALETTE`` and the two colormaps.
    alt : str
        What the figure shows, for a reader who does not see it: the shape of the curve, who
        attends to whom, with the numbers that matter.
    caption : str, optional
        The line under the figure. May hold ```code```, ``*emphasis*`` and ``$formulas$``.

    Raises
    ------
    ValueError
        If ``alt`` is missing or blank.
    """
    from IPython.display import display

    display(picture(fig, alt=alt, caption=caption))


def picture(fig: Figure, *, alt: str, caption: str = "", note: str = "") -> Picture:
    """Return what :func:`show` displays, and close the figure.

    ``note`` is HTML placed under the caption (the widgets name their controls there).
    """
    if not alt or not alt.strip():
        raise ValueError('a figure needs alt text: show(fig, alt="what the figure shows")')
    try:
        svg = to_svg(fig, alt=alt)
    finally:
        plt.close(fig)
    below = f"<figcaption>{inline(caption)}</figcaption>" if caption else ""
    markup = f'<figure class="g2-figure"><div class="g2-canvas">{svg}</div>{below}{note}</figure>'
    return Picture(markup, alt.strip())


def to_svg(fig: Figure, *, alt: str, prefix: str | None = None) -> str:
    """Render a figure as an ``<svg>`` element: themed, with ids of its own, always the same bytes.

    Parameters
    ----------
    fig : matplotlib.figure.Figure
        The figure. It is not closed.
    alt : str
        Becomes the accessible name.
    prefix : str, optional
        Prefix of all ids; by default a digest of the drawing and a count.
    """
    _rasterize_big_artists(fig)
    _formulas_as_paths(fig)
    buffer = io.StringIO()
    with plt.rc_context({"svg.fonttype": "none", "svg.hashsalt": "gpt2lib"}):
        fig.savefig(
            buffer, format="svg", metadata=dict.fromkeys(("Date", "Creator", "Format", "Type"))
        )
    raw = buffer.getvalue()
    body = raw[raw.index("<svg") :].strip()
    body = re.sub(r"<metadata>.*?</metadata>\s*", "", body, flags=re.S)
    body = re.sub(r"<!--.*?-->\s*", "", body, flags=re.S)
    if prefix is None:
        digest = hashlib.sha256(body.encode()).hexdigest()[:8]
        _occurrences[digest] += 1
        count = _occurrences[digest]
        prefix = f"g2-{digest}" + (f"-{count}" if count > 1 else "")
    body = _prefix_ids(body, prefix)
    body = _theme_images(body)
    body, used = _theme_colours(body)
    body = _page_fonts(body)
    return _open_tag(body, prefix, alt, used)


def inline(text: str) -> str:
    """Escape text and turn ```code```, ``*emphasis*`` and ``$formula$`` into HTML."""
    pieces = re.split(r"(`[^`]+`|\$[^$]+\$|\*[^*\s][^*]*\*)", text)
    out = []
    for piece in pieces:
        if piece.startswith("`") and len(piece) > 2:
            out.append(f"<code>{html.escape(piece[1:-1])}</code>")
        elif piece.startswith("$") and len(piece) > 2:
            formula = html.escape(piece[1:-1])
            out.append(f'<span class="math notranslate nohighlight">\\({formula}\\)</span>')
        elif piece.startswith("*") and len(piece) > 2:
            out.append(f"<em>{html.escape(piece[1:-1])}</em>")
        else:
            out.append(html.escape(piece))
    return "".join(out)


def _rasterize_big_artists(fig: Figure) -> None:
    for mesh in fig.findobj(QuadMesh):
        values = mesh.get_array()
        if values is not None and np.size(values) > RASTERIZE_ABOVE:
            mesh.set_rasterized(True)
    for group in fig.findobj(Collection):
        if max(len(np.asarray(group.get_offsets())), len(group.get_paths())) > RASTERIZE_ABOVE:
            group.set_rasterized(True)


def _formulas_as_paths(fig: Figure) -> None:
    """Draw formulas as shapes: their glyphs are placed one by one, in matplotlib's own font."""
    engine = fig.get_layout_engine()
    if engine is not None:
        engine.execute(fig)  # how many ticks there are follows from the size of the axes
    for axis in fig.findobj(Axis):
        axis.get_ticklabels(which="both")  # tick labels have no text before they are asked for
    for text in fig.findobj(Text):
        if is_math_text(text.get_text()) and not text.get_path_effects():
            text.set_path_effects([Normal()])  # text with a path effect is drawn as a path


def _prefix_ids(body: str, prefix: str) -> str:
    """Rename every id and every reference to one, so that two SVGs on a page do not clash."""
    body = re.sub(r'\bid="([^"]+)"', rf'id="{prefix}-\1"', body)
    body = re.sub(r'\b(xlink:href|href)="#([^"]+)"', rf'\1="#{prefix}-\2"', body)
    return re.sub(r"url\(#([^)]+)\)", rf"url(#{prefix}-\1)", body)


def _theme_colours(body: str) -> tuple[str, set[str]]:
    """Write the palette's colours as CSS variables; return the text and the variables used."""
    used: set[str] = set()

    def variable(match: re.Match[str]) -> str:
        colour = match.group(2).lower()
        name = _BY_HEX.get(colour)
        if name is None:
            return match.group(0)
        used.add(name)
        return f"{match.group(1)}: var({name}, {colour})"

    # Only inside style="…": CSS variables mean nothing in presentation attributes, which is where
    # matplotlib puts the ground under a hatch.
    body = re.sub(r'(<rect [^>]*?)fill="(#[0-9a-fA-F]{6})"', r'\1style="fill: \2"', body)
    return re.sub(r"\b(fill|stroke|stop-color): ?(#[0-9a-fA-F]{6})\b", variable, body), used


def _page_fonts(body: str) -> str:
    """Let text take the page's font: drop matplotlib's font list, keep size, weight and slant."""
    family = "var(--g2-font, 'IBM Plex Sans', system-ui, sans-serif)"
    body = re.sub(r"(font: [^;\"]*?[\d.]+px) [^;\"]+", rf"\1 {family}", body)
    return re.sub(r"font-family: [^;\"]+", f"font-family: {family}", body)


def _theme_images(body: str) -> str:
    """Give every embedded picture a twin for dark pages."""

    def twin(match: re.Match[str]) -> str:
        # matplotlib names a picture by its content; two equal ones would share an id
        tag, data = re.sub(r'\bid="[^"]+" ?', "", match.group(0)), match.group(1)
        pair = _light_and_dark(base64.b64decode(re.sub(r"\s", "", data)))
        if pair is None:
            return tag.replace("<image ", '<image class="g2-photo" ', 1)
        return "".join(
            tag.replace(data, base64.b64encode(png).decode()).replace(
                "<image ", f'<image class="g2-{name}" ', 1
            )
            for name, png in zip(("light", "dark"), pair, strict=True)
        )

    return re.sub(r'<image [^>]*?base64,([^"]+)"[^>]*?/>', twin, body, flags=re.S)


def _light_and_dark(data: bytes) -> tuple[bytes, bytes] | None:
    """Write a PNG anew for light and for dark pages; None where its colours are not the book's."""
    from PIL import Image

    rgba = np.array(Image.open(io.BytesIO(data)).convert("RGBA"))
    pixels = rgba.view(np.uint32)[..., 0]  # (height, width): a number stands for a colour
    found, counts = np.unique(pixels, return_counts=True)
    light = found.view(np.uint8).reshape(-1, 4)  # (colours, 4): a few hundred at most
    if len(found) > _COLOURS_UP_TO:
        return None
    squared = ((light[:, None, :3].astype(np.int64) - _LIGHT_RGB) ** 2).sum(axis=-1)
    counts[light[:, 3] == 0] = 0  # what cannot be seen
    strange = squared.min(axis=1) > 12**2
    if not counts.any() or counts[strange].sum() > 0.02 * counts.sum():
        return None
    dark = light.copy()
    dark[:, :3] = _DARK_RGB[squared.argmin(axis=1)]
    index = np.searchsorted(found, pixels)
    return _png(index, light), _png(index, dark)


def _png(index: Any, colours: Any) -> bytes:
    """Write a PNG of (height, width) places in a table of RGBA colours, a byte each if it can."""
    from PIL import Image

    if len(colours) <= 256:
        image = Image.fromarray(index.astype(np.uint8))
        image.putpalette(colours.tobytes(), "RGBA")
    else:
        image = Image.fromarray(colours[index])
    out = io.BytesIO()
    image.save(out, format="png")
    return out.getvalue()


def _open_tag(body: str, prefix: str, alt: str, used: set[str]) -> str:
    """Rewrite the ``<svg …>`` tag and the style that matplotlib would apply to the whole page."""
    tag_end = body.index(">")
    tag = body[:tag_end]
    width, height = (float(v) for v in re.findall(r'(?:width|height)="([\d.]+)pt"', tag))
    view = re.search(r'viewBox="[^"]+"', tag)
    assert view is not None  # matplotlib always writes one
    px = width * 96 / 72
    rules = [
        f"#{prefix} *{{stroke-linejoin:round;stroke-linecap:butt}}",
        f"#{prefix} .g2-dark{{display:none}}",
    ]
    for host in _DARK_PAGES:
        rules.append(f"{host} #{prefix} .g2-dark{{display:inline}}")
        rules.append(f"{host} #{prefix} .g2-light{{display:none}}")
        rules.append(f"{host} #{prefix} .g2-photo{{filter:invert(.92) hue-rotate(180deg)}}")
    if 'class="g2-' not in body:
        rules = rules[:1]  # no pictures inside
    dark = ";".join(f"{name}:{VARIABLES[name][1]}" for name in sorted(used))
    rules.append(f"{','.join(f'{host} #{prefix}' for host in _DARK_HOSTS)}{{{dark}}}")
    opened = (
        f'<svg id="{prefix}" xmlns="http://www.w3.org/2000/svg" '
        f'xmlns:xlink="http://www.w3.org/1999/xlink" {view.group(0)} '
        f'width="{px:.0f}" height="{height * 96 / 72:.0f}" role="img" '
        f'aria-label="{html.escape(alt.strip())}" '
        f'style="--g2-width:{px:.0f}px;max-width:100%;height:auto;fill:var(--g2-ink,#1b2130)">'
        f"<style>{''.join(rules)}</style>"
    )
    rest = re.sub(
        r"<defs>\s*<style type=\"text/css\">.*?</style>\s*</defs>",
        "",
        body[tag_end + 1 :],
        flags=re.S,
    )
    rest = re.sub(r">\s+<(?!/text|/tspan|tspan)", "><", rest)
    return opened + rest


__all__ = ["Picture", "inline", "picture", "show", "to_svg", "use_style"]
