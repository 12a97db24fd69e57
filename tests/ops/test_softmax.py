from __future__ import annotations

import numpy as np
import pytest

pytestmark = pytest.mark.filterwarnings("error")


def test_by_hand(ops):
    p = ops.softmax_forward(np.log([[1.0, 2.0, 5.0]]))
    np.testing.assert_allclose(p, [[0.125, 0.25, 0.625]], rtol=1e-14)


def test_large_numbers_and_minus_infinity(ops):
    p = ops.softmax_forward(np.array([[1000, 0, -1000], [0, -np.inf, 0]], np.float32))
    np.testing.assert_array_equal(p, [[1, 0, 0], [0.5, 0, 0.5]])


def test_in_place(ops):
    x = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)
    expected = ops.softmax_forward(x)
    assert ops.softmax_forward(x, out=x) is x
    np.testing.assert_allclose(x, expected, rtol=1e-6)


def test_the_gradient_of_a_row_adds_up_to_zero(ops):
    rng = np.random.default_rng(0)
    p = ops.softmax_forward(rng.standard_normal((5, 7)))
    dx = ops.softmax_backward(rng.standard_normal((5, 7)), p)
    np.testing.assert_allclose(dx.sum(axis=-1), 0, atol=1e-14)
