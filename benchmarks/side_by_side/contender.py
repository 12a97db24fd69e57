"""A contender's process, seen from outside: asked in turn, asleep while the others run.

Every contender has threads of its own, and some keep them spinning for a while after the work is
done. So a process whose turn it is not is stopped by a signal, and woken for its turn.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.side_by_side.worker import die_with_parent, peak_bytes

ROOT = Path(__file__).resolve().parents[2]
LINE_BYTES = 1 << 16


class ContenderError(RuntimeError):
    """A contender that cannot go on; the message is the reason that the results give."""


class Process:
    """A program in a process group of its own, whose output is read line by line.

    Parameters
    ----------
    command
        What to run.
    environment
        What to set besides this process's own environment.
    folder
        Where it runs.
    terminal
        Whether its output is a (pseudo) terminal: a C program then writes each line at once.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        environment: Mapping[str, str],
        folder: Path = ROOT,
        terminal: bool = False,
    ) -> None:
        self._log = tempfile.TemporaryFile()  # noqa: SIM115  closed in close()
        self._rest = b""
        if terminal:
            self._output, theirs = os.openpty()
        else:
            self._output, theirs = os.pipe()
        try:
            self.popen = subprocess.Popen(
                list(command),
                stdin=subprocess.PIPE,
                stdout=theirs,
                stderr=self._log,
                cwd=folder,
                env={**os.environ, **environment},
                start_new_session=True,
                preexec_fn=die_with_parent,
            )
        except OSError as error:
            os.close(self._output)
            raise ContenderError(f"cannot be started: {error.strerror}: {command[0]}") from error
        finally:
            os.close(theirs)
        self.asleep = False

    def line(self, timeout: float) -> str:
        """Return the next line of output; an error when none comes, or the process has ended."""
        end = time.monotonic() + timeout
        while b"\n" not in self._rest:
            remaining = end - time.monotonic()
            if remaining <= 0 or not select.select([self._output], [], [], remaining)[0]:
                raise ContenderError(f"no answer in {timeout:.0f} s")
            try:
                data = os.read(self._output, LINE_BYTES)
            except OSError:  # a terminal whose other side is closed
                data = b""
            if not data:
                raise ContenderError(self.last_words())
            self._rest += data
        line, self._rest = self._rest.split(b"\n", 1)
        return line.decode("utf-8", "replace").rstrip("\r")

    def waiting_lines(self) -> list[str]:
        """Return the lines that are there already."""
        lines = []
        with contextlib.suppress(ContenderError):
            while True:
                lines.append(self.line(0.0 if b"\n" in self._rest else 0.02))
        return lines

    def send(self, text: str) -> None:
        """Write a line to its standard input."""
        assert self.popen.stdin is not None
        try:
            self.popen.stdin.write(text.encode() + b"\n")
            self.popen.stdin.flush()
        except OSError:
            raise ContenderError(self.last_words()) from None

    def last_words(self) -> str:
        """Say how it ended: its exit status and the last line that it wrote to stderr."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.popen.wait(5)
        self._log.seek(0, os.SEEK_END)
        self._log.seek(max(0, self._log.tell() - 4000))
        lines = self._log.read().decode("utf-8", "replace").strip().splitlines()
        words = lines[-1].strip() if lines else "no message"
        status = self.popen.returncode
        ended = f"ended with status {status}" if status is not None else "closed its output"
        return f"{ended}: {words}"[:500]

    def sleep(self) -> None:
        """Stop all its threads until ``wake``."""
        self._signal("SIGSTOP")
        self.asleep = True

    def wake(self) -> None:
        """Let it run again."""
        self._signal("SIGCONT")
        self.asleep = False

    def _signal(self, name: str) -> None:
        if self.popen.poll() is None and hasattr(signal, name):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.popen.pid, getattr(signal, name))

    def close(self, patience: float = 0) -> None:
        """End it and all that it started; give it some seconds to end by itself, if so asked."""
        if patience and self.popen.poll() is None:
            self.wake()
            with contextlib.suppress(OSError, subprocess.TimeoutExpired):
                assert self.popen.stdin is not None
                self.popen.stdin.close()  # a worker ends when there are no more requests
                self.popen.wait(patience)
        self._signal("SIGKILL")
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.popen.wait(20)
        if self.popen.stdin is not None:
            with contextlib.suppress(OSError):
                self.popen.stdin.close()
        with contextlib.suppress(OSError):
            os.close(self._output)
        self._log.close()


class Contender:
    """A worker process: ``ask("time", steps=3)`` calls that method over there.

    Parameters
    ----------
    kind
        Module and class in this folder: ``"ours.Training"``.
    python
        The interpreter.
    threads
        How many threads it may use; for BLAS and OpenMP it is in the environment too.
    launcher
        What to put before the command.
    environment
        What else to set.
    """

    def __init__(
        self,
        kind: str,
        *,
        python: str = sys.executable,
        threads: int = 1,
        launcher: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        timeout: float = 600,
    ) -> None:
        self.timeout = timeout
        names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
        path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH", ""))))
        settings = {
            **dict.fromkeys(names, str(threads)),
            "PYTHONPATH": path,
            "TOKENIZERS_PARALLELISM": "false",
            "HF_HUB_OFFLINE": "1",
            **(environment or {}),
        }
        command = [*launcher, python, "-m", "benchmarks.side_by_side.worker", kind]
        self.process = Process(command, environment=settings)

    def ask(self, method: str, *, timeout: float | None = None, **arguments: Any) -> Any:
        """Wake the process, have it do something, put it to sleep again; return the answer."""
        self.process.wake()
        try:
            self.process.send(json.dumps({"do": method, **arguments}))
            answer = json.loads(self.process.line(timeout or self.timeout))
        finally:
            self.process.sleep()
        if "error" in answer:
            raise ContenderError(answer["error"])
        return answer["result"]

    def peak_bytes(self) -> int | None:
        """Return the most memory that it has had."""
        return self.ask("peak_bytes")

    def close(self) -> None:
        """End the process: gently, since nOS-V leaves shared memory behind if it is killed."""
        self.process.close(patience=10)


__all__ = ["ROOT", "Contender", "ContenderError", "Process", "peak_bytes"]
