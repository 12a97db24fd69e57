"""Every operation with arguments of awkward sizes, drawn anew from a seed: what the tests share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from gpt2lib import ops


class Shape(NamedTuple):
    """B, T, NH, hs, V: none a multiple of a chunk's size, some of them 1."""

    B: int
    T: int
    NH: int
    hs: int
    V: int


SHAPES = [
    Shape(1, 1, 1, 5, 7),
    Shape(2, 7, 3, 16, 513),
    Shape(1, 130, 2, 24, 33),
    Shape(1, 600, 2, 20, 1100),
]


class Case(NamedTuple):
    """One call: the operation's name and its arguments, which the call may change."""

    name: str
    arguments: tuple[Any, ...]
    keywords: dict[str, Any]

    def run(self, backend: Any) -> list[np.ndarray]:
        """Call the operation on copies; return its results and every buffer, as it left them."""
        arguments = [_copy(x) for x in self.arguments]
        keywords = {name: _copy(x) for name, x in self.keywords.items()}
        returned = getattr(backend, self.name)(*arguments, **keywords)
        results = returned if isinstance(returned, tuple) else (returned,)
        buffers = [x for x in (*arguments, *keywords.values()) if isinstance(x, np.ndarray)]
        return [np.asarray(x, np.float64) for x in (*results, *buffers) if x is not None]


def _copy(x: Any) -> Any:
    return x.copy() if isinstance(x, np.ndarray) else x


def cases(shape: Shape, dtype: str, seed: int = 0) -> Iterator[Case]:
    """Yield a call of every operation; gradients begin at random numbers, which must stay in."""
    B, T, NH, hs, V = shape
    C = NH * hs
    rng = np.random.default_rng(seed)

    def R(*s: int) -> np.ndarray:
        return rng.standard_normal(s).astype(dtype)

    def case(name: str, *arguments: Any, **keywords: Any) -> Case:
        return Case(name, arguments, keywords)

    x, gain, bias = R(B, T, C), R(C), R(C)
    ids, targets = rng.integers(0, V, (B, T)), rng.integers(0, V, (B, T))
    targets[0, 0] = -1
    yield case("embedding_forward", ids, R(V, C), R(T + 3, C), position=2)
    yield case("embedding_backward", x, ids, dwte=R(V, C), dwpe=R(T + 3, C), position=1)
    yield case("layernorm_forward", x, gain, bias, eps=1e-3)
    _, mean, rstd = ops.layernorm_forward(x, gain, bias)
    moments = x, gain, mean, rstd
    yield case("layernorm_backward", R(B, T, C), *moments, dx=R(B, T, C), dweight=R(C), dbias=R(C))
    weight, wide = R(C, 3 * C) / np.asarray(C**0.5, dtype), R(B, T, 3 * C)
    gradients = {"dx": R(B, T, C), "dweight": R(C, 3 * C), "dbias": R(3 * C)}
    yield case("linear_forward", x, weight, R(3 * C))
    yield case("linear_backward", wide, x, weight, **gradients)
    yield case("linear_gelu_forward", x, weight, R(3 * C))
    yield case("linear_gelu_backward", wide, R(B, T, 3 * C), x, weight, **gradients)
    yield case("gelu_forward", x)
    yield case("gelu_backward", R(B, T, C), x, dx=R(B, T, C))
    yield case("residual_forward", x, R(B, T, C))
    yield case("residual_backward", x, dx=R(B, T, C), dy=R(B, T, C))
    yield case("softmax_forward", x)
    yield case("softmax_backward", R(B, T, C), ops.softmax_forward(x), dx=R(B, T, C))
    yield from _attention(case, R, wide, shape)
    mask, means = R(NH), R(NH, hs)
    for mean_or_none in (None, means):
        yield case("head_mask_forward", x, mask, mean=mean_or_none)
        given = {"mean": mean_or_none, "dx": R(B, T, C), "dmask": R(NH)}
        yield case("head_mask_backward", R(B, T, C), x, mask, **given)
    wte = R(V, C) / np.asarray(C**0.5, dtype)
    logits = ops.head_forward(x, wte)
    yield case("head_forward", x, wte)
    yield case("head_backward", logits, x, wte, dx=R(B, T, C), dwte=R(V, C))
    yield case("cross_entropy_forward", logits, targets)
    lse = ops.cross_entropy_forward(logits, targets)[2]
    yield case("cross_entropy_backward", 0.7, logits, targets, lse)
    rates = {"learning_rate": 0.01, "beta1": 0.9, "beta2": 0.99, "eps": 1e-8}
    state = [np.abs(R(1003)) for _ in range(4)]
    settings = {**rates, "weight_decay": 0.1, "step": 3, "gradient_scale": 0.5}
    yield case("adamw_update", *state, **settings)
    yield case("squared_norm", x)
    yield case("zero", R(1003))


def _attention(case: Callable[..., Case], R: Any, qkv: np.ndarray, shape: Shape) -> Iterator[Case]:
    B, T, NH, hs, _ = shape
    C = NH * hs
    yield case("attention_forward", qkv, NH)
    yield case("attention_forward", qkv, NH, probabilities=R(B, NH, T, T))
    out, lse = ops.attention_forward(qkv, NH)
    yield case("attention_backward", R(B, T, C), qkv, out, lse, NH, dqkv=R(B, T, 3 * C))
    for new, position in ((1, 0), (1, 5), (min(T, 3), 4), (T, 9)):
        cache = R(B, NH, T + 9, hs), R(B, NH, T + 9, hs)
        yield case("attention_cached", qkv[:, :new].copy(), *cache, position, NH)


def numbered(dtype: str) -> list[Any]:
    """Return every case of every shape as (shape, index), for parametrisation, with its name."""
    import pytest

    return [
        pytest.param(shape, number, id=f"{made.name}-{number}-{'x'.join(map(str, shape))}")
        for shape in SHAPES
        for number, made in enumerate(cases(shape, dtype))
    ]
