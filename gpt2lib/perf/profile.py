"""A profile of a few steps and the ceilings of one core, in this very process, for a notebook.

``gpt2lib bench`` starts a fresh process for each run and repeats it; a comparison needs that. Here
one model makes some steps where it is, and the result has the same form, so that the figures of
:mod:`gpt2lib.figures.performance` draw it.
"""

from __future__ import annotations

import datetime
import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from gpt2lib.config import GPT2Config
from gpt2lib.model import GPT2
from gpt2lib.optimizer import AdamW
from gpt2lib.perf.counters import Counters, peak_bytes
from gpt2lib.perf.machine import Ceilings, MatrixProduct, Streams, describe, versions
from gpt2lib.perf.operations import TimedOps
from gpt2lib.perf.results import summarise
from gpt2lib.perf.turns import in_turns, process_clock

__all__ = ["core_ceilings", "profile"]


def profile(
    model: GPT2,
    optimizer: AdamW,
    ids: Any,
    targets: Any,
    *,
    steps: int = 3,
    ceilings: Sequence[Mapping[str, Any]] = (),
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, Any]:
    """Make training steps; return their times, and the time of every operation.

    The model learns from them. The first step is iteration 0, which is reported and never counted;
    ``steps`` more are timed as they are, and then ``steps`` more operation by operation.

    Parameters
    ----------
    model, optimizer
        What makes the steps; both on the same backend.
    ids, targets
        (B, T), the batch of every step.
    steps
        How many, at least one.
    ceilings
        What the machine can do at best, for a roofline: rows of ``threads``, ``sgemm_gflops``,
        ``read_gbs``, ``copy_gbs``.
    clock
        What gives the time in seconds: elapsed time, or for a model on one thread
        :func:`gpt2lib.perf.turns.thread_clock`'s.

    Returns
    -------
    dict
        Of the form that ``gpt2lib bench`` writes (:mod:`gpt2lib.perf.results`), with one run.

    Raises
    ------
    ValueError
        When ``steps`` is not at least 1.
    """
    if steps < 1:
        raise ValueError(f"a profile needs at least one step, got {steps}.")
    iterations = [_step(model, optimizer, ids, targets, clock) for _ in range(steps + 1)]
    plain = model.ops
    timed = TimedOps(plain, clock)
    model.ops = optimizer.ops = timed
    try:
        for _ in range(steps):
            _step(model, optimizer, ids, targets, clock)
    finally:
        model.ops = optimizer.ops = plain
    run = _run(plain, iterations, timed.rows(steps))
    results = {
        **_head(),
        "settings": _settings(model.config, np.shape(ids), run),
        "flops_per_step": model.config.training_flops(*np.shape(ids)),
        "ceilings": [dict(row) for row in ceilings],
        "runs": [run],
    }
    return {**results, "summary": summarise(results)}


def _run(ops: Any, iterations: list[Any], operations: list[Any]) -> dict[str, Any]:
    """Return the run, as results have it."""
    runtime = getattr(ops, "runtime", None)
    name, threads = getattr(runtime, "name", "numpy"), getattr(runtime, "threads", 1)
    return {
        "runtime": name,
        "threads": threads,
        "matmul": getattr(ops, "matmul", "blas"),
        "repeat": 0,
        "order": 0,
        "setup_s": 0.0,
        "peak_bytes": peak_bytes(),
        "compiled": 0,
        "described": {"name": name, "threads": threads, "library": "", "version": ""},
        "iterations": iterations,
        "operations": operations,
    }


def _settings(config: GPT2Config, shape: tuple[int, ...], run: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that describe the run, as results have them."""
    batch, seq = shape
    return {
        "preset": "a model in this process",
        "config": config.to_dict(),
        "batch": batch,
        "seq": seq,
        "matmul": run["matmul"],
        "iterations": len(run["iterations"]),
        "repeats": 1,
        "runtimes": [run["runtime"]],
        "threads": [run["threads"]],
        "seed": 0,
    }


def _head() -> dict[str, Any]:
    """Return what results begin with, and what these have none of."""
    return {
        "format": "gpt2lib-bench",
        "version": 1,
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "finished": True,
        "machine": describe(),
        "versions": versions(),
        "git": {"commit": None, "dirty": None},
        "absent": [],
        "failed": [],
    }


def core_ceilings(
    *, size: int = 2048, memory_bytes: int | None = None, rounds: int = 3
) -> Ceilings:
    """Measure what one core can do at best, by the clock of this process.

    :func:`gpt2lib.perf.machine.measure_ceilings` measures elapsed time, which is what several
    threads need. This one leaves out the time in which the core was taken away, as
    :func:`gpt2lib.perf.turns.in_turns` does, so that the two can be compared on a busy machine.

    Parameters
    ----------
    size, memory_bytes
        As in :func:`~gpt2lib.perf.machine.measure_ceilings`.
    rounds
        How often each way is tried.
    """
    with MatrixProduct(1, size) as product, Streams(1, memory_bytes) as streams:
        ways: dict[str, Any] = {"blas": lambda: product.seconds("blas")}
        for way in (*streams.READING, *streams.COPYING):
            ways[way] = lambda way=way: streams.seconds(way)
        times = in_turns(ways, rounds, process_clock())
        read = streams.bytes / min(times[way] for way in streams.READING)
        copy = 2 * streams.bytes / min(times[way] for way in streams.COPYING)
        flops = 2 * size**3 / times["blas"]
        return Ceilings(1, flops / 1e9, read / 1e9, copy / 1e9, size, "blas", streams.bytes)


def _step(
    model: GPT2, optimizer: AdamW, ids: Any, targets: Any, clock: Callable[[], float]
) -> dict[str, Any]:
    """Make a step; return its loss and the times of its three parts in ms."""
    before = Counters.read()
    marks = [clock()]
    loss = model.loss(ids, targets)
    marks.append(clock())
    model.backward()
    marks.append(clock())
    optimizer.step(model.gradients, zero_gradients=True)
    marks.append(clock())
    forward, backward, update = (1e3 * (b - a) for a, b in itertools.pairwise(marks))
    return {
        "loss": loss,
        "forward_ms": forward,
        "backward_ms": backward,
        "update_ms": update,
        "total_ms": forward + backward + update,
        **(Counters.read() - before)._asdict(),
        "mhz": None,
    }
