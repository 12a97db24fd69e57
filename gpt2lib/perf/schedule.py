"""Which thread gets which chunk: four ways to deal them out, simulated.

The library's runtimes deal chunks out *dynamically*: whoever is free takes the next one. OpenMP
knows two more ways, which decide before the region begins. With chunks of equal length all ways
are alike. The chunks of causal attention are not equal: later queries have more keys to look at.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gpt2lib.perf.timeline import Timeline
from gpt2lib.runtimes.trace import TraceBuffer

__all__ = ["SCHEDULES", "causal_costs", "deal", "schedule"]

#: The ways. OpenMP calls the first three ``schedule(static)``, ``(static, 1)``, ``(dynamic)``.
SCHEDULES = ("static", "cyclic", "dynamic", "longest first")


def causal_costs(seq: int, block: int) -> np.ndarray:
    r"""Return what each block of queries costs in causal attention, in pairs of query and key.

    .. math:: w_i = \sum_{t = iR}^{(i+1)R - 1} (t + 1), \qquad \sum_i w_i = T (T + 1) / 2

    Parameters
    ----------
    seq
        T.
    block
        R, queries in a block; the last one may have fewer.

    Examples
    --------
    >>> causal_costs(4, 2)
    array([3, 7])
    """
    keys = np.arange(1, seq + 1)  # the query at t sees t + 1 keys
    return np.add.reduceat(keys, np.arange(0, seq, block))


def deal(costs: Sequence[float], threads: int, how: str) -> list[list[int]]:
    """Return the chunks of each thread, in the order in which it runs them.

    Parameters
    ----------
    costs
        How long each chunk takes.
    threads
        p.
    how
        ``"static"``: each thread a run of neighbours, as many as the others (or one more).
        ``"cyclic"``: chunk i goes to thread i modulo p. ``"dynamic"``: whoever is free takes the
        next, which is list scheduling (Graham, 1966): at most 2 − 1/p times the best possible.
        ``"longest first"``: the same, but the long chunks are taken first (Graham, 1969): at most
        4/3 − 1/(3p) times.

    Raises
    ------
    ValueError
        For another way, or fewer than one thread.
    """
    if threads < 1:
        raise ValueError(f"the number of threads must be at least 1, got {threads!r}.")
    chunks = np.arange(len(costs))
    if how == "static":
        return [part.tolist() for part in np.array_split(chunks, threads)]
    if how == "cyclic":
        return [chunks[i::threads].tolist() for i in range(threads)]
    if how not in SCHEDULES:
        raise ValueError(f"chunks are dealt out {', '.join(SCHEDULES)}, not {how!r}.")
    taken: list[list[int]] = [[] for _ in range(threads)]
    free_at = np.zeros(threads)
    line = chunks if how == "dynamic" else np.argsort(-np.asarray(costs), kind="stable")
    for chunk in line.tolist():
        first = int(free_at.argmin())
        taken[first].append(chunk)
        free_at[first] += costs[chunk]
    return taken


def schedule(costs: Sequence[float], threads: int, how: str = "dynamic") -> Timeline:
    """Simulate a region: return when which chunk ran, if dealing them out cost nothing.

    Parameters
    ----------
    costs
        How long each chunk takes, in seconds, or in any other unit.
    threads, how
        As in :func:`deal`.

    Returns
    -------
    Timeline
        One region, numbered 0; its times are thousand-millionths of the unit.

    Raises
    ------
    ValueError
        As in :func:`deal`; for no chunks; for a cost that is not positive.
    """
    lengths = np.rint(1e9 * np.asarray(costs, float)).astype(np.int64)
    if lengths.size == 0 or lengths.min() < 1:
        raise ValueError("a schedule needs at least one chunk, and every chunk takes some time.")
    records = []
    for thread, chunks in enumerate(deal(costs, threads, how)):
        ends = np.cumsum(lengths[chunks])
        for chunk, end in zip(chunks, ends.tolist(), strict=True):
            records.append((0, chunk, thread, end - int(lengths[chunk]), end))
    array = np.array(records, TraceBuffer.dtype)
    array = array[np.argsort(array["start_ns"], kind="stable")]
    return Timeline(threads, int(array["end_ns"].max()), array, {0: "region"})
