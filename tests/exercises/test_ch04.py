"""The checkers of chapter 4 know right answers from wrong ones, and say what is wrong."""

from __future__ import annotations

import numpy as np
import pytest

from gpt2lib import GPT2, GPT2Config, ops
from gpt2lib.exercises import ch04


def count(V, context, L, C):
    return (V + context) * C + L * (12 * C * C + 13 * C) + 2 * C


def fold(weight, bias, W, b):
    return weight[:, None] * W, bias @ W + b


def block(x, p, n_head, *, add=True, pre=True, serial=True):
    def norm(a, name):
        return ops.layernorm_forward(a, p[f"{name}.weight"], p[f"{name}.bias"])[0]

    def linear(a, name):
        return ops.linear_forward(a, p[f"{name}.weight"], p[f"{name}.bias"])

    def attention(a):
        z, _ = ops.attention_forward(linear(a, "attn.c_attn"), n_head)
        return linear(z, "attn.c_proj")

    def mlp(a):
        return linear(ops.gelu_forward(linear(a, "mlp.c_fc")), "mlp.c_proj")

    if not add:
        return mlp(norm(attention(norm(x, "ln_1")), "ln_2"))
    if not pre:
        middle = norm(x + attention(x), "ln_1")
        return norm(middle + mlp(middle), "ln_2")
    middle = x + attention(norm(x, "ln_1"))
    return middle + mlp(norm(middle if serial else x, "ln_2"))


def fails(*_):
    raise RuntimeError("oh")


THIRD = 1 / np.sqrt(3)
RIGHT_WRONG = {
    "layernorm": (
        ch04.check_layernorm,
        [-0.155, -0.155, -0.155, 4.464],
        [
            ([0, 0, 0, 4], "C - 1"),
            ([-THIRD, -THIRD, -THIRD, 3 * THIRD], "gain and bias"),
            ([0.845, 0.845, 0.845, 5.464], "first the gain"),
            ([1, 1, 1, 5], "take off"),
            ([1, 2], "four numbers"),
            ("x", "four numbers"),
        ],
    ),
    "count": (
        ch04.check_count,
        count,
        [
            (lambda V, c, L, C: count(V, c, L, C) + V * C, "shares wte"),
            (lambda V, c, L, C: count(V, c, L, C) - c * C, "wpe"),
            (lambda V, c, L, C: count(V, c, L, C) - 2 * C, "ln_f"),
            (lambda V, c, L, C: count(V, c, L, C) - L * 9 * C, "biases of the four"),
            (lambda V, c, L, C: count(V, c, L, C) - L * 4 * C, "two LayerNorms"),
            (lambda V, c, L, C: (V + c) * C + L * 12 * C * C, "only matrices"),
            (lambda V, c, L, C: 124_439_808, "gpt2-medium"),
            (lambda V, c, L, C: "many", "whole number"),
            (fails, "RuntimeError"),
            (3, "a function"),
        ],
    ),
    "crossover": (
        ch04.check_crossover,
        lambda C: 6 * C,
        [
            (lambda C: 3 * C, "two in the matrices"),
            (lambda C: 12 * C, "two products"),
            (lambda C: 768, "12 C²"),
            (fails, "RuntimeError"),
        ],
    ),
    "fold": (
        ch04.check_fold,
        fold,
        [
            (lambda w, c, W, b: (w[:, None] * W, b), "LayerNorm's bias"),
            (lambda w, c, W, b: (W, c @ W + b), "rows of W"),
            (lambda w, c, W, b: (w[:, None] * W, c @ (w[:, None] * W) + b), "LayerNorm's bias"),
            (lambda w, c, W, b: W, "two arrays"),
            (lambda w, c, W, b: (W.T, b), "shapes"),
            (fails, "RuntimeError"),
        ],
    ),
    "block": (
        ch04.check_block,
        block,
        [
            (lambda x, p, n: block(x, p, n, add=False), "nothing is added"),
            (lambda x, p, n: block(x, p, n, pre=False), "post-LN"),
            (lambda x, p, n: block(x, p, n, serial=False), "after attention"),
            (lambda x, p, n: block(x, p, 1), "in this order"),
            (lambda x, p, n: x[0], "keeps the shape"),
            (fails, "RuntimeError"),
        ],
    ),
}


@pytest.mark.parametrize("name", RIGHT_WRONG)
def test_right_answers_pass(name, capsys):
    check, right, _ = RIGHT_WRONG[name]
    assert check(right) is True
    assert capsys.readouterr().out.startswith("✓ ")


@pytest.mark.parametrize(
    ("name", "number"), [(name, i) for name, row in RIGHT_WRONG.items() for i in range(len(row[2]))]
)
def test_wrong_answers_fail_and_say_why(name, number, capsys):
    check, _, wrong = RIGHT_WRONG[name]
    answer, words = wrong[number]
    assert check(answer) is False
    out = capsys.readouterr().out
    assert out.startswith("✗ ")
    assert words in out


def test_dots_are_no_answer_and_no_error(capsys):
    assert ch04.check_layernorm(...) is False
    for check in (ch04.check_count, ch04.check_crossover, ch04.check_fold, ch04.check_block):
        assert check(lambda *_: ...) is False
    assert capsys.readouterr().out.count("not answered yet") == 5


def test_the_checkers_block_is_the_models():
    """The loops against which answers are checked agree with the model's own block."""
    config = GPT2Config(vocab_size=11, context=6, layers=1, heads=2, channels=8)
    model = GPT2(config, dtype=np.float64, seed=0)
    for values in model.parameters.values():
        values += 0.2 * np.random.default_rng(1).standard_normal(values.shape)
    with model.record("embedding", "h.0") as seen:
        model.forward([[1, 2, 3, 4, 5]])
    p = {
        name.removeprefix("h.0."): values
        for name, values in model.parameters.items()
        if name.startswith("h.0.")
    }
    np.testing.assert_allclose(ch04._block(seen["embedding"], p, 2), seen["h.0"], rtol=1e-9)
