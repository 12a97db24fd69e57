"""Laws of scaling against numbers worked by hand, and the wiki's table against its own times."""

from __future__ import annotations

import math

import numpy as np
import pytest

from gpt2lib.config import GPT2Config
from gpt2lib.perf.scaling import (
    amdahl,
    efficiency,
    fit_amdahl,
    gustafson,
    karp_flatt,
    speedup,
    wiki,
)


def test_amdahl_by_hand():
    """A tenth serial on 9 threads: 1 / (0.1 + 0.9 / 9) = 5; never more than 10."""
    assert amdahl(9, 0.1) == pytest.approx(5)
    assert amdahl(10**9, 0.1) == pytest.approx(10)
    assert amdahl(1, 0.3) == pytest.approx(1)


def test_gustafson_by_hand():
    """A tenth serial on 9 threads: 0.1 + 0.9 * 9 = 8.2."""
    assert gustafson(9, 0.1) == pytest.approx(8.2)


def test_karp_flatt_by_hand():
    """24.7 on 112 threads: (1/24.7 - 1/112) / (1 - 1/112) = 0.0315573 / 0.9910714 = 0.031842."""
    assert karp_flatt(24.7, 112) == pytest.approx(0.031842, abs=1e-6)
    assert karp_flatt(2.0, 2) == 0
    assert karp_flatt(2.1, 2) < 0  # more than perfect


@pytest.mark.parametrize("serial", [0.0, 0.01, 0.4, 1.0])
def test_the_fit_finds_the_law_that_made_the_times(serial):
    threads = [1, 2, 3, 8, 64]
    fit = fit_amdahl(threads, [7.0 / amdahl(p, serial) for p in threads])
    assert fit.serial == pytest.approx(serial, abs=1e-9)
    assert fit.one_thread == pytest.approx(7)
    assert fit.error == pytest.approx(0, abs=1e-9)


def test_the_fit_is_the_best_there_is():
    """Against a search over a grid of all serial parts and one-thread times."""
    rng = np.random.default_rng(0)
    threads = np.array([1, 2, 4, 8])
    for serial in (0.0, 0.02, 0.3):
        times = np.array([10 / amdahl(p, serial) for p in threads]) * rng.uniform(0.9, 1.1, 4)
        fit = fit_amdahl(threads.tolist(), times.tolist())

        def miss(f, one, times=times):
            return np.sum((one * (f + (1 - f) / threads) / times - 1) ** 2)

        best = min(miss(f, one) for f in np.linspace(0, 1, 201) for one in np.linspace(5, 15, 201))
        assert 0 <= fit.serial <= 1
        assert miss(fit.serial, fit.one_thread) <= best + 1e-12


def test_more_than_perfect_is_no_negative_serial_part():
    fit = fit_amdahl([1, 2], [10.0, 4.0])
    assert fit.serial == 0
    assert fit.error > 0.05  # and the fit says that it does not fit


def test_slower_with_threads_is_all_serial():
    fit = fit_amdahl([1, 2], [10.0, 12.0])
    assert fit.serial == 1


@pytest.mark.parametrize(
    "call",
    [
        lambda: amdahl(0, 0.1),
        lambda: amdahl(2, -0.1),
        lambda: amdahl(2, math.nan),
        lambda: gustafson(2, 1.1),
        lambda: karp_flatt(1.0, 1),
        lambda: karp_flatt(0.0, 2),
        lambda: karp_flatt(math.nan, 2),
        lambda: speedup(0, 1),
        lambda: speedup(1, math.inf),
        lambda: efficiency(1.0, 0),
        lambda: fit_amdahl([1, 1], [1.0, 1.0]),
        lambda: fit_amdahl([1, 2], [1.0]),
        lambda: fit_amdahl([1, 2], [1.0, math.nan]),
        lambda: fit_amdahl([1, 2], [1.0, 0.0]),
    ],
)
def test_what_cannot_be_is_refused(call):
    with pytest.raises(ValueError, match=r"must|needs|share|every time|there are"):
        call()


def test_the_wikis_table_agrees_with_its_own_times():
    data = wiki()
    assert data["parameters"] == GPT2Config.preset(data["model"]).parameter_count
    assert data["source"]
    first = data["rows"][0]["mean_ms"]
    for row in data["rows"]:
        gain = speedup(first, row["mean_ms"])
        assert round(gain, 1) == row["speedup"]
        assert round(efficiency(row["speedup"], row["threads"]), 2) == row["efficiency"]
