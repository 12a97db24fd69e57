"""OpenMP and TBB: one layer a process, so every test is a process of its own."""

from __future__ import annotations

import glob
import os
import shutil
import sys

import pytest

from gpt2lib import runtimes

from .conftest import run_script

LAYERS = {"openmp": "omp", "tbb": "tbb"}
_available = runtimes.available()


@pytest.fixture(params=sorted(LAYERS))
def name(request):
    state = _available[request.param]
    if not state.ok:
        pytest.skip(f"{request.param}: {state.reason}; {state.how_to_get}")
    return request.param


def test_chunks_trace_turns_and_the_other_layer(name):
    other = next(layer for layer in LAYERS if layer != name)
    run_script(
        f"""
        import numba, numpy as np
        five = runtimes.get("{name}", 5)   # more than there are cores, here
        for threads in (1, 2, 3, 5):
            exactly_once(runtimes.get("{name}", threads))

        assert numba.threading_layer() == "{LAYERS[name]}"
        description = five.describe()
        assert description["threads"] == 5
        if sys.platform == "linux":
            assert description["library"] in open("/proc/self/maps").read()
            assert description["version"]

        before = numba.get_num_threads()
        five.trace = buffer = runtimes.TraceBuffer(10_000)
        exactly_once(five, chunks=(40,), times=10)
        records = buffer.records()
        assert sorted(records["chunk"]) == sorted(list(range(40)) * 10)
        assert set(records["thread"]) <= set(range(5))
        assert numba.get_num_threads() == before   # the user's own loops keep their number

        counters = [Counter(work) for _ in range(3)]
        def use(counter):
            for _ in range(20):
                counter.run(five, 13)
        users = [threading.Thread(target=use, args=(counter,)) for counter in counters]
        for user in users: user.start()
        for user in users: user.join()
        for counter in counters: counter.check(13, 20)

        try:
            runtimes.get("{other}", 2)
        except RuntimeError as error:
            assert "{LAYERS[name]}" in str(error) and "new process" in str(error), error
        else:
            raise AssertionError("a second layer in one process")
        assert not runtimes.available()["{other}"].ok
        try:
            runtimes.get("{name}", 77)
        except ValueError as error:
            assert "NUMBA_NUM_THREADS=77" in str(error), error
        else:
            raise AssertionError("more threads than were started")
        exactly_once(runtimes.get("threads", 3))   # and both kinds of threads live together
        """
    )


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_forked_child_goes_on_or_is_told_in_words(name):
    done = run_script(
        f"""
        runtime = runtimes.get("{name}", 2)
        exactly_once(runtime)
        child = os.fork()
        if child == 0:
            status = 1
            try:
                exactly_once(runtimes.get("threads", 2))
                try:
                    exactly_once(runtime)
                    exactly_once(runtimes.get("{name}", 2))
                    status = 7
                except RuntimeError as error:
                    assert "forked" in str(error), error
                    try:
                        type(runtime)(2)
                    except RuntimeError as error:
                        assert "spawn" in str(error), error
                        status = 8
            finally:
                os._exit(status)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        exactly_once(runtime)
        """
    )
    assert done.stdout.strip() == ("7" if name == "tbb" else "8")


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")
def test_ctrl_c_and_a_region_inside_a_region(name):
    run_script(
        f"""
        import ctypes
        runtime = runtimes.get("{name}", 2)
        exactly_once(runtime)
        counter, regions = Counter(slow), 0
        try:
            threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT)).start()
            while True:
                counter.run(runtime, 6)
                regions += 1
        except KeyboardInterrupt:
            pass
        assert set(counter.cells[:6]) in ({{regions}}, {{regions + 1}})
        exactly_once(runtime)

        refused = []
        @ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_void_p)
        def nested(chunk, arguments):
            try:
                Counter().run(runtime, 2)
            except RuntimeError as error:
                refused.append("inside" in str(error))
        runtime.run(ctypes.cast(nested, ctypes.c_void_p).value, 0, 6)
        assert refused == [True] * 6
        exactly_once(runtime)
        """
    )


_OTHER_OPENMP = sorted(
    path
    for pattern in ("/usr/lib*/llvm-*/lib/libomp.so.5", "/usr/lib/*/libomp.so.5")
    for path in glob.glob(pattern)  # noqa: PTH207  (Path.glob takes no absolute pattern)
)


@pytest.mark.skipif(not _OTHER_OPENMP, reason="no second OpenMP library (apt install libomp5)")
@pytest.mark.skipif(not _available["openmp"].ok, reason="no OpenMP layer")
def test_a_preloaded_openmp_library_runs_and_is_named():
    """The loader's own log is the witness."""
    library = os.path.realpath(_OTHER_OPENMP[0])
    done = run_script(
        """
        runtime = runtimes.get("openmp", 2)
        exactly_once(runtime)
        print("LIBRARY", runtime.describe()["library"])
        """,
        env={"LD_PRELOAD": library, "LD_DEBUG": "bindings"},
    )
    assert f"LIBRARY {library}" in done.stdout
    log = done.stderr.splitlines()
    bound = [line for line in log if "`GOMP_parallel'" in line and "omppool" in line]
    assert bound
    assert all(f" to {library}" in line for line in bound), bound


@pytest.mark.skipif(not shutil.which("taskset"), reason="needs taskset")
def test_taskset_is_honored(name):
    cpu = min(os.sched_getaffinity(0))
    run_script(
        f"""
        assert runtimes.get("{name}").threads == 1
        exactly_once(runtimes.get("{name}"))
        """,
        prefix=("taskset", "-c", str(cpu)),
    )


def test_a_small_pool_of_numba_is_enlarged_before_it_starts(name):
    run_script(
        f"""
        assert runtimes.default_threads() == 1
        runtime = runtimes.get("{name}", 4)
        exactly_once(runtime)
        """,
        env={"NUMBA_NUM_THREADS": "1"},
    )
