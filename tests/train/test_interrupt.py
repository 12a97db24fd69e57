"""Signals while a step runs, and those that come just after."""

import signal

import pytest

from gpt2lib.train import interrupt


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_is_noted_and_its_echo_dropped(number, capsys, monkeypatch):
    before = signal.getsignal(number)
    heard = []
    signal.signal(number, lambda *_: heard.append("the one before"))
    try:
        with interrupt.Interrupts() as interrupts:
            assert not interrupts.asked
            signal.raise_signal(number)
            signal.raise_signal(number)
            assert interrupts.asked
        signal.raise_signal(number)  # of the same key, but the loop has ended
        assert heard == []
        monkeypatch.setattr(interrupt, "_PATIENCE", -1.0)
        signal.raise_signal(number)  # another one, later: it is for who came before
        signal.raise_signal(number)
        assert heard == ["the one before"] * 2
        with interrupt.Interrupts():
            signal.raise_signal(number)
            with pytest.raises(KeyboardInterrupt, match="the last checkpoint is whole"):
                signal.raise_signal(number)
    finally:
        signal.signal(number, before)
    assert capsys.readouterr().err.count("stopping after this step") == 2


def test_without_a_signal_the_handlers_are_as_they_were():
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.getsignal(number) for number in numbers]
    with interrupt.Interrupts():
        assert [signal.getsignal(number) for number in numbers] != before
    assert [signal.getsignal(number) for number in numbers] == before
