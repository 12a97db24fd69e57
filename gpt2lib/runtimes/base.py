"""What every runtime has in common: one region at a time, and a trace if one is wanted."""

from __future__ import annotations

import os
import threading
import weakref
from threading import get_ident
from types import TracebackType
from typing import Any, NamedTuple

from gpt2lib.runtimes.cpus import check_threads
from gpt2lib.runtimes.trace import TraceBuffer

MAX_CHUNKS = (1 << 31) - 1  # the threads runtime keeps two such numbers in one 64-bit word


class Availability(NamedTuple):
    """Whether a runtime can be had in this process, and what to do if not.

    Attributes
    ----------
    ok
        Whether ``runtimes.get(name)`` would succeed now.
    reason
        Why not, or which kind of threads it runs on.
    how_to_get
        What to do to have it; empty where it is there.
    library
        The file that would run the threads, where it is known already; else ``""``.
    """

    ok: bool
    reason: str
    how_to_get: str
    library: str


class RuntimeUnavailableError(RuntimeError):
    """A runtime that cannot be had in this process; the message says why, and how to get it."""


class Runtime:
    """Something that runs chunks: give it a native function, an argument block and a count.

    ``with runtimes.get("threads", 2) as runtime: runtime.run(function, arguments, chunks)``

    A runtime may be shared by several Python threads; their regions then take turns. It runs
    chunks in no particular order and on any of its threads: who needs the same bits every time
    lets no result depend on that (partial results belong to a chunk and are added in chunk order).

    Attributes
    ----------
    name
        ``"sequential"``, ``"threads"``, ``"openmp"``, ``"tbb"`` or ``"nosv"``.
    threads
        How many threads work on a region, the calling one included.
    labels
        What the region numbers stand for; a runtime that writes a trace of its own shows them.
    """

    name = "runtime"

    def __init__(self, threads: int | None = None) -> None:
        self.threads = check_threads(threads)
        self.closed = False
        self.labels: dict[int, str] = {}
        self._trace: TraceBuffer | None = None
        self._trace_address = 0
        self._lock = threading.Lock()
        self._owner = 0  # the Python thread whose region is running
        _alive.add(self)

    def run(self, function: int, arguments: int, chunks: int, *, region: int = 0) -> None:
        """Call ``function(chunk, arguments)`` once for each chunk in ``range(chunks)``; wait.

        Parameters
        ----------
        function
            Address of a native ``void f(int64_t chunk, void *arguments)`` that needs no GIL, such
            as the ``address`` of a Numba ``@cfunc``.
        arguments
            Address of the function's argument block; handed on as it is. The caller keeps the
            block alive until ``run`` returns.
        chunks
            How many chunks there are; 0 does nothing.
        region
            A number for the trace.

        Raises
        ------
        ValueError
            If ``chunks`` is negative or more than 2**31 − 1.
        RuntimeError
            If the runtime is closed, or if ``run`` is called from inside one of its own regions.

        Notes
        -----
        Ctrl-C does not tear a region apart: its chunks are finished first, then
        ``KeyboardInterrupt`` is raised.
        """
        if not 0 < chunks <= MAX_CHUNKS:
            if chunks == 0:
                return
            raise ValueError(f"a region has between 0 and {MAX_CHUNKS} chunks, not {chunks}")
        if self._owner:
            self._refuse_if_nested()
        # ``with`` and the store before ``try`` leave Ctrl-C no gap to fall into.
        with self._lock:
            me = get_ident()
            try:
                self._owner = me
                if self.closed:
                    raise RuntimeError(f"runtime {self.name!r} is closed; get a new one")
                self._run(function, arguments, chunks, self._trace_address, region)
            finally:
                self._owner = 0

    def _run(self, function: int, arguments: int, chunks: int, trace: int, region: int) -> None:
        raise NotImplementedError

    def _refuse_if_nested(self) -> None:
        """Raise if this thread is inside a region of this runtime, where waiting would not end."""
        if not self._lock.locked():
            return
        if self._owner == get_ident() or self._is_worker():
            raise RuntimeError(
                f"runtime {self.name!r} was asked to run a region from inside one of its own; "
                "a kernel calls its parts directly, it does not start regions"
            )

    def _is_worker(self) -> bool:
        """Tell whether the calling thread is one of this runtime's own, or no Python thread."""
        return isinstance(threading.current_thread(), threading._DummyThread)

    @classmethod
    def availability(cls) -> Availability:
        """Say whether this runtime can be had in this process; starts nothing."""
        return Availability(True, "", "", "")

    @property
    def trace(self) -> TraceBuffer | None:
        """Where chunks are recorded; ``None`` (the start value) records nothing."""
        return self._trace

    @trace.setter
    def trace(self, buffer: TraceBuffer | None) -> None:
        with self._lock:  # not in the middle of somebody's region
            self._trace = buffer
            self._trace_address = 0 if buffer is None else buffer.address

    def describe(self) -> dict[str, Any]:
        """Say what runs here: ``name``, ``threads``, ``library`` (the loaded file), ``version``."""
        return {"name": self.name, "threads": self.threads, "library": "", "version": ""}

    def close(self) -> None:
        """End the threads; wait for a region that is running. A second call does nothing."""
        with self._lock:
            if not self.closed:
                self.closed = True
                self._close()

    def _close(self) -> None:
        """End the threads (overridden where there are any)."""

    def _after_fork(self) -> None:
        """Forget, in a forked child, threads and locks that exist only in its parent."""
        self._lock = threading.Lock()
        self._owner = 0

    def __enter__(self) -> Runtime:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<runtime {self.name!r}, {self.threads} thread{'s' * (self.threads != 1)}>"


_alive: weakref.WeakSet[Runtime] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for runtime in list(_alive):
        runtime._after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
