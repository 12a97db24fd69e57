"""Say what has become slower or faster between benchmarks, with regard to their noise.

    gpt2lib compare before after                        # two folders of gpt2lib bench
    gpt2lib compare before after later --out compared   # all against the first, with figures

Two versions of the program, or two machines. Every folder should hold three runs of each runtime at
least, better four (gpt2lib bench --repeats 4): their scatter decides what counts as a change. The
exit status is 0 when nothing got slower, 1 when something did, 2 for bad input.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpt2lib.perf.compare import Comparison, Row

HELP = "say what has become slower or faster from one benchmark to another"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add = parser.add_argument
    add("folders", nargs="+", metavar="DIR", help="what gpt2lib bench has written; the first is "
        "what the others are compared with")  # fmt: skip
    add("--threshold", type=float, default=5.0, metavar="PERCENT",
        help="the smallest change that counts (default: 5)")  # fmt: skip
    add("--confidence", type=float, default=0.99,
        help="that no interval of a comparison is wrong (default: 0.99)")  # fmt: skip
    add("--all", action="store_true", help="list every operation of every runtime")
    add("--out", metavar="DIR2", help="write comparison.json, a figure and a page there")


def run(args: argparse.Namespace) -> int:
    """Compare, print, write; return the exit status."""
    from gpt2lib.perf import results
    from gpt2lib.perf.compare import compare

    if len(args.folders) < 2:
        raise ValueError("there is nothing to compare with: name two folders or more.")
    if args.out == "":
        raise ValueError("--out needs the name of a folder.")
    if not 0 < args.threshold < 1000:
        raise ValueError(f"--threshold is a percentage above 0, such as 5, got {args.threshold:g}.")
    if args.out and Path(args.out).exists() and not Path(args.out).is_dir():
        raise ValueError(f"--out {args.out} is a file; name a folder.")
    if "" in args.folders:
        raise ValueError("an empty name is no folder: name the folders to compare.")
    for folder in map(Path, args.folders):
        if folder.is_dir() and not (folder / "results.json").exists():
            raise ValueError(f"{folder} holds no results.json: gpt2lib bench --out {folder}.")
    names = _names(args.folders)
    first, *others = [results.load(folder) for folder in args.folders]
    found = [
        compare(
            first,
            other,
            confidence=args.confidence,
            threshold=args.threshold / 100,
            names=(names[0], name),
        )
        for name, other in zip(names[1:], others, strict=True)
    ]
    for comparison in found:
        _print(comparison, args.all)
    if args.out:
        _write(Path(args.out), found)
    return int(any(comparison.of("slower") for comparison in found))


def _names(folders: Sequence[str]) -> list[str]:
    """Return the folders' last names, or all of their names where those are not different."""
    short = [Path(folder).resolve().name for folder in folders]
    return short if len(set(short)) == len(short) else [str(folder) for folder in folders]


def _write(folder: Path, found: Sequence[Comparison]) -> None:
    from gpt2lib.perf.compare_page import write

    folder.mkdir(parents=True, exist_ok=True)
    paths = write(folder, found)
    print(f"written to {folder}: {', '.join(path.name for path in paths)}")


def _print(comparison: Comparison, every: bool) -> None:
    """Print the warnings, the table and the result of a comparison."""
    from gpt2lib.perf.compare_page import headline

    print(f"{comparison.after} against {comparison.before}")
    for text in comparison.warnings:
        print(f"  WARNING: {text}")
    for text in comparison.notes:
        print(f"  {text}")
    print(f"\n{'':42s} {'before ms':>10s} {'after ms':>10s} {'ratio':>6s}   interval")
    shown = [row for row in comparison.rows if every or _matters(comparison, row)]
    for row in shown:
        print(_line(row))
    hidden = len(comparison.rows) - len(shown)
    if hidden:
        print(f"  {hidden} more rows are the same (--all lists them)")
    print(f"\n{headline(comparison)}. {_resolution(comparison.resolution)}\n")


def _matters(comparison: Comparison, row: Row) -> bool:
    """Say whether a row is shown: totals, the first pair's operations, and what has changed."""
    first = comparison.rows[0]
    return (
        row.label == row.pair
        or (row.runtime, row.threads) == (first.runtime, first.threads)
        or row.verdict != "same"
    )


def _line(row: Row) -> str:
    name = row.label if row.label == row.pair else f"  {row.label}"
    verdict = {"slower": "SLOWER", "faster": "faster", "same": "same"}[row.verdict]
    if row.verdict == "same" and (row.low < 0.5 or row.high > 2):
        verdict = "cannot tell"  # the interval holds half and twice the time
    return (
        f"{name:42s} {row.before_ms:10.4g} {row.after_ms:10.4g} {row.ratio:6.3f}   "
        f"{_end(row.low)} to {_end(row.high)}  {verdict}"
    )


def _end(ratio: float) -> str:
    """Return an end of an interval; beyond a hundredfold the number says nothing."""
    return "<0.01" if ratio < 0.01 else ">100" if ratio > 100 else f"{ratio:.3f}"


def _resolution(share: float) -> str:
    if share > 1:
        return "The runs are too few, or too restless, to see anything but very large changes."
    return f"A change below about {share:.0%} could have gone unnoticed in half of the rows."
