"""What is shown while a run goes on: a bar on a terminal, lines in a file, nothing when asked."""

import io
import sys
import warnings

import pytest

from gpt2lib.train.progress import Progress

RECORD = {"step": 10, "loss": 2.0, "tokens_per_second": 1000.0}


class Terminal(io.StringIO):
    def isatty(self):
        return True


def shown(stream, monkeypatch, records, **options):
    monkeypatch.setattr(sys, "stderr", stream)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with Progress(0, 40, 64, **{"floor": 0.5, **options}) as progress:
            for record in records:
                progress.show(record)
    return stream.getvalue()


def test_a_file_gets_a_line_at_every_evaluation(monkeypatch):
    evaluated = {**RECORD, "step": 20, "validation_loss": 1.5}
    text = shown(io.StringIO(), monkeypatch, [RECORD, evaluated])
    # 20 steps of 64 tokens at 1000 a second: 1.28 s are left
    assert text == "step 20/40: loss 2.000, val 1.500 (floor 0.500), 1,000 tok/s, 0:01 left\n"


def test_a_terminal_gets_a_bar(monkeypatch):
    text = shown(Terminal(), monkeypatch, [RECORD] * 40)
    last = text.strip().split("\r")[-1]
    assert "100%" in last
    assert "40/40" in last
    assert "loss 2.000, 1,000 tok/s" in last


def test_nothing_when_nothing_is_asked_for(monkeypatch):
    evaluated = {**RECORD, "validation_loss": 1.5}
    for stream in (io.StringIO(), Terminal()):
        assert shown(stream, monkeypatch, [evaluated], show=False) == ""


@pytest.mark.parametrize("floor", [None, 0.5])
def test_a_floor_is_shown_where_it_is_known(monkeypatch, floor):
    evaluated = {**RECORD, "validation_loss": 1.5}
    text = shown(io.StringIO(), monkeypatch, [evaluated], floor=floor)
    assert ("floor" in text) == (floor is not None)
