"""Start a command with what its runtime needs in its process from the very start.

    gpt2lib run --runtime nosv -- gpt2lib train --backend numba --runtime nosv --out run
    gpt2lib run --runtime nosv --ovni -- python train.py
    gpt2lib run --runtime openmp --preload libomp.so.5 -- python train.py

nOS-V, or another OpenMP runtime than the system's, has to be loaded before Python is: it cannot be
chosen from inside. What is set for that is printed. Signals go on to the command, its exit status
comes back, and shared memory that it leaves behind is deleted.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping

HELP = "start a command with a runtime that must be loaded before Python is (nOS-V, an OpenMP)"

# Not NAMES of gpt2lib.runtimes: the help of every command would wait for that import.
_RUNTIMES = ("nosv", "openmp", "tbb", "threads", "sequential")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add = parser.add_argument
    add("--runtime", choices=_RUNTIMES, default="nosv", help="for which runtime (default: nosv)")
    add("--ovni", action="store_true", help="nosv: write an ovni trace")
    add("--trace-folder", metavar="DIR", help="where the ovni trace shall stand (default: ovni)")
    add("--library", metavar="FILE", help="nosv: libnosv.so, where it is not found by itself")
    add(
        "--preload",
        metavar="FILE",
        action="append",
        default=[],
        help="load this library before all others; may be given several times",
    )
    add("--quiet", action="store_true", help="do not print what is set")
    add("program", nargs=argparse.REMAINDER, metavar="-- COMMAND ...", help="what to start")


def run(args: argparse.Namespace) -> int:
    """Start the command; return its exit status."""
    from gpt2lib.runtimes import launch

    program = args.program[1:] if args.program[:1] == ["--"] else args.program
    if not program:
        raise ValueError("what is to be started? gpt2lib run --runtime nosv -- COMMAND ...")
    if (args.ovni or args.library or args.trace_folder) and args.runtime != "nosv":
        raise ValueError(f"--ovni, --trace-folder and --library are nosv's, not {args.runtime}'s.")
    if not args.quiet:
        _print_settings(args.runtime, _environment(args))
    return launch.launch(
        program,
        runtime=args.runtime,
        ovni=args.ovni,
        preload=args.preload,
        library=args.library,
        trace_folder=args.trace_folder,
    )


def _environment(args: argparse.Namespace) -> dict[str, str]:
    """Return the environment that the launcher will make of this one."""
    from gpt2lib.runtimes import nosv

    environment = dict(os.environ)
    before = environment.get("LD_PRELOAD", "").replace(" ", ":").split(":")
    if preloaded := [path for path in [*args.preload, *before] if path]:
        environment["LD_PRELOAD"] = ":".join(preloaded)
    if args.runtime != "nosv":
        return environment
    return nosv.environment(
        environment, library=args.library, ovni=args.ovni, trace_folder=args.trace_folder
    )


def _print_settings(runtime: str, environment: Mapping[str, str]) -> None:
    """Print, on stderr, what the command will find in its environment that is not in ours."""
    new = {key: value for key, value in environment.items() if os.environ.get(key) != value}
    for key, value in new.items():
        print(f"gpt2lib run: {key}={value}", file=sys.stderr)
    if not new:
        print(f"gpt2lib run: runtime {runtime} needs nothing to be set.", file=sys.stderr)
    sys.stderr.flush()
