r"""Why the first iteration differs: what each cause costs, and what is faster at first.

    python benchmarks/first_iteration.py --preset gpt2 --compilation \
        --out benchmarks/results/gpt2-first-iteration.json

Every process is fresh and has one cause more taken away than the one before; the costs add
up to the difference between iteration 0 and the later ones. :mod:`gpt2lib.perf.first_iteration`
explains the experiment. Progress goes to stderr, the table to stdout.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from pathlib import Path

from gpt2lib.config import PRESETS, GPT2Config
from gpt2lib.perf import first_iteration


def main(arguments: list[str] | None = None) -> int:
    """Measure what the command line says, write it, and print it."""
    options = _parser().parse_args(arguments)
    threads = [int(number) for number in options.threads.split(",")]
    config = GPT2Config.preset(options.preset)
    if options.out and not Path(options.out).parent.is_dir():
        print(f"error: there is no folder {Path(options.out).parent}", file=sys.stderr)
        return 2
    begin = time.perf_counter()

    def progress(text: str) -> None:
        print(f"{time.perf_counter() - begin:7.0f} s  {text}", file=sys.stderr, flush=True)

    shape = {"batch": options.batch, "seq": options.seq, "iterations": options.iterations}
    results = first_iteration.run(
        config,
        threads=threads,
        runtime=options.runtime,
        repeats=options.repeats,
        compilation=options.compilation,
        progress=progress,
        **shape,
    )
    _save(options.out, results)  # before more is measured
    results["faster"] = first_iteration.faster(
        config, repeats=options.repeats, progress=progress, **shape
    )
    _save(options.out, results)
    print(first_iteration.table(results))
    print("\nfirst time over later times, on one thread, everything prepared (least, median, most)")
    for name, values in first_iteration.ratios(results["faster"]).items():
        middle = statistics.median(values)
        print(f"  {name:45s} {min(values):8.3f} {middle:8.3f} {max(values):8.3f}")
    print(f"\nthe clock: {first_iteration.about_clock(results)}")
    return 0


def _save(path: str | None, results: dict) -> None:
    if path:
        first_iteration.save(path, results)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--preset", default="gpt2", choices=PRESETS)
    add("--batch", type=int, default=4)
    add("--seq", type=int, default=64)
    add("--runtime", default="threads", help="for more than one thread (default: threads)")
    add("--threads", default="1,2", help="the cases (default: 1,2; 1 is the sequential runtime)")
    add("--repeats", type=int, default=5)
    add("--iterations", type=int, default=5, help="steps in each process")
    add("--compilation", action="store_true", help="also from a cache of kernels that is empty")
    add("--out", metavar="FILE", help="write everything here, as JSON")
    return parser


if __name__ == "__main__":
    sys.exit(main())
