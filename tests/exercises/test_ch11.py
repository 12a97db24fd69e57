import numpy as np
import pytest

from gpt2lib.exercises import ch11
from gpt2lib.perf.scaling import amdahl


def rounds(chunks, threads):
    return chunks / -(-chunks // threads)


def folded(chunks, threads):
    parts = [[] for _ in range(threads)]
    for at in range(chunks):
        turn, place = divmod(at, threads)
        parts[place if turn % 2 == 0 else threads - 1 - place].append(at)
    return parts


def pairs(chunks, threads):
    """The first with the last, and so on: another right answer."""
    both = [(i, chunks - 1 - i) for i in range(chunks // 2)]
    return [[c for pair in both[t::threads] for c in pair] for t in range(threads)]


def fixed_chunks(dout, threads):
    total = np.zeros(dout.shape[1], np.float32)
    for at in range(0, len(dout), 64):
        total += dout[at : at + 64].sum(0)
    return total


def by_columns(dout, threads):
    return np.array([column.sum() for column in dout.T])


def a_part_a_thread(dout, threads):
    total = np.zeros(dout.shape[1], np.float32)
    for part in np.array_split(dout, threads):
        total += part.sum(0)
    return total


CASES = [
    (ch11.check_rounds, [rounds], [
        lambda n, p: min(n, p), lambda n, p: n / (n // p + 1), lambda n, p: p, lambda n, p: "8",
    ]),
    (ch11.check_deal, [folded, pairs], [
        lambda n, p: [list(range(n))[t::p] for t in range(p)],  # cyclic
        lambda n, p: [part.tolist() for part in np.array_split(np.arange(n), p)],  # static
        lambda n, p: folded(n, p)[:-1],
        lambda n, p: [[0]] * p,
        lambda n, p: n,
    ]),
    (ch11.check_same_bits, [fixed_chunks, by_columns], [
        a_part_a_thread,
        lambda d, p: a_part_a_thread(d.astype(np.float64), p).astype(np.float64),
        lambda d, p: d.sum(0, np.float64),
        lambda d, p: d[: len(d) // p].sum(0),
        lambda d, p: "sum",
    ]),
]  # fmt: skip


@pytest.mark.parametrize(("check", "right", "wrong"), CASES)
def test_functions(check, right, wrong, capsys):
    for answer in right:
        assert check(answer) is True
        assert "✓" in capsys.readouterr().out
    for answer in wrong:
        assert check(answer) is False
        assert "✗" in capsys.readouterr().out


def test_the_serial_part():
    """Put back into Amdahl's law."""
    right = min(np.linspace(0, 0.1, 100001), key=lambda f: abs(amdahl(112, f) - 24.7))
    assert ch11.check_serial_part(right, gain=24.7, threads=112) is True
    for wrong in (1 / 24.7, 24.7 / 112, 1 - right, right / 2, "3 %"):
        assert ch11.check_serial_part(wrong, gain=24.7, threads=112) is False


def test_the_fastest_number_of_threads():
    """40/p + 4 log2 p: 17.01 at 6, 16.94 at 7, 17 at 8."""
    assert ch11.check_fastest(7, work=40, hand_over=4) is True
    for wrong in (6, 8, 112, 6.93):
        assert ch11.check_fastest(wrong, work=40, hand_over=4) is False


def test_dots_are_no_answer_and_no_error(capsys):
    assert ch11.check_serial_part(..., gain=24.7, threads=112) is False
    assert ch11.check_fastest(None, work=40, hand_over=4) is False
    for check, _, _ in CASES:
        assert check(lambda a, b: ...) is False
    assert capsys.readouterr().out.count("not answered yet") == 5
