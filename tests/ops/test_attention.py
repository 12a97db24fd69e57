from __future__ import annotations

import math

import numpy as np
import pytest


def draw(B, T, C, dtype=np.float64, seed=0):
    return np.random.default_rng(seed).standard_normal((B, T, 3 * C)).astype(dtype)


def slow(qkv, NH):
    """The definition, one query at a time."""
    B, T, C3 = qkv.shape
    C, hs = C3 // 3, C3 // 3 // NH
    out, p, lse = np.zeros((B, T, C)), np.zeros((B, NH, T, T)), np.zeros((B, NH, T))
    for b in range(B):
        for h in range(NH):
            q, k, v = (qkv[b, :, i * C + h * hs : i * C + (h + 1) * hs] for i in range(3))
            for t in range(T):
                e = np.array([math.exp(q[t] @ k[j] / math.sqrt(hs)) for j in range(t + 1)])
                p[b, h, t, : t + 1] = e / e.sum()
                lse[b, h, t] = math.log(e.sum())
                out[b, t, h * hs : (h + 1) * hs] = p[b, h, t, : t + 1] @ v[: t + 1]
    return out, lse, p


@pytest.mark.parametrize(
    ("B", "T", "NH", "hs"), [(2, 5, 3, 4), (1, 1, 2, 3), (1, 67, 1, 5), (3, 2, 5, 1)]
)
def test_against_the_definition(ops, B, T, NH, hs):
    qkv = draw(B, T, NH * hs)
    p = np.full((B, NH, T, T), np.nan)
    out, lse = ops.attention_forward(qkv, NH, probabilities=p)
    for ours, definition in zip((out, lse, p), slow(qkv, NH), strict=True):
        np.testing.assert_allclose(ours, definition, rtol=1e-10, atol=1e-12)


def test_rows_add_up_to_one_and_the_future_is_exactly_zero(ops):
    p = np.full((2, 3, 7, 7), np.nan, np.float32)
    ops.attention_forward(10 * draw(2, 7, 12, np.float32), 3, probabilities=p)
    np.testing.assert_allclose(p.sum(axis=-1), 1, rtol=1e-5)
    assert (np.triu(p, 1) == 0).all()


def test_one_token_attends_to_itself(ops):
    qkv = draw(2, 1, 6)
    p = np.empty((2, 2, 1, 1))
    out, lse = ops.attention_forward(qkv, 2, probabilities=p)
    assert (p == 1).all()
    np.testing.assert_allclose(out, qkv[..., 12:], rtol=1e-15)
    dqkv = ops.attention_backward(np.ones_like(out), qkv, out, lse, 2)
    np.testing.assert_allclose(dqkv[..., :12], 0, atol=1e-15)  # nothing to choose from
    np.testing.assert_allclose(dqkv[..., 12:], 1, rtol=1e-15)


@pytest.mark.filterwarnings("error")
def test_scores_that_would_overflow_exp(ops):
    qkv = 100 * draw(1, 9, 8, np.float32)
    out, lse = ops.attention_forward(qkv, 2)
    dqkv = ops.attention_backward(np.ones_like(out), qkv, out, lse, 2)
    assert np.isfinite(out).all()
    assert np.isfinite(lse).all()
    assert np.isfinite(dqkv).all()


def test_a_later_token_changes_nothing_before_it(ops):
    qkv = draw(1, 6, 4)
    before, _ = ops.attention_forward(qkv, 2)
    qkv[0, 4] = 99.0
    after, _ = ops.attention_forward(qkv, 2)
    np.testing.assert_array_equal(before[0, :4], after[0, :4])
    assert (before[0, 4:] != after[0, 4:]).any()


@pytest.mark.parametrize("cuts", [[8], [1] * 8, [5, 3], [3, 1, 4], [7, 1]])
def test_cached_in_pieces_is_the_whole(ops, cuts):
    qkv, NH = draw(2, 8, 6), 2
    whole, _ = ops.attention_forward(qkv, NH)
    keys, values = np.full((2, 2, NH, 11, 3), np.nan)
    position = 0
    for length in cuts:
        piece = np.ascontiguousarray(qkv[:, position : position + length])
        out = ops.attention_cached(piece, keys, values, position, NH)
        np.testing.assert_allclose(out, whole[:, position : position + length], rtol=1e-12)
        position += length
    np.testing.assert_array_equal(keys[1, 1, :8], qkv[1, :, 9:12])
    np.testing.assert_array_equal(values[0, 0, :8], qkv[0, :, 12:15])
    assert np.isnan(keys[:, :, 8:]).all()


def test_more_than_the_cache_holds_is_refused(ops):
    keys, values = np.zeros((2, 1, 2, 4, 3))
    with pytest.raises(ValueError, match=r"5 .*4"):
        ops.attention_cached(draw(1, 2, 6), keys, values, 3, 2)
