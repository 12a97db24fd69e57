"""What the tests of figures measure: texts that are cut off, lie on each other, or are tiny."""

from __future__ import annotations

from matplotlib.figure import Figure
from matplotlib.patches import PathPatch
from matplotlib.text import Text

SMALLEST = 7.0  # points, at the width that a figure has on the page
PAGE = 7.6  # inches: a wider figure is shrunk to it


def texts(fig: Figure) -> list[Text]:
    """Every text that is drawn, tick labels and legends included."""
    fig.draw_without_rendering()
    never = _out_of_view(fig)
    found = [t for t in fig.findobj(Text) if t.get_visible() and t.get_text().strip()]
    return [t for t in found if t not in never]


def words(fig: Figure) -> str:
    return "\n".join(t.get_text() for t in texts(fig))


def bar_heights(patch: PathPatch) -> list[float]:
    """How high the rectangles are that were drawn as one artist; negative below their foot."""
    corners = patch.get_path().vertices.reshape(-1, 5, 2)
    return (corners[:, 1, 1] - corners[:, 0, 1]).tolist()


def faults(fig: Figure) -> list[str]:
    """Say what a reader could not read."""
    for _ in range(2):  # a layout with images settles at the second drawing
        fig.draw_without_rendering()
    size = fig.get_window_extent()
    shrink = min(1.0, PAGE / fig.get_size_inches()[0])
    found = []
    boxes = [(t, t.get_window_extent()) for t in texts(fig)]
    for text, box in boxes:
        if box.x0 < -2 or box.y0 < -2 or box.x1 > size.width + 2 or box.y1 > size.height + 2:
            found.append(f"cut off: {text.get_text()!r}")
        if text.get_fontsize() * shrink < SMALLEST:
            found.append(f"tiny: {text.get_text()!r}, {text.get_fontsize() * shrink:.1f} points")
    for i, (text, box) in enumerate(boxes):
        for other, its in boxes[i + 1 :]:
            wide = min(box.x1, its.x1) - max(box.x0, its.x0)
            high = min(box.y1, its.y1) - max(box.y0, its.y0)
            if wide > 2 and high > 2:
                found.append(f"on each other: {text.get_text()!r} and {other.get_text()!r}")
    return found


def _out_of_view(fig: Figure) -> set[Text]:
    """Labels that exist and are never drawn: ticks beyond an axis' ends, axes switched off."""
    never: set[Text] = set()
    for axis in (axis for ax in fig.axes for axis in (ax.xaxis, ax.yaxis)):
        drawn = {id(tick) for tick in axis._update_ticks()} if axis.axes.axison else set()
        for tick in (*axis.get_major_ticks(), *axis.get_minor_ticks()):
            if id(tick) not in drawn:
                never |= {tick.label1, tick.label2}
    return never
