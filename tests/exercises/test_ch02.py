import numpy as np
import pytest

from gpt2lib.exercises import ch02


def closest(table, i):
    unit = table / np.linalg.norm(table, axis=1, keepdims=True)
    cosine = unit @ unit[i]
    cosine[i] = -np.inf
    return int(np.argmax(cosine))


def closest_by_dot(table, i):
    dots = table @ table[i]
    dots[i] = -np.inf
    return int(np.argmax(dots))


def waves(context, channels, swapped=False, base=10000):
    angle = np.arange(context)[:, None] / base ** (np.arange(0, channels, 2) / channels)
    table = np.empty((context, channels))
    table[:, int(swapped) :: 2] = np.sin(angle)
    table[:, int(not swapped) :: 2] = np.cos(angle)
    return table


@pytest.mark.parametrize(
    ("check", "right", "wrong"),
    [
        (ch02.check_count, 82_049_600, [50257 * 1600, 50257 + 1024, ...]),
        (ch02.check_closest, closest, [closest_by_dot, lambda table, i: i, lambda *_: None]),
        (
            ch02.check_waves,
            waves,
            [
                lambda t, c: waves(t, c, swapped=True),
                lambda t, c: waves(t, c, base=100),
                lambda t, c: waves(t, c).T,
                lambda *_: ...,
            ],
        ),
        (ch02.check_bag, True, [False, ..., "yes"]),
    ],
)
def test_right_answers_pass_and_wrong_ones_do_not(check, right, wrong):
    assert check(right) is True
    assert [check(answer) for answer in wrong] == [False] * len(wrong)
