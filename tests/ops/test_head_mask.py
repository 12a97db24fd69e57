from __future__ import annotations

import numpy as np


def draw(*shape):
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def test_all_ones_is_no_mask_to_the_last_bit(ops):
    x, mean = draw(2, 3, 6), draw(2, 3)
    one = np.ones(2, np.float32)
    np.testing.assert_array_equal(ops.head_mask_forward(x, one), x)
    np.testing.assert_allclose(ops.head_mask_forward(x, one, mean=mean), x, rtol=1e-6)
    dx, _ = ops.head_mask_backward(x, x, one)
    np.testing.assert_array_equal(dx, x)


def test_a_head_that_is_off_is_zero_or_its_mean(ops):
    x, mean = draw(2, 3, 6), draw(2, 3)
    mask = np.array([1, 0], np.float32)
    off = ops.head_mask_forward(x, mask)
    np.testing.assert_array_equal(off[..., :3], x[..., :3])
    assert (off[..., 3:] == 0).all()
    filled = ops.head_mask_forward(x, mask, mean=mean)
    np.testing.assert_array_equal(filled[..., 3:], np.broadcast_to(mean[1], (2, 3, 3)))


def test_the_gradient_of_a_head_that_is_off(ops):
    x, dout = draw(2, 3, 6), np.ones((2, 3, 6), np.float32)
    dx, dmask = ops.head_mask_backward(dout, x, np.array([0, 1], np.float32))
    assert (dx[..., :3] == 0).all()
    assert (dx[..., 3:] == 1).all()
    np.testing.assert_allclose(dmask, [x[..., :3].sum(), x[..., 3:].sum()], rtol=1e-5)


def test_in_place(ops):
    x, mask = draw(2, 3, 6), np.array([0.5, 2], np.float32)
    expected = ops.head_mask_forward(x, mask)
    ops.head_mask_forward(x, mask, out=x)
    np.testing.assert_array_equal(x, expected)
