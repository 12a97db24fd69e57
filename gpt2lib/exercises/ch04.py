"""The checkers of chapter 4, the block."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from gpt2lib.exercises import answered, checker, verdict

__all__ = ["check_block", "check_count", "check_crossover", "check_fold", "check_layernorm"]

Array = np.ndarray[Any, Any]

# Parameters of the released checkpoints: V, context, L, C and the count.
_RELEASED = {
    "gpt2": (50257, 1024, 12, 768, 124_439_808),
    "gpt2-medium": (50257, 1024, 24, 1024, 354_823_168),
    "gpt2-large": (50257, 1024, 36, 1280, 774_030_080),
    "gpt2-xl": (50257, 1024, 48, 1600, 1_557_611_200),
}


@checker
def check_layernorm(answer: Any) -> bool:
    """Check LayerNorm of [1, 1, 1, 5] with gain 2 and bias 1, by hand (eps neglected)."""
    if not answered(answer):
        return False
    got = _numbers(answer)
    if got is None or got.shape != (4,):
        return verdict(False, "", "four numbers go in, four come out.")
    x_hat = np.array([-1, -1, -1, 3]) / math.sqrt(3)
    if np.allclose(got, 2 * np.array([-1, -1, -1, 3]) / 2 + 1, atol=5e-3):
        return verdict(False, "", "the variance is divided by C = 4, not by C - 1.")
    if np.allclose(got, x_hat, atol=5e-3):
        return verdict(False, "", "that is x-hat; gain and bias are still to come.")
    if np.allclose(got, 2 * (x_hat + 1), atol=5e-3):
        return verdict(False, "", "first the gain, then the bias.")
    return verdict(
        np.allclose(got, 2 * x_hat + 1, atol=5e-3),
        "mean 2, variance 3; three small numbers stand against a large one, whatever the gain.",
        "take off the mean 2, divide by the root of the variance 3, times 2, plus 1.",
    )


@checker
def check_count(function: Callable[[int, int, int, int], Any]) -> bool:
    """Check a function (V, context, L, C) -> parameters against the released checkpoints."""
    for name, (V, context, L, C, want) in _RELEASED.items():
        got = function(V, context, L, C)
        if not answered(got):
            return False
        if got != want:
            return verdict(False, "", f"{name}: {_missing(got, V, context, L, C, want)}")
    return verdict(True, "all four sizes, to the last parameter.", "")


@checker
def check_crossover(function: Callable[[int], Any]) -> bool:
    """Check the T at which attention costs as much as the matrices of a block, for a given C."""
    for C in (128, 768, 1600):
        got = function(C)
        if not answered(got):
            return False
        if not np.isclose(float(got), 6 * C):
            hints = {
                3 * C: "a multiply-add counts as two in the matrices too: 2 · 12 C² a token.",
                12 * C: "attention has two products, q·k and p·v: 4 T C a token.",
            }
            default = "per token and block: 2 · 12 C² in the four matrices, 4 T C in attention."
            return verdict(False, "", hints.get(int(got), default))
    return verdict(True, "T = 6 C: 4,608 tokens for GPT-2, far beyond its context.", "")


@checker
def check_fold(function: Callable[[Array, Array, Array, Array], Any]) -> bool:
    """Check that LayerNorm's gain and bias were folded into the linear layer after it.

    ``function(weight, bias, W, b)`` returns W2, b2 with x_hat @ W2 + b2 equal to
    (weight * x_hat + bias) @ W + b for every x_hat.
    """
    rng = np.random.default_rng(7)
    for C, out in ((3, 5), (8, 4)):
        x_hat, W = rng.standard_normal((6, C)), rng.standard_normal((C, out))
        weight, bias, b = rng.standard_normal(C), rng.standard_normal(C), rng.standard_normal(out)
        got = function(weight.copy(), bias.copy(), W.copy(), b.copy())
        if not answered(got):
            return False
        if not (isinstance(got, tuple) and len(got) == 2):
            return verdict(False, "", "return two arrays: the new matrix and the new bias.")
        W2, b2 = map(_numbers, got)
        if W2 is None or b2 is None or W2.shape != (C, out) or b2.shape != (out,):
            return verdict(False, "", f"the shapes stay ({C}, {out}) and ({out},).")
        want = np.array([(weight * row + bias) @ W + b for row in x_hat])
        if np.allclose(x_hat @ W2 + b, want - bias @ W) and not np.allclose(b2, bias @ W + b):
            return verdict(False, "", "the matrix is right; what does LayerNorm's bias become?")
        if not np.allclose(x_hat @ W2 + b2, want):
            return verdict(False, "", "the gain scales the rows of W: channel c meets row c.")
    return verdict(True, "gain into the rows of W, bias through W into b: nothing is lost.", "")


@checker
def check_block(function: Callable[..., Any]) -> bool:
    """Check a whole block: ``function(x, p, n_head)`` with x (B, T, C), p a dict of parameters.

    The names in ``p`` are those of a checkpoint without ``h.0.``: ``ln_1.weight``, …
    """
    rng = np.random.default_rng(8)
    C, NH = 8, 2
    p = {
        name: (1.0 if name.endswith("weight") and "ln" in name else 0.0)
        + 0.3 * rng.standard_normal(shape)
        for name, shape in _shapes(C).items()
    }
    x = rng.standard_normal((2, 5, C))
    got = function(x.copy(), {name: a.copy() for name, a in p.items()}, NH)
    if not answered(got):
        return False
    numbers = _numbers(got)
    if numbers is None or numbers.shape != x.shape:
        return verdict(False, "", f"a block keeps the shape: {x.shape} in, {x.shape} out.")
    if np.allclose(numbers, _block(x, p, NH), atol=1e-6):
        return verdict(True, "it agrees with a block written in plain loops.", "")
    mistakes = {
        "nothing is added: both sub-layers write into the stream, x + …": {"add": False},
        "that is post-LN: GPT-2 normalises what goes into a sub-layer.": {"pre": False},
        "the MLP must see the stream after attention has written to it.": {"serial": False},
    }
    for words, switches in mistakes.items():
        if np.allclose(numbers, _block(x, p, NH, **switches), atol=1e-6):
            return verdict(False, "", words)
    return verdict(
        False,
        "",
        "ln_1, c_attn, attention, c_proj, add; ln_2, c_fc, GELU, c_proj, add: in this order.",
    )


def _numbers(answer: Any) -> Array | None:
    """Return an answer as a float array, or None if it is none."""
    try:
        return np.asarray(answer, dtype=np.float64)
    except (TypeError, ValueError):
        return None


def _missing(got: Any, V: int, context: int, L: int, C: int, want: int) -> str:
    """Say what a wrong count has too much or too little of."""
    try:
        difference = int(got) - want
    except (TypeError, ValueError):
        return f"a whole number is asked for, not {got!r}."
    reasons = {
        V * C: "the head shares wte: count that matrix once.",
        -context * C: "wpe is missing.",
        -2 * C: "the last LayerNorm, ln_f, is missing.",
        -L * 9 * C: "the biases of the four linear layers are missing.",
        -L * 4 * C: "the two LayerNorms of each block are missing.",
        -L * 13 * C - 2 * C: "only matrices are counted: biases and LayerNorms are missing.",
    }
    return reasons.get(difference, f"your count is off by {difference:+,}.")


def _shapes(C: int) -> dict[str, tuple[int, ...]]:
    linear = {"attn.c_attn": (C, 3 * C), "attn.c_proj": (C, C)}
    linear |= {"mlp.c_fc": (C, 4 * C), "mlp.c_proj": (4 * C, C)}
    shapes: dict[str, tuple[int, ...]] = {}
    for name, shape in linear.items():
        shapes |= {f"{name}.weight": shape, f"{name}.bias": shape[1:]}
    for name in ("ln_1", "ln_2"):
        shapes |= {f"{name}.weight": (C,), f"{name}.bias": (C,)}
    return shapes


def _block(
    x: Array, p: dict[str, Array], NH: int, *, add: bool = True, pre: bool = True,
    serial: bool = True,
) -> Array:  # fmt: skip
    """Return a block's output, from formulas alone, with the usual mistakes on demand."""

    def norm(a: Array, name: str) -> Array:
        var = a.var(-1, keepdims=True)
        a = (a - a.mean(-1, keepdims=True)) / np.sqrt(var + 1e-5)
        return a * p[f"{name}.weight"] + p[f"{name}.bias"]

    def linear(a: Array, name: str) -> Array:
        return a @ p[f"{name}.weight"] + p[f"{name}.bias"]

    def attention(a: Array) -> Array:
        q, k, v = np.split(linear(a, "attn.c_attn"), 3, axis=-1)
        out, hs = np.zeros_like(a), a.shape[-1] // NH
        for b, i, h in np.ndindex(*a.shape[:2], NH):
            s = slice(h * hs, (h + 1) * hs)
            w = np.exp([q[b, i, s] @ k[b, j, s] / math.sqrt(hs) for j in range(i + 1)])
            out[b, i, s] = w @ v[b, : i + 1, s] / w.sum()
        return linear(out, "attn.c_proj")

    def mlp(a: Array) -> Array:
        u = linear(a, "mlp.c_fc")
        bent = 0.5 * u * (1 + np.tanh(math.sqrt(2 / math.pi) * (u + 0.044715 * u**3)))
        return linear(bent, "mlp.c_proj")

    if not add:
        return mlp(norm(attention(norm(x, "ln_1")), "ln_2"))
    if not pre:
        middle = norm(x + attention(x), "ln_1")
        return norm(middle + mlp(middle), "ln_2")
    middle = x + attention(norm(x, "ln_1"))
    return middle + mlp(norm(middle if serial else x, "ln_2"))
