"""nOS-V, where it is installed: ``NOSV_HOME`` or the library search path."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gpt2lib import runtimes
from gpt2lib.runtimes import nosv

from .conftest import run_script

LIBRARY = nosv.find_library()
needs_nosv = pytest.mark.skipif(
    not LIBRARY, reason="libnosv.so was not found (set NOSV_HOME to where nOS-V is installed)"
)
needs_two_cores = pytest.mark.skipif(
    not hasattr(os, "sched_getaffinity") or len(os.sched_getaffinity(0)) < 2,
    reason="needs two cores",
)
LAUNCH = (sys.executable, "-m", "gpt2lib.runtimes.launch", "--runtime", "nosv")


def segments():
    return set(Path("/dev/shm").glob(f"gpt2lib-u{os.geteuid()}-p*"))


def run_with_nosv(body, *options, **keywords):
    """Run a script under the launcher; whatever it does, no shared memory stays behind."""
    before = segments()
    done = run_script(body, prefix=(*LAUNCH, *options, "--"), **keywords)
    assert segments() <= before
    return done


def test_without_preloading_it_says_why_and_how():
    state = runtimes.available()["nosv"]
    assert not state.ok
    assert state.reason
    if LIBRARY:
        assert state.library == LIBRARY
        assert "launch --runtime nosv" in state.how_to_get
        with pytest.raises(RuntimeError, match="launch --runtime nosv"):
            runtimes.get("nosv", 1)
    elif sys.platform.startswith("linux"):
        assert "NOSV_HOME" in state.how_to_get
        with pytest.raises(RuntimeError, match="NOSV_HOME"):
            runtimes.get("nosv", 1)


@needs_nosv
@needs_two_cores
def test_chunks_trace_threads_and_denormals():
    run_with_nosv(
        """
        import numpy as np
        assert runtimes.available()["nosv"].ok
        for threads in (2, 1, 2):
            runtime = runtimes.get("nosv", threads)
            exactly_once(runtime, chunks=(1, 2, 3, 7, 64, 1001, 5000))
            assert runtime.describe()["library"] in open("/proc/self/maps").read()
            assert runtime.describe()["version"]
            runtime.trace = buffer = runtimes.TraceBuffer(10_000)
            while len(set(buffer.records()["thread"])) < threads:
                buffer.clear()
                Counter(work).run(runtime, 2000)   # more chunks than there are tasks
                assert sorted(buffer.records()["chunk"]) == list(range(2000))
            runtime.trace = None
            # Any Python thread may ask; the main thread waits for them without deadlock.
            counters = [Counter(work) for _ in range(3)]
            users = [
                threading.Thread(target=lambda c=c: [c.run(runtime, 13) for _ in range(10)])
                for c in counters
            ]
            for user in users: user.start()
            for user in users: user.join()
            for counter in counters: counter.check(13, 10)
            try:
                runtimes.get("nosv", 3 - threads)
            except RuntimeError as error:
                assert "close it" in str(error)
            else:
                raise AssertionError("two of them")
            assert np.float32(1e-38) / np.float32(10) != 0   # denormal numbers are numbers
            runtime.close()
        try:
            runtimes.get("nosv", 999)
        except ValueError as error:
            assert "core" in str(error)
        else:
            raise AssertionError("999 cores")
        """
    )


@needs_nosv
@needs_two_cores
def test_interrupt_error_fork_subprocess_and_an_ordinary_end():
    done = run_with_nosv(
        """
        import subprocess
        runtime = runtimes.get("nosv", 2)
        exactly_once(runtime)
        counter, regions = Counter(slow), 0
        try:
            threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT)).start()
            while True:
                counter.run(runtime, 6)
                regions += 1
        except KeyboardInterrupt:
            pass
        assert set(counter.cells[:6]) in ({regions}, {regions + 1})
        exactly_once(runtime)

        child = os.fork()
        if child == 0:
            status = 1
            try:
                assert len(os.sched_getaffinity(0)) >= 2
                exactly_once(runtimes.get("threads", 2))
                try:
                    exactly_once(runtime)
                except RuntimeError as error:
                    assert "forked" in str(error)
                    status = 7
            finally:
                os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        subprocess.run([sys.executable, "-c", "pass"], check=True)
        exactly_once(runtime)
        1 / 0
        """,
        check=False,
    )
    assert done.returncode == 1
    assert "ZeroDivisionError" in done.stderr.splitlines()[-1]


@needs_nosv
def test_shared_memory_is_removed_after_a_crash():
    done = run_with_nosv(
        """
        runtime = runtimes.get("nosv", 1)
        exactly_once(runtime)
        assert os.path.exists(f"/dev/shm/gpt2lib-u{os.geteuid()}-p{os.getpid()}")
        print("it was there", flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
        """,
        check=False,
    )
    assert done.returncode == 128 + 9
    assert "it was there" in done.stdout


def _ovniemu():
    found = shutil.which("ovniemu") or str(Path(os.environ.get("NOSV_HOME", "")) / "bin/ovniemu")
    return found if LIBRARY and Path(found).is_file() else None


@needs_nosv
@pytest.mark.skipif(not _ovniemu(), reason="ovniemu was not found (PATH, or NOSV_HOME/bin)")
def test_an_ovni_trace_holds_every_chunk_under_its_regions_name(tmp_path):
    folder = tmp_path / "trace"
    run_with_nosv(
        """
        runtime = runtimes.get("nosv", 1)
        runtime.labels = {3: "layernorm_forward", 4: "linear_forward"}
        for region in (3, 4, 3):
            Counter(work).run(runtime, 10 + region, region=region)
        """,
        "--ovni",
        "--trace-folder",
        str(folder),
    )
    library_path = {**os.environ, "LD_LIBRARY_PATH": str(Path(LIBRARY).parent)}
    command = [_ovniemu(), "-l", str(folder)]
    subprocess.run(command, check=True, capture_output=True, env=library_path, timeout=60)
    names = (folder / "thread.pcf").read_text(encoding="utf-8")
    value = {}
    for line in names.splitlines():
        if line.endswith("_forward"):
            number, name = line.split()
            value[name] = number
    begun = dict.fromkeys(value, 0)
    for line in (folder / "thread.prv").read_text(encoding="utf-8").splitlines():
        fields = line.split(":")
        if fields[0] == "2":
            for name, number in value.items():
                begun[name] += fields[6:8] == ["11", number]
    assert begun == {"layernorm_forward": 26, "linear_forward": 14}
