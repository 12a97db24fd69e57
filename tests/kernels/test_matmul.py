"""The rungs of the matmul ladder against NumPy in float64, alone and under the operations."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from gpt2lib import kernels, ops
from gpt2lib.kernels import matmul
from tests.kernels.cases import SHAPES, cases

# Below, at and above the rungs' own tiles; 1; a long inner dimension.
SIZES = [(1, 1, 1), (7, 5, 9), (6, 4, 16), (65, 130, 70), (130, 400, 257), (3, 900, 1100)]
TOLERANCE = {"float32": 3e-6, "float64": 1e-14}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("rung", matmul.RUNGS)
@pytest.mark.parametrize("size", SIZES)
def test_multiply(rung, size, dtype):
    M, K, N = size
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((M, K)).astype(dtype), rng.standard_normal((K, N)).astype(dtype)
    out = np.full((M, N), np.nan, dtype)  # must not be read
    assert matmul.multiply(a, b, rung=rung, out=out) is out
    exact = a.astype(np.float64) @ b.astype(np.float64)
    assert np.abs(out - exact).max() <= TOLERANCE[dtype] * K


def gemm(rung, trans_a, trans_b, alpha, a, b, beta, c):
    """Call a rung as Fortran calls gemm: column-major, everything by reference."""
    m, n = c.shape
    k = a.shape[0] if trans_a else a.shape[1]
    call = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 13)(matmul.address(rung, "float64"))
    integers = [ctypes.c_int(x) for x in (m, n, k, a.shape[0], b.shape[0], c.shape[0])]
    letters = [ctypes.c_char(b"T" if t else b"N") for t in (trans_a, trans_b)]
    reals = [ctypes.c_double(x) for x in (alpha, beta)]
    by = ctypes.addressof
    call(
        *map(by, letters), *map(by, integers[:3]), by(reals[0]), a.ctypes.data, by(integers[3]),
        b.ctypes.data, by(integers[4]), by(reals[1]), c.ctypes.data, by(integers[5]),
    )  # fmt: skip


@pytest.mark.parametrize("rung", ["naive", "blocked", "micro"])
@pytest.mark.parametrize("trans_a", [False, True])
@pytest.mark.parametrize("trans_b", [False, True])
@pytest.mark.parametrize("beta", [0.0, 1.0, -0.5])
def test_the_interface_is_that_of_gemm(rung, trans_a, trans_b, beta):
    rng = np.random.default_rng(1)
    m, n, k = 13, 35, 21
    a = np.asfortranarray(rng.standard_normal((k, m) if trans_a else (m, k)))
    b = np.asfortranarray(rng.standard_normal((n, k) if trans_b else (k, n)))
    c = np.asfortranarray(rng.standard_normal((m, n)))
    exact = 0.75 * (a.T if trans_a else a) @ (b.T if trans_b else b) + beta * c
    if beta == 0:
        c[:] = np.nan
    gemm(rung, trans_a, trans_b, 0.75, a, b, beta, c)
    np.testing.assert_allclose(c, exact, atol=1e-13)


@pytest.mark.parametrize("rung", ["naive", "blocked", "micro"])
def test_every_operation_on_every_rung(rung):
    backend = kernels.load("sequential", matmul=rung)
    for case in (*cases(SHAPES[1], "float32"), *cases(SHAPES[3], "float32")):
        for a, b in zip(case.run(backend), case.run(ops), strict=True):
            scale = max(1.0, float(np.abs(b).max(initial=0.0)))
            assert np.abs(a - b).max(initial=0.0) <= 1e-5 * scale, case.name


def test_multiply_refuses_what_does_not_fit():
    a = np.ones((2, 3), np.float32)
    with pytest.raises(ValueError, match="matmul"):
        matmul.multiply(a, a.T, rung="magic")
    with pytest.raises(ValueError):
        matmul.multiply(a, a)
