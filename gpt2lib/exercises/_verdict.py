"""Compare an answer with what is expected and say, if it is wrong, where and by how much.

A checker reads::

    def check_softmax(answer) -> bool:
        return check_close(answer, expected, name="the probabilities", hint="each row sums to 1")
"""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import numpy as np

from gpt2lib.exercises import answered, verdict

_NUMERIC = "biufc"  # NumPy's letters for bool, int, unsigned, float, complex


class Comparison(NamedTuple):
    """Whether an answer is right, and that in words. It counts as true if it is right."""

    ok: bool
    message: str

    def __bool__(self) -> bool:
        return self.ok


def check_close(
    answer: Any,
    expected: Any,
    rtol: float = 1e-5,
    name: str = "your answer",
    *,
    atol: float | None = None,
    dtype: bool = False,
    hint: str | None = None,
) -> bool:
    """Compare as :func:`close` does, print the verdict, and return whether the answer is right."""
    if not answered(answer):
        return False
    right, message = close(answer, expected, rtol, name, atol=atol, dtype=dtype)
    return verdict(right, message, f"{message} Hint: {hint}" if hint else message)


def close(
    answer: Any,
    expected: Any,
    rtol: float = 1e-5,
    name: str = "your answer",
    *,
    atol: float | None = None,
    dtype: bool = False,
) -> Comparison:
    r"""Compare an answer with what is expected, and explain the first difference.

    Two numbers agree where

    .. math:: |a - e| \le \text{atol} + \text{rtol} \cdot |e|,

    where both are the same infinity, and where both are NaN. Whole numbers are compared exactly.

    Parameters
    ----------
    answer
        Anything: an array, a number, a list, ``...``, ``None``. Nothing makes this function raise.
    expected
        An array, or what NumPy makes one of.
    rtol
        The relative tolerance.
    name
        What the answer is called in the message.
    atol
        The absolute tolerance; if None, ``rtol`` times the largest finite ``|expected|``, so that
        an entry that should be 0 may be as wrong as rounding makes it.
    dtype
        Whether the dtype must be that of ``expected`` too.

    Returns
    -------
    Comparison
        ``ok`` and ``message``: what differs (type, shape, dtype, or a value: where, by how much).
    """
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            problem = _problem(answer, np.asarray(expected), rtol, atol, dtype)
    except Exception as error:
        problem = f"cannot be compared ({type(error).__name__})"
    return Comparison(problem is None, f"{name} {problem or 'is right'}.")


def _problem(
    answer: Any, expected: np.ndarray, rtol: float, atol: float | None, dtype: bool
) -> str | None:
    """Return what is wrong with the answer, None if it is right."""
    if answer is None or answer is Ellipsis:
        return f"is still {'...' if answer is Ellipsis else 'None'}: no answer yet"
    if callable(answer):
        return "is a function, not what it returns: call it"
    try:
        got = np.asarray(answer)
    except Exception:
        return f"is a {type(answer).__name__}, which NumPy cannot make an array of numbers"
    if got.dtype.kind not in _NUMERIC:
        return f"is a {type(answer).__name__} and holds no numbers (dtype {got.dtype})"
    if got.shape != expected.shape:
        return f"has shape {got.shape}; it should be {expected.shape}{_shape_remark(got, expected)}"
    if dtype and got.dtype != expected.dtype:
        return f"has dtype {got.dtype}; it should be {expected.dtype}"
    if got.dtype.kind == "c" and expected.dtype.kind != "c":
        return f"has dtype {got.dtype}: it should be real"
    return _value_problem(got, expected, rtol, atol)


def _shape_remark(got: np.ndarray, expected: np.ndarray) -> str:
    if got.shape == expected.shape[::-1]:
        return " (transposed?)"
    if got.size == expected.size:
        return " (the number of entries is right)"
    return ""


def _value_problem(
    got: np.ndarray, expected: np.ndarray, rtol: float, atol: float | None
) -> str | None:
    """Return where the values first differ, and by how much; of a single number only the side."""
    if got.dtype.kind in "biu" and expected.dtype.kind in "biu":
        wrong = got != expected
    else:
        wide = np.result_type(got, expected, np.float64)
        got, expected = got.astype(wide), expected.astype(wide)
        if atol is None:
            finite = np.abs(expected[np.isfinite(expected)])
            atol = rtol * float(finite.max(initial=0.0))
        wrong = ~np.isclose(got, expected, rtol=rtol, atol=atol, equal_nan=True)
    count = int(np.count_nonzero(wrong))
    if not count:
        return None
    place = tuple(int(i) for i in np.argwhere(wrong)[0])
    a, e = got[place].item(), expected[place].item()
    if not place:
        return _direction(a, e)
    where = f" at {list(place)}" if place else ""
    share = f" ({count} of {wrong.size} entries differ)" if wrong.size > 1 else ""
    return f"is {_number(a)}{where}; it should be {_number(e)}{_off_by(a, e)}{share}"


def _direction(answer: Any, expected: Any) -> str:
    """Say on which side of the right number an answer lies: the number itself is the exercise."""
    said = f"is {_number(answer)}"
    if isinstance(answer, bool):
        return f"is {answer}; it is not"
    if answer != answer:
        return f"{said}, which is no number"
    if isinstance(answer, complex) or isinstance(expected, complex) or expected != expected:
        return f"{said}; that is another number"
    if answer == -expected:
        return f"{said}: the sign is wrong"
    far = "much " if abs(answer) > 10 * abs(expected) or 10 * abs(answer) < abs(expected) else ""
    return f"{said}: {far}too {'large' if answer > expected else 'small'}"


def _number(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float | complex) else str(value)


def _off_by(answer: Any, expected: Any) -> str:
    """Return by how much the answer is off, relative to what is expected where that is not 0."""
    if isinstance(answer, bool) or not np.isfinite(answer) or not np.isfinite(expected):
        return ""
    if answer == -expected:
        return ", the sign is wrong"
    off = abs(answer - expected)
    return f", off by {off / abs(expected):.2g} of it" if expected else f", off by {off:.2g}"
