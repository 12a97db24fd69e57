"""Python threads that wait in compiled code, where they hold no GIL.

A training step is some five hundred regions, so what matters is the hand-over. Python's own means
(a queue, a condition) cost tens of microseconds a region, since each thread must take the GIL to
learn that there is work. Here a worker enters a compiled function once and stays: it watches a word
of memory, for about a millisecond, and then sleeps on it (a futex). The calling thread writes what
the region is, changes the word, and takes chunks like everybody else. If all chunks are done before
a worker has woken up, nobody waits for it.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import threading
import weakref
from typing import Any

import numpy as np

from gpt2lib.runtimes import native
from gpt2lib.runtimes.base import Availability, Runtime
from gpt2lib.runtimes.cpus import usable_cpus
from gpt2lib.runtimes.libraries import c_library

# Microseconds that a worker watches for the next region before it sleeps, and that the caller
# watches for the end of this one. Long enough to span the Python code between two ops of a step,
# short enough that a process which does something else soon has its cores to itself.
_SPIN_US = int(os.environ.get("GPT2LIB_SPIN_US", "1000"))
_EAGER_US = 20  # after this long a waiting thread offers its core to others at every look


class Threads(Runtime):
    """Run the chunks on the calling thread and ``threads − 1`` parked workers.

    Parameters
    ----------
    threads
        How many; ``None`` for :func:`gpt2lib.runtimes.default_threads`.
    park
        How workers sleep: ``"futex"`` (Linux) or ``"python"`` (a semaphore; everywhere). ``None``
        takes the better one that the system has.

    Notes
    -----
    The workers start with the first region and are daemons: they never keep the interpreter from
    ending. A forked child has none and starts its own. With more threads than cores nobody spins
    for long and every waiting loop offers its core to the others. ``GPT2LIB_SPIN_US`` in the
    environment changes how long a worker stays awake (0: not at all).
    """

    name = "threads"

    def __init__(self, threads: int | None = None, *, park: str | None = None) -> None:
        super().__init__(threads)
        if park not in {None, "futex", "python"}:
            raise ValueError(f"park must be 'futex' or 'python', not {park!r}")
        if park == "futex" and not native.FUTEX:
            raise ValueError("there is no futex on this system; use park='python'")
        self._park = park or ("futex" if native.FUTEX else "python")
        self._reset()
        _pools.add(self)

    def _reset(self) -> None:
        """Make a control block for workers that have not started yet."""
        # The block begins at a multiple of 128 bytes, so that its fields share no cache lines.
        # Workers hold a reference to it: it lives as long as the last of them.
        self._memory = np.zeros(native.CONTROL_BYTES + 128, np.uint8)
        self._control = (self._memory.ctypes.data + 127) & ~127
        crowded = self.threads > usable_cpus()
        self._set(native.WORKER_SPIN, 1000 * (min(_SPIN_US, 20) if crowded else _SPIN_US))
        self._set(native.CALLER_SPIN, 1000 * (20 if crowded else 200))
        self._set(native.EAGER, 0 if crowded else 1000 * _EAGER_US)
        self._semaphore = threading.Semaphore(0)
        self._workers: list[threading.Thread] = []

    def _set(self, offset: int, value: int) -> None:
        start = self._control - self._memory.ctypes.data + offset
        self._memory[start : start + 8].view(np.int64)[0] = value

    def _run(self, function: int, arguments: int, chunks: int, trace: int, region: int) -> None:
        if self.threads == 1 or chunks == 1:
            native.run_sequentially(function, arguments, chunks, trace, region)
            return
        if not self._workers:
            self._start()
        if self._park == "futex":
            native.run_on_workers(self._control, function, arguments, chunks, trace, region)
            return
        try:
            sleepers = native.open_region(self._control, function, arguments, chunks, trace, region)
            if sleepers > 0:
                self._semaphore.release(sleepers)
        finally:  # Ctrl-C just now: the region is open, so it is finished first
            native.close_region(self._control, chunks, False)

    def _start(self) -> None:
        """Start the workers, their code compiled before: a late one misses the first region."""
        native.stay_worker.compile("int64(int64, int64, int64, boolean)")
        workers = [
            threading.Thread(
                target=_work,
                args=(self._memory, self._control, index, self._park, self._semaphore),
                name=f"gpt2lib-worker-{index}",
                daemon=True,
            )
            for index in range(1, self.threads)
        ]
        try:
            for worker in workers:
                worker.start()
        except BaseException as error:
            _send_home(self._memory, self._control, self._semaphore, self.threads)
            self._reset()
            if isinstance(error, RuntimeError):
                message = f"the system does not give {self.threads} threads: {error}"
                raise RuntimeError(message) from error
            raise  # Ctrl-C between two starts
        self._workers = workers
        # A pool that nobody refers to any more lets its workers go.
        release = weakref.finalize(
            self, _send_home, self._memory, self._control, self._semaphore, self.threads
        )
        release.atexit = False  # the end of the process has a rule of its own, below

    def _is_worker(self) -> bool:
        return threading.current_thread() in self._workers or super()._is_worker()

    def _close(self) -> None:
        if self._workers:
            _send_home(self._memory, self._control, self._semaphore, self.threads)
            for worker in self._workers:
                worker.join()
            self._workers = []

    def _after_fork(self) -> None:
        super()._after_fork()
        self._reset()

    @classmethod
    def availability(cls) -> Availability:
        """Say that it is there."""
        return Availability(
            True, "Python threads parked in compiled code: always there", "", c_library()["library"]
        )

    def describe(self) -> dict[str, Any]:
        """Say what runs here: Python's threads, the C library's calls, how workers sleep."""
        return {**super().describe(), **c_library(), "park": self._park}


def _work(
    memory: np.ndarray, control: int, index: int, park: str, semaphore: threading.Semaphore
) -> None:
    """Be worker ``index``. ``memory`` is held so that the control block outlives its readers."""
    epoch = 0
    while True:
        epoch = native.stay_worker(control, index, epoch, park == "futex")
        if epoch < 0:
            return
        semaphore.acquire()
        native.leave_parking(control)


def _send_home(
    memory: np.ndarray, control: int, semaphore: threading.Semaphore, threads: int
) -> None:
    """End the workers of a control block; ``memory`` is held for as long as that takes."""
    native.send_home(control)
    semaphore.release(threads)


_pools: weakref.WeakSet[Threads] = weakref.WeakSet()


def _send_everybody_home() -> None:
    """Before the interpreter takes its compiled code down, have nobody left inside it.

    A pool whose region another (daemon) thread is running right now is told, and not waited for
    longer than a moment: the end of the process is not to hang on it.
    """
    for pool in list(_pools):
        if pool._workers:
            with contextlib.suppress(Exception):
                _send_home(pool._memory, pool._control, pool._semaphore, pool.threads)
                for worker in pool._workers:
                    worker.join(timeout=2)


atexit.register(_send_everybody_home)
