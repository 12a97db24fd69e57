import numpy as np
import pytest

from gpt2lib import check
from gpt2lib.exercises import ch06


def square(dout, x, dx):
    dx += 2 * x * dout


def square_replaces(dout, x, dx):
    dx[:] = 2 * x * dout


def square_half(dout, x, dx):
    dx += x * dout


def scatter(dW, ids, g):
    np.add.at(dW, ids, g)


def scatter_once(dW, ids, g):
    dW[ids] += g


def rmsnorm(dout, x, eps, third=True):
    rstd = 1 / np.sqrt((x * x).mean(axis=-1, keepdims=True) + eps)
    x_hat = x * rstd
    along = (dout * x_hat).mean(axis=-1, keepdims=True) if third else 0
    return rstd * (dout - x_hat * along)


@pytest.mark.parametrize(
    ("checker", "right", "wrong"),
    [
        (ch06.check_square, square, [square_replaces, square_half, lambda *_: None]),
        (ch06.check_scatter_add, scatter, [scatter_once, lambda *_: None]),
        (
            ch06.check_rmsnorm,
            rmsnorm,
            [lambda d, x, e: rmsnorm(d, x, e, third=False), lambda *_: None, lambda d, x, e: 0.0],
        ),
        (ch06.check_culprit, "attention", ["linear", "head", "layernorm", ...]),
    ],
)
def test_right_answers_pass_and_wrong_ones_do_not(checker, right, wrong):
    assert checker(right) is True
    assert [checker(answer) for answer in wrong] == [False] * len(wrong)


def test_the_suspect_can_be_convicted():
    red = check.check_gradients(ch06.suspect()).failed
    assert "h.1.attn.c_attn.weight" in red
    assert "h.1.attn.c_proj.weight" not in red
    assert "h.1.mlp.c_fc.weight" not in red
