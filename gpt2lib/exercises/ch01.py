"""Checkers of chapter 1, tokens."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gpt2lib.exercises import answered, checker, verdict

__all__ = ["check_banana", "check_encode", "check_merge", "check_price"]


@checker
def check_banana(first: Any, second: Any) -> bool:
    """Check the first two merges of "banana"."""
    if not (answered(first) and answered(second)):
        return False
    if first != "an":
        return verdict(
            False,
            "",
            "For the first merge: which two pairs occur twice, and whose ids are smaller?",
        )
    return verdict(
        second == "ban",
        "First an, then ban: with equal counts the smaller ids win.",
        "The word is now b-an-an-a. Every pair occurs once, so the smaller ids decide.",
    )


@checker
def check_merge(function: Callable[[list[int], tuple[int, int], int], Any]) -> bool:
    """Check the replacement of a pair by a new id."""
    cases = [
        ([1, 2, 3, 1, 2], (1, 2), [9, 3, 9]),
        ([1, 1, 1], (1, 1), [9, 1]),
        ([1, 1, 1, 1], (1, 1), [9, 9]),
        ([2, 1], (1, 2), [2, 1]),
        ([], (1, 2), []),
        ([1], (1, 1), [1]),
    ]
    for ids, pair, want in cases:
        got = function(list(ids), pair, 9)
        if not answered(got):
            return False
        if list(got) != want:
            return verdict(
                False, "", f"merge({ids}, {pair}, 9) should be {want}, but it is {list(got)}."
            )
    return verdict(True, "Each pair is merged once, from the left.", "")


@checker
def check_encode(function: Callable[[bytes, list[tuple[int, int]]], Any]) -> bool:
    """Check encoding by replaying merges, against the library's own."""
    from gpt2lib.tokenizer import BPE

    bpe = BPE.train("low low low lower lowest newer wider", 270, end_of_text=False)
    for word in ("low", "lower", "wow", "newest", "x"):
        got = function(word.encode(), bpe.merges)
        if not answered(got):
            return False
        want = bpe.encode(word)
        if list(got) != want:
            return verdict(False, "", f"{word!r} should be {want}, but it is {list(got)}.")
    return verdict(True, "The same ids as the library's.", "")


@checker
def check_price(without_space: Any, with_space: Any) -> bool:
    """Check how many tokens GPT-2 needs for a long word, without and with a space before it."""
    from gpt2lib.tokenizer import gpt2

    if not (answered(without_space) and answered(with_space)):
        return False
    word = "antidisestablishmentarianism"
    want = tuple(len(gpt2().encode(w)) for w in (word, " " + word))
    return verdict(
        (without_space, with_space) == want,
        "A space in front can change every cut behind it.",
        "Take the length of what gpt2_tokenizer.encode returns.",
    )
