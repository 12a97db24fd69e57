import numpy as np
import pytest

from gpt2lib.figures import first_iteration
from gpt2lib.perf.first_iteration import cases
from tests.figures.looks import faults, words
from tests.perf.test_first_iteration import by_hand, made_up, report

pytestmark = pytest.mark.usefixtures("book_style")
__all__ = ["by_hand"]


def test_the_bars_span_the_difference(by_hand):
    fig = first_iteration.waterfall(by_hand)
    (ax,) = fig.axes
    rows = [label.get_text() for label in ax.get_yticklabels()]
    assert rows[0] == "iteration 0"
    assert rows[-2:] == ["not explained", "later iterations"]
    ends = {}
    for patch in ax.patches:
        at = round(patch.get_y() + patch.get_height() / 2)
        ends[at] = sorted((patch.get_x(), patch.get_x() + patch.get_width()))
    assert ends[0] == [0, 110]
    assert ends[len(rows) - 1] == [0, 10]
    steps = [ends[at] for at in range(1, len(rows) - 1)]
    assert steps[0][1] == 110
    np.testing.assert_allclose([a[0] for a in steps[:-1]], [b[1] for b in steps[1:]])
    assert steps[-1][0] == pytest.approx(10)
    ranges = [line.get_xdata() for line in ax.lines if line.get_marker() == "|"]
    np.testing.assert_allclose(ranges[0], [110 - 76, 110 - 60])
    assert "100 ms more" in words(fig)
    assert "ms" in ax.get_xlabel()
    assert faults(fig) == []


def test_two_cases_share_their_rows_and_a_step_back_is_hatched(by_hand):
    stages = by_hand["settings"]["causes"]
    for first, on in ((30, []), (50, stages[0]), (11, [*stages[0], *stages[1]])):
        by_hand["runs"].append(made_up(first, threads=2, on=on))
    by_hand["settings"]["threads"] = [1, 2]
    fig = first_iteration.waterfall(by_hand)
    assert len(fig.axes) == 2
    assert cases(by_hand)[1].steps[0].ms == -20
    hatched = [patch for patch in fig.axes[1].patches if patch.get_hatch()]
    assert len(hatched) == 1
    assert "−20.0" in words(fig)
    assert faults(fig) == []


def test_without_code_it_begins_below(by_hand):
    by_hand["settings"]["causes"] = [["code"], ["blas", *by_hand["settings"]["causes"][1]]]
    for run in by_hand["runs"]:
        run["on"] = ["code"] if len(run["on"]) == 2 else run["on"]
    fig = first_iteration.waterfall(by_hand, code=False)
    (ax,) = fig.axes
    assert ax.get_yticklabels()[0].get_text() == "iteration 0, code loaded"
    assert ax.patches[0].get_width() == 42
    assert "loading compiled code" not in words(fig)
    assert faults(fig) == []


def test_faster_sorts_and_draws_every_process():
    fig = first_iteration.faster([report(), report()])
    (ax,) = fig.axes
    rows = [label.get_text().replace("\n", " ") for label in ax.get_yticklabels()]
    assert rows[0] == "reading untouched memory, memory from NumPy"
    dots = [line for line in ax.lines if len(set(line.get_ydata())) == 1]
    assert [line.get_xdata()[0] for line in dots] == [0.75, 0.9, 1, 2, 10, 10]
    assert len({line.get_marker() for line in dots}) == 3  # faster, the same, slower
    assert "0.75 ×" in words(fig)
    assert faults(fig) == []
