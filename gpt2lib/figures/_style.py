"""One palette, two colormaps and one matplotlib style for every figure of the book.

The colours are named, and each name has a light and a dark value. A figure is always drawn with
the light values; :func:`gpt2lib.figures.show` then writes every one of them as a CSS variable
(``var(--g2-ink, #1b2130)``), so that a page turns its figures light or dark without a new drawing.

The five series colours keep their distances under simulated protanopia, deuteranopia and
tritanopia, and their lightness differs enough to tell them apart in grey; the tests measure both.
"""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib import style as mpl_style
from matplotlib.colors import ListedColormap, to_hex

#: Colour name -> value on a light page. Draw with these; ``show`` turns them into CSS variables.
PALETTE: dict[str, str] = {
    "ink": "#1b2130",  # text, axes
    "muted": "#5b6475",  # secondary text, reference lines
    "grid": "#dcd8cd",  # hairlines
    "panel": "#f5f1e8",  # filled boxes
    "paper": "#fffdf9",  # the background
    "blue": "#2641a6",
    "orange": "#cd5717",
    "teal": "#08725b",
    "plum": "#67154f",
    "gold": "#cf9f24",
}

#: The same names on a dark page.
DARK: dict[str, str] = {
    "ink": "#e9e6df",
    "muted": "#9da6b6",
    "grid": "#303848",
    "panel": "#1c2330",
    "paper": "#131720",
    "blue": "#7092f5",
    "orange": "#ff9044",
    "teal": "#63dbcd",
    "plum": "#c763ab",
    "gold": "#fee1a5",
}

#: The series colours, in the order in which lines take them.
SERIES: tuple[str, ...] = ("blue", "orange", "teal", "plum", "gold")

#: What a colour means, wherever it appears in the book: a role -> a name of the palette.
ROLES: dict[str, str] = {
    "query": "blue",
    "key": "orange",
    "value": "teal",
    "forward": "blue",
    "backward": "orange",
    "train": "blue",
    "validation": "orange",
    "floor": "muted",
    "target": "teal",
}

SEQUENTIAL = "g2-sequential"
DIVERGING = "g2-diverging"
LEVELS = 65  # odd, so that the diverging map has a level that is exactly zero

# OKLab -> linear sRGB (Björn Ottosson, "A perceptual color space for image processing", 2020).
_LAB_TO_LMS = np.array(
    [
        [1.0, 0.3963377774, 0.2158037573],
        [1.0, -0.1055613458, -0.0638541728],
        [1.0, -0.0894841775, -1.2914855480],
    ]
)
_LMS_TO_RGB = np.array(
    [
        [4.0767416621, -3.3077115913, 0.2309699292],
        [-1.2684380046, 2.6097574011, -0.3413193965],
        [-0.0041960863, -0.7034186147, 1.7076147010],
    ]
)


def _oklab_to_rgb(lab: np.ndarray) -> np.ndarray:
    """Convert OKLab colours (n, 3) to sRGB in 0 … 1, clipped to the gamut."""
    linear = np.clip((lab @ _LAB_TO_LMS.T) ** 3 @ _LMS_TO_RGB.T, 0.0, 1.0)
    return np.where(linear <= 0.0031308, 12.92 * linear, 1.055 * linear ** (1 / 2.4) - 0.055)


def _ramp(stops: list[tuple[float, float, float]], levels: int = LEVELS) -> list[str]:
    """Interpolate (lightness, chroma, hue in degrees) stops in OKLab; evenly spaced lightness."""
    lightness, chroma, hue = np.array(stops).T
    angle = np.radians(hue)
    lab = np.stack([lightness, chroma * np.cos(angle), chroma * np.sin(angle)], axis=1)
    at = np.linspace(0, 1, len(stops))
    fine = np.linspace(0, 1, levels)
    smooth = np.stack([np.interp(fine, at, lab[:, i]) for i in range(3)], axis=1)
    return [to_hex(rgb) for rgb in _oklab_to_rgb(smooth)]


# Nothing has the paper's colour and much has the ink's: a zero leaves the page bare.
_SEQUENTIAL_LIGHT = _ramp(
    [
        (0.975, 0.012, 85),
        (0.83, 0.105, 75),
        (0.68, 0.165, 50),
        (0.53, 0.175, 25),
        (0.38, 0.140, 355),
        (0.23, 0.075, 310),
    ]
)
_SEQUENTIAL_DARK = _ramp(
    [
        (0.225, 0.020, 275),
        (0.36, 0.110, 330),
        (0.50, 0.165, 5),
        (0.64, 0.170, 38),
        (0.79, 0.135, 70),
        (0.95, 0.070, 95),
    ]
)
_DIVERGING_LIGHT = _ramp(
    [
        (0.36, 0.150, 266),
        (0.66, 0.120, 262),
        (0.975, 0.004, 85),
        (0.66, 0.150, 52),
        (0.36, 0.105, 42),
    ]
)
_DIVERGING_DARK = _ramp(
    [
        (0.90, 0.070, 262),
        (0.56, 0.135, 264),
        (0.235, 0.014, 275),
        (0.56, 0.130, 48),
        (0.90, 0.085, 70),
    ]
)


def _variables() -> dict[str, tuple[str, str]]:
    """CSS variable -> (light, dark), for the palette and for every level of both colormaps."""
    table = {f"--g2-{name}": (light, DARK[name]) for name, light in PALETTE.items()}
    ramps = (("s", _SEQUENTIAL_LIGHT, _SEQUENTIAL_DARK), ("d", _DIVERGING_LIGHT, _DIVERGING_DARK))
    for letter, light_ramp, dark_ramp in ramps:
        for level, (light, dark) in enumerate(zip(light_ramp, dark_ramp, strict=True)):
            table[f"--g2-{letter}{level}"] = (light, dark)
    return table


#: CSS variable -> (light value, dark value). The light values are all different.
VARIABLES: dict[str, tuple[str, str]] = _variables()


def stylesheet() -> str:
    """Return the CSS that defines every variable, light and dark: ``book/_static/palette.css``."""
    light = "\n".join(f"  {name}: {value[0]};" for name, value in VARIABLES.items())
    dark = "\n".join(f"  {name}: {value[1]};" for name, value in VARIABLES.items())
    head = '/* Written by "python -m gpt2lib.figures"; edit gpt2lib/figures/_style.py. */'
    return f':root {{\n{light}\n}}\n\nhtml[data-theme="dark"] {{\n{dark}\n}}\n'.join(
        [head + "\n", ""]
    )


def text_on(cmap: str, fraction: float) -> str:
    """Return the colour (ink or paper) that can be read on a colormap's level.

    Parameters
    ----------
    cmap : str
        ``"g2-sequential"`` or ``"g2-diverging"``.
    fraction : float
        Place in the map, 0 … 1.

    Returns
    -------
    str
        ``PALETTE["ink"]`` or ``PALETTE["paper"]``; on a dark page they trade places, as the
        map does.
    """
    dark = fraction > 0.5 if cmap == SEQUENTIAL else abs(fraction - 0.5) > 0.28
    return PALETTE["paper"] if dark else PALETTE["ink"]


def _register() -> None:
    for name, colours in ((SEQUENTIAL, _SEQUENTIAL_LIGHT), (DIVERGING, _DIVERGING_LIGHT)):
        cmap = ListedColormap(colours, name=name)
        mpl.colormaps.register(cmap, force=True)
        mpl.colormaps.register(cmap.reversed(), force=True)


_register()

STYLE_FILE = Path(__file__).with_name("gpt2lib.mplstyle")


def use_style() -> None:
    """Give matplotlib the book's style: call it once, in a chapter's first code cell."""
    mpl_style.use(STYLE_FILE)
