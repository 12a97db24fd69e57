import itertools

import numpy as np
import pytest

from gpt2lib.perf.schedule import SCHEDULES, causal_costs, deal, schedule


def test_the_three_ways_by_hand():
    """Chunks of 1 to 6 on two threads.

    Dynamic: 0 takes 1, 1 takes 2; 0 is free at 1 and takes 3, 1 at 2 takes 4, 0 at 4 takes 5,
    1 at 6 takes 6.
    """
    costs = [1, 2, 3, 4, 5, 6]
    assert deal(costs, 2, "static") == [[0, 1, 2], [3, 4, 5]]
    assert deal(costs, 2, "cyclic") == [[0, 2, 4], [1, 3, 5]]
    assert deal(costs, 2, "dynamic") == [[0, 2, 4], [1, 3, 5]]
    assert deal(costs[::-1], 2, "dynamic") == [[0, 3, 4], [1, 2, 5]]
    ends = [schedule(costs, 2, how).duration for how in SCHEDULES]
    assert ends == [15_000_000_000, 12_000_000_000, 12_000_000_000, 11_000_000_000]
    assert deal(costs, 2, "longest first") == [[5, 2, 1], [4, 3, 0]]


@pytest.mark.parametrize("how", SCHEDULES)
@pytest.mark.parametrize(("chunks", "threads"), [(16, 4), (7, 3), (3, 5), (1, 1)])
def test_every_chunk_runs_once_and_takes_its_time(how, chunks, threads):
    costs = np.random.default_rng(1).uniform(0.1, 1, chunks)
    timeline = schedule(costs, threads, how)
    records = timeline.records
    assert sorted(records["chunk"]) == list(range(chunks))
    lasted = records["end_ns"] - records["start_ns"]
    np.testing.assert_allclose(lasted / 1e9, costs[records["chunk"]], atol=1e-9)
    assert timeline.threads == threads
    assert timeline.duration == records["end_ns"].max()


def test_dynamic_keeps_grahams_bounds():
    """No order is better than the mean or the longest chunk."""
    rng = np.random.default_rng(2)
    for _ in range(50):
        costs, threads = rng.uniform(0.01, 1, 12), int(rng.integers(2, 6))
        best = max(costs.sum() / threads, costs.max())
        assert schedule(costs, threads).duration / 1e9 <= (2 - 1 / threads) * best + 1e-6
        sorted_first = schedule(costs, threads, "longest first").duration / 1e9
        assert sorted_first <= (2 - 1 / threads) * best + 1e-6
        assert sorted_first == pytest.approx(schedule(np.sort(costs)[::-1], threads).duration / 1e9)


def test_causal_costs_make_a_triangle():
    """Row t of the mask has t + 1 ones."""
    mask = np.tril(np.ones((10, 10), int))
    assert causal_costs(10, 4).tolist() == [mask[a:b].sum() for a, b in ((0, 4), (4, 8), (8, 10))]
    assert all(a < b for a, b in itertools.pairwise(causal_costs(1024, 64)))
    assert causal_costs(1024, 64).sum() == 1024 * 1025 // 2


def test_what_cannot_be_is_refused():
    with pytest.raises(ValueError, match="guided"):
        deal([1], 2, "guided")
    with pytest.raises(ValueError, match="threads"):
        deal([1], 0, "static")
    for costs in ([], [1.0, 0.0]):
        with pytest.raises(ValueError, match="chunk"):
            schedule(costs, 2)
