import numpy as np
import pytest

from gpt2lib.exercises import ch05


def naive(z):
    return np.log(np.exp(z).sum())


def stable(z):
    return z.max() + np.log(np.exp(z - z.max()).sum())


def softmax(z):
    return np.exp(z - z.max()) / np.exp(z - z.max()).sum()


def smoothed(z, y, epsilon):
    return softmax(z) - (1 - epsilon) * np.eye(z.size)[y] - epsilon / z.size


def hard(z, y, epsilon):
    return softmax(z) - np.eye(z.size)[y]


@pytest.mark.parametrize(
    ("check", "right", "wrong"),
    [
        (ch05.check_surprise, 2 * np.log(2), [2.0, 0.0, np.log(2)]),
        (ch05.check_log_sum_exp, stable, [naive, lambda z: z.max(), lambda z: ...]),
        (
            ch05.check_label_smoothing,
            smoothed,
            [hard, lambda z, y, e: -smoothed(z, y, e), lambda *_: 0],
        ),
    ],
)
def test_right_answers_pass_and_wrong_ones_do_not(check, right, wrong, capsys):
    assert check(right) is True
    for answer in wrong:
        assert check(answer) is False
    assert "✗" in capsys.readouterr().out


def test_dots_are_no_answer_and_no_error(capsys):
    assert ch05.check_surprise(...) is False
    assert ch05.check_log_sum_exp(lambda z: None) is False
    assert ch05.check_label_smoothing(lambda z, y, epsilon: ...) is False
    assert capsys.readouterr().out.count("not answered yet") == 3


def test_bits_per_byte():
    right = 0.9 * 260 / 1000 / np.log(2)
    assert ch05.check_bits_per_byte(right, loss=0.9, tokens=260, size=1000)
    assert not ch05.check_bits_per_byte(0.9, loss=0.9, tokens=260, size=1000)
    assert not ch05.check_bits_per_byte(..., loss=0.9, tokens=260, size=1000)
