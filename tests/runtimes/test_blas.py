"""BLAS on one thread inside, and as the user had it outside."""

from __future__ import annotations

import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import scipy.linalg.blas  # noqa: F401  (the second BLAS of the process)
from threadpoolctl import threadpool_info, threadpool_limits

from gpt2lib.runtimes import blas, blas_single_thread


def settings():
    return [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]


@pytest.fixture(autouse=True)
def _two_threads():
    np.ones(2) @ np.ones(2)
    with threadpool_limits(2, user_api="blas"):
        if not any(n == 2 for n in settings()):
            pytest.skip("BLAS has no threads here")
        yield
        assert all(n == 2 for n in settings())


def test_limits_inside_and_restores_outside():
    with blas_single_thread():
        assert set(settings()) == {1}
        with blas_single_thread():
            assert set(settings()) == {1}
        assert set(settings()) == {1}
    assert set(settings()) == {2}


def test_restores_after_an_error():
    with pytest.raises(ZeroDivisionError), blas_single_thread():
        1 / 0  # noqa: B018
    assert set(settings()) == {2}


def free_for_others():
    """Say whether another thread can take the guard's lock: its owner always can."""
    with ThreadPoolExecutor(1) as pool:
        taken = pool.submit(blas._guard._lock.acquire, timeout=1).result()
        if taken:
            pool.submit(blas._guard._lock.release).result()
    return taken


def test_ctrl_c_at_any_line_leaves_the_users_setting():
    """A tracer raises it at each line of the guard in turn, on the way in and on the way out.

    Not at the ``with`` of the lock itself: there a tracer could fall between the end of the block
    and the lock's release, which no signal can. Nor where a loop on one line goes round: what a
    tracer raises there is seen by no handler of the frame since Python 3.12, so the lock would
    stay taken; what a signal raises there is seen.
    """
    lines = Path(blas.__file__).read_text(encoding="utf-8").splitlines()

    def interrupt_at(number):
        count, last = 0, None

        def tracer(frame, event, argument):
            nonlocal count, last
            if frame.f_code.co_filename != blas.__file__ or frame.f_code.co_name == "__del__":
                return None
            if event != "line":
                return tracer
            here, before = (frame.f_code, frame.f_lineno), last
            last = here
            if here != before and "with self._lock" not in lines[frame.f_lineno - 1]:
                count += 1
                if count == number:
                    raise KeyboardInterrupt
            return tracer

        outer = sys.gettrace()
        sys.settrace(tracer)
        try:
            with blas_single_thread():
                pass
        finally:
            sys.settrace(outer)

    for number in range(1, 200):
        try:
            interrupt_at(number)
            break  # there are not so many lines
        except KeyboardInterrupt:
            pass
        assert not blas._guard._inside, f"line {number}"
        assert free_for_others(), f"line {number}"
        assert set(settings()) == {2}, f"line {number}"
        with blas_single_thread():
            assert set(settings()) == {1}, f"line {number}"
    assert 20 < number < 199  # there were lines to fall between, and all were tried


def test_two_threads_that_overlap_leave_the_users_setting():
    """A enters, B enters, A leaves, B leaves: B must not put A's limit back as the user's wish."""
    inside_b, left_a = threading.Event(), threading.Event()
    seen = []

    def b():
        with blas_single_thread():
            inside_b.set()
            left_a.wait(10)
            seen.append(set(settings()))

    with blas_single_thread():
        other = threading.Thread(target=b)
        other.start()
        assert inside_b.wait(10)
    left_a.set()
    other.join()
    assert seen == [{1}]
    assert set(settings()) == {2}


def test_libraries_are_looked_for_only_when_modules_have_come(monkeypatch):
    with blas_single_thread():
        pass
    scans = []
    scan = blas._SingleThread._scan
    monkeypatch.setattr(blas._SingleThread, "_scan", lambda self: (scans.append(1), scan(self)))
    for _ in range(5):
        with blas_single_thread():
            pass
    assert scans == []
    monkeypatch.setitem(sys.modules, "a_module_that_is_new", None)
    with blas_single_thread():
        pass
    assert scans == [1]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_child_forked_inside_has_the_users_setting():
    with blas_single_thread():
        child = os.fork()
        if child == 0:
            ok = False
            try:
                ok = set(settings()) == {2} and not blas._guard._inside
            finally:
                os._exit(0 if ok else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
