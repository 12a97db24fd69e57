r"""What has become slower or faster from one benchmark to another, judged with regard to noise.

**What is repeated is the run.** The iterations of one process share its memory's layout, its place
on the cores and its neighbours on the machine: forty of them are not forty measurements. So every
run gives one value a row, the median of its iterations for the whole step and its time for an
operation, and only the scatter *between* runs is noise (Kalibera and Jones, 2013).

**Change.** Times are compared as logarithms. With a and b the runs before and after, the ratio is

.. math:: r = \exp\big(\operatorname{median}_{i,j}(\ln b_j - \ln a_i)\big),

the median of every run after over every run before (Hodges and Lehmann, 1963). One run that
something disturbed moves it little.

**Noise.** Three or four runs alone say little about their own scatter, but all rows come from one
machine. A row's variance :math:`s^2` with d degrees of freedom is drawn towards the typical one,
:math:`s_0^2`, which counts as much as :math:`d_0` more degrees; how much that is, is read off from
how far the rows differ (Smyth, 2004):

.. math:: \tilde s^2 = \frac{d_0 s_0^2 + d\,s^2}{d_0 + d}, \qquad
          \ln r \pm t_{d_0 + d}\; k\,\tilde s.

With eight runs or more in a row, its largest deviation is left out of :math:`s^2`. What that and
the medians do to d, :math:`s^2` and k (the standard deviation of ln r for noise of one) is found by
a simulation with normal noise, once for each number of runs.

**All runtimes together.** A change in an operation shows with every runtime. So there is a row for
each time in all of them: a round of the benchmark, one run of each pair, gives one value, the
geometric mean. These rows have a typical variance of their own.

**Many rows.** All intervals together hold with the confidence asked for: t is Bonferroni's.

**Verdict.** *Slower* means all of three: the ratio is above 1 + threshold (less is not worth a
word), the interval is above what two sittings of one program differ by (:data:`SITTING`), and nine
of ten pairs of a run before and one after agree, which is the rank test's part. *Faster* is the
mirror image. *Same* means that neither was shown: the interval says what is possible still.

**Why not something simpler.** A rank test alone cannot reach 1 % with three or four runs on each
side (its smallest p is 10 % and 3 %). A bootstrap of runs and iterations gives intervals that are
far too short for so few runs. In a simulation (3 % from run to run, 2 % between iterations,
outliers, two sittings up to 2 % apart, 22 rows a pair; ``python -m tests.perf.rates``), this is how
often two benchmarks of one version had a false alarm in any of their rows, and how often a 20 %
slow-down of one operation was found:

=========================  ============  ============  ============  ============
three pairs                2 runs        3 runs        4 runs        6 runs
=========================  ============  ============  ============  ============
false alarm, found: this   2 %, 78 %     0 %, 96 %     3 %, 100 %    1 %, 100 %
rank test at 1 %           0 %, 0 %      0 %, 0 %      0 %, 0 %      31 %, 100 %
bootstrap, 99 % interval   100 %, 100 %  91 %, 100 %   72 %, 100 %   37 %, 100 %
one pair: this             1 %, 36 %     1 %, 55 %     1 %, 83 %     0 %, 96 %
=========================  ============  ============  ============  ============

What it cannot know: whether the machine was busy during one of the two. Where the measured ceilings
differ too, a warning says so.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from gpt2lib.perf.reading import operation_label, pair_name, run_values

__all__ = ["ALL", "SITTING", "TOTAL", "Comparison", "Row", "compare"]

Array = np.ndarray[Any, Any]
Key = tuple[str, int, str, str]
Values = dict[Key, dict[int, float]]

#: The name of the row of a whole step.
TOTAL = "total"
#: The runtime and number of threads that stand for all pairs together.
ALL = ("all", 0)
#: What two sittings of the same program differ by, as a share of the time.
SITTING = 0.01

_FLOOR = 1e-3  # nobody's times are repeated better than to a thousandth
_AGREE = 0.9  # so many pairs of runs have to agree
_COARSE = 0.5  # intervals wider than that are worth a warning
_TRIM = 8  # from so many runs on, a row's largest deviation is left out of its variance


@dataclass(frozen=True)
class Row:
    """One time, before and after.

    Attributes
    ----------
    runtime, threads
        Of which runs; ``"all"`` and 0 for all pairs together, of which the times are geometric
        means.
    operation, shape
        :data:`TOTAL` for the whole step.
    before_ms, after_ms
        Medians of the runs, milliseconds of a step.
    ratio
        After over before.
    low, high
        Its interval; those of all rows hold together with the comparison's confidence.
    runs_before, runs_after
        How many.
    verdict
        ``"slower"``, ``"faster"`` or ``"same"``.
    """

    runtime: str
    threads: int
    operation: str
    shape: str
    before_ms: float
    after_ms: float
    ratio: float
    low: float
    high: float
    runs_before: int
    runs_after: int
    verdict: str

    @property
    def pair(self) -> str:
        """The runtime and its threads in words."""
        return pair_name(self.runtime, self.threads)

    @property
    def label(self) -> str:
        """The operation with its shape, or the pair where it is the whole step."""
        return self.pair if self.operation == TOTAL else operation_label(self.operation, self.shape)


@dataclass(frozen=True)
class Comparison:
    """What :func:`compare` found.

    Attributes
    ----------
    before, after
        What the two are called.
    confidence, threshold
        As they were asked for, as shares.
    warnings
        Why the times might differ for another reason than the program; in words.
    notes
        What else differs, and what could not be compared; in words.
    rows
        For each pair the whole step, then its operations, the longest first.
    """

    before: str
    after: str
    confidence: float
    threshold: float
    warnings: tuple[str, ...]
    notes: tuple[str, ...]
    rows: tuple[Row, ...]

    def of(self, verdict: str) -> list[Row]:
        """Return the rows with a verdict, the greatest change first."""
        rows = [row for row in self.rows if row.verdict == verdict]
        return sorted(rows, key=lambda row: -abs(math.log(row.ratio)))

    @property
    def resolution(self) -> float:
        """The change that half of the rows could not have hidden, as a share."""
        return float(np.median([math.sqrt(row.high / row.low) for row in self.rows])) - 1

    def to_dict(self) -> dict[str, Any]:
        """Return all of it for a JSON file."""
        return asdict(self)


def compare(
    results_a: Mapping[str, Any],
    results_b: Mapping[str, Any],
    *,
    confidence: float = 0.99,
    threshold: float = 0.05,
    names: tuple[str, str] = ("before", "after"),
) -> Comparison:
    """Compare two benchmarks of the same model and batch.

    Parameters
    ----------
    results_a, results_b
        Two ``results.json``, before and after.
    confidence
        That none of the intervals is wrong, between 0.5 and 1.
    threshold
        The smallest change that counts, as a share of the time.
    names
        What to call the two.

    Raises
    ------
    ValueError
        When model, batch or sequence differ; when they have no pair in common; when no row has
        more than one run on either side, so that nothing is known about the noise.

    Notes
    -----
    Kalibera and Jones (2013), "Rigorous benchmarking in reasonable time"; Hodges and Lehmann
    (1963), "Estimates of location based on rank tests"; Smyth (2004), "Linear models and empirical
    Bayes methods for assessing differential expression in microarray experiments". The module's
    text says what was made of them, and how often it errs.
    """
    if not 0.5 <= confidence < 1:
        raise ValueError(f"the confidence must be at least 0.5 and below 1, got {confidence!r}.")
    if not 0 <= threshold < 10:
        raise ValueError(f"the threshold is a share such as 0.05, got {threshold!r}.")
    _refuse_other_work(results_a, results_b, names)
    a, b = run_values(results_a), run_values(results_b)
    single = [key for key in a if key in b]
    if not single:
        raise ValueError(
            f"{names[0]} and {names[1]} have no runtime with the same number of threads in common."
        )
    notes = _notes(results_a, results_b, names, a, b)
    together = _together(single, a, b)
    keys = _order(together, a, b) + _order(single, a, b)
    logs = [tuple(np.log(list(side[key].values())) for side in (a, b)) for key in keys]
    tail = (1 - confidence) / 2 / len(keys)
    cut = len(together)
    estimates = (_intervals(logs[:cut], tail) if cut else []) + _intervals(logs[cut:], tail)
    rows = [
        _row(key, pair, estimate, threshold)
        for key, pair, estimate in zip(keys, logs, estimates, strict=True)
    ]
    warnings = _warnings(results_a, results_b, names, rows)
    found = Comparison(*names, confidence, threshold, tuple(warnings), tuple(notes), tuple(rows))
    if found.resolution <= _COARSE:
        return found
    warnings.append(
        f"these runs differ so much that in half of the rows a change below {_percent(found)} "
        "cannot be seen: measure on a machine that does nothing else, with more --repeats"
    )
    return replace(found, warnings=tuple(warnings))


def _percent(found: Comparison) -> str:
    return "1000 % and more" if found.resolution > 10 else f"{found.resolution:.0%}"


def _row(
    key: Key,
    logs: tuple[Array, ...],
    estimate: tuple[float, float],
    threshold: float,
) -> Row:
    """Judge one row."""
    center, half = estimate
    agree = float(np.mean(logs[1][:, None] > logs[0]))
    verdict, least = "same", math.log1p(threshold)
    if center > least and center - half > math.log1p(SITTING) and agree >= _AGREE:
        verdict = "slower"
    if center < -least and center + half < -math.log1p(SITTING) and agree <= 1 - _AGREE:
        verdict = "faster"
    low, ratio, high = (math.exp(center + side * half) for side in (-1, 0, 1))
    before, after = (float(np.exp(np.median(side))) for side in logs)
    return Row(*key, before, after, ratio, low, high, len(logs[0]), len(logs[1]), verdict)


def _together(keys: Sequence[Key], a: Values, b: Values) -> list[Key]:
    """Add to a and b the rows of all pairs together, and return their keys.

    Only rounds count in which every pair has a time, and only where two rounds are whole.
    """
    pairs = list(dict.fromkeys(key[:2] for key in keys))
    found = []
    for name, shape in dict.fromkeys(key[2:] for key in keys):
        own = [(*pair, name, shape) for pair in pairs]
        if len(pairs) < 2 or any(key not in keys for key in own):
            continue
        rounds = [set.intersection(*(set(side[key]) for key in own)) for side in (a, b)]
        if min(map(len, rounds)) < 2:
            continue
        for side, whole in zip((a, b), rounds, strict=True):
            side[(*ALL, name, shape)] = {
                r: math.exp(np.mean([math.log(side[key][r]) for key in own])) for r in sorted(whole)
            }
        found.append((*ALL, name, shape))
    return found


def _order(keys: Sequence[Key], a: Values, b: Values) -> list[Key]:
    """Put the whole step of each pair before its operations, and those in order of their time."""
    pairs = list(dict.fromkeys(key[:2] for key in keys))
    longest = {key: max(*a[key].values(), *b[key].values()) for key in keys}
    return sorted(keys, key=lambda key: (pairs.index(key[:2]), key[2] != TOTAL, -longest[key]))


# --- Noise ----------------------------------------------------------------------------------------


def _intervals(logs: Sequence[tuple[Array, ...]], tail: float) -> list[tuple[float, float]]:
    """Return (ln r, half its interval) for every row, with so much probability beyond each end."""
    from scipy import stats

    normal = [_normal(len(x), len(y)) for x, y in logs]
    raw = [
        _scatter(x, y) / n.scatter if n.df else math.nan
        for (x, y), n in zip(logs, normal, strict=True)
    ]
    prior, weight = _prior(np.maximum(raw, _FLOOR**2), np.array([n.df for n in normal]))
    found = []
    for (x, y), variance, n in zip(logs, raw, normal, strict=True):
        own = n.df * max(variance, _FLOOR**2) if n.df else 0.0
        df = n.df + weight
        spread = math.sqrt((prior * weight + own) / df if math.isfinite(df) else prior)
        found.append((_shift(x, y), float(stats.t.isf(tail, df)) * spread * n.shift))
    return found


def _shift(x: Array, y: Array) -> float:
    """Return Hodges and Lehmann's shift from x to y."""
    return float(np.median(y[:, None] - x))


def _scatter(x: Array, y: Array) -> float:
    """Return the sum of squares about the medians of both sides, without the largest of many."""
    squares = np.sort(np.concatenate([x - np.median(x), y - np.median(y)]) ** 2)
    return float(np.sum(squares[: len(squares) - (len(squares) >= _TRIM)]))


@dataclass(frozen=True)
class _Normal:
    """What the estimates of so many runs are for normal noise of standard deviation 1.

    Attributes
    ----------
    shift
        Standard deviation of :func:`_shift`.
    scatter
        What to divide :func:`_scatter` by, so that it estimates the variance.
    df
        Degrees of freedom: the logarithm of a variance with so many varies as much.
    """

    shift: float
    scatter: float
    df: float


@functools.lru_cache(maxsize=64)
def _normal(before: int, after: int, draws: int = 4000) -> _Normal:
    """Find them by a simulation, always with the same random numbers."""
    from scipy.special import digamma

    rng = np.random.default_rng(0)
    sides = [rng.standard_normal((draws, count)) for count in (before, after)]
    shift = float(np.std([_shift(x, y) for x, y in zip(*sides, strict=True)]))
    if before + after < 3:
        return _Normal(shift, 1.0, 0.0)
    scatter = np.log([_scatter(x, y) for x, y in zip(*sides, strict=True)])
    df = 2 * _inverse_trigamma(float(np.var(scatter)))
    bias = float(np.mean(scatter)) - float(digamma(df / 2)) + math.log(df / 2)
    return _Normal(shift, math.exp(bias), df)


def _prior(variances: Array, df: Array) -> tuple[float, float]:
    r"""Return the typical variance :math:`s_0^2` and how many degrees of freedom it is worth.

    The logarithms of variances with d degrees of freedom scatter by trigamma(d/2) if all rows have
    the same noise. What they scatter more is the rows' own (Smyth, 2004, section 6.2).
    """
    from scipy.special import digamma, polygamma

    known = df > 0
    if not known.any():
        raise ValueError(
            "there is one run on either side, so nothing is known about the noise: measure with "
            "gpt2lib bench --repeats 4."
        )
    s2, d = variances[known], df[known]
    logs = np.log(s2) - digamma(d / 2) + np.log(d / 2)
    if len(logs) == 1:
        return float(s2[0]), 0.0
    excess = float(np.var(logs, ddof=1) - np.mean(polygamma(1, d / 2)))
    most = float(d.sum() - d.mean())  # all other rows together
    weight = min(most, 2 * _inverse_trigamma(excess)) if excess > 1e-6 else most
    level = float(np.mean(logs) + digamma(weight / 2) - np.log(weight / 2))
    return math.exp(level), weight


def _inverse_trigamma(value: float) -> float:
    """Return the x at which trigamma is ``value``, by Newton's method (Smyth, 2004, appendix)."""
    from scipy.special import polygamma

    x = 0.5 + 1 / value
    for _ in range(60):
        slope = float(polygamma(1, x))
        step = slope * (1 - slope / value) / float(polygamma(2, x))
        x += step
        if abs(step) < 1e-9 * x:
            break
    return x


# --- What else differs ----------------------------------------------------------------------------


def _refuse_other_work(a: Mapping[str, Any], b: Mapping[str, Any], names: tuple[str, str]) -> None:
    """Refuse to compare the times of different work."""
    for key in ("preset", "config", "batch", "seq"):
        first, second = a["settings"][key], b["settings"][key]
        if first != second:
            raise ValueError(
                f"{names[0]} measured {key} {_say(first)} and {names[1]} {key} {_say(second)}: "
                "times of different work cannot be compared. Measure both with the same "
                "--preset, --batch and --seq."
            )


def _warnings(
    a: Mapping[str, Any], b: Mapping[str, Any], names: tuple[str, str], rows: Sequence[Row]
) -> list[str]:
    """Say what else may have changed the times."""
    said = [
        f"different machines: {key} is {_say(a['machine'].get(key))} in {names[0]}, "
        f"{_say(b['machine'].get(key))} in {names[1]}"
        for key in ("processor", "cores", "sockets", "memory_bytes", "system", "governor")
        if a["machine"].get(key) != b["machine"].get(key)
    ]
    if a["settings"]["matmul"] != b["settings"]["matmul"]:
        said.append(
            f"different settings: matmul is {a['settings']['matmul']} in {names[0]}, "
            f"{b['settings']['matmul']} in {names[1]}"
        )
    said += [
        f"{name} is not finished: it has {len(results['runs'])} runs"
        for name, results in zip(names, (a, b), strict=True)
        if not results["finished"]
    ]
    fewest = min(min(row.runs_before, row.runs_after) for row in rows)
    if fewest < 3:
        said.append(
            f"some rows have {fewest} run{'s' if fewest > 1 else ''} on one side: three at least "
            "make a verdict that one can rely on, four a good one"
        )
    if a == b:
        said.append(f"{names[0]} and {names[1]} hold the same measurements")
    return said + _ceilings(a, b, names)


def _ceilings(a: Mapping[str, Any], b: Mapping[str, Any], names: tuple[str, str]) -> list[str]:
    """Say where the machine itself was slower or faster."""
    after = {c["threads"]: c for c in b["ceilings"]}
    said = []
    for c in a["ceilings"]:
        for key, name in (
            ("sgemm_gflops", "sgemm"),
            ("read_gbs", "reading memory"),
            ("copy_gbs", "copying memory"),
        ):
            ratio = after.get(c["threads"], c)[key] / c[key]
            if abs(math.log(ratio)) > math.log(1.05):
                said.append(
                    f"the machine itself differed: on {c['threads']} thread"
                    f"{'s' if c['threads'] > 1 else ''} {name} had {ratio:.2f} times the rate in "
                    f"{names[1]}"
                )
    return said


def _notes(
    a: Mapping[str, Any],
    b: Mapping[str, Any],
    names: tuple[str, str],
    rows_a: Values,
    rows_b: Values,
) -> list[str]:
    """Say what differs by intention, and what has no counterpart."""
    said = [
        f"{name}: {_say(a['versions'].get(name))} in {names[0]}, {_say(b['versions'].get(name))} "
        f"in {names[1]}"
        for name in sorted({*a["versions"], *b["versions"]})
        if a["versions"].get(name) != b["versions"].get(name)
    ]
    for key in ("iterations", "repeats"):
        if a["settings"][key] != b["settings"][key]:
            said.append(
                f"{key}: {a['settings'][key]} in {names[0]}, {b['settings'][key]} in {names[1]}"
            )
    for name, own, other in ((names[0], rows_a, rows_b), (names[1], rows_b, rows_a)):
        pairs = {key[:2] for key in other}
        for pair in sorted({key[:2] for key in own} - pairs):
            said.append(f"only in {name}: {pair_name(*pair)}")
        alone = {operation_label(*key[2:]) for key in own if key not in other and key[:2] in pairs}
        said += [f"only in {name}: {label}" for label in sorted(alone)]
    return said


def _say(value: Any) -> str:
    """Return a value in words."""
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {item}" for name, item in value.items())
    return "unknown" if value is None else str(value)
