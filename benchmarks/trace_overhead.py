"""What recording every chunk adds to a training step: steps with the record and without, in turns.

    python benchmarks/trace_overhead.py
    python benchmarks/trace_overhead.py --layers 12 --channels 768 --vocab-size 50257   # GPT-2

Prints a line for each number of threads: the median of the pairs' ratios, a 95 % interval for it
that supposes no distribution, the quartiles, the chunks of a step, and what that makes for each.
The budget is 2 %. On one thread the processor's time is compared, which does not mind what else the
machine does; on more, elapsed time, which needs a quiet machine.
"""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

import numpy as np

from gpt2lib.config import GPT2Config
from gpt2lib.model import GPT2
from gpt2lib.optimizer import AdamW
from gpt2lib.perf.recording import Overhead, Recording, overhead

BUDGET = 0.02


def measure(config: GPT2Config, options: argparse.Namespace, threads: int) -> dict[str, Any]:
    """Measure one number of threads; return what the table shows."""
    model = GPT2(config, backend="numba", runtime=options.runtime, threads=threads, seed=0)
    optimizer = AdamW(model.parameters, ops=model.ops)
    shape = (2, options.batch, options.seq)
    ids, targets = np.random.default_rng(0).integers(0, config.vocab_size, shape)

    def step() -> None:
        model.loss(ids, targets)
        model.backward()
        optimizer.step(model.gradients, zero_gradients=True)

    step()
    with Recording(model, optimizer) as recording:
        step()
    timeline = recording.timeline()
    counts = {"chunks": len(timeline.records), "operations": len(recording.calls)}
    cost = overhead(step, recording, pairs=options.pairs)
    return {"threads": threads, **counts, **_say(cost)}


def _say(cost: Overhead) -> dict[str, Any]:
    low, high = cost.interval()
    quartiles = (np.quantile(cost.ratios, [0.25, 0.75]) - 1).tolist()
    step = float(np.median(cost.plain))
    return {
        "pairs": len(cost.plain),
        "step_ms": 1000 * step,
        "median": cost.median,
        "interval": [low, high],
        "quartiles": quartiles,
    }


def main(arguments: list[str] | None = None) -> int:
    """Measure and print; the exit status is 1 where a whole interval lies above the budget."""
    options = _parser().parse_args(arguments)
    fields = ("layers", "heads", "channels", "vocab_size")
    config = GPT2Config(context=1024, **{name: getattr(options, name) for name in fields})
    print(
        f"{'threads':>7s} {'pairs':>5s} {'step (ms)':>10s} {'chunks':>7s} {'median':>8s} "
        f"{'95 % interval':>20s} {'quartiles':>20s} {'µs a chunk':>11s}"
    )
    rows = []
    for threads in (int(number) for number in options.threads.split(",")):
        row = measure(config, options, threads)
        rows.append(row)
        low, high = row["interval"]
        first, third = row["quartiles"]
        each = 1000 * row["median"] * row["step_ms"] / row["chunks"]
        print(
            f"{threads:7d} {row['pairs']:5d} {row['step_ms']:10.2f} {row['chunks']:7d} "
            f"{row['median']:+8.2%} {low:+10.2%} to {high:+.2%} {first:+10.2%} to {third:+.2%} "
            f"{each:11.2f}",
            flush=True,
        )
    if options.json:
        print(json.dumps(rows))
    return int(any(row["interval"][0] > BUDGET for row in rows))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--layers", type=int, default=4)
    add("--heads", type=int, default=6)
    add("--channels", type=int, default=384)
    add("--vocab-size", type=int, default=16384)
    add("--batch", type=int, default=4)
    add("--seq", type=int, default=64)
    add("--runtime", default="threads")
    add("--threads", default="1,2")
    add("--pairs", type=int, help="by default about five seconds of them, 10 to 60")
    add("--json", action="store_true", help="print the numbers as JSON too")
    return parser


if __name__ == "__main__":
    sys.exit(main())
