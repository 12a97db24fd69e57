"""Record what every thread does during a few training steps, chunk by chunk.

    gpt2lib trace --preset tiny --iterations 3 --format paraver --out trace
    gpt2lib trace --preset tiny --format chrome --out trace      # for chrome://tracing or Perfetto
    gpt2lib trace --preset tiny --runtime nosv --out trace       # and nOS-V's own trace, by ovni

Prints what the record itself costs, how well the threads were used, and what took the time; writes
the record (trace.prv, trace.pcf and trace.row for Paraver, or trace.json) and a picture of it,
timeline.svg. Each chunk has its kernel, operation, layer, phase and iteration. The model has random
weights and the tokens are random: what a step costs does not depend on either.

On nOS-V this command starts itself again with nOS-V in the new process. If nOS-V was built with
ovni, its own trace of the same run is written to the folder ovni beside ours. The whole way:

    1. build ovni and nOS-V (book/kernels.md has the lines), export NOSV_HOME=...
    2. gpt2lib trace --runtime nosv --threads 2 --out trace
    3. ovniemu -l trace/ovni                                     # $NOSV_HOME/bin/ovniemu
    4. wxparaver trace/ovni/cpu.prv                              # what each core did
       wxparaver trace/trace.prv                                 # the same run, recorded by us
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpt2lib._files import new_folder
from gpt2lib.config import PRESETS

if TYPE_CHECKING:
    from gpt2lib.perf.recording import Overhead
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
    add(
        "--pairs",
        type=int,
        help="pairs of steps, one with and one without the record, to measure what it costs "
        "(default: about five seconds of them, 10 to 60; 0: do not measure)",
    )
    add("--seed", type=int, default=0, help="of weights and tokens (default: 0)")
    add("--out", required=True, metavar="DIR", help="the folder for the files")


def run(args: argparse.Namespace) -> int:
    """Record, write, and print a summary; return the exit status."""
    for option in ("batch", "seq", "iterations"):
        if getattr(args, option) < 1:
            raise ValueError(f"--{option} must be at least 1, got {getattr(args, option)}.")
    for option in ("seed", "pairs"):
        if (getattr(args, option) or 0) < 0:
            raise ValueError(f"--{option} must not be negative, got {getattr(args, option)}.")
    if not args.out:
        raise ValueError("--out needs the name of a folder.")
    if args.runtime == "nosv" and (library := _nosv_to_load()):
        return _start_again(args, library)
    model, optimizer, step = _prepare(args)
    with new_folder(args.out) as folder:  # before minutes of work, not after
        return _trace(model, optimizer, step, folder, args)


def _trace(model: Any, optimizer: Any, step: Any, folder: Path, args: argparse.Namespace) -> int:
    """Record, write, and print a summary."""
    ovni = _ovni_folder(model.ops.runtime)
    if ovni is not None:
        args.pairs = 0  # two records at once: neither's cost could be told
    timeline, cost = _record(model, optimizer, step, args)
    files = _write(folder, timeline, args)
    _print_summary(timeline, args.iterations, cost)
    print(f"\nwritten to {folder}: {files}")
    if ovni is not None:
        print(_about_ovni(ovni))
    return 0


def _prepare(args: argparse.Namespace) -> tuple[Any, Any, Any]:
    """Return a model, its optimizer, and a function that makes one training step."""
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

    return model, optimizer, step


def _record(
    model: Any, optimizer: Any, step: Any, args: argparse.Namespace
) -> tuple[Timeline, Overhead | None]:
    """Measure what the record costs, then record the steps."""
    from gpt2lib.perf.recording import Recording, overhead
    from gpt2lib.perf.timeline import region_labels

    model.ops.runtime.labels.update(region_labels())  # an ovni trace has these names
    with Recording(model, optimizer, capacity=1) as first:
        step()  # compiles, touches memory, and counts the chunks
    recording = Recording(model, optimizer, capacity=args.iterations * first.needed)
    cost = None if args.pairs == 0 else overhead(step, recording, pairs=args.pairs)
    with recording:
        for recording.iteration in range(args.iterations):
            step()
    return recording.timeline(), cost


def _write(folder: Path, timeline: Timeline, args: argparse.Namespace) -> str:
    """Write the record and its picture; return the files' names."""
    from gpt2lib import figures
    from gpt2lib._files import atomic_write
    from gpt2lib.figures.timeline import describe
    from gpt2lib.figures.timeline import timeline as draw
    from gpt2lib.perf.timeline import write_chrome, write_paraver

    if args.format == "paraver":
        write_paraver(folder / "trace.prv", timeline)
        files = "trace.prv, .pcf, .row"
    else:
        write_chrome(folder / "trace.json", timeline)
        files = "trace.json"
    figures.use_style()
    title = f"{args.preset}, B = {args.batch}, T = {args.seq}: {args.iterations} training steps"
    svg = figures.to_svg(draw(timeline, title=title), alt=describe(timeline))
    with atomic_write(folder / "timeline.svg") as temporary:
        temporary.write_text(svg, encoding="utf-8")
    return f"{files}; timeline.svg"


# --- What is printed ------------------------------------------------------------------------------


def _print_summary(timeline: Timeline, steps: int, cost: Overhead | None) -> None:
    """Print the step's time, the record's cost, the efficiency, and what took the time."""
    import statistics

    from gpt2lib.perf.timeline import PHASES

    spans = timeline.spans()
    starts = [span.start for span in spans if span.phase == 0]
    took = [b - a for a, b in zip(starts, [*starts[1:], timeline.duration], strict=True)]
    threads = f"{timeline.threads} thread{'s' if timeline.threads != 1 else ''}"
    print(
        f"{steps} steps on {threads}, {timeline.records.size} chunks; "
        f"a step took {statistics.median(took) / 1e6:.2f} ms (median)."
    )
    if cost is not None:
        low, high = cost.interval()
        print(
            f"the record costs {cost.median:+.2%} of a step: the median of {len(cost.plain)} pairs "
            f"of steps, with it and without; 95 % interval {low:+.2%} to {high:+.2%}."
        )
    shares = timeline.efficiency()
    print(
        f"parallel efficiency {shares.parallel:.3f} = load balance {shares.load_balance:.3f} x "
        f"communication {shares.communication:.3f} x serial part {shares.serial:.3f}\n"
    )
    total = float(timeline.busy().sum())
    phases = {PHASES[phase]: ns for phase, ns in timeline.by_note("phase").items() if phase >= 0}
    operations = {
        timeline.operations[number]: ns
        for number, ns in timeline.by_note("operation").items()
        if number >= 0
    }
    layers = [ns for layer, ns in timeline.by_note("layer").items() if layer >= 0]
    for title, rows in (
        ("phase", phases),
        ("operation", operations),
        ("kernel", timeline.by_region()),
    ):
        print(f"{title:34s} {'ms a step':>10s} {'share':>7s}")
        for name, spent in sorted(rows.items(), key=lambda item: -item[1]):
            print(f"{name:34s} {spent / 1e6 / steps:10.3f} {spent / total:7.1%}")
        print()
    print(
        f"each of the {len(layers)} layers: {min(layers) / 1e6 / steps:.3f} to "
        f"{max(layers) / 1e6 / steps:.3f} ms a step, together {sum(layers) / total:.1%}"
    )


# --- nOS-V and ovni -------------------------------------------------------------------------------


def _nosv_to_load() -> str:
    """Return the library to start again with; empty where nOS-V is here already, or nowhere."""
    from gpt2lib.runtimes import available, nosv

    if available()["nosv"].ok or "libnosv" in os.environ.get("LD_PRELOAD", ""):
        return ""
    return nosv.find_library()


def _start_again(args: argparse.Namespace, library: str) -> int:
    """Run this very command with nOS-V in its process, and with an ovni trace if it can."""
    from gpt2lib.runtimes import launch, nosv

    ovni = nosv.has_ovni(library)
    if not ovni:
        print(
            "this nOS-V was built without ovni: there will be our record only. Build it with "
            "./configure --with-ovni=... for nOS-V's own.",
            file=sys.stderr,
        )
    options = [
        f"--{name}={value}"
        for name, value in vars(args).items()
        if name in _OPTIONS and value is not None
    ]
    with new_folder(args.out) as folder:
        return launch.launch(
            [sys.executable, "-m", "gpt2lib", "trace", *options],
            runtime="nosv",
            ovni=ovni,
            library=library,
            trace_folder=folder.resolve() / "ovni" if ovni else None,
        )


_OPTIONS = frozenset(
    {"preset", "batch", "seq", "runtime", "threads", "iterations", "format", "pairs", "seed", "out"}
)


def _ovni_folder(runtime: Any) -> Path | None:
    """Return where this process writes an ovni trace; None where it writes none."""
    if runtime.name != "nosv":
        return None
    if "instrumentation.version=ovni" not in os.environ.get("NOSV_CONFIG_OVERRIDE", ""):
        return None
    return Path(os.environ.get("OVNI_TRACEDIR") or "ovni")


def _about_ovni(folder: Path) -> str:
    """Say where the ovni trace is, and how to look at it."""
    from gpt2lib.runtimes import nosv

    emulator = nosv.find_ovniemu() or "ovniemu"
    lines = [
        f"\nnOS-V wrote its own trace of the same run, by ovni, to {folder}: its tasks bear the",
        "kernels' names, and it begins with a step that ours leaves out. It is complete once this",
        "command has ended. To make Paraver files of it:",
        f"\n    {emulator} -l {folder}",
        f"\nand open {folder / 'cpu.prv'} (a row a core) or {folder / 'thread.prv'} in Paraver.",
    ]
    if emulator == "ovniemu":
        lines.append("ovniemu was not found here: it comes with ovni, in the folder bin.")
    return "\n".join(lines)
