"""What a parallel region costs on each runtime: ``python benchmarks/regions.py``.

Each runtime and number of threads is measured in a process of its own, several times, in turns, so
that what else the machine does falls on all of them alike. The columns, in microseconds:

empty      a region of as many empty chunks as threads, one after the other
meeting    the same, but each chunk waits until all have been started: no thread can do it alone
after 5 ms the same as "meeting" after a pause of 5 ms, in which the workers have gone to sleep
gap 50 us  what "empty" costs when 50 µs of Python lie before each region, as in a training step
efficiency 16 chunks of 100 µs each: the ideal time as a share of the time taken
trace      what writing a trace adds to each of these chunks
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time

import numpy as np

COLUMNS = ("empty", "meeting", "after 5 ms", "gap 50 us", "efficiency", "trace")


def kernels():
    """Compile the three kernels."""
    from numba import cfunc, types

    from gpt2lib.runtimes.native import fetch_add, load, nanoseconds

    kernel = types.void(types.int64, types.int64)  # the block's address as a number

    @cfunc(kernel)
    def empty(chunk, block):
        pass

    @cfunc(kernel)
    def meeting(chunk, block):
        """Block: how many have come, how many there will be."""
        everybody = load(block + 8)
        turn = fetch_add(block, 1) // everybody  # the count is never reset
        while load(block) < (turn + 1) * everybody:
            pass

    @cfunc(kernel)
    def busy(chunk, block):
        """Block: for how many ns."""
        end = nanoseconds() + load(block)
        while nanoseconds() < end:
            pass

    return empty, meeting, busy


def measure(name: str, threads: int) -> dict:
    """Measure one runtime in this process; all numbers in microseconds."""
    from gpt2lib import runtimes

    empty, meeting, busy = (kernel.address for kernel in kernels())
    runtime = runtimes.get(name, threads)
    block = np.zeros(16, np.int64)
    address = block.ctypes.data
    block[1] = threads

    def time_of(function, count, chunks=threads, before=lambda: None):
        taken = []
        stop = time.perf_counter() + 5  # on a machine that is busy with others, fewer will do
        for _ in range(count + 10):
            if len(taken) > 20 and time.perf_counter() > stop:
                break
            before()
            start = time.perf_counter_ns()
            runtime.run(function, address, chunks)
            taken.append((time.perf_counter_ns() - start) / 1000)
        return np.array(taken[10:])

    def wait_a_little():
        end = time.perf_counter_ns() + 50_000
        while time.perf_counter_ns() < end:
            pass

    result = {
        "empty": time_of(empty, 3000),
        "meeting": time_of(meeting, 1000),
        "after 5 ms": time_of(meeting, 40, before=lambda: time.sleep(0.005)),
        "gap 50 us": time_of(empty, 1000, before=wait_a_little),
    }
    summary = {
        key: [float(np.min(values)), float(np.median(values))] for key, values in result.items()
    }
    block[0] = 100_000
    plain = time_of(busy, 60, chunks=16)
    runtime.trace = runtimes.TraceBuffer(100_000)
    traced = time_of(busy, 60, chunks=16)
    ideal = 100 * 16 / threads
    summary["efficiency"] = [float(ideal / np.min(plain)), float(ideal / np.median(plain))]
    per_chunk = [(np.min(traced) - np.min(plain)), (np.median(traced) - np.median(plain))]
    summary["trace"] = [float(value) * threads / 16 for value in per_chunk]
    runtime.trace = None
    return {"summary": summary, "description": runtime.describe()}


def measure_in_a_process(name: str, threads: int) -> dict:
    """Start this file again, with what the runtime needs in its process."""
    command = [sys.executable, __file__, "--measure", name, str(threads)]
    if name == "nosv":
        launcher = [sys.executable, "-m", "gpt2lib.runtimes.launch", "--runtime", "nosv", "--"]
        command = [*launcher, *command]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    except subprocess.TimeoutExpired:
        return {"error": "not ended after 300 s"}
    if done.returncode != 0:
        return {"error": (done.stderr.strip().splitlines() or ["no message"])[-1]}
    return json.loads(done.stdout.splitlines()[-1])


def table(results: dict) -> str:
    """Best over all repeats, and the median of the repeats' medians."""
    lines = [f"{'runtime':<12}" + "".join(f"{column:>18}" for column in COLUMNS)]
    for label, runs in results.items():
        good = [run["summary"] for run in runs if "summary" in run]
        if not good:
            lines.append(f"{label:<12}  {runs[0]['error']}")
            continue
        cells = []
        for column in COLUMNS:
            pick = max if column == "efficiency" else min
            best = pick(run[column][0] for run in good)
            median = statistics.median(run[column][1] for run in good)
            digits = 3 if column == "efficiency" else 2
            cells.append(f"{best:>9.{digits}f}/{median:>8.{digits}f}")
        lines.append(f"{label:<12}" + "".join(cells))
    return "\n".join(lines)


def main() -> None:
    """Measure what the command line names and print a table of best/median."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runtimes", default="sequential,threads,openmp,tbb,nosv")
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", metavar="FILE", help="also write every number to this file")
    parser.add_argument("--measure", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measure(options.measure[0], int(options.measure[1]))))
        return
    cases = [
        (name, int(threads))
        for name in options.runtimes.split(",")
        for threads in options.threads.split(",")
        if name != "sequential" or threads == "1"
    ]
    results: dict = {f"{name} {threads}": [] for name, threads in cases}
    for repeat in range(options.repeats):
        for name, threads in cases if repeat % 2 == 0 else reversed(cases):
            results[f"{name} {threads}"].append(measure_in_a_process(name, threads))
    print(f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores; best/median, µs")
    print(table(results))
    if options.json:
        from gpt2lib._files import atomic_write

        with atomic_write(options.json) as path:
            path.write_text(json.dumps(results, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
