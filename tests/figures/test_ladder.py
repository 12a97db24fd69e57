import numpy as np
import pytest
from matplotlib.colors import to_hex
from matplotlib.patches import Rectangle

from gpt2lib import figures
from gpt2lib.figures import ladder
from tests.figures.looks import faults, texts, words

pytestmark = pytest.mark.usefixtures("book_style")


def squares(ax, colour):
    boxes = [patch for patch in ax.patches if isinstance(patch, Rectangle)]
    return [box for box in boxes if to_hex(box.get_facecolor()) == figures.PALETTE[colour]]


def test_reading_orders_counts_what_is_fetched():
    fig = ladder.reading_orders(rows=6, columns=8, line=4)
    down, along = fig.axes
    assert "6 numbers used, 24 fetched" in down.get_title("left")
    assert "8 numbers used, 8 fetched" in along.get_title("left")
    for ax, used, fetched in ((down, 6, 24), (along, 8, 8)):
        # twice: in the matrix and in the strip of memory
        strip = [box for box in squares(ax, "blue") if box.get_y() > 6]
        assert len(strip) == used
        gold = [box for box in squares(ax, "gold") if box.get_y() > 6]
        assert len(gold) == fetched - used
    places = sorted(round(box.get_x() * 6) for box in squares(down, "blue") if box.get_y() > 6)
    assert places == [0, 8, 16, 24, 32, 40]  # a column is a row apart in memory
    assert faults(fig) == []


def test_strides_draws_the_costs_and_marks_the_line():
    cost = {1: 0.2, 2: 0.3, 4: 0.5, 8: 1.2, 16: 2.5, 32: 5.0, 64: 6.0}
    fig = ladder.strides(cost)
    (ax,) = fig.axes
    np.testing.assert_allclose(ax.lines[0].get_xydata(), list(cost.items()))
    assert set(ax.lines[1].get_xdata()) == {16}
    assert "ns" in ax.get_ylabel()
    assert faults(fig) == []


def test_blocks_states_the_sizes_in_bytes():
    fig = ladder.blocks((64, 64, 256))
    said = words(fig)
    assert "64 × 256\n64 KiB" in said
    assert "64 × 64\n16 KiB" in said
    assert "out" in said
    assert faults(fig) == []
    assert "2 MiB" in words(ladder.blocks((512, 64, 1024)))


@pytest.mark.parametrize("lanes", [4, 8, 16])
def test_register_tile_has_two_vectors_a_row(lanes):
    fig = ladder.register_tile(6, lanes, 384)
    (ax,) = fig.axes
    tile = [text.get_text() for text in texts(fig) if text.get_text().startswith("sum")]
    assert tile == [f"sum {number}" for number in range(1, 13)]
    assert len(squares(ax, "teal")) == 12
    assert f"384 rows of 2 × {lanes} numbers" in words(fig)
    assert faults(fig) == []


RATES = {"three loops": 0.01, "compiled": 0.7, "blocked": 33.0, "BLAS": 90.0}


@pytest.mark.parametrize("ceiling", [95.0, 88.0, 300.0])
def test_rungs_are_held_against_the_ceiling(ceiling):
    fig = ladder.rungs(RATES, ceiling, extrapolated=["three loops"])
    (ax,) = fig.axes
    assert [bar.get_width() for bar in ax.patches] == list(RATES.values())
    assert [bool(bar.get_hatch()) for bar in ax.patches] == [True, False, False, False]
    said = words(fig)
    assert f"33 GFLOP/s, {100 * 33 / ceiling:.0f} %" in said
    assert "below 1 %" in said
    assert set(ax.lines[0].get_xdata()) == {ceiling}
    assert ax.get_xlim()[1] > max(90, ceiling)
    assert ax.get_xlabel() == "GFLOP/s"
    assert faults(fig) == []


def test_passes_draws_pairs():
    pairs = {"AdamW": (38.0, 7.4), "loss and its gradient": (14.9, 16.2), "linear": (14.1, 13.0)}
    fig = ladder.passes(pairs, ("in several passes", "in one"))
    (ax,) = fig.axes
    widths = [bar.get_width() for bar in ax.patches]
    assert widths == [38.0, 14.9, 14.1, 7.4, 16.2, 13.0]
    assert "16.2 ms" in words(fig)
    assert "ms" in ax.get_xlabel()
    assert faults(fig) == []


def test_by_rows_draws_both():
    rates = {1: 6.0, 2: 10.0, 4: 14.0, 16: 30.0, 64: 70.0, 256: 90.0}
    roof = {1: 6.5, 2: 13.0, 4: 26.0, 16: 103.0, 64: 103.0, 256: 103.0}
    fig = ladder.by_rows(rates, roof)
    (ax,) = fig.axes
    allowed, measured = ax.lines
    np.testing.assert_allclose(allowed.get_xydata(), list(roof.items()))
    np.testing.assert_allclose(measured.get_xydata(), list(rates.items()))
    assert allowed.get_linestyle() != measured.get_linestyle()
    assert faults(fig) == []
