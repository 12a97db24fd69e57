"""One writer at a time in a folder; what atomic_write promises is tested where it is used."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from gpt2lib._files import check_regular, new_folder, one_writer
from gpt2lib.cli import main

fcntl = pytest.importorskip("fcntl", reason="this system has no flock")


def elsewhere(call):
    """Do something in another thread; return what it raised."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(call).exception()


def test_a_second_writer_is_refused_and_the_next_one_is_not(tmp_path):
    def hold():
        with one_writer(tmp_path):
            pass

    with one_writer(tmp_path):
        with one_writer(tmp_path):  # the same thread: a run within a command
            assert "is in use: a run is writing to it" in str(elsewhere(hold))
        assert "is in use: a run is writing to it" in str(elsewhere(hold))
        with one_writer(tmp_path.parent):  # another folder
            pass
    with pytest.raises(KeyError), one_writer(tmp_path):
        raise KeyError
    assert elsewhere(hold) is None
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
    with one_writer(tmp_path):
        pass


@pytest.mark.parametrize(
    "command",
    [
        ["train", "--steps", "1", "--documents", "50", "--out"],
        ["bench", "--iterations", "2", "--repeats", "1", "--out"],
        ["tokenize", "stories", "--documents", "5", "--out"],
    ],
)
def test_commands_refuse_a_folder_that_another_one_writes_to(command, tmp_path, capsys):
    codes = []
    with one_writer(tmp_path):
        assert elsewhere(lambda: codes.append(main([*command, str(tmp_path)]))) is None
    assert codes == [2]
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert f"{tmp_path} is in use" in error
    assert list(tmp_path.iterdir()) == []


def test_a_new_folder_goes_when_it_stays_empty_and_what_was_there_does_not(tmp_path):
    for folder in (tmp_path / "a" / "b", tmp_path):
        with pytest.raises(KeyError), new_folder(folder):
            raise KeyError
        assert list(tmp_path.iterdir()) == []
    with pytest.raises(KeyError), new_folder(tmp_path / "a" / "b") as made:
        raise KeyError(made.with_name("note").write_text("mine", encoding="utf-8"))
    assert [p.name for p in (tmp_path / "a").iterdir()] == ["note"]
    with (
        pytest.raises(ValueError, match="a file is in its place"),
        new_folder(tmp_path / "a" / "note"),
    ):
        pass


def test_pipes_devices_and_folders_are_no_files(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path, what in ((pipe, "a pipe or a device"), (tmp_path, "a folder")):
        with pytest.raises(ValueError, match=f"is {what}, not a file"):
            check_regular(path)
    check_regular(tmp_path / "nothing")  # who opens it says that it is not there


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (["compare", "{pipe}", "{pipe}"], "a pipe or a device"),
        (["train", "--resume", "--out", "{folder}"], "a pipe or a device"),
        (["generate", "--model", "{folder}"], "holds neither model.safetensors nor"),
        (["generate", "--model", "{pipe}"], "a folder or a .safetensors file"),
    ],
)
def test_no_command_waits_for_a_pipe(command, words, tmp_path, capsys):
    """Each would be there still: nobody writes to the other end."""
    folder = tmp_path / "run"
    folder.mkdir()
    for name in ("model.safetensors", "checkpoint.safetensors", "tokenizer.json"):
        os.mkfifo(folder / name)
    pipe = folder / "model.safetensors"
    assert main([word.format(pipe=pipe, folder=folder) for word in command]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert words in error
