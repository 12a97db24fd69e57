"""What every operation promises: buffers are used, types stay, inputs stay, misfits are refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

import gpt2lib.ops
from gpt2lib.opcheck import operation_cases

IDS = np.array([[2, 0, 2], [5, 1, 2]])
TARGETS = np.array([[3, -1, 0], [6, 6, 2]])


class Call(NamedTuple):
    inputs: list[Any]
    run: Callable[..., Any]  # takes the buffers as keywords
    buffers: dict[str, tuple[int, ...]]  # in the order of the results


def forward_calls(ops: Any, dtype: Any) -> dict[str, Call]:
    rng = np.random.default_rng(1)

    def normal(*shape: int) -> Any:
        return rng.standard_normal(shape).astype(dtype)

    x, weight, bias = normal(2, 3, 6), normal(6, 5), normal(5)
    gain, shift, y = normal(6), normal(6), normal(2, 3, 6)
    wte, wpe, qkv, mask, mean = (
        normal(7, 6),
        normal(4, 6),
        normal(2, 3, 18),
        normal(2),
        normal(2, 3),
    )
    keys, values = normal(2, 2, 5, 3), normal(2, 2, 5, 3)
    wide, narrow, row = (2, 3, 6), (2, 3, 5), (2, 3)
    return {
        "embedding_forward": Call(
            [wte, wpe], lambda **b: ops.embedding_forward(IDS, wte, wpe, **b), {"out": wide}
        ),
        "layernorm_forward": Call(
            [x, gain, shift],
            lambda **b: ops.layernorm_forward(x, gain, shift, **b),
            {"out": wide, "mean": row, "rstd": row},
        ),
        "linear_forward": Call(
            [x, weight, bias],
            lambda **b: ops.linear_forward(x, weight, bias, **b),
            {"out": narrow},
        ),
        "linear_gelu_forward": Call(
            [x, weight, bias],
            lambda **b: ops.linear_gelu_forward(x, weight, bias, **b),
            {"out": narrow, "pre": narrow},
        ),
        "gelu_forward": Call([x], lambda **b: ops.gelu_forward(x, **b), {"out": wide}),
        "residual_forward": Call(
            [x, y], lambda **b: ops.residual_forward(x, y, **b), {"out": wide}
        ),
        "softmax_forward": Call([x], lambda **b: ops.softmax_forward(x, **b), {"out": wide}),
        "attention_forward": Call(
            [qkv],
            lambda **b: ops.attention_forward(qkv, 2, **b),
            {"out": wide, "lse": (2, 2, 3)},
        ),
        "attention_cached": Call(
            [qkv], lambda **b: ops.attention_cached(qkv, keys, values, 1, 2, **b), {"out": wide}
        ),
        "head_mask_forward": Call(
            [x, mask, mean],
            lambda **b: ops.head_mask_forward(x, mask, mean=mean, **b),
            {"out": wide},
        ),
        "head_forward": Call(
            [x, wte], lambda **b: ops.head_forward(x, wte, **b), {"out": (2, 3, 7)}
        ),
        "cross_entropy_forward": Call(
            [logits := normal(2, 3, 7)],
            lambda **b: ops.cross_entropy_forward(logits, TARGETS, **b)[1:],
            {"losses": row, "lse": row},
        ),
    }


def backward_calls(ops: Any, dtype: Any) -> dict[str, Call]:
    calls = {}
    for case in operation_cases(ops, seed=1, dtype=dtype):
        dout = np.ones(np.shape(case.forward(case.inputs)), dtype)

        def run(case=case, dout=dout, **buffers):
            names = [f"d{name}" for name in case.inputs]
            zeros = [np.zeros_like(x) for x in case.inputs.values()]
            given = {**dict(zip(names, zeros, strict=True)), **buffers}
            return case.backward(dout, case.inputs, given)

        shapes = {f"d{name}": x.shape for name, x in case.inputs.items()}
        calls[f"{case.name}_backward"] = Call([*case.inputs.values(), dout], run, shapes)
    return calls


def calls(ops: Any, dtype: Any) -> dict[str, Call]:
    return {**forward_calls(ops, dtype), **backward_calls(ops, dtype)}


NAMES = list(calls(gpt2lib.ops, np.float64))


def results(call: Call, **buffers: Any) -> tuple[Any, ...]:
    out = call.run(**buffers)
    return out if isinstance(out, tuple) else (out,)


def test_every_operation_is_in_the_table():
    table = {name.replace(" (mean)", "") for name in NAMES}
    rest = {"adamw_update", "squared_norm", "zero"}
    assert table == set(gpt2lib.ops.__all__) - rest


def test_a_backend_has_exactly_these_names(ops):
    for name in gpt2lib.ops.__all__:
        assert callable(getattr(ops, name)), name


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_buffers_are_used_and_returned(ops, name, dtype):
    call = calls(ops, dtype)[name]
    buffers = {b: np.zeros(shape, dtype) for b, shape in call.buffers.items()}
    given, fresh = results(call, **buffers), results(call)
    for returned, buffer, expected in zip(given, buffers.values(), fresh, strict=True):
        assert np.shares_memory(returned, buffer)
        np.testing.assert_array_equal(buffer, expected)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_type_in_is_type_out(ops, name, dtype):
    for result in results(calls(ops, dtype)[name]):
        assert result.dtype == dtype


@pytest.mark.parametrize("name", NAMES)
def test_float32_agrees_with_float64(ops, name):
    narrow, wide = (results(calls(ops, dtype)[name]) for dtype in (np.float32, np.float64))
    for a, b in zip(narrow, wide, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_inputs_are_not_touched(ops, name):
    call = calls(ops, np.float64)[name]
    before = [np.array(x) for x in call.inputs]
    call.run()
    for x, old in zip(call.inputs, before, strict=True):
        np.testing.assert_array_equal(x, old)


@pytest.mark.parametrize("name", NAMES)
def test_a_buffer_that_does_not_fit_is_refused(ops, name):
    call = calls(ops, np.float32)[name]
    for buffer, shape in call.buffers.items():
        wide = (*shape[:-1], 2 * shape[-1])
        wrong = {
            "shape": np.zeros(wide, np.float32),
            "type": np.zeros(shape, np.float64),
            "layout": np.zeros(wide, np.float32)[..., ::2],
        }
        for why, array in wrong.items():
            if why == "shape" and name == "embedding_backward":
                array = np.zeros((*shape[:-1], shape[-1] + 1), np.float32)
            with pytest.raises(ValueError, match=r"shape|needed|C-contiguous"):
                call.run(**{buffer: array})


def test_gradients_that_are_not_given_start_at_zero(ops):
    x, w = np.ones((2, 3), np.float32), np.ones((3, 4), np.float32)
    dx, dweight, dbias = ops.linear_backward(np.ones((2, 4), np.float32), x, w)
    assert (dx == 4).all()
    assert (dweight == 2).all()
    assert (dbias == 2).all()
    (dx, dy) = ops.residual_backward(x)
    assert not np.shares_memory(dx, x)
    assert not np.shares_memory(dy, x)
