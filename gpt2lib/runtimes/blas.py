"""One level of parallelism: the runtime's threads, and BLAS on one thread inside each chunk."""

from __future__ import annotations

import os
import sys
import threading
from types import TracebackType
from typing import Any


class _SingleThread:
    """The one guard of this process: knows who is inside, limits on the first, undoes on the last.

    NumPy and SciPy each bring a BLAS of their own, and finding them means walking over all loaded
    libraries (milliseconds). That is done once, and again only when modules have been imported
    since: a library comes into a Python process with a module.

    Ctrl-C may fall between any two lines here. So both methods can be broken off anywhere, and
    ``leave`` can be called again: whoever is broken off calls it once more (see :class:`_Inside`).
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()  # __del__ may come in between
        self._inside: set[object] = set()
        self._libraries: list[Any] = []
        self._modules = -1
        self._before: list[tuple[Any, int]] = []  # library, the user's number of threads

    def enter(self, who: object) -> None:
        """Let somebody in."""
        with self._lock:
            if not self._inside:
                self._restore()  # of one who was broken off: nothing, almost always
                if self._modules != len(sys.modules):
                    self._scan()
                self._before = [(library, library.num_threads) for library in self._libraries]
                for library, threads in self._before:
                    if threads != 1:
                        _set_threads(library, 1)
            self._inside.add(who)

    def leave(self, who: object) -> None:
        """Let somebody out, or make sure that he is."""
        with self._lock:
            self._inside.discard(who)
            if not self._inside:
                self._restore()

    def _scan(self) -> None:
        from threadpoolctl import ThreadpoolController

        # Only what offers BLAS: an OpenMP runtime is the business of the runtime that uses it.
        self._libraries = ThreadpoolController().select(user_api="blas").lib_controllers
        self._modules = len(sys.modules)

    def _restore(self) -> None:
        for library, threads in self._before:
            if threads != 1:
                _set_threads(library, threads)
        self._before = []

    def _after_fork(self) -> None:
        """In a forked child nobody is inside, whatever its parent's other threads were doing."""
        self._lock = threading.RLock()  # __del__ may come in between
        self._inside.clear()
        self._restore()


class _Inside:
    """One stay inside.

    If Ctrl-C cuts its beginning or end off, the end is made up for at once; where even that is cut
    off, when the object goes, which is when the exception has been dealt with.
    """

    _who: object | None = None

    def __enter__(self) -> _Inside:
        self._who = object()
        try:
            _guard.enter(self._who)
        except BaseException:
            _guard.leave(self._who)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            _guard.leave(self._who)
        except BaseException:
            _guard.leave(self._who)
            raise
        self._who = None

    def __del__(self) -> None:
        if self._who is not None:
            _guard.leave(self._who)


def _set_threads(library: Any, threads: int) -> None:
    """Set a BLAS library's number of threads, from whichever Python thread this is.

    Since 3.7 threadpoolctl lets only the thread that set OpenBLAS's number first change it again;
    the call of any other does nothing. Here the first to enter and the last to leave may well be
    different threads, so that courtesy is passed over: the counting above takes its place.
    """
    set_threads = getattr(library, "_real_set_num_threads", library.set_num_threads)
    set_threads(threads)


_guard = _SingleThread()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_guard._after_fork)


def blas_single_thread() -> _Inside:
    """Return a context in which every BLAS of this process uses one thread.

    The user's own setting is back when the last of those who are inside, on whatever thread, has
    left. Entering and leaving cost microseconds.

    Notes
    -----
    A BLAS whose own threads are OpenMP's (conda's ``openblas=*=openmp*``) keeps the number for each
    calling thread apart, so the workers of a runtime are not reached. The BLAS in the wheels of
    NumPy and SciPy has threads of its own, and one number for the process.

    Examples
    --------
    >>> with blas_single_thread():
    ...     pass
    """
    return _Inside()
