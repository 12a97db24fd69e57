"""What the results of ``gpt2lib bench`` say, as numbers: for its figures, report and comparison.

A *pair* is a runtime's name and a number of threads. Iteration 0 is never among the times of a
pair: it compiles, touches memory for the first time and starts threads, and is looked at apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from gpt2lib.perf.scaling import AmdahlFit, fit_amdahl

__all__ = [
    "Curve",
    "Operation",
    "curves",
    "in_order",
    "operation_label",
    "operations",
    "pair_name",
    "pick",
    "run_values",
    "steady",
]

Array = np.ndarray[Any, Any]
Pair = tuple[str, int]


def pair_name(runtime: str, threads: int) -> str:
    """Return a pair in words: ``"threads, 2 threads"``; a sequential runtime has no number.

    ``("all", 0)`` stands for all pairs together.

    Examples
    --------
    >>> pair_name("openmp", 2), pair_name("tbb", 1), pair_name("sequential", 1)
    ('openmp, 2 threads', 'tbb, 1 thread', 'sequential')
    """
    if runtime == "sequential" and threads == 1:
        return runtime
    if not threads:
        return f"{runtime} runtimes"
    return f"{runtime}, {threads} thread{'s' if threads != 1 else ''}"


def steady(results: Mapping[str, Any]) -> dict[Pair, list[Array]]:
    """Return the times of every pair, run by run, without iteration 0.

    Parameters
    ----------
    results
        The content of a ``results.json``.

    Returns
    -------
    dict
        Pair -> an array of milliseconds for each run, in the order of the repeats.

    Raises
    ------
    ValueError
        When no run has an iteration after the first.
    """
    times: dict[Pair, list[Array]] = {}
    for run in results["runs"]:
        after = [step["total_ms"] for step in run["iterations"][1:]]
        if after:
            times.setdefault((run["runtime"], run["threads"]), []).append(np.array(after, float))
    if not times:
        raise ValueError(
            "these results have no finished run of two iterations or more: let gpt2lib bench go "
            "on in the same folder, with --iterations 2 at least."
        )
    order = in_order(results, {runtime for runtime, _ in times})
    return dict(sorted(times.items(), key=lambda item: (order.index(item[0][0]), item[0][1])))


def in_order(results: Mapping[str, Any], runtimes: Iterable[str]) -> list[str]:
    """Return runtimes in the order in which they were asked for, others after them."""
    rank = {name: number for number, name in enumerate(results["settings"]["runtimes"])}
    return sorted(runtimes, key=lambda name: (rank.get(name, len(rank)), name))


class Curve(NamedTuple):
    """How a runtime's time depends on its number of threads.

    Attributes
    ----------
    runtime
        Its name.
    reference
        What one thread's time is: of which runtime.
    threads, milliseconds, speedup
        p, the median time of a step on p threads, and the reference's time over it.
    fit
        Amdahl's law through the times, where there are two different p or more.
    """

    runtime: str
    reference: str
    threads: Array
    milliseconds: Array
    speedup: Array
    fit: AmdahlFit | None


def curves(results: Mapping[str, Any]) -> list[Curve]:
    """Return the curve of every threaded runtime, and of the sequential one if it is alone.

    The speedup is over the sequential runtime's median, where that was measured, else over the
    runtime's own on one thread. A runtime that was not measured on one thread has the sequential
    time for p = 1. Where there is no time for one thread, there is no curve.

    Parameters
    ----------
    results
        The content of a ``results.json``.
    """
    medians = {pair: float(np.median(np.concatenate(t))) for pair, t in steady(results).items()}
    sequential = medians.get(("sequential", 1))
    threaded = list(dict.fromkeys(name for name, _ in medians if name != "sequential"))
    found = []
    for name in threaded or ["sequential"]:
        times = {p: ms for (runtime, p), ms in medians.items() if runtime == name}
        one = times.get(1) if sequential is None else sequential
        if one is None:
            continue
        times.setdefault(1, one)
        p = np.array(sorted(times))
        ms = np.array([times[n] for n in p.tolist()])
        fit = fit_amdahl(p.tolist(), ms.tolist()) if len(p) > 1 else None
        reference = name if sequential is None else "sequential"
        found.append(Curve(name, reference, p, ms, one / ms, fit))
    return found


def operation_label(name: str, shape: str) -> str:
    """Return an operation's name with its shape.

    >>> operation_label("linear_forward", "768 -> 2304"), operation_label("zero", "")
    ('linear_forward 768→2304', 'zero')
    """
    return f"{name} {shape}".strip().replace(" -> ", "→")


class Operation(NamedTuple):
    """One operation of a step, all its calls together; the median of the runs.

    Attributes
    ----------
    name, shape, calls
        Which, on what, how often in a step.
    ms
        Milliseconds of a step.
    flops, bytes
        Floating-point operations, and bytes that have to move at least.
    share
        Of the time of all operations.
    """

    name: str
    shape: str
    calls: int
    ms: float
    flops: int
    bytes: int
    share: float

    @property
    def label(self) -> str:
        """The name with its shape."""
        return operation_label(self.name, self.shape)


def pick(
    results: Mapping[str, Any], runtime: str | None = None, threads: int | None = None
) -> Pair:
    """Return the pair to look at: the fastest of those whose operations were timed.

    Parameters
    ----------
    results
        The content of a ``results.json``.
    runtime, threads
        Take the fastest of this runtime, of this number of threads.

    Raises
    ------
    ValueError
        When there is none.
    """
    timed = {(run["runtime"], run["threads"]) for run in results["runs"] if run["operations"]}
    fits = {
        pair: float(np.median(np.concatenate(times)))
        for pair, times in steady(results).items()
        if pair in timed and runtime in (None, pair[0]) and threads in (None, pair[1])
    }
    if not fits:
        wanted = f"of {runtime or 'any runtime'} on {threads or 'any number of'} threads"
        there = ", ".join(pair_name(*pair) for pair in sorted(timed)) or "none"
        raise ValueError(f"there are no timed operations {wanted}; there are: {there}.")
    return min(fits, key=lambda pair: fits[pair])


def operations(results: Mapping[str, Any], runtime: str, threads: int) -> list[Operation]:
    """Return the operations of a pair, the longest first.

    Parameters
    ----------
    results
        The content of a ``results.json``.
    runtime, threads
        The pair, such as :func:`pick` returns it.
    """
    rows: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for run in results["runs"]:
        if (run["runtime"], run["threads"]) == (runtime, threads):
            for row in run["operations"]:
                rows.setdefault((row["operation"], row["shape"]), []).append(row)
    times = {key: _median([row["ms"] for row in of]) for key, of in rows.items()}
    total = sum(times.values()) or 1.0
    found = [
        Operation(
            *key,
            calls=int(of[0]["calls"]),
            ms=times[key],
            flops=int(of[0]["flops"]),
            bytes=int(of[0]["bytes"]),
            share=times[key] / total,
        )
        for key, of in rows.items()
    ]
    return sorted(found, key=lambda operation: -operation.ms)


def _median(values: Sequence[float]) -> float:
    return float(np.median(np.asarray(values, float)))


def run_values(results: Mapping[str, Any]) -> dict[tuple[str, int, str, str], dict[int, float]]:
    """Return one value a run for every time: the median of its iterations, or an operation's time.

    Parameters
    ----------
    results
        The content of a ``results.json``.

    Returns
    -------
    dict
        (runtime, threads, operation, shape) -> {repeat: milliseconds}; the operation ``"total"``
        of shape ``""`` is the whole step. Times that are not positive are left out.
    """
    steady(results)  # raises where there is nothing
    values: dict[tuple[str, int, str, str], dict[int, float]] = {}
    for run in results["runs"]:
        times = [step["total_ms"] for step in run["iterations"][1:]]
        rows = [("total", "", _median(times))] if times else []
        rows += [(row["operation"], row["shape"], row["ms"]) for row in run["operations"]]
        for name, shape, ms in rows:
            if ms > 0:
                key = (run["runtime"], run["threads"], name, shape)
                values.setdefault(key, {})[run["repeat"]] = float(ms)
    return values
