"""Record what every thread does during a few training steps, chunk by chunk.

    gpt2lib trace --preset tiny --iterations 3 --format paraver --out trace
    gpt2lib trace --preset tiny --format chrome --out trace      # for chrome://tracing or Perfetto

Prints how well the threads were used and which operations took their time, and writes the record:
trace.prv, trace.pcf and trace.row for Paraver, or trace.json. The model has random weights and the
tokens are random: what a step costs does not depend on either.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpt2lib.config import PRESETS

if TYPE_CHECKING:
    from gpt2lib.perf.timeline import Timeline

HELP = "record every chunk on every thread, for Paraver or Perfetto"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add = parser.add_argument
    add("--preset", default="tiny", choices=PRESETS, help="size of the model (default: tiny)")
    add("--batch", type=int, default=4, help="sequences in a step (default: 4)")
    add("--seq", type=int, default=64, help="tokens in a sequence (default: 64)")
    add("--runtime", default="threads", help="who runs the chunks (default: threads)")
    add("--threads", type=int, help="on how many threads (default: all)")
    add("--iterations", type=int, default=3, help="recorded steps (default: 3)")
    add("--format", choices=("paraver", "chrome"), default="paraver", help="(default: paraver)")
    add("--seed", type=int, default=0, help="of weights and tokens (default: 0)")
    add("--out", required=True, metavar="DIR", help="the folder for the files")


def run(args: argparse.Namespace) -> int:
    """Record, write, and print a summary; return the exit status."""
    from gpt2lib.perf.timeline import write_chrome, write_paraver

    for option in ("batch", "seq", "iterations"):
        if getattr(args, option) < 1:
            raise ValueError(f"--{option} must be at least 1, got {getattr(args, option)}.")
    if args.seed < 0:
        raise ValueError(f"--seed must not be negative, got {args.seed}.")
    if not args.out:
        raise ValueError("--out needs the name of a folder.")
    step, runtime = _prepare(args)
    folder = Path(args.out)
    folder.mkdir(parents=True, exist_ok=True)  # before minutes of work, not after
    timeline, plain, traced = _record(step, runtime, args.iterations)
    if args.format == "paraver":
        write_paraver(folder / "trace.prv", timeline)
    else:
        write_chrome(folder / "trace.json", timeline)
    _print_summary(timeline, args.iterations, plain, traced)
    files = "trace.prv, .pcf, .row" if args.format == "paraver" else "trace.json"
    print(f"\nwritten to {folder}: {files}")
    return 0


def _prepare(args: argparse.Namespace) -> tuple[Any, Any]:
    """Return a function that makes one training step, and the runtime under it."""
    import numpy as np

    from gpt2lib.config import GPT2Config
    from gpt2lib.model import GPT2
    from gpt2lib.optimizer import AdamW

    config = GPT2Config.preset(args.preset)
    config.check_length(args.seq)
    model = GPT2(
        config, backend="numba", runtime=args.runtime, threads=args.threads, seed=args.seed
    )
    optimizer = AdamW(model.parameters, ops=model.ops)
    rng = np.random.default_rng(args.seed)
    ids, targets = rng.integers(0, config.vocab_size, (2, args.batch, args.seq))

    def step() -> None:
        model.loss(ids, targets)
        model.backward()
        optimizer.step(model.gradients, zero_gradients=True)

    return step, model.ops.runtime


def _record(step: Any, runtime: Any, count: int) -> tuple[Timeline, list[float], list[float]]:
    """Make steps without and with a record; return the record and the seconds of both."""
    from gpt2lib.perf.timeline import Timeline, region_labels
    from gpt2lib.runtimes import TraceBuffer

    buffer = TraceBuffer(1 << 12)
    try:
        runtime.trace = buffer  # the first step compiles, touches memory, and counts the chunks
        step()
    finally:
        runtime.trace = None
    buffer = TraceBuffer(count * (len(buffer) + buffer.dropped))
    plain = [_seconds(step) for _ in range(count)]
    try:
        runtime.trace = buffer
        begin = time.perf_counter_ns()
        traced = [_seconds(step) for _ in range(count)]
        end = time.perf_counter_ns()
    finally:
        runtime.trace = None
    timeline = Timeline.from_buffer(
        buffer, threads=runtime.threads, labels=region_labels(), begin=begin, end=end
    )
    return timeline, plain, traced


def _seconds(step: Any) -> float:
    begin = time.perf_counter()
    step()
    return time.perf_counter() - begin


def _print_summary(timeline: Timeline, steps: int, plain: list[float], traced: list[float]) -> None:
    """Print the step's time, the efficiency and its factors, and the operations."""
    import statistics

    with_trace, without = statistics.median(traced), statistics.median(plain)
    print(
        f"{steps} steps on {timeline.threads} threads, {timeline.records.size} chunks; a step took "
        f"{1000 * with_trace:.2f} ms, without the record {1000 * without:.2f} ms (medians)."
    )
    shares = timeline.efficiency()
    print(
        f"parallel efficiency {shares.parallel:.3f} = load balance {shares.load_balance:.3f} x "
        f"communication {shares.communication:.3f} x serial part {shares.serial:.3f}\n"
    )
    total = float(timeline.busy().sum())
    print(f"{'kernel':34s} {'ms a step':>10s} {'share':>7s}")
    for name, spent in timeline.by_region().items():
        print(f"{name:34s} {spent / 1e6 / steps:10.3f} {spent / total:7.1%}")
