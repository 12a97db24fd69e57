import numpy as np
import pytest
from matplotlib.collections import PolyCollection
from matplotlib.colors import to_rgb

from gpt2lib.figures import PALETTE, to_svg
from gpt2lib.figures.timeline import GROUPS, describe, group_of, timeline
from gpt2lib.kernels import kernels
from gpt2lib.perf.timeline import Timeline
from gpt2lib.runtimes import TraceBuffer
from tests.figures.looks import faults, words

pytestmark = pytest.mark.usefixtures("book_style")

LABELS = {
    1: "linear_forward_tiles",
    2: "attention_forward_blocks",
    3: "add_partials",
    4: "adamw_up",
}
OPERATIONS = ("linear_forward", "attention_forward", "head_backward", "adamw_update")


def made(*records, threads=2, duration=100_000, notes=True):
    array = np.array([(*r[:2], *r[2:5]) for r in records], TraceBuffer.dtype)
    record = Timeline(threads, duration, array, LABELS)
    if not notes:
        return record
    noted = np.array([r[5:] for r in records], Timeline.note)
    return record.with_notes(noted, OPERATIONS)


@pytest.fixture
def record():
    """region, chunk, thread, start, end; operation, layer, phase, iteration."""
    return made(
        (1, 0, 0, 10_000, 40_000, 0, 0, 0, 0),
        (1, 1, 1, 10_000, 30_000, 0, 0, 0, 0),
        (3, 0, 0, 60_000, 80_000, 2, -1, 1, 0),
        (4, 0, 0, 85_000, 95_000, 3, -1, 2, 0),
    )


def boxes(ax):
    """(colour name, left, right, thread) of every chunk."""
    names = {to_rgb(PALETTE[color]): color for color, _ in GROUPS.values()}
    found = []
    for group in ax.findobj(PolyCollection):
        color = names[tuple(group.get_facecolor()[0][:3])]
        for path in group.get_paths():
            (left, top), (right, bottom) = path.vertices.min(0), path.vertices.max(0)
            found.append((color, float(left), float(right), round((top + bottom) / 2)))
    return sorted(found)


def test_every_chunk_is_where_and_as_long_as_it_was(record):
    fig = timeline(record, title="a run")
    lanes, below = fig.axes
    # The sum of parts is head_backward's, as its note says.
    assert boxes(lanes) == [
        ("blue", 10, 30, 1),
        ("blue", 10, 40, 0),
        ("plum", 85, 95, 0),
        ("teal", 60, 80, 0),
    ]
    assert "µs" in lanes.get_xlabel()
    text = words(fig)
    for word in ("thread 0", "thread 1", "forward", "backward", "idle", "AdamW", "a run"):
        assert word in text
    assert "attention" not in text  # there is none
    shares = record.efficiency()
    for share in shares:
        assert f"{share:.3f}" in text
    bars = [patch.get_width() for patch in below.patches if patch.get_width() < 1]
    assert sorted(bars) == pytest.approx(sorted(share for share in shares if share < 1))
    assert faults(fig) == []


def test_without_notes_the_kernel_says_the_group(record):
    fig = timeline(Timeline(2, record.duration, record.records, LABELS))
    assert [color for color, *_ in boxes(fig.axes[0])] == ["blue", "blue", "gold", "plum"]
    assert "forward" not in words(fig)
    assert faults(fig) == []


def test_tens_of_thousands_of_chunks_are_one_picture():
    count = 30_000
    array = np.zeros(count, TraceBuffer.dtype)
    array["region"] = 1 + np.arange(count) % 2
    array["thread"] = np.arange(count) % 16
    array["start_ns"] = 1_000 * (np.arange(count) // 16)
    array["end_ns"] = array["start_ns"] + 900
    svg = to_svg(timeline(Timeline(16, 2_000_000, array, LABELS)), alt="many")
    assert "<image" in svg
    assert len(svg) < 400_000


def test_many_threads_stay_on_a_page(record):
    many = Timeline(112, record.duration, record.records, LABELS)
    fig = timeline(many)
    assert fig.get_size_inches()[1] < 11
    assert faults(fig) == []


def test_an_empty_record_can_be_drawn():
    assert "idle" in words(timeline(made(notes=False)))


def test_every_kernel_has_a_group():
    groups = {name: group_of(name) for name in kernels()}
    assert set(groups.values()) == set(GROUPS)
    assert groups["weight_gradient_tiles"] == groups["linear_stream_rows"] == "linear layers"
    assert groups["gelu_gradient_elements"] == "LayerNorm, GELU, residual"
    assert (
        groups["gelu_forward_elements"]
        == groups["zero_elements"]
        != groups["adamw_update_elements"]
    )
    assert groups["head_mask_forward_rows"] == "attention"
    assert groups["head_backward_tokens"] == groups["cross_entropy_forward_rows"] == "head and loss"


def test_groups_differ_in_grey():
    """By lightness, or by a hatch."""
    looks = []
    for color, hatch in GROUPS.values():
        red, green, blue = to_rgb(PALETTE[color])
        looks.append((0.2126 * red + 0.7152 * green + 0.0722 * blue, hatch))
    for i, (light, hatch) in enumerate(looks):
        for other, other_hatch in looks[i + 1 :]:
            assert abs(light - other) > 0.1 or hatch != other_hatch


def test_the_description_has_the_numbers(record):
    text = describe(record)
    assert "2 threads over 100 µs, with 4 chunks" in text
    assert "Between 40% and 80% of a thread's time is idle" in text
    assert f"{record.efficiency().parallel:.3f}" in text
