"""Checkers of the chapter template (``book/_templates/chapter.md``): an example to copy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gpt2lib.exercises import answered, checker, verdict

__all__ = ["check_entropy", "check_shift", "check_temperature"]


@checker
def check_shift(difference: Any) -> bool:
    """Check the largest difference between softmax(x) and softmax(x + 1000)."""
    if not answered(difference):
        return False
    return verdict(
        bool(np.abs(difference) < 1e-6),
        "A shift changes nothing: it cancels between numerator and denominator.",
        "The two should agree to rounding. Did you shift every element by the same number?",
    )


@checker
def check_temperature(function: Callable[..., Any] | None) -> bool:
    """Check a softmax with a temperature."""
    x = np.array([[1.0, 2.0, 4.0]])
    got: Any = function(x, 2.0) if callable(function) else function
    if not answered(got):
        return False
    want = np.exp(x / 2.0) / np.exp(x / 2.0).sum(axis=-1, keepdims=True)
    if np.shape(got) != want.shape:
        return verdict(False, "", f"The shape should stay {want.shape}, but it is {np.shape(got)}.")
    return verdict(
        np.allclose(got, want),
        "Dividing by the temperature before the softmax is all there is to it.",
        "Divide the scores by the temperature first; then use softmax_forward.",
    )


@checker
def check_entropy(nats: Any) -> bool:
    """Check the entropy of a uniform distribution over eight outcomes, in nats."""
    if not answered(nats):
        return False
    return verdict(
        bool(np.isclose(nats, np.log(8), atol=1e-3)),
        "log 8 nats: the most that eight outcomes can have.",
        "Use the natural logarithm; a base of 2 gives bits.",
    )
