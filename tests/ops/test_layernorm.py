from __future__ import annotations

import numpy as np
import pytest


def plain(ops, x, **more):
    C = x.shape[-1]
    return ops.layernorm_forward(x, np.ones(C, x.dtype), np.zeros(C, x.dtype), **more)


def test_one_two_three_four(ops):
    out, mean, rstd = plain(ops, np.array([[1.0, 2.0, 3.0, 4.0]]))
    np.testing.assert_allclose(out[0], [-1.341635, -0.447212, 0.447212, 1.341635], atol=1e-6)
    assert mean[0] == 2.5
    assert rstd[0] == pytest.approx(1 / np.sqrt(1.25 + 1e-5), rel=1e-14)


def test_eps_is_inside_the_root(ops):
    out, _, _ = plain(ops, np.array([[-1e-3, 1e-3]]))  # the variance is 1e-6, less than eps
    np.testing.assert_allclose(out[0, 1], 1e-3 / np.sqrt(1e-6 + 1e-5), rtol=1e-12)
    out, _, _ = plain(ops, np.array([[-1.0, 1.0]]), eps=3.0)
    np.testing.assert_allclose(out, [[-0.5, 0.5]], rtol=1e-15)


def test_gain_and_bias(ops):
    x = np.array([[3.0, 1.0]])
    out, _, _ = ops.layernorm_forward(x, np.array([2.0, 5.0]), np.array([10.0, 20.0]), eps=0.0)
    np.testing.assert_allclose(out, [[12.0, 15.0]])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_constant_row_gives_the_bias(ops, dtype):
    x, gain = np.full((1, 6), 3, dtype), np.full(6, 2, dtype)
    bias = np.arange(6, dtype=dtype)
    out, mean, rstd = ops.layernorm_forward(x, gain, bias)
    np.testing.assert_array_equal(out[0], bias)
    for gradient in ops.layernorm_backward(np.ones_like(x), x, gain, mean, rstd):
        assert np.isfinite(gradient).all()


def test_a_large_mean_does_not_swallow_the_variance(ops):
    noise = np.random.default_rng(0).standard_normal(4096)
    x = (1e4 + noise).astype(np.float32)[None]
    _, _, rstd = plain(ops, x)
    exact = x.astype(np.float64).var()
    assert 1 / float(rstd[0]) ** 2 == pytest.approx(exact, rel=1e-3)


def test_the_gradient_of_the_input_is_blind_to_shift_and_scale(ops):
    # Neither x + c nor c·x changes the output, so dx is orthogonal to 1 and to x (where eps is 0).
    rng = np.random.default_rng(0)
    x, gain, dout = rng.standard_normal((5, 8)), rng.standard_normal(8), rng.standard_normal((5, 8))
    _, mean, rstd = ops.layernorm_forward(x, gain, gain, eps=0.0)
    dx, _, _ = ops.layernorm_backward(dout, x, gain, mean, rstd)
    np.testing.assert_allclose(dx.sum(axis=1), 0, atol=1e-12)
    np.testing.assert_allclose((dx * x).sum(axis=1), 0, atol=1e-12)
