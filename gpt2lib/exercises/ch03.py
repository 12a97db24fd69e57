"""The checkers of chapter 3, attention."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gpt2lib.exercises import answered, checker, verdict

__all__ = ["check_entropy", "check_head", "check_merge", "check_previous", "check_weights"]

Array = np.ndarray[Any, Any]


@checker
def check_weights(weights: Any) -> bool:
    """Check the attention weights of the scores 2, 0, 0 with one key masked, by hand.

    The query meets four keys with q·k = 4, 0, 0 and 6; hs is 4; the last key is in the future.
    """
    if not answered(weights):
        return False
    e2 = np.exp(2.0)
    want = np.array([e2, 1, 1, 0]) / (e2 + 2)
    got = _numbers(weights)
    if got is None or got.shape != (4,):
        return verdict(False, "", "four numbers are asked for, one for each key.")
    if not np.isclose(got.sum(), 1, atol=5e-3):
        return verdict(False, "", f"weights sum to 1; yours sum to {got.sum():.3f}.")
    unscaled = np.array([np.exp(4.0), 1, 1, 0]) / (np.exp(4.0) + 2)
    if np.allclose(got, unscaled, atol=2e-3):
        return verdict(False, "", "too sharp: divide the scores by √hs = 2 before the softmax.")
    if got[3] > 1e-6:
        return verdict(False, "", "the last key is in the future: its weight is exactly 0.")
    return verdict(
        np.allclose(got, want, atol=5e-3),
        "half of 4 is 2, and e² stands against 1 and 1; the future is not in the sum at all.",
        "divide 4, 0, 0 by √hs, take e to each, and divide by their sum.",
    )


@checker
def check_entropy(function: Callable[[Array], Any]) -> bool:
    """Check the entropy of each row of attention weights, (..., T) to (...)."""
    one = np.array([[1.0, 0.0, 0.0, 0.0], [0.25, 0.25, 0.25, 0.25], [0.5, 0.5, 0.0, 0.0]])
    got = function(one.copy())
    if not answered(got):
        return False
    numbers = _numbers(got)
    if numbers is None or numbers.shape != (3,):
        return verdict(False, "", "three rows give three entropies: sum over the last axis only.")
    if not np.isfinite(numbers).all():
        return verdict(False, "", "0 · log 0 counts as 0, but your function gives NaN there.")
    want = np.log([1.0, 4.0, 2.0])
    if np.allclose(numbers, want / np.log(2)) or np.allclose(numbers, -want):
        return verdict(False, "", "nats and positive: minus the sum of p times the natural log.")
    return verdict(
        np.allclose(numbers, want, atol=1e-6),
        "0 for a certain row, ln 4 for four alike, ln 2 for two; e to the entropy counts keys.",
        "the three rows have the entropies 0, ln 4 and ln 2.",
    )


@checker
def check_head(function: Callable[[Array, Array, Array], Any]) -> bool:
    """Check causal attention of one head: q, k, v (T, hs) to (T, hs)."""
    rng = np.random.default_rng(3)
    for T, hs in ((1, 4), (5, 3), (9, 16)):
        q, k, v = rng.standard_normal((3, T, hs)) * 2
        got = function(q.copy(), k.copy(), v.copy())
        if not answered(got):
            return False
        numbers = _numbers(got)
        if numbers is None or numbers.shape != (T, hs):
            return verdict(False, "", f"q, k, v of shape ({T}, {hs}) give an output of that shape.")
        if not np.allclose(numbers, _head(q, k, v), atol=1e-6):
            return verdict(False, "", _diagnose(numbers, q, k, v))
    return verdict(True, "it agrees with a loop over positions, for T = 1, 5 and 9.", "")


@checker
def check_previous(wq: Any, wk: Any, T: int = 8) -> bool:
    """Check weights with which each position attends to the one before it.

    The inputs are one-hot positions (T, T), so queries are the rows of ``wq``, keys of ``wk``.
    """
    if not (answered(wq) and answered(wk)):
        return False
    q, k = _numbers(wq), _numbers(wk)
    if q is None or k is None or q.ndim != 2 or q.shape != k.shape or q.shape[0] != T:
        return verdict(False, "", f"wq and wk are both ({T}, hs): a row for each position.")
    if not (np.isfinite(q).all() and np.isfinite(k).all()):
        return verdict(False, "", "finite numbers only: infinity times zero is not a number.")
    p = _weights(q, k)
    rows = np.arange(1, T)
    least = float(p[rows, rows - 1].min())
    if np.allclose(q @ k.T, (q @ k.T)[0, 0]):
        return verdict(False, "", "all scores are alike: the query of i must fit the key of i - 1.")
    if p[rows, rows].min() > 0.5:
        return verdict(False, "", "each position attends to itself: shift one of the two by one.")
    return verdict(
        least >= 0.99,
        f"a previous-token head: the least weight on the token before is {least:.4f}.",
        f"the least weight on the token before is {least:.1%}, 99 % is asked for: does query i "
        "meet key i - 1, and is the score large enough after the division by √hs?",
    )


@checker
def check_merge(function: Callable[..., Any]) -> bool:
    """Check the merging of attention over two blocks of keys from their outputs and lse.

    ``function(out_a, lse_a, out_b, lse_b)`` with out (T, hs), lse (T,) returns out and lse.
    """
    rng = np.random.default_rng(4)
    for shift in (0.0, 800.0):  # 800: e to it overflows
        T, hs = 4, 3
        scores, v = rng.standard_normal((T, 10)) * 2 + shift, rng.standard_normal((10, hs))
        parts = [_softmax_sum(scores[:, s], v[s]) for s in (slice(0, 3), slice(3, 10))]
        want = _softmax_sum(scores, v)
        with np.errstate(all="ignore"):
            arguments = [array.copy() for part in parts for array in part]
            got = function(*arguments)
        if not answered(got):
            return False
        if not (isinstance(got, tuple) and len(got) == 2):
            return verdict(False, "", "return two arrays: the merged output and the merged lse.")
        out, lse = map(_numbers, got)
        if out is None or lse is None or out.shape != (T, hs) or lse.shape != (T,):
            return verdict(False, "", f"out is (T, hs) = ({T}, {hs}) and lse (T,) = ({T},).")
        if not (np.isfinite(out).all() and np.isfinite(lse).all()):
            return verdict(False, "", "e to 800 overflows: subtract the larger lse first.")
        if not np.allclose(lse, want[1], atol=1e-6):
            return verdict(False, "", "the merged lse is the log of the two sums added up.")
        if not np.allclose(out, want[0], atol=1e-6):
            return verdict(False, "", "weigh each block by its share of the whole sum.")
    return verdict(True, "two blocks make the whole, and nothing overflows: flash attention.", "")


def _numbers(answer: Any) -> Array | None:
    """Return an answer as a float array, or None if it is none."""
    try:
        return np.asarray(answer, dtype=np.float64)
    except (TypeError, ValueError):
        return None


def _head(q: Array, k: Array, v: Array) -> Array:
    """One head, position by position: slow, plain, and sharing nothing with the library."""
    out = np.zeros_like(v)
    for i in range(len(q)):
        scores = [float(np.dot(q[i], k[j])) / len(q[i]) ** 0.5 for j in range(i + 1)]
        weights = [np.exp(score - max(scores)) for score in scores]
        out[i] = sum(w * v[j] for j, w in enumerate(weights)) / sum(weights)
    return out


def _weights(q: Array, k: Array, *, scale: bool = True, causal: bool = True) -> Array:
    """Return attention weights (T, T), with the usual mistakes on demand."""
    scores = q @ k.T / (np.sqrt(q.shape[1]) if scale else 1.0)
    if causal:
        scores = np.where(np.triu(np.ones(scores.shape, bool), 1), -np.inf, scores)
    e = np.exp(scores - scores.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def _diagnose(got: Array, q: Array, k: Array, v: Array) -> str:
    """Name the mistake, if it is one of the usual ones."""
    mistakes = {
        "the future shows: set the scores above the diagonal to -inf.": {"causal": False},
        "the division by √hs is missing.": {"scale": False},
        "neither the division by √hs nor the mask is there.": {"scale": False, "causal": False},
    }
    for words, switches in mistakes.items():
        if np.allclose(got, _weights(q, k, **switches) @ v, atol=1e-6):
            return words
    if np.isnan(got).any():
        return "there is NaN in the output: is a whole row masked?"
    return "scores, division by √hs, mask, softmax over the last axis, times v: in this order."


def _softmax_sum(scores: Array, v: Array) -> tuple[Array, Array]:
    """Return the weighted mean of the values and the log-sum-exp of the scores."""
    top = scores.max(axis=1, keepdims=True)
    e = np.exp(scores - top)
    return e @ v / e.sum(axis=1, keepdims=True), (top + np.log(e.sum(axis=1, keepdims=True)))[:, 0]
