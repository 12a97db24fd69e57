"""The command line: ``gpt2lib COMMAND …``.

Whatever goes wrong that a person can put right ends as one line on stderr and exit status 2, with
no traceback; Ctrl-C ends with 130; a closed pipe (``| head``) ends quietly.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import importlib.util
import io
import os
import signal
import sys
from collections.abc import Sequence
from types import FrameType

COMMANDS = ("train", "generate", "check", "info", "tokenize", "run", "trace", "bench", "compare")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status.

    Parameters
    ----------
    argv
        The arguments, without the program's name; by default those of the process.

    Returns
    -------
    int
        0 when all went well, 1 when a check failed, 2 for bad input, 130 after Ctrl-C, 143 after
        SIGTERM (130 where that was an orderly end, with what was done saved).
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    command = ""
    try:
        if argv is None:
            signal.signal(signal.SIGTERM, _terminate)
        command = next((word for word in arguments if word in available_commands()), "")
        _never_fail_to_print()
        return _run(arguments)
    except KeyboardInterrupt as interrupt:
        if argv is None:  # the program ends here: a second signal shall not cut that short
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        status = 143 if isinstance(interrupt, _Terminated) else 130
        return _say(command, str(interrupt) or "interrupted.", status)
    except BrokenPipeError:
        _silence_stdout()
        return 0
    except (ValueError, OSError) as error:
        return _say(command, _one_line(error), 2)
    except MemoryError:
        words = "not enough memory: try a smaller model, a smaller batch or shorter sequences."
        return _say(command, words, 2)
    except RuntimeError as error:
        from gpt2lib.runtimes import RuntimeUnavailableError

        if not isinstance(error, RuntimeUnavailableError):
            raise
        return _say(command, _one_line(error), 2)
    except ImportError as error:
        return _say(command, f"{_one_line(error)} (pip install -r requirements.txt)", 2)


def _run(arguments: list[str]) -> int:
    """Do what the arguments say; return the exit status."""
    parser = build_parser(arguments)
    args = parser.parse_args(arguments)
    if args.command is None:
        parser.print_help()
        return 2
    status = args.module.run(args) or 0
    if sys.stdout is not None:  # a shell's ">&-" leaves none
        sys.stdout.flush()
    return status


class _Terminated(KeyboardInterrupt):
    """SIGTERM: what Ctrl-C cleans up and saves, this does too."""


def _terminate(number: int, frame: FrameType | None) -> None:
    raise _Terminated("terminated.")


def build_parser(arguments: Sequence[str] = ()) -> argparse.ArgumentParser:
    """Return the parser of all commands.

    Parameters
    ----------
    arguments
        What will be parsed. Only the command named in it gets its options: the others' modules
        need not be imported for that.
    """
    from gpt2lib import __version__

    parser = argparse.ArgumentParser(
        prog="gpt2lib",
        description="GPT-2 in Python: train it, let it tell stories, check its gradients.",
        epilog="gpt2lib COMMAND --help says more.",
    )
    parser.add_argument("--version", action="version", version=f"gpt2lib {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", title="commands")
    for name in available_commands():
        module = importlib.import_module(f"gpt2lib.commands.{name}")
        command = commands.add_parser(
            name,
            help=module.HELP,
            description=module.__doc__,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        command.set_defaults(module=module)
        if name in arguments:
            module.add_arguments(command)
    return parser


def available_commands() -> list[str]:
    """Return the names of the commands, in the order in which the help lists them."""
    return [n for n in COMMANDS if importlib.util.find_spec(f"gpt2lib.commands.{n}") is not None]


def _say(command: str, message: str, status: int) -> int:
    """Print one line on stderr and return the exit status."""
    with contextlib.suppress(OSError):
        print(f"gpt2lib {command}".rstrip() + f": {message}", file=sys.stderr)
    return status


def _one_line(error: BaseException) -> str:
    """Return an error's message on one line; an OSError as "reason: file"."""
    if isinstance(error, OSError) and error.strerror:
        where = f": {error.filename}" if error.filename is not None else ""
        return f"{error.strerror}{where}"
    return " ".join(str(error).split()) or type(error).__name__


def _never_fail_to_print() -> None:
    """Let a terminal that cannot show a character show a stand-in instead of raising."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def _silence_stdout() -> None:
    """Point stdout at nothing, so that the interpreter's last flush finds no closed pipe."""
    with contextlib.suppress(OSError, ValueError):
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, sys.stdout.fileno())
