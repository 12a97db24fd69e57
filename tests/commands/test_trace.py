"""``gpt2lib trace``: the files, what it prints, and what it refuses."""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from gpt2lib.cli import main
from gpt2lib.commands import trace
from gpt2lib.runtimes import launch, nosv
from tests.perf.test_timeline import check_paraver, read

SMALL = ["--batch", "1", "--seq", "16", "--iterations", "2", "--threads", "2", "--pairs", "0"]


def test_paraver(tmp_path, capsys):
    assert main(["trace", *SMALL, "--out", str(tmp_path / "new" / "folder")]) == 0
    out = capsys.readouterr().out
    assert "2 steps on 2 threads" in out
    assert "parallel efficiency" in out
    assert "adamw_update_elements" in out
    assert "region " not in out  # every kernel has its name
    folder = tmp_path / "new" / "folder"
    files = ["timeline.svg", "trace.pcf", "trace.prv", "trace.row"]
    assert sorted(p.name for p in folder.iterdir()) == files
    assert "the record costs" not in out
    header = (folder / "trace.prv").read_text(encoding="utf-8").splitlines()[0]
    duration = int(header.split("):")[1].split("_ns")[0])
    check_paraver(folder / "trace.prv", 2, duration)
    begun = [line for line in read(folder / "trace.prv") if line[0] == 2 and line[7]]
    assert f", {len(begun)} chunks;" in out
    assert {tuple(line[6::2]) for line in begun} == {tuple(84000001 + i for i in range(6))}
    layers = {line[13] for line in begun}  # 1: none; the tiny model has four
    assert layers == {1, 2, 3, 4, 5}
    assert {line[17] for line in begun} == {1, 2}  # two iterations
    picture = ElementTree.parse(folder / "timeline.svg").getroot()
    assert "chunks coloured by their kind" in picture.attrib["aria-label"]


def test_what_the_record_costs_is_said(tmp_path, capsys):
    assert main(["trace", *SMALL[:-1], "3", "--out", str(tmp_path)]) == 0
    assert re.search(
        r"the record costs [+-][\d.]+% of a step: the median of 3 pairs .* 95 % interval",
        capsys.readouterr().out,
    )


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
        (["--pairs", "-1"], "--pairs must not be negative"),
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


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """A folder that looks like an installed nOS-V, without anything in it that runs."""
    home = tmp_path / "nosv home"
    (home / "lib").mkdir(parents=True)
    (home / "bin").mkdir()
    monkeypatch.setenv("NOSV_HOME", str(home))
    monkeypatch.delenv("LD_PRELOAD", raising=False)
    (home / "lib" / "libnosv.so").write_bytes(b"\x7fELF...libovni.so.1\0")
    return home


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="nOS-V runs on Linux only")
@pytest.mark.parametrize("ovni", [True, False])
def test_nosv_starts_again_with_nosv_in_the_process(installed, ovni, tmp_path, monkeypatch, capsys):
    if not ovni:
        (installed / "lib" / "libnosv.so").write_bytes(b"\x7fELF")
    started = []
    monkeypatch.setattr(launch, "launch", lambda argv, **o: started.append((argv, o)) or 7)
    out = tmp_path / "a folder"
    command = ["trace", "--runtime", "nosv", "--threads", "2", "--iterations", "2"]
    assert main([*command, "--out", str(out)]) == 7
    ((argv, options),) = started
    assert argv[:4] == [sys.executable, "-m", "gpt2lib", "trace"]
    # The child reads the same command line.
    parser = argparse.ArgumentParser()
    trace.add_arguments(parser)
    asked = parser.parse_args(argv[4:])
    assert (asked.runtime, asked.threads, asked.iterations, asked.out) == ("nosv", 2, 2, str(out))
    assert asked.pairs is None
    assert options["runtime"] == "nosv"
    assert options["ovni"] is ovni
    assert options["library"] == str(installed / "lib" / "libnosv.so")
    assert options["trace_folder"] == (out / "ovni" if ovni else None)
    assert ("built without ovni" in capsys.readouterr().err) is not ovni


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="nOS-V runs on Linux only")
def test_it_starts_again_once_only(installed, tmp_path, monkeypatch, capsys):
    """In the new process nOS-V is preloaded. If that did not help, the reason is said."""
    monkeypatch.setenv("LD_PRELOAD", str(installed / "lib" / "libnosv.so"))
    monkeypatch.setattr(launch, "launch", lambda *_, **__: pytest.fail("started again"))
    assert main(["trace", "--runtime", "nosv", "--out", str(tmp_path / "out")]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_the_way_to_paraver_is_said(installed, monkeypatch):
    emulator = installed / "bin" / "ovniemu"
    monkeypatch.setenv("PATH", "")
    assert nosv.find_ovniemu() == ""
    assert "ovniemu was not found here" in trace._about_ovni(Path("t/ovni"))
    emulator.write_text("#!/bin/sh\n", encoding="utf-8")
    emulator.chmod(0o755)
    text = trace._about_ovni(Path("t/ovni"))
    assert f"\n    {emulator} -l t/ovni\n" in text
    assert "t/ovni/cpu.prv" in text
    assert "not found" not in text


@pytest.mark.parametrize(
    ("runtime", "override", "folder", "expected"),
    [
        ("nosv", "turbo.enabled=false,instrumentation.version=ovni", "x/y", Path("x/y")),
        ("nosv", "instrumentation.version=ovni,ovni.level=2", None, Path("ovni")),
        ("nosv", "turbo.enabled=false", "x/y", None),
        ("threads", "instrumentation.version=ovni", "x/y", None),
    ],
)
def test_where_the_ovni_trace_is(runtime, override, folder, expected, monkeypatch):
    class Runtime:
        name = runtime

    monkeypatch.setenv("NOSV_CONFIG_OVERRIDE", override)
    monkeypatch.delenv("OVNI_TRACEDIR", raising=False)
    if folder:
        monkeypatch.setenv("OVNI_TRACEDIR", folder)
    assert trace._ovni_folder(Runtime()) == expected


LIBRARY = nosv.find_library()


@pytest.mark.skipif(
    not LIBRARY, reason="libnosv.so was not found (set NOSV_HOME to where nOS-V is installed)"
)
def test_nosv_for_real(tmp_path):
    """Our record on nOS-V, and ovni's of the same run where nOS-V was built with it."""
    command = [sys.executable, "-m", "gpt2lib", "trace", "--runtime", "nosv", "--threads", "1"]
    command += ["--batch", "1", "--seq", "16", "--iterations", "2", "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert "2 steps on 1 thread," in done.stdout
    duration = int((tmp_path / "trace.prv").read_text().split("):")[1].split("_ns")[0])
    check_paraver(tmp_path / "trace.prv", 1, duration)
    assert (f"ovniemu -l {tmp_path.resolve() / 'ovni'}" in done.stdout) is nosv.has_ovni(LIBRARY)
    if not nosv.has_ovni(LIBRARY) or not nosv.find_ovniemu():
        return
    emulate = [nosv.find_ovniemu(), "-l", str(tmp_path / "ovni")]
    subprocess.run(emulate, check=True, capture_output=True, timeout=120)
    names = (tmp_path / "ovni" / "thread.pcf").read_text(encoding="utf-8")
    assert "linear_forward_tiles" in names
    assert "adamw_update_elements" in names
