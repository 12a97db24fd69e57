"""The peer benchmark: its parts by hand, and the whole of it on a tiny model."""

from __future__ import annotations

import json
import os
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from benchmarks import peers
from benchmarks.side_by_side import data, llmc, ours, pico, plan, report
from benchmarks.side_by_side.contender import Contender, ContenderError, Process
from gpt2lib.config import GPT2Config
from gpt2lib.data.shards import read_shard
from gpt2lib.generate import generate
from gpt2lib.model import GPT2
from gpt2lib.weights.llmc import load_llmc

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="stops processes by signals")

ROOT = Path(__file__).resolve().parents[2]
PEERS = sorted(
    path
    for path in (ROOT / "benchmarks" / "results").glob("*.json")
    if "phases" in json.loads(path.read_text(encoding="utf-8"))
)
SMALL = GPT2Config(vocab_size=61, context=80, layers=1, heads=2, channels=16)


@pytest.fixture
def folder(tmp_path):
    data.write(tmp_path, SMALL, 4, 64, 0)
    return tmp_path


# ------------------------------------------------------------------------- processes


def test_a_process_whose_turn_it_is_not_does_nothing():
    code = "import time\nfor i in range(10**6): print(i, flush=True); time.sleep(0.01)"
    process = Process([sys.executable, "-c", code], environment={})
    try:
        process.line(60)
        process.sleep()
        process.waiting_lines()
        time.sleep(0.3)
        assert process.waiting_lines() == []
        process.wake()
        process.line(60)
    finally:
        process.close()
    assert process.popen.returncode == -signal.SIGKILL


def test_a_contender_that_dies_says_its_last_words():
    code = "import sys; print('out of luck', file=sys.stderr); sys.exit(7)"
    process = Process([sys.executable, "-c", code], environment={})
    with pytest.raises(ContenderError, match="ended with status 7: out of luck"):
        process.line(60)
    process.close()
    with pytest.raises(ContenderError, match="cannot be started"):
        Process(["./no-such-program"], environment={})


def test_a_contender_that_does_not_answer_is_given_up():
    process = Process([sys.executable, "-c", "import time; time.sleep(60)"], environment={})
    with pytest.raises(ContenderError, match="no answer in 0 s"):
        process.line(0.2)
    process.close()


def test_a_worker_answers_and_tells_its_errors(folder):
    contender = Contender("pico.Generation", threads=1)
    try:
        described = contender.ask("set_up", folder=str(folder), threads=1)
        assert described["version"] == np.__version__
        found = contender.ask("generate", prompt=5, tokens=3)
        assert len(found["ids"]) == 3
        assert len(found["seconds"]) == 2
        assert contender.peak_bytes() > 1e6 or not Path("/proc").exists()
        with pytest.raises(ContenderError, match=r"TypeError.*tokens"):
            contender.ask("generate", prompt=5)
        assert contender.ask("generate", prompt=5, tokens=2)["ids"] == found["ids"][:2]
    finally:
        contender.close()


# ------------------------------------------------------------------------- contenders


def test_pico_generates_what_the_library_generates(folder):
    weights = data.read_weights(folder)
    weights.flat *= 20  # far from a uniform distribution, or the first token would repeat
    np.save(folder / "weights.npy", weights.flat)
    contender = pico.Generation()
    contender.set_up(str(folder), threads=1)
    found = contender.generate(prompt=6, tokens=20)["ids"]
    model = GPT2(SMALL, parameters=weights)
    prompt = data.read_prompt(folder, 6)
    assert found == list(generate(model, prompt, tokens=20, temperature=0))
    assert len(set(found)) > 1


def test_every_operation_of_a_step_is_counted(folder):
    training = ours.Training()
    training.set_up(str(folder), backend="numpy")
    before = training.model.ops
    rows = training.breakdown(2)
    assert training.model.ops is before
    assert training.optimizer.ops is before
    assert sum(row["flops"] for row in rows) == SMALL.training_flops(4, 64)
    calls = {row["operation"]: 0 for row in rows}
    for row in rows:
        calls[row["operation"]] += row["calls"]
    assert calls["linear_forward"] == 3
    assert calls["adamw_update"] == 2
    assert calls["layernorm_backward"] == 3
    assert all(row["seconds"] >= 0 for row in rows)


def test_compilation_in_the_timed_part_is_noticed():
    numba = pytest.importorskip("numba")
    with ours.compilations() as compiled:
        numba.njit(lambda x: x + 1)(1)
    assert compiled
    with ours.compilations() as compiled:
        pass
    assert not compiled


PROGRAM = """#!{python}
import sys, time
print("[GPT-2]"); print("num_activations: 123")
for step in range(41):
    if step and step % 20 == 0: print("generating:\\n---\\n....\\n---"); time.sleep(60)
    time.sleep(0.02)
    print(f"step {{step}}: train loss {{5 - 0.1 * step:.6f}} (took {{20 + step}}.5 ms)")
"""


@pytest.fixture
def program(tmp_path):
    """Return a program that prints what train_gpt2 prints, buffered as C's printf is."""
    path = tmp_path / "train_gpt2"
    path.write_text(PROGRAM.format(python=sys.executable), encoding="utf-8")
    path.chmod(0o755)
    return path


def test_llmc_is_read_by_its_lines(folder, program, tmp_path):
    work = tmp_path / "work"
    work.mkdir()
    contender = llmc.LLMC(llmc.find_program(program.parent), work, 1, 60)
    try:
        contender.set_up(folder)
        first = contender.steps(3)
        assert first == {"seconds": [0.0205, 0.0215, 0.0225], "losses": [5.0, 4.9, 4.8]}
        assert contender.activations == 123
        for _ in range(8):  # more turns than one run has steps: it is started again in between
            before = contender.next_step
            turn = contender.turn(2)
            assert len(turn["seconds"]) == 2
            number = round(1000 * turn["seconds"][0] - 20.5)
            # The step that was stopped does not count, nor does anything behind a text.
            assert number == before + 1 or number == 2
            assert number + 1 < 20
    finally:
        contender.close()


def test_llmc_gets_files_that_say_the_same(folder, tmp_path):
    llmc.write_files(tmp_path, folder)
    weights = data.read_weights(folder)
    np.testing.assert_array_equal(
        load_llmc(tmp_path / "gpt2_124M.bin").parameters.flat, weights.flat
    )
    ids, targets = data.read_batch(folder)
    tokens = read_shard(tmp_path / "dev/data/tinyshakespeare/tiny_shakespeare_train.bin")
    np.testing.assert_array_equal(tokens[:-1], ids.ravel())
    np.testing.assert_array_equal(tokens[1:], targets.ravel())
    header = np.fromfile(tmp_path / "gpt2_tokenizer.bin", "<u4", 256)
    assert header[:4].tolist() == [20240328, 2, 61, 60]


def test_llmc_that_cannot_take_part_says_why(folder, program, tmp_path):
    for given in (None, tmp_path / "nowhere"):
        with pytest.raises(ContenderError, match="--llmc PATH"):
            llmc.find_program(given)
    data.write(folder, SMALL, 2, 8, 0)
    with pytest.raises(ContenderError, match="B=4 T=64, not B=2 T=8"):
        llmc.LLMC(program, tmp_path, 1, 60).set_up(folder)


# ------------------------------------------------------------------------- comparing, reporting


def entry(label, seconds, losses=(3.0, 2.0), **more):
    rounds = [{"round": i, "load": 0.0, "seconds": list(s)} for i, s in enumerate(seconds)]
    first = {"seconds": [9.0, 1.0], "losses": list(losses)}
    return {"label": label, "status": "ok", "rounds": rounds, "first": first, **more}


def test_who_computes_something_else_is_named():
    record = {
        "contenders": {
            "a": entry("a", []),
            "b": entry("b", [], (3.0009, 2.0)),
            "c": entry("c", [], (3.0, 2.002)),
            "d": entry("d", [], (3.0, float("nan"))),
        }
    }
    assert set(plan.compare_losses(record)) == {"c", "d"}
    assert "at step 1" in plan.compare_losses(record)["c"]
    for contender, ids in zip("abcd", ([1, 2], [1, 2], [1, 3], [1, 2]), strict=True):
        record["contenders"][contender]["first"]["ids"] = ids
    assert plan.compare_ids(record) == {"c": "token 1 is 3, where a has 2"}


def results(**phases):
    return {
        "schema": 1,
        "taken": "2026-01-01T00:00:00+00:00",
        "finished": True,
        "machine": {"model": "a processor"},
        "versions": {},
        "settings": {"config": SMALL.to_dict(), "preset": "small", "threads": 2},
        "phases": phases,
        "summary": {},
    }


def test_summary_by_hand():
    """Ratios are taken round by round: here the machine is twice as slow in the second round."""
    training = {
        "batch": 4,
        "seq": 64,
        "training_flops": 100,
        "parameters": 1000,
        "llmc_activations": 1000,
        "contenders": {
            "gpt2lib": entry("gpt2lib", [[1.0, 1.0, 4.0], [2.0, 2.0]], peak_bytes=30_000),
            "pytorch": entry("PyTorch", [[2.0], [4.0]]),
            "llmc": {"label": "llm.c", "status": "absent", "reason": "not given", "rounds": []},
        },
        "ceilings_of": {"sgemm": "64^3"},
        "ceilings": [
            {
                "round": i,
                "sgemm": {"seconds": [t, 2 * t], "flops": 200},
                "read": {"seconds": [1.0], "bytes": 1},
            }
            for i, t in enumerate((1.0, 2.0))
        ],
    }
    found = results(training=training)
    found["summary"] = report.summarize(found)
    rows = found["summary"]["training"]["contenders"]
    assert rows["gpt2lib"]["seconds"]["median"] == 2.0
    assert rows["gpt2lib"]["share_of_sgemm"]["median"] == 0.5
    assert found["summary"]["training"]["baseline"] == "gpt2lib"
    assert rows["pytorch"]["times_baseline"] == report.spread([2.0, 2.0])
    assert "llmc" not in rows
    goals = {goal["goal"]: goal for goal in found["summary"]["goals"]}
    assert goals["PyTorch eager's step / ours >= 1.5"]["reached"]
    assert not goals["share of the sgemm rate >= 0.8"]["reached"]
    (peak,) = [goal for name, goal in goals.items() if name.startswith("peak memory")]
    assert peak["value"] == pytest.approx(30_000 / (16_000 + 8800))
    text = report.table(found)
    assert "llm.c: absent: not given" in text
    assert "2.00 (2.00-2.00)" in text
    report.check(found)


def test_spread_by_hand():
    assert report.spread([4.0, 1.0, 2.0, 3.0]) == {
        "median": 2.5,
        "q1": 1.75,
        "q3": 3.25,
        "min": 1.0,
        "max": 4.0,
        "n": 4,
    }
    assert report.spread([7.0])["q1"] == 7.0


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda r: r.update(schema=2), "schema 2, expected 1"),
        (lambda r: r.pop("machine"), "machine is missing"),
        (lambda r: r["phases"]["t"]["contenders"]["a"].update(status="fine"), "status is 'fine'"),
        (lambda r: r["phases"]["t"]["contenders"]["a"].update(status="absent"), "no reason"),
        (lambda r: r["phases"]["t"]["contenders"]["a"].pop("rounds"), "rounds"),
    ],
)
def test_a_damaged_file_of_results_is_refused(damage, words, tmp_path):
    found = results(t={"contenders": {"a": entry("a", [[1.0]])}})
    path = tmp_path / "results.json"
    report.save(path, found)
    assert report.load(path) == found
    damage(found)
    path.write_text(json.dumps(found), encoding="utf-8")
    with pytest.raises(ValueError, match=words) as error:
        report.load(path)
    assert str(path) in str(error.value)


def test_every_committed_result_can_be_read():
    assert PEERS
    for path in PEERS:
        assert report.table(report.load(path))


# ------------------------------------------------------------------------- the whole of it


def run(*arguments, **more):
    command = [sys.executable, "benchmarks/peers.py", "--preset", "tiny", "--layers", "1"]
    quick = ["--repeats", "2", "--steps", "1", "--tokens", "3", "--megabytes", "1", "--sgemm", "64"]
    return subprocess.Popen(
        [*command, *quick, *arguments],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **more,
    )


def test_the_whole_of_it_names_who_is_not_there(program, tmp_path):
    """With the NumPy backend, which compiles nothing; a stand-in for llm.c has other losses."""
    out = tmp_path / "results.json"
    python = tmp_path / "python-without-torch"
    python.write_text("#!/bin/sh\necho 'No module named torch' >&2; exit 1\n", encoding="utf-8")
    python.chmod(0o755)
    names = "numpy,pytorch,llmc,huggingface,picogpt"
    process = run(
        *("--only", names, "--phases", "training,generation", "--out", str(out)),
        *("--llmc", str(program), "--torch-python", str(python), "--threads", "1"),
    )
    table, progress = process.communicate(timeout=110)
    assert process.returncode == 1, progress  # there is a disagreement
    found = report.load(out)
    assert found["finished"]
    status = {
        (phase, name): entry["status"]
        for phase, record in found["phases"].items()
        for name, entry in record["contenders"].items()
    }
    assert status == {
        ("training", "numpy"): "ok",
        ("training", "pytorch"): "absent",
        ("training", "llmc"): "disagrees",
        ("generation", "huggingface"): "absent",
        ("generation", "picogpt"): "ok",
        ("generation", "numpy"): "ok",
    }
    assert "PyTorch eager: absent: ended with status 1: No module named torch" in table
    assert "Hugging Face, PyTorch: absent" in table
    rounds = found["phases"]["generation"]["contenders"]["numpy"]["rounds"]
    assert [len(r["seconds"]) for r in rounds] == [2, 2]
    assert len(found["phases"]["training"]["ceilings"]) == 2
    assert str(tmp_path) not in out.read_text(encoding="utf-8")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_who_ends_it_keeps_what_has_been_measured(number, tmp_path):
    out = tmp_path / "results.json"
    arguments = ["--only", "numpy", "--phases", "training", "--repeats", "100000"]
    process = run(*arguments, "--out", str(out), "--threads", "1")
    for line in process.stderr:
        if "round 3" in line:
            break
    process.send_signal(number)
    table, rest = process.communicate(timeout=60)
    assert process.returncode == 130, rest
    assert "interrupted" in rest
    assert "Traceback" not in rest
    assert "This run was not finished." in table
    found = report.load(out)
    assert not found["finished"]
    assert len(found["phases"]["training"]["contenders"]["numpy"]["rounds"]) >= 2


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--only", "tensorflow"], "there is no 'tensorflow'"),
        (["--phases", "all"], "there is no 'all'"),
        (["--repeats", "0"], "--repeats 0"),
        (["--seq", "5000"], "5000"),
        (["--threads", "0"], "--threads"),
    ],
)
def test_a_wrong_command_line_is_refused(arguments, words, capsys):
    with pytest.raises(SystemExit) as stopped:
        peers.main(arguments)
    assert stopped.value.code == 2
    assert words in capsys.readouterr().err


def test_too_little_memory_is_said_before_it_is_needed():
    settings = plan.Settings(GPT2Config.preset("gpt2-xl"), 4, 64, 1)
    if not Path("/proc/meminfo").exists():
        pytest.skip("needs /proc/meminfo")
    assert "GiB" in plan.too_little_memory(settings, 1000, 4, 64)
    tiny = plan.Settings(GPT2Config.preset("tiny"), 4, 64, 1)
    assert plan.too_little_memory(tiny, 1, 4, 64) == ""


def test_no_process_is_left_behind(folder):
    contender = Contender("pico.Generation", threads=1)
    contender.ask("set_up", folder=str(folder), threads=1)
    pid = contender.process.popen.pid
    contender.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


@pytest.mark.parametrize("path", PEERS, ids=lambda p: p.stem)
def test_recorded_results_are_whole_and_name_no_path(path):
    found = report.load(path)
    assert report.table(found)
    assert found["machine"]["model"]
    for phase in found["phases"].values():
        for contender in phase.get("contenders", {}).values():
            assert contender["status"] == "ok", contender
    assert not [word for word in path.read_text(encoding="utf-8").split('"') if word[:1] == "/"]


def test_the_readme_says_what_was_recorded():
    """The numbers in README's tables are the medians of the recorded run."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    found = report.load(ROOT / "benchmarks/results/zen4-2cpu.json")["summary"]
    for name, row in found["training"]["contenders"].items():
        assert f"| {1000 * row['seconds']['median']:,.0f} |".replace(",", " ") in readme
        assert f"{row['share_of_sgemm']['median']:.0%}".replace("%", " %") in readme
        assert f"{row['peak_bytes'] / 2**20:,.0f} MiB |".replace(",", " ") in readme
        assert name == "gpt2lib" or f"| {row['times_baseline']['median']:.2f} × |" in readme
    for name, row in found["generation"]["contenders"].items():
        if name != "gpt2lib-1":  # the table leaves it out
            speed = f"{1 / row['seconds']['median']:.1f}"
            share = f"{row['share_of_reading']['median']:.0%}".replace("%", " %")
            assert f"| {speed} | {share} |" in readme
            assert name == "gpt2lib" or f"| {row['times_baseline']['median']:.2f} × |" in readme
    assert f"{found['long']['contenders']['gpt2lib']['seconds']['median']:.1f} s a step" in readme


def test_the_readme_tells_the_machines_two_states_as_they_were_recorded():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    phases = report.load(ROOT / "benchmarks/results/zen4-2cpu.json")["phases"]
    two_threads = [
        statistics.median(turn["seconds"])
        for phase, names in (("training", ["gpt2lib"]), ("runtimes", ["openmp", "tbb", "nosv"]))
        for name in names
        for turn in phases[phase]["contenders"][name]["rounds"]
    ]
    turns = phases["generation"]["contenders"]["gpt2lib"]["rounds"]
    token = [1000 * statistics.median(turn["seconds"]) for turn in turns]
    rates = [
        c["read"]["bytes"] / min(c["read"]["seconds"]) for c in phases["generation"]["ceilings"]
    ]
    for values, form in ((two_threads, "{:.2f} s"), (token, "{:.1f}")):
        middle = (min(values) + max(values)) / 2
        for state in ([v for v in values if v < middle], [v for v in values if v >= middle]):
            assert form.format(statistics.median(state)) in readme
    assert f"read at {max(rates) / 1e9:.0f} GB/s or at {min(rates) / 1e9:.0f}," in readme


def test_the_readme_tells_the_run_before_as_it_was_recorded():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    found = report.load(ROOT / "benchmarks/results/zen4-2cpu-earlier.json")["summary"]
    rows = found["training"]["contenders"]
    step = f"{1000 * rows['gpt2lib']['seconds']['median']:,.0f}".replace(",", " ")
    share = f"{rows['gpt2lib']['share_of_sgemm']['median']:.0%}".replace("%", " %")
    torch, llmc = (rows[name]["times_baseline"]["median"] for name in ("pytorch", "llmc"))
    words = f"{step} ms, {share} of sgemm; PyTorch {torch:.2f} ×, llm.c {llmc:.2f} ×."
    assert words in readme
