"""What is refused before compiled code sees an address, and in which words."""

from __future__ import annotations

import numpy as np
import pytest

from gpt2lib import kernels, ops

F = np.float32


@pytest.mark.parametrize("bad", [5, 5 + 10**6, -1])
def test_ids_outside_the_vocabulary_raise_as_in_numpy(backend, bad):
    ids = np.array([[0, bad]])
    table, places, x = np.zeros((5, 4), F), np.zeros((3, 4), F), np.zeros((1, 2, 4), F)

    def messages(call):
        with pytest.raises(ValueError) as caught:
            call()
        return str(caught.value)

    def both(call):
        return messages(lambda: call(backend)), messages(lambda: call(ops))

    calls = [
        lambda o: o.embedding_forward(ids, table, places),
        lambda o: o.embedding_backward(x, ids, dwte=table, dwpe=places),
        lambda o: o.cross_entropy_forward(np.zeros((1, 2, 5), F), ids, ignore_index=-7),
        lambda o: o.cross_entropy_backward(
            1.0, np.zeros((1, 2, 5), F), ids, np.zeros((1, 2), F), ignore_index=-7
        ),
    ]
    for call in calls:
        ours, theirs = both(call)
        assert ours == theirs
        assert str(bad) in ours


def test_positions_outside_the_context(backend):
    ids, table, places = np.zeros((1, 2), int), np.zeros((5, 4), F), np.zeros((3, 4), F)
    for position in (-1, 2):
        with pytest.raises(ValueError, match="context"):
            backend.embedding_forward(ids, table, places, position=position)
    cache = np.zeros((1, 2, 3, 2), F)
    with pytest.raises(ValueError, match="cache"):
        backend.attention_cached(np.zeros((1, 2, 12), F), cache, cache.copy(), 2, 2)


@pytest.mark.parametrize(
    "call",
    [
        lambda o: o.linear_forward(np.zeros((2, 3), F), np.zeros((4, 5), F), np.zeros(5, F)),
        lambda o: o.linear_forward(np.zeros((2, 3), F), np.zeros((3, 5), F), np.zeros(4, F)),
        lambda o: o.linear_forward(np.zeros((2, 3), F), np.zeros((3, 5)), np.zeros(5, F)),
        lambda o: o.linear_forward(np.zeros((2, 3), int), np.zeros((3, 5), F), np.zeros(5, F)),
        lambda o: o.residual_forward(np.zeros(3, F), np.zeros(4, F)),
        lambda o: o.gelu_forward(np.zeros(3, F), out=np.zeros(4, F)),
        lambda o: o.gelu_forward(np.zeros(3, F), out=np.zeros(6, F)[::2]),
        lambda o: o.layernorm_forward(np.zeros((2, 3), F), np.zeros(2, F), np.zeros(3, F)),
        lambda o: o.attention_forward(np.zeros((1, 2, 13), F), 2),
        lambda o: o.head_forward(np.zeros((2, 3), F), np.zeros((7, 4), F)),
        lambda o: o.head_mask_forward(np.zeros((1, 2, 4), F), np.zeros(3, F)),
        lambda o: o.adamw_update(
            *[np.zeros(n, F) for n in (3, 3, 3, 4)],
            learning_rate=1,
            beta1=0,
            beta2=0,
            eps=1,
            weight_decay=0,
            step=1,
        ),
        lambda o: o.adamw_update(
            *[np.zeros(3, F)] * 4,
            learning_rate=1,
            beta1=0,
            beta2=0,
            eps=1,
            weight_decay=0,
            step=0,
        ),
    ],
)
def test_arrays_that_do_not_fit(backend, call):
    with pytest.raises(ValueError):
        call(backend)


def test_inputs_may_be_views(backend):
    x = np.arange(24, dtype=F).reshape(4, 6)
    view = x[::2, 1:4]
    np.testing.assert_allclose(backend.gelu_forward(view), ops.gelu_forward(view.copy()), rtol=1e-6)


def test_load_refuses_what_does_not_exist():
    with pytest.raises(ValueError, match="matmul"):
        kernels.load("sequential", matmul="magic")
    with pytest.raises(ValueError, match="runtime"):
        kernels.load("magic")
