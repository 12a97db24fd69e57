"""The experiment on the first iteration: its sums by hand, its switches, and a small real run."""

from __future__ import annotations

import json
from dataclasses import asdict

import numpy as np
import pytest

from gpt2lib.config import GPT2Config
from gpt2lib.parameters import Parameters
from gpt2lib.perf import _first_worker, first_iteration

CONFIG = GPT2Config(vocab_size=256, context=32, layers=2, heads=2, channels=64)


def made_up(first, *, threads=1, on=(), repeat=0, later=10.0, faults=0, compile=False):
    """A process: its first iteration, then three later ones around ``later``."""
    steps = [(first, faults), (later - 1, 0), (later, 0), (later + 5, 0)]
    return {
        "threads": threads,
        "runtime": "sequential" if threads == 1 else "threads",
        "on": list(on),
        "compile": compile,
        "repeat": repeat,
        "order": 0,
        "iterations": [
            {"total_ms": ms, "minor_faults": count, "system_ms": count / 100 + 1}
            for ms, count in steps
        ],
    }


@pytest.fixture
def by_hand():
    """Two stages, two repeats: the first is 90 (110), 30 (34) and 3 (-1) ms above the later ones.

    Median differences: 100, 32, 1. So the stages cost 68 and 31 and 1 is left.
    """
    stage = ["code", "threads", "blas"], ["parameters", "gradients", "moments", "activations"]
    own = ["code", "blas"]
    every = [*own, *stage[1], "rehearsal"]
    return {
        "settings": {"threads": [1], "causes": [stage[0], [*stage[1], "rehearsal"]]},
        "runs": [
            made_up(100, faults=900),
            made_up(40, on=own, faults=700),
            made_up(13, on=every, faults=20),
            made_up(21, on=every, later=22, repeat=1, faults=30),
            made_up(44, on=own, repeat=1, faults=700),
            made_up(120, repeat=1, faults=900),
        ],
    }


def test_the_causes_by_hand(by_hand):
    (case,) = first_iteration.cases(by_hand)
    assert (case.name, case.steady) == ("sequential", 10)
    assert case.first == 110
    code, memory, rest = case.steps
    assert (code.ms, code.low, code.high, code.faults) == (68, 60, 76, 200)
    assert (memory.ms, memory.low, memory.high) == (31, 27, 35)
    assert (rest.ms, rest.low, rest.high, rest.faults) == (1, -1, 3, 25)
    assert [step.system for step in case.steps] == pytest.approx([2.0, 6.75, 0.25])
    assert code.title == "loading compiled code, BLAS's buffers"
    assert memory.title == (
        "first touch: parameters, gradients, moments, activations; caches, and the rest"
    )
    assert rest.title == "not explained"
    assert sum(step.ms for step in case.steps) == case.difference


def test_compiling_comes_on_top(by_hand):
    by_hand["runs"].append(made_up(5010, compile=True))
    (case,) = first_iteration.cases(by_hand)
    assert case.steps[0].title == "compiling"
    assert case.steps[0].ms == 4900
    assert sum(step.ms for step in case.steps) == case.difference == 5000


def test_the_table_has_every_number(by_hand):
    text = first_iteration.table(by_hand)
    assert "iteration 0 took 110.0 ms, later ones 10.0 ms" in text
    assert [line.split()[-1] for line in text.splitlines() if "together" in line] == ["100.0"]


def test_what_is_missing_is_said(by_hand):
    by_hand["runs"] = [run for run in by_hand["runs"] if run["on"]]
    with pytest.raises(ValueError, match="no run with nothing prepared"):
        first_iteration.cases(by_hand)
    by_hand["settings"]["threads"] = [2]
    with pytest.raises(ValueError, match="no run on 2 threads"):
        first_iteration.cases(by_hand)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"repeats": 0}, "repeats=0"),
        ({"iterations": 1}, "iterations=1"),
        ({"threads": ()}, "at least"),
        ({"threads": (0,)}, "at least"),
        ({"causes": ("weather",)}, "no cause 'weather'"),
        ({"seq": 99}, "context"),
    ],
)
def test_what_cannot_be_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        first_iteration.run(CONFIG, **{"seq": 32, **options})


def test_files(tmp_path, by_hand):
    first_iteration.save(tmp_path / "a.json", {"format": "gpt2lib-first-iteration", "version": 1})
    assert first_iteration.load(tmp_path / "a.json")["version"] == 1
    for text, message in (
        ("{", "not JSON"),
        ("[]", "no results"),
        ('{"format": "x"}', "no results"),
    ):
        (tmp_path / "b.json").write_text(text, encoding="utf-8")
        with pytest.raises(ValueError, match=message):
            first_iteration.load(tmp_path / "b.json")
    first_iteration.save(tmp_path / "c.json", {"format": "gpt2lib-first-iteration", "version": 9})
    with pytest.raises(ValueError, match="version 9"):
        first_iteration.load(tmp_path / "c.json")


@pytest.fixture
def training(tmp_path):
    Parameters.initialize(CONFIG, 0).flat.tofile(tmp_path / "weights")
    spec = {
        "config": asdict(CONFIG),
        "weights": str(tmp_path / "weights"),
        "runtime": "threads",
        "threads": 2,
        "matmul": "blas",
        "batch": 2,
        "seq": 32,
        "seed": 0,
    }
    return _first_worker.Training(spec)


def test_no_switch_changes_what_is_computed(training, tmp_path):
    for cause in first_iteration.CAUSES:
        getattr(training, cause.key)()
    before = np.fromfile(tmp_path / "weights", np.float32)
    np.testing.assert_array_equal(training.model.parameters.flat, before)
    for flat in (
        training.model.gradients.flat,
        training.optimizer.m.flat,
        training.optimizer.v.flat,
    ):
        assert not flat.any()
    assert training.optimizer.t == 0
    training.step()
    assert not np.array_equal(training.model.parameters.flat, before)  # a real step does
    np.testing.assert_array_equal(np.fromfile(tmp_path / "weights", np.float32), before)  # a copy


def test_a_real_run_in_fresh_processes():
    said = []
    results = first_iteration.run(
        CONFIG, 2, 32, (2,), causes=("code",), repeats=1, iterations=3, progress=said.append
    )
    assert len(said) == len(results["runs"]) == 3
    assert [len(run["on"]) for run in results["runs"]] == [0, 1, 8]
    (case,) = first_iteration.cases(results)
    assert case.name == "threads, 2 threads"
    assert sum(step.ms for step in case.steps) == pytest.approx(case.difference)
    assert [step.title for step in case.steps][-1] == "not explained"
    cold, code, warm = (run["iterations"][0].get("minor_faults", 0) for run in results["runs"])
    if cold:  # where the system counts page faults
        assert cold > code > 10 * warm
    assert results["machine"]["cores"] >= 1
    json.dumps(results)


def report(**changes):
    """What one process of ``faster`` says."""
    memory = {"untouched": 3.0, "again": 2.0, "written": 4.0}
    return {
        "zeroing": {"steps": [9.0, 10.0, 11.0, 10.0], "clearing": [0.0, 1.0, 1.0, 1.0]},
        "reading": {"numpy": memory, "small pages": {**memory, "untouched": 40.0}},
        "adamw": {"numpy": [6.0, 2.0, 3.0, 4.0], "small pages": [30.0, 3.0, 3.0, 3.0]},
        "clock": {"start_ms": 1.0, "later_ms": 1.0, "start_over_later": 1.0},
        **changes,
    }


def test_ratios_by_hand():
    slow = report(clock={"start_ms": 2.0, "later_ms": 1.0, "start_over_later": 2.0})
    assert first_iteration.ratios([report(), slow]) == {
        "reading untouched memory, memory from NumPy": [0.75, 0.75],
        "a step without clearing gradients": [0.9, 0.9],
        "the clock: a chain of operations": [1.0, 2.0],
        "AdamW, moments untouched, memory from NumPy": [2.0, 2.0],
        "reading untouched memory, pages of 4 KiB": [10.0, 10.0],
        "AdamW, moments untouched, pages of 4 KiB": [10.0, 10.0],
    }


def test_what_is_said_of_the_clock():
    unread = {"machine": {"mhz": {"now": None}}, "faster": []}
    assert first_iteration.about_clock(unread) == (
        "the clock cannot be read here; it was not measured."
    )
    clocks = [
        report(clock={"start_ms": x, "later_ms": 1.0, "start_over_later": x}) for x in (0.9, 1, 0.8)
    ]
    said = first_iteration.about_clock({"machine": {"mhz": {"now": 2596.1}}, "faster": clocks})
    assert "the system says 2596 MHz; measured" in said
    assert "0.900 times as long" in said
    assert "(0.800 to 1.000)" in said


def test_what_could_be_faster_in_a_fresh_process():
    (one,) = first_iteration.faster(CONFIG, 2, 32, repeats=1, iterations=3)
    assert one["zeroing"]["clearing"][0] == 0
    assert all(ms > 0 for ms in one["zeroing"]["clearing"][1:])
    assert [len(one["adamw"][kind]) for kind in ("numpy", "small pages")] == [3, 3]
    assert len(first_iteration.ratios([one])) == 6


def test_small_pages_are_given_when_they_are_touched():
    resource = pytest.importorskip("resource")
    size = 1 << 18  # numbers: a MiB

    def faults():
        return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

    memory = _first_worker._small_pages(size)
    before = faults()
    memory.fill(1)
    touched = faults()
    memory.fill(2)
    pages = 4 * size // resource.getpagesize()
    assert touched - before >= pages
    assert faults() - touched < pages / 4
