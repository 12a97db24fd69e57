"""``gpt2lib bench``: what it says, keeps and refuses. Mostly with a stand-in for its workers."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gpt2lib import runtimes
from gpt2lib.cli import main
from gpt2lib.commands import bench as command
from gpt2lib.perf import _spawn, bench, report
from gpt2lib.perf.results import load

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="ends processes by signals")

ROOT = Path(__file__).resolve().parents[2]
SMALL = ["--batch", "1", "--seq", "8", "--iterations", "3", "--sgemm", "64", "--megabytes", "1"]
QUICK = [*SMALL, "--runtimes", "sequential,threads", "--threads", "2", "--repeats", "2"]


@pytest.fixture
def stand_in(monkeypatch):
    """Have the stand-in answer in the worker's place; nothing is compiled, multiplied or drawn."""
    monkeypatch.setattr(_spawn, "WORKER", "tests.perf.stand_in")
    monkeypatch.setattr(bench, "product_rate", lambda matmul: 5e10)
    monkeypatch.setattr(os, "getloadavg", lambda: (0.1, 9, 9), raising=False)
    monkeypatch.setattr(report, "write", lambda folder, results: folder / "report.html")


def test_a_real_measurement(tmp_path, capsys, monkeypatch):
    away = runtimes.Availability(False, "it was not found", "Build it", "")
    monkeypatch.setattr("gpt2lib.runtimes.nosv.NOSV.availability", classmethod(lambda cls: away))
    monkeypatch.setattr("gpt2lib.runtimes.nosv.find_library", lambda: "")
    folder = tmp_path / "new" / "folder é"
    options = ["--runtimes", "sequential,nosv", "--threads", "1", "--repeats", "1"]
    assert main(["bench", *SMALL, *options, "--out", str(folder)]) == 0
    captured = capsys.readouterr()
    before, after = captured.out.split("runtime      threads")
    assert "1 runs, each a fresh process with 3 iterations" in before
    assert "round 1 (runtime/threads): sequential/1" in before
    assert "absent: nosv: it was not found. Build it" in before
    assert "estimated time: " in before
    assert "sequential         1     1" in after
    for name in ("results.json", "report.html", "figures"):
        assert f" {folder / name}\n" in after
        assert (folder / name).exists()
    found = load(folder)
    assert found["finished"]
    assert found["absent"] == [
        {"runtime": "nosv", "reason": "it was not found", "how_to_get": "Build it"}
    ]
    assert found["runs"][0]["compiled"] == 0
    assert found["ceilings"][0]["sgemm_size"] == 64
    assert found["summary"][0]["share_of_peak"] > 0


def test_a_finished_folder_is_left_as_it_is(stand_in, tmp_path, capsys):
    assert main(["bench", *QUICK, "--out", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert out.index("estimated time") < out.index("runtime      threads")
    written = (tmp_path / "results.json").read_bytes()
    assert main(["bench", *QUICK, "--out", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "is finished: nothing is measured again" in out
    assert "sequential         1     2" in out
    assert (tmp_path / "results.json").read_bytes() == written


def test_other_settings_are_refused_and_nothing_is_lost(stand_in, tmp_path, capsys):
    assert main(["bench", *QUICK, "--out", str(tmp_path)]) == 0
    written = (tmp_path / "results.json").read_bytes()
    capsys.readouterr()
    assert main(["bench", *QUICK, "--seed", "1", "--out", str(tmp_path)]) == 2
    captured = capsys.readouterr()
    assert "seed 0 there, 1 here. Name another folder with --out" in captured.err
    assert captured.err.count("\n") == 1
    assert (tmp_path / "results.json").read_bytes() == written


def test_a_failed_run_is_named_at_the_end(stand_in, tmp_path, capsys):
    options = ["--runtimes", "threads", "--threads", "2,9", "--repeats", "1"]
    assert main(["bench", *SMALL, *options, "--out", str(tmp_path)]) == 1
    captured = capsys.readouterr()
    assert "failed: threads, 9 threads, repeat 0: ended with status 7: out of luck" in captured.out
    assert [row["threads"] for row in load(tmp_path)["failed"]] == [9]
    assert "Traceback" not in captured.err


PROGRAM = """
import sys
from gpt2lib.perf import _spawn, bench
_spawn.WORKER = "tests.perf.stand_in"
bench.product_rate = lambda matmul: 5e10
from gpt2lib.cli import main
sys.exit(main(sys.argv[1:]))
"""


def workers(seed):
    """Return the processes of this system that were started with a seed."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if f'"seed": {seed}'.encode() in path.read_bytes():
                found.append(path.parent.name)
    return found


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_who_ends_it_keeps_what_is_done_and_can_go_on(number, stand_in, tmp_path, capsys):
    seed = "20250" + str(int(number))
    slow = [*SMALL, "--runtimes", "threads", "--threads", "10", "--repeats", "4", "--seed", seed]
    arguments = ["bench", *slow, "--out", str(tmp_path)]
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    for line in process.stderr:
        if "run 1/4" in line:
            break
    process.send_signal(number)
    _, rest = process.communicate(timeout=60)
    assert process.returncode == 130, rest
    assert "Traceback" not in rest
    found = load(tmp_path)
    kept = len(found["runs"])
    assert 1 <= kept < 4
    assert f"stopped: {kept} of 4 runs are kept in {tmp_path / 'results.json'}" in rest
    assert "the same command goes on from there." in rest
    assert not found["finished"]
    end = time.monotonic() + 20
    while (left := workers(seed)) and time.monotonic() < end:
        time.sleep(0.05)  # it has its signal already; on a busy machine it dies a little later
    assert not left
    assert main(arguments) == 0
    assert f"{kept} of them are done already; going on." in capsys.readouterr().out
    again = load(tmp_path)
    assert again["finished"]
    assert again["runs"][:kept] == found["runs"]
    assert [run["repeat"] for run in again["runs"]] == [0, 1, 2, 3]


def test_the_bar_counts_iterations(stand_in, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    assert main(["bench", *QUICK, "--out", str(tmp_path)]) == 0
    shown = capsys.readouterr().err
    assert "12/12" in shown
    assert "after the first run: about" in shown


@pytest.mark.parametrize(("what", "status"), [("compile", 2), ("ceilings", 0)])
def test_what_comes_before_the_runs_may_fail(what, status, stand_in, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("STAND_IN_FAILS", what)
    assert main(["bench", *QUICK, "--out", str(tmp_path)]) == status
    captured = capsys.readouterr()
    assert "ended with status 3: no luck" in captured.err
    assert "Traceback" not in captured.err
    if what == "ceilings":
        found = load(tmp_path)
        assert found["finished"]
        assert found["ceilings"] == []
        assert found["summary"][0]["share_of_peak"] is None
    else:
        assert captured.err.count("\n") == 1


def test_a_dry_run_makes_none(stand_in, tmp_path, capsys, monkeypatch):
    assert main(["bench", *QUICK, "--dry-run", "--out", str(tmp_path)]) == 0
    captured = capsys.readouterr()
    assert "estimated time" in captured.out
    assert captured.err == ""
    monkeypatch.setattr(os, "getloadavg", lambda: (3.21, 0, 0), raising=False)
    assert main(["bench", *QUICK, "--dry-run", "--out", str(tmp_path)]) == 0
    assert "warning: the machine is busy (load 3.2)" in capsys.readouterr().err
    assert main(["bench", *QUICK, "--dry-run", "--out", str(tmp_path / "new")]) == 0
    assert list(tmp_path.iterdir()) == []  # nothing is written, no folder stays


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--runtimes", "mpi"], "there is no runtime 'mpi'; there are sequential, threads"),
        (["--runtimes", ","], "--runtimes needs at least one entry"),
        (["--threads", "0"], "--threads: threads must be between 1 and 1024, not 0"),
        (["--threads", "1,x"], "--threads: 'x' is no whole number"),
        (["--iterations", "1"], "--iterations must be at least 2"),
        (["--repeats", "0"], "--repeats must be at least 1"),
        (["--batch", "-1"], "--batch must be at least 1"),
        (["--seq", "4096"], "context"),
        (["--seed", "-1"], "--seed must not be negative"),
        (["--timeout", "0"], "--timeout must be positive"),
        (["--timeout", "nan"], "--timeout must be positive"),
    ],
)
def test_what_cannot_be_is_one_line(arguments, words, tmp_path, capsys):
    folder = tmp_path / "out"
    assert main(["bench", *arguments, "--out", str(folder)]) == 2
    captured = capsys.readouterr()
    assert words in captured.err
    assert captured.err.count("\n") == 1
    assert not folder.exists()


@pytest.mark.parametrize("place", ["a file", "/proc/x", "dangling", "long", ""])
def test_a_place_that_cannot_be_written_is_one_line(place, stand_in, tmp_path, capsys):
    (tmp_path / "a file").write_text("mine", encoding="utf-8")
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere" / "at all")
    path = "x" * 300 if place == "long" else place
    out = path if place in ("/proc/x", "") else str(tmp_path / path)
    assert main(["bench", *QUICK, "--out", out]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("gpt2lib bench: ")
    assert out in captured.err
    assert "ame" in captured.err  # "Name another.", "needs the name of a folder"
    assert captured.err.count("\n") == 1
    assert (tmp_path / "a file").read_text(encoding="utf-8") == "mine"


def test_none_there_is_one_line(tmp_path, capsys, monkeypatch):
    row = {"runtime": "tbb", "reason": "no library", "how_to_get": "install it"}
    monkeypatch.setattr(bench, "absent", lambda names: [row])
    folder = tmp_path / "new"
    assert main(["bench", *SMALL, "--runtimes", "tbb", "--out", str(folder)]) == 2
    assert not folder.exists()
    captured = capsys.readouterr()
    assert "none of these runtimes is there: tbb: no library" in captured.err


def test_oversubscription_and_slow_products_are_warned_of(stand_in, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("gpt2lib.runtimes.cpus.usable_cpus", lambda: 3)
    monkeypatch.setattr(bench, "product_rate", lambda matmul: 1e9)
    big = ["--preset", "gpt2", "--matmul", "naive", "--threads", "2,4", "--dry-run"]
    assert main(["bench", *big, "--out", str(tmp_path)]) == 0
    err = capsys.readouterr().err
    assert "warning: 4 threads on 3 cores: oversubscribed" in err
    assert "warning: naive products are slow: this will take" in err
    assert " h " in err
    assert "of memory" not in err
    huge = ["--preset", "gpt2-xl", "--batch", "4096", "--seq", "1024", "--dry-run"]
    assert main(["bench", *huge, "--out", str(tmp_path)]) == 0
    captured = capsys.readouterr()
    assert "arrays of 21883" in captured.out  # 4 (4 * 1.5576e9 + 4096 * 1024 * 1 302 853) bytes
    assert "of memory and may have" in captured.err


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0123, "12.3 ms"), (59.6, "60 s"), (95, "2 min"), (3 * 3600 + 120, "3 h 02 min")],
)
def test_durations_are_for_people(seconds, text):
    assert command._duration(seconds) == text


def test_the_results_name_no_path(stand_in, tmp_path):
    assert main(["bench", *QUICK, "--out", str(tmp_path)]) == 0
    text = (tmp_path / "results.json").read_text(encoding="utf-8")
    assert str(tmp_path) not in text
    assert not [word for word in text.split('"') if word.startswith("/")]
    assert json.loads(text)["settings"]["preset"] == "tiny"
