"""How many threads: affinity, quotas, wishes, and numbers that cannot be."""

from __future__ import annotations

import os

import pytest

from gpt2lib import runtimes
from gpt2lib.runtimes import cpus


@pytest.mark.parametrize("threads", [0, -1, 10**6, 1.5, "2", True])
@pytest.mark.parametrize("name", ["sequential", "threads"])
def test_wrong_thread_counts_are_refused_in_words(name, threads):
    with pytest.raises(ValueError, match=r"threads must be .* not"):
        runtimes.get(name, threads)


def test_sequential_has_one_thread():
    assert runtimes.get("sequential").threads == 1
    with pytest.raises(ValueError, match="one thread, not 2"):
        runtimes.get("sequential", 2)


def test_an_unknown_runtime_is_refused_with_the_names_that_there_are():
    with pytest.raises(ValueError, match=r"'cuda'.*sequential, threads"):
        runtimes.get("cuda")


def test_default_is_lowered_by_the_environment_and_never_raised(monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.delenv("NUMBA_NUM_THREADS", raising=False)
    monkeypatch.setattr(cpus, "usable_cpus", lambda: 8)
    assert cpus.default_threads() == 8
    for value, expected in (("4", 4), ("3,2", 3), ("99", 8), ("0", 8), ("many", 8), ("", 8)):
        monkeypatch.setenv("OMP_NUM_THREADS", value)
        assert cpus.default_threads() == expected, value
    monkeypatch.setenv("OMP_NUM_THREADS", "4")
    monkeypatch.setenv("NUMBA_NUM_THREADS", "2")
    assert cpus.default_threads() == 2


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="no affinity on this system")
def test_affinity_counts_and_not_the_machine(monkeypatch):
    monkeypatch.setattr(cpus, "cgroup_quota", lambda: None)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {3, 5, 9})
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    assert cpus.usable_cpus() == 3
    monkeypatch.setattr(cpus, "cgroup_quota", lambda: 1.5)
    assert cpus.usable_cpus() == 2
    monkeypatch.setattr(cpus, "cgroup_quota", lambda: 0.2)
    assert cpus.usable_cpus() == 1


def tree(root, files):
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return root


V1 = "sys/fs/cgroup/cpu,cpuacct"


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, None),
        ({"proc/self/cgroup": "0::/\n"}, None),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "150000 100000\n"}, 1.5),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "max 100000\n"}, None),
        (  # a parent's quota limits its children
            {
                "proc/self/cgroup": "0::/a/b\n",
                "sys/fs/cgroup/a/b/cpu.max": "max 100000\n",
                "sys/fs/cgroup/a/cpu.max": "300000 100000\n",
            },
            3.0,
        ),
        (  # the host's path, seen from inside a container
            {"proc/self/cgroup": "0::/docker/f00\n", "sys/fs/cgroup/cpu.max": "50000 100000\n"},
            0.5,
        ),
        (
            {
                "proc/self/cgroup": "5:memory:/x\n4:cpu,cpuacct:/job\n",
                f"{V1}/job/cpu.cfs_quota_us": "200000\n",
                f"{V1}/job/cpu.cfs_period_us": "50000\n",
                f"{V1}/cpu.cfs_quota_us": "-1\n",
                f"{V1}/cpu.cfs_period_us": "100000\n",
            },
            4.0,
        ),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "nonsense\n"}, None),
    ],
)
def test_control_group_quotas(tmp_path, files, expected):
    assert cpus.cgroup_quota(tree(tmp_path, files)) == expected
