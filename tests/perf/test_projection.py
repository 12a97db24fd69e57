"""The model of a step against hand arithmetic, its limits, and Amdahl's law."""

from __future__ import annotations

import dataclasses
import itertools
import math

import numpy as np
import pytest

from gpt2lib.config import GPT2Config
from gpt2lib.perf import projection
from gpt2lib.perf.projection import Calibration, Projection, Task, calibrate, errors, required
from gpt2lib.perf.regions import of_step
from gpt2lib.perf.scaling import amdahl, karp_flatt

TINY = GPT2Config.preset("tiny")
MACHINE = Calibration(1e10, 5e9, 8e9, 4e-6, 2e-5, {"linear_forward": 1.5}, "a test")


def model(*tasks, width=math.inf, hand_over=0.0, python=0.0, growth="log"):
    return Projection(tuple(Task(*task) for task in tasks), width, hand_over, python, growth)


def random_models(count=30):
    rng = np.random.default_rng(0)
    for _ in range(count):
        tasks = [
            ("op", int(rng.integers(1, 200)), s, s * rng.uniform(0, 1))
            for s in rng.uniform(0.01, 3, 6)
        ]
        growth = ("log", "linear")[int(rng.integers(2))]
        width, handed, python = rng.uniform(1, 50), rng.uniform(0, 1e-3), rng.uniform(0, 0.1)
        yield model(*tasks, width=width, hand_over=handed, python=python, growth=growth)


@pytest.mark.parametrize(("p", "seconds"), [(1, 9.0), (2, 5.0), (8, 2.0), (9, 1.0), (500, 1.0)])
def test_nine_chunks_in_rounds(p, seconds):
    """Nine chunks of a second: 9, 5, 2, 1 rounds; more threads than chunks help nobody."""
    assert model(("op", 9, 9.0, 0.0)).seconds(p) == pytest.approx(seconds)


def test_memory_by_hand():
    """4 s of work, 1 s of bytes, memory for two threads: on 4 threads 1 s, on 8 or more 0.5."""
    step = model(("op", math.inf, 4.0, 1.0), width=2)
    assert [step.seconds(p) for p in (1, 2, 4, 8, 64)] == pytest.approx([4, 2, 1, 0.5, 0.5])


def test_few_chunks_share_the_memory_among_themselves():
    """Four chunks on eight threads: four of them draw on a memory that serves two, so 4 / 4 · 2."""
    step = model(("op", 4, 4.0, 4.0), width=2)
    assert step.seconds(8) == pytest.approx(2.0)
    assert step.parts(8) == pytest.approx((0.5, 1.5, 0.0, 0.0, 0.0))


@pytest.mark.parametrize(
    ("growth", "expected"), [("log", (0.0, 1.0, 3.0)), ("linear", (0.0, 1.0, 7.0))]
)
def test_hand_over_on_1_2_and_8_threads(growth, expected):
    """Two regions of half a second each; the third has one chunk and is not handed over."""
    step = model(*[("op", 8, 0.0, 0.0)] * 2, ("op", 1, 0.0, 0.0), hand_over=0.5, growth=growth)
    assert [step.parts(p).hand_over for p in (1, 2, 8)] == pytest.approx(expected)


@pytest.mark.parametrize("p", [1, 2, 7, 112, 448])
def test_it_is_amdahls_law_where_nothing_else_is_in_the_way(p):
    step = model(("op", math.inf, 0.7, 0.2), ("op", math.inf, 0.2, 0.2), python=0.1)
    assert step.speedup(p) == pytest.approx(amdahl(p, 0.1))


def test_the_parts_add_up_and_none_is_negative():
    for step in random_models():
        for p in (1, 2, 5, 112):
            parts = step.parts(p)
            assert sum(parts) == pytest.approx(step.seconds(p))
            assert min(parts) > -1e-12
        assert step.parts(1)[1:4] == pytest.approx((0.0, 0.0, 0.0), abs=1e-12)


def test_no_number_of_threads_beats_the_bound():
    """The Python stays, and each region's single chunk: at least c / n, at least its bytes / B."""
    for step in random_models():
        step = dataclasses.replace(step, hand_over=0.0)
        bound = step.python + sum(
            max(t.seconds / t.chunks, t.memory / min(t.chunks, step.width)) for t in step.tasks
        )
        assert step.seconds(10**6) == pytest.approx(bound)
        assert all(step.seconds(p) >= bound - 1e-12 for p in (1, 3, 40, 200))


def test_more_memory_is_never_slower():
    for step in random_models():
        wider = [dataclasses.replace(step, width=w).seconds(40) for w in (1, 2, 8, 1e9)]
        assert all(a >= b - 1e-12 for a, b in itertools.pairwise(wider))


def test_a_perfect_machine_has_a_speedup_of_p():
    for step in random_models(5):
        assert step.perfect().speedup(448) == pytest.approx(448)
        assert step.taking(35.0).seconds(1) == pytest.approx(35.0)


def test_finer_chunks_fill_the_last_round():
    """Nine on eight: 2 s; ninety: 12 rounds of 0.1 s."""
    assert model(("op", 9, 9.0, 0.0)).finer(10).seconds(8) == pytest.approx(1.2)
    assert model(("op", 9, 9.0, 0.0)).cut(8).seconds(8) == pytest.approx(9 / 8)


def test_what_would_be_required_by_hand():
    """100 s in 2 regions and 10 times as fast on 100 threads: 10 s, of which 9 are lost."""
    step = model(("op", 3, 60.0, 60.0), ("op", 5, 40.0, 40.0))
    needed = required(step, 10.0, 100)
    assert needed["chunks"] == 10
    assert needed["hand_over"] == pytest.approx(4.5)
    assert needed["serial"] == pytest.approx(100 * (0.1 - 0.01) / 0.99)
    assert needed["width"] == pytest.approx(10)


def test_what_is_required_gives_the_speedup_when_put_back():
    wiki = projection.project(TINY, 4, 64, MACHINE).taking(35.285)
    needed = required(wiki, 24.7, 112)
    free = wiki.perfect()
    one, handed = free.seconds(1), needed["hand_over"]
    assert free.cut(needed["chunks"]).speedup(112) >= 24.7
    assert free.cut(needed["chunks"] - 1).speedup(112) < 24.7
    regions = sum(task.chunks > 1 for task in wiki.tasks)
    assert one / (one / 112 + regions * handed) == pytest.approx(24.7)
    assert needed["serial"] / one == pytest.approx(karp_flatt(24.7, 112))


def test_explanations_agree_where_it_was_measured_and_nowhere_else():
    """24.7 on 112 threads: by then all agree; on 25 threads the cause of chunks is still ideal."""
    wiki = projection.project(TINY, 4, 64, MACHINE).taking(35.285)
    found = projection.explanations(wiki, 24.7, 112)
    assert set(found) == {"chunks", "serial", "hand_over"}
    for cause, step in found.items():
        assert step.speedup(112) == pytest.approx(24.7, rel=0.02), cause  # 25 chunks, not 24.7
        assert step.seconds(1) == pytest.approx(35.285)
    assert found["chunks"].speedup(25) == pytest.approx(25)
    assert found["serial"].speedup(25) == pytest.approx(amdahl(25, karp_flatt(24.7, 112)))
    assert found["hand_over"].speedup(1000) < 24.7 < found["serial"].speedup(1000)


def test_memory_explains_it_where_the_step_is_all_bytes():
    step = model(("op", 8, 10.0, 10.0))
    found = projection.explanations(step, 20.0, 100)
    assert found["width"].speedup(100) == pytest.approx(20)
    assert found["width"].speedup(10) == pytest.approx(10)


def test_a_cause_that_cannot_explain_it_says_none():
    """A tenth of the time are bytes: with one thread's memory the speedup is 10, with two's 20."""
    step = model(("op", 8, 10.0, 1.0))
    assert required(step, 9.0, 100)["width"] is None
    assert required(step, 10.0, 100)["width"] == pytest.approx(1.0)
    assert required(step, 20.0, 100)["width"] == pytest.approx(2.0)


@pytest.mark.parametrize("speedup", [0.5, 113, -1])
def test_an_impossible_speedup_is_refused(speedup):
    with pytest.raises(ValueError, match="between 1 and 112"):
        required(model(("op", 8, 10.0, 1.0)), speedup, 112)


def test_project_takes_the_roofline_times_the_slowness():
    step = projection.project(TINY, 2, 32, MACHINE)
    listed = of_step(TINY, 2, 32)
    for task, region in zip(step.tasks, listed, strict=True):
        roofline = max(region.flops / 1e10, region.bytes / 5e9)
        slow = 1.5 if region.operation == "linear_forward" else 1.0
        assert task.seconds == pytest.approx(slow * roofline)
        assert task.memory <= task.seconds
        assert task.chunks == region.chunks
    assert step.width == pytest.approx(1.6)
    assert step.python == pytest.approx(2e-5 * len(listed))


def results(machine, batch=2, seq=32):
    """What gpt2lib bench would write on a machine that is just like the model of it."""
    python = machine.python
    rows = {}
    listed = of_step(TINY, batch, seq)
    for task, region in zip(
        projection.project(TINY, batch, seq, machine).tasks, listed, strict=True
    ):
        seconds = rows.get(region.operation, 0.0) + task.seconds + python
        rows[region.operation] = seconds
    return {
        "settings": {"config": TINY.to_dict(), "batch": batch, "seq": seq},
        "created": "2026-12-01T10:00:00",
        "machine": {"processor": "a test", "cores": 2},
        "ceilings": [
            {"threads": 1, "sgemm_gflops": 10.0, "read_gbs": 6.0, "copy_gbs": 5.0},
            {"threads": 2, "sgemm_gflops": 19.0, "read_gbs": 9.0, "copy_gbs": 8.0},
        ],
        "runs": [
            {"runtime": "threads", "threads": 2, "operations": [{"operation": "zero", "ms": 1e9}]},
            {
                "runtime": "sequential",
                "threads": 1,
                "operations": [{"operation": n, "ms": 1000 * s} for n, s in rows.items()],
            },
        ],
    }  # fmt: skip


def test_calibration_finds_the_machine_again():
    slowness = {region.operation: 1.5 for region in of_step(TINY, 2, 32)}
    slowness["adamw_update"] = 3.0
    machine = dataclasses.replace(MACHINE, slowness=slowness)
    found = calibrate(results(machine), hand_over=4e-6, python=machine.python)
    assert dict(found.slowness) == pytest.approx(slowness)
    assert (found.flops, found.bandwidth, found.shared_bandwidth) == (1e10, 5e9, 8e9)
    assert found.source == "a test, 2 cores, 2026-12-01"
    ours, theirs = (projection.project(TINY, 2, 32, m) for m in (found, machine))
    assert ours.seconds(2) == pytest.approx(theirs.seconds(2))


@pytest.mark.parametrize("missing", ["runs", "ceilings"])
def test_calibration_says_what_is_missing(missing):
    given = results(MACHINE)
    given[missing] = [entry for entry in given[missing] if entry["threads"] != 1]
    with pytest.raises(ValueError, match="one thread"):
        calibrate(given, hand_over=0.0, python=0.0)


def test_errors_are_relative_to_the_measurement():
    step = model(("op", 2, 2.0, 0.0))
    assert errors(step, {2: 1.25, 1: 2.0}) == pytest.approx({1: 0.0, 2: -0.2})


@pytest.mark.parametrize(
    "wrong",
    [{"flops": 0}, {"bandwidth": math.inf}, {"hand_over": -1}, {"python": math.nan},
     {"shared_bandwidth": 1e9}],
)  # fmt: skip
def test_a_machine_that_cannot_be_is_refused(wrong):
    with pytest.raises(ValueError, match=r"flops|bandwidth|hand_over|python|bytes"):
        dataclasses.replace(MACHINE, **wrong)


def test_models_that_cannot_be_are_refused():
    with pytest.raises(ValueError, match="growth"):
        model(growth="square")
    with pytest.raises(ValueError, match="width"):
        model(width=0.5)
    with pytest.raises(ValueError, match="threads"):
        model(("op", 1, 1.0, 0.0)).seconds(0)


def test_measuring_here_calibrates_on_one_thread():
    """The chunks of the step are inside of it; Python is added, and two threads are not asked."""
    measured = projection.measure(TINY, 2, 32, steps=2)
    step = projection.project(TINY, 2, 32, measured.machine)
    assert step.python < step.seconds(1) <= measured.seconds[1] + step.python
    assert set(measured.seconds) == {1, 2}
    assert set(measured.machine.slowness) == {region.operation for region in of_step(TINY, 2, 32)}
