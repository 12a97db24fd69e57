import copy

import numpy as np
import pytest

from gpt2lib import figures
from gpt2lib.figures import performance
from gpt2lib.perf.compare import compare
from tests.figures.looks import faults, words
from tests.perf import made_up

pytestmark = pytest.mark.usefixtures("book_style")

FIVE = dict.fromkeys(("threads", "openmp", "tbb", "nosv"), (1, 2))
FIVE = {"sequential": (1,), **FIVE}
MANY = {"threads": (1, 2, 4, 8, 16, 28, 56, 112), "openmp": (1, 7, 28, 112)}
TINY = {"vocab_size": 512, "context": 256, "layers": 4, "heads": 4, "channels": 128}
ALL = ("iteration_times", "means", "scaling", "karp_flatt", "breakdown", "roofline")


@pytest.fixture(scope="module")
def results():
    return made_up.results()


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"threads": FIVE, "iterations": 40},
        {"threads": MANY, "repeats": 2},
        {"threads": {"threads": (2,)}, "repeats": 1, "iterations": 2},
        {"config": TINY, "preset": "tiny"},
    ],
    ids=["usual", "five runtimes", "112 threads", "one run", "tiny"],
)
def test_every_figure_can_be_read(name, options):
    fig = getattr(performance, name)(made_up.results(**options))
    assert faults(fig) == []
    assert fig.get_size_inches()[0] <= 7.6
    assert 'aria-label="what"' in figures.picture(fig, alt="what").html


def test_iteration_times_draws_every_run_and_marks_iteration_0(results):
    fig = performance.iteration_times(results)
    lines = [line for ax in fig.axes for line in ax.lines]
    curves = [line.get_ydata() for line in lines if len(line.get_xdata()) > 1]
    marks = sorted(line.get_ydata()[0] for line in lines if len(line.get_xdata()) == 1)
    times = [[step["total_ms"] for step in run["iterations"]] for run in results["runs"]]
    assert sorted(map(tuple, curves)) == sorted(map(tuple, times))
    assert marks == sorted(run[0] for run in times)
    assert {line.get_xdata()[0] for line in lines} == {0}
    assert [ax.get_title(loc="left") for ax in fig.axes[:3]] == ["sequential", "threads", "openmp"]
    assert {ax.get_yscale() for ax in fig.axes} == {"linear"}


def test_iteration_times_are_logarithmic_where_the_first_is_far_off(results):
    compiled = copy.deepcopy(results)
    compiled["runs"][0]["iterations"][0]["total_ms"] = 60_000.0
    fig = performance.iteration_times(compiled)
    assert fig.axes[0].get_yscale() == "log"
    assert faults(fig) == []


def test_means_agree_with_the_summary_and_the_fastest_comes_first(results):
    fig = performance.means(results)
    (ax,) = fig.axes
    rows = sorted(results["summary"], key=lambda row: row["mean_ms"])
    np.testing.assert_allclose(
        [bar.get_width() for bar in ax.patches], [row["mean_ms"] for row in rows]
    )
    for row, line in zip(rows, ax.lines[::2], strict=True):
        low, high = line.get_xdata()
        assert (high - low) / row["median_ms"] == pytest.approx(row["spread"])
    assert f"spread {rows[0]['spread']:.1%}" in words(fig)
    assert "ms" in ax.get_xlabel()


def test_scaling_draws_the_speedups_of_the_summary_and_says_the_serial_part():
    exact = made_up.results(threads=MANY, run_noise=0.0, noise=0.0, outliers=0.0)
    fig = performance.scaling(exact)
    left, right = fig.axes
    rows = [row for row in exact["summary"] if row["runtime"] == "threads"]
    dots = next(line for line in left.lines if len(line.get_xdata()) == 8)
    np.testing.assert_allclose(dots.get_ydata(), [row["speedup"] for row in rows])
    dots = next(line for line in right.lines if len(line.get_xdata()) == 8)
    np.testing.assert_allclose(dots.get_ydata(), [row["efficiency"] for row in rows])
    assert f"threads: serial part {made_up.SERIAL:.1%}" in words(fig)  # it was made of that law
    law = left.lines[1]  # over the same reference, it goes through the points
    np.testing.assert_allclose(law.get_ydata()[-1], rows[-1]["speedup"], rtol=1e-6)


def test_karp_flatt_is_flat_where_amdahl_is_all_there_is():
    exact = made_up.results(threads=MANY, run_noise=0.0, noise=0.0, outliers=0.0)
    fig = performance.karp_flatt(exact)
    (ax,) = fig.axes
    for line in ax.lines[:2]:
        np.testing.assert_allclose(line.get_ydata(), made_up.SERIAL, rtol=1e-9)
    np.testing.assert_array_equal(ax.lines[1].get_xdata(), [7, 28, 112])


@pytest.mark.parametrize("name", ["scaling", "karp_flatt"])
def test_one_number_of_threads_is_said_not_raised(name):
    fig = getattr(performance, name)(made_up.results(threads={"threads": (2,)}))
    assert "no scaling to draw" in words(fig)


def test_the_sequential_runtime_serves_as_one_thread():
    fig = performance.scaling(made_up.results(threads={"sequential": (1,), "tbb": (2,)}))
    assert "tbb: serial part" in words(fig)


def test_breakdown_says_every_large_operation_and_sums_the_small_ones(results):
    fig = performance.breakdown(results, "threads", 2)
    (ax,) = fig.axes
    own = [run["operations"] for run in results["runs"]]
    own = [
        rows
        for rows, run in zip(own, results["runs"], strict=True)
        if (run["runtime"], run["threads"]) == ("threads", 2)
    ]
    medians = np.median([[row["ms"] for row in rows] for rows in own], axis=0)
    bars = [bar.get_width() for bar in ax.patches]
    np.testing.assert_allclose(sum(bars), medians.sum())
    assert sorted(bars[:-1], reverse=True) == bars[:-1]
    labels = [t.get_text() for t in ax.get_yticklabels()]
    assert "linear_gelu_backward 768→3072  ×12" in labels
    assert "each below 1%" in labels[-1]
    assert "threads, 2 threads" in words(fig)


def test_roofline_places_every_operation_below_the_measured_ceilings(results):
    fig = performance.roofline(results, threads=1)
    (ax,) = fig.axes
    sgemm, read = ax.lines[0].get_xydata(), ax.lines[1].get_xydata()
    assert sgemm[1, 1] == made_up.SGEMM
    np.testing.assert_allclose(read[:, 1] / read[:, 0], made_up.READ)
    assert "memory, copy: 7 GB/s" in words(fig)
    spots = [line.get_xydata()[0] for line in ax.lines if len(line.get_xdata()) == 1]
    rows = [row for row in made_up.operations() if row["flops"]]
    assert len(spots) == len(rows)
    want = sorted(row["flops"] / row["bytes"] for row in rows)
    np.testing.assert_allclose(sorted(x for x, _ in spots), want)
    assert all(y < 1.2 * min(made_up.SGEMM, made_up.READ * x) for x, y in spots)
    assert {ax.get_xscale(), ax.get_yscale()} == {"log"}
    said = words(fig)
    assert "head 768→50257, back" in said
    assert "not shown: zero" in said


def test_roofline_without_ceilings_says_so(results):
    bare = {**results, "ceilings": []}
    assert "ceilings: not measured" in words(performance.roofline(bare))


def test_operations_that_nobody_timed_are_an_error_in_words(results):
    with pytest.raises(ValueError, match=r"no timed operations of tbb .*there are: openmp, 1"):
        performance.breakdown(results, "tbb")


def test_results_without_a_finished_run_are_an_error_in_words(results):
    empty = {**results, "runs": []}
    for name in ALL:
        with pytest.raises(ValueError, match="no finished run"):
            getattr(performance, name)(empty)


def test_change_draws_totals_changes_and_the_operations_of_all_runtimes():
    before = made_up.results(seed=1)
    after = made_up.results(seed=2, slower={"attention_forward": 1.2, "adamw_update": 0.8})
    found = compare(before, after, names=("old", "new"))
    fig = performance.change(found)
    assert faults(fig) == []
    (ax,) = fig.axes
    shown = [t.get_text() for t in ax.get_yticklabels()]
    assert shown.count("all runtimes") == 1
    assert shown.count("zero") == 1
    dots = {round(float(line.get_xdata()[0]), 9) for line in ax.lines if len(line.get_xdata()) == 1}
    for verdict in ("slower", "faster"):
        for row in found.of(verdict):
            assert round(row.ratio, 9) in dots
            assert f"{verdict}, × {row.ratio:.2f}" in words(fig)
    assert "time of new over time of old" in ax.get_xlabel()
    assert f"{len(found.rows) - len(shown)} more rows are the same" in ax.get_xlabel()


@pytest.mark.parametrize("noise", [0.03, 0.5], ids=["quiet", "wild"])
@pytest.mark.parametrize("threads", [{"threads": (2,)}, FIVE], ids=["one pair", "nine pairs"])
def test_change_can_be_read(noise, threads):
    pair = [made_up.results(seed=s, threads=threads, run_noise=noise) for s in (1, 2)]
    assert faults(performance.change(compare(*pair))) == []
