import os
import subprocess
import sys
import types

import pytest

from gpt2lib import cli


@pytest.fixture
def command(monkeypatch):
    """Install a command `probe` whose `run` is the test's, and return a way to set it."""

    def install(run):
        module = types.ModuleType("gpt2lib.commands.probe", "A probe.")
        module.HELP = "a probe"
        module.add_arguments = lambda parser: parser.add_argument("--number", type=int)
        module.run = run
        monkeypatch.setitem(sys.modules, "gpt2lib.commands.probe", module)
        monkeypatch.setattr(cli, "available_commands", lambda: ["probe"])

    return install


def raising(error):
    def run(args):
        raise error

    return run


@pytest.mark.parametrize(
    ("error", "status", "message"),
    [
        (ValueError("4 heads cannot\nshare 50 channels"), 2, "4 heads cannot share 50 channels"),
        (FileNotFoundError(2, "No such file", "x.txt"), 2, "No such file: x.txt"),
        (KeyboardInterrupt(), 130, "interrupted."),
        (KeyboardInterrupt("saved at step 7."), 130, "saved at step 7."),
        (MemoryError(), 2, "not enough memory"),
        (ImportError("tiktoken is not installed"), 2, "tiktoken is not installed"),
    ],
)
def test_an_error_is_one_line_and_a_status(command, capsys, error, status, message):
    command(raising(error))
    assert cli.main(["probe"]) == status
    captured = capsys.readouterr()
    assert captured.err.count("\n") == 1
    assert captured.err.startswith("gpt2lib probe: ")
    assert message in captured.err


def test_a_fault_of_our_own_is_not_hidden(command):
    command(raising(ZeroDivisionError("a bug")))
    with pytest.raises(ZeroDivisionError):
        cli.main(["probe"])


def test_the_status_of_the_command_is_passed_on(command):
    command(lambda args: args.number)
    assert cli.main(["probe", "--number", "1"]) == 1
    assert cli.main(["probe", "--number", "0"]) == 0


def test_no_command_prints_the_help(capsys):
    assert cli.main([]) == 2
    assert "COMMAND" in capsys.readouterr().out


def test_an_unknown_option_is_refused(capsys):
    with pytest.raises(SystemExit) as stopped:
        cli.main(["--colour"])
    assert stopped.value.code == 2


def test_help_lists_every_command_and_each_has_its_own():
    listed = subprocess.run(
        [sys.executable, "-m", "gpt2lib", "--help"], capture_output=True, text=True, check=True
    )
    assert cli.available_commands()
    for name in cli.available_commands():
        assert f"\n    {name} " in listed.stdout
        own = subprocess.run(
            [sys.executable, "-m", "gpt2lib", name, "--help"], capture_output=True, text=True
        )
        assert own.returncode == 0, own.stderr
        assert "--help" in own.stdout


def test_an_ascii_terminal_and_a_closed_pipe_do_no_harm():
    code = (
        "import sys, types; from gpt2lib import cli\n"
        "m = types.ModuleType('gpt2lib.commands.probe', 'x'); m.HELP = 'x'\n"
        "m.add_arguments = lambda parser: None\n"
        "m.run = lambda args: print('\\u65e5\\u672c \\U0001f44d\\n' * 100000)\n"
        "sys.modules['gpt2lib.commands.probe'] = m\n"
        "cli.available_commands = lambda: ['probe']\n"
        "sys.exit(cli.main(['probe']))\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0", "LC_ALL": "C", "PATH": "/usr/bin"},
    )
    process.stdout.readline()
    process.stdout.close()  # what `| head -1` does
    assert process.stderr.read() == b""
    assert process.wait(30) == 0


@pytest.mark.skipif(os.name != "posix", reason="needs a POSIX shell")
def test_a_shell_that_closed_the_output_does_no_harm():
    command = f'"{sys.executable}" -m gpt2lib info >&-'
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
