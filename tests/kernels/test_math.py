"""exp, tanh and GELU of the compiled code, against the same in float64."""

from __future__ import annotations

import numba
import numpy as np

from gpt2lib.kernels import _math


@numba.njit
def apply_exp(x, out):
    for i in range(x.size):
        out[i] = _math.exp(x[i])


@numba.njit
def apply_tanh(x, out):
    for i in range(x.size):
        out[i] = _math.tanh(x[i])


def test_exp_is_right_to_the_last_place_but_one():
    x = np.linspace(-87.3, 88.7, 400_001).astype(np.float32)
    out = np.empty_like(x)
    apply_exp(x, out)
    exact = np.exp(x.astype(np.float64))
    assert np.max(np.abs(out - exact) / exact) < 2**-23


def test_exp_at_the_ends():
    x = np.array([-np.inf, -1e30, -104, 89, 1e30, np.inf, 0, -0.0, np.nan], np.float32)
    out = np.empty_like(x)
    apply_exp(x, out)
    np.testing.assert_array_equal(out, [0, 0, 0, np.inf, np.inf, np.inf, 1, 1, np.nan])


def test_tanh_is_right_to_1e_6():
    x = np.concatenate([np.linspace(-20, 20, 400_001), [-np.inf, np.inf, 1e-30, 1e30]])
    x = x.astype(np.float32)
    out = np.empty_like(x)
    apply_tanh(x, out)
    assert np.abs(out - np.tanh(x.astype(np.float64))).max() < 1e-6


def test_float64_keeps_its_precision():
    x = np.linspace(-30, 30, 1001)
    out = np.empty_like(x)
    apply_exp(x, out)
    np.testing.assert_allclose(out, np.exp(x), rtol=1e-15)
