"""The Paraver files in the eyes of a reader that is not ours: ``ptd`` of the package pertalde."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gpt2lib.perf.timeline import write_paraver
from tests.perf.test_timeline import by_hand, noted

__all__ = ["by_hand", "noted"]


def _ptd():
    """Return the program: beside this Python, or from PATH. (The package is a program only.)"""
    beside = Path(sys.executable).with_name("ptd")
    return str(beside) if beside.exists() else shutil.which("ptd")


pytestmark = pytest.mark.skipif(
    not _ptd() and "CI" not in os.environ,
    reason="ptd was not found (pip install pertalde, in any environment on PATH)",
)


def accepts(path):
    """Let it read the whole trace, the names and the rows."""
    command = [_ptd(), "comprovar", "-e", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    return done.returncode == 0


@pytest.mark.parametrize("which", ["by_hand", "noted"])
def test_it_takes_what_we_write(which, request, tmp_path):
    write_paraver(tmp_path / "run.prv", request.getfixturevalue(which))
    assert accepts(tmp_path / "run.prv")


@pytest.mark.parametrize(
    ("suffix", "old", "new"),
    [
        (".prv", "84000002:1", "84000002:one"),
        (".prv", ":0:10:0", ":0"),
        (".pcf", "STATES_COLOR", "COLOURS"),
    ],
)
def test_it_refuses_what_is_broken(suffix, old, new, noted, tmp_path):
    """Else the test above could not fail."""
    write_paraver(tmp_path / "run.prv", noted)
    path = tmp_path / f"run{suffix}"
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), encoding="utf-8")
    assert not accepts(tmp_path / "run.prv")
