import numpy as np
import pytest

from gpt2lib.exercises import ch07


def clip(gradients, limit):
    norm = np.sqrt(sum(float((g**2).sum()) for g in gradients))
    return [g * min(1.0, limit / max(norm, 1e-30)) for g in gradients]


def clip_each(gradients, limit):
    return [clip([g], limit)[0] for g in gradients]


def clip_always(gradients, limit):
    norm = np.sqrt(sum(float((g**2).sum()) for g in gradients))
    return [g * limit / norm for g in gradients]


def rate(step, peak, warmup, decay, steps):
    return peak * min(1.0, (step + 1) / warmup, (steps - step) / decay)


def rate_from_zero(step, peak, warmup, decay, steps):
    return peak * min(1.0, step / warmup, (steps - step) / decay)


def adamw(w, g, m, v, t, rate, beta1, beta2, eps, decay, *, corrected=True, inside=False, l2=False):
    if l2:
        g = g + decay * w
    m = beta1 * m + (1 - beta1) * g
    v = beta2 * v + (1 - beta2) * g**2
    c1, c2 = (1 - beta1**t, 1 - beta2**t) if corrected else (1, 1)
    root = np.sqrt(v / c2 + eps) if inside else np.sqrt(v / c2) + eps
    return w - rate * (0 if l2 else decay) * w - rate * m / c1 / root, m, v


@pytest.mark.parametrize(
    ("check", "right", "wrong"),
    [
        (ch07.check_first_step, 1.988, [1.99, 1.997, 2.0, ...]),
        (
            ch07.check_clip,
            clip,
            [clip_each, clip_always, lambda g, limit: g, lambda g, limit: None],
        ),
        (ch07.check_schedule, rate, [rate_from_zero, lambda *_: 0.4, lambda *_: ...]),
        (
            ch07.check_adamw,
            adamw,
            [
                lambda *a: adamw(*a, corrected=False),
                lambda *a: adamw(*a, inside=True),
                lambda *a: adamw(*a, l2=True),
                lambda *a: None,
            ],
        ),
    ],
)
def test_right_answers_pass_and_wrong_ones_do_not(check, right, wrong):
    assert check(right) is True
    assert [check(answer) for answer in wrong] == [False] * len(wrong)
