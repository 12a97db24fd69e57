"""One writer at a time in a folder; what atomic_write promises is tested where it is used."""

from __future__ import annotations

import subprocess
import sys

import pytest

from gpt2lib._files import one_writer
from gpt2lib.cli import main

fcntl = pytest.importorskip("fcntl", reason="this system has no flock")


def test_a_second_writer_is_refused_and_the_next_one_is_not(tmp_path):
    with one_writer(tmp_path):
        with (
            pytest.raises(ValueError, match="is in use: a run is writing to it"),
            one_writer(tmp_path),
        ):
            pass
        with one_writer(tmp_path.parent):  # another folder
            pass
    with pytest.raises(KeyError), one_writer(tmp_path):
        raise KeyError
    with one_writer(tmp_path):
        assert list(tmp_path.iterdir()) == []  # nothing lies about


def test_a_hold_ends_with_its_process(tmp_path):
    script = (
        "import os, sys\n"
        "from gpt2lib._files import one_writer\n"
        "held = one_writer(sys.argv[1])\n"
        "held.__enter__()\n"
        "print('held', flush=True)\n"
        "sys.stdin.read()\n"
        "os._exit(1)\n"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert child.stdout.readline() == b"held\n"
    with pytest.raises(ValueError, match="in use"), one_writer(tmp_path):
        pass
    child.kill()
    child.communicate()
    with one_writer(tmp_path):
        pass


def test_a_disk_without_locks_refuses_nobody(tmp_path, monkeypatch):
    def flock(*_):
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(fcntl, "flock", flock)
    with one_writer(tmp_path), one_writer(tmp_path):
        pass


@pytest.mark.parametrize(
    "command",
    [
        ["train", "--steps", "1", "--documents", "50", "--out"],
        ["bench", "--iterations", "2", "--repeats", "1", "--out"],
    ],
)
def test_commands_refuse_a_folder_that_another_one_writes_to(command, tmp_path, capsys):
    with one_writer(tmp_path):
        assert main([*command, str(tmp_path)]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert f"{tmp_path} is in use" in error
    assert list(tmp_path.iterdir()) == []
