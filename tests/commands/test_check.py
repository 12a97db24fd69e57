from __future__ import annotations

import subprocess
import sys

import pytest

import gpt2lib.ops
from gpt2lib import config
from gpt2lib.cli import main
from tests.backends import one_thread

__all__ = ["one_thread"]


@pytest.fixture
def small_preset(monkeypatch):
    shape = {"vocab_size": 11, "context": 6, "layers": 1, "heads": 2, "channels": 4}
    monkeypatch.setitem(config.PRESETS, "small", shape)


def test_the_tiny_preset_is_green():
    command = [sys.executable, "-m", "gpt2lib", "check", "--samples", "1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert "layernorm: weight" in done.stdout
    assert "wte (neither)" in done.stdout
    assert "h.3.mlp.c_proj.bias" in done.stdout
    assert "WRONG" not in done.stdout


def test_a_fault_is_named_and_gives_status_1(small_preset, monkeypatch, capsys):
    true = gpt2lib.ops.head_backward

    def head_backward(dlogits, x, wte, *, dx=None, dwte=None):
        return true(dlogits, x, wte, dx=dx)[0], dwte

    monkeypatch.setattr(gpt2lib.ops, "head_backward", head_backward)
    assert main(["check", "--preset", "small"]) == 1
    out = capsys.readouterr().out
    assert out.splitlines()[-1].startswith("wrong: head: wte, wte (input only), wte (target only)")
    assert out.count("WRONG") == 5


def test_the_options_reach_the_check(small_preset, capsys):
    assert main(["check", "--preset", "small", "--samples", "3", "--seed", "5"]) == 0
    first = capsys.readouterr().out
    assert main(["check", "--preset", "small", "--samples", "3", "--seed", "6"]) == 0
    assert first != capsys.readouterr().out
    row = next(line for line in first.splitlines() if line.startswith("h.0.mlp.c_fc.weight"))
    assert row.split()[1:3] == ["3", "64"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--preset", "huge"], "no preset is called 'huge'"),
        (["--samples", "0"], "at least one entry"),
        (["--seed", "-1"], "--seed must not be negative"),
        (["--backend", "cuda"], "must be 'numpy' or 'numba'"),
    ],
)
def test_bad_input_is_one_line_and_status_2(arguments, message, capsys):
    assert main(["check", *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("gpt2lib check: ")
    assert message in captured.err
    assert captured.err.count("\n") == 1
