import math

import numpy as np
import pytest

from gpt2lib.figures import projection as figures
from gpt2lib.perf.projection import Projection, Task
from gpt2lib.perf.scaling import wiki
from tests.figures.looks import faults, words

pytestmark = pytest.mark.usefixtures("book_style")

STEP = Projection((Task("op", 16, 5.0, 0.5),) * 3, 4.0, 1e-5, 0.01)


def test_speedups_draw_models_as_lines_and_measurements_as_points():
    fig = figures.speedups(
        {"this cut": STEP, "finer": STEP.finer(8)}, points=wiki()["rows"], measured={1: 1, 2: 1.9}
    )
    (ax,) = fig.axes
    lines = {line.get_label(): line for line in ax.lines}
    here = lines["model: this cut"]
    for p, gain in zip(here.get_xdata(), here.get_ydata(), strict=True):
        assert gain == pytest.approx(STEP.speedup(int(p)))
    assert here.get_xdata()[-1] == 448
    np.testing.assert_allclose(lines["measured here"].get_ydata(), [1, 1.9])
    assert "OpenMP: 24.7" in words(fig)
    assert "a model" in ax.get_title(loc="left")
    assert faults(fig) == []


def test_parts_are_shares_and_the_time_stands_beside_them():
    fig = figures.parts(STEP, threads=(1, 8, 112))
    (ax,) = fig.axes
    widths = np.array([bar.get_width() for bar in ax.patches]).reshape(5, 3)
    np.testing.assert_allclose(widths.sum(axis=0), 1)
    np.testing.assert_allclose(widths[:, 2] * STEP.seconds(112), STEP.parts(112), atol=1e-12)
    assert "15.01 s" in words(fig)
    assert "a model" in words(fig)
    assert faults(fig) == []


def test_a_perfect_machine_is_all_work():
    fig = figures.parts(STEP.perfect(), threads=(448,))
    widths = [bar.get_width() for bar in fig.axes[0].patches]
    assert widths == pytest.approx([1, 0, 0, 0, 0])
    assert STEP.perfect().width == math.inf
