"""The checkers of chapter 3 know right answers from wrong ones, and say what is wrong."""

from __future__ import annotations

import numpy as np
import pytest

from gpt2lib.exercises import ch03


def softmax(x):
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def attend(q, k, v, *, scale=True, mask=True, axis=-1):
    scores = q @ k.T / (np.sqrt(q.shape[1]) if scale else 1)
    if mask:
        scores = np.where(np.tri(len(q), dtype=bool), scores, -np.inf)
    return softmax(scores if axis == -1 else scores.T) @ v


def entropy(p):
    return -(p * np.log(np.where(p > 0, p, 1))).sum(axis=-1)


def merge(out_a, lse_a, out_b, lse_b):
    lse = np.logaddexp(lse_a, lse_b)
    return np.exp(lse_a - lse)[:, None] * out_a + np.exp(lse_b - lse)[:, None] * out_b, lse


def overflowing(out_a, lse_a, out_b, lse_b):
    a, b = np.exp(lse_a)[:, None], np.exp(lse_b)[:, None]
    return (a * out_a + b * out_b) / (a + b), np.log(a + b)[:, 0]


def fails(*_):
    raise RuntimeError("oh")


RIGHT_WRONG = {
    "weights": (
        ch03.check_weights,
        [0.787, 0.1065, 0.1065, 0],
        [
            ([0.965, 0.0177, 0.0177, 0], "too sharp"),
            ([0.25, 0.25, 0.25, 0.25], "future"),
            ([0.25, 0.03, 0.03, 0.69], "future"),
            ([2, 0, 0, 0], "sum to 1"),
            ([0.5, 0.25, 0.25, 0], "divide"),
            ([1.0], "four numbers"),
            ("no", "four numbers"),
        ],
    ),
    "entropy": (
        ch03.check_entropy,
        entropy,
        [
            (lambda p: -(p * np.log(p)).sum(-1), "NaN"),
            (lambda p: entropy(p) / np.log(2), "nats"),
            (lambda p: -entropy(p), "nats"),
            (lambda p: entropy(p).sum(), "three"),
            (lambda p: p.max(-1), "ln 4"),
            (fails, "RuntimeError"),
            (3, "a function"),
        ],
    ),
    "head": (
        ch03.check_head,
        attend,
        [
            (lambda q, k, v: attend(q, k, v, scale=False), "√hs"),
            (lambda q, k, v: attend(q, k, v, mask=False), "future"),
            (lambda q, k, v: attend(q, k, v, scale=False, mask=False), "neither"),
            (lambda q, k, v: attend(q, k, v, axis=0), "order"),
            (lambda q, k, v: attend(k, q, v), "order"),
            (lambda q, k, v: v[:, :1], "shape"),
            (lambda q, k, v: v * np.nan, "NaN"),
            (fails, "RuntimeError"),
        ],
    ),
    "merge": (
        ch03.check_merge,
        merge,
        [
            (overflowing, "overflows"),
            (lambda a, la, b, lb: ((a + b) / 2, np.logaddexp(la, lb)), "share"),
            (lambda a, la, b, lb: (merge(a, la, b, lb)[0], la + lb), "log of the two sums"),
            (lambda a, la, b, lb: merge(a, la, b, lb)[0], "two arrays"),
            (lambda a, la, b, lb: (a, la[:1]), "(T, hs)"),
            (fails, "RuntimeError"),
        ],
    ),
}


@pytest.mark.parametrize("name", RIGHT_WRONG)
def test_right_answers_pass(name, capsys):
    check, right, _ = RIGHT_WRONG[name]
    assert check(right) is True
    assert capsys.readouterr().out.startswith("✓ ")


@pytest.mark.parametrize(
    ("name", "number"), [(name, i) for name, row in RIGHT_WRONG.items() for i in range(len(row[2]))]
)
def test_wrong_answers_fail_and_say_why(name, number, capsys):
    check, _, wrong = RIGHT_WRONG[name]
    answer, words = wrong[number]
    with np.errstate(all="ignore"):
        assert check(answer) is False
    out = capsys.readouterr().out
    assert out.startswith("✗ ")
    assert words in out


def test_a_previous_token_head(capsys):
    eye = np.eye(8)
    query = np.roll(eye, -1, axis=1)  # row i points to i - 1
    assert ch03.check_previous(30 * query, eye) is True
    for wq, wk, words in (
        (query, eye, "large enough"),
        (30 * eye, eye, "itself"),
        (30 * query.T, eye, "i - 1"),
        (0 * eye, eye, "alike"),
        (30 * query[:4], eye, "a row for each"),
        (np.where(query > 0, np.inf, 0), eye, "finite"),
        ("x", eye, "a row for each"),
    ):
        with np.errstate(all="ignore"):
            assert ch03.check_previous(wq, wk) is False
        assert words in capsys.readouterr().out.splitlines()[-1]


def test_dots_are_no_answer_and_no_error(capsys):
    assert ch03.check_weights(...) is False
    assert ch03.check_previous(..., ...) is False
    for check in (ch03.check_entropy, ch03.check_head, ch03.check_merge):
        assert check(lambda *_: ...) is False
        assert check(lambda *_: None) is False
    assert capsys.readouterr().out.count("not answered yet") == 8
