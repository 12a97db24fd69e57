import numpy as np
import pytest

from gpt2lib.figures import parallel
from gpt2lib.perf import races, schedule
from gpt2lib.perf.regions import Region
from tests.figures.looks import faults, words

pytestmark = pytest.mark.usefixtures("book_style")


def test_lock_draws_both_jobs():
    fig = parallel.lock({"a Python loop": (0.2, 0.21), "a compiled loop": (0.2, 0.1)})
    (ax,) = fig.axes
    np.testing.assert_allclose([bar.get_width() for bar in ax.patches], [200, 210, 200, 100])
    assert "two threads: 100 ms" in words(fig)
    assert faults(fig) == []


def test_chunks_are_sorted_and_shown_from_the_fewest_to_the_most():
    regions = [
        Region("op", name, count, 0.0, 0.0)
        for name, count in (("many", 900), ("few", 4), ("few", 8), ("some", 16))
    ]
    fig = parallel.chunks(regions, marks=(2, 112))
    (ax,) = fig.axes
    assert [t.get_text() for t in ax.get_yticklabels()] == ["few", "some", "many"]
    dots = [line.get_xdata() for line in ax.lines if line.get_marker() == "o"]
    assert [list(d) for d in dots] == [[4, 8], [16], [900]]
    assert faults(fig) == []


def test_schedules_draw_every_chunk_where_it_ran():
    costs = schedule.causal_costs(1024, 64) / 1e6
    lines = {how: schedule.schedule(costs, 4, how) for how in schedule.SCHEDULES}
    fig = parallel.schedules(lines)
    for ax, timeline in zip(fig.axes, lines.values(), strict=True):
        bars = [bar for bar in ax.patches if bar.get_hatch() is None]
        assert len(bars) == 16
        ends = max(bar.get_x() + bar.get_width() for bar in bars)
        assert ends == pytest.approx(timeline.duration / 1e6)
        assert f"{timeline.efficiency().parallel:.0%}" in ax.get_title(loc="left")
    assert faults(fig) == []


def test_race_shows_what_lies_in_memory():
    fig = parallel.race({"at once": races.play([0, 1, 0, 1, 0, 1], [2.0, 3.0])})
    assert [t.get_text() for t in fig.axes[0].texts if t.get_position()[0] == 1] == list("000023")
    assert "add: 3" in words(fig)
    assert faults(fig) == []


def test_laws_pass_through_their_limits():
    fig = parallel.laws([0.0, 0.1], {"OpenMP": (112, 24.7)}, most=112)
    amdahl, gustafson = fig.axes
    ends = [line.get_ydata()[-1] for line in (*amdahl.lines[:2], *gustafson.lines[:2])]
    assert ends == pytest.approx([112, 1 / (0.1 + 0.9 / 112), 112, 0.1 + 0.9 * 112])
    assert (amdahl.lines[2].get_xdata()[0], amdahl.lines[2].get_ydata()[0]) == (112, 24.7)
    assert faults(fig) == []


def test_crowd_in_milliseconds():
    fig = parallel.crowd({"threads": {1: 0.04, 2: 0.021, 4: 0.03}}, cores=2)
    np.testing.assert_allclose(fig.axes[0].lines[0].get_ydata(), [40, 21, 30])
    assert faults(fig) == []
