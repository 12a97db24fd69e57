"""Checkers of chapter 8, training and generation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gpt2lib.exercises import answered, checker, verdict
from gpt2lib.exercises._verdict import close

__all__ = [
    "check_cache_bytes",
    "check_gumbel",
    "check_nucleus",
    "check_window",
    "check_years",
]

Array = np.ndarray[Any, Any]


@checker
def check_window(ids: Any, targets: Any) -> bool:
    """Check the second window of T = 3 of the stream 9, 4, 7, 2, 9, 5, 8, 9."""
    if not (answered(ids) and answered(targets)):
        return False
    got = (_numbers(ids), _numbers(targets))
    if got == ([2, 9, 5], [2, 9, 5]):
        return verdict(False, "", "A model that is asked for what it sees learns to copy. Shift!")
    if got[0] != [2, 9, 5]:
        hint = "Windows touch: the second begins where the first one's inputs ended."
        return verdict(False, "", f"The inputs are not right. {hint}")
    if got[1] != [9, 5, 8]:
        return verdict(
            False, "", "The targets are not right: each is the token that follows its input."
        )
    return verdict(True, "And the last target is an input of nobody: the stream ends in 9.", "")


def _numbers(answer: Any) -> list[int]:
    try:
        return [int(number) for number in np.asarray(answer).ravel()]
    except (TypeError, ValueError):
        return []


@checker
def check_years(answer: Any, *, parameters: float, tokens: float, rate: float) -> bool:
    """Check how many years 6·N·D operations take at a rate in operations a second."""
    if not answered(answer):
        return False
    want = 6 * parameters * tokens / rate / (365.25 * 86400)
    right, message = close(answer, want, 0.02, "the number of years")
    return verdict(
        right,
        message,
        f"{message} Six operations for each parameter and token, divided by the rate, then by "
        "the seconds of a year.",
    )


@checker
def check_cache_bytes(answer: Any, *, config: Any) -> bool:
    """Check the size of a full key/value cache of one sequence, in bytes of float32."""
    if not answered(answer):
        return False
    want = 2 * config.layers * config.context * config.channels * 4
    right, message = close(answer, want, 0.01, "the size in bytes")
    hint = (
        "A key and a value, in every layer, for every position, C numbers each, 4 bytes a number."
    )
    return verdict(right, message, f"{message} {hint}")


_NUCLEI = (  # probabilities, top-p, how many stay
    ([0.5, 0.41, 0.09], 0.9, 2),
    ([0.4, 0.3, 0.2, 0.1], 0.8, 3),
    ([0.3, 0.1, 0.1, 0.5], 0.8, 2),  # 0.5 + 0.3 is exactly enough
    ([0.2, 0.7, 0.1], 1e-9, 1),
    ([0.2, 0.7, 0.1], 1.0, 3),
)


@checker
def check_nucleus(function: Callable[[Array, float], Any]) -> bool:
    """Check a top-p filter: what stays is the smallest set that reaches p, and sums to 1."""
    for probabilities, top_p, keep in _NUCLEI:
        p = np.array(probabilities)
        got = function(p.copy(), top_p)
        if not answered(got):
            return False
        stay = np.argsort(-p)[:keep]
        want = np.zeros_like(p)
        want[stay] = p[stay] / p[stay].sum()
        right, message = close(got, want, 1e-6, f"for p = {probabilities} and top-p {top_p:g} it")
        if not right:
            kept = f" {keep} should stay: the first ones, in order, whose sum reaches {top_p:g}."
            return verdict(False, "", message + kept)
    return verdict(True, "The token that crosses the line belongs to the nucleus.", "")


@checker
def check_gumbel(function: Callable[[Array, float, np.random.Generator], Any]) -> bool:
    """Check a sampler by the frequencies of 4000 draws at two temperatures."""
    z = np.array([2.0, 1.0, 0.0, -1.0])
    for temperature in (1.0, 0.5):
        p = np.exp(z / temperature)
        p /= p.sum()
        rng = np.random.default_rng(8)
        first = function(z.copy(), temperature, rng)
        if not answered(first):
            return False
        try:
            draws = [int(first), *(int(function(z.copy(), temperature, rng)) for _ in range(3999))]
        except (TypeError, ValueError):
            return verdict(False, "", "It should return one index: a whole number.")
        if min(draws) < 0 or max(draws) >= len(z):
            return verdict(False, "", f"There are only {len(z)} tokens, with the indices 0 to 3.")
        share = np.bincount(draws, minlength=len(z)) / len(draws)
        # Five standard errors: a right answer fails once in a million, and the seed is fixed.
        if (np.abs(share - p) > 5 * np.sqrt(p * (1 - p) / len(draws))).any():
            return verdict(
                False,
                "",
                f"At temperature {temperature:g} the shares should be {p.round(2)}, but "
                f"they are {share.round(2)}.",
            )
    return verdict(True, "4000 draws come as often as they should, at both temperatures.", "")
