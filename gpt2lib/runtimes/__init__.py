"""Who runs the chunks: five runtimes behind one small interface.

==============  ==========================================================================
name            what runs
==============  ==========================================================================
``sequential``  the calling thread, a compiled loop
``threads``     Python threads that wait in compiled code, without the GIL
``openmp``      Numba's OpenMP layer, on whatever OpenMP runtime the process has loaded
``tbb``         Numba's layer on oneTBB
``nosv``        tasks of nOS-V, where the user has installed it
==============  ==========================================================================

A *kernel* reaches a runtime as two addresses and a count: a native function
``void f(int64_t chunk, void *arguments)``, its argument block, and how many chunks there are.
``Runtime.run`` calls the function once for every chunk and returns when all are done. Chunk
boundaries belong to the kernel and depend on the problem alone, so results do not depend on the
runtime or on the number of threads. ``native.py`` explains the machinery.

This package knows threads, and nothing of transformers. It imports Numba when the first runtime is
made, not before.
"""

from __future__ import annotations

import importlib
import os
import threading
from typing import Any

from gpt2lib.runtimes.base import Availability, Runtime, RuntimeUnavailableError
from gpt2lib.runtimes.blas import blas_single_thread
from gpt2lib.runtimes.cpus import check_threads, default_threads
from gpt2lib.runtimes.trace import TraceBuffer

__all__ = [
    "NAMES",
    "Availability",
    "Runtime",
    "RuntimeUnavailableError",
    "TraceBuffer",
    "available",
    "blas_single_thread",
    "default_threads",
    "get",
]

# Name -> module and class; a class also answers ``availability()``, without starting anything.
_RUNTIMES = {
    "sequential": ("gpt2lib.runtimes.sequential", "Sequential"),
    "threads": ("gpt2lib.runtimes.threads", "Threads"),
    "openmp": ("gpt2lib.runtimes.numba_layers", "OpenMP"),
    "tbb": ("gpt2lib.runtimes.numba_layers", "TBB"),
    "nosv": ("gpt2lib.runtimes.nosv", "NOSV"),
}
NAMES = tuple(_RUNTIMES)

_cache: dict[tuple[str, int], Runtime] = {}
_cache_lock = threading.RLock()


def get(name: str = "threads", threads: int | None = None) -> Runtime:
    """Return the runtime ``name`` with that many threads; the same one when asked again.

    Parameters
    ----------
    name
        One of ``sequential``, ``threads``, ``openmp``, ``tbb``, ``nosv``.
    threads
        How many; ``None`` for :func:`default_threads` (``sequential``: 1).

    Raises
    ------
    ValueError
        If there is no runtime of that name, or it cannot have that many threads.
    RuntimeUnavailableError
        If it cannot be had in this process; the message says why, and how to get it.

    Examples
    --------
    >>> get("sequential").threads
    1
    """
    if name not in _RUNTIMES:
        raise ValueError(f"there is no runtime {name!r}; there are {', '.join(NAMES)}")
    number = 1 if name == "sequential" and threads is None else check_threads(threads)
    with _cache_lock:
        runtime = _cache.get((name, number))
        if runtime is None or runtime.closed:
            try:
                runtime = _cache[name, number] = _class(name)(number)
            except RuntimeError as error:
                raise RuntimeUnavailableError(str(error)) from error
        return runtime


def available() -> dict[str, Availability]:
    """Say of each runtime whether it can be had in this process, and if not, why and how.

    Asking starts nothing: no threads, no OpenMP, no nOS-V.
    """
    return {name: _class(name).availability() for name in NAMES}


def _class(name: str) -> Any:
    module, attribute = _RUNTIMES[name]
    return getattr(importlib.import_module(module), attribute)


def _after_fork_in_child() -> None:
    global _cache_lock
    _cache_lock = threading.RLock()  # a thread of the parent may have held it


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
