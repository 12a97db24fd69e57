"""Checkers of chapter 10, sequential performance."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gpt2lib.exercises import answered, checker, verdict
from gpt2lib.exercises._verdict import close

__all__ = ["check_adamw", "check_gelu", "check_rows", "check_strides", "check_tile"]

_ARRAYS = ("a", "b", "out")


@checker
def check_strides(steps: Any, *, shape: tuple[int, int, int]) -> bool:
    """Check how far apart consecutive reads of a, b and out are, for each innermost loop."""
    if not isinstance(steps, dict) or set(steps) != set("ijk"):
        return verdict(False, "", 'Give a dictionary: "i", "j" and "k" to three numbers each.')
    _, inner, columns = shape
    want = {"i": (inner, 0, columns), "j": (0, 1, 1), "k": (1, columns, 0)}
    for loop, right in want.items():
        got = steps[loop]
        if not isinstance(got, tuple | list) or len(got) != len(right):
            return verdict(False, "", f"For {loop} there should be three numbers: of a, b, out.")
        if not all(answered(number) for number in got):
            return False
        for name, number, expected in zip(_ARRAYS, got, right, strict=True):
            if not close(number, expected, 0):
                return verdict(
                    False,
                    "",
                    f"With {loop} innermost the step in {name} is not {number}. Write down the "
                    f"indices of {name}, add 1 to {loop}, and count the places in memory; an "
                    f"array without the index {loop} does not move.",
                )
    return verdict(True, "With i innermost two of three arrays are read down a column.", "")


@checker
def check_tile(answer: Any, *, cache: int) -> bool:
    """Check the largest s, a multiple of 16, for three s x s float32 tiles in half a cache."""
    if not answered(answer):
        return False
    if not isinstance(answer, int | float) or answer != answer or answer % 16:
        return verdict(False, "", f"{answer!r} is not a multiple of 16.")
    room = cache / 2

    def need(s: float) -> float:
        return 3 * 4 * s * s

    if answer <= 0 or need(answer) > room:
        return verdict(
            False,
            "",
            f"Three tiles of {answer:g} × {answer:g} take {need(answer):,.0f} bytes; half the "
            f"cache has {room:,.0f}.",
        )
    if need(answer + 16) <= room:
        return verdict(False, "", f"They fit, but so would tiles of {answer + 16:g}.")
    return verdict(True, f"Three tiles take {need(answer) / room:.0%} of half the cache.", "")


@checker
def check_gelu(intensity: Any, saved: Any) -> bool:
    """Check the FLOP/byte of a GELU pass, and the bytes that fusing saves for 256 x 3072."""
    if not (answered(intensity) and answered(saved)):
        return False
    if close(intensity, 9 / 4, 1e-3):
        return verdict(False, "", "A pass reads a number and writes one: 4 bytes each.")
    right, message = close(intensity, 9 / 8, 1e-3, "the intensity")
    if not right:
        return verdict(False, "", f"{message} Nine operations, over the bytes in and out.")
    numbers = 256 * 3072
    if close(saved, 8 * numbers, 1e-3):
        hint = "The result of GELU must be written in any case; only one of the two is saved."
        return verdict(False, "", hint)
    right, message = close(saved, 4 * numbers, 1e-3, "what is saved, in bytes,")
    return verdict(
        right,
        "Far left on the roofline: a pass of its own is limited by memory.",
        f"{message} How many numbers need not be read again, and how long is each?",
    )


@checker
def check_adamw(moved: Any, least: Any, *, parameters: int, bandwidth: float) -> bool:
    """Check the bytes of AdamW's step, and their least time in ms at a bandwidth in GB/s."""
    if not (answered(moved) and answered(least)):
        return False
    want = 7 * 4 * parameters
    if close(moved, want / 4, 1e-3):
        return verdict(False, "", "That is how many numbers move; each has 4 bytes.")
    right, message = close(moved, want, 1e-3, "the number of bytes")
    if not right:
        hint = "Count what is read and what is written for one parameter, then 4 bytes each."
        return verdict(False, "", f"{message} {hint}")
    milliseconds = want / (bandwidth * 1e9) * 1e3
    if close(least, milliseconds / 1e3, 1e-2):
        return verdict(False, "", "That is in seconds; the question asks for milliseconds.")
    right, message = close(least, milliseconds, 1e-2, "the least time in ms")
    return verdict(
        right,
        "A pass that is much slower leaves something to find.",
        f"{message} Divide the bytes by the bytes a second; a bandwidth of 1 is 10⁹ of them.",
    )


@checker
def check_rows(intensity: Callable[..., Any], enough: Any, *, ridge: float) -> bool:
    """Check the intensity of a linear layer, and from how many rows on it passes the ridge."""
    for rows, inputs, outputs in ((1, 768, 3072), (256, 768, 768), (7, 3, 5)):
        got = intensity(rows, inputs, outputs)
        if not answered(got):
            return False
        want = _intensity(rows, inputs, outputs)
        where = f"the intensity of {rows} rows, {inputs} → {outputs},"
        right, message = close(got, want, 1e-6, where)
        if not right:
            hint = "Two operations for each row and weight; x, W and the result move once."
            return verdict(False, "", f"{message} {hint}")
    if not answered(enough):
        return False
    best = _intensity(10**9, 768, 3072)
    if best < ridge:
        return verdict(
            enough is None or enough == float("inf"),
            f"On this machine never: {best:.0f} FLOP/byte is the most this layer can have.",
            f"No number of rows reaches {ridge:.1f} FLOP/byte here; answer float('inf').",
        )
    first = next(n for n in range(1, 10**7) if _intensity(n, 768, 3072) >= ridge)
    right, message = close(enough, first, 0, "the number of rows")
    return verdict(
        right,
        "Below that, more rows cost next to nothing.",
        f"{message} It is the smallest one whose intensity is at least {ridge:.2f}.",
    )


def _intensity(rows: int, inputs: int, outputs: int) -> float:
    numbers = rows * inputs + inputs * outputs + rows * outputs
    return 2 * rows * inputs * outputs / (4 * numbers)
