"""gpt2lib beside others, in one run, in turns: ``python benchmarks/peers.py``.

    python benchmarks/peers.py --preset gpt2 --batch 4 --seq 64 --llmc PATH --torch-python PATH

What is compared, how, and what the results hold: benchmarks/README.md. Progress goes to stderr, the
table to stdout; Ctrl-C, or SIGTERM, ends the run and keeps what has been measured.
"""

from __future__ import annotations

import argparse
import datetime
import os
import signal
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.side_by_side import plan, report
from gpt2lib.config import PRESETS, GPT2Config

CONTENDERS = tuple(plan.LABELS)


def main(argv: list[str] | None = None) -> int:
    """Measure what the command line asks for; print the table."""
    parser = build_parser()
    args = parser.parse_args(argv)
    try:
        settings = read_settings(args)
    except ValueError as error:
        parser.error(str(error))
    results = start(args, settings)

    def keep() -> None:
        results["summary"] = report.summarize(results)
        if args.out:
            report.save(Path(args.out), results)

    status = 0
    # Who ends it from outside (timeout, a batch system) loses no more than who presses Ctrl-C.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        warn_if_busy(settings)
        settings.keep = keep
        plan.run(settings, results)
        results["finished"] = True
    except KeyboardInterrupt:
        settings.say("interrupted: what has been measured is kept.")
        status = 130
    keep()
    print(report.table(results))
    if args.out:
        settings.say(f"written: {args.out}")
    return status or any_disagreement(results)


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    add = parser.add_argument
    add("--preset", choices=tuple(PRESETS), default="gpt2")
    add("--layers", type=int, help="other than the preset's")
    add("--batch", type=int, default=4)
    add("--seq", type=int, default=64)
    add("--threads", type=int, help="default: as many as this process may use")
    add("--repeats", type=int, default=5, help="rounds")
    add("--steps", type=int, default=3, help="timed steps in a contender's turn")
    add("--tokens", type=int, default=24, help="tokens generated in a contender's turn")
    add("--seed", type=int, default=0, help="of weights and tokens")
    add("--runtime", default="threads", help="this library's, in all comparisons")
    add("--runtimes", default="", metavar="NAME,…", help="compare this library's runtimes too")
    add("--matmul", help="this library's matrix product (default: BLAS)")
    add("--llmc", metavar="PATH", help="llm.c's built train_gpt2, or its folder")
    add("--torch-python", metavar="PATH", default=sys.executable,
        help="an interpreter that has torch and transformers")  # fmt: skip
    add("--only", default="", metavar="NAME,…", help=f"these contenders: {', '.join(CONTENDERS)}")
    add("--phases", default=",".join(plan.PHASES), metavar="NAME,…", help="these phases")
    add("--generate", action=argparse.BooleanOptionalAction, default=True,
        help="with the phase of generation")  # fmt: skip
    add("--timeout", type=float, default=600, help="seconds that a turn may take")
    add("--compile-timeout", type=float, default=900, help="seconds for torch.compile")
    add("--megabytes", type=int, default=512, help="of memory read to find its rate")
    add("--sgemm", type=int, default=2048, help="size of the matrix product to find its rate")
    add("--out", metavar="FILE", help="write the results there, as JSON")
    return parser


def read_settings(args: argparse.Namespace) -> plan.Settings:
    """Check the command line, and make settings of it."""
    from gpt2lib.runtimes import NAMES, default_threads

    config = GPT2Config.preset(args.preset, **({"layers": args.layers} if args.layers else {}))
    config.check_length(args.seq)
    for name in ("batch", "repeats", "steps", "tokens", "megabytes", "sgemm"):
        if getattr(args, name) < (2 if name == "tokens" else 1):
            raise ValueError(f"--{name} {getattr(args, name)} is too small")
    if args.threads is not None and args.threads < 1:
        raise ValueError("--threads must be at least 1")
    runtimes = _listed(args.runtimes, NAMES, "--runtimes")
    _listed(args.runtime, NAMES, "--runtime")
    phases = _listed(args.phases, plan.PHASES, "--phases")
    only = _listed(args.only, CONTENDERS, "--only")
    if args.tokens + plan.PROMPT > config.context:
        raise ValueError(f"--tokens {args.tokens} does not fit the context of {config.context}")
    return plan.Settings(
        config=config,
        batch=args.batch,
        seq=args.seq,
        threads=args.threads or default_threads(),
        repeats=args.repeats,
        steps=args.steps,
        tokens=args.tokens,
        seed=args.seed,
        runtime=args.runtime,
        runtimes=runtimes,
        matmul=args.matmul,
        only=only,
        phases=tuple(name for name in phases if args.generate or name != "generation"),
        llmc=args.llmc,
        torch_python=args.torch_python,
        timeout=args.timeout,
        compile_timeout=args.compile_timeout,
        megabytes=args.megabytes,
        sgemm=args.sgemm,
        say=lambda text: print(text, file=sys.stderr, flush=True),
    )


def _listed(text: str, known: tuple[str, ...], option: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    for name in names:
        if name not in known:
            raise ValueError(f"{option}: there is no {name!r}; there are {', '.join(known)}")
    return names


def start(args: argparse.Namespace, settings: plan.Settings) -> dict[str, Any]:
    """Return results that hold everything but measurements. No path of this machine goes in."""
    from gpt2lib.commands.info import gather

    facts = gather()
    hidden = {"llmc", "torch_python", "out"}
    plain = {key: value for key, value in vars(args).items() if key not in hidden}
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    return {
        "schema": report.SCHEMA,
        "taken": now,
        "finished": False,
        "machine": {**facts["processor"], **facts["memory"]},
        "versions": {**facts["versions"], "BLAS": facts["BLAS"]},
        "settings": {
            **plain, "threads": settings.threads, "config": settings.config.to_dict()
        },
        "phases": {},
        "summary": {},
    }  # fmt: skip


def warn_if_busy(settings: plan.Settings) -> None:
    """Say so when others use the machine."""
    load = os.getloadavg()[0]
    if load > 0.5:
        settings.say(f"The machine is busy (load {load:.1f}): times will be longer and vary.")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    if settings.threads > (cores or 1):
        settings.say(f"{settings.threads} threads on {cores} cores: they will wait for each other.")


def any_disagreement(results: dict[str, Any]) -> int:
    """Return 1 where contenders computed different things, else 0."""
    entries = [e for p in results["phases"].values() for e in p.get("contenders", {}).values()]
    return int(any(entry["status"] == "disagrees" for entry in entries))


if __name__ == "__main__":
    sys.exit(main())
