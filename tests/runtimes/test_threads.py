"""The runtimes that are always there: every chunk once, whatever else happens in the process."""

from __future__ import annotations

import os
import shutil
import sys
import threading

import numpy as np
import pytest

from gpt2lib import runtimes
from gpt2lib.runtimes import native
from gpt2lib.runtimes.threads import Threads

from .conftest import run_script
from .kernels import Counter, work

CASES = [("sequential", 1), ("threads", 1), ("threads", 2), ("threads", 3), ("threads", 5)]
PARKS = ["python"] + (["futex"] if native.FUTEX else [])


@pytest.mark.parametrize(("name", "threads"), CASES)
@pytest.mark.parametrize("chunks", [0, 1, 2, 3, 4, 5, 17, 1000, 65_536])
def test_every_chunk_exactly_once(name, threads, chunks, counter):
    runtime = runtimes.get(name, threads)
    for _ in range(10):
        counter.run(runtime, chunks)
    counter.check(chunks, 10)


@pytest.mark.parametrize("park", PARKS)
@pytest.mark.parametrize("threads", [2, 5])
def test_hundreds_of_regions_with_sleeping_and_waking_workers(park, threads, counter, monkeypatch):
    monkeypatch.setattr("gpt2lib.runtimes.threads._SPIN_US", 0)  # park after every region
    with Threads(threads, park=park) as runtime:
        for _ in range(400):
            counter.run(runtime, 9)
    counter.check(9, 400)


@pytest.mark.parametrize("park", PARKS)
def test_work_really_spreads_over_threads(park):
    counter = Counter(work)
    with Threads(3, park=park) as runtime:
        runtime.trace = runtimes.TraceBuffer(100_000)
        while len(set(runtime.trace.records()["thread"])) < 3:
            counter.run(runtime, 300)


@pytest.mark.parametrize("chunks", [-1, 1 << 31, 10**12])
def test_impossible_chunk_counts_are_refused(chunks, counter):
    with pytest.raises(ValueError, match="chunks"):
        counter.run(runtimes.get("threads", 2), chunks)


@pytest.mark.parametrize(("name", "threads"), [("sequential", 1), ("threads", 2)])
def test_several_python_threads_take_turns(name, threads):
    runtime = runtimes.get(name, threads)
    counters = [Counter(work) for _ in range(4)]

    def use(counter):
        for _ in range(30):
            counter.run(runtime, 13)

    users = [threading.Thread(target=use, args=(counter,)) for counter in counters]
    for user in users:
        user.start()
    for user in users:
        user.join(60)
        assert not user.is_alive()
    for counter in counters:
        counter.check(13, 30)


def test_get_returns_the_same_runtime_until_it_is_closed(counter):
    first = runtimes.get("threads", 3)
    assert runtimes.get("threads", 3) is first
    assert runtimes.get("threads", 2) is not first
    first.close()
    first.close()
    with pytest.raises(RuntimeError, match="closed"):
        counter.run(first, 4)
    second = runtimes.get("threads", 3)
    assert second is not first
    counter.run(second, 4)
    counter.check(4, 1)


@pytest.mark.parametrize("park", PARKS)
def test_a_pool_that_nobody_refers_to_lets_its_workers_go(park, counter):
    import gc

    runtime = Threads(3, park=park)
    counter.run(runtime, 10)
    workers = runtime._workers
    assert all(worker.is_alive() for worker in workers)
    del runtime
    gc.collect()
    for worker in workers:
        worker.join(30)
        assert not worker.is_alive()


@pytest.mark.parametrize("park", PARKS)
def test_too_many_threads_for_the_system_are_refused_and_none_is_left(park, counter, monkeypatch):
    runtime = Threads(4, park=park)
    start, started = threading.Thread.start, []

    def scarce(thread):
        if len(started) == 2:
            raise RuntimeError("can't start new thread")
        started.append(thread)
        start(thread)

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", scarce)
        with pytest.raises(RuntimeError, match="does not give 4 threads"):
            counter.run(runtime, 9)
    for worker in started:
        worker.join(30)
        assert not worker.is_alive()
    counter.run(runtime, 9)  # once the system has some again
    counter.check(9, 1)


@pytest.mark.parametrize("where", ["caller", "worker"])
@pytest.mark.parametrize("name", ["sequential", "threads"])
def test_a_region_inside_a_region_is_refused_in_words(name, where):
    """A kernel that calls back into Python and starts a region would wait for itself for ever."""
    import ctypes

    runtime = runtimes.get(name, 1 if name == "sequential" else 2)
    if name == "sequential" and where == "worker":
        pytest.skip("there is no worker")
    caller, messages, met = threading.get_ident(), [], threading.Event()
    inner = Counter()

    @ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_void_p)
    def nested(chunk, arguments):
        if (threading.get_ident() == caller) == (where == "caller"):
            try:
                inner.run(runtime, 2)
            except RuntimeError as error:
                messages.append(str(error))
            met.set()
        else:
            met.wait(30)  # leave a chunk for the other thread

    runtime.run(ctypes.cast(nested, ctypes.c_void_p).value, 0, 2)
    assert messages
    assert "inside" in messages[0]
    inner.check(0, 0)
    inner.run(runtime, 5)  # and it works again
    inner.check(5, 1)


def test_trace_holds_one_record_a_chunk(counter):
    with Threads(2) as runtime:
        counter.run(runtime, 10)  # not traced
        runtime.trace = buffer = runtimes.TraceBuffer(100)
        counter.run(runtime, 30, region=7)
        counter.run(runtime, 50, region=8)
        runtime.trace = None
        counter.run(runtime, 10)
    records = buffer.records()
    assert len(buffer) == len(records) == 80
    assert buffer.dropped == 0
    for region, chunks in ((7, 30), (8, 50)):
        mine = records[records["region"] == region]
        np.testing.assert_array_equal(np.sort(mine["chunk"]), np.arange(chunks))
    assert set(records["thread"]) <= {0, 1}
    assert (records["end_ns"] >= records["start_ns"]).all()
    assert records[records["region"] == 7]["end_ns"].max() <= (
        records[records["region"] == 8]["start_ns"].min()
    )
    for thread in (0, 1):  # a thread does one chunk at a time
        mine = records[records["thread"] == thread]
        assert (mine["start_ns"][1:] >= mine["end_ns"][:-1]).all()


def test_trace_reads_the_clock_of_perf_counter(counter):
    import time

    runtime = runtimes.get("sequential")
    runtime.trace = buffer = runtimes.TraceBuffer(10)
    before = time.perf_counter_ns()
    counter.run(runtime, 3)
    after = time.perf_counter_ns()
    runtime.trace = None
    records = buffer.records()
    assert before <= records["start_ns"].min()
    assert records["end_ns"].max() <= after


def test_a_full_trace_counts_what_it_drops_and_writes_nothing_behind_its_end(counter):
    runtime = runtimes.get("threads", 2)
    buffer = runtimes.TraceBuffer(16)
    buffer._memory = memory = np.concatenate([buffer._memory, np.full(64, -9)])
    runtime.trace = buffer
    counter.run(runtime, 40)
    runtime.trace = None
    assert len(buffer) == 16
    assert buffer.dropped == 24
    assert (memory[-64:] == -9).all()
    buffer.clear()
    assert (len(buffer), buffer.dropped) == (0, 0)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_fork_after_a_region_gives_the_child_a_pool_of_its_own():
    run_script(
        """
        for name, threads in (("sequential", 1), ("threads", 1), ("threads", 2), ("threads", 5)):
            runtime = runtimes.get(name, threads)
            exactly_once(runtime)
            child = os.fork()
            if child == 0:
                try:
                    exactly_once(runtime)
                    exactly_once(runtimes.get(name, threads))
                    os._exit(7)
                finally:
                    os._exit(1)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7, name
            exactly_once(runtime)
        """
    )


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_fork_while_another_thread_is_inside_a_region():
    run_script(
        """
        runtime = runtimes.get("threads", 2)
        exactly_once(runtime)
        counter = Counter(slow)
        other = threading.Thread(target=counter.run, args=(runtime, 20))
        other.start()
        while not runtime._owner:
            time.sleep(0.001)
        child = os.fork()
        if child == 0:
            exactly_once(runtime)
            os._exit(7)
        assert other.is_alive()
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        other.join()
        counter.check(20, 1)
        """
    )


def test_spawned_and_forked_pools_of_processes_can_run_regions():
    run_script(
        """
        import multiprocessing as mp
        from tests.runtimes.kernels import job

        if __name__ == "__main__":
            assert job(10) == 10
            for method in set(mp.get_all_start_methods()) & {"fork", "spawn"}:
                with mp.get_context(method).Pool(2) as pool:
                    assert pool.map(job, [1, 5, 50]) == [1, 5, 50], method
        """
    )


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")
def test_ctrl_c_finishes_the_region_then_raises_and_the_runtime_goes_on():
    run_script(
        f"""
        from gpt2lib.runtimes.threads import Threads
        for threads, park in [(1, None), *((n, park) for n in (2, 3) for park in {PARKS})]:
            runtime = Threads(threads, park=park)
            exactly_once(runtime)
            for _ in range(2):
                counter, regions = Counter(slow), 0
                try:
                    threading.Timer(0.03, os.kill, (os.getpid(), signal.SIGINT)).start()
                    while True:
                        counter.run(runtime, 6)
                        regions += 1
                except KeyboardInterrupt:
                    pass
                done = set(counter.cells[:6])
                assert done in ({{regions}}, {{regions + 1}}), done
                exactly_once(runtime)
        """
    )


@pytest.mark.parametrize("how", ["", "1 / 0"])
def test_the_interpreter_ends_at_once_whatever_the_workers_do(how):
    done = run_script(
        f"""
        exactly_once(runtimes.get("threads", 2))
        exactly_once(runtimes.get("threads", 5))
        {how}
        """,
        timeout=30,
        check=False,
    )
    assert done.returncode == (1 if how else 0), done.stderr


def test_the_interpreter_ends_while_a_daemon_thread_is_inside_a_region():
    run_script(
        """
        runtime = runtimes.get("threads", 2)
        exactly_once(runtime)
        counter = Counter()
        def forever():
            while True:
                counter.run(runtime, 1000)
        threading.Thread(target=forever, daemon=True).start()
        time.sleep(0.2)
        """,
        timeout=30,
    )


@pytest.mark.skipif(not shutil.which("taskset"), reason="needs taskset")
def test_the_default_honors_taskset():
    cpu = min(os.sched_getaffinity(0))
    done = run_script(
        """
        print(runtimes.default_threads(), runtimes.get("threads").threads)
        exactly_once(runtimes.get("threads", 4))   # more threads than cores: slower, not stuck
        """,
        prefix=("taskset", "-c", str(cpu)),
    )
    assert done.stdout.split() == ["1", "1"]


def test_an_installation_that_can_be_written_nowhere_compiles_without_a_cache():
    run_script(
        """
        from numba.core import caching
        caching.CacheImpl._locator_classes = []   # every place has said no
        exactly_once(runtimes.get("sequential"))
        from gpt2lib.runtimes import native
        assert not native.run_sequentially.stats.cache_path
        """
    )
