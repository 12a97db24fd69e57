"""The model against PyTorch: values recorded by tests/golden/make_model.py."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from gpt2lib.model import GPT2
from gpt2lib.optimizer import AdamW
from gpt2lib.parameters import Parameters
from tests.backends import BACKENDS, SMALL, one_thread, operations

__all__ = ["one_thread"]

TOLERANCE = {"float32": 1e-4, "float64": 1e-9}
pytestmark = [
    pytest.mark.parametrize("backend", BACKENDS),
    pytest.mark.parametrize("dtype", ["float32", "float64"]),
]


@pytest.fixture(scope="module")
def golden():
    with np.load(Path(__file__).parent / "golden" / "model.npz", allow_pickle=False) as file:
        return dict(file)


def build(golden, backend, dtype):
    parameters = Parameters(SMALL, dtype)
    for name, view in parameters.items():
        view[...] = golden[f"parameter/{name}"]
    model = GPT2(SMALL, parameters=parameters)
    model.ops = operations(backend)
    return model


def relative(a, b):
    return float(np.abs(a - b).max() / np.abs(b).max())


def test_logits(golden, backend, dtype):
    logits = build(golden, backend, dtype).forward(golden["ids"][0])
    assert logits.dtype == dtype
    assert relative(logits, golden[f"{dtype}/logits"]) < TOLERANCE[dtype]


def test_loss_and_every_gradient(golden, backend, dtype):
    model = build(golden, backend, dtype)
    loss = model.loss(golden["ids"][0], golden["targets"][0])
    assert loss == pytest.approx(float(golden[f"{dtype}/loss"]), rel=TOLERANCE[dtype])
    model.backward()
    for name, gradient in model.gradients.items():
        assert gradient.dtype == dtype
        expected = golden[f"{dtype}/gradient/{name}"]
        assert relative(gradient, expected) < TOLERANCE[dtype], name


def test_ten_steps_of_adamw(golden, backend, dtype):
    model = build(golden, backend, dtype)
    optimizer = AdamW(
        model.parameters,
        learning_rate=0.01,
        betas=(0.9, 0.95),
        eps=1e-8,
        weight_decay=0.1,
        ops=model.ops,
    )
    losses = []
    for ids, targets in zip(golden["ids"], golden["targets"], strict=True):
        model.zero_gradients()
        losses.append(model.loss(ids, targets))
        model.backward()
        optimizer.step(model.gradients)
    np.testing.assert_allclose(losses, golden[f"{dtype}/losses"], rtol=TOLERANCE[dtype])


@pytest.mark.parametrize("layer", range(3))
def test_a_transposed_square_matrix_is_noticed(golden, backend, dtype, layer):
    # c_proj passes every check of shapes; only the numbers tell.
    model = build(golden, backend, dtype)
    square = model.parameters[f"h.{layer}.attn.c_proj.weight"]
    square[...] = square.T.copy()
    logits = model.forward(golden["ids"][0])
    assert relative(logits, golden[f"{dtype}/logits"]) > 0.01


def test_the_exact_gelu_would_be_noticed(golden, backend, dtype):
    # The two forms differ by less than 5e-4; the comparison above is finer than that.
    from scipy.special import erf

    base = operations(backend)

    class Exact:
        def __getattr__(self, name):
            return getattr(base, name)

        def linear_gelu_forward(self, x, weight, bias, *, out=None, pre=None):
            _, pre = base.linear_gelu_forward(x, weight, bias, out=out, pre=pre)
            out[...] = 0.5 * pre * (1 + erf(pre / np.sqrt(2)))
            return out, pre

    model = build(golden, backend, dtype)
    model.ops = Exact()
    logits = model.forward(golden["ids"][0])
    assert relative(logits, golden[f"{dtype}/logits"]) > 1e-4
