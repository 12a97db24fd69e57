"""The process of a contender: reads a request a line, answers with a line of JSON.

Run by the interpreter that has what the contender needs, as
``python -m benchmarks.side_by_side.worker ours.Training``. A request names a method and its keyword
arguments. Whatever a library prints goes to stderr: the answers have a channel of their own.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import signal
import sys
import traceback
from pathlib import Path
from typing import Any


def die_with_parent() -> None:
    """Have the system end this process when the one that started it is gone (Linux)."""
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def peak_bytes(pid: int | str = "self") -> int | None:
    """Return the most memory that a process has had in RAM at once, in bytes (Linux: VmHWM)."""
    try:
        for line in Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    except (OSError, IndexError, ValueError):
        pass
    return None


def serve(contender: Any, requests: Any, answers: Any) -> None:
    """Answer requests until there are no more."""
    for line in requests:
        request = json.loads(line)
        method = request.pop("do")
        try:
            if method == "peak_bytes":
                result: Any = peak_bytes()
            else:
                result = getattr(contender, method)(**request)
            answer = {"result": result}
        except Exception as error:
            traceback.print_exc(file=sys.stderr)
            words = " ".join(str(error).split())
            answer = {"error": f"{type(error).__name__}: {words}"[:500]}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def main() -> None:
    """Make the contender that the command line names, and serve it."""
    die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the one who keeps the results
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    module, name = sys.argv[1].rsplit(".", 1)
    contender = getattr(importlib.import_module(f"benchmarks.side_by_side.{module}"), name)
    serve(contender(), sys.stdin, answers)


if __name__ == "__main__":
    main()
