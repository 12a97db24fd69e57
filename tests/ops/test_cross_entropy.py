from __future__ import annotations

import math

import numpy as np
import pytest


def both(ops, logits, targets, dloss=1.0, **more):
    loss, losses, lse = ops.cross_entropy_forward(logits, targets, **more)
    return loss, losses, ops.cross_entropy_backward(dloss, logits, targets, lse, **more)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    ("logits", "target", "loss"),
    [
        ([1000, 0, 0], 0, 0.0),
        ([1000, 0, 0], 1, 1000.0),
        ([90, 2, -2], 0, 0.0),
        ([-1000, -1000, -1000], 2, math.log(3)),
        ([0, math.log(3), 0], 1, math.log(5 / 3)),
    ],
)
def test_by_hand(ops, dtype, logits, target, loss):
    value, losses, dlogits = both(ops, np.array([logits], dtype), np.array([target]))
    digits = float(np.finfo(dtype).eps) * max(map(abs, logits))  # a log-sum-exp of 1000 has no more
    assert value == pytest.approx(loss, rel=1e-6, abs=1e-6 + digits)
    assert isinstance(value, float)
    assert float(losses[0]) == pytest.approx(loss, rel=1e-6, abs=1e-6 + digits)
    assert np.isfinite(dlogits).all()


def test_the_gradient_is_probability_minus_truth(ops):
    logits = np.log([[1.0, 3.0], [1.0, 1.0]])
    _, _, dlogits = both(ops, logits, np.array([0, 1]), dloss=4.0)
    np.testing.assert_allclose(dlogits, [[-1.5, 1.5], [1.0, -1.0]], rtol=1e-12)


def test_a_shift_of_all_logits_changes_nothing(ops):
    rng = np.random.default_rng(0)
    logits, targets = rng.standard_normal((4, 9)).astype(np.float32), rng.integers(0, 9, 4)
    loss, _, dlogits = both(ops, logits, targets)
    shifted, _, _ = both(ops, logits + np.float32(500), targets)
    assert shifted == pytest.approx(loss, abs=1e-3)
    np.testing.assert_allclose(dlogits.sum(axis=1), 0, atol=1e-6)


def test_ignored_targets_do_not_count(ops):
    logits = np.random.default_rng(0).standard_normal((4, 6))
    loss, losses, dlogits = both(ops, logits, np.array([3, -1, 5, -1]))
    few, _, dfew = both(ops, logits[[0, 2]], np.array([3, 5]))
    assert loss == pytest.approx(few, rel=1e-14)
    np.testing.assert_allclose(dlogits[[0, 2]], dfew, rtol=1e-14)
    assert (dlogits[[1, 3]] == 0).all()
    assert (losses[[1, 3]] == 0).all()


def test_all_ignored_is_zero_with_zero_gradient(ops):
    loss, losses, dlogits = both(ops, np.ones((2, 3)), np.array([-1, -1]))
    assert loss == 0.0
    assert not losses.any()
    assert not dlogits.any()


def test_another_number_to_ignore(ops):
    logits = np.random.default_rng(0).standard_normal((3, 4))
    loss, _, dlogits = both(ops, logits, np.array([1, -100, 2]), ignore_index=-100)
    assert loss == pytest.approx(both(ops, logits[[0, 2]], np.array([1, 2]))[0], rel=1e-14)
    assert (dlogits[1] == 0).all()


@pytest.mark.parametrize("bad", [-2, 4, 10**6])
def test_a_target_outside_is_refused_in_words(ops, bad):
    logits, targets = np.zeros((2, 4), np.float32), np.array([1, bad])
    with pytest.raises(ValueError, match=rf"{bad} at position 1.*vocabulary of 4"):
        ops.cross_entropy_forward(logits, targets)
    with pytest.raises(ValueError, match="vocabulary of 4"):
        ops.cross_entropy_backward(1.0, logits, targets, np.zeros(2, np.float32))


def test_another_number_of_targets_is_refused(ops):
    with pytest.raises(ValueError, match=r"3 targets for 2 predictions"):
        ops.cross_entropy_forward(np.zeros((2, 4), np.float32), np.array([1, 2, 3]))
    with pytest.raises(ValueError, match="whole numbers"):
        ops.cross_entropy_forward(np.zeros((2, 4), np.float32), np.array([1.0, 2.0]))


def test_the_logits_buffer_may_take_the_gradient(ops):
    logits, targets = np.random.default_rng(0).standard_normal((3, 5)), np.array([4, -1, 0])
    _, _, expected = both(ops, logits, targets)
    _, _, lse = ops.cross_entropy_forward(logits, targets)
    assert ops.cross_entropy_backward(1.0, logits, targets, lse, out=logits) is logits
    np.testing.assert_array_equal(logits, expected)


def test_more_rows_than_one_block(ops):
    rng = np.random.default_rng(0)
    logits, targets = rng.standard_normal((333, 7)), rng.integers(0, 7, 333)
    p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    picked = p[np.arange(333), targets]
    loss, losses, dlogits = both(ops, logits, targets)
    np.testing.assert_allclose(losses, -np.log(picked), rtol=1e-10)
    assert loss == pytest.approx(-np.log(picked).mean(), rel=1e-12)
    np.testing.assert_allclose(dlogits, (p - np.eye(7)[targets]) / 333, rtol=1e-9, atol=1e-15)
