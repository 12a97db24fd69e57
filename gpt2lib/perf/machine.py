"""The machine: what it is, and what it can do at best.

A *ceiling* is the most that this machine was seen to do, with a number of threads: multiply
matrices, read memory, copy memory. Ceilings are measured here, not looked up: a data sheet knows
nothing of the virtual machine around us, of the clock today, or of the neighbours. Of several ways
and several passes the fastest counts.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import platform
import re
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from gpt2lib.perf.counters import processor_mhz
from gpt2lib.runtimes.cpus import check_threads, usable_cpus

__all__ = [
    "Ceilings",
    "MatrixProduct",
    "Streams",
    "describe",
    "measure_ceilings",
    "memory_limit",
    "versions",
]

Array = np.ndarray[Any, Any]
_PACKAGES = ("numpy", "scipy", "numba", "llvmlite", "threadpoolctl")
_MIB = 1 << 20


# ------------------------------------------------------------------------- what it is


def describe(root: Path = Path("/")) -> dict[str, Any]:
    """Say what this machine is. What cannot be read (no ``/proc``, no ``/sys``) is None.

    Neither the machine's name nor any path is in it: it may be published.

    Parameters
    ----------
    root
        Where ``proc`` and ``sys`` are.

    Returns
    -------
    dict
        ``processor`` (its name), ``architecture``, ``cores`` (that this process may keep busy),
        ``logical_cpus`` and ``sockets`` (of the machine), ``caches`` (bytes by name: ``L1d``,
        ``L1i``, ``L2``, ``L3``, each of one instance), ``memory_bytes``, ``system``, ``governor``,
        ``mhz`` (``now``, ``least``, ``most``; see :func:`gpt2lib.perf.counters.processor_mhz`).
    """
    return {
        "processor": _processor(root),
        "architecture": platform.machine(),
        "cores": usable_cpus(),
        "logical_cpus": os.cpu_count(),
        "sockets": _sockets(root),
        "caches": _caches(root),
        "memory_bytes": _memory_bytes(root),
        "system": f"{platform.system()} {platform.release()}",
        "governor": _text(root / "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        "mhz": {
            "now": processor_mhz(root),
            "least": _mhz(root, "cpuinfo_min_freq"),
            "most": _mhz(root, "cpuinfo_max_freq"),
        },
    }


def versions() -> dict[str, str]:
    """Return the versions of what computes: this library, Python, its packages, BLAS.

    BLAS is what the compiled kernels call (SciPy's), with the kind of core that its own kernels
    are for: an OpenBLAS that takes a processor for an older one is slower by half.
    """
    from gpt2lib import __version__

    found = {"gpt2lib": __version__, "python": platform.python_version()}
    for name in _PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    for entry in _blas_libraries():
        found["blas"] = (
            f"{entry['internal_api']} {entry['version']}, "
            f"{entry.get('architecture', 'unknown')} kernels"
        )
    return found


def _blas_libraries() -> list[dict[str, Any]]:
    """Return what threadpoolctl knows of NumPy's BLAS and SciPy's, SciPy's last."""
    import scipy.linalg.cython_blas  # noqa: F401  loads the BLAS that the kernels call
    from threadpoolctl import threadpool_info

    libraries = [entry for entry in threadpool_info() if entry["user_api"] == "blas"]
    return sorted(libraries, key=lambda entry: "scipy" in Path(entry["filepath"]).parts[-2])


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip() or None
    except OSError:
        return None


def _processor(root: Path) -> str:
    """Return the processor's name: platform.processor() knows it on few systems."""
    for line in (_text(root / "proc/cpuinfo") or "").splitlines():
        if line.lower().startswith(("model name", "hardware")):
            return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine() or "unknown"


def _sockets(root: Path) -> int | None:
    folders = (root / "sys/devices/system/cpu").glob("cpu[0-9]*")
    packages = {_text(folder / "topology/physical_package_id") for folder in folders} - {None}
    return len(packages) or None


def _caches(root: Path) -> dict[str, int]:
    """Return the bytes of each cache that CPU 0 has or shares."""
    found = {}
    for folder in sorted((root / "sys/devices/system/cpu/cpu0/cache").glob("index*")):
        level, kind, size = (_text(folder / name) for name in ("level", "type", "size"))
        number = re.fullmatch(r"(\d+)([KMG]?)", size or "")
        if level and number:
            letter = {"Data": "d", "Instruction": "i"}.get(kind or "", "")
            unit = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}[number[2]]
            found[f"L{level}{letter}"] = int(number[1]) * unit
    return found


def _last_level_bytes(root: Path, cpus: int) -> int:
    """Return the bytes of all last-level caches together: a large processor has several."""
    found = [0]
    for folder in (root / "sys/devices/system/cpu/cpu0/cache").glob("index*"):
        name = f"L{_text(folder / 'level')}"
        sharing = _count(_text(folder / "shared_cpu_list") or "0")
        found.append(_caches(root).get(name, 0) * -(-cpus // sharing))
    return max(found)


def _count(ranges: str) -> int:
    """Return how many CPUs a list such as ``0-3,8`` names."""
    pairs = (part.split("-") for part in ranges.split(","))
    return sum(int(pair[-1]) - int(pair[0]) + 1 for pair in pairs)


def _memory_bytes(root: Path) -> int | None:
    found = re.search(r"^MemTotal:\s*(\d+) kB", _text(root / "proc/meminfo") or "", re.MULTILINE)
    if found:
        return int(found[1]) * 1024
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return None


def memory_limit(root: Path = Path("/")) -> int | None:
    """Return the bytes of memory that this process may have, or None where nobody says.

    What the machine has, or its container's share where that is less (version 1 of control groups
    writes "no limit" as almost 2^63).
    """
    names = "memory.max", "memory/memory.limit_in_bytes"
    texts = [_text(root / "sys/fs/cgroup" / name) or "" for name in names]
    known = [_memory_bytes(root), *(int(text) for text in texts if text.isdecimal())]
    return min((limit for limit in known if limit is not None), default=None)


def _mhz(root: Path, name: str) -> float | None:
    text = _text(root / "sys/devices/system/cpu/cpu0/cpufreq" / name)
    return int(text) / 1000 if text and text.isdecimal() else None


# ------------------------------------------------------------------------- what it can do


class Ceilings(NamedTuple):
    """The most that this machine was seen to do with a number of threads.

    Attributes
    ----------
    threads
        How many.
    sgemm_gflops
        Float32 matrix product, in 10⁹ floating-point operations a second.
    read_gbs
        Reading memory, in 10⁹ bytes a second.
    copy_gbs
        Copying memory: bytes read and bytes written together, 10⁹ a second.
    sgemm_size
        n of the (n, n) matrices.
    sgemm_by
        Which way was the faster one: ``"threads"`` (this library's runtime, one-thread BLAS in each
        chunk) or ``"blas"`` (BLAS's own threads).
    memory_bytes
        How large the array was that was read.
    """

    threads: int
    sgemm_gflops: float
    read_gbs: float
    copy_gbs: float
    sgemm_size: int
    sgemm_by: str
    memory_bytes: int


def measure_ceilings(
    threads: int | None = None,
    *,
    size: int = 2048,
    memory_bytes: int | None = None,
    passes: int = 5,
) -> Ceilings:
    """Measure what this machine can do at best with so many threads.

    Takes a second or two. Afterwards BLAS has the number of threads that it had before.

    Parameters
    ----------
    threads
        How many; None for as many as this process may use.
    size
        n of the (n, n) matrices that are multiplied. Below 1000 the rate is not the machine's best.
    memory_bytes
        How large an array is read and copied; by default four times all last-level caches, and
        256 MiB at least. An array that fits a cache tells of the cache.
    passes
        How often each way is tried.

    Raises
    ------
    ValueError
        For a number that is not positive.
    """
    threads = check_threads(threads)
    if min(size, passes) < 1 or (memory_bytes is not None and memory_bytes < 1):
        raise ValueError(
            f"size, memory_bytes and passes must be at least 1, "
            f"got {size}, {memory_bytes} and {passes}."
        )
    with MatrixProduct(threads, size) as product:
        ways = {way: min(product.seconds(way) for _ in range(passes)) for way in product.WAYS}
    fastest = min(ways, key=lambda way: ways[way])
    flops = 2 * size**3 / ways[fastest]
    with Streams(threads, memory_bytes) as streams:
        read = max(streams.rate(way, passes) for way in streams.READING)
        copy = max(streams.rate(way, passes) for way in streams.COPYING)
        total = streams.bytes
    return Ceilings(threads, flops / 1e9, read / 1e9, copy / 1e9, size, fastest, total)


class MatrixProduct:
    """A float32 product of two (n, n) matrices, in two ways; a context manager.

    Parameters
    ----------
    threads
        How many.
    size
        n.
    """

    WAYS = ("threads", "blas")

    def __init__(self, threads: int, size: int) -> None:
        rng = np.random.default_rng(0)
        self.threads = threads
        self.a, self.b = (rng.random((size, size), np.float32) for _ in range(2))
        self.out, self.bias = np.zeros((size, size), np.float32), np.zeros(size, np.float32)
        self._backend: Any = None

    def seconds(self, way: str) -> float:
        """Multiply once, by ``"threads"`` or by ``"blas"``; return the seconds it took."""
        if way == "threads":
            self._start()
            begin = time.perf_counter()
            self._backend.linear_forward(self.a, self.b, self.bias, out=self.out)
            return time.perf_counter() - begin
        from threadpoolctl import threadpool_limits

        with threadpool_limits(self.threads, user_api="blas"):
            begin = time.perf_counter()
            np.matmul(self.a, self.b, out=self.out)
            return time.perf_counter() - begin

    def _start(self) -> None:
        """Make a runtime of our own (the shared ones are their users'), and warm it up."""
        if self._backend is None:
            from gpt2lib.kernels import Backend
            from gpt2lib.runtimes.threads import Threads

            self._backend = Backend(Threads(self.threads))
            self._backend.linear_forward(self.a, self.b, self.bias, out=self.out)

    def __enter__(self) -> MatrixProduct:
        return self

    def __exit__(self, *_: object) -> None:
        if self._backend is not None:
            self._backend.runtime.close()


class Streams:
    """Two large arrays, read and copied by several threads at once; a context manager.

    Each thread has a part of its own, which it was the first to touch: on a machine with several
    memories a part lies beside the thread that made it.

    Parameters
    ----------
    threads
        How many.
    memory_bytes
        How large each array is, about; see :func:`measure_ceilings`.

    Attributes
    ----------
    bytes
        How large each array is.
    """

    READING = ("read_one", "read_four")
    COPYING = ("copy_one", "copy_block")

    def __init__(self, threads: int, memory_bytes: int | None = None) -> None:
        from gpt2lib.perf import _streams

        if memory_bytes is None:
            caches = _last_level_bytes(Path("/"), os.cpu_count() or 1)
            memory_bytes = max(256 * _MIB, 4 * caches)
        part = max(4, memory_bytes // 4 // threads // 4 * 4)  # numbers, a multiple of four
        self.bytes = 4 * part * threads
        self._ways: dict[str, Callable[..., Any]] = {
            "read_one": _streams.read_one,
            "read_four": _streams.read_four,
            "copy_one": _streams.copy_one,
            "copy_block": lambda source, target: np.copyto(target, source),
        }
        self._pool = ThreadPoolExecutor(threads)
        self._sources = list(self._pool.map(lambda _: np.ones(part, np.float32), range(threads)))
        self._targets = list(self._pool.map(lambda _: np.ones(part, np.float32), range(threads)))
        for name in self._ways:  # machine code is loaded, or made, before anything is timed
            self._ways[name](*self._small(name))

    def _small(self, way: str) -> Sequence[Array]:
        parts = (self._sources[0][:4], self._targets[0][:4])
        return parts if way in self.COPYING else parts[:1]

    def seconds(self, way: str) -> float:
        """Read or copy everything once; return the seconds it took."""
        arrays = [self._sources, self._targets] if way in self.COPYING else [self._sources]
        begin = time.perf_counter()
        list(self._pool.map(self._ways[way], *arrays))
        return time.perf_counter() - begin

    def rate(self, way: str, passes: int) -> float:
        """Return the best of several passes, in bytes a second; a copied byte counts as two."""
        moved = self.bytes * (2 if way in self.COPYING else 1)
        return moved / min(self.seconds(way) for _ in range(passes))

    def __enter__(self) -> Streams:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown()
        self._sources, self._targets = [], []
