"""Checkers of chapter 7, AdamW."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gpt2lib.exercises import answered, checker, verdict

__all__ = ["check_adamw", "check_clip", "check_first_step", "check_schedule"]

Array = np.ndarray[Any, Any]


@checker
def check_first_step(weight: Any) -> bool:
    """Check a weight of 2 after one step at rate 0.01 with decay 0.1."""
    if not answered(weight):
        return False
    return verdict(
        bool(np.isclose(weight, 1.988, atol=1e-5)),
        "2 − 0.002 − 0.01: decay first, then one learning rate.",
        "Two things are taken off: rate · decay · weight, and the first step's length.",
    )


@checker
def check_clip(function: Callable[[list[Array], float], Any]) -> bool:
    """Check clipping by the norm of all gradients together."""
    long = [np.array([3.0, 0.0]), np.array([[4.0]])]  # norm 5
    cases = [(long, 1.0, 0.2), (long, 10.0, 1.0), ([np.zeros(3)], 1.0, 1.0)]
    for gradients, limit, factor in cases:
        with np.errstate(all="ignore"):
            got = function([g.copy() for g in gradients], limit)
        if not answered(got):
            return False
        want = [g * factor for g in gradients]
        fits = len(got) == len(want) and all(
            np.shape(a) == b.shape and np.allclose(a, b) for a, b in zip(got, want, strict=True)
        )
        if not fits:
            norm = float(np.sqrt(sum((g**2).sum() for g in gradients)))
            return verdict(
                False, "", f"With a norm of {norm:g} and a limit of {limit:g}, scale by {factor:g}."
            )
    return verdict(True, "One factor for all of them, and never more than 1.", "")


@checker
def check_schedule(function: Callable[..., Any]) -> bool:
    """Check a schedule of warm-up, plateau and linear decay."""
    peak, warmup, decay, steps = 0.4, 4, 5, 20
    ramp = [peak * (s + 1) / warmup for s in range(warmup)]
    fall = [peak * (decay - s) / decay for s in range(decay)]
    want = [*ramp, *[peak] * (steps - warmup - decay), *fall]
    for step, expected in enumerate(want):
        got = function(step, peak, warmup, decay, steps)
        if not answered(got):
            return False
        if not np.isclose(got, expected):
            return verdict(
                False,
                "",
                f"At step {step} of {steps} it should be {expected:g}, but it is {got:g}.",
            )
    return verdict(True, "Up, along, and down, without a jump.", "")


@checker
def check_adamw(function: Callable[..., Any]) -> bool:
    """Check AdamW over five steps against a plain float64 version."""
    rng = np.random.default_rng(7)
    rate, beta1, beta2, eps, decay = 0.05, 0.9, 0.99, 1e-3, 0.2
    w = rng.standard_normal(6)
    theirs = (w.copy(), np.zeros(6), np.zeros(6))
    m, v = np.zeros(6), np.zeros(6)
    for t in range(1, 6):
        g = rng.standard_normal(6)
        theirs = function(
            theirs[0], g.copy(), theirs[1], theirs[2], t, rate, beta1, beta2, eps, decay
        )
        if not answered(theirs):
            return False
        m += (1 - beta1) * (g - m)
        v += (1 - beta2) * (g * g - v)
        ratio = (m / (1 - beta1**t)) / ((v / (1 - beta2**t)) ** 0.5 + eps)
        w = w - rate * (decay * w + ratio)
        for name, a, b in zip(("w", "m", "v"), theirs, (w, m, v), strict=True):
            if np.shape(a) != b.shape or not np.allclose(a, b, rtol=1e-9):
                return verdict(
                    False,
                    "",
                    f"{name} is wrong at step {t}. Bias corrections? eps outside the root? "
                    "Decay beside the moments?",
                )
    return verdict(True, "Five steps agree.", "")
