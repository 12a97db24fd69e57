"""Labels of points that lie close together: placed so that none lies on another."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.text import Text
from matplotlib.transforms import Bbox

from gpt2lib.figures._style import PALETTE

Array = np.ndarray[Any, Any]

_RADII = (5, 9, 14, 20, 27, 35, 44, 55, 68, 83, 100, 120, 145, 175)  # points
_ANGLES = tuple(math.radians(a) for a in (0, 180, 25, -25, 155, -155, 90, -90, 60, -60, 120, -120))


def place_labels(
    ax: Axes,
    points: Sequence[tuple[float, float]],
    labels: Sequence[str],
    *,
    colors: Sequence[str],
    keep_off: Sequence[Bbox] = (),
    lines: Sequence[Array] = (),
    fontsize: float = 8.0,
) -> None:
    """Write a label beside every point, with a thin line to it where it stands away from it.

    Where many points crowd, their labels stand in a column to the right. The others take turns, the
    first has the first choice: each tries places in growing circles round itself and takes the
    cheapest. A place is dear when it lies on a label, a point or a line, when its own line crosses
    another label's, and when it is far.

    Parameters
    ----------
    ax
        Where to; its limits must be final, its figure's layout is made final here.
    points
        In data coordinates.
    labels, colors
        A text and its colour for each point.
    keep_off
        Boxes in pixels that must stay free, such as a legend's.
    lines
        (n, 2) arrays in data coordinates that labels better avoid.
    fontsize
        In points.
    """
    fig = ax.get_figure(root=True)
    assert fig is not None
    fig.draw_without_rendering()
    pixel = fig.dpi / 72
    spots = ax.transData.transform(np.asarray(points, float))
    walls = [_along(ax.transData.transform(line), 4 * pixel) for line in lines]
    board = _Board(ax, spots, np.concatenate(walls) if walls else np.empty((0, 2)), pixel)
    board.taken += keep_off
    texts = [
        ax.text(0, 0, label, fontsize=fontsize, color=color, ha="center", va="center")
        for label, color in zip(labels, colors, strict=True)
    ]
    sizes = [text.get_window_extent() for text in texts]
    crowd = _crowd(spots, 30 * pixel)
    for i, box in zip(crowd, _column(spots[crowd], [sizes[i] for i in crowd], pixel), strict=True):
        board.put(i, texts[i], box, np.array([box.x0 - 2 * pixel, (box.y0 + box.y1) / 2]))
    for i, (text, size) in enumerate(zip(texts, sizes, strict=True)):
        if i not in crowd:
            places = _places(spots[i], size.width, size.height, pixel)
            costs = [(far + board.cost(box, i, foot), box, foot) for box, foot, far in places]
            _, box, foot = min(costs, key=lambda cost: cost[0])
            board.put(i, text, box, foot)


def _crowd(spots: Array, near: float) -> list[int]:
    """Return the points that have three others near them, or are near such a one; highest first."""
    close = np.hypot(*(spots[:, None] - spots).transpose(2, 0, 1)) < near
    core = close.sum(axis=1) > 3
    return sorted(np.flatnonzero(close[core].any(axis=0)).tolist(), key=lambda i: -spots[i, 1])


def _column(spots: Array, sizes: Sequence[Bbox], pixel: float) -> list[Bbox]:
    """Return boxes under each other, to the right of the points and not above the highest."""
    if not len(spots):
        return []
    height = max(size.height for size in sizes) + 1.5 * pixel
    left, top = spots[:, 0].max() + 34 * pixel, spots[:, 1].max() + height / 2
    return [
        Bbox.from_bounds(left, top - (i + 1) * height, size.width, size.height)
        for i, size in enumerate(sizes)
    ]


class _Board:
    """What stands where already, in pixels."""

    def __init__(self, ax: Axes, spots: Array, wall: Array, pixel: float) -> None:
        self.ax, self.spots, self.wall, self.pixel = ax, spots, wall, pixel
        self.area = ax.get_window_extent()
        self.taken: list[Bbox] = []
        self.leaders: list[tuple[Array, Array]] = []

    def put(self, i: int, text: Text, box: Bbox, foot: Array) -> None:
        """Write a label, and a line from its point to its foot if that is away."""
        back = self.ax.transData.inverted()
        middle = np.array([(box.x0 + box.x1) / 2, (box.y0 + box.y1) / 2])
        text.set_position(tuple(back.transform(middle)))
        self.taken.append(box.padded(self.pixel))
        self.leaders.append((self.spots[i], foot))
        if np.hypot(*(foot - self.spots[i])) > 8 * self.pixel:
            ends = back.transform([self.spots[i], foot])
            self.ax.plot(*ends.T, color=PALETTE["muted"], linewidth=0.6, zorder=1.5)

    def cost(self, box: Bbox, i: int, foot: Array) -> float:
        """Return how bad a place is, apart from its distance."""
        cost, area, spot = 0.0, self.area, self.spots[i]
        if box.x0 < area.x0 or box.x1 > area.x1 or box.y0 < area.y0 or box.y1 > area.y1:
            cost += 5000
        way = spot + np.linspace(0, 1, 12)[:, None] * (foot - spot)
        for other in self.taken:
            cost += 2000 * box.overlaps(other) + 150 * bool(_inside(way, other).any())
        cost += 300 * int(_inside(self.spots, box, 3 * self.pixel).sum())
        cost += 12 * min(6, int(_inside(self.wall, box).sum()))
        for start, end in self.leaders:
            along = start + np.linspace(0, 1, 12)[:, None] * (end - start)
            cost += 120 * _cross(spot, foot, start, end) + 150 * bool(_inside(along, box).any())
        return cost


def _places(spot: Any, width: float, height: float, pixel: float) -> Any:
    """Yield (box, the point of its edge that is closest, cost of the distance)."""
    for radius in _RADII:
        for turn, angle in enumerate(_ANGLES):
            way = np.array([math.cos(angle), math.sin(angle)])
            foot = spot + radius * pixel * way
            # The box hangs on its foot by the side that looks at the point.
            middle = foot + np.array([width, height]) / 2 * np.array(
                [np.sign(way[0]) if abs(way[0]) > 0.3 else 0.0, way[1]]
            )
            half = np.array([width, height]) / 2
            yield Bbox([middle - half, middle + half]), foot, radius + 0.3 * turn


def _inside(points: Any, box: Bbox, margin: float = 0.0) -> Any:
    x, y = np.asarray(points).T
    return (
        (x > box.x0 - margin)
        & (x < box.x1 + margin)
        & (y > box.y0 - margin)
        & (y < box.y1 + margin)
    )


def _cross(a: Any, b: Any, c: Any, d: Any) -> bool:
    """Say whether the segments ab and cd cross."""

    def side(p: Any, q: Any, r: Any) -> float:
        return float((q[0] - p[0]) * (r[1] - p[1]) - (q[1] - p[1]) * (r[0] - p[0]))

    return side(a, b, c) * side(a, b, d) < 0 and side(c, d, a) * side(c, d, b) < 0


def _along(corners: Any, step: float) -> Any:
    """Return points on a broken line, about ``step`` pixels apart."""
    pieces = []
    for a, b in itertools.pairwise(corners):
        count = max(2, int(np.hypot(*(b - a)) / step))
        pieces.append(a + np.linspace(0, 1, count)[:, None] * (b - a))
    return np.concatenate(pieces)
