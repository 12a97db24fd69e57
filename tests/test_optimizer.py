"""AdamW against a float64 one written here, and numbers worked by hand."""

import math

import numpy as np
import pytest

from gpt2lib import ops
from gpt2lib.config import GPT2Config
from gpt2lib.model import GPT2
from gpt2lib.optimizer import AdamW, clip_scale, cosine_schedule
from gpt2lib.parameters import Parameters
from gpt2lib.train import accumulate

SMALL = GPT2Config(vocab_size=11, context=8, layers=2, heads=2, channels=8)


def reference_adamw(w, gradients, lr, b1, b2, eps, decay):
    """Loshchilov and Hutter's algorithm 2, one number after the other, in float64."""
    w, m, v = w.astype(np.float64), np.zeros(w.shape), np.zeros(w.shape)
    for t, g in enumerate(gradients, start=1):
        g = g.astype(np.float64)
        w = w - lr * decay * w
        m = b1 * m + (1 - b1) * g
        v = b2 * v + (1 - b2) * g**2
        m_hat, v_hat = m / (1 - b1**t), v / (1 - b2**t)
        w = w - lr * m_hat / (np.sqrt(v_hat) + eps)
    return w, m, v


def parameters(dtype=np.float64, seed=0):
    return Parameters.initialize(SMALL, seed, dtype)


def random_gradients(steps, dtype=np.float64, seed=1):
    rng = np.random.default_rng(seed)
    for _ in range(steps):
        g = Parameters(SMALL, dtype)
        g.flat[:] = rng.normal(size=g.flat.size) * 10.0 ** rng.integers(-10, 2, g.flat.size)
        yield g


def test_first_step_by_hand():
    """w = 1, g = 0.5, rate 0.1: the step is rate * g / (|g| + eps), so w becomes 0.9."""
    p = Parameters(SMALL, np.float64)
    p.flat[:] = 1
    g = p.zeros_like()
    g.flat[:] = 0.5
    AdamW(p, learning_rate=0.1, weight_decay=0).step(g)
    np.testing.assert_allclose(p.flat, 0.9, atol=1e-6)


def test_two_steps_by_hand():
    """Gradients 0.5, then -1, betas 0.9 and 0.99: m = -0.055, v = 0.012475."""
    p = Parameters(SMALL, np.float64)
    g = p.zeros_like()
    adam = AdamW(p, learning_rate=0.1, betas=(0.9, 0.99), weight_decay=0)
    for value in (0.5, -1.0):
        g.flat[:] = value
        adam.step(g)
    second = 0.1 * (-0.055 / 0.19) / math.sqrt(0.012475 / 0.0199)
    np.testing.assert_allclose(adam.m.flat, -0.055, rtol=1e-12)
    np.testing.assert_allclose(adam.v.flat, 0.012475, rtol=1e-12)
    np.testing.assert_allclose(p.flat, -0.1 - second, rtol=1e-6)
    assert adam.t == 2  # one count for all tensors, not one a tensor


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(np.float64, 1e-12), (np.float32, 2e-5)], ids=["float64", "float32"]
)
def test_ten_steps_against_the_algorithm(dtype, tolerance):
    """Gradients down to 1e-10 and below tell whether eps stands outside the root."""
    p = parameters(dtype)
    start, gradients = p.flat.copy(), list(random_gradients(10, dtype))
    adam = AdamW(p, learning_rate=1e-2, betas=(0.8, 0.95), eps=1e-8, weight_decay=0.1)
    for g in gradients:
        adam.step(g)
    n = p.decayed
    for part, decay in ((slice(0, n), 0.1), (slice(n, None), 0.0)):
        series = [g.flat[part] for g in gradients]
        w, m, v = reference_adamw(start[part], series, 1e-2, 0.8, 0.95, 1e-8, decay)
        np.testing.assert_allclose(p.flat[part], w, rtol=tolerance, atol=tolerance)
        np.testing.assert_allclose(adam.m.flat[part], m, rtol=1e-4, atol=tolerance)
        np.testing.assert_allclose(adam.v.flat[part], v, rtol=1e-4, atol=tolerance)
    assert p.dtype == adam.m.dtype == adam.v.dtype == dtype


def test_eps_is_outside_the_root():
    """g = 1e-10: outside, the step is 1e-10 / (1e-10 + 1e-8) of the rate; inside, 1e-6 of it."""
    p = Parameters(SMALL, np.float64)
    g = p.zeros_like()
    g.flat[:] = 1e-10
    AdamW(p, learning_rate=1.0, eps=1e-8, weight_decay=0).step(g)
    np.testing.assert_allclose(p.flat, -1 / 101, rtol=1e-9)


def test_decay_is_for_matrices_and_does_not_pass_through_the_moments():
    p = parameters(np.float32)
    before = p.copy()
    adam = AdamW(p, learning_rate=0.1, weight_decay=0.1)
    adam.step(p.zeros_like())
    for name, view in p.items():
        if view.ndim == 2:
            np.testing.assert_allclose(view, np.float32(0.99) * before[name], rtol=1e-6)
        else:
            np.testing.assert_array_equal(view, before[name])
    assert not adam.m.flat.any()
    assert not adam.v.flat.any()


def test_decay_all_is_llmc_s_switch():
    p = parameters()
    p.flat[:] = 1
    AdamW(p, learning_rate=0.1, weight_decay=0.1, decay_all=True).step(p.zeros_like())
    np.testing.assert_allclose(p.flat, 0.99, rtol=1e-12)


def test_gradients_of_another_model_are_refused():
    other = Parameters(GPT2Config(vocab_size=11, context=8, layers=1, heads=2, channels=8))
    with pytest.raises(ValueError, match="gradients are those of"):
        AdamW(parameters()).step(other)


@pytest.mark.parametrize(
    "bad",
    [
        {"learning_rate": -1},
        {"learning_rate": math.nan},
        {"betas": (1.0, 0.9)},
        {"betas": (0.9, -0.1)},
        {"eps": -1e-8},
        {"weight_decay": math.inf},
    ],
)
def test_impossible_constants_are_refused(bad):
    with pytest.raises(ValueError, match="must be"):
        AdamW(parameters(), **bad)


# ------------------------------------------------------------------------ clipping


def test_clip_scale_by_hand():
    g = Parameters(SMALL, np.float64)
    g["wte"][0, 0], g["ln_f.bias"][3] = 3.0, 4.0  # in different tensors: the norm is 5
    assert clip_scale(g, 1.0) == (0.2, 5.0)
    assert clip_scale(g, 10.0) == (1.0, 5.0)
    assert clip_scale(g, None) == (1.0, 5.0)
    assert g["wte"][0, 0] == 3.0  # looked at, not changed


def test_scaled_step_equals_step_with_scaled_gradients():
    a, b = parameters(), parameters()
    [g] = random_gradients(1)
    scaled = g.copy()
    scaled.flat *= 0.25
    AdamW(a).step(g, gradient_scale=0.25)
    AdamW(b).step(scaled)
    np.testing.assert_array_equal(a.flat, b.flat)


def test_a_step_leaves_the_gradients_unless_told_to_clear_them():
    p = parameters()
    g = next(random_gradients(1))
    adam = AdamW(p)
    before = g.flat.copy()
    adam.step(g)
    np.testing.assert_array_equal(g.flat, before)
    adam.step(g, zero_gradients=True)  # matrices and vectors alike
    np.testing.assert_array_equal(g.flat, 0)


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
def test_nonfinite_gradients_stop_the_run_and_name_the_tensor(value):
    g = Parameters(SMALL, np.float64)
    g["h.1.mlp.c_fc.weight"][2, 3] = value
    with pytest.raises(FloatingPointError, match=r"h\.1\.mlp\.c_fc\.weight"):
        clip_scale(g, 1.0)


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan])
def test_impossible_norms_are_refused(bad):
    with pytest.raises(ValueError, match="max_norm"):
        clip_scale(Parameters(SMALL), bad)


# ------------------------------------------------------------------------ schedule


@pytest.mark.parametrize("warmup", [0, 1, 10, 40, 45])
def test_schedule_has_no_dead_step_and_one_top(warmup):
    total = 40
    rates = [
        cosine_schedule(s, max_rate=0.5, min_rate=0.05, warmup=warmup, steps=total)
        for s in range(total + 6)
    ]
    assert all(math.isfinite(r) and r > 0 for r in rates)
    assert max(rates) == 0.5
    assert rates.count(0.5) == 1
    top = rates.index(0.5)
    assert top == min(warmup, total - 1)
    steps_up = np.diff(rates[: top + 1])
    assert (steps_up > 0).all()
    np.testing.assert_allclose(steps_up, 0.5 / (top + 1))  # a straight line, the last stretch too
    assert (np.diff(rates[top:]) <= 0).all()
    assert rates[total:] == [0.05] * 6


def test_schedule_by_hand():
    def rate(step):
        return cosine_schedule(step, max_rate=1.0, min_rate=0.2, warmup=4, steps=12)

    assert rate(0) == pytest.approx(1 / 5)
    assert rate(4) == 1.0
    assert rate(8) == pytest.approx(0.6)  # half-way down
    assert rate(6) == pytest.approx(0.2 + 0.4 * (1 + math.sqrt(0.5)))
    assert rate(12) == 0.2


@pytest.mark.parametrize(
    "bad",
    [{"step": -1}, {"warmup": -1}, {"steps": 0}, {"min_rate": 2.0}, {"max_rate": math.inf}],
)
def test_impossible_schedules_are_refused(bad):
    with pytest.raises(ValueError):
        cosine_schedule(**{"step": 0, "max_rate": 1.0, "min_rate": 0.0, "steps": 10, **bad})


def test_weights_move_at_step_0():
    p = parameters()
    before = p.flat.copy()
    [g] = random_gradients(1)
    AdamW(p).step(g, cosine_schedule(0, max_rate=1e-3, warmup=10, steps=100))
    assert (p.flat != before).mean() > 0.9


# ------------------------------------------------------------- gradient accumulation


def batch(ignored):
    rng = np.random.default_rng(3)
    ids, targets = rng.integers(0, 11, (2, 8, 8))
    if ignored == "uneven":
        targets[0, 1:] = targets[3] = targets[4, ::2] = -1
    return ids, targets


@pytest.mark.parametrize("ignored", ["none", "uneven"])
@pytest.mark.parametrize("parts", [2, 4, 8])
def test_accumulation_equals_the_large_batch(ignored, parts):
    """One row holds a single target, one none: a mean of means would be far off."""
    ids, targets = batch(ignored)
    whole, cut = (GPT2(SMALL, parameters=parameters()) for _ in range(2))
    loss = whole.loss(ids, targets)
    whole.backward()
    assert accumulate(cut, ids, targets, parts) == pytest.approx(loss, rel=1e-12)
    np.testing.assert_allclose(cut.gradients.flat, whole.gradients.flat, rtol=1e-9, atol=1e-14)
    for model in (whole, cut):
        AdamW(model.parameters, ops=ops).step(model.gradients)
    np.testing.assert_allclose(cut.parameters.flat, whole.parameters.flat, rtol=1e-6, atol=1e-9)


def test_accumulation_adds_to_what_is_there():
    ids, targets = batch("none")
    once, twice = (GPT2(SMALL, parameters=parameters()) for _ in range(2))
    accumulate(once, ids, targets, 2)
    accumulate(twice, ids, targets, 2)
    accumulate(twice, ids, targets, 4)
    np.testing.assert_allclose(twice.gradients.flat, 2 * once.gradients.flat, rtol=1e-9, atol=1e-14)


def test_accumulation_must_divide_the_batch():
    ids, targets = batch("none")
    with pytest.raises(ValueError, match="8 cannot be cut into 3"):
        accumulate(GPT2(SMALL, seed=0), ids, targets, 3)


def test_all_targets_ignored_is_no_loss_and_no_gradient():
    ids, _ = batch("none")
    model = GPT2(SMALL, seed=0)
    assert accumulate(model, ids, np.full_like(ids, -1), 2) == 0.0
    assert not model.gradients.flat.any()
