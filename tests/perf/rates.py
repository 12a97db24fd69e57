"""How often a comparison errs, on made-up results: ``python -m tests.perf.rates [HOW MANY]``.

Two benchmarks of the same version, in sittings up to 2 % apart: is anything called slower or
faster? And one operation that takes 20 % longer: is it found? Beside the library's way stand two
that one might have taken instead: a rank test of the runs, and a bootstrap of runs and, within
them, iterations (which an operation has only one of).
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import numpy as np

from gpt2lib.perf.compare import compare
from gpt2lib.perf.reading import run_values
from tests.perf import made_up

THREE = {"sequential": (1,), "threads": (1, 2)}
SLOWED = ("linear_forward", "attention_backward", "layernorm_forward", "adamw_update")
Results = dict
Found = set[tuple[str, str]]  # operation, direction


def pair(seed: int, repeats: int, slower: dict[str, float] | None = None, threads=THREE):
    """Two benchmarks in two sittings; the second one may have a slower operation."""
    sitting = float(np.random.default_rng(seed).uniform(0.98, 1.02))
    before = made_up.results(threads=threads, repeats=repeats, seed=2 * seed)
    after = made_up.results(
        threads=threads, repeats=repeats, seed=2 * seed + 1, sitting=sitting, slower=slower
    )
    return before, after


def ours(before: Results, after: Results) -> Found:
    rows = compare(before, after).rows
    return {(row.operation, row.verdict) for row in rows if row.verdict != "same"}


def rank_test(before: Results, after: Results) -> Found:
    """Mann and Whitney's test of the runs at 1 %, and at least 5 %."""
    from scipy import stats

    a, b = run_values(before), run_values(after)
    found = set()
    for key in a:
        x, y = (np.log(list(side[key].values())) for side in (a, b))
        center = float(np.median(y) - np.median(x))
        if abs(center) > np.log(1.05) and stats.mannwhitneyu(x, y).pvalue < 0.01:
            found.add((key[2], "slower" if center > 0 else "faster"))
    return found


def bootstrap(before: Results, after: Results) -> Found:
    """The 99 % interval of 1 000 draws of runs and iterations beyond zero, and at least 5 %."""
    rng = np.random.default_rng(0)
    a, b = _values(before), _values(after)
    found = set()
    for key in a:
        draws = _draw(rng, b[key]) - _draw(rng, a[key])
        low, center, high = np.quantile(draws, [0.005, 0.5, 0.995])
        if (low > 0 or high < 0) and abs(center) > np.log(1.05):
            found.add((key[2], "slower" if center > 0 else "faster"))
    return found


def _values(results: Results) -> dict[tuple, list[np.ndarray]]:
    """Logarithms of every run's iterations, or of its one time of an operation."""
    found: dict[tuple, list[np.ndarray]] = {}
    for run in results["runs"]:
        key = run["runtime"], run["threads"]
        times = [step["total_ms"] for step in run["iterations"][1:]]
        found.setdefault((*key, "total", ""), []).append(np.log(times))
        for row in run["operations"]:
            key_of_row = (*key, row["operation"], row["shape"])
            found.setdefault(key_of_row, []).append(np.log([row["ms"]]))
    return found


def _draw(rng: np.random.Generator, runs: list[np.ndarray], count: int = 1000) -> np.ndarray:
    """Medians over the runs of medians over the iterations, both drawn with replacement."""
    values = np.stack(runs)
    which = rng.integers(0, len(values), (count, len(values), 1))
    steps = rng.integers(0, values.shape[1], (count, len(values), values.shape[1]))
    return np.median(np.median(values[which, steps], axis=2), axis=1)


def rates(
    way: Callable[[Results, Results], Found], repeats: int, count: int, threads=THREE
) -> tuple[float, float]:
    """The share of repeats with a false alarm, and of slow-downs that were found."""
    alarms = found = 0
    for seed in range(count):
        alarms += bool(way(*pair(seed, repeats, threads=threads)))
        name = SLOWED[seed % len(SLOWED)]
        changed = way(*pair(seed, repeats, {name: 1.2}, threads))
        found += (name, "slower") in changed
    return alarms / count, found / count


def main(count: int) -> None:
    one = {"threads": (2,)}
    for threads, said in ((THREE, "three pairs"), (one, "one pair")):
        for repeats in (2, 3, 4, 6):
            for way in (ours, rank_test, bootstrap):
                alarms, found = rates(way, repeats, count, threads)
                print(
                    f"{said:12s} {repeats} repeats  {way.__name__:10s}"
                    f"  false alarms {alarms:4.0%}  found {found:4.0%}",
                    flush=True,
                )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 100)
