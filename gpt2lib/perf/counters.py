"""What the system counts of this process: page faults, switches, memory, clock, compilations."""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

__all__ = ["Counters", "compilations", "peak_bytes", "processor_mhz", "started"]


_CLOCKS = 16  # cores whose clock is asked for: each question interrupts that core


class Counters(NamedTuple):
    """Events that the system has counted for this process, all its threads together.

    Subtract two of them for what happened in between: ``Counters.read() - before``.

    Attributes
    ----------
    minor_faults
        Page faults that needed no disk: memory touched for the first time, mostly.
    major_faults
        Page faults that did.
    voluntary_switches
        How often a thread gave its core up, waiting for something.
    involuntary_switches
        How often a core was taken from a thread.
    """

    minor_faults: int
    major_faults: int
    voluntary_switches: int
    involuntary_switches: int

    @classmethod
    def read(cls) -> Counters:
        """Read them (``getrusage``); all 0 on Windows, which does not have it."""
        if sys.platform == "win32":
            return cls(0, 0, 0, 0)
        import resource

        usage = resource.getrusage(resource.RUSAGE_SELF)
        return cls(usage.ru_minflt, usage.ru_majflt, usage.ru_nvcsw, usage.ru_nivcsw)

    def __sub__(self, before: Counters) -> Counters:
        return Counters(*(now - then for now, then in zip(self, before, strict=True)))


def processor_mhz(root: Path = Path("/")) -> float | None:
    """Return the mean clock of the cores that this process may use, in MHz; None if unreadable.

    Of many cores it asks a few, evenly spread. Linux only: cpufreq's ``scaling_cur_freq``, else
    what ``/proc/cpuinfo`` says. Inside a virtual machine that is often a constant, the host's
    nominal clock.

    Parameters
    ----------
    root
        Where ``sys`` and ``proc`` are.
    """
    cpus = _usable_cpus()
    found = []
    few = sorted(cpus)[:: -(-len(cpus) // _CLOCKS) or 1]
    for cpu in few:
        path = root / f"sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_cur_freq"
        with contextlib.suppress(OSError, ValueError):
            found.append(int(path.read_text(encoding="utf-8")) / 1000)
    if not found:
        with contextlib.suppress(OSError):
            text = (root / "proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
            blocks = (block for block in text.split("\n\n") if block.strip())
            for block in blocks:
                number = re.search(r"^processor\s*:\s*(\d+)", block, re.MULTILINE)
                clock = re.search(r"^cpu MHz\s*:\s*([\d.]+)", block, re.MULTILINE)
                if number and clock and int(number[1]) in cpus:
                    found.append(float(clock[1]))
    return sum(found) / len(found) if found else None


def _usable_cpus() -> set[int]:
    if hasattr(os, "sched_getaffinity"):
        return set(os.sched_getaffinity(0))
    return set(range(os.cpu_count() or 1))


def peak_bytes() -> int | None:
    """Return the most memory that this process has had in RAM at once, in bytes.

    Linux: ``VmHWM``; macOS: ``ru_maxrss``; elsewhere None.
    """
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    if sys.platform == "darwin":
        import resource

        return int(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
    return None


@contextlib.contextmanager
def compilations() -> Iterator[list[Any]]:
    """Collect what Numba compiles in the meantime: nothing, or the times are not of the code.

    Machine code that is loaded from the disk does not count.

    Yields
    ------
    list
        The beginning and the end of each compilation; :func:`started` counts them.
    """
    try:
        from numba.core import event
    except ImportError:
        yield []
        return
    with event.install_recorder("numba:compile") as recorder:
        yield recorder.buffer


def started(events: list[Any]) -> int:
    """Return how many functions were compiled, of what :func:`compilations` has collected."""
    return sum(1 for _, event in events if event.is_start)
