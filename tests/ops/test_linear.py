from __future__ import annotations

import numpy as np
import pytest


def test_by_hand(ops):
    x, w, b = np.array([[1.0, 2.0]]), np.array([[1.0, 0.0, 3.0], [0.0, 5.0, 1.0]]), np.arange(3.0)
    np.testing.assert_array_equal(ops.linear_forward(x, w, b), [[1, 11, 7]])
    dx, dw, db = ops.linear_backward(np.array([[1.0, 10.0, 100.0]]), x, w)
    np.testing.assert_array_equal(dx, [[301, 150]])
    np.testing.assert_array_equal(dw, [[1, 10, 100], [2, 20, 200]])
    np.testing.assert_array_equal(db, [1, 10, 100])


@pytest.mark.parametrize("shape", [(1, 1, 1), (1, 7, 3), (5, 1, 4), (3, 5, 1), (2, 67, 35)])
def test_odd_shapes(ops, shape):
    N, I, O = shape  # noqa: E741
    rng = np.random.default_rng(0)
    x, w, b, dy = (rng.standard_normal(s) for s in ((N, I), (I, O), O, (N, O)))
    np.testing.assert_allclose(ops.linear_forward(x, w, b), x @ w + b, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(ops.head_forward(x, w.T.copy()), x @ w, rtol=1e-10, atol=1e-10)
    expected = dy @ w.T, x.T @ dy, dy.sum(axis=0)
    for a, e in zip(ops.linear_backward(dy, x, w), expected, strict=True):
        np.testing.assert_allclose(a, e, rtol=1e-10, atol=1e-10)


def test_head_by_hand(ops):
    x, wte = np.array([[1.0, 2.0]]), np.array([[1.0, 1.0], [0.0, 3.0], [2.0, 0.0]])
    np.testing.assert_array_equal(ops.head_forward(x, wte), [[3, 6, 2]])
    dx, dwte = ops.head_backward(np.array([[1.0, 10.0, 100.0]]), x, wte)
    np.testing.assert_array_equal(dx, [[201, 31]])
    np.testing.assert_array_equal(dwte, [[1, 2], [10, 20], [100, 200]])


def test_residual_by_hand(ops):
    x, y = np.array([1.0, 2.0]), np.array([10.0, 20.0])
    np.testing.assert_array_equal(ops.residual_forward(x, y), [11, 22])
    np.testing.assert_array_equal(ops.residual_forward(x, y, out=x), [11, 22])
    dx, dy = ops.residual_backward(y, dx=np.ones(2), dy=np.full(2, 2.0))
    np.testing.assert_array_equal(dx, [11, 21])
    np.testing.assert_array_equal(dy, [12, 22])
