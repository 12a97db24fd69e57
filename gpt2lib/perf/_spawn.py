"""A worker process, seen from outside: started with a runtime's settings, listened to, ended."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

Record = dict[str, Any]
WORKER = "gpt2lib.perf._worker"


class WorkerError(RuntimeError):
    """A worker that died, hung or refused; the message is the reason that the results give."""


class Worker:
    """A fresh process of ``gpt2lib.perf._worker``; a context manager that leaves none behind.

    Parameters
    ----------
    request
        What it is to do.
    runtime, threads
        Whose settings it gets in its environment, before it starts.
    timeout
        Seconds that it may say nothing.
    """

    def __init__(
        self, request: Record, *, runtime: str = "sequential", threads: int = 1, timeout: float
    ) -> None:
        command = [sys.executable, "-m", WORKER, json.dumps(request)]
        if runtime == "nosv":
            launcher = ["-m", "gpt2lib.runtimes.launch", "--runtime", "nosv", "--"]
            command = [sys.executable, *launcher, *command]
        self.timeout = timeout
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115  closed in close()
        self.started = time.perf_counter()
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            env=environment(threads),
            start_new_session=True,  # a Ctrl-C in the terminal is for us
        )
        self._lines: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        with contextlib.suppress(ValueError, OSError):  # closed under our hands
            for line in self.process.stdout:
                self._lines.put(line)
        self._lines.put(None)

    def answers(self) -> Iterator[Record]:
        """Yield what it says, up to and with the answer that has the key ``done``.

        Raises
        ------
        WorkerError
            When it dies, says nothing for too long, or says what went wrong.
        """
        while True:
            try:
                line = self._lines.get(timeout=self.timeout)
            except queue.Empty:
                words = f"said nothing for {self.timeout:.0f} s and was ended"
                raise WorkerError(words) from None
            if line is None:
                raise WorkerError(self._last_words())
            try:
                answer = json.loads(line)
            except ValueError:
                raise WorkerError(f"gave an answer that is none: {line[:100]!r}") from None
            if "error" in answer:
                raise WorkerError(without_paths(answer["error"]))
            yield answer
            if "done" in answer:
                return

    def _last_words(self) -> str:
        """Say how it ended: its status, and the last line that it wrote to stderr."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(5)
        status = self.process.returncode
        self._stderr.seek(0, os.SEEK_END)
        self._stderr.seek(max(0, self._stderr.tell() - 4000))
        lines = self._stderr.read().decode("utf-8", "replace").strip().splitlines()
        words = without_paths(lines[-1].strip()) if lines else "it left no message"
        return f"{_ending(status)}: {words}"[:500]

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.close(0.0 if kind else 5.0)

    def close(self, patience: float) -> None:
        """End the process and all that it has started, after so many seconds for it to end itself.

        One that has given its last answer is let go in peace: nOS-V takes its shared memory along.
        """
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(patience)
        self._kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(10)
        if self.process.stdout is not None:
            self.process.stdout.close()
        self._stderr.close()

    def _kill(self) -> None:
        """Kill the process group: a launcher's child is in it too."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if hasattr(os, "killpg"):
                os.killpg(self.process.pid, signal.SIGKILL)
            else:
                self.process.kill()


def ask(
    request: Record, *, runtime: str = "sequential", threads: int = 1, timeout: float
) -> Record:
    """Start a worker for one question; return its last answer.

    Raises
    ------
    WorkerError
        As :meth:`Worker.answers`.
    """
    with Worker(request, runtime=runtime, threads=threads, timeout=timeout) as worker:
        *_, last = worker.answers()
        return last


def environment(threads: int) -> dict[str, str]:
    """Return the environment of a worker: as many threads as asked for, and no others.

    BLAS starts with one: the library's kernels call it so anyway, and threads of its own would
    only be in the way.
    """
    own = str(Path(__file__).resolve().parents[2])
    path = os.pathsep.join(filter(None, (own, os.environ.get("PYTHONPATH", ""))))
    one = dict.fromkeys(("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS"), "1")
    number = {"OMP_NUM_THREADS": str(threads), "NUMBA_NUM_THREADS": str(threads)}
    return {**os.environ, **one, **number, "PYTHONPATH": path}


def without_paths(text: str) -> str:
    """Shorten the paths in a message to their last part: a machine's folders are its own affair."""
    words = [
        Path(word).name if word.lstrip("'\"(").startswith("/") else word for word in text.split(" ")
    ]
    return " ".join(words)


def _ending(status: int | None) -> str:
    """Say in words how a process ended. A launcher's 128 + n is its child's signal n."""
    if status is None:
        return "closed its output"
    number = -status if status < 0 else status - 128 if status > 128 else 0
    with contextlib.suppress(ValueError):
        name = signal.Signals(number).name
        hint = ", perhaps for want of memory" if name == "SIGKILL" else ""
        return f"was ended by {name}{hint}"
    return f"ended with status {status}"
