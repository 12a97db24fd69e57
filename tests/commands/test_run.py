"""The command ``run``: what it prints, what it hands on. Its launcher has tests of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from gpt2lib import cli
from gpt2lib.commands import run as command
from gpt2lib.runtimes import NAMES

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")


@pytest.fixture
def library(tmp_path, monkeypatch):
    """Return a file that passes for nOS-V in every check that does not load it."""
    for name in ("NOSV_CONFIG_OVERRIDE", "LD_PRELOAD", "NOSV_HOME", "LD_LIBRARY_PATH"):
        monkeypatch.delenv(name, raising=False)
    path = tmp_path / "libnosv.so"
    path.touch()
    return path


def test_it_knows_every_runtime():
    assert set(command._RUNTIMES) == set(NAMES)


@pytest.mark.parametrize(("code", "status"), [("pass", 0), ("raise SystemExit(3)", 3)])
def test_the_exit_status_is_the_commands(code, status, capfd):
    argv = ["run", "--runtime", "threads", "--", sys.executable, "-c", code]
    assert cli.main(argv) == status
    assert capfd.readouterr().err == "gpt2lib run: runtime threads needs nothing to be set.\n"


def test_a_signal_that_ends_the_command_is_told_as_a_shell_does():
    code = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
    argv = ["run", "--quiet", "--runtime", "threads", "--", sys.executable, "-c", code]
    assert cli.main(argv) == 128 + signal.SIGKILL


def test_options_of_the_command_stay_its_own(capfd):
    code = "import sys; print(sys.argv[1:])"
    words = ["--ovni", "--runtime", "train", "--", "--help"]
    argv = ["run", "--runtime", "threads", "--quiet", "--", sys.executable, "-c", code, *words]
    assert cli.main(argv) == 0
    captured = capfd.readouterr()
    assert captured.out == f"{words}\n"
    assert captured.err == ""


def test_what_is_printed_is_what_is_set(library, monkeypatch, capsys):
    """The launcher is asked for its environment; a real preload of an empty file would warn."""
    from gpt2lib.runtimes import launch

    seen = {}

    def remember(argv, environment):
        seen.update(environment)
        return 0

    monkeypatch.setattr(launch, "_run_child", remember)
    monkeypatch.setenv("LD_PRELOAD", "libother.so")
    options = ["--ovni", "--trace-folder", "here", "--preload", "libmine.so"]
    argv = ["run", "--runtime", "nosv", "--library", str(library), *options, "--", sys.executable]
    assert cli.main(argv) == 0
    new = {key: value for key, value in seen.items() if os.environ.get(key) != value}
    assert new["LD_PRELOAD"] == f"{library}:libmine.so:libother.so"
    assert "turbo.enabled=false" in new["NOSV_CONFIG_OVERRIDE"]
    assert "instrumentation.version=ovni" in new["NOSV_CONFIG_OVERRIDE"]
    assert new["OVNI_TRACEDIR"] == "here"
    printed = capsys.readouterr().err.splitlines()
    assert sorted(printed) == sorted(f"gpt2lib run: {key}={value}" for key, value in new.items())


def test_without_nosv_it_says_so_in_one_line(library, monkeypatch, capsys):
    monkeypatch.setattr("gpt2lib.runtimes.nosv.find_library", lambda: "")
    assert cli.main(["run", "--", sys.executable, "-c", "pass"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("gpt2lib run: libnosv.so is not there.")
    assert "NOSV_HOME" in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        ([], "what is to be started"),
        (["--runtime", "threads", "--"], "what is to be started"),
        (["--runtime", "threads", "--", "no-such-command"], "no-such-command"),
        (["--library", "nowhere/libnosv.so", "--", sys.executable], "nowhere/libnosv.so"),
        (["--runtime", "threads", "--ovni", "--", sys.executable], "are nosv's, not threads's"),
    ],
)
def test_what_cannot_be_is_said_in_one_line(argv, words, library, monkeypatch, capsys):
    monkeypatch.setattr("gpt2lib.runtimes.nosv.find_library", lambda: str(library))
    assert cli.main(["run", "--quiet", *argv]) == 2
    error = capsys.readouterr().err
    assert words in error
    assert error.count("\n") == 1


def test_ctrl_c_reaches_the_command_and_its_status_comes_back():
    code = (
        "import sys, time\n"
        "try:\n"
        "    print('ready', flush=True)\n"
        "    time.sleep(60)\n"
        "except KeyboardInterrupt: sys.exit(8)\n"
    )
    argv = ["-m", "gpt2lib", "run", "--runtime", "threads", "--", sys.executable, "-c", code]
    process = subprocess.Popen(
        [sys.executable, *argv], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout.readline() == b"ready\n"
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=60)
    assert process.returncode == 8
    assert b"Traceback" not in error
