"""``gpt2lib train`` as a user runs it: killed, interrupted, continued, given bad input."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from gpt2lib import cli
from gpt2lib.train import open_checkpoint, read_log
from gpt2lib.weights import TensorFile

SMALL = ["--corpus", "stories", "--documents", "80", "--tokenizer", "bpe", "--batch", "2"]
SMALL += ["--seq", "32", "--eval-batches", "2", "--checkpoint-every", "3", "--warmup", "2"]


def train(*arguments):
    return cli.main(["train", *map(str, arguments)])


def start(*arguments, **options):
    command = [sys.executable, "-m", "gpt2lib", "train", *map(str, arguments)]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options
    )


def wait_for_step(out, step, process, limit=60):
    """Wait until the log has a line of a step."""
    began = time.monotonic()
    log = out / "log.jsonl"
    while time.monotonic() - began < limit:
        if log.exists() and log.read_text(encoding="utf-8").count("\n") >= step:
            return
        if process.poll() is not None:
            pytest.fail(f"ended too early: {process.communicate()}")
        time.sleep(0.02)
    pytest.fail("the run is too slow")


def tensors(path):
    file = TensorFile(path / "checkpoint.safetensors")
    return {name: np.array(file[name]) for name in file}


def steps_and_losses(out):
    return [(r["step"], r["loss"]) for r in read_log(out)]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """An uninterrupted run of 14 steps."""
    out = tmp_path_factory.mktemp("train") / "whole"
    assert train(*SMALL, "--steps", 14, "--out", out, "--quiet") == 0
    return out


def test_killed_and_resumed_equals_uninterrupted(whole, tmp_path, capsys):
    out = tmp_path / "killed"
    process = start(*SMALL, "--steps", 14, "--out", out)
    wait_for_step(out, 7, process)
    process.kill()
    process.communicate()
    assert len(read_log(out)) < 14, "the kill came too late to show anything"
    step = open_checkpoint(out / "checkpoint.safetensors").state["step"]
    assert 3 <= step < 14
    assert train("--resume", "--out", out, "--quiet") == 0
    expected = tensors(whole)
    found = tensors(out)
    assert set(found) == set(expected)
    for name, tensor in expected.items():
        np.testing.assert_array_equal(found[name], tensor, err_msg=name)
    assert steps_and_losses(out) == steps_and_losses(whole)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_saves_and_says_how_to_go_on(whole, tmp_path, number):
    """Two signals within 100 ms, as a terminal and a shell may send them."""
    out = tmp_path / "a b"
    process = start(*SMALL, "--steps", 10000, "--out", out)
    wait_for_step(out, 2, process)
    process.send_signal(number)
    time.sleep(0.05)
    process.send_signal(number)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 130
    step = open_checkpoint(out / "checkpoint.safetensors").state["step"]
    assert len(read_log(out)) == step
    lines = err.strip().splitlines()
    assert f"stopped after step {step} of 10000" in lines[-1]
    assert f'gpt2lib train --resume --out "{out}"' in lines[-1]
    assert "Traceback" not in err


def test_too_little_memory_is_said_before_the_first_step(tmp_path, capsys, monkeypatch):
    for there, said in ((10_000_000, True), (20_000_000_000, False)):
        monkeypatch.setattr("gpt2lib.perf.machine.memory_limit", lambda there=there: there)
        assert train(*SMALL, "--steps", 1, "--out", tmp_path / str(there), "--quiet") == 0
        assert ("of memory and may have" in capsys.readouterr().out) is said


def test_the_summary(whole, capsys, tmp_path):
    assert train("--resume", "--out", whole, "--quiet") == 0
    text = capsys.readouterr().out
    first, last = read_log(whole)[0], read_log(whole)[-1]
    assert "nothing to do: all 14 steps were made" in text
    assert f"loss {first['loss']:.3f} at step 1, {last['loss']:.3f} at step 14" in text
    assert f"over the floor of {last['floor']:.3f}" in text
    assert f"checkpoint: {whole / 'checkpoint.safetensors'}" in text
    assert f"gpt2lib generate --model {whole}" in text
    assert last["loss"] < first["loss"]


def test_what_is_trained_can_be_loaded(whole):
    import gpt2lib

    model, tokenizer = gpt2lib.load(whole)
    assert model.config.vocab_size == tokenizer.vocab_size
    alone, _ = gpt2lib.load(whole / "model.safetensors")
    np.testing.assert_array_equal(alone.parameters.flat, model.parameters.flat)
    assert tokenizer.decode(tokenizer.encode("Once upon a time")) == "Once upon a time"


@pytest.mark.parametrize(
    ("option", "message"),
    [
        (["--steps", "15"], "--steps was 14 and is 15"),
        (["--seed", "3"], "--seed was 0 and is 3"),
        (["--corpus", "python-docs"], "--corpus was stories and is python-docs"),
        (["--documents", "90"], "--documents was 80 and is 90"),
        (["--no-aligned"], "--aligned was True and is False"),
        (["--preset", "gpt2"], "the model is not a gpt2"),
        (["--tokenizer", "gpt2"], "--tokenizer is the run's own"),
        (["--learning-rate", "1"], "--learning-rate was 0.003 and is 1.0"),
    ],
)
def test_contradictions_are_refused_in_words(whole, capsys, option, message):
    assert train("--resume", "--out", whole, *option) == 2
    assert message in one_line(capsys)


def test_the_same_options_again_are_no_contradiction(whole, capsys):
    again = [o for o in SMALL if o not in ("--tokenizer", "bpe")]
    assert train("--resume", "--out", whole, "--steps", 14, *again, "--quiet") == 0


def test_a_second_run_into_the_same_folder_is_refused(whole, capsys):
    assert train(*SMALL, "--steps", 2, "--out", whole) == 2
    assert "already holds a run" in one_line(capsys)


def test_a_run_that_ended_before_its_first_checkpoint_says_what_to_do(whole, tmp_path, capsys):
    out = tmp_path / "short"
    out.mkdir()
    (out / "log.jsonl").write_bytes((whole / "log.jsonl").read_bytes())
    for more in ([], ["--resume"]):
        assert train(*([] if more else SMALL), *more, "--out", out) == 2
        error = one_line(capsys)
        assert "ended before its first checkpoint" in error
        assert "Remove the folder, or choose another" in error


def test_a_command_that_comes_second_spoils_nothing(whole, tmp_path, capsys):
    """It was let in before the first one had written anything, and is refused later."""
    out = tmp_path / "both"
    late = start(*SMALL, "--steps", 2, "--documents", 2000, "--out", out)
    while not out.exists():
        assert late.poll() is None
        time.sleep(0.01)
    early = start(*SMALL, "--steps", 2, "--out", out)
    outcomes = [(p.communicate(timeout=100), p.returncode) for p in (late, early)]
    codes = sorted(code for _, code in outcomes)
    assert codes == [0, 2], outcomes
    ((_, error),) = [words for words, code in outcomes if code == 2]
    assert "is in use" in error or "already holds a run" in error
    assert train("--resume", "--out", out, "--quiet") == 0  # its tokenizer is its own


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--resume", "--out", "{tmp}/nothing"], "there is no run to resume"),
        (["--out", "/proc/x"], "the folder /proc/x cannot be made"),
        (["--out", "{tmp}/" + "x" * 300], "File name too long"),
        (["--out", "{tmp}/r", "--seq", "129"], "129 tokens does not fit this model's context"),
        (["--out", "{tmp}/r", "--steps", "0"], "steps must be a whole number of at least 1"),
        (["--out", "{tmp}/r", "--accumulate", "3"], "accumulate must divide batch"),
        (["--out", "{tmp}/r", "--corpus", "no-such-corpus"], "no corpus 'no-such-corpus'"),
        (["--out", "{tmp}/r", "--tokenizer", "nope"], "no tokenizer 'nope'"),
        (["--out", "{tmp}/r", "--documents", "1"], "at least two documents"),
        (["--out", "{tmp}/r", "--documents", "9" * 30], "documents=9999"),
        (["--out", "{tmp}/r", "--corpus", ""], "an empty name is no corpus"),
        (["--out", "{tmp}/r", "--corpus", "\udcff.txt"], "is not UTF-8: rename the file"),
        (["--out", ""], "--out names no folder"),
        (["--out", "{tmp}/r", "--documents", "20", "--batch", "500"], "500 rows needs 500"),
        (
            ["--out", "{tmp}/r", "--threads", "2"],
            "threads can be chosen for the backend",
        ),
    ],
)
def test_bad_input_is_one_line_and_status_2(tmp_path, capsys, arguments, message):
    defaults = [] if "--documents" in arguments else ["--documents", "60"]
    given = [a.replace("{tmp}", str(tmp_path)) for a in arguments]
    assert train(*([] if "--resume" in given else defaults), *given) == 2
    assert message in one_line(capsys)
    assert not (tmp_path / "r").exists()  # no empty folder stays behind


def test_an_impossible_rate_ends_in_words(tmp_path, capsys):
    with np.errstate(all="ignore"):
        status = train(*SMALL, "--steps", 30, "--learning-rate", 1e30, "--out", tmp_path / "r")
    assert status == 2
    assert "no step was made" in one_line(capsys).splitlines()[-1]


def test_a_small_file_trains_and_says_what_is_short(tmp_path, capsys):
    """A few kilobytes, mojibake and Windows line ends among them, in a folder with an odd name."""
    text = "Once upon a time there was a cafÃ© in 日本 👍.\r\nIt was “small”.\r\n\r\n" * 40
    path = tmp_path / "größe.txt"
    path.write_bytes(text.encode())
    out = tmp_path / "run"
    arguments = ["--steps", 3, "--batch", 2, "--seq", 32, "--out", out, "--quiet"]
    assert train("--corpus", path, *arguments) == 0
    printed = capsys.readouterr().out
    assert "no pairs left to merge" in printed
    assert "validation loss" in printed
    assert "floor" not in printed  # nobody knows it for this text


def test_a_short_text_gets_a_smaller_batch_and_its_run_goes_on_from_anywhere(
    tmp_path, capsys, monkeypatch
):
    (tmp_path / "x.txt").write_text("The quick brown fox jumps. " * 40, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    arguments = ["--corpus", "x.txt", "--out", tmp_path / "r", "--quiet"]
    assert train(*arguments, "--steps", 2, "--seq", 16) == 0
    assert "instead of 16" in capsys.readouterr().out
    monkeypatch.chdir("/")
    assert train("--resume", "--corpus", tmp_path / "x.txt", *arguments[2:]) == 0


def test_too_small_a_file_is_refused_with_the_numbers(tmp_path, capsys):
    (tmp_path / "x.txt").write_text("Much too short for a batch.", encoding="utf-8")
    assert train("--corpus", tmp_path / "x.txt", "--out", tmp_path / "r") == 2
    assert "1 x 128 needs 129 tokens" in one_line(capsys)
    assert train("--corpus", tmp_path / "x.txt", "--batch", 16, "--out", tmp_path / "r") == 2
    assert "needs 2049 tokens" in one_line(capsys)


def test_an_ascii_terminal_shows_a_stand_in(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("“é 日本 👍”\n" * 200, encoding="utf-8")
    arguments = ["--corpus", path, "--steps", 2, "--batch", 1, "--seq", 16]
    plain = {**os.environ, "PYTHONUTF8": "0", "LC_ALL": "C", "PYTHONIOENCODING": "ascii"}
    process = start(*arguments, "--out", tmp_path / "größe", env=plain)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert "/gr?" in out
    assert Path(tmp_path / "größe" / "checkpoint.safetensors").exists()


def one_line(capsys):
    err = capsys.readouterr().err.strip()
    assert "Traceback" not in err
    last = err.splitlines()[-1]
    assert last.startswith("gpt2lib train: ")
    return last


def test_a_trained_model_can_be_where_a_run_begins(whole, tmp_path):
    out = tmp_path / "tuned"
    options = ["--corpus", "stories", "--documents", 80, "--batch", 2, "--seq", 32, "--quiet"]
    assert (
        train("--init", whole, *options, "--steps", 1, "--learning-rate", 1e-30, "--out", out) == 0
    )
    assert (out / "tokenizer.json").read_bytes() == (whole / "tokenizer.json").read_bytes()
    before, after = tensors(whole), tensors(out)
    names = [name for name in before if "wte" in name and not name.startswith(("m.", "v."))]
    assert names
    for name in names:
        np.testing.assert_array_equal(before[name], after[name])


@pytest.mark.parametrize("extra", [["--preset", "tiny"], ["--tokenizer", "bpe"], ["--resume"]])
def test_what_a_trained_model_brings_cannot_be_chosen(whole, tmp_path, capsys, extra):
    assert train("--init", whole, *extra, "--out", tmp_path / "tuned") == 2
    assert "--init" in capsys.readouterr().err


def test_an_empty_name_is_no_folder(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert train(*SMALL, "--steps", 1, "--out", "") == 2
    assert "--out" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
