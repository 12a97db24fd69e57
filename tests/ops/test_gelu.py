from __future__ import annotations

import numpy as np
import pytest


def test_values_of_the_tanh_form(ops):
    x = np.array([1.0, 3.0, -3.0, 0.0])
    expected = [0.841192, 2.996363, -0.003637, 0.0]
    np.testing.assert_allclose(ops.gelu_forward(x), expected, atol=1e-6)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_gradient_at_thirteen_points(ops, dtype):
    x = np.linspace(-6, 6, 13)
    h = 1e-5
    slope = (ops.gelu_forward(x + h) - ops.gelu_forward(x - h)) / (2 * h)
    dx = ops.gelu_backward(np.ones(13, dtype), x.astype(dtype))
    np.testing.assert_allclose(dx, slope, atol=2e-6 if dtype == np.float32 else 1e-9)


@pytest.mark.filterwarnings("error")
def test_far_out_the_slope_is_one_or_zero(ops):
    far = np.array([10, 10.3, 13, 20, 100, 1e4], np.float32)
    for dtype in (np.float32, np.float64):
        right, left = far.astype(dtype), -far.astype(dtype)
        one = np.ones_like(right)
        np.testing.assert_allclose(ops.gelu_backward(one, right), 1, atol=1e-6)
        np.testing.assert_allclose(ops.gelu_backward(one, left), 0, atol=1e-6)
        np.testing.assert_allclose(ops.gelu_forward(right), right, rtol=1e-6)
        np.testing.assert_allclose(ops.gelu_forward(left), 0, atol=1e-6)


def test_fused_is_one_after_the_other(ops):
    rng = np.random.default_rng(0)
    x, w, b, dy = (rng.standard_normal(s) for s in ((4, 3), (3, 5), 5, (4, 5)))
    out, pre = ops.linear_gelu_forward(x, w, b)
    np.testing.assert_allclose(pre, x @ w + b, rtol=1e-12)
    np.testing.assert_allclose(out, ops.gelu_forward(pre), rtol=1e-12)
    fused = ops.linear_gelu_backward(dy, pre, x, w)
    apart = ops.linear_backward(ops.gelu_backward(dy, pre), x, w)
    for a, b in zip(fused, apart, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)


def test_the_scratch_may_be_the_incoming_gradient(ops):
    rng = np.random.default_rng(0)
    x, w, dy = (rng.standard_normal(s) for s in ((4, 3), (3, 5), (4, 5)))
    _, pre = ops.linear_gelu_forward(x, w, np.zeros(5))
    apart = ops.linear_gelu_backward(dy, pre, x, w, dpre=np.empty((4, 5)))
    same = dy.copy()
    for a, b in zip(ops.linear_gelu_backward(same, pre, x, w, dpre=same), apart, strict=True):
        np.testing.assert_array_equal(a, b)
