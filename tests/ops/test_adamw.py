from __future__ import annotations

import numpy as np
import pytest

SETTINGS = {"learning_rate": 0.1, "beta1": 0.9, "beta2": 0.95, "eps": 1e-8, "weight_decay": 0.0}


def state(*values, dtype=np.float64):
    p = np.array(values, dtype)
    return p, np.zeros_like(p), np.zeros_like(p)


def reference(p, gradients, steps, *, learning_rate, beta1, beta2, eps, weight_decay):
    """Algorithm 2 of Loshchilov and Hutter (2019), number by number."""
    m = v = 0.0
    for t in range(1, steps + 1):
        g = gradients(t)
        m = beta1 * m + (1 - beta1) * g
        v = beta2 * v + (1 - beta2) * g * g
        m_hat, v_hat = m / (1 - beta1**t), v / (1 - beta2**t)
        p = p - learning_rate * weight_decay * p - learning_rate * m_hat / (v_hat**0.5 + eps)
    return p


def test_the_first_step_is_the_learning_rate(ops):
    p, m, v = state(1.0, 1.0, 1.0)
    ops.adamw_update(p, np.array([0.5, -1e-3, 0.0]), m, v, step=1, **SETTINGS)
    np.testing.assert_allclose(p, [0.9, 1.1, 1.0], rtol=1e-5)


@pytest.mark.parametrize("scale", [1.0, 1e-10])  # the small one shows where eps stands
@pytest.mark.parametrize("decay", [0.0, 0.3])
def test_ten_steps(ops, scale, decay):
    settings = {**SETTINGS, "weight_decay": decay}

    def gradient(t):
        return scale * np.sin(t)

    p, m, v = state(1.0, -2.0)
    for t in range(1, 11):
        ops.adamw_update(p, np.full(2, gradient(t)), m, v, step=t, **settings)
    for ours, start in zip(p, (1.0, -2.0), strict=True):
        assert ours == pytest.approx(reference(start, gradient, 10, **settings), rel=1e-12)


def test_decay_does_not_pass_through_the_moments(ops):
    p, m, v = state(2.0, -3.0)
    ops.adamw_update(p, np.zeros(2), m, v, step=1, **{**SETTINGS, "weight_decay": 0.1})
    np.testing.assert_allclose(p, [1.98, -2.97], rtol=1e-15)
    assert not m.any()
    assert not v.any()


def test_a_scale_is_a_scaled_gradient(ops):
    g = np.array([0.5, -2.0])
    a, b = state(1.0, 2.0), state(1.0, 2.0)
    ops.adamw_update(a[0], g, a[1], a[2], step=3, gradient_scale=0.25, **SETTINGS)
    ops.adamw_update(b[0], 0.25 * g, b[1], b[2], step=3, **SETTINGS)
    for x, y in zip(a, b, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-14)
    np.testing.assert_array_equal(g, [0.5, -2.0])


def test_a_numpy_scale_leaves_float32_alone(ops):
    rng = np.random.default_rng(0)
    p, g = rng.standard_normal((2, 1000)).astype(np.float32)
    plain = [p.copy(), np.zeros_like(p), np.zeros_like(p)]
    other = [p.copy(), np.zeros_like(p), np.zeros_like(p)]
    ops.adamw_update(plain[0], g, *plain[1:], step=1, gradient_scale=1 / 3, **SETTINGS)
    scalar = np.float64(1 / 3)
    ops.adamw_update(other[0], g, *other[1:], step=1, gradient_scale=scalar, **SETTINGS)
    for x, y in zip(plain, other, strict=True):
        assert x.dtype == np.float32
        np.testing.assert_array_equal(x, y)


def test_more_than_one_block(ops):
    rng = np.random.default_rng(0)
    p, g = rng.standard_normal((2, 100_003)).astype(np.float32)
    m, v, start = np.zeros_like(p), np.zeros_like(p), p.copy()
    ops.adamw_update(p, g, m, v, step=1, **SETTINGS)
    np.testing.assert_allclose(p, start - 0.1 * g / (np.abs(g) + 1e-8), atol=1e-6)


def test_steps_count_from_one(ops):
    with pytest.raises(ValueError, match="from 1"):
        ops.adamw_update(*state(1.0), np.zeros(1), step=0, **SETTINGS)


def test_squared_norm_adds_in_float64(ops):
    x = np.full(200_000, 1e-3, np.float32)
    assert ops.squared_norm(x) == pytest.approx(200_000 * float(np.float32(1e-3)) ** 2, rel=1e-12)
    assert ops.squared_norm(np.array([[3.0], [4.0]])) == 25.0
    assert isinstance(ops.squared_norm(x), float)


def test_zero(ops):
    x = np.ones((3, 4), np.float32)
    ops.zero(x)
    assert not x.any()


def test_gradients_are_cleared_when_asked(ops):
    """The step is the same one; afterwards the gradients are zero, in every block of them."""
    rng = np.random.default_rng(0)
    size = 300_000  # more than one block, on either backend
    g = rng.normal(size=size)
    kept, cleared = (state(*np.ones(size)) for _ in range(2))
    ops.adamw_update(kept[0], g, *kept[1:], step=2, **SETTINGS)
    assert np.any(g != 0)
    ops.adamw_update(cleared[0], g, *cleared[1:], step=2, zero_gradients=True, **SETTINGS)
    for a, b in zip(kept, cleared, strict=True):
        np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(g, 0)
