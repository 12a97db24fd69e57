"""The launcher: exit status, signals, environment; with any command, nOS-V or not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from gpt2lib.runtimes import launch, nosv

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")


def start(*arguments, **options):
    command = [sys.executable, "-m", "gpt2lib.runtimes.launch", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)


@pytest.mark.parametrize(
    ("code", "status"), [("pass", 0), ("exit(3)", 3), ("import os; os.kill(os.getpid(), 9)", 137)]
)
def test_exit_status_is_the_commands(code, status):
    assert launch.launch([sys.executable, "-c", code], runtime="threads") == status


def test_signals_to_the_launcher_alone_reach_the_command():
    code = (
        "import signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(9))\n"
        "try:\n"
        "    print('ready', flush=True)\n"
        "    time.sleep(60)\n"
        "except KeyboardInterrupt: sys.exit(8)\n"
    )
    for number, status in ((signal.SIGINT, 8), (signal.SIGTERM, 9)):
        process = start("--runtime", "threads", "--", sys.executable, "-c", code)
        assert process.stdout.readline() == b"ready\n"
        process.send_signal(number)
        assert process.wait(30) == status
        process.communicate()


def test_ctrl_c_in_the_terminal_is_not_doubled():
    """The terminal's SIGINT goes to both; the command must not get a second one on top."""
    import pty

    code = (
        "import signal, time\n"
        "count = []\n"
        "signal.signal(signal.SIGINT, lambda *_: count.append(1))\n"
        "print('ready', flush=True)\n"
        "end = time.time() + 1.5\n"
        "while time.time() < end: time.sleep(0.05)\n"
        "print('interrupts', len(count), flush=True)\n"
    )
    command = ["-m", "gpt2lib.runtimes.launch", "--runtime", "threads", "--"]
    child, terminal = pty.fork()
    if child == 0:
        os.execv(sys.executable, [sys.executable, *command, sys.executable, "-c", code])
    seen = b""
    while b"ready" not in seen:
        seen += os.read(terminal, 1000)
    os.write(terminal, b"\x03")
    deadline = time.monotonic() + 30
    while b"interrupts" not in seen and time.monotonic() < deadline:
        seen += os.read(terminal, 1000)
    os.waitpid(child, 0)
    os.close(terminal)
    assert b"interrupts 1" in seen, seen


def test_what_is_not_there_is_named():
    for arguments, words in (
        (["--runtime", "threads"], "no command"),
        (["--runtime", "threads", "--", "no-such-command-here"], "no-such-command-here"),
        (["--runtime", "nosv", "--library", "/no/libnosv.so", "--", "true"], "/no/libnosv.so"),
    ):
        process = start(*arguments)
        _, error = process.communicate(timeout=30)
        assert process.returncode == 2
        assert words in error.decode()
        assert error.count(b"\n") == 1


def test_environment_keeps_what_the_user_has_set(tmp_path):
    library = tmp_path / "libnosv.so"
    library.touch()
    base = {
        "LD_PRELOAD": "libompv.so",
        "NOSV_CONFIG_OVERRIDE": "turbo.enabled=true, governor.policy=idle",
    }
    result = nosv.environment(base, library=str(library), ovni=True, trace_folder="here")
    assert result["LD_PRELOAD"] == f"{library}:libompv.so"
    settings = result["NOSV_CONFIG_OVERRIDE"].split(",")
    assert settings[:2] == ["turbo.enabled=true", "governor.policy=idle"]
    assert "turbo.enabled=false" not in settings
    assert {"shared_memory.size=64M", "instrumentation.version=ovni"} <= set(settings)
    assert result["OVNI_TRACEDIR"] == "here"
    again = nosv.environment(result, library=str(library), ovni=True)
    assert again["LD_PRELOAD"] == result["LD_PRELOAD"]
    assert again["NOSV_CONFIG_OVERRIDE"] == result["NOSV_CONFIG_OVERRIDE"]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="Linux's shared memory")
def test_only_segments_of_processes_that_are_gone_are_removed():
    from pathlib import Path

    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    user = os.geteuid()
    stale = Path(f"/dev/shm/gpt2lib-u{user}-p{gone.pid}")
    alive = Path(f"/dev/shm/gpt2lib-u{user}-p{os.getpid()}")
    foreign = Path(f"/dev/shm/nosv-u{user}-p{gone.pid}")
    try:
        for path in (stale, alive, foreign):
            path.touch()
        assert stale.name in nosv.remove_stale_segments()
        assert (stale.exists(), alive.exists(), foreign.exists()) == (False, True, True)
    finally:
        for path in (stale, alive, foreign):
            path.unlink(missing_ok=True)
