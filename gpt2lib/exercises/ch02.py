"""Checkers of chapter 2, embeddings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gpt2lib.exercises import answered, checker, verdict
from gpt2lib.exercises._verdict import close

__all__ = ["check_bag", "check_closest", "check_count", "check_waves"]

Array = np.ndarray[Any, Any]


@checker
def check_count(numbers: Any) -> bool:
    """Check how many numbers both embeddings of gpt2-xl hold."""
    if not answered(numbers):
        return False
    return verdict(
        numbers == (50257 + 1024) * 1600,
        "82 million, about a twentieth of the whole model.",
        "One row for each token and one for each position, C numbers in each.",
    )


@checker
def check_closest(function: Callable[[Array, int], Any]) -> bool:
    """Check the nearest row by cosine, the row itself left out."""
    table = np.array([[1.0, 0.0], [0.9, 0.1], [50.0, 40.0], [-3.0, 0.0], [0.0, 2.0]])
    want = [1, 0, 1, 4, 2]
    for i, row in enumerate(want):
        got = function(table.copy(), i)
        if not answered(got):
            return False
        if got == i:
            return verdict(False, "", "A row is nearest to itself: leave it out.")
        if got != row:
            return verdict(
                False, "", f"For row {i} it should be {row}, not {got}. Divide by both lengths?"
            )
    return verdict(True, "The direction counts, not the length.", "")


@checker
def check_waves(function: Callable[[int, int], Any]) -> bool:
    """Check the sine and cosine positions of Vaswani et al. (2017), section 3.5."""
    got = function(7, 6)
    if not answered(got):
        return False
    want = np.array(
        [
            [(np.sin, np.cos)[c % 2](t / 10000 ** ((c - c % 2) / 6)) for c in range(6)]
            for t in range(7)
        ]
    )
    right, message = close(got, want, 1e-6, "the table")
    hint = f"{message} Even channels are sines, odd ones cosines of the same angle."
    return verdict(right, "A clock with many hands.", hint)


@checker
def check_bag(changes: Any) -> bool:
    """Check whether mixing up all tokens changes the logits at the last place."""
    if not answered(changes):
        return False
    return verdict(
        changes is True,
        "Another token asks there now.",
        "Which token's vector is at the last place after mixing?",
    )
