"""Checkers of chapter 6, the backward pass."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np

from gpt2lib.exercises import answered, checker, verdict

__all__ = ["check_culprit", "check_rmsnorm", "check_scatter_add", "check_square", "suspect"]

Array = np.ndarray[Any, Any]


@checker
def check_square(function: Callable[[Array, Array, Array], Any]) -> bool:
    """Check the backward of an elementwise square, which must add."""
    rng = np.random.default_rng(0)
    dout, x, before = rng.standard_normal((3, 2, 5))
    dx = before.copy()
    function(dout, x, dx)
    if np.array_equal(dx, before):
        return _unchanged("dx")
    if np.allclose(dx, 2 * x * dout):
        return verdict(False, "", "What was in dx before is gone: add to it, do not replace it.")
    return verdict(
        np.allclose(dx, before + 2 * x * dout),
        "The slope of x² is 2x, and it is added.",
        "The slope of x² is 2x; multiply it by what comes from the right.",
    )


def _unchanged(name: str) -> bool:
    """Say that a buffer is as it was before: no answer yet, or one that is not in place."""
    print(f"… {name} is as it was before: not answered yet, or not added to in place.")
    return False


@checker
def check_scatter_add(function: Callable[[Array, Array, Array], Any]) -> bool:
    """Check a scatter-add with repeated rows."""
    rng = np.random.default_rng(1)
    ids = np.array([3, 0, 3, 3, 1])
    g = rng.standard_normal((5, 4))
    dW = np.ones((5, 4))
    want = dW.copy()
    for i, row in zip(ids, g, strict=True):
        want[i] += row
    function(dW, ids, g)
    if np.array_equal(dW, np.ones((5, 4))):
        return _unchanged("dW")
    if np.allclose(dW[[0, 1, 2, 4]], want[[0, 1, 2, 4]]) and not np.allclose(dW[3], want[3]):
        return verdict(False, "", "Row 3 occurs three times in ids, but got one gradient only.")
    return verdict(
        np.allclose(dW, want), "Every occurrence counts.", "Each row g[n] belongs to dW[ids[n]]."
    )


@checker
def check_rmsnorm(function: Callable[[Array, Array, float], Any]) -> bool:
    """Check RMSNorm's backward by finite differences."""
    rng = np.random.default_rng(2)
    x, dout = rng.standard_normal((2, 3, 6))
    got = function(dout.copy(), x.copy(), 0.1)
    if not answered(got):
        return False

    def loss(x: Array) -> float:
        return float((dout * x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + 0.1)).sum())

    want = np.empty_like(x)
    for at in np.ndindex(x.shape):
        step = np.zeros_like(x)
        step[at] = 1e-5
        want[at] = (loss(x + step) - loss(x - step)) / 2e-5
    if np.shape(got) != want.shape:
        return verdict(False, "", f"dx should have the shape {want.shape} of x.")
    return verdict(
        np.allclose(got, want, atol=1e-7),
        "It agrees with finite differences.",
        "It differs from finite differences. The root depends on every channel: which term?",
    )


def suspect() -> Any:
    """Return a model, in float64, with a fault in one operation's backward."""
    from gpt2lib import GPT2, GPT2Config, ops

    def faulty(
        dout: Array, qkv: Array, out: Array, lse: Array, heads: int, *, dqkv: Array
    ) -> Array:
        sums = np.zeros_like(out)  # forgets the softmax's sum
        return ops.attention_backward(dout, qkv, sums, lse, heads, dqkv=dqkv)

    config = GPT2Config(vocab_size=13, context=8, layers=2, heads=2, channels=8)
    model = GPT2(config, seed=0, dtype=np.float64)
    noise = np.random.default_rng(3).standard_normal(config.parameter_count)
    model.parameters.flat[:] += 0.3 * noise
    names = {name: getattr(ops, name) for name in ops.__all__}
    model.ops = SimpleNamespace(**{**names, "attention_backward": faulty})
    return model


@checker
def check_culprit(culprit: Any) -> bool:
    """Check the name of the faulty operation."""
    if not answered(culprit):
        return False
    return verdict(
        culprit == "attention",
        "c_proj, after it, is green; c_attn, before it, is red.",
        "Which is the last tensor of the forward that is red, and what stands right behind it?",
    )
