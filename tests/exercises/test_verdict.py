"""The verdicts on exercises: the first difference is named, and nothing raises."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpt2lib.exercises._verdict import check_close, close


@pytest.mark.parametrize(
    ("answer", "expected", "words"),
    [
        (np.zeros((2, 3)), np.zeros((3, 2)), "has shape (2, 3); it should be (3, 2) (transposed?)"),
        (np.zeros(6), np.zeros((3, 2)), "the number of entries is right"),
        (np.zeros(5), np.zeros(4), "has shape (5,); it should be (4,)."),
        ([1.0, 2.0, 3.5], [1.0, 2.0, 3.0], "is 3.5 at [2]; it should be 3, off by 0.17 of it"),
        ([[0.0, 1e-3]], [[0.0, 0.0]], "is 0.001 at [0, 1]; it should be 0, off by 0.001"),
        ([1.0, -2.0], [1.0, 2.0], "is -2 at [1]; it should be 2, the sign is wrong"),
        ([1.0, 5.0], [2.0, 4.0], "(2 of 2 entries differ)"),
        (2.5, 2.0, "is 2.5: too large."),
        (3, 4, "is 3: too small"),
        (3, 40, "is 3: much too small"),
        (-4, 4, "is -4: the sign is wrong"),
        (np.nan, 1.0, "is nan, which is no number"),
        (1.0, np.inf, "is 1: much too small"),
        (True, False, "is True; it is not"),
        (1 + 1j, 1.0, "has dtype complex128: it should be real"),
        (..., 1.0, "is still ...: no answer yet"),
        (None, 1.0, "is still None: no answer yet"),
        (max, 1.0, "is a function, not what it returns"),
        ("0.5", 0.5, "is a str and holds no numbers"),
        ([[1], [2, 3]], [1.0, 2.0], "is a list, which NumPy cannot make an array of numbers"),
        ({"a": 1}, 1.0, "is a dict and holds no numbers"),
        (2**53 + 1, 2**53, "is 9007199254740993: too large"),
    ],
)
def test_the_first_difference_is_explained(answer, expected, words):
    comparison = close(answer, expected, name="x")
    assert not comparison
    assert comparison.ok is False
    assert comparison.message.startswith("x ")
    assert words in comparison.message


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (np.float32(1 / 3), 1 / 3),
        ([1, 2], np.array([1.0, 2.0])),
        ([np.nan, np.inf], [np.nan, np.inf]),
        (np.zeros((0, 3)), np.zeros((0, 3))),
        ([1e-9, 1.0], [0.0, 1.0]),  # where 0 is due, rounding counts against the largest entry
        (7, np.int64(7)),
    ],
)
def test_right_answers_pass(answer, expected):
    assert close(answer, expected) == (True, "your answer is right.")


def test_tolerances_and_dtype():
    assert not close(1.001, 1.0)
    assert close(1.001, 1.0, 1e-2)
    assert not close([1e-9, 1.0], [0.0, 1.0], atol=0)
    one = np.float32(1)
    assert close(np.float64(1), one)
    assert "dtype float64; it should be float32" in close(np.float64(1), one, dtype=True).message


class Hostile:
    """Raises from everything that a comparison might call."""

    def _raise(self, *_args, **_kwargs):
        raise RuntimeError

    __array__ = __eq__ = __bool__ = __len__ = __repr__ = __str__ = __iter__ = _raise
    __getattr__ = __float__ = __hash__ = _raise


def holding(thing):
    array = np.empty(1, dtype=object)
    array[0] = thing
    return array


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=2),
)


@given(anything, anything)
def test_nothing_raises(answer, expected):
    comparison = close(answer, expected)
    assert isinstance(comparison.ok, bool)
    assert comparison.message


@pytest.mark.parametrize(
    "make",
    [
        Hostile,
        lambda: [Hostile()],
        lambda: holding(Hostile()),
        lambda: np.ma.masked,
        lambda: 10**400,
        object,
    ],
)
def test_hostile_answers_are_wrong_not_fatal(make):
    assert not close(make(), 1.0)
    assert not close(1.0, make())


def test_check_close_prints_and_returns(capsys):
    assert check_close(1.0, 1.0, name="the loss") is True
    assert check_close(2.0, 1.0, name="the loss", hint="divide by N.") is False
    right, wrong = capsys.readouterr().out.splitlines()
    assert right == "✓ the loss is right."
    assert wrong == "✗ the loss is 2: too large. Hint: divide by N."


def test_check_close_says_when_there_is_no_answer_yet(capsys):
    assert check_close(..., 1.0) is False
    assert "not answered yet" in capsys.readouterr().out


def test_an_error_in_the_readers_function_is_a_verdict(capsys):
    from gpt2lib.exercises import ch03, ch04, ch11

    assert ch11.check_rounds(lambda chunks: chunks) is False
    assert capsys.readouterr().out.startswith("✗ Your function raised TypeError: ")
    assert ch11.check_rounds(2.5) is False
    assert (
        capsys.readouterr().out == "✗ Here a function is asked for, not something of type float.\n"
    )
    for check in (ch03.check_entropy, ch03.check_head, ch03.check_merge, ch04.check_block):
        assert check(lambda: 1) is False
        out = capsys.readouterr().out
        assert out.startswith("✗ Your function raised TypeError: ")
        assert "_TroubleError" not in out
    for nothing in (None, ...):
        assert ch11.check_rounds(nothing) is False
        assert capsys.readouterr().out.startswith("… not answered yet")


def test_an_error_of_a_checker_is_none_of_the_readers():
    from gpt2lib.exercises import checker

    @checker
    def check_badly(answer):
        raise KeyError("a fault of ours")

    with pytest.raises(KeyError):
        check_badly(1)
