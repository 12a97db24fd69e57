"""Comparisons: what is found, what is not, and how often they err."""

from __future__ import annotations

import copy
import json

import numpy as np
import pytest
from scipy import stats

from gpt2lib.perf import compare as module
from gpt2lib.perf import compare_page
from gpt2lib.perf.compare import compare
from tests.perf import made_up, rates
from tests.perf.test_report import NASTY, Page

FIVE = {"sequential": (1,), "threads": (1, 2), "openmp": (1, 2)}


@pytest.fixture(scope="module")
def before():
    return made_up.results(seed=1)


@pytest.fixture(scope="module")
def after():
    return made_up.results(seed=2, slower={"attention_forward": 1.2, "adamw_update": 1 / 1.25})


@pytest.fixture(scope="module")
def found(before, after):
    return compare(before, after, names=("old", "new"))


# --- How often it errs ----------------------------------------------------------------------------


@pytest.mark.parametrize("repeats", [3, 4])
def test_twenty_repeats_of_one_version_give_one_false_alarm_at_most(repeats):
    alarms = [rates.ours(*rates.pair(seed, repeats, threads=FIVE)) for seed in range(20)]
    assert sum(map(bool, alarms)) <= 1, alarms


@pytest.mark.parametrize("repeats", [3, 4])
@pytest.mark.parametrize(("factor", "verdict"), [(1.2, "slower"), (1 / 1.2, "faster")])
def test_a_fifth_more_or_less_time_of_one_operation_is_found(repeats, factor, verdict):
    hits, others = 0, 0
    for seed in range(20):
        name = rates.SLOWED[seed % len(rates.SLOWED)]
        changes = rates.ours(*rates.pair(seed, repeats, {name: factor}, FIVE))
        hits += (name, verdict) in changes
        others += bool({change for change in changes if change[0] not in (name, "total")})
    assert hits >= 19
    assert others <= 1


def test_a_slower_total_is_found():
    slow = {row["operation"]: 1.2 for row in made_up.operations()}
    changes = rates.ours(*rates.pair(0, 4, slow, FIVE))
    assert ("total", "slower") in changes


def test_simpler_ways_fail_as_the_text_says():
    same = [rates.pair(seed, 3) for seed in range(6)]
    assert sum(bool(rates.bootstrap(*pair)) for pair in same) >= 3
    slowed = [rates.pair(seed, 3, {"adamw_update": 1.2}) for seed in range(6)]
    assert not any(rates.rank_test(*pair) for pair in slowed)


# --- What the numbers are -------------------------------------------------------------------------


def test_the_ratio_is_hodges_and_lehmanns(before, after, found):
    def times(results):
        return [
            row["ms"]
            for run in results["runs"]
            if (run["runtime"], run["threads"]) == ("threads", 2)
            for row in run["operations"]
            if row["operation"] == "adamw_update"
        ]

    a, b = times(before), times(after)
    (row,) = [
        row
        for row in found.rows
        if (row.runtime, row.threads, row.operation) == ("threads", 2, "adamw_update")
    ]
    assert row.ratio == pytest.approx(np.exp(np.median([np.log(y / x) for x in a for y in b])))
    assert row.before_ms == pytest.approx(np.median(a), rel=0.01)
    assert (row.runs_before, row.runs_after) == (4, 4)
    assert row.low < row.ratio < row.high
    assert row.verdict == "faster"


def test_the_total_of_a_run_is_the_median_of_its_later_iterations(before, found):
    runs = [run for run in before["runs"] if run["runtime"] == "sequential"]
    medians = [np.median([s["total_ms"] for s in run["iterations"][1:]]) for run in runs]
    (row,) = [r for r in found.rows if (r.runtime, r.operation) == ("sequential", "total")]
    assert row.before_ms == pytest.approx(np.exp(np.median(np.log(medians))))


def test_all_runtimes_together_are_geometric_means_of_rounds(before, found):
    rounds = {}
    for run in before["runs"]:
        ms = next(r["ms"] for r in run["operations"] if r["operation"] == "zero")
        rounds.setdefault(run["repeat"], []).append(ms)
    means = [stats.gmean(values) for values in rounds.values()]
    row = next(r for r in found.rows if r.operation == "zero")
    assert (row.runtime, row.threads) == module.ALL
    assert row.before_ms == pytest.approx(np.exp(np.median(np.log(means))))


def test_turning_the_two_round_turns_the_ratio_round(before, after, found):
    back = compare(after, before)
    rows = {(r.runtime, r.threads, r.operation, r.shape): r for r in back.rows}
    swap = {"slower": "faster", "faster": "slower", "same": "same"}
    for row in found.rows:
        other = rows[row.runtime, row.threads, row.operation, row.shape]
        assert other.ratio == pytest.approx(1 / row.ratio)
        assert other.low == pytest.approx(1 / row.high, rel=1e-3)
        assert other.verdict == swap[row.verdict]


def test_intervals_cover_what_is_true():
    """Normal noise of one size, 20 rows, 3 runs against 4: all intervals hold, 99 times of 100."""
    rng = np.random.default_rng(0)
    missed = 0
    for _ in range(300):
        logs = [(0.03 * rng.standard_normal(3), 0.03 * rng.standard_normal(4)) for _ in range(20)]
        missed += any(abs(c) > half for c, half in module._intervals(logs, 0.005 / 20))
    assert missed <= 9  # 3 are expected


def test_a_single_row_has_students_interval():
    """Nothing to learn from other rows: half the width is t times the shift's own error."""
    x, y = np.array([0.0, 0.02, 0.05]), np.array([0.01, 0.03, 0.06])
    ((center, half),) = module._intervals([(x, y)], 0.005)
    assert center == pytest.approx(0.01)
    pooled = np.sqrt((np.var(x, ddof=1) + np.var(y, ddof=1)) / 2)
    student = stats.t.isf(0.005, 4) * pooled * np.sqrt(2 / 3)
    assert half == pytest.approx(student, rel=0.25)  # medians instead of means


def test_the_typical_variance_is_recovered():
    rng = np.random.default_rng(1)
    d, d0, s0 = 6, 10, 0.0009
    true = s0 * d0 / rng.chisquare(d0, 4000)
    s2 = true * rng.chisquare(d, 4000) / d
    level, weight = module._prior(s2, np.full(4000, float(d)))
    assert level == pytest.approx(s0, rel=0.05)
    assert weight == pytest.approx(d0, rel=0.2)


def test_one_disturbed_run_changes_no_verdict(before):
    disturbed = made_up.results(seed=2)
    for run in disturbed["runs"]:
        if run["repeat"] == 2:
            for row in run["operations"]:
                row["ms"] *= 3
            for step in run["iterations"]:
                step["total_ms"] *= 3
    assert {row.verdict for row in compare(before, disturbed).rows} == {"same"}


# --- What else differs ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "value"),
    [("preset", "tiny"), ("batch", 8), ("seq", 128), ("config", {"vocab_size": 7})],
)
def test_other_work_is_refused_in_words(before, key, value):
    other = copy.deepcopy(before)
    other["settings"][key] = value
    with pytest.raises(ValueError, match=f"before measured {key} .*different work"):
        compare(before, other)


def test_another_machine_is_said_loudly_and_compared(before, after):
    other = copy.deepcopy(after)
    other["machine"]["processor"] = "Other 1"
    other["settings"]["matmul"] = "naive"
    other["finished"] = False
    other["ceilings"][1]["sgemm_gflops"] *= 0.5
    found = compare(before, other, names=("old", "new"))
    said = "\n".join(found.warnings)
    assert "different machines: processor is Imagined 3000 in old, Other 1 in new" in said
    assert "matmul is blas in old, naive in new" in said
    assert "new is not finished" in said
    assert "on 2 threads sgemm had 0.50 times the rate in new" in said
    assert found.of("slower")


def test_versions_and_what_has_no_counterpart_are_notes(before, after):
    other = made_up.without(after, "sequential", "threads")
    other["versions"] = {**other["versions"], "numpy": "9.9"}
    for run in other["runs"]:
        run["operations"] = [
            {**row, "operation": row["operation"].replace("zero", "nought")}
            for row in run["operations"]
        ]
    found = compare(before, other, names=("old", "new"))
    assert found.warnings == ()
    assert "numpy: 2.1.0 in old, 9.9 in new" in found.notes
    assert "only in old: openmp, 2 threads" in found.notes
    assert "only in old: zero" in found.notes
    assert "only in new: nought" in found.notes
    assert {row.runtime for row in found.rows} == {"all", "sequential", "threads"}


def test_nothing_in_common_is_an_error(before, after):
    with pytest.raises(ValueError, match="no runtime with the same number of threads in common"):
        compare(made_up.without(before, "threads"), made_up.without(after, "openmp"))


def test_one_run_on_either_side_is_an_error():
    one = made_up.results(repeats=1)
    with pytest.raises(ValueError, match="nothing is known about the noise"):
        compare(one, made_up.results(repeats=1, seed=3))


def test_few_runs_are_said(before):
    found = compare(before, made_up.results(repeats=1, seed=3))
    assert any("1 run on one side" in text for text in found.warnings)


def test_runs_that_differ_much_are_said():
    wild = [made_up.results(repeats=3, seed=seed, run_noise=0.5) for seed in (1, 2)]
    assert any("cannot be seen" in text for text in compare(*wild).warnings)


def test_the_same_file_twice_is_said(before):
    found = compare(before, before)
    assert any("the same measurements" in text for text in found.warnings)
    assert {row.verdict for row in found.rows} == {"same"}


@pytest.mark.parametrize("options", [{"confidence": 1.0}, {"confidence": 0.2}, {"threshold": -1}])
def test_senseless_options_are_refused(before, options):
    with pytest.raises(ValueError, match=next(iter(options))):
        compare(before, before, **options)


# --- Files ----------------------------------------------------------------------------------------


def test_the_files(found, before, tmp_path):
    paths = compare_page.write(tmp_path, [found, compare(before, before, names=("old", NASTY))])
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(path.name for path in paths)
    record = json.loads((tmp_path / "comparison.json").read_text(encoding="utf-8"))
    rows = record["comparisons"][0]["rows"]
    assert len(rows) == len(found.rows)
    assert rows[0]["verdict"] == found.rows[0].verdict
    text = (tmp_path / "comparison.html").read_text(encoding="utf-8")
    page = Page(text)
    assert "script" not in page.tags
    assert page.tags.count("svg") == 2
    cells = [row for row in page.rows if row[:2] == ["threads, 2 threads", "adamw_update"]]
    assert cells[0][-1] == "faster"
    assert 'class="slower">slower<' in text
    assert (tmp_path / "change-2.svg").read_text(encoding="utf-8").startswith("<?xml")
