import time

import pytest

from gpt2lib.perf.turns import in_turns, process_clock, thread_clock


class Clock:
    """A clock that only goes on when told."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


def test_each_call_has_its_turn_and_the_shortest_time_counts():
    clock, made = Clock(), []
    lasts = {"a": [9.0, 3.0, 2.0, 4.0], "b": [0.5, 8.0, 7.0, 6.0]}  # the first one does not count

    def call(name):
        clock.now += lasts[name][made.count(name)]
        made.append(name)

    times = in_turns({"a": lambda: call("a"), "b": lambda: call("b")}, rounds=3, clock=clock)
    assert times == {"a": 2.0, "b": 6.0}
    assert made == ["a", "b"] * 4


def test_no_round_is_refused():
    with pytest.raises(ValueError, match="at least once"):
        in_turns({}, rounds=0)


@pytest.mark.parametrize("make", [thread_clock, process_clock])
def test_clocks_do_not_go_backwards(make):
    clock = make()
    begin = clock()
    sum(range(10_000))
    assert clock() >= begin


def test_a_coarse_clock_is_not_taken(monkeypatch):
    class Info:
        resolution = 0.0156  # Windows

    monkeypatch.setattr(time, "get_clock_info", lambda name: Info)
    assert thread_clock() is process_clock() is time.perf_counter
