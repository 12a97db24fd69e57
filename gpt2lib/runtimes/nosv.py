"""Tasks of nOS-V, a tasking library that shares cores between the runtimes of a machine.

nOS-V (https://github.com/bsc-pm/nos-v, GPL-3) belongs to the user: nothing of it is in this
library, which calls it through ``ctypes`` where it is installed. It has to be in the process from
the start (it takes the place of some functions of the C library), so Python is started by
``python -m gpt2lib.runtimes.launch --runtime nosv -- python …``.

A region becomes one task a chunk (one task for several chunks where there are more than 1024).
nOS-V runs them on worker threads, one a core, each kept on its core. To wait for tasks, a thread
must be known to nOS-V, which counts it as the user of one core and keeps it there too:

- Python's main thread becomes known with its first region and stays so. Between regions nobody else
  uses its core. Programs that it starts inherit that one core; forks have all of them.
- Any other Python thread is known for the length of its region, which costs some microseconds more.
  So is the main thread where there is one core only: it would keep the others from ever getting it.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import os
import re
import shutil
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from threading import get_ident
from typing import Any

import numpy as np

from gpt2lib.runtimes.base import Availability, Runtime
from gpt2lib.runtimes.libraries import file_of_symbol

MAX_TASKS = 1024
_SEGMENT = "gpt2lib"  # our shared memory's name begins with it: /dev/shm/gpt2lib-u<uid>-p<pid>
_JOINABLE = 2  # NOSV_CREATE_JOINABLE: somebody will wait for the task, and may submit it again

# What nOS-V is to do differently, unless the user has set it in NOSV_CONFIG_OVERRIDE.
_SETTINGS = {
    "turbo.enabled": "false",  # true turns denormal numbers into zero, in NumPy too
    "shared_memory.size": "64M",  # 2 GB otherwise
    "shared_memory.name": _SEGMENT,
    "shared_memory.isolation_level": "process",  # share no cores with other processes' tasks
}
_OVNI_SETTINGS = {"instrumentation.version": "ovni", "ovni.level": "2"}


def environment(
    base: Mapping[str, str] | None = None,
    *,
    library: str | None = None,
    ovni: bool = False,
    trace_folder: str | os.PathLike[str] | None = None,
) -> dict[str, str]:
    """Return the environment in which a process can use nOS-V.

    Parameters
    ----------
    base
        The environment to begin with; ``None`` for this process's own. What it says in
        ``NOSV_CONFIG_OVERRIDE`` stays.
    library
        Path of ``libnosv.so``; ``None`` to look for it (see :func:`find_library`).
    ovni
        Whether nOS-V shall write an ovni trace (needs a nOS-V that was built with ovni).
    trace_folder
        Where the trace shall stand; ovni's own default is ``ovni`` in the working directory.

    Raises
    ------
    FileNotFoundError
        If there is no ``libnosv.so``.
    """
    result = dict(os.environ if base is None else base)
    library = library or find_library()
    if not library or not Path(library).exists():
        raise FileNotFoundError(f"{library or 'libnosv.so'} is not there. {_HOW_TO_GET}")
    preloaded = [path for path in re.split("[ :]+", result.get("LD_PRELOAD", "")) if path]
    if not any(Path(path).name.startswith("libnosv.so") for path in preloaded):
        # First of all, or nOS-V refuses to start; its own OpenMP-V library comes right after it.
        result["LD_PRELOAD"] = ":".join([library, *preloaded])
    settings = {**_SETTINGS, **(_OVNI_SETTINGS if ovni else {})}
    result["NOSV_CONFIG_OVERRIDE"] = _merge(result.get("NOSV_CONFIG_OVERRIDE", ""), settings)
    if ovni:
        result.setdefault("NOSV_APPID", "1")  # the trace's application number; else a warning
    if trace_folder is not None:
        result["OVNI_TRACEDIR"] = os.fspath(trace_folder)
    return result


def launch(argv: list[str], *, ovni: bool = False, **options: Any) -> int:
    """Run a command with nOS-V in its process; return its exit status. See ``launch.py``."""
    from gpt2lib.runtimes import launch as launcher

    return launcher.launch(argv, runtime="nosv", ovni=ovni, **options)


def find_library() -> str:
    """Return the path of ``libnosv.so``, or ``""``.

    Looked for below ``NOSV_HOME``, in ``LD_LIBRARY_PATH``, and where systems keep libraries.
    """
    home = os.environ.get("NOSV_HOME")
    folders = [Path(home) / "lib", Path(home) / "lib64", Path(home)] if home else []
    folders += [Path(path) for path in os.environ.get("LD_LIBRARY_PATH", "").split(":") if path]
    for root in (Path("/usr/local"), Path("/usr")):
        folders += [root / "lib64", root / "lib", *sorted(root.glob("lib/*-linux-gnu"))]
    for folder in folders:
        if (folder / "libnosv.so").exists():
            return str((folder / "libnosv.so").resolve())
    return ""


def has_ovni(library: str) -> bool:
    """Tell whether this ``libnosv.so`` was built with ovni: whether it names ``libovni.so``."""
    try:
        return b"libovni.so" in Path(library).read_bytes()
    except OSError:
        return False


def find_ovniemu() -> str:
    """Return the path of ``ovniemu``, which makes Paraver files of an ovni trace; or ``""``.

    Looked for in ``NOSV_HOME/bin`` and in ``PATH``.
    """
    home = os.environ.get("NOSV_HOME")
    own = Path(home) / "bin" / "ovniemu" if home else None
    if own is not None and os.access(own, os.X_OK):
        return str(own)
    return shutil.which("ovniemu") or ""


def remove_stale_segments() -> list[str]:
    """Delete the shared memory of this user's processes that are gone; return the names.

    A process that ends as it should takes its own along. One that is killed leaves it behind.
    """
    removed = []
    pattern = f"{_SEGMENT}-u{os.geteuid()}-p*"
    for path in Path("/dev/shm").glob(pattern):
        pid = path.name.rpartition("-p")[2]
        if pid.isdecimal() and not Path(f"/proc/{pid}").exists():
            with contextlib.suppress(OSError):
                path.unlink()
                removed.append(path.name)
    return removed


_HOW_TO_GET = (
    "Build nOS-V from https://github.com/bsc-pm/nos-v and set NOSV_HOME to where it is installed"
)
_HOW_TO_START = "Start with: python -m gpt2lib.runtimes.launch --runtime nosv -- python ..."


class NOSV(Runtime):
    """Run the chunks as nOS-V tasks. It is made, and closed, by Python's main thread.

    Parameters
    ----------
    threads
        On how many cores; at most as many as the process may use.

    Notes
    -----
    There is one nOS-V in a process. Closing its runtime shuts it down; another can be made then,
    with another number of cores. ``labels`` (region number → name) gives the tasks in an ovni trace
    their names; without it a task is called "region 7". Fill it before a region's first run.
    """

    name = "nosv"

    def __init__(self, threads: int | None = None) -> None:
        state = self.availability()
        if not state.ok:
            raise RuntimeError(f"runtime 'nosv': {state.reason}. {state.how_to_get}")
        super().__init__(threads)
        cpus = sorted(os.sched_getaffinity(0))
        if self.threads > len(cpus):
            raise ValueError(
                f"runtime 'nosv' keeps each thread on a core of its own: this process may use "
                f"{len(cpus)}, not {self.threads}; runtime 'threads' does not mind"
            )
        if _running is not None and not _running.closed:
            raise RuntimeError(
                f"runtime 'nosv' runs in this process already, on {_running.threads} cores; "
                "close it to have it on another number"
            )
        if get_ident() != _main_thread():
            raise RuntimeError("runtime 'nosv' is made by Python's main thread; use it from any")
        self._pools: dict[int, tuple[ctypes.c_void_p, list[int], np.ndarray]] = {}
        self._control = np.zeros(128, np.int64)
        self._label = ctypes.create_string_buffer(b"Python")
        self._attached = False  # whether nOS-V knows the main thread
        self._forked = False
        self._cpus = set(cpus)
        self._start(cpus[: self.threads])

    def _start(self, cpus: list[int]) -> None:
        """Start nOS-V on these cores: it takes over the affinity of the thread that starts it."""
        global _running
        from gpt2lib.runtimes import native

        self._run_as_tasks = native.run_as_tasks
        self._callback = native.task_callback()
        self._library = _declare_functions(ctypes.CDLL(None))
        override = _merge(os.environ.get("NOSV_CONFIG_OVERRIDE", ""), _SETTINGS)
        os.environ["NOSV_CONFIG_OVERRIDE"] = override
        self._traced = "instrumentation.version=ovni" in override
        remove_stale_segments()
        os.sched_setaffinity(0, cpus)
        try:
            self._check(self._library.nosv_init(), "nosv_init")
        finally:
            os.sched_setaffinity(0, self._cpus)
        _running = self
        number = self._library.nosv_get_num_cpus()
        if number != self.threads:
            self.close()
            raise ValueError(
                f"nOS-V is set (topology.binding) to {number} cores, not {self.threads}; "
                f"ask for {number} threads"
            )

    def _run(self, function: int, arguments: int, chunks: int, trace: int, region: int) -> None:
        if self._forked:
            raise RuntimeError(_FORKED)
        label = self._make_known()
        count = min(chunks, MAX_TASKS)
        control, tasks = self._control.ctypes.data, self._tasks(region, count).ctypes.data
        status = self._run_as_tasks(
            control, function, arguments, chunks, trace, region, tasks, count, label
        )
        self._check(status, "a region")

    def _make_known(self) -> int:
        """Have nOS-V know the main thread from now on; return a label where it knows it not."""
        if get_ident() != _main_thread() and self._traced:
            raise RuntimeError("an ovni trace holds the main thread's regions: run them there")
        if get_ident() != _main_thread() or self.threads == 1:
            return ctypes.addressof(self._label)
        if not self._attached:
            me = ctypes.c_void_p()
            status = self._library.nosv_attach(ctypes.byref(me), None, self._label, 0)
            self._check(status, "nosv_attach")
            self._attached = True
        return 0

    def _tasks(self, region: int, count: int) -> np.ndarray:
        """Return the handles of at least ``count`` tasks, making those that lack.

        For a trace, each region has tasks of its own, whose type carries its name.
        """
        pool = region if self._traced else 0
        if pool not in self._pools:
            label = self.labels.get(pool, f"region {pool}") if self._traced else "chunk"
            kind, run = ctypes.c_void_p(), ctypes.c_void_p(self._callback.address)
            status = self._library.nosv_type_init(
                ctypes.byref(kind), run, None, None, label.encode(), None, None, 0
            )
            self._check(status, "nosv_type_init")
            self._pools[pool] = (kind, [], np.zeros(MAX_TASKS, np.int64))
        kind, made, handles = self._pools[pool]
        while len(made) < count:
            task = ctypes.c_void_p()
            status = self._library.nosv_create(ctypes.byref(task), kind, 16, _JOINABLE)
            self._check(status, "nosv_create")
            metadata = self._library.nosv_get_task_metadata(task)
            numbers = (ctypes.c_int64 * 2).from_address(metadata)
            numbers[:] = [self._control.ctypes.data, len(made)]
            handles[len(made)] = task.value
            made.append(task.value or 0)
        return handles

    def _check(self, status: int, what: str) -> None:
        if status != 0:
            words = self._library.nosv_get_error_string(status) or b"no reason given"
            raise RuntimeError(f"nOS-V: {what} failed: {words.decode()}")

    def close(self) -> None:
        """Destroy the tasks and shut nOS-V down; in the main thread, which nOS-V knows."""
        if get_ident() != _main_thread():
            raise RuntimeError("runtime 'nosv' is closed by Python's main thread")
        super().close()

    def _close(self) -> None:
        if self._forked:
            return
        for kind, made, _ in self._pools.values():
            for task in made:
                self._library.nosv_destroy(task, 0)
            self._library.nosv_type_destroy(kind, 0)
        self._pools.clear()
        self._leave()
        self._check(self._library.nosv_shutdown(), "nosv_shutdown")

    def _leave(self) -> None:
        """Have nOS-V forget the calling thread, which then has all its cores again."""
        while self._library.nosv_self():
            self._library.nosv_detach(0)
        self._attached = False

    def _after_fork(self) -> None:
        super()._after_fork()
        self._forked = True

    @classmethod
    def availability(cls) -> Availability:
        """Say whether nOS-V is in this process, and how to start one in which it is."""
        if not sys.platform.startswith("linux"):
            return Availability(False, "nOS-V runs on Linux only", "", "")
        preloaded = file_of_symbol("nosv_init")
        if not preloaded:
            library = find_library()
            if not library:
                return Availability(False, "libnosv.so was not found", _HOW_TO_GET, "")
            reason = "nOS-V is installed, and has to be in the process from its start"
            return Availability(False, reason, _HOW_TO_START, library)
        if _running is not None and _running._forked:
            return Availability(False, _FORKED, "", preloaded)
        return Availability(True, "nOS-V tasks", "", preloaded)

    def describe(self) -> dict[str, Any]:
        """Say what runs here: the preloaded library and its version."""
        library = file_of_symbol("nosv_init")
        version = "nOS-V"
        with contextlib.suppress(OSError):
            text = (Path(library).parent / "pkgconfig/nos-v.pc").read_text(encoding="utf-8")
            found = re.search(r"^Version:\s*(\S+)", text, re.MULTILINE)
            version = f"nOS-V {found[1]}" if found else version
        return {
            **super().describe(),
            "library": library,
            "version": version,
            "settings": os.environ.get("NOSV_CONFIG_OVERRIDE", ""),
        }


_running: NOSV | None = None
_FORKED = (
    "this process was forked from one in which nOS-V ran; its workers are not here. "
    "Start such processes with the 'spawn' method, or use runtime 'threads'"
)


def _main_thread() -> int:
    return threading.main_thread().ident or 0


def _merge(override: str, settings: Mapping[str, str]) -> str:
    """Add settings to a ``NOSV_CONFIG_OVERRIDE``; what is set there already stays."""
    parts = [part.strip() for part in override.split(",") if part.strip()]
    known = {part.partition("=")[0].strip() for part in parts}
    return ",".join(parts + [f"{k}={v}" for k, v in settings.items() if k not in known])


def _declare_functions(library: ctypes.CDLL) -> Any:
    """Tell ``ctypes`` the types of nOS-V's functions: handles are pointers, flags are uint64."""
    pointer, flags, size = ctypes.c_void_p, ctypes.c_uint64, ctypes.c_size_t
    text, integer = ctypes.c_char_p, ctypes.c_int
    for name, result, arguments in (
        ("nosv_init", integer, []),
        ("nosv_shutdown", integer, []),
        ("nosv_self", pointer, []),
        ("nosv_attach", integer, [pointer, pointer, text, flags]),
        ("nosv_detach", integer, [flags]),
        ("nosv_type_init", integer, [*[pointer] * 4, text, pointer, pointer, flags]),
        ("nosv_type_destroy", integer, [pointer, flags]),
        ("nosv_create", integer, [pointer, pointer, size, flags]),
        ("nosv_destroy", integer, [pointer, flags]),
        ("nosv_get_task_metadata", pointer, [pointer]),
        ("nosv_get_num_cpus", integer, []),
        ("nosv_get_error_string", text, [integer]),
    ):
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


def _close_at_exit() -> None:
    """Shut nOS-V down, so that it takes its shared memory along; if it is busy, delete that."""
    runtime = _running
    if runtime is None or runtime.closed or runtime._forked:
        return
    if runtime._lock.acquire(timeout=2):  # else a daemon thread is inside a region
        runtime._lock.release()
        with contextlib.suppress(RuntimeError):
            runtime.close()
            return
    Path(f"/dev/shm/{_SEGMENT}-u{os.geteuid()}-p{os.getpid()}").unlink(missing_ok=True)


def _before_fork() -> None:
    """Leave nOS-V before a fork: the child has no nOS-V, and a thread known to it would crash."""
    runtime = _running
    if runtime is not None and runtime._attached and get_ident() == _main_thread():
        runtime._leave()  # the next region joins again


atexit.register(_close_at_exit)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork)
