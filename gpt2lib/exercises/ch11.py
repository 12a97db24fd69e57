"""Checkers of chapter 11, parallel performance."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from gpt2lib.exercises import answered, checker, verdict
from gpt2lib.exercises._verdict import close

__all__ = [
    "check_deal",
    "check_fastest",
    "check_rounds",
    "check_same_bits",
    "check_serial_part",
]

Array = np.ndarray[Any, Any]


@checker
def check_serial_part(answer: Any, *, gain: float, threads: int) -> bool:
    """Check the serial part that Amdahl's law needs for a measured speedup."""
    if not answered(answer):
        return False
    want = (threads / gain - 1) / (threads - 1)
    right, message = close(answer, want, 5e-3, "the serial part")
    hint = "Solve S = 1 / (f + (1 - f) / p) for f."
    bound = f"No number of threads would then give more than {1 / want:.1f}."
    return verdict(right, bound, f"{message} {hint}")


@checker
def check_rounds(function: Callable[[int, int], Any]) -> bool:
    """Check the speedup that n equal chunks allow on p threads."""
    for chunks, threads in ((9, 8), (8, 8), (16, 3), (5, 112), (1, 2), (48, 112), (1000, 7)):
        got = function(chunks, threads)
        if not answered(got):
            return False
        rounds = 0
        left = chunks
        while left > 0:
            left -= threads
            rounds += 1
        right, message = close(
            got, chunks / rounds, 1e-6, f"for {chunks} chunks on {threads} threads it"
        )
        if not right:
            hint = "How many rounds are there, and how many chunks would one thread need?"
            return verdict(False, "", f"{message} {hint}")
    return verdict(True, "The ninth chunk costs eight threads a whole round.", "")


@checker
def check_deal(function: Callable[[int, int], Any]) -> bool:
    """Check a way to deal 2·p·k chunks of triangular work out before the region begins."""
    for chunks, threads in ((8, 2), (16, 4), (24, 3), (64, 8)):
        got = function(chunks, threads)
        if not answered(got):
            return False
        try:
            parts = [[int(chunk) for chunk in part] for part in got]
        except (TypeError, ValueError):
            return verdict(False, "", "It should return a list of chunk numbers for each thread.")
        if len(parts) != threads:
            return verdict(False, "", f"{threads} threads need {threads} lists, not {len(parts)}.")
        if sorted(chunk for part in parts for chunk in part) != list(range(chunks)):
            return verdict(False, "", f"Each of the chunks 0 to {chunks - 1} has to run once.")
        costs = [sum(chunk + 1 for chunk in part) for part in parts]
        if min(costs) != max(costs):
            return verdict(
                False,
                "",
                f"With {chunks} chunks on {threads} threads, the work of the threads is {costs}: "
                "not equal. Which chunk makes up for a short one?",
            )
    return verdict(True, "Every thread has the same work, and nobody had to ask for it.", "")


@checker
def check_same_bits(function: Callable[[Array, int], Any]) -> bool:
    """Check a bias gradient (a sum over rows) that is the same on any number of threads."""
    dout = np.random.default_rng(11).standard_normal((1000, 5)).astype(np.float32)
    dout[::7] *= 1000  # so that the order of a sum shows
    answers = {}
    for threads in (1, 2, 3, 5, 8):
        got = function(dout.copy(), threads)
        if not answered(got):
            return False
        right, message = close(got, dout.sum(0, np.float64), 1e-3, f"on {threads} threads it")
        if not right:
            return verdict(False, "", f"{message} It should be the sum over the rows.")
        if getattr(got, "dtype", None) != np.float32:
            return verdict(False, "", "Add in float32, as the model does; do not round at the end.")
        answers[threads] = np.asarray(got).tobytes()
    different = [threads for threads, bits in answers.items() if bits != answers[1]]
    if different:
        return verdict(
            False,
            "",
            f"On {different[0]} threads the last bits are others than on one. What must not "
            "depend on the number of threads?",
        )
    return verdict(True, "Same bits on 1, 2, 3, 5 and 8 threads.", "")


@checker
def check_fastest(answer: Any, *, work: float, hand_over: float) -> bool:
    """Check which p makes work / p + hand_over · log2(p) least."""
    if not answered(answer):
        return False
    best = min(range(1, 1000), key=lambda p: work / p + hand_over * math.log2(p))
    right, message = close(answer, best, 0.0, "the number of threads")
    hint = "Compute T(p) for every p, and take the least. More threads do not always help."
    return verdict(right, "Beyond it every thread costs more than it brings.", f"{message} {hint}")
