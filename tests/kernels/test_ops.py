"""Every compiled operation against NumPy's, and against itself with its chunks in another order."""

from __future__ import annotations

from itertools import islice

import numpy as np
import pytest

from gpt2lib import kernels, ops
from tests.kernels.cases import SHAPES, cases, numbered

TOLERANCE = {"float32": 1e-5, "float64": 1e-12}


def pick(shape, dtype, number):
    return next(islice(cases(shape, dtype), number, None))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("shape", "number"), numbered("float32"))
def test_agrees_with_numpy(backend, shape, number, dtype):
    case = pick(shape, dtype, number)
    ours, theirs = case.run(backend), case.run(ops)
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs, strict=True):
        scale = max(1.0, float(np.abs(b).max(initial=0.0)))
        assert a.shape == b.shape
        assert np.abs(a - b).max(initial=0.0) <= TOLERANCE[dtype] * scale


@pytest.mark.parametrize(("shape", "number"), numbered("float32"))
def test_order_of_chunks_changes_no_bit(backend, shuffled, shape, number):
    case = pick(shape, "float32", number)
    straight = case.run(backend)
    for seed in range(3):
        for a, b in zip(straight, case.run(shuffled(seed)), strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("threads", [1, 2, 3, 5])
def test_number_of_threads_changes_no_bit(backend, threads):
    threaded = kernels.load("threads", threads=threads)
    for case in (*cases(SHAPES[1], "float32"), *cases(SHAPES[3], "float32")):
        for a, b in zip(case.run(backend), case.run(threaded), strict=True):
            np.testing.assert_array_equal(a, b, err_msg=case.name)


def test_results_keep_their_type(backend):
    for dtype in ("float32", "float64"):
        x = np.ones((2, 3, 4), dtype)
        assert backend.gelu_forward(x).dtype == dtype
        results = backend.layernorm_forward(x, x[0, 0], x[0, 0])
        assert {r.dtype.name for r in results} == {dtype}


def test_writes_into_the_buffers_it_is_given(backend):
    x = np.random.default_rng(0).standard_normal((2, 3, 6)).astype(np.float32)
    weight, bias = np.ones((6, 5), np.float32), np.ones(5, np.float32)
    out, dx = np.empty((2, 3, 5), np.float32), np.zeros_like(x)
    assert backend.linear_forward(x, weight, bias, out=out) is out
    assert backend.linear_backward(out, x, weight, dx=dx)[0] is dx


def test_gelu_takes_its_gradient_in_place(backend):
    """As the model asks for it: dpre takes the place of what arrives."""
    rng = np.random.default_rng(0)
    dout, pre = rng.standard_normal((2, 4, 9, 37)).astype(np.float32)
    x, weight = np.ones((4, 9, 6), np.float32), np.ones((6, 37), np.float32)
    apart = np.empty_like(dout)
    expected = backend.linear_gelu_backward(dout, pre, x, weight, dpre=apart)
    found = backend.linear_gelu_backward(dout, pre, x, weight, dpre=dout)
    for a, b in zip((dout, *found), (apart, *expected), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("V", [3, 700])
def test_a_token_that_comes_4096_times(backend, V):
    rng = np.random.default_rng(1)
    dout = rng.standard_normal((4, 1024, 48)).astype(np.float32)
    ids = np.full((4, 1024), V - 1)
    zeros = {"dwte": np.zeros((V, 48), np.float32), "dwpe": np.zeros((1024, 48), np.float32)}
    first = backend.embedding_backward(dout, ids, **{k: v.copy() for k, v in zeros.items()})
    exact = dout.astype(np.float64).sum(axis=(0, 1))
    size = np.abs(dout).astype(np.float64).sum(axis=(0, 1))
    assert (np.abs(first[0][V - 1] - exact) <= 1e-6 * size).all()
    assert not first[0][: V - 1].any()
    np.testing.assert_allclose(first[1], dout.astype(np.float64).sum(axis=0), atol=1e-5)
    threaded = kernels.load("threads", threads=3)
    for _ in range(5):
        again = threaded.embedding_backward(dout, ids, **{k: v.copy() for k, v in zeros.items()})
        np.testing.assert_array_equal(first[0], again[0])


def test_ones_are_counted_exactly(backend):
    ids = np.array([[0, 0, 1]])
    dout = np.ones((1, 3, 2), np.float32)
    dwte = np.zeros((3, 2), np.float32)
    backend.embedding_backward(dout, ids, dwte=dwte, dwpe=np.zeros((3, 2), np.float32))
    np.testing.assert_array_equal(dwte, [[2, 2], [1, 1], [0, 0]])


def test_gelu_far_out(backend):
    x = np.array([10, 10.3, 13, 20, 100, 1e4, 1e20, np.inf], np.float32)
    with np.errstate(all="raise"):
        up, down = (backend.gelu_backward(np.ones_like(x), s * x) for s in (1, -1))
    np.testing.assert_allclose(up, 1, atol=1e-6)
    np.testing.assert_allclose(down, 0, atol=1e-6)
    np.testing.assert_array_equal(backend.gelu_forward(x), x)
    np.testing.assert_allclose(backend.gelu_forward(-x[:-1]), 0, atol=1e-6)
    assert np.isnan(backend.gelu_forward(np.array([np.nan], np.float32))).all()
    assert np.isnan(backend.gelu_backward(np.ones(1, "f4"), np.array([np.nan], "f4"))).all()


def test_logits_that_would_overflow(backend):
    logits = np.zeros((3, 5), np.float32)
    logits[0] = [1000, -1000, 1000, 0, -np.inf]
    logits[1, 1:] = -np.inf
    targets = np.array([0, 0, 4])
    loss, losses, lse = backend.cross_entropy_forward(logits, targets)
    np.testing.assert_allclose(losses, [np.log(2), 0, np.log(5)], atol=1e-4)  # 1000.69 has 7 digits
    assert loss == pytest.approx((np.log(2) + np.log(5)) / 3, abs=1e-4)
    gradient = backend.cross_entropy_backward(3.0, logits, targets, lse, out=logits)
    np.testing.assert_allclose(gradient[0], [-0.5, 0, 0.5, 0, 0], atol=1e-4)
    np.testing.assert_array_equal(gradient[1], 0)
    np.testing.assert_allclose(
        backend.softmax_forward(np.float32([[1e4, 1e4, -np.inf]])), [[0.5, 0.5, 0]]
    )


def test_nan_does_not_vanish(backend):
    logits = np.zeros((1, 40), np.float32)
    logits[0, 7] = np.nan
    assert np.isnan(backend.cross_entropy_forward(logits, np.array([0]))[0])
    assert np.isnan(backend.softmax_forward(logits)).any()


def test_adamw_clears_gradients_in_the_same_pass(backend):
    p, g, m, v = (np.full(10, k, np.float32) for k in (1, 2, 0, 0))
    given = {"learning_rate": 0.1, "beta1": 0.9, "beta2": 0.99, "eps": 1e-8, "weight_decay": 0.0}
    backend.adamw_update(p, g, m, v, step=1, zero_gradients=True, **given)
    np.testing.assert_allclose(p, 0.9, rtol=1e-6)  # the first step is the rate, whatever the size
    np.testing.assert_array_equal(g, 0)


def test_squared_norm_is_added_up_in_float64(backend):
    x = np.full(1_000_003, 1e-3, np.float32)
    exact = 1_000_003 * float(np.float32(1e-3)) ** 2
    assert backend.squared_norm(x) == pytest.approx(exact, rel=1e-13)
