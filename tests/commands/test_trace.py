"""``gpt2lib trace``: the files, what it prints, and what it refuses."""

from __future__ import annotations

import json

import pytest

from gpt2lib.cli import main
from tests.perf.test_timeline import check_paraver, read

SMALL = ["--batch", "1", "--seq", "16", "--iterations", "2", "--threads", "2"]


def test_paraver(tmp_path, capsys):
    assert main(["trace", *SMALL, "--out", str(tmp_path / "new" / "folder")]) == 0
    out = capsys.readouterr().out
    assert "2 steps on 2 threads" in out
    assert "parallel efficiency" in out
    assert "adamw_update_elements" in out
    assert "region " not in out  # every kernel has its name
    folder = tmp_path / "new" / "folder"
    assert sorted(p.name for p in folder.iterdir()) == ["trace.pcf", "trace.prv", "trace.row"]
    header = (folder / "trace.prv").read_text(encoding="utf-8").splitlines()[0]
    duration = int(header.split("):")[1].split("_ns")[0])
    check_paraver(folder / "trace.prv", 2, duration)
    begun = [line for line in read(folder / "trace.prv") if line[0] == 2 and line[7]]
    assert f", {len(begun)} chunks;" in out


def test_chrome(tmp_path, capsys):
    assert main(["trace", *SMALL, "--format", "chrome", "--out", str(tmp_path)]) == 0
    assert "trace.json" in capsys.readouterr().out
    events = json.loads((tmp_path / "trace.json").read_text(encoding="utf-8"))["traceEvents"]
    updates = [e for e in events if e["name"] == "adamw_update_elements"]
    assert len(updates) >= 2 * 2  # two steps; matrices and vectors


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--iterations", "0"], "--iterations must be at least 1"),
        (["--batch", "0"], "--batch must be at least 1"),
        (["--seq", "4096"], "context"),
        (["--runtime", "mpi"], "there is no runtime 'mpi'"),
        (["--threads", "0"], "threads"),
        (["--seed", "-1"], "--seed must not be negative"),
    ],
)
def test_what_cannot_be_is_one_line(arguments, message, tmp_path, capsys):
    folder = tmp_path / "out"
    assert main(["trace", *arguments, "--out", str(folder)]) == 2
    captured = capsys.readouterr()
    assert message in captured.err
    assert captured.err.count("\n") == 1
    assert not folder.exists()


def test_a_place_that_cannot_be_written_is_one_line(tmp_path, capsys):
    (tmp_path / "file").write_text("mine", encoding="utf-8")
    assert main(["trace", *SMALL, "--out", str(tmp_path / "file")]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert (tmp_path / "file").read_text(encoding="utf-8") == "mine"


@pytest.mark.parametrize("command", ["trace", "generate", "train"])
def test_a_runtime_that_is_not_there_is_one_line(command, tmp_path, capsys, monkeypatch):
    """Every command that takes a runtime: what is missing, and how to get it; no traceback."""
    from gpt2lib import runtimes
    from gpt2lib.runtimes.sequential import Sequential

    def absent(self, threads=None):
        raise RuntimeError("libthis.so was not found. Install that.")

    monkeypatch.setattr(Sequential, "__init__", absent)
    monkeypatch.setattr(runtimes, "_cache", {})
    numba = [] if command == "trace" else ["--backend", "numba"]
    out = [] if command == "generate" else ["--out", str(tmp_path / "out")]
    assert main([command, *numba, "--runtime", "sequential", *out]) == 2
    captured = capsys.readouterr()
    assert captured.err.splitlines()[-1].endswith("libthis.so was not found. Install that.")
    assert "Traceback" not in captured.err
