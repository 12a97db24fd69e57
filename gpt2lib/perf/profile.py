"""A profile of a few training steps in this very process: what a notebook can afford.

``gpt2lib bench`` starts a fresh process for each run and repeats it; a comparison needs that. Here
one model makes some steps where it is, and the result has the same form, so that the figures of
:mod:`gpt2lib.figures.performance` draw it.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping, Sequence
from typing import Any

from gpt2lib.model import GPT2
from gpt2lib.optimizer import AdamW
from gpt2lib.perf.operations import TimedOps

__all__ = ["profile"]


def profile(
    model: GPT2,
    optimizer: AdamW,
    ids: Any,
    targets: Any,
    *,
    steps: int = 3,
    ceilings: Sequence[Mapping[str, Any]] = (),
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

    Returns
    -------
    dict
        ``runs``, with one run in it, and ``ceilings``, as in the ``results.json`` of
        ``gpt2lib bench``.

    Raises
    ------
    ValueError
        When ``steps`` is not at least 1.
    """
    if steps < 1:
        raise ValueError(f"a profile needs at least one step, got {steps}.")
    iterations = [_step(model, optimizer, ids, targets) for _ in range(steps + 1)]
    plain = model.ops
    timed = TimedOps(plain)
    model.ops = optimizer.ops = timed
    try:
        for _ in range(steps):
            _step(model, optimizer, ids, targets)
    finally:
        model.ops = optimizer.ops = plain
    runtime = getattr(plain, "runtime", None)
    run = {
        "runtime": getattr(runtime, "name", "numpy"),
        "threads": getattr(runtime, "threads", 1),
        "matmul": getattr(plain, "matmul", "blas"),
        "repeat": 0,
        "iterations": iterations,
        "operations": timed.rows(steps),
    }
    return {"runs": [run], "ceilings": [dict(row) for row in ceilings]}


def _step(model: GPT2, optimizer: AdamW, ids: Any, targets: Any) -> dict[str, float]:
    """Make a step; return its loss and the times of its three parts in ms."""
    marks = [time.perf_counter()]
    loss = model.loss(ids, targets)
    marks.append(time.perf_counter())
    model.backward()
    marks.append(time.perf_counter())
    optimizer.step(model.gradients, zero_gradients=True)
    marks.append(time.perf_counter())
    forward, backward, update = (1e3 * (b - a) for a, b in itertools.pairwise(marks))
    return {
        "loss": loss,
        "forward_ms": forward,
        "backward_ms": backward,
        "update_ms": update,
        "total_ms": forward + backward + update,
    }
