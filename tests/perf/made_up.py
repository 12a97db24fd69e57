"""Results of `gpt2lib bench` that nobody measured: what the report's and comparison's tests read.

The times follow a small model of a machine (a rate of arithmetic, a rate of memory, a part that
stays serial) with the noise of a real one: a factor for every run, one for every iteration, now
and then an outlier, and a factor for the whole sitting.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

CONFIG = {"vocab_size": 50257, "context": 1024, "layers": 12, "heads": 12, "channels": 768}
SGEMM, READ, COPY = 40.0, 9.0, 7.0  # GFLOP/s and GB/s of one thread
SERIAL = 0.03  # the share of the work that one thread does alone


def operations(
    config: Mapping[str, int] = CONFIG, batch: int = 4, seq: int = 64
) -> list[dict[str, Any]]:
    """Every operation of a step with its calls, FLOPs, bytes, and milliseconds on one thread."""
    c, layers, vocab = config["channels"], config["layers"], config["vocab_size"]
    n = batch * seq
    rows = []

    def add(name: str, shape: str, calls: int, flops: float, floats: float, share: float) -> None:
        flops, size = calls * flops, 4 * calls * floats
        seconds = max(flops / (share * SGEMM * 1e9), size / (share * READ * 1e9))
        rows.append(
            {
                "operation": name,
                "shape": shape,
                "calls": calls,
                "ms": 1000 * seconds,
                "flops": int(flops),
                "bytes": int(size),
            }
        )

    for name, into, out in (
        ("linear", c, 3 * c),
        ("linear", c, c),
        ("linear_gelu", c, 4 * c),
        ("linear", 4 * c, c),
    ):
        size = into * out + n * (into + out)
        for way, products in (("forward", 1), ("backward", 2)):
            flops = 2.0 * products * n * into * out
            add(f"{name}_{way}", f"{into} -> {out}", layers, flops, products * size, 0.85)
    for way, products in (("forward", 1), ("backward", 2)):
        add(f"head_{way}", f"{c} -> {vocab}", 1, 2.0 * products * n * c * vocab,
            products * (c * vocab + n * (c + vocab)), 0.9)  # fmt: skip
        add(f"attention_{way}", "", layers, 4.0 * products * batch * seq * seq * c,
            4.0 * products * n * c, 0.5)  # fmt: skip
        add(f"layernorm_{way}", "", 2 * layers + 1, 8.0 * n * c, products * 2.0 * n * c, 0.7)
        add(f"cross_entropy_{way}", "", 1, 4.0 * n * vocab, products * 1.0 * n * vocab, 0.8)
    add("residual_forward", "", 2 * layers, n * c, 3.0 * n * c, 0.8)
    add("embedding_forward", "", 1, n * c, 3.0 * n * c, 0.5)
    add("embedding_backward", "", 1, 2.0 * n * c, 4.0 * n * c, 0.5)
    add("zero", "", 5 * layers + 2, 0.0, 2.0 * n * c, 0.8)
    size = vocab * c + layers * 12 * c * c
    add("adamw_update", "", 2, 6.0 * size, 4.0 * size, 0.9)
    between = {"operation": "(Python between them)", "shape": "", "calls": 0, "ms": 3.0}
    return [*rows, {**between, "flops": 0, "bytes": 0}]


def results(
    *,
    threads: Mapping[str, Sequence[int]] | None = None,
    config: Mapping[str, int] = CONFIG,
    preset: str = "gpt2",
    batch: int = 4,
    seq: int = 64,
    repeats: int = 4,
    iterations: int = 12,
    seed: int = 0,
    slower: Mapping[str, float] | None = None,
    sitting: float = 1.0,
    run_noise: float = 0.03,
    noise: float = 0.02,
    outliers: float = 0.03,
) -> dict[str, Any]:
    """Return results in the form of ``results.json``.

    Parameters
    ----------
    threads
        Runtime -> the numbers of threads it ran on.
    config, preset, batch, seq
        What was trained.
    repeats, iterations
        Runs of each runtime and number of threads; counted iterations of each run.
    seed
        Of the noise.
    slower
        Operation -> the factor of its time.
    sitting
        A factor of all times.
    run_noise, noise, outliers
        Standard deviation of the logarithm from run to run and from iteration to iteration; how
        often something comes between.
    """
    combinations = threads or {"sequential": (1,), "threads": (1, 2), "openmp": (1, 2)}
    rng = np.random.default_rng(seed)
    rows = operations(config, batch, seq)
    for row in rows:
        row["ms"] *= (slower or {}).get(row["operation"], 1.0) * sitting
    pairs = [(name, p) for name, ps in combinations.items() for p in ps]
    runs = []
    for repeat in range(repeats):
        for name, p in pairs:
            run = _run(rng, name, p, rows, iterations, (run_noise, noise, outliers))
            runs.append({**run, "repeat": repeat, "order": len(runs)})
    counts = sorted({p for _, p in pairs})
    found = {
        "format": "gpt2lib-bench",
        "version": 1,
        "created": "2026-01-02T03:04:05+00:00",
        "finished": True,
        "machine": {
            "processor": "Imagined 3000",
            "cores": 2,
            "caches": {"L1d": 32 << 10, "L2": 512 << 10, "L3": 8 << 20},
            "memory_bytes": 16 << 30,
            "system": "Linux 6.1",
        },
        "versions": {"gpt2lib": "0.1.0", "python": "3.11.7", "numpy": "2.1.0", "numba": "0.61.0"},
        "git": {"commit": "0123456789abcdef0123456789abcdef01234567", "dirty": False},
        "settings": {
            "preset": preset,
            "config": dict(config),
            "batch": batch,
            "seq": seq,
            "matmul": "blas",
            "iterations": iterations,
            "repeats": repeats,
            "runtimes": [*combinations, "nosv"],
            "threads": counts,
            "seed": 0,
        },
        "flops_per_step": sum(row["flops"] for row in rows),
        "absent": [
            {
                "runtime": "nosv",
                "reason": "libnosv.so was not found.",
                "how_to_get": "Build nOS-V and set NOSV_HOME.",
            }
        ],
        "failed": [],
        "ceilings": [
            {
                "threads": p,
                "sgemm_gflops": SGEMM * p,
                "read_gbs": READ * p**0.7,
                "copy_gbs": COPY * p**0.7,
                "sgemm_size": 2048,
                "sgemm_by": "threads",
                "memory_bytes": 64 << 20,
            }
            for p in counts
        ],
        "runs": runs,
    }
    found["summary"] = summary(found)
    return found


def _run(
    rng: np.random.Generator,
    runtime: str,
    threads: int,
    rows: Sequence[Mapping[str, Any]],
    iterations: int,
    noises: tuple[float, float, float],
) -> dict[str, Any]:
    run_noise, noise, outliers = noises
    factor = (SERIAL + (1 - SERIAL) / threads) * np.exp(run_noise * rng.standard_normal())

    def jitter() -> float:
        return float(
            np.exp(noise * rng.standard_normal()) * (1.4 if rng.random() < outliers else 1)
        )

    own = []
    for row in rows:  # each operation differs from run to run in its own way too
        of_run = factor * np.exp(run_noise * rng.standard_normal() / 2)
        ms = row["ms"] * of_run * np.mean([jitter() for _ in range(3)])
        own.append({**row, "ms": float(ms)})
    parts = {"forward": 0.0, "backward": 0.0, "update": 0.0}
    for row in rows:
        way = row["operation"].rpartition("_")[2]
        parts[way if way in parts else "backward"] += row["ms"] * factor
    steps = []
    for i in range(iterations):
        times = {f"{k}_ms": v * jitter() * (1.0 if i else 1.6) for k, v in parts.items()}
        steps.append(
            {
                "loss": 10.9 - 0.1 * i,
                **times,
                "total_ms": sum(times.values()),
                "minor_faults": 0 if i else 300_000,
                "major_faults": 0,
                "voluntary_switches": 3,
                "involuntary_switches": 5,
                "mhz": 2400.0,
            }
        )
    return {
        "runtime": runtime,
        "threads": threads,
        "matmul": "blas",
        "setup_s": 2.0,
        "peak_bytes": 2 << 30,
        "compiled": 0,
        "described": {"name": runtime, "threads": threads, "library": "libc.so.6", "version": "1"},
        "iterations": steps,
        "operations": own,
    }


def summary(found: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The summary rows, worked out by NumPy on its own."""
    pairs = dict.fromkeys((run["runtime"], run["threads"]) for run in found["runs"])
    steady = {pair: _times(found, pair, 1) for pair in pairs}
    rows = []
    for (runtime, p), times in steady.items():
        base = steady.get(("sequential", 1), steady.get((runtime, 1)))
        median = float(np.median(times))
        speedup = None if base is None else float(np.median(base)) / median
        gflops = found["flops_per_step"] / median / 1e6
        peak = next(c["sgemm_gflops"] for c in found["ceilings"] if c["threads"] == p)
        quartiles = np.percentile(times, [25, 75])
        runs = sum((r["runtime"], r["threads"]) == (runtime, p) for r in found["runs"])
        rows.append(
            {
                "runtime": runtime,
                "threads": p,
                "runs": runs,
                "iterations": len(times),
                "mean_ms": float(np.mean(times)),
                "median_ms": median,
                "spread": float((quartiles[1] - quartiles[0]) / median),
                "first_ms": float(np.median(_times(found, (runtime, p), 0, 1))),
                "total_s": float(np.sum(_times(found, (runtime, p), 0)) / 1000 / runs),
                "speedup": speedup,
                "efficiency": None if speedup is None else speedup / p,
                "gflops": gflops,
                "share_of_peak": gflops / peak,
            }
        )
    return rows


def _times(
    found: Mapping[str, Any], pair: tuple[str, int], start: int, stop: int | None = None
) -> np.ndarray:
    return np.array(
        [
            step["total_ms"]
            for run in found["runs"]
            if (run["runtime"], run["threads"]) == pair
            for step in run["iterations"][start:stop]
        ]
    )


def without(found: Mapping[str, Any], *keep: str) -> dict[str, Any]:
    """A copy with the runs of the named runtimes only."""
    other = copy.deepcopy(dict(found))
    other["runs"] = [run for run in other["runs"] if run["runtime"] in keep]
    other["summary"] = [row for row in other["summary"] if row["runtime"] in keep]
    return other
