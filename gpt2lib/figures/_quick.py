"""Parts of figures that are drawn again at every change of a control, so they have to be quick.

Most of a drawing's time goes to finding a layout, to ticks (a tick is six artists) and to patches.
So here the axes have fixed places, a row of bars is one artist, and labels are plain texts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from matplotlib import pyplot as plt
from matplotlib.markers import TICKDOWN, TICKLEFT
from matplotlib.patches import PathPatch
from matplotlib.path import Path

from gpt2lib.figures._style import PALETTE

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Array = np.ndarray[Any, Any]


def fixed(
    size: tuple[float, float],
    *,
    left: float,
    bottom: float,
    top: float,
    right: float = 0.1,
    gap: float = 0.0,
    widths: Sequence[float] = (),
) -> tuple[Figure, list[Axes]]:
    """Return a figure with axes side by side at fixed places, all in inches.

    Parameters
    ----------
    size
        Width and height of the figure.
    left, bottom, top, right
        Room round the axes.
    gap
        Between two axes.
    widths
        One for each axes; by default there is one, as wide as there is room.
    """
    fig = plt.figure(figsize=size, layout="none")
    axes, x, height = [], left, size[1] - bottom - top
    for width in widths or (size[0] - left - right,):
        place = (x / size[0], bottom / size[1], width / size[0], height / size[1])
        axes.append(fig.add_axes(place))
        x += width + gap
    return fig, axes


def rectangles(ax: Axes, x: Any, y: Any, width: Any, height: Any, **look: Any) -> PathPatch:
    """Draw rectangles that look alike, such as a row of bars, as one artist.

    Parameters
    ----------
    ax
        Where to. Its limits grow, and the lower edges stand on its edge, as with ``ax.bar``.
    x, y, width, height
        Left and lower edges and sizes, each one number or one for each rectangle.
    **look
        ``color``, ``label`` and what else a patch takes.
    """
    x, y, width, height = np.broadcast_arrays(x, y, width, height)
    right, upper = x + width, y + height
    corners = np.stack([x, y, x, upper, right, upper, right, y, x, y], axis=-1)  # (n, 10)
    codes = [Path.MOVETO, *[Path.LINETO] * 3, Path.CLOSEPOLY] * len(corners)
    patch = PathPatch(Path(corners.reshape(-1, 2), codes), **look)
    patch.sticky_edges.y.extend(np.unique(y))
    ax.add_artist(patch)  # add_patch would look for the limits of each edge, in Python
    ax.update_datalim(corners.reshape(-1, 2))
    ax.autoscale_view()
    return patch


def tick_marks(ax: Axes, side: Literal["x", "y"], at: Any, *, length: float = 3.0) -> None:
    """Draw an axis' tick marks as one artist, ``length`` points long."""
    under = side == "x"
    edge = np.zeros(len(at))
    ax.plot(
        *((at, edge) if under else (edge, at)),
        ls="", marker=TICKDOWN if under else TICKLEFT, ms=length, mew=0.8,
        color=PALETTE["muted"], clip_on=False,
        transform=ax.get_xaxis_transform() if under else ax.get_yaxis_transform(),
    )  # fmt: skip


def edge_labels(
    ax: Axes,
    side: Literal["x", "y"],
    labels: Sequence[str],
    *,
    size: float,
    pad: float = 3.5,
    rotation: float = 0.0,
) -> None:
    """Label the places 0, 1, … of an axis, under the x-axis or to the left of the y-axis.

    Labels are taken as they are (a dollar sign is no formula); the axis' own label moves away.

    Parameters
    ----------
    ax, side
        Which axis.
    labels
        One for each place.
    size
        Of the font, in points.
    pad
        Points between the axis and its labels.
    rotation
        In degrees.
    """
    under = side == "x"
    axis = ax.xaxis if under else ax.yaxis
    axis.set_ticks([])
    find = ax.get_xaxis_text1_transform if under else ax.get_yaxis_text1_transform
    transform, va, ha = find(pad)
    look: dict[str, Any] = {"va": va, "ha": ha, "fontsize": size, "rotation": rotation}
    texts = [
        ax.text(
            *((i, 0) if under else (0, i)), label, transform=transform, parse_math=False, **look
        )
        for i, label in enumerate(labels)
    ]
    longest = max(texts, key=lambda text: len(text.get_text())).get_window_extent()
    points = 72 / ax.figure.dpi
    axis.labelpad += pad + points * (longest.height if under else longest.width)
