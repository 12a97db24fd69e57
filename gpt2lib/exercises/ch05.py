"""Checkers of chapter 5, cross-entropy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gpt2lib.exercises import answered, checker, verdict

__all__ = [
    "check_bits_per_byte",
    "check_label_smoothing",
    "check_log_sum_exp",
    "check_surprise",
]

Array = np.ndarray[Any, Any]


@checker
def check_surprise(mean_loss: Any) -> bool:
    """Check the mean loss, in nats, of probabilities 1/2, 1/4 and 1/8."""
    if not answered(mean_loss):
        return False
    return verdict(
        bool(np.isclose(mean_loss, 2 * np.log(2), rtol=1e-3)),
        "2 bits, that is 1.386 nats.",
        "Take the natural logarithm of each, change the sign, then take the mean of the three.",
    )


@checker
def check_log_sum_exp(function: Callable[[Array], Any]) -> bool:
    """Check a log-sum-exp on ordinary logits and on logits of ±1000, in float32."""
    rng = np.random.default_rng(5)
    cases = {
        "[1000, 0, 0]": np.array([1000, 0, 0], np.float32),
        "[-1000, -1000]": np.array([-1000, -1000], np.float32),
        "50 ordinary logits": rng.standard_normal(50).astype(np.float32),
    }
    for name, z in cases.items():
        with np.errstate(all="ignore"):
            got = function(z.copy())
        if not answered(got):
            return False
        wide = z.astype(np.float64)
        want = wide.max() + np.log(np.exp(wide - wide.max()).sum())
        if not np.allclose(got, want, rtol=1e-5):
            return verdict(
                False,
                "",
                f"For {name} it should be {want:.4f}, but it is {got}. Is the max off first?",
            )
    return verdict(True, "It holds for ordinary logits and for logits of ±1000.", "")


@checker
def check_bits_per_byte(answer: Any, *, loss: float, tokens: int, size: int) -> bool:
    """Check bits per byte, from nats per token."""
    if not answered(answer):
        return False
    want = loss * tokens / np.log(2) / size
    return verdict(
        bool(np.isclose(answer, want, rtol=1e-3)),
        "Now two tokenisers can be compared.",
        "All nats of the text, divided by ln 2 to make bits, divided by the number of bytes.",
    )


@checker
def check_label_smoothing(function: Callable[[Array, int, float], Any]) -> bool:
    """Check the gradient of the logits under label smoothing, by finite differences."""
    z = np.random.default_rng(6).standard_normal(7)
    for epsilon in (0.0, 0.1, 0.5):
        got = function(z.copy(), 2, epsilon)
        if not answered(got):
            return False
        if np.shape(got) != z.shape:
            return verdict(
                False, "", f"The gradient should have the shape {z.shape} of the logits."
            )
        if not np.allclose(got, _smoothed_differences(z, 2, epsilon), atol=1e-6):
            return verdict(
                False, "", f"It differs from finite differences for epsilon {epsilon}: p − truth?"
            )
    return verdict(True, "It agrees with finite differences for 0, 0.1 and 0.5.", "")


def _smoothed_differences(z: Array, target: int, epsilon: float) -> Array:
    """Return the gradient of the smoothed loss by central differences."""

    def loss(z: Array) -> float:
        log_p = z - z.max() - np.log(np.exp(z - z.max()).sum())
        truth = np.full(z.size, epsilon / z.size)
        truth[target] += 1 - epsilon
        return float(-(truth * log_p).sum())

    step = 1e-5 * np.eye(z.size)
    return np.array([loss(z + e) - loss(z - e) for e in step]) / 2e-5
