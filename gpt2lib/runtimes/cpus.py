"""How many threads: what this process may use, and what the user asks for."""

from __future__ import annotations

import math
import os
from pathlib import Path

MAX_THREADS = 1024


def default_threads() -> int:
    """Return how many threads to use when nobody says.

    The smallest of

    - the CPUs that this process may run on (``taskset``, Slurm and ``docker --cpuset-cpus`` narrow
      them; the machine may have more),
    - the CPU quota of its control groups, rounded up (``docker --cpus 1.5`` gives 2),
    - ``OMP_NUM_THREADS`` and ``NUMBA_NUM_THREADS``, where they are set. They can lower the number
      and never raise it: more threads than CPUs help nobody who has not asked for just that.
    """
    wishes = [usable_cpus()]
    for name in ("OMP_NUM_THREADS", "NUMBA_NUM_THREADS"):
        first = os.environ.get(name, "").split(",")[0].strip()  # OpenMP allows one a nesting level
        if first.isdecimal() and int(first) > 0:
            wishes.append(int(first))
    return min(wishes)


def usable_cpus() -> int:
    """Return how many CPUs this process can keep busy: its affinity, or its quota if smaller."""
    if hasattr(os, "sched_getaffinity"):
        allowed = len(os.sched_getaffinity(0))
    else:
        allowed = os.cpu_count() or 1
    quota = cgroup_quota()
    return max(1, allowed if quota is None else min(allowed, math.ceil(quota)))


def check_threads(threads: int | None) -> int:
    """Return a number of threads that can be had; ``None`` stands for :func:`default_threads`.

    Raises
    ------
    ValueError
        For anything but an integer between 1 and 1024.
    """
    if threads is None:
        return default_threads()
    if isinstance(threads, bool) or not hasattr(threads, "__index__"):
        raise ValueError(f"threads must be a whole number, not {threads!r}")
    number = threads.__index__()
    if not 1 <= number <= MAX_THREADS:
        raise ValueError(
            f"threads must be between 1 and {MAX_THREADS}, not {number}; "
            f"this process can keep {usable_cpus()} busy"
        )
    return number


def cgroup_quota(root: Path = Path("/")) -> float | None:
    """Return the CPU quota of this process's control groups, in CPUs; ``None`` if unlimited.

    Parameters
    ----------
    root
        Where ``proc`` and ``sys`` are found.

    Notes
    -----
    A group is limited by its own quota and by that of every group above it. Inside a container the
    path in ``/proc/self/cgroup`` may be that of the host: then the mount's root is the container's
    own group. Version 2 has ``cpu.max`` ("150000 100000" or "max 100000"), version 1
    ``cpu.cfs_quota_us`` (−1 for unlimited) and ``cpu.cfs_period_us``.
    """
    try:
        lines = (root / "proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    quotas = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            mounts = [root / "sys/fs/cgroup", root / "sys/fs/cgroup/unified"]
        elif "cpu" in controllers.split(","):
            mounts = [root / "sys/fs/cgroup" / name for name in (controllers, "cpu")]
        else:
            continue
        for mount in mounts:
            group = mount / path.lstrip("/")
            while group.is_relative_to(mount):
                quotas.append(_group_quota(group))
                if group == mount:
                    break
                group = group.parent
    known = [quota for quota in quotas if quota is not None]
    return min(known) if known else None


def _group_quota(group: Path) -> float | None:
    """Return one control group's own quota in CPUs, or ``None``."""
    try:
        if (group / "cpu.max").exists():
            quota, period = (group / "cpu.max").read_text(encoding="utf-8").split()
        else:
            quota = (group / "cpu.cfs_quota_us").read_text(encoding="utf-8").strip()
            period = (group / "cpu.cfs_period_us").read_text(encoding="utf-8").strip()
        if quota == "max" or int(quota) <= 0 or int(period) <= 0:
            return None
        return int(quota) / int(period)
    except (OSError, ValueError):
        return None
