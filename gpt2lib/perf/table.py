"""Speedup and efficiency as rows: of gpt2lib bench, of benchmarks/peers.py, of the wiki."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from gpt2lib.perf.scaling import efficiency, speedup

__all__ = ["rows", "text"]

Row = dict[str, Any]


def rows(record: Mapping[str, Any]) -> list[Row]:
    """Return a row for each runtime and number of threads: what they took, and what that gains.

    Parameters
    ----------
    record
        What ``gpt2lib bench`` or ``benchmarks/peers.py`` wrote, or
        :func:`gpt2lib.perf.scaling.wiki` returns.

    Returns
    -------
    list
        ``runtime``, ``threads``, ``ms`` (of an iteration), ``speedup``, ``efficiency``.

    Raises
    ------
    ValueError
        When it is none of them, or nothing was measured on one thread.
    """
    if "phases" in record:
        times = _peers(record["phases"])
    elif "summary" in record:
        times = {(r["runtime"], r["threads"]): r["median_ms"] for r in record["summary"]}
    elif "rows" in record:
        times = {(r["runtime"], r["threads"]): r["mean_ms"] for r in record["rows"]}
    else:
        raise ValueError("this is no record of a benchmark: it has no summary, phases or rows.")
    alone = [pair for pair in times if pair[1] == 1]
    if not alone:
        raise ValueError("nothing here was measured on one thread, so there is no speedup.")
    first = ("sequential", 1) if ("sequential", 1) in times else alone[0]
    return [
        {
            "runtime": name,
            "threads": p,
            "ms": ms,
            "speedup": speedup(times[first], ms),
            "efficiency": efficiency(speedup(times[first], ms), p),
        }
        for (name, p), ms in times.items()
    ]


def _peers(phases: Mapping[str, Any]) -> dict[tuple[str, int], float]:
    """Return the median step of each of our own runtimes in the benchmark beside others."""
    times = {}
    for phase in ("training", "runtimes"):
        for contender in phases.get(phase, {}).get("contenders", {}).values():
            runtime = contender.get("description", {}).get("runtime", {})
            seconds = [s for turn in contender.get("rounds", []) for s in turn.get("seconds", [])]
            if isinstance(runtime, Mapping) and runtime.get("threads") and seconds:
                pair = (runtime["name"], runtime["threads"])
                times[pair] = 1000 * statistics.median(seconds)
    return times


def text(given: Sequence[Row]) -> str:
    """Return rows as a table to print."""
    lines = [f"{'runtime':16s} {'threads':>7s} {'ms':>9s} {'speedup':>8s} {'efficiency':>10s}"]
    for row in given:
        ms = f"{row['ms']:,.0f}" if row["ms"] >= 1000 else f"{row['ms']:.3g}"
        lines.append(
            f"{row['runtime']:16s} {row['threads']:7d} {ms:>9s} "
            f"{row['speedup']:8.2f} {row['efficiency']:10.0%}"
        )
    return "\n".join(lines)
