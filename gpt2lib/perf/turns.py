"""Time several calls fairly: in turns, so that a disturbance of the machine meets all of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["in_turns", "process_clock", "thread_clock"]

_FINE = 1e-6  # seconds: a clock that is coarser (Windows) cannot time an operation


def thread_clock() -> Callable[[], float]:
    """Return a clock of the processor time of this thread, in seconds.

    A busy machine takes the processor away now and then; this clock stands still meanwhile. It sees
    nothing of other threads, so it is for work on a single one. Where the system's clock of threads
    is coarse (Windows), it is a clock of elapsed time.
    """
    fine = time.get_clock_info("thread_time").resolution < _FINE
    return time.thread_time if fine else time.perf_counter


def process_clock() -> Callable[[], float]:
    """Return a clock of the processor time of all threads of this process together, in seconds.

    For work that one thread does, whichever it is, while the others wait. As in
    :func:`thread_clock`, a clock of elapsed time takes its place where it is coarse.
    """
    fine = time.get_clock_info("process_time").resolution < _FINE
    return time.process_time if fine else time.perf_counter


def in_turns(
    calls: Mapping[str, Callable[[], Any]],
    rounds: int = 3,
    clock: Callable[[], float] | None = None,
) -> dict[str, float]:
    """Return the shortest time of each call, in seconds.

    Every round makes each call once. Before the first round there is one that does not count: it
    compiles, touches fresh memory, and fills caches. The *shortest* time is taken because all that
    disturbs a call makes it longer.

    Parameters
    ----------
    calls
        Name to what is to be timed.
    rounds
        How often each is timed, at least once.
    clock
        What gives the time in seconds; :func:`thread_clock`'s by default.

    Raises
    ------
    ValueError
        For fewer than one round.

    Examples
    --------
    >>> times = in_turns({"sort": lambda: sorted(range(1000)), "sum": lambda: sum(range(1000))})
    >>> list(times), min(times.values()) > 0
    (['sort', 'sum'], True)
    """
    if rounds < 1:
        raise ValueError(f"something is timed at least once, not {rounds} times.")
    clock = thread_clock() if clock is None else clock
    best = dict.fromkeys(calls, float("inf"))
    for turn in range(rounds + 1):
        for name, call in calls.items():
            begin = clock()
            call()
            if turn:
                best[name] = min(best[name], clock() - begin)
    return best
