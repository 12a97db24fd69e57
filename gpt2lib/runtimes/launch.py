"""Start a command with what its runtime needs in its process from the very start.

::

    python -m gpt2lib.runtimes.launch --runtime nosv -- python train.py
    python -m gpt2lib.runtimes.launch --runtime nosv --ovni -- python train.py
    python -m gpt2lib.runtimes.launch --runtime openmp --preload libomp.so.5 -- python train.py

nOS-V, or another OpenMP runtime than the system's, has to be loaded before Python is. The command
runs as a child: signals are handed on to it, and when it has ended, however it did, shared memory
that it left behind is deleted.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence

_HANDED_ON = ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT")


def launch(
    argv: Sequence[str],
    *,
    runtime: str = "nosv",
    ovni: bool = False,
    preload: Sequence[str] = (),
    library: str | None = None,
    trace_folder: str | os.PathLike[str] | None = None,
) -> int:
    """Run a command in the environment that a runtime needs; return its exit status.

    Parameters
    ----------
    argv
        The command and its arguments.
    runtime
        ``nosv`` preloads nOS-V and sets what it needs; the others need nothing.
    ovni
        With ``nosv``: write an ovni trace. ``ovniemu -l <folder>`` makes Paraver files of it.
    preload
        Libraries to load before all others, such as another OpenMP runtime.
    library
        Path of ``libnosv.so``, where it is not found by itself.
    trace_folder
        Where the ovni trace shall stand (``ovni`` in the working directory).

    Returns
    -------
    int
        The command's exit status; 128 + the signal's number if a signal ended it, as in a shell.

    Raises
    ------
    FileNotFoundError
        If the command or the library is not there.
    """
    from gpt2lib.runtimes import nosv

    if not argv or shutil.which(argv[0]) is None:
        raise FileNotFoundError(f"no command {argv[0]!r}" if argv else "no command to run")
    environment = dict(os.environ)
    preloaded = [*preload, *environment.get("LD_PRELOAD", "").replace(" ", ":").split(":")]
    if any(preloaded):
        environment["LD_PRELOAD"] = ":".join(path for path in preloaded if path)
    if runtime == "nosv":
        environment = nosv.environment(
            environment, library=library, ovni=ovni, trace_folder=trace_folder
        )
    try:
        return _run_child(argv, environment)
    finally:
        if runtime == "nosv":
            nosv.remove_stale_segments()


def _run_child(argv: Sequence[str], environment: dict[str, str]) -> int:
    """Run the child to its end and hand on to it the signals that are meant for it."""
    if not hasattr(signal, "sigwaitinfo"):
        return subprocess.run(argv, env=environment, check=False).returncode
    names = {getattr(signal, name) for name in _HANDED_ON}
    waited_for = names | {signal.SIGCHLD}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, waited_for)
    try:
        child = subprocess.Popen(
            argv,
            env=environment,
            # A blocked signal stays blocked across exec: the child shall have it as we had it.
            preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_SETMASK, before),
        )
        while child.poll() is None:
            signal_info = signal.sigwaitinfo(waited_for)
            # Ctrl-C in a terminal (a positive code: the kernel's) reaches the child by itself;
            # what somebody sends to this process only has to be handed on.
            if signal_info.si_signo in names and signal_info.si_code <= 0:
                child.send_signal(signal_info.si_signo)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return child.returncode if child.returncode >= 0 else 128 - child.returncode


def main(arguments: Sequence[str] | None = None) -> int:
    """Read a command line (``None``: this process's own) and run what it asks for."""
    parser = argparse.ArgumentParser(
        prog="python -m gpt2lib.runtimes.launch",
        description="Start a command with what its runtime needs in its process.",
    )
    from gpt2lib.runtimes import NAMES

    parser.add_argument("--runtime", choices=NAMES, default="nosv")
    parser.add_argument("--ovni", action="store_true", help="nosv: write an ovni trace")
    parser.add_argument("--trace-folder", metavar="DIR", help="where the ovni trace shall stand")
    parser.add_argument("--library", metavar="FILE", help="nosv: the path of libnosv.so")
    parser.add_argument(
        "--preload", metavar="FILE", action="append", default=[], help="load this library first"
    )
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="-- command ...")
    options = parser.parse_args(arguments)
    command = options.command[1:] if options.command[:1] == ["--"] else options.command
    try:
        return launch(
            command,
            runtime=options.runtime,
            ovni=options.ovni,
            preload=options.preload,
            library=options.library,
            trace_folder=options.trace_folder,
        )
    except FileNotFoundError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
