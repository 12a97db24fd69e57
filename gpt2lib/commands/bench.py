"""Measure training steps on every runtime and number of threads, and write what was found.

    gpt2lib bench --out bench                              # the tiny model, in two minutes
    gpt2lib bench --preset gpt2 --threads 1,2 --iterations 40 --repeats 4 --out DIR

Every run is a fresh process; the order of the runs favours none. DIR/results.json has every
iteration and every operation, DIR/report.html the figures. Ctrl-C keeps what is done, and the same
command goes on from there. Runtimes that are not there are listed with the reason.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpt2lib._files import new_folder, one_writer
from gpt2lib.config import PRESETS, GPT2Config

if TYPE_CHECKING:
    from gpt2lib.perf.bench import Bench, Estimate, Settings

HELP = "measure every runtime and number of threads; write results, report and figures"

# Not NAMES of gpt2lib.runtimes: the help of every command would wait for that import.
_RUNTIMES = ("sequential", "threads", "openmp", "tbb", "nosv")
_RUNGS = ("blas", "micro", "blocked", "naive")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add = parser.add_argument
    add("--preset", default="tiny", choices=PRESETS, help="size of the model (default: tiny)")
    add("--batch", type=int, default=4, help="sequences in a step (default: 4)")
    add("--seq", type=int, default=64, help="tokens in a sequence (default: 64)")
    every = ",".join(_RUNTIMES)
    add("--runtimes", default=every, metavar="NAME,...", help=f"(default: {every})")
    add("--threads", metavar="N,...", help="numbers of threads (default: 1 and all cores)")
    add("--matmul", choices=_RUNGS, default="blas", help="matrix product (default: blas)")
    add("--iterations", type=int, default=20, help="in a run, the first included (default: 20)")
    add("--repeats", type=int, default=4, help="runs of each combination (default: 4)")
    add("--seed", type=int, default=0, help="of weights, tokens and order (default: 0)")
    add("--timeout", type=float, help="give a run up that says nothing for so many seconds")
    add("--sgemm", type=int, default=2048, metavar="N",
        help="size of the product whose rate is the ceiling (default: 2048)")  # fmt: skip
    add("--megabytes", type=int, metavar="N",
        help="size of the array that is read and copied (default: beyond the caches)")  # fmt: skip
    add("--dry-run", action="store_true", help="say what would be done and how long it would take")
    add("--out", required=True, metavar="DIR", help="the folder for results and report")


def run(args: argparse.Namespace) -> int:
    """Measure, write, print the summary; return the exit status."""
    from gpt2lib.perf import bench

    settings = _settings(args)
    missing = bench.absent(settings.runtimes)
    if not settings.combinations([row["runtime"] for row in missing]):
        reasons = "; ".join(f"{row['runtime']}: {row['reason']}" for row in missing)
        raise ValueError(f"none of these runtimes is there: {reasons}.")
    if not args.out:
        raise ValueError("--out needs the name of a folder.")
    if args.dry_run:  # which writes nothing
        return _run(args, settings, missing, Path(args.out))
    with new_folder(args.out) as folder, one_writer(folder):
        _check_writable(folder)
        return _run(args, settings, missing, folder)


def _run(args: argparse.Namespace, settings: Settings, missing: list[Any], folder: Path) -> int:
    """Do as ``run`` does, in a folder that nobody else writes to."""
    from gpt2lib.perf import bench

    fresh = bench.begin(settings, missing)
    results = bench.resume(folder, fresh) or fresh
    if results["finished"]:
        print(f"{folder} is finished: nothing is measured again, the report is renewed.")
        return _show(folder, results)
    ceilings = {"size": args.sgemm}
    if args.megabytes:
        ceilings["memory_bytes"] = args.megabytes << 20
    work = bench.Bench(folder, settings, results, ceilings=ceilings)
    _print_plan(work)
    _warn_if_busy()
    if args.dry_run:
        _estimate(work)
        return 0
    with _interrupts(work):
        estimate = _estimate(work)
        work.timeout = args.timeout or max(120.0, 30 * estimate.step(1))
        _measure(work, estimate)
    return _show(folder, work.results)


# ------------------------------------------------------------------------- options


def _settings(args: argparse.Namespace) -> Settings:
    """Check the options, and make settings of them."""
    from gpt2lib.perf.bench import Settings
    from gpt2lib.runtimes.cpus import default_threads, usable_cpus

    for option, least in (
        ("batch", 1),
        ("seq", 1),
        ("iterations", 2),
        ("repeats", 1),
        ("sgemm", 1),
    ):
        if getattr(args, option) < least:
            raise ValueError(f"--{option} must be at least {least}, got {getattr(args, option)}.")
    for option in ("megabytes", "timeout"):
        if getattr(args, option) is not None and not getattr(args, option) > 0:
            raise ValueError(f"--{option} must be positive, got {getattr(args, option)}.")
    if args.seed < 0:
        raise ValueError(f"--seed must not be negative, got {args.seed}.")
    config = GPT2Config.preset(args.preset)
    config.check_length(args.seq)
    runtimes = _listed(args.runtimes, "--runtimes")
    for name in runtimes:
        if name not in _RUNTIMES:
            raise ValueError(f"there is no runtime {name!r}; there are {', '.join(_RUNTIMES)}.")
    threads = _threads(args.threads) if args.threads is not None else [1, default_threads()]
    crowded = [n for n in threads if n > usable_cpus()]
    if crowded and runtimes != ["sequential"]:
        _warn(
            f"{', '.join(map(str, crowded))} threads on {usable_cpus()} cores: oversubscribed, "
            "they will wait for each other."
        )
    return Settings(
        preset=args.preset,
        config=config,
        batch=args.batch,
        seq=args.seq,
        matmul=args.matmul,
        iterations=args.iterations,
        repeats=args.repeats,
        runtimes=tuple(runtimes),
        threads=tuple(dict.fromkeys(threads)),
        seed=args.seed,
    )


def _listed(text: str, option: str) -> list[str]:
    """Return the parts of a list with commas, each once."""
    found = list(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    if not found:
        raise ValueError(f"{option} needs at least one entry.")
    return found


def _threads(text: str) -> list[int]:
    """Return the numbers of a list."""
    from gpt2lib.runtimes.cpus import check_threads

    numbers = []
    for part in _listed(text, "--threads"):
        try:
            numbers.append(check_threads(int(part)))
        except ValueError as error:
            plain = not part.lstrip("-").isdecimal()
            words = f"{part!r} is no whole number" if plain else str(error)
            raise ValueError(f"--threads: {words}.") from None
    return numbers


def _check_writable(folder: Path) -> None:
    """See whether the folder can be written to: before minutes of work, not after."""
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        words = error.strerror or str(error)
        raise ValueError(f"--out {folder} cannot be written to: {words}.") from None


# ------------------------------------------------------------------------- before it starts


def _print_plan(work: Bench) -> None:
    """Print what will be run, what will not, and why."""
    from gpt2lib.perf.machine import memory_limit

    s, done = work.settings, len(work.all_runs) - len(work.to_do)
    need = s.config.training_bytes(s.batch, s.seq)
    print(
        f"{len(work.all_runs)} runs, each a fresh process with {s.iterations} iterations: "
        f"{s.preset}, batch {s.batch}, seq {s.seq}, matmul {s.matmul}, "
        f"{s.flops / 1e9:.3g} GFLOP a step, arrays of {_size(need)}."
    )
    there = memory_limit()
    if there is not None and need > there:
        _warn(
            f"a run needs {_size(need)} of memory and may have {_size(there)}: it will swap or "
            "be killed. Take a smaller --preset, --batch or --seq."
        )
    for repeat in range(s.repeats):
        line = ", ".join(f"{r.runtime}/{r.threads}" for r in work.all_runs if r.repeat == repeat)
        print(f"  round {repeat + 1} (runtime/threads): {line}")
    for row in work.results["absent"]:
        words = f"{row['reason']}. {row['how_to_get']}".strip()
        print(f"  absent: {row['runtime']}: {words}")
    if done:
        print(f"  {done} of them are done already; going on.")
    sys.stdout.flush()


def _estimate(work: Bench) -> Estimate:
    """Have the kernels compiled, measure a product briefly, print how long it all will take."""
    from gpt2lib.perf.bench import Estimate, WorkerError, product_rate
    from gpt2lib.runtimes.cpus import usable_cpus

    try:
        compiled = work.compile()
    except WorkerError as error:
        raise ValueError(f"the kernels could not be compiled: {error}.") from None
    state = (
        f"{compiled['compiled']} functions compiled in {compiled['seconds']:.0f} s"
        if compiled["compiled"]
        else "compiled before"
    )
    print(f"kernels: {state}; no run compiles anything.")
    rate = product_rate(work.settings.matmul)
    estimate = Estimate(work.settings, rate, usable_cpus())
    total = estimate.total(work.to_do, 2 * len({run.threads for run in work.all_runs}))
    print(
        f"estimated time: {_duration(total)} (one thread multiplies {rate / 1e9:.3g} GFLOP/s; a "
        f"step on it takes about {_duration(estimate.step(1))})."
    )
    if work.settings.matmul in ("naive", "blocked") and total > 600:
        _warn(f"{work.settings.matmul} products are slow: this will take {_duration(total)}.")
    sys.stdout.flush()
    return estimate


def _warn_if_busy() -> None:
    """Say so when others use the machine: what they take is missing in the times."""
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    if load > 0.5:
        _warn(f"the machine is busy (load {load:.1f}): times will be longer, and speedups smaller.")


def _duration(seconds: float) -> str:
    """Write a time for a person."""
    if seconds < 1:
        return f"{1e3 * seconds:.3g} ms"
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60:02d} min"


def _size(count: int) -> str:
    """Write a number of bytes for a person."""
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.0f} MB"


def _warn(words: str) -> None:
    print(f"gpt2lib bench: warning: {words}", file=sys.stderr, flush=True)


# ------------------------------------------------------------------------- measuring


def _measure(work: Bench, estimate: Estimate) -> None:
    """Measure the ceilings, make all runs, measure the ceilings again."""
    numbers = len({run.threads for run in work.all_runs})
    with _Progress(work) as progress:
        _measure_ceilings(work, progress)
        for number, run in enumerate(list(work.to_do)):
            progress.begin(run)
            begun = time.perf_counter()
            if work.make(run, progress.heard):
                estimate.learn(run, time.perf_counter() - begun)
            else:
                reason = work.results["failed"][-1]["reason"]
                progress.note(f"{run.runtime}, {run.threads} threads: failed: {reason}")
            left = _duration(estimate.total(work.to_do, numbers))
            progress.end(run, left)
            if number == 0 and work.to_do:
                progress.note(f"after the first run: about {left} left.")
        _measure_ceilings(work, progress)
    work.finish()


def _measure_ceilings(work: Bench, progress: _Progress) -> None:
    """Measure what the machine can do at best; go on without where that fails."""
    from gpt2lib.perf.bench import WorkerError

    progress.say("measuring the machine's ceilings")
    try:
        work.measure_ceilings()
    except WorkerError as error:
        progress.note(f"the machine's ceilings were not measured: {error}")


class _Progress:
    """tqdm's bar over all iterations; a line a run where there is no terminal."""

    def __init__(self, work: Bench) -> None:
        from tqdm import tqdm

        self._work, self._each = work, work.settings.iterations
        self._bar: Any = None
        self._heard = 0
        if sys.stderr.isatty():
            done = len(work.all_runs) - len(work.to_do)
            self._bar = tqdm(
                total=self._each * len(work.all_runs),
                initial=self._each * done,
                unit="it",
                dynamic_ncols=True,
            )

    def __enter__(self) -> _Progress:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()

    def begin(self, run: Any) -> None:
        self._heard = 0
        self.say(f"{run.runtime}, {run.threads} thread{'s' * (run.threads > 1)}", quiet=True)

    def heard(self, iterations: int) -> None:
        self._heard += iterations
        if self._bar is not None:
            self._bar.update(iterations)

    def end(self, run: Any, left: str) -> None:
        if self._bar is not None:
            self._bar.update(self._each - self._heard)  # of a run that failed
            self._bar.set_postfix_str(f"{left} left")
            return
        done = len(self._work.all_runs) - len(self._work.to_do)
        self.note(
            f"run {done}/{len(self._work.all_runs)}: {run.runtime}, {run.threads} threads; "
            f"{left} left"
        )

    def say(self, words: str, *, quiet: bool = False) -> None:
        """Say what is being done: beside the bar, or on a line of its own unless it is quiet."""
        if self._bar is not None:
            self._bar.set_description_str(words)
        elif not quiet:
            self.note(words)

    def note(self, words: str) -> None:
        """Say something that stays."""
        if self._bar is not None:
            self._bar.write(words, file=sys.stderr)
        else:
            print(words, file=sys.stderr, flush=True)


@contextmanager
def _interrupts(work: Bench) -> Iterator[None]:
    """Let Ctrl-C, and SIGTERM, end it with what is done kept, and say how to go on."""
    here = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGTERM, signal.default_int_handler) if here else None
    try:
        work.save()  # the place for the results is there before anything is measured
        yield
    except KeyboardInterrupt:
        kept = len(work.results["runs"])
        raise KeyboardInterrupt(
            f"stopped: {kept} of {len(work.all_runs)} runs are kept in "
            f"{work.folder / 'results.json'}; the same command goes on from there."
        ) from None
    finally:
        if here:
            signal.signal(signal.SIGTERM, before)


# ------------------------------------------------------------------------- afterwards


def _show(folder: Path, results: dict[str, Any]) -> int:
    """Print the summary, write the report, name the files; return the exit status."""
    print()
    for line in _table(results["summary"]):
        print(line)
    for row in results["failed"]:
        print(f"failed: {row['runtime']}, {row['threads']} threads, repeat {row['repeat']}: "
              f"{row['reason']}")  # fmt: skip
    compiled = sum(run["compiled"] for run in results["runs"])
    if compiled:
        print(f"{compiled} functions were compiled during iterations: those times are not clean.")
    print(f"\nresults: {folder / 'results.json'}")
    if results["runs"]:
        from gpt2lib.perf import report

        print(f"report:  {report.write(folder, results)}")
        print(f"figures: {folder / 'figures'}")
    return 1 if results["failed"] else 0


def _table(summary: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Yield the lines of the summary."""
    yield (
        f"{'runtime':12s}{'threads':>8s}{'runs':>6s}{'first ms':>11s}{'mean ms':>11s}"
        f"{'median ms':>11s}{'spread':>8s}{'total s':>9s}{'speedup':>9s}{'efficiency':>12s}"
        f"{'GFLOP/s':>9s}{'of peak':>9s}"
    )
    for row in summary:
        speedup, efficiency, share = (
            "-" if row[key] is None else form.format(row[key])
            for key, form in (
                ("speedup", "{:.2f}"),
                ("efficiency", "{:.2f}"),
                ("share_of_peak", "{:.0%}"),
            )
        )
        yield (
            f"{row['runtime']:12s}{row['threads']:8d}{row['runs']:6d}{row['first_ms']:11.2f}"
            f"{row['mean_ms']:11.2f}{row['median_ms']:11.2f}{row['spread']:8.1%}"
            f"{row['total_s']:9.3f}{speedup:>9s}{efficiency:>12s}{row['gflops']:9.1f}{share:>9s}"
        )
