"""Quick parts look as matplotlib's own do: bars, tick labels, tick marks."""

from __future__ import annotations

import numpy as np
import pytest
from matplotlib import pyplot as plt

from gpt2lib.figures import _quick
from tests.figures.looks import bar_heights

pytestmark = pytest.mark.usefixtures("book_style")


def pair():
    """Two equal figures: one for matplotlib's own artists, one for ours."""
    return [_quick.fixed((4, 3), left=1, bottom=1, top=0.5)[1][0] for _ in range(2)]


def test_fixed_axes_stand_where_they_are_put():
    fig, axes = _quick.fixed((6, 3), left=1, bottom=0.5, top=0.25, gap=0.5, widths=(2, 1.5))
    assert fig.get_layout_engine() is None
    boxes = [ax.get_window_extent().bounds for ax in axes]
    want = [(1, 0.5, 2, 2.25), (3.5, 0.5, 1.5, 2.25)]  # inches
    np.testing.assert_allclose(boxes, np.array(want) * fig.dpi)
    _, (one,) = _quick.fixed((6, 3), left=1, bottom=0.5, top=0.25, right=0.5)
    assert one.get_window_extent().width == pytest.approx(4.5 * fig.dpi)


@pytest.mark.parametrize("heights", [[3.0, 1.0, 0.0, 2.0], [3.0, -1.0, 0.5, -2.0]])
def test_rectangles_are_bars(heights):
    theirs, ours = pair()
    bars = theirs.bar(range(4), heights, width=0.6)
    patch = _quick.rectangles(ours, np.arange(4) - 0.3, 0, 0.6, heights)
    assert bar_heights(patch) == [bar.get_height() for bar in bars]
    assert patch.get_path().vertices[::5, 0].tolist() == [bar.get_x() for bar in bars]
    assert ours.get_xlim() == pytest.approx(theirs.get_xlim())
    assert ours.get_ylim() == pytest.approx(theirs.get_ylim())
    assert patch.get_facecolor() == bars[0].get_facecolor()


def test_no_rectangles_change_nothing():
    theirs, ours = pair()
    for ax in (theirs, ours):
        ax.plot([1, 5], [2, 3])
    _quick.rectangles(ours, [], [], 1, 1)
    assert ours.get_xlim() == theirs.get_xlim()
    assert ours.get_ylim() == theirs.get_ylim()


@pytest.mark.parametrize("side", ["x", "y"])
def test_labels_and_marks_stand_where_ticks_would(side):
    theirs, ours = pair()
    labels = ["one", "$two$", "thirteen"]
    for ax in (theirs, ours):
        ax.set(xlim=(-0.5, 2.5), ylim=(-0.5, 2.5), xlabel="x label", ylabel="y label")
    ticks = theirs.set_xticks if side == "x" else theirs.set_yticks
    ticks(range(3), labels, rotation=90 * (side == "x"), fontsize=8, parse_math=False)
    _quick.tick_marks(ours, side, range(3))
    _quick.edge_labels(ours, side, labels, size=8, pad=6.5, rotation=90 * (side == "x"))
    for ax in (theirs, ours):
        ax.figure.draw_without_rendering()
    axis, other = (getattr(ax, f"{side}axis") for ax in (theirs, ours))
    boxes = [[t.get_window_extent().bounds for t in texts] for texts in
             (axis.get_ticklabels(), ours.texts)]  # fmt: skip
    np.testing.assert_allclose(boxes[0], boxes[1], atol=0.01)
    assert [text.get_text() for text in ours.texts] == labels
    names = [a.label.get_window_extent().bounds for a in (axis, other)]
    np.testing.assert_allclose(*names, atol=5)  # pixels; ours does not count the marks
    (marks,) = ours.lines
    where = [
        line.get_transform().transform(line.get_xydata()) for line in axis.get_ticklines()[::2]
    ]
    np.testing.assert_allclose(
        marks.get_transform().transform(marks.get_xydata()), np.concatenate(where), atol=0.01
    )
    assert marks.get_marker() == axis.get_ticklines()[0].get_marker()
    plt.close("all")
