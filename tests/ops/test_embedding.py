from __future__ import annotations

import numpy as np
import pytest


def table(V: int, C: int, dtype=np.float32):
    return np.random.default_rng(0).standard_normal((V, C)).astype(dtype)


def test_looks_up_and_adds_the_position(ops):
    wte, wpe = table(5, 3), table(4, 3)[::-1].copy()
    out = ops.embedding_forward(np.array([[4, 4], [0, 1]]), wte, wpe)
    np.testing.assert_array_equal(out[0, 1], wte[4] + wpe[1])
    np.testing.assert_array_equal(out[1, 0], wte[0] + wpe[0])
    later = ops.embedding_forward(np.array([[4, 0]]), wte, wpe, position=2)
    np.testing.assert_array_equal(later[0], wte[[4, 0]] + wpe[2:4])


@pytest.mark.parametrize("dtype", [np.uint16, np.int32, np.int64, np.uint64])
def test_ids_of_any_integer_type(ops, dtype):
    wte, wpe = table(5, 3), table(4, 3)
    out = ops.embedding_forward(np.array([[4, 0]], dtype), wte, wpe)
    np.testing.assert_array_equal(out[0], wte[[4, 0]] + wpe[:2])


def test_a_repeated_token_counts_each_time(ops):
    ids = np.array([[0, 0, 1]])
    dwte, dwpe = ops.embedding_backward(
        np.ones((1, 3, 2), np.float32), ids, dwte=np.zeros((3, 2), np.float32),
        dwpe=np.zeros((5, 2), np.float32),
    )  # fmt: skip
    np.testing.assert_array_equal(dwte, [[2, 2], [1, 1], [0, 0]])
    np.testing.assert_array_equal(dwpe, [[1, 1]] * 3 + [[0, 0]] * 2)


def test_one_token_64_times(ops):
    dwte = np.zeros((9, 4), np.float32)
    dout = np.ones((1, 64, 4), np.float32)
    ops.embedding_backward(dout, np.full((1, 64), 7), dwte=dwte, dwpe=np.zeros((64, 4), np.float32))
    assert (dwte[7] == 64).all()
    assert not np.delete(dwte, 7, axis=0).any()


def test_few_tokens_many_times_against_a_loop(ops):
    rng = np.random.default_rng(3)
    ids, dout = rng.choice([1, 4, 6], (4, 64)), rng.standard_normal((4, 64, 5)).astype(np.float32)
    dwte, dwpe = np.ones((8, 5), np.float32), np.ones((70, 5), np.float32)
    slow_te, slow_pe = np.ones((8, 5)), np.ones((70, 5))
    for b in range(4):
        for t in range(64):
            slow_te[ids[b, t]] += dout[b, t]
            slow_pe[3 + t] += dout[b, t]
    ops.embedding_backward(dout, ids, dwte=dwte, dwpe=dwpe, position=3)
    np.testing.assert_allclose(dwte, slow_te, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(dwpe, slow_pe, rtol=1e-5, atol=1e-5)


def test_four_thousand_of_one_token_stay_exact_enough(ops):
    dout = np.random.default_rng(0).standard_normal((1, 4096, 3)).astype(np.float32)
    dwte = np.zeros((2, 3), np.float32)
    dwpe = np.zeros((4096, 3), np.float32)
    ops.embedding_backward(dout, np.zeros((1, 4096), np.int64), dwte=dwte, dwpe=dwpe)
    exact = dout.astype(np.float64).sum(axis=(0, 1))
    assert np.abs(dwte[0] - exact).max() < 1e-5 * np.abs(dout).sum(axis=(0, 1)).max()


@pytest.mark.parametrize("bad", [5, 10**6 + 5, -1])
def test_an_id_outside_the_vocabulary_is_refused_in_words(ops, bad):
    wte, wpe = table(5, 3), table(4, 3)
    ids = np.array([[0, 1], [bad, 2]])
    with pytest.raises(ValueError, match=rf"{bad} at position \(1, 0\).*vocabulary of 5"):
        ops.embedding_forward(ids, wte, wpe)
    with pytest.raises(ValueError, match="vocabulary of 5"):
        ops.embedding_backward(
            np.ones((2, 2, 3), np.float32), ids, dwte=np.zeros_like(wte), dwpe=np.zeros_like(wpe)
        )


@pytest.mark.parametrize("bad", [np.array([[0.0]]), np.array([[True]]), np.zeros((1, 0), int)])
def test_what_is_no_id_is_refused(ops, bad):
    with pytest.raises(ValueError, match=r"token"):
        ops.embedding_forward(bad, table(5, 3), table(4, 3))


def test_positions_past_the_context_are_refused(ops):
    with pytest.raises(ValueError, match=r"3 to 5.*context of 5"):
        ops.embedding_forward(np.zeros((1, 3), int), table(5, 3), table(5, 3), position=3)
