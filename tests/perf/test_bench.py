"""The order of the runs, workers that misbehave (a stand-in), and a small real measurement."""

from __future__ import annotations

import collections
import json
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from gpt2lib import runtimes
from gpt2lib.config import GPT2Config
from gpt2lib.perf import _spawn, bench
from gpt2lib.perf.bench import Bench, Estimate, Run, Settings, absent, begin, orders, plan, resume
from gpt2lib.perf.results import NAME, check, load

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="ends processes by signals")

SETTINGS = Settings(
    preset="tiny",
    config=GPT2Config.preset("tiny"),
    batch=1,
    seq=8,
    matmul="blas",
    iterations=3,
    repeats=2,
    runtimes=("sequential", "threads"),
    threads=(2,),
    seed=5,
)


def settings(**changes) -> Settings:
    return Settings(**{**SETTINGS.__dict__, **changes})


@pytest.fixture
def stand_in(monkeypatch):
    """Have the stand-in answer in the worker's place."""
    monkeypatch.setattr(_spawn, "WORKER", "tests.perf.stand_in")


def started(folder: Path, wanted: Settings = SETTINGS, **options) -> Bench:
    return Bench(folder, wanted, begin(wanted, []), timeout=20, **options)


def make_all(work: Bench) -> None:
    for run in list(work.to_do):
        work.make(run)


# ------------------------------------------------------------------------- the order


@pytest.mark.parametrize("count", [1, 2, 3, 5, 9])
def test_everything_stands_in_every_place_equally_often(count):
    rounds = orders(count, 2 * count, seed=3)
    for thing in range(count):
        places = collections.Counter(order.index(thing) for order in rounds)
        assert places == dict.fromkeys(range(count), 2)


@pytest.mark.parametrize("rounds", [2, 4, 6, 10, 30])
def test_over_a_pair_of_rounds_everything_has_the_same_mean_place(rounds):
    found = orders(5, rounds, seed=1)
    for first, second in zip(found[::2], found[1::2], strict=True):
        assert [first.index(i) + second.index(i) for i in range(5)] == [4] * 5
    if rounds <= 10:  # and no pair repeats another
        assert len({tuple(order) for order in found}) == rounds


def test_the_order_is_the_seeds():
    assert orders(9, 3, seed=1) == orders(9, 3, seed=1) != orders(9, 3, seed=2)
    for order in orders(9, 3, seed=1):
        assert sorted(order) == list(range(9))
    assert orders(0, 2, seed=0) == [[], []]


def test_sequential_runs_on_one_thread_only():
    wanted = settings(runtimes=("sequential", "threads", "tbb"), threads=(1, 2, 4), repeats=3)
    runs = plan(wanted, missing=["tbb"])
    assert [run.order for run in runs] == list(range(3 * 4))
    assert collections.Counter(run[:2] for run in runs) == {
        ("sequential", 1): 3,
        ("threads", 1): 3,
        ("threads", 2): 3,
        ("threads", 4): 3,
    }
    assert [run.repeat for run in runs] == [0] * 4 + [1] * 4 + [2] * 4


def test_an_absent_runtime_says_why_and_how_to_get_it(monkeypatch):
    away = runtimes.Availability(False, "/opt/libtbb.so.12: no such file", "pip install tbb", "")
    here = runtimes.Availability(True, "", "", "")
    found = {"sequential": here, "threads": here, "openmp": away, "tbb": away, "nosv": away}
    monkeypatch.setattr(runtimes, "available", lambda: found)
    monkeypatch.setattr("gpt2lib.runtimes.nosv.find_library", lambda: "")
    rows = absent(["threads", "tbb", "nosv"])
    assert [row["runtime"] for row in rows] == ["tbb", "nosv"]
    assert rows[0]["reason"] == "libtbb.so.12: no such file"  # no folder of this machine
    assert rows[0]["how_to_get"] == "pip install tbb"
    # nOS-V cannot be in this process, but a process can be started that has it.
    monkeypatch.setattr("gpt2lib.runtimes.nosv.find_library", lambda: "/opt/libnosv.so")
    assert [row["runtime"] for row in absent(["nosv"])] == []


# ------------------------------------------------------------------------- workers


def test_runs_are_written_one_by_one(stand_in, tmp_path):
    work = started(tmp_path)
    assert len(work.to_do) == 4
    for number, run in enumerate(list(work.to_do), 1):
        heard = []
        assert work.make(run, heard.append)
        assert sum(heard) == 3
        found = load(tmp_path)
        assert len(found["runs"]) == number
        assert not found["finished"]
    work.measure_ceilings()
    work.finish()
    found = load(tmp_path)
    assert found["finished"]
    assert [(r["runtime"], r["threads"], r["repeat"]) for r in found["runs"]] == [
        run[:3] for run in work.all_runs
    ]
    assert [row["threads"] for row in found["ceilings"]] == [1, 2]
    assert found["flops_per_step"] == GPT2Config.preset("tiny").training_flops(1, 8)
    assert found["summary"][1]["median_ms"] == pytest.approx((9 / 2 + 2 + 9 / 2 + 3) / 2)


@pytest.mark.parametrize(
    ("threads", "words"),
    [
        (5, "was ended by SIGSEGV: it left no message"),
        (6, "said nothing for 1 s and was ended"),
        (7, "computed something else: the loss of iteration 1 is 4.9"),
        (8, "ValueError: no room in else, sorry"),
        (9, "ended with status 7: out of luck at else"),
    ],
)
def test_a_worker_that_fails_is_recorded_and_does_not_end_the_rest(
    threads, words, stand_in, tmp_path
):
    work = started(tmp_path, settings(threads=(threads, 2), runtimes=("threads",), repeats=3))
    work.to_do.sort(key=lambda run: (run.repeat, run.threads))
    for run in list(work.to_do):
        work.timeout = 1.0 if run.threads == 6 else 20.0
        assert work.make(run) is (run.threads == 2)
    work.finish()
    found = load(tmp_path)
    assert [run["threads"] for run in found["runs"]] == [2, 2, 2]
    assert [row["repeat"] for row in found["failed"]] == [0, 1, 2]
    assert found["failed"][0]["reason"].startswith(words)
    assert "not tried: it failed 2 times" in found["failed"][2]["reason"]
    assert found["finished"]
    assert all("/" not in row["reason"] for row in found["failed"])


def test_ctrl_c_in_a_run_leaves_no_process_and_the_results_as_they_were(
    stand_in, tmp_path, monkeypatch
):
    work = started(tmp_path, settings(threads=(10,), runtimes=("threads",)))
    seen = []

    def interrupt(iterations):
        seen.append(iterations)
        if len(seen) > 2:  # in the second run
            raise KeyboardInterrupt

    workers = []

    class Noted(_spawn.Worker):
        def __init__(self, *arguments, **options):
            super().__init__(*arguments, **options)
            workers.append(self.process)

    monkeypatch.setattr(_spawn, "Worker", Noted)
    first, second = work.to_do
    work.make(first, interrupt)
    with pytest.raises(KeyboardInterrupt):
        work.make(second, interrupt)
    assert [process.returncode for process in workers] == [0, -signal.SIGKILL]
    found = load(tmp_path)
    assert len(found["runs"]) == 1
    assert found["failed"] == []
    assert len(work.to_do) == 1


def test_a_worker_gets_its_threads_and_its_launcher(monkeypatch):
    commands = []

    class Stopped(Exception):
        pass

    def popen(command, env, **options):
        commands.append((command, env))
        raise Stopped

    monkeypatch.setattr(_spawn.subprocess, "Popen", popen)
    for runtime in ("openmp", "nosv"):
        with pytest.raises(Stopped):
            _spawn.Worker({"do": "run"}, runtime=runtime, threads=3, timeout=1)
    (plain, env), (launched, _) = commands
    assert plain == [sys.executable, "-m", "gpt2lib.perf._worker", '{"do": "run"}']
    assert launched[1:6] == ["-m", "gpt2lib.runtimes.launch", "--runtime", "nosv", "--"]
    assert launched[6:] == plain
    assert env["OMP_NUM_THREADS"] == env["NUMBA_NUM_THREADS"] == "3"
    assert env["OPENBLAS_NUM_THREADS"] == "1"


def test_nosv_is_compiled_where_nosv_is(monkeypatch, tmp_path):
    asked = []

    def ask(request, *, runtime, timeout):
        asked.append((runtime, request["runtimes"]))
        return {"compiled": 2, "seconds": 1.5}

    monkeypatch.setattr(_spawn, "ask", ask)
    work = started(tmp_path, settings(runtimes=("threads", "nosv", "openmp")))
    assert work.compile() == {"compiled": 4, "seconds": 3.0}
    assert asked == [("openmp", ["openmp", "threads"]), ("nosv", ["nosv"])]


def test_the_better_ceiling_of_two_measurements_is_kept(stand_in, tmp_path, monkeypatch):
    work = started(tmp_path)
    work.measure_ceilings()
    monkeypatch.setenv("STAND_IN_EXTRA", "50")
    work.measure_ceilings()
    rows = load(tmp_path)["ceilings"]
    assert [row["sgemm_gflops"] for row in rows] == [150, 250]  # faster the second time
    assert [row["read_gbs"] for row in rows] == [4900, 4800]  # slower


# ------------------------------------------------------------------------- going on


def test_a_second_call_goes_on_where_the_first_one_stopped(stand_in, tmp_path):
    wanted = settings(threads=(2, 9), runtimes=("threads",))
    work = started(tmp_path, wanted)
    for run in [run for run in work.to_do if run.repeat == 0]:
        work.make(run)  # one is well, one fails
    first = load(tmp_path)
    again = resume(tmp_path, begin(wanted, []))
    assert again is not None
    assert again["runs"] == first["runs"]
    assert again["created"] == first["created"]
    assert again["failed"] == []  # tried once more
    work = Bench(tmp_path, wanted, again, timeout=20)
    assert [run[:3] for run in work.to_do] == [
        run[:3] for run in plan(wanted) if run[:3] != ("threads", 2, 0)
    ]
    make_all(work)
    work.finish()
    assert load(tmp_path)["runs"][0] == first["runs"][0]
    finished = resume(tmp_path, begin(wanted, []))
    assert finished is not None
    assert finished["finished"]
    assert len(finished["failed"]) == 2


def test_nothing_there_is_nothing_to_go_on_with(tmp_path):
    assert resume(tmp_path, begin(SETTINGS, [])) is None
    started(tmp_path).save()  # a call that was stopped before its first run
    assert resume(tmp_path, begin(settings(seq=16), [])) is None


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"seq": 16}, r"other settings: seq 8 there, 16 here\. Name another folder"),
        ({"repeats": 3, "threads": (2, 4)}, "repeats 2 there, 3 here; threads 2 there, 2,4 here"),
        ({"config": GPT2Config.preset("tiny", layers=1)}, "layers=4 .* there, .*layers=1"),
    ],
)
def test_other_settings_are_refused_in_words(change, words, stand_in, tmp_path):
    work = started(tmp_path)
    work.make(work.to_do[0])
    with pytest.raises(ValueError, match=words):
        resume(tmp_path, begin(settings(**change), []))


def test_another_version_or_machine_is_refused(stand_in, tmp_path):
    work = started(tmp_path)
    work.make(work.to_do[0])
    for part, key, value in (
        ("git", "commit", "0" * 40),
        ("machine", "processor", "another one"),
        ("versions", "numpy", "1.0"),
    ):
        fresh = begin(SETTINGS, [])
        fresh[part][key] = value
        with pytest.raises(
            ValueError,
            match=rf"another program or machine.*: {key} \S.* there, {value} here\. Name",
        ):
            resume(tmp_path, fresh)


def test_a_commit_that_changes_nothing_measured_is_gone_on_with(stand_in, tmp_path, monkeypatch):
    work = started(tmp_path)
    work.results["git"] = {"commit": "1" * 40, "dirty": False}
    work.make(work.to_do[0])
    fresh = begin(SETTINGS, [])
    fresh["git"]["commit"] = "2" * 40
    asked = []

    def ask(*words):
        asked.append(words)
        if same:
            return ""
        raise subprocess.CalledProcessError(1, "git")

    monkeypatch.setattr(bench, "_ask_git", ask)
    same = True
    assert resume(tmp_path, fresh) is not None
    assert asked[0][:5] == ("diff", "--quiet", "1" * 40, "2" * 40, "--")
    root = Path(bench.__file__).parents[1]
    assert all((root / name).exists() for name in asked[0][5:])
    same = False
    with pytest.raises(ValueError, match=r"commit 1{40} there, 2{40} here"):
        resume(tmp_path, fresh)


def test_a_damaged_file_is_refused(tmp_path):
    (tmp_path / NAME).write_text("{", encoding="utf-8")
    with pytest.raises(ValueError, match="no JSON at line 1"):
        resume(tmp_path, begin(SETTINGS, []))


# ------------------------------------------------------------------------- the estimate


def test_the_estimate_learns():
    estimate = Estimate(SETTINGS, rate=1e9, cores=2)
    one, two = Run("threads", 1, 0, 0), Run("threads", 2, 0, 1)
    flops = SETTINGS.flops / 1e9
    assert estimate.step(1) > flops
    assert estimate.step(2) < estimate.step(1)
    assert estimate.step(4) == estimate.step(2)  # there are two cores
    before = estimate.run(two)
    estimate.learn(one, 3 * estimate.run(one))
    assert estimate.run(two) == pytest.approx(3 * before)  # wrong by as much as the other
    estimate.learn(two, 7.0)
    assert estimate.run(two) == 7.0  # known now
    assert estimate.total([two, two], 0) == 14.0


# ------------------------------------------------------------------------- a real one


@pytest.fixture(scope="module")
def real(tmp_path_factory):
    """Return the results of two real runs, and of ceilings of something small."""
    folder = tmp_path_factory.mktemp("bench")
    wanted = settings(repeats=1)
    small = {"size": 64, "memory_bytes": 1 << 16, "passes": 1}
    work = Bench(folder, wanted, begin(wanted, []), timeout=200, ceilings=small)
    work.compile()
    make_all(work)
    work.finish()
    return load(folder)


@pytest.mark.xdist_group("bench")  # they share one measurement
def test_a_real_run_has_the_form(real):
    check(real)
    assert real["failed"] == []
    assert {(run["runtime"], run["threads"]) for run in real["runs"]} == {
        ("sequential", 1),
        ("threads", 2),
    }
    for run in real["runs"]:
        assert run["compiled"] == 0
        assert run["described"]["name"] == run["runtime"]
        assert "/" not in run["described"]["library"]
        assert run["setup_s"] > 0
    assert not [word for word in json.dumps(real).split('"') if word.startswith("/")]


@pytest.mark.xdist_group("bench")  # they share one measurement
def test_its_losses_are_those_of_the_model(real):
    """The same training, in this process, on NumPy: equal but for rounding."""
    from gpt2lib.model import GPT2
    from gpt2lib.optimizer import AdamW

    config = SETTINGS.config
    model = GPT2(config, seed=SETTINGS.seed)
    optimizer = AdamW(model.parameters)
    rng = np.random.default_rng(SETTINGS.seed)
    ids, targets = rng.integers(0, config.vocab_size, (2, 1, 8))
    losses = []
    for _ in range(3):
        losses.append(model.loss(ids, targets))
        model.backward()
        optimizer.step(model.gradients, zero_gradients=True)
    first, second = ([row["loss"] for row in run["iterations"]] for run in real["runs"])
    assert first == second
    np.testing.assert_allclose(first, losses, rtol=1e-5)
    assert losses[0] > losses[-1]


@pytest.mark.xdist_group("bench")  # they share one measurement
def test_its_first_iteration_is_the_first(real):
    """Weights are drawn before; gradients, moments and activations are touched in iteration 0."""
    if not Path("/proc").exists():
        pytest.skip("page faults are counted on Linux")
    pages = 3 * 4 * SETTINGS.config.parameter_count // 4096
    for run in real["runs"]:
        faults = [row["minor_faults"] for row in run["iterations"]]
        assert faults[0] > 0.9 * pages or faults[0] > 20 * max(faults[1:])  # or huge pages
        assert faults[1] < faults[0]


@pytest.mark.xdist_group("bench")  # they share one measurement
def test_its_operations_are_all_of_a_step(real):
    calls = {}
    for row in real["runs"][0]["operations"]:
        calls[row["operation"]] = calls.get(row["operation"], 0) + row["calls"]
    assert calls["linear_forward"] == 3 * 4
    assert calls["attention_backward"] == 4
    assert calls["adamw_update"] == 2
    assert calls["(Python between them)"] == 0
    one, two = (
        [(r["operation"], r["shape"], r["flops"], r["bytes"]) for r in run["operations"]]
        for run in real["runs"]
    )
    assert sorted(one) == sorted(two)  # the same work on any runtime


def test_the_commit_is_that_of_the_source():
    found = bench._git()
    head = Path(__file__).resolve().parents[2] / ".git"
    if not head.exists():
        assert found == {"commit": None, "dirty": None}
    elif found["commit"] is not None:  # else git is not installed
        assert len(found["commit"]) == 40
