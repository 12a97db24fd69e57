"""OpenMP and TBB, by way of Numba's threading layers.

Numba compiles a ``prange`` loop once, and hands its turns to a *threading layer*: a small library
inside Numba that calls OpenMP or TBB. The loop here has one turn a thread, and each turn claims
chunks until none is left.

Numba takes one layer for the life of a process. The layer is chosen when the first runtime of this
module is made; asking for the other one later is refused with that explanation. Whichever library
offers OpenMP's functions to the process is the one that runs: the system's ``libgomp``, or what was
preloaded (``LD_PRELOAD=libomp.so.5``). ``describe()`` names the file that really is bound.
"""

from __future__ import annotations

import ctypes
import importlib
import os
import sys
import threading
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from gpt2lib.runtimes import native
from gpt2lib.runtimes.base import Availability, Runtime
from gpt2lib.runtimes.libraries import file_of_symbol, version_of_file

_start_lock = threading.Lock()
_forked_from = ""  # the layer that ran in the parent of this forked process


class _Layer(Runtime):
    """What OpenMP and TBB have in common: the loop, and the choice of the layer."""

    layer = ""  # Numba's name for it
    symbols: tuple[str, ...] = ()  # functions of the library that the layer calls
    survives_fork = False
    how_to_get = ""

    def __init__(self, threads: int | None = None) -> None:
        super().__init__(threads)
        self._start()
        self._claim = np.zeros(16, np.int64)  # a cache line and more of its own
        self._forked = False

    def _start(self) -> None:
        """Start Numba's layer, or use it if it is the one that runs already."""
        state = self.availability()
        if not state.ok:
            raise RuntimeError(f"runtime {self.name!r}: {state.reason}. {state.how_to_get}")
        from numba import config as numba_config
        from numba import threading_layer
        from numba.np.ufunc import parallel

        config: Any = numba_config  # filled at run time, which a type checker cannot see
        with _start_lock:
            if not parallel._is_initialized:
                config.THREADING_LAYER = self.layer
                # Numba's pool is as large as the machine unless told otherwise before it starts.
                size = max(self.threads, config.NUMBA_NUM_THREADS)
                config.NUMBA_NUM_THREADS = parallel.NUM_THREADS = size
                parallel._launch_threads()
            if threading_layer() != self.layer:
                raise RuntimeError(
                    f"runtime {self.name!r}: Numba started layer {threading_layer()!r} instead"
                )
        if self.threads > config.NUMBA_NUM_THREADS:
            raise ValueError(
                f"runtime {self.name!r} was started with {config.NUMBA_NUM_THREADS} threads in "
                f"this process and cannot have {self.threads} now; ask for the largest number "
                f"first, or set NUMBA_NUM_THREADS={self.threads} before Python starts"
            )

    def _run(self, function: int, arguments: int, chunks: int, trace: int, region: int) -> None:
        if self._forked:
            raise RuntimeError(_fork_message(self.name))
        threads = min(self.threads, chunks)
        claim = self._claim.ctypes.data
        native.run_on_layer(function, arguments, chunks, trace, region, threads, claim)

    def _after_fork(self) -> None:
        super()._after_fork()
        self._forked = not self.survives_fork

    @classmethod
    def _load(cls) -> ModuleType:
        """Import Numba's layer, which loads the library under it; starts no threads."""
        raise NotImplementedError

    @classmethod
    def availability(cls) -> Availability:
        """Say whether the layer can be had in this process; loads the library, starts nothing."""
        if _forked_from and not cls.survives_fork:
            remedy = "Start such processes with the 'spawn' method, or use runtime 'threads'."
            return Availability(False, _fork_message(_forked_from), remedy, "")
        running = running_layer()
        if running not in {"", cls.layer}:
            remedy = f"Start a new process for runtime {cls.name!r}."
            reason = f"this process runs Numba's layer {running!r} already, and has one for life"
            return Availability(False, reason, remedy, "")
        try:
            cls._load()
        except (ImportError, OSError) as error:
            return Availability(False, str(error), cls.how_to_get, "")
        return Availability(True, f"Numba's layer {cls.layer!r}", "", cls.library())

    @classmethod
    def library(cls) -> str:
        """Return the loaded file whose functions the layer calls, as the loader resolves them."""
        layer = cls._load().__file__
        found = (file_of_symbol(symbol, layer) for symbol in cls.symbols)
        return next((path for path in found if path), "")

    @classmethod
    def version(cls, library: str) -> str:
        """Return what that library says of its version."""
        return version_of_file(library)

    def describe(self) -> dict[str, Any]:
        """Say what runs here: Numba's layer, the library that is bound, its version."""
        library = self.library()
        return {
            **super().describe(),
            "library": library,
            "version": self.version(library),
            "layer": self.layer,
        }


class OpenMP(_Layer):
    """Run the chunks on OpenMP threads, of whichever OpenMP library the process has loaded.

    Notes
    -----
    ``OMP_NUM_THREADS`` lowers the default number of threads; Numba itself does not look at it.
    After a fork the child has no OpenMP threads (GNU's library would end the process): there the
    runtime refuses.
    """

    name = "openmp"
    layer = "omp"
    # GCC's entry point, and LLVM's own where Numba was built with clang (macOS).
    symbols = ("GOMP_parallel", "__kmpc_fork_call")
    how_to_get = {
        "darwin": "Install an OpenMP library: conda install llvm-openmp, or pip install "
        "intel-openmp on Intel Macs.",
        "win32": "Install the Visual C++ redistributable, which holds OpenMP.",
    }.get(sys.platform, "Install GNU OpenMP: apt install libgomp1, or dnf install libgomp.")

    @classmethod
    def _load(cls) -> ModuleType:
        return importlib.import_module("numba.np.ufunc.omppool")


class TBB(_Layer):
    """Run the chunks on the threads of oneTBB."""

    name = "tbb"
    layer = "tbb"
    symbols = ("TBB_runtime_version",)
    survives_fork = True
    how_to_get = "Install oneTBB: pip install tbb (2021.6 or later), or conda install tbb."

    @classmethod
    def _load(cls) -> ModuleType:
        try:
            return importlib.import_module("numba.np.ufunc.tbbpool")
        except ImportError:
            # The wheel of TBB puts its library where the loader does not look; once it is there
            # for all to use, Numba's layer finds it.
            name = "libtbb.12.dylib" if sys.platform == "darwin" else "libtbb.so.12"
            path = Path(sys.prefix) / "lib" / name
            if not path.exists():
                raise
            ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)
            return importlib.import_module("numba.np.ufunc.tbbpool")

    @classmethod
    def version(cls, library: str) -> str:
        """Ask the library itself."""
        if not library:
            return ""
        function = ctypes.CDLL(library).TBB_runtime_version
        function.restype = ctypes.c_char_p
        return f"oneTBB {function().decode()}"


def running_layer() -> str:
    """Return the name of the layer that Numba has started in this process, or ``""``."""
    if "numba" not in sys.modules:
        return ""
    from numba import threading_layer

    try:
        return str(threading_layer())
    except ValueError:  # none yet
        return ""


def _fork_message(name: str) -> str:
    return (
        f"this process was forked from one in which {name!r} ran; its threads are not here, "
        "and the library cannot start again"
    )


def _after_fork_in_child() -> None:
    global _forked_from, _start_lock
    _start_lock = threading.Lock()
    _forked_from = running_layer() or _forked_from


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
