"""FLOPs and bytes: counted by numbers that count, by hand, and against ``training_flops``."""

from __future__ import annotations

import math

import numpy as np
import pytest

from gpt2lib import ops
from gpt2lib.config import GPT2Config
from gpt2lib.model import GPT2
from gpt2lib.optimizer import AdamW
from gpt2lib.perf.operations import BETWEEN, TimedOps, Work, products, work

SMALL = GPT2Config(vocab_size=61, context=80, layers=2, heads=2, channels=16)


class Number:
    """A number that counts what is computed with it; the equations below are written out in it."""

    count = 0

    def __init__(self, value: float) -> None:
        self.value = value

    def _with(self, other, function):
        Number.count += 1
        return Number(function(self.value, other.value if isinstance(other, Number) else other))

    def __add__(self, other):
        return self._with(other, lambda a, b: a + b)

    def __sub__(self, other):
        return self._with(other, lambda a, b: a - b)

    def __mul__(self, other):
        return self._with(other, lambda a, b: a * b)

    def __truediv__(self, other):
        return self._with(other, lambda a, b: a / b)

    __radd__, __rmul__ = __add__, __mul__

    def __rsub__(self, other):
        return self._with(other, lambda a, b: b - a)

    def __rtruediv__(self, other):
        return self._with(other, lambda a, b: b / a)

    def of(self, function):
        return self._with(0, lambda a, b: function(a))


def numbers(rng, *shape):
    flat = [Number(float(v)) for v in rng.uniform(0.2, 1.0, math.prod(shape))]
    if len(shape) == 1:
        return flat
    return [flat[i : i + shape[1]] for i in range(0, len(flat), shape[1])]


def add_up(terms, start=None):
    """Add from left to right; with n terms and no start that takes n − 1 additions."""
    total = start
    for term in terms:
        total = term if total is None else total + term
    return total


def counted(function):
    Number.count = 0
    function()
    return Number.count


def f4(*shape):
    return np.ones(shape, np.float32)


@pytest.fixture
def rng():
    return np.random.default_rng(0)


# ------------------------------------------------------------------- equations, counted


def test_linear_layers(rng):
    N, I, O = 2, 3, 5  # noqa: E741
    x, w, b = numbers(rng, N, I), numbers(rng, I, O), numbers(rng, O)

    def forward():
        for n in range(N):
            for o in range(O):
                add_up((x[n][i] * w[i][o] for i in range(I)), b[o])

    assert work("linear_forward", (f4(N, I), f4(I, O), f4(O))).flops == counted(forward)

    dy, dx, dw, db = numbers(rng, N, O), numbers(rng, N, I), numbers(rng, I, O), numbers(rng, O)

    def backward():
        for o in range(O):
            add_up((dy[n][o] for n in range(N)), db[o])
            for i in range(I):
                add_up((x[n][i] * dy[n][o] for n in range(N)), dw[i][o])
        for n in range(N):
            for i in range(I):
                add_up((dy[n][o] * w[i][o] for o in range(O)), dx[n][i])

    assert work("linear_backward", (f4(N, O), f4(N, I), f4(I, O))).flops == counted(backward)


def test_gelu():
    x, dout, dx = Number(0.3), Number(0.5), Number(0.1)
    s, cubic = 0.79788456, 0.044715

    def forward():
        _ = 0.5 * (x * (1.0 + (s * (x * (1.0 + cubic * (x * x)))).of(math.tanh)))

    def backward():
        square = x * x
        t = (s * x * (1.0 + cubic * square)).of(math.tanh)
        slope = 0.5 * ((1.0 - t * t) * x * (s * (1.0 + 3 * cubic * square)) + 1.0 + t)
        _ = dx + slope * dout

    assert work("gelu_forward", (f4(7),)).flops == 7 * counted(forward)
    assert work("gelu_backward", (f4(7), f4(7))).flops == 7 * counted(backward)
    plain = work("linear_backward", (f4(2, 5), f4(2, 3), f4(3, 5)))
    fused = work("linear_gelu_backward", (f4(2, 5), f4(2, 5), f4(2, 3), f4(3, 5)))
    assert fused.flops - plain.flops == 10 * (counted(backward) - 1)  # dpre is not added to
    fused = work("linear_gelu_forward", (f4(2, 3), f4(3, 5), f4(5)))
    assert fused.flops == 2 * 2 * 3 * 5 + 10 * counted(forward)


def test_layernorm(rng):
    N, C = 3, 4
    x, w, b, dy = (numbers(rng, N, C), numbers(rng, C), numbers(rng, C), numbers(rng, N, C))
    dx, dw, db = numbers(rng, N, C), numbers(rng, C), numbers(rng, C)
    mean, rstd = numbers(rng, N), numbers(rng, N)
    zero = Number(0.0)  # sums begin at it, so that n terms are n additions

    def forward():
        for row in x:
            mu = add_up(row, zero) / C
            centered = [v - mu for v in row]
            variance = add_up((v * v for v in centered), zero) / C
            r = 1 / (variance + 1e-5).of(math.sqrt)
            for c in range(C):
                _ = centered[c] * r * w[c] + b[c]

    def backward():
        for n in range(N):
            hat = [(x[n][c] - mean[n]) * rstd[n] for c in range(C)]
            g = [dy[n][c] * w[c] for c in range(C)]
            along = add_up((g[c] * hat[c] for c in range(C)), zero) / C
            middle = add_up(g, zero) / C
            for c in range(C):
                db[c] = db[c] + dy[n][c]
                dw[c] = dw[c] + dy[n][c] * hat[c]
                _ = dx[n][c] + (g[c] - middle - hat[c] * along) * rstd[n]

    arrays = f4(N, C), f4(N, C), f4(C), f4(N), f4(N)
    assert work("layernorm_forward", (f4(N, C), f4(C), f4(C))).flops == counted(forward)
    assert work("layernorm_backward", arrays).flops == counted(backward)


def test_softmax_and_cross_entropy(rng):
    N, V = 2, 6
    z, lse, p, dp, dz = (numbers(rng, N, V), numbers(rng, N), *(numbers(rng, N, V),) * 3)
    zero, top = Number(0.0), Number(1.0)

    def softmax():
        for row in z:
            e = [(v - top).of(math.exp) for v in row]
            total = add_up(e, zero)
            _ = [v / total for v in e]

    def softmax_back():
        for n in range(N):
            along = add_up((a * b for a, b in zip(p[n], dp[n], strict=True)), zero)
            _ = [dz[n][k] + p[n][k] * (dp[n][k] - along) for k in range(V)]

    def loss():
        total = zero
        for row in z:
            e = add_up(((v - top).of(math.exp) for v in row), zero)
            total = total + (top + e.of(math.log) - row[3])

    def loss_back():
        for n in range(N):
            d = [0.25 * (v - lse[n]).of(math.exp) for v in z[n]]
            _ = d[3] - 0.25

    y = np.array([3, 3])
    assert work("softmax_forward", (f4(N, V),)).flops == counted(softmax)
    assert work("softmax_backward", (f4(N, V), f4(N, V))).flops == counted(softmax_back)
    assert work("cross_entropy_forward", (f4(N, V), y)).flops == counted(loss)
    assert work("cross_entropy_backward", (1.0, f4(N, V), y, f4(N))).flops == counted(loss_back)


def test_attention(rng):
    """One sequence of T = 3, two heads of hs = 2, causal."""
    T, NH, hs = 3, 2, 2
    zero, top = Number(0.0), Number(0.9)
    q, k, v, z, dz, lse = (numbers(rng, T, hs) for _ in range(6))
    dq, dk, dv = (numbers(rng, T, hs) for _ in range(3))

    def dot(a, b):
        return add_up((s * t for s, t in zip(a, b, strict=True)), zero)

    def forward():
        for i in range(T):
            e = [(0.7 * dot(q[i], k[j]) - top).of(math.exp) for j in range(i + 1)]
            total = add_up(e, zero)
            inverse = 1 / total
            for c in range(hs):
                _ = add_up((e[j] * v[j][c] for j in range(i + 1)), zero) * inverse
            _ = top + total.of(math.log)

    def add(row, factor, other):
        for c in range(hs):
            row[c] = row[c] + factor * other[c]

    def backward():
        for i in range(T):
            along = dot(dz[i], z[i])
            for j in range(i + 1):
                p = (0.7 * dot(q[i], k[j]) - lse[i][0]).of(math.exp)
                add(dv[j], p, dz[i])
                ds = 0.7 * (p * (dot(dz[i], v[j]) - along))
                add(dq[i], ds, k[j])
                add(dk[j], ds, q[i])

    C = NH * hs
    arrays = f4(1, T, C), f4(1, T, 3 * C), f4(1, T, C), f4(1, NH, T), NH
    assert work("attention_forward", (f4(1, T, 3 * C), NH)).flops == NH * counted(forward)
    assert work("attention_backward", arrays).flops == NH * counted(backward)
    five = work("attention_forward", (f4(1, 5, 3 * C), NH))
    cache = f4(1, NH, 9, hs), f4(1, NH, 9, hs)
    steps = [work("attention_cached", (f4(1, 1, 3 * C), *cache, t, NH)) for t in range(5)]
    # Token by token it is the same work, but for the log-sum-exp (a log, an addition).
    assert sum(s.flops for s in steps) == five.flops - 5 * NH * 2


def test_adamw():
    p, g, m, v = (Number(x) for x in (0.1, 0.2, 0.3, 0.4))

    def update():
        x = g * 0.5
        first = 0.9 * m + 0.1 * x
        second = 0.999 * v + 0.001 * (x * x)
        _ = 0.99 * p - 0.1 * (first / (second.of(math.sqrt) * 1.1 + 1e-8))

    found = work("adamw_update", (f4(10),) * 4, {"zero_gradients": True})
    assert found == Work("", 10 * counted(update), 8 * 40)
    assert work("adamw_update", (f4(10),) * 4).bytes == 7 * 40


# ------------------------------------------------------------------- by hand


@pytest.mark.parametrize(
    ("name", "arguments", "shape", "flops", "numbers"),
    [
        # Numbers of four bytes: in, out, and twice what is added to.
        ("linear_forward", (f4(2, 3), f4(3, 5), f4(5)), "3 -> 5", 60, 6 + 15 + 5 + 10),
        (
            "linear_backward",
            (f4(2, 5), f4(2, 3), f4(3, 5)),
            "3 -> 5",
            120 + 10,
            10 + 6 + 15 + 2 * (6 + 15 + 5),
        ),
        ("linear_gelu_forward", (f4(2, 3), f4(3, 5), f4(5)), "3 -> 5", 60 + 90, 36 + 10),
        (
            "linear_gelu_backward",
            (f4(2, 5), f4(2, 5), f4(2, 3), f4(3, 5)),
            "3 -> 5",
            130 + 170,
            83 + 2 * 10,
        ),
        ("head_forward", (f4(2, 3), f4(7, 3)), "3 -> 7", 84, 6 + 21 + 14),
        ("head_backward", (f4(2, 7), f4(2, 3), f4(7, 3)), "3 -> 7", 168, 14 + 6 + 21 + 2 * 27),
        ("residual_forward", (f4(4, 5), f4(4, 5)), "", 20, 60),
        ("residual_backward", (f4(4, 5),), "", 40, 100),
        ("gelu_forward", (f4(4),), "", 36, 8),
        ("layernorm_forward", (f4(2, 3), f4(3), f4(3)), "", 52, 6 + 6 + 6 + 4),
        (
            "layernorm_backward",
            (f4(2, 3), f4(2, 3), f4(3), f4(2), f4(2)),
            "",
            88,
            6 + 6 + 3 + 4 + 2 * (6 + 3 + 3),
        ),
        ("attention_forward", (f4(1, 2, 12), 2), "", 3 * (16 + 8) + 8 + 12, 24 + 8 + 4),
        ("zero", (f4(9),), "", 0, 9),
        ("squared_norm", (f4(9),), "", 18, 9),
        ("softmax_forward", (f4(3, 3),), "", 36, 18),
        ("head_mask_forward", (f4(1, 2, 4), f4(2)), "", 8, 16 + 2),
        ("head_mask_backward", (f4(1, 2, 4), f4(1, 2, 4), f4(2)), "", 32, 32 + 6),
    ],
)
def test_by_hand(name, arguments, shape, flops, numbers):
    assert work(name, arguments) == Work(shape, flops, 4 * numbers)


def test_an_embedding_moves_the_rows_that_occur():
    ids = np.array([[3, 3, 5], [5, 3, 3]])  # two different tokens, three positions
    wte, wpe, x = f4(10, 4), f4(8, 4), f4(2, 3, 4)
    forward = work("embedding_forward", (ids, wte, wpe))
    assert forward == Work("", 24, 6 * 8 + 4 * (2 * 4 + 3 * 4 + 24))
    backward = work("embedding_backward", (x, ids), {"dwte": wte, "dwpe": wpe})
    assert backward == Work("", 48, 6 * 8 + 4 * (24 + 2 * (2 * 4 + 3 * 4)))


def test_doubles_move_twice_the_bytes():
    double = np.ones((2, 3)), np.ones((3, 5)), np.ones(5)
    single = f4(2, 3), f4(3, 5), f4(5)
    assert work("linear_forward", double).bytes == 2 * work("linear_forward", single).bytes


def test_every_operation_is_counted():
    names = [n for n in dir(ops) if n.endswith(("_forward", "_backward"))]
    from gpt2lib.perf.operations import _COUNTS

    others = {"adamw_update", "attention_cached", "squared_norm", "zero"}
    assert set(names) | others == set(_COUNTS)
    assert work("run", ()) == Work("", 0, 0)


# ------------------------------------------------------------------- a step


def step_of(config, batch, seq, steps=2):
    """Return the timed operations of some training steps on the NumPy backend."""
    model = GPT2(config, seed=0)
    optimizer = AdamW(model.parameters, ops=model.ops)
    model.ops = optimizer.ops = timed = TimedOps(model.ops)
    ids = np.arange(batch * seq).reshape(batch, seq) % config.vocab_size
    for _ in range(steps):
        model.loss(ids, ids)
        model.backward()
        optimizer.step(model.gradients, zero_gradients=True)
    return timed


def test_the_products_of_a_step_are_the_models():
    timed = step_of(SMALL, 4, 24)
    rows = timed.rows(2)
    total = sum(timed.products(row["operation"], row["shape"]) for row in rows)
    assert total == 2 * SMALL.training_flops(4, 24)
    assert products("adamw_update", (f4(3),) * 4) == 0


def test_the_flops_of_a_step():
    """Take from the model's number the pairs that the mask leaves out; add all the rest."""
    B, T, L, C, V, NH = 4, 24, SMALL.layers, SMALL.channels, SMALL.vocab_size, SMALL.heads
    N = B * T
    square, pairs = B * T * T, B * T * (T + 1) // 2
    attention = L * (pairs * (14 * C + 10 * NH) + 3 * N * C + 3 * N * NH)
    elementwise = (
        (2 * L + 1) * (21 * N * C + 7 * N)  # LayerNorm
        + L * 26 * N * 4 * C  # GELU
        + L * 9 * N * C  # the four biases' gradients
        + 2 * L * N * C  # residuals
        + 6 * N * V + 5 * N  # cross-entropy
        + 3 * N * C  # embeddings
        + 15 * SMALL.parameter_count
    )  # fmt: skip
    expected = SMALL.training_flops(B, T) - 12 * L * square * C + attention + elementwise
    assert sum(row["flops"] for row in step_of(SMALL, B, T).rows(2)) == expected


def test_rows_are_of_one_step_longest_first():
    timed = step_of(SMALL, 2, 8, steps=3)
    rows = timed.rows(3)
    assert all(list(row) == ["operation", "shape", "calls", "ms", "flops", "bytes"] for row in rows)
    spent = [row["ms"] for row in rows[:-1]]
    assert spent == sorted(spent, reverse=True)
    assert rows[-1]["operation"] == BETWEEN
    assert rows[-1]["ms"] > 0
    calls = {(row["operation"], row["shape"]): row["calls"] for row in rows}
    assert calls["linear_forward", "16 -> 48"] == SMALL.layers
    assert calls["layernorm_backward", ""] == 2 * SMALL.layers + 1
    assert calls["adamw_update", ""] == 2  # what decays, and what does not
    with pytest.raises(ValueError, match="at least one step"):
        timed.rows(0)


def test_what_is_no_operation_comes_through():
    class Backend:
        runtime, matmul = object(), "blas"

        def zero(self, x):
            return x

    timed = TimedOps(Backend())
    assert timed.runtime is Backend.runtime
    assert timed.matmul == "blas"
    assert timed.zero(f4(1)) == 1
    with pytest.raises(AttributeError):
        _ = timed.nothing
