"""What is said of the machine, from made-up systems, and ceilings of small arrays."""

from __future__ import annotations

import json
import mmap
import os
import platform
from pathlib import Path

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from gpt2lib.perf import counters
from gpt2lib.perf.counters import Counters, compilations, processor_mhz
from gpt2lib.perf.machine import (
    MatrixProduct,
    Streams,
    _last_level_bytes,
    describe,
    measure_ceilings,
    memory_limit,
    versions,
)
from gpt2lib.runtimes.cpus import usable_cpus

CPUINFO = """processor\t: 0
model name\t: A Processor @ 3 GHz
cpu MHz\t\t: 3000.000

processor\t: 1
model name\t: A Processor @ 3 GHz
cpu MHz\t\t: 1000.000
"""


def write(root: Path, name: str, text: str) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """Return the root of a system with two sockets, two caches, and 2 GiB."""
    monkeypatch.setattr(counters, "_usable_cpus", lambda: {0, 1})
    write(tmp_path, "proc/cpuinfo", CPUINFO)
    write(tmp_path, "proc/meminfo", "MemTotal:        2097152 kB\nMemFree: 5 kB\n")
    cpus = tmp_path / "sys/devices/system/cpu"
    for cpu in range(2):
        write(cpus, f"cpu{cpu}/topology/physical_package_id", f"{cpu}\n")
    for index, (level, kind, size) in enumerate(
        [("1", "Data", "48K"), ("1", "Instruction", "32K"), ("3", "Unified", "36M")]
    ):
        for name, text in (("level", level), ("type", kind), ("size", size)):
            write(cpus, f"cpu0/cache/index{index}/{name}", text + "\n")
    write(cpus, "cpu0/cpufreq/scaling_governor", "powersave\n")
    write(cpus, "cpu0/cpufreq/cpuinfo_max_freq", "3500000\n")
    return tmp_path


@pytest.mark.parametrize(
    ("place", "text", "limit"),
    [
        ("memory.max", "1073741824\n", 1 << 30),
        ("memory.max", "max\n", 2 << 30),
        ("memory/memory.limit_in_bytes", "536870912\n", 1 << 29),
        ("memory/memory.limit_in_bytes", "9223372036854771712\n", 2 << 30),  # "no limit"
        ("elsewhere", "", 2 << 30),
    ],
)
def test_a_container_has_less_memory_than_the_machine(machine, place, text, limit):
    write(machine, f"sys/fs/cgroup/{place}", text)
    assert memory_limit(machine) == limit


def test_what_the_system_says_is_read(machine):
    found = describe(machine)
    assert found["processor"] == "A Processor @ 3 GHz"
    assert found["sockets"] == 2
    assert found["caches"] == {"L1d": 48 << 10, "L1i": 32 << 10, "L3": 36 << 20}
    assert found["memory_bytes"] == 2 << 30
    assert found["governor"] == "powersave"
    assert found["mhz"] == {"now": 2000.0, "least": None, "most": 3500.0}
    assert found["cores"] == usable_cpus()


def test_all_last_level_caches_count(machine):
    assert _last_level_bytes(machine, 8) == 8 * 36 << 20  # nobody says who shares it
    cache = machine / "sys/devices/system/cpu/cpu0/cache/index2"
    write(cache, "shared_cpu_list", "0-1,4-5\n")
    assert _last_level_bytes(machine, 8) == 2 * 36 << 20
    assert _last_level_bytes(machine, 4) == 36 << 20
    assert _last_level_bytes(machine / "nowhere", 4) == 0


def test_the_clock_is_that_of_the_usable_cores(machine, monkeypatch):
    monkeypatch.setattr(counters, "_usable_cpus", lambda: {1})
    assert processor_mhz(machine) == 1000.0
    cpus = machine / "sys/devices/system/cpu"
    write(cpus, "cpu1/cpufreq/scaling_cur_freq", "1234567\n")  # kHz, and nearer to the truth
    assert processor_mhz(machine) == 1234.567


def test_a_system_without_proc_and_sys_is_described(tmp_path):
    found = describe(tmp_path)
    assert found["processor"]
    assert found["caches"] == {}
    assert found["mhz"] == {"now": None, "least": None, "most": None}
    assert found["governor"] is None
    assert found["memory_bytes"] is None or found["memory_bytes"] > 0


def test_it_may_be_published(monkeypatch):
    monkeypatch.setattr(platform, "node", lambda: "my-own-machine")
    monkeypatch.setattr(os, "uname", lambda: os.uname_result(("L", "my-own-machine", "", "", "")))
    text = json.dumps([describe(), versions()])
    assert "my-own-machine" not in text
    assert str(Path.home()) not in text
    assert not [word for word in text.split('"') if word.startswith("/")]


def test_versions_name_the_blas_of_the_kernels():
    found = versions()
    assert found["numpy"] == np.__version__
    assert found["blas"].endswith("kernels")


# ------------------------------------------------------------------- ceilings


def blas_threads():
    return [entry["num_threads"] for entry in threadpool_info() if entry["user_api"] == "blas"]


@pytest.mark.parametrize("mine", [1, 2])
def test_ceilings_of_something_small(mine):
    versions()  # loads both BLAS
    with threadpool_limits(mine, user_api="blas"):
        before = blas_threads()
        found = measure_ceilings(2, size=64, memory_bytes=1 << 20, passes=2)
        assert blas_threads() == before == [mine] * len(before)
    assert (found.threads, found.sgemm_size, found.memory_bytes) == (2, 64, 1 << 20)
    assert found.sgemm_by in MatrixProduct.WAYS
    assert min(found.sgemm_gflops, found.read_gbs, found.copy_gbs) > 0


def test_both_ways_multiply():
    with MatrixProduct(2, 70) as product:
        expected = product.a.astype(np.float64) @ product.b
        for way in product.WAYS:
            product.out[:] = 0
            assert product.seconds(way) > 0
            np.testing.assert_allclose(product.out, expected, rtol=1e-5)


def test_everything_is_read_and_copied():
    from gpt2lib.perf import _streams

    with Streams(3, 3 * 4 * 40) as streams:
        assert streams.bytes == 3 * 4 * 40
        for way in streams.COPYING:
            for number, (source, target) in enumerate(
                zip(streams._sources, streams._targets, strict=True)
            ):
                source[:], target[:] = np.arange(40) + number, 0
            streams.seconds(way)
            np.testing.assert_array_equal(streams._sources, streams._targets)
        for reader in (_streams.read_one, _streams.read_four):
            assert reader(streams._sources[2]) == sum(range(40)) + 2 * 40


@pytest.mark.parametrize(
    "options", [{"size": 0}, {"passes": 0}, {"memory_bytes": 0}, {"threads": 0}]
)
def test_what_cannot_be_measured_is_refused(options):
    with pytest.raises(ValueError, match="must be"):
        measure_ceilings(**options)


# ------------------------------------------------------------------- counters


def test_counters_count_what_happens():
    if os.name == "nt":
        pytest.skip("Windows does not count")
    before = Counters.read()
    with mmap.mmap(-1, 1 << 20) as memory:  # fresh from the system, which malloc's may not be
        memory[0] = 1
    assert (Counters.read() - before).minor_faults >= 1
    assert Counters(5, 4, 3, 2) - Counters(1, 1, 1, 1) == (4, 3, 2, 1)


def test_the_most_memory_grows():
    before = counters.peak_bytes()
    if before is None:
        pytest.skip("this system does not say")
    block = np.ones(64 << 20, np.uint8)
    assert counters.peak_bytes() >= block.nbytes


def test_only_what_is_compiled_counts():
    numba = pytest.importorskip("numba")
    function = numba.njit(lambda x: x + 1)
    with compilations() as compiled:
        function(1)
    assert compiled
    assert counters.started(compiled) == 1
    with compilations() as compiled:
        function(2)
    assert not compiled
