"""Figures of the book: one palette, one style, and a way to show them that follows the page.

A chapter's first code cell calls :func:`use_style`; every figure ends in :func:`show`.

>>> import matplotlib.pyplot as plt
>>> from gpt2lib import figures
>>> figures.use_style()
>>> fig, ax = plt.subplots()
>>> _ = ax.plot([3.2, 2.1, 1.7], color=figures.PALETTE["blue"])
>>> figures.show(fig, alt="The loss falls from 3.2 to 1.7 nats.")
The loss falls from 3.2 to 1.7 nats.
"""

from gpt2lib.figures._display import Picture, picture, show, to_svg
from gpt2lib.figures._source import Source, show_source, source
from gpt2lib.figures._style import (
    DARK,
    DIVERGING,
    PALETTE,
    ROLES,
    SEQUENTIAL,
    SERIES,
    VARIABLES,
    stylesheet,
    text_on,
    use_style,
)

__all__ = [
    "DARK",
    "DIVERGING",
    "PALETTE",
    "ROLES",
    "SEQUENTIAL",
    "SERIES",
    "VARIABLES",
    "Picture",
    "Source",
    "picture",
    "show",
    "show_source",
    "source",
    "stylesheet",
    "text_on",
    "to_svg",
    "use_style",
]
