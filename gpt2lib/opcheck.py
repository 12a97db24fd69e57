"""Gradient checks of single operations: each backward against its own forward.

Where :func:`gpt2lib.check.check_gradients` says that a gradient is wrong, this says whose fault it
is. It is also how another backend is shown to be right before it is timed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpt2lib.check import EPSILON, TOLERANCE, Report, check_tensor, one_blas_thread
from gpt2lib.ops._shapes import Array

Inputs = dict[str, Array]


@dataclass(frozen=True)
class Case:
    """One operation with inputs to try it on.

    Attributes
    ----------
    name
        The operation's, without ``_forward``.
    inputs
        What has a gradient, by the forward's argument names.
    forward
        Takes such inputs; returns the result.
    backward
        Takes the result's gradient, the inputs, and gradient buffers (``dx`` for ``x``); returns
        the gradients in the order of the inputs.
    accumulates
        Whether backward adds to the buffers. All do but that of cross-entropy.
    """

    name: str
    inputs: Inputs
    forward: Callable[[Inputs], Array]
    backward: Callable[[Array, Inputs, Inputs], Any]
    accumulates: bool = True


def check_operations(
    ops: Any = None,
    names: str | list[str] | None = None,
    *,
    seed: int = 0,
    epsilon: float = EPSILON,
    tolerance: float = TOLERANCE,
) -> Report:
    r"""Compare every argument's gradient, of every operation, with finite differences in float64.

    The result :math:`y` of an operation is an array; a random :math:`dy` of the same shape makes
    a number of it, :math:`\\sum_i dy_i y_i`, whose gradient the backward must return when it is
    given :math:`dy`. The gradient buffers hold other numbers before, to which it must add.

    Parameters
    ----------
    ops
        A backend; by default :mod:`gpt2lib.ops`.
    names
        Which operations, such as ``"layernorm"``; by default all.
    seed
        For the inputs.
    epsilon, tolerance
        As in :func:`gpt2lib.check.check_gradients`.

    Raises
    ------
    ValueError
        For a name that no operation has.
    """
    if ops is None:
        from gpt2lib import ops
    cases = list(operation_cases(ops, seed))
    wanted = [names] if isinstance(names, str) else names
    known = list(dict.fromkeys(case.name for case in cases))
    for name in wanted or []:
        if name not in known:
            raise ValueError(f"no operation is called {name!r}; there are {', '.join(known)}.")
    report = Report(f"operations in float64, step {epsilon:g}, tolerance {tolerance:g}")
    with one_blas_thread():
        for case in cases:
            if wanted is None or case.name in wanted:
                report.rows.extend(_check(case, seed, epsilon, tolerance))
    return report


def _check(case: Case, seed: int, epsilon: float, tolerance: float) -> Iterator[Any]:
    """Yield a row for every argument of one operation."""
    rng = np.random.default_rng(seed)
    dout = np.asarray(rng.standard_normal(np.shape(case.forward(case.inputs))))

    def loss() -> float:
        return float(np.sum(dout * case.forward(case.inputs)))

    for (name, x), gradient in zip(case.inputs.items(), gradients(case, dout, rng), strict=True):
        label = f"{case.name}: {name}"
        yield check_tensor(label, loss, x, gradient, epsilon=epsilon, tolerance=tolerance)


def gradients(case: Case, dout: Array, rng: np.random.Generator) -> list[Array]:
    """Return the gradients that backward adds to buffers with other numbers in them."""
    inputs = case.inputs.values()
    before = [np.asarray(rng.standard_normal(x.shape), x.dtype) for x in inputs]
    names = [f"d{name}" for name in case.inputs]
    buffers = dict(zip(names, [b.copy() for b in before], strict=True))
    result = case.backward(dout, case.inputs, buffers)
    after = result if isinstance(result, tuple) else (result,)
    if not case.accumulates:
        return list(after)
    return [a - b for a, b in zip(after, before, strict=True)]


# ------------------------------------------------------------------------- the cases


def operation_cases(ops: Any, seed: int = 0, dtype: Any = np.float64) -> Iterator[Case]:
    """Yield every operation of a backend that has a backward, with small random inputs.

    Parameters
    ----------
    ops
        The backend.
    seed
        For the inputs.
    dtype
        Their type.
    """
    rng = np.random.default_rng(seed)

    def normal(*shape: int) -> Array:
        return np.asarray(rng.standard_normal(shape), dtype)

    yield from _linear_cases(ops, normal)
    yield from _pointwise_cases(ops, normal)
    yield from _attention_cases(ops, normal)
    yield from _vocabulary_cases(ops, normal)


def _linear_cases(ops: Any, normal: Callable[..., Array]) -> Iterator[Case]:
    def fused(dy: Array, i: Inputs, b: Inputs) -> Any:
        pre = ops.linear_gelu_forward(**i)[1]
        return ops.linear_gelu_backward(dy, pre, i["x"], i["weight"], **b)

    def layers() -> Inputs:
        return {"x": normal(2, 3, 4), "weight": normal(4, 5), "bias": normal(5)}

    yield Case(
        "linear",
        layers(),
        lambda i: ops.linear_forward(**i),
        lambda dy, i, b: ops.linear_backward(dy, i["x"], i["weight"], **b),
    )
    yield Case("linear_gelu", layers(), lambda i: ops.linear_gelu_forward(**i)[0], fused)


def _pointwise_cases(ops: Any, normal: Callable[..., Array]) -> Iterator[Case]:
    def layernorm(dy: Array, i: Inputs, b: Inputs) -> Any:
        _, mean, rstd = ops.layernorm_forward(**i)
        return ops.layernorm_backward(dy, i["x"], i["weight"], mean, rstd, **b)

    yield Case(
        "layernorm",
        {"x": normal(2, 3, 7), "weight": normal(7), "bias": normal(7)},
        lambda i: ops.layernorm_forward(**i)[0],
        layernorm,
    )
    yield Case(
        "gelu",
        {"x": 2 * normal(2, 3, 5)},
        lambda i: ops.gelu_forward(**i),
        lambda dy, i, b: ops.gelu_backward(dy, i["x"], **b),
    )
    yield Case(
        "residual",
        {"x": normal(2, 3, 4), "y": normal(2, 3, 4)},
        lambda i: ops.residual_forward(**i),
        lambda dy, i, b: ops.residual_backward(dy, **b),
    )
    yield Case(
        "softmax",
        {"x": normal(2, 3, 5)},
        lambda i: ops.softmax_forward(**i),
        lambda dy, i, b: ops.softmax_backward(dy, ops.softmax_forward(**i), **b),
    )


def _attention_cases(ops: Any, normal: Callable[..., Array]) -> Iterator[Case]:
    n_head, mean = 2, normal(2, 3)  # (NH, hs)

    def attention(dy: Array, i: Inputs, b: Inputs) -> Any:
        out, lse = ops.attention_forward(i["qkv"], n_head)
        return ops.attention_backward(dy, i["qkv"], out, lse, n_head, **b)

    yield Case(
        "attention",
        {"qkv": normal(2, 5, 18)},
        lambda i: ops.attention_forward(i["qkv"], n_head)[0],
        attention,
    )
    for name, given in (("head_mask", None), ("head_mask (mean)", mean)):
        yield Case(
            name,
            {"x": normal(2, 4, 6), "mask": normal(2)},
            lambda i, given=given: ops.head_mask_forward(**i, mean=given),  # type: ignore[misc]
            lambda dy, i, b, given=given: ops.head_mask_backward(  # type: ignore[misc]
                dy, i["x"], i["mask"], mean=given, **b
            ),
        )


def _vocabulary_cases(ops: Any, normal: Callable[..., Array]) -> Iterator[Case]:
    ids = np.array([[2, 0, 2, 2], [5, 0, 2, 1]])  # 2 comes four times, 3 and 4 never
    targets = np.array([[3, -1, 0], [6, 6, -1]])  # two are ignored

    def cross_entropy(dy: Array, i: Inputs, b: Inputs) -> Any:
        logits = i["logits"]
        lse = ops.cross_entropy_forward(logits, targets)[2]
        return ops.cross_entropy_backward(float(dy), logits, targets, lse, out=b["dlogits"])

    yield Case(
        "embedding",
        {"wte": normal(6, 3), "wpe": normal(7, 3)},
        lambda i: ops.embedding_forward(ids, **i, position=2),
        lambda dy, i, b: ops.embedding_backward(dy, ids, **b, position=2),
    )
    yield Case(
        "head",
        {"x": normal(2, 3, 4), "wte": normal(7, 4)},
        lambda i: ops.head_forward(**i),
        lambda dy, i, b: ops.head_backward(dy, i["x"], i["wte"], **b),
    )
    yield Case(
        "cross_entropy",
        {"logits": normal(2, 3, 7)},
        lambda i: np.array(ops.cross_entropy_forward(i["logits"], targets)[0]),
        cross_entropy,
        accumulates=False,
    )
