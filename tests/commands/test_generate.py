from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from gpt2lib.cli import main
from tests.backends import one_thread

__all__ = ["one_thread"]
COMMAND = [sys.executable, "-m", "gpt2lib", "generate"]


def run(*arguments, **more):
    return subprocess.run(
        [*COMMAND, *arguments], capture_output=True, timeout=100, check=False, **more
    )


def text(capsys, *arguments):
    assert main(["generate", *arguments]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    return captured.out


def test_tells_a_story(capsys):
    story = text(capsys, "--prompt", "Once upon a time", "--seed", "1")
    assert story.startswith("Once upon a time")
    assert len(story.split()) > 15
    assert story.endswith("\n")
    assert "endoftext" not in story
    assert text(capsys, "--prompt", "Once upon a time", "--seed", "1") == story
    assert text(capsys, "--prompt", "Once upon a time", "--seed", "2") != story


def test_greedy_is_temperature_zero_and_needs_no_cache(capsys):
    greedy = text(capsys, "--prompt", "One day", "--greedy", "--tokens", "40")
    assert text(capsys, "--prompt", "One day", "--temperature", "0", "--tokens", "40") == greedy
    assert text(capsys, "--prompt", "One day", "--greedy", "--tokens", "40", "--no-cache") == greedy
    narrow = text(capsys, "--prompt", "One day", "--top-k", "1", "--tokens", "40", "--seed", "3")
    assert narrow == greedy


def test_greedy_and_a_temperature_contradict_each_other(capsys):
    assert main(["generate", "--greedy", "--temperature", "2"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "--greedy" in captured.err
    assert "--temperature says 2.0" in captured.err
    assert captured.err.count("\n") == 1


def test_a_prompt_longer_than_the_context_says_so(capsys):
    assert main(["generate", "--prompt", "One day. " * 100, "--tokens", "2", "--seed", "0"]) == 0
    captured = capsys.readouterr()
    assert captured.out.startswith("One day. One day.")  # the text itself is all there
    assert "only the end of the prompt counts" in captured.err
    assert "reads 128" in captured.err


def test_no_prompt_begins_a_text_of_its_own(capsys):
    assert len(text(capsys, "--seed", "0", "--tokens", "30").split()) > 5


def test_goes_on_after_the_end_past_the_context(capsys):
    arguments = ["--prompt", "Once", "--seed", "0", "--tokens", "300"]
    ended = text(capsys, *arguments)
    endless = text(capsys, *arguments, "--ignore-end")
    assert endless.startswith(ended.rstrip("\n"))
    assert len(endless) > 2 * len(ended)


def test_heads_can_be_switched_off(capsys):
    whole = text(capsys, "--prompt", "Once", "--greedy")
    without = text(capsys, "--prompt", "Once", "--greedy", "--heads-off", "1.0, 1.1,1.2,1.3")
    assert without.startswith("Once")
    assert without != whole


def test_the_marker_is_ordinary_text(capsys):
    assert text(capsys, "--prompt", "<|endoftext|> x", "--tokens", "0") == "<|endoftext|> x\n"


def test_verbose_tells_the_speed_on_stderr(capsys):
    assert main(["generate", "--tokens", "7", "--ignore-end", "--verbose"]) == 0
    assert capsys.readouterr().err.startswith("7 tokens in ")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--temperature", "-1"], "temperature"),
        (["--temperature", "nan"], "temperature"),
        (["--top-k", "0"], "top_k"),
        (["--top-p", "1.5"], "top_p"),
        (["--tokens", "-1"], "tokens"),
        (["--seed", "-1"], "--seed"),
        (["--model", "no/such/model"], "no/such/model"),
        (["--model", __file__], "test_generate.py"),
        (["--model", ""], "an empty name is no model"),
        (["--model", "nope"], "known by name (tiny, gpt2,"),
        (["--heads-off", "1"], "'1' is no head; write layer.head"),
        (["--heads-off", "0.1,9.0"], "no head 9.0: layers go from 0 to"),
        (["--backend", "cuda"], "backend"),
        (["--threads", "2"], "threads"),
    ],
)
def test_bad_input_is_one_line_and_status_2(arguments, message, capsys):
    assert main(["generate", *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("gpt2lib generate: ")
    assert message in captured.err
    assert captured.err.count("\n") == 1


def test_a_reader_that_goes_away():
    tool = subprocess.Popen(
        [*COMMAND, "--tokens", "5000", "--ignore-end", "--seed", "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert tool.stdout is not None
    assert tool.stderr is not None
    tool.stdout.read(3)
    tool.stdout.close()
    assert tool.wait(timeout=60) == 0
    assert tool.stderr.read() == b""
    tool.stderr.close()


def test_a_terminal_that_knows_ascii_only():
    environment = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONIOENCODING": "ascii"}
    done = run("--prompt", "é 日本 👍", "--tokens", "5", env=environment)
    assert done.returncode == 0
    assert done.stderr == b""
    assert done.stdout.isascii()


def test_ctrl_c_ends_with_130_and_one_line():
    tool = subprocess.Popen(
        [*COMMAND, "--tokens", "100000", "--ignore-end", "--seed", "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert tool.stdout is not None
    tool.stdout.read(20)  # it is at work
    time.sleep(0.2)
    tool.send_signal(signal.SIGINT)
    _, errors = tool.communicate(timeout=60)
    assert tool.returncode == 130
    assert errors.decode() == "gpt2lib generate: interrupted.\n"
