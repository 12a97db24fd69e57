from __future__ import annotations

import gc
import math
import tracemalloc
from typing import Any

import numpy as np
import pytest

from gpt2lib.ablation import heads_off
from gpt2lib.activations import Activations
from gpt2lib.config import GPT2Config
from gpt2lib.model import GPT2
from gpt2lib.optimizer import AdamW
from gpt2lib.parameters import Parameters
from tests.backends import (
    BACKENDS,
    SMALL,
    one_thread,
    operations,
    random_ids,
    random_model,
    random_parameters,
)

__all__ = ["one_thread"]

L, NH, C, V, CONTEXT = SMALL.layers, SMALL.heads, SMALL.channels, SMALL.vocab_size, SMALL.context
IDS, TARGETS = random_ids(SMALL, 2, 5)
both_backends = pytest.mark.parametrize("backend", BACKENDS)
both_types = pytest.mark.parametrize("dtype", [np.float32, np.float64])


def gradients(model: GPT2, *batches: Any, **more: Any) -> np.ndarray:
    """Return the gradients of (ids, targets, dloss), added up."""
    model.zero_gradients()
    for ids, targets, dloss in batches:
        model.loss(ids, targets, **more)
        model.backward(dloss)
    return model.gradients.flat.copy()


# ------------------------------------------------------------------------- forward


@both_backends
@both_types
def test_shapes_and_types(backend, dtype):
    model = random_model(backend, dtype=dtype)
    logits = model.forward(IDS)
    assert logits.shape == (2, 5, V)
    assert logits.dtype == dtype
    one = model.forward(IDS[1])
    assert one.shape == (5, V)
    np.testing.assert_allclose(one, logits[1], rtol=1e-4, atol=1e-5)
    assert isinstance(model.loss(IDS, TARGETS), float)


@both_backends
def test_logits_are_the_callers_to_keep(backend):
    model = random_model(backend)
    first = model.forward(IDS)
    kept = first.copy()
    second = model.forward(IDS[:, ::-1])
    assert not np.shares_memory(first, second)
    model.loss(IDS, TARGETS)
    model.backward()
    np.testing.assert_array_equal(first, kept)


@pytest.mark.parametrize("kind", [list, np.uint16, np.int32, np.int64])
def test_ids_of_any_kind(kind):
    model = random_model("numpy")
    ids = IDS.tolist() if kind is list else IDS.astype(kind)
    np.testing.assert_array_equal(model.forward(ids), model.forward(IDS))
    assert model.loss(ids, TARGETS.tolist()) == model.loss(IDS, TARGETS)


@both_backends
def test_a_later_token_changes_nothing_before_it(backend):
    model = random_model(backend)
    other = IDS.copy()
    other[:, 3] = (other[:, 3] + 1) % V
    before, after = model.forward(IDS), model.forward(other)
    np.testing.assert_array_equal(before[:, :3], after[:, :3])
    assert (before[:, 3:] != after[:, 3:]).any(axis=-1).all()


@both_backends
def test_a_row_of_the_batch_does_not_see_the_others(backend):
    model = random_model(backend, dtype=np.float64)
    batch = model.forward(IDS)
    for row in range(2):
        np.testing.assert_allclose(model.forward(IDS[row]), batch[row], rtol=1e-10, atol=1e-12)


@both_backends
@both_types
def test_the_loss_is_the_mean_surprise(backend, dtype):
    model = random_model(backend, dtype=dtype)
    logits = model.forward(IDS).astype(np.float64)
    p = np.exp(logits) / np.exp(logits).sum(axis=-1, keepdims=True)
    surprise = -np.log(np.take_along_axis(p, TARGETS[..., None], axis=-1)[..., 0])
    loss = model.loss(IDS, TARGETS)
    assert loss == pytest.approx(surprise.mean(), rel=1e-5)
    np.testing.assert_allclose(model.losses, surprise, rtol=1e-4)
    some = TARGETS.copy()
    some[0, 1] = some[1, :3] = -1
    assert model.loss(IDS, some) == pytest.approx(surprise[some >= 0].mean(), rel=1e-5)
    assert (model.losses[some < 0] == 0).all()
    assert model.loss(IDS, np.where(some < 0, -7, some), ignore_index=-7) == model.loss(IDS, some)


@both_backends
def test_nothing_to_predict_is_zero_with_zero_gradient(backend):
    model = random_model(backend)
    none = np.full_like(TARGETS, -1)
    assert model.loss(IDS, none) == 0.0
    model.backward()
    assert not model.gradients.flat.any()


@pytest.mark.parametrize(("vocab_size", "seeds"), [(65, 5), (512, 3), (50257, 1)])
def test_the_first_loss_is_ln_v(vocab_size, seeds):
    config = GPT2Config(vocab_size, context=32, layers=4, heads=4, channels=64)
    for seed in range(seeds):
        ids, targets = np.random.default_rng(seed).integers(0, vocab_size, (2, 2, 32))
        loss = GPT2(config, seed=seed).loss(ids, targets)
        assert loss == pytest.approx(math.log(vocab_size), rel=0.02)
        assert config.uniform_loss == math.log(vocab_size)


def test_depth_does_not_blow_up_the_stream():
    sizes = []
    for layers in (2, 12, 24):
        config = GPT2Config(65, context=16, layers=layers, heads=4, channels=64)
        model = GPT2(config, seed=0)
        with model.record(f"h.{layers - 1}") as seen:
            model.forward(np.arange(16))
        sizes.append(float(seen[f"h.{layers - 1}"][:, -1].std()))
    assert max(sizes) < 2 * min(sizes)


# ------------------------------------------------------------------------- refusals


@both_backends
@pytest.mark.parametrize("bad", [V, V + 10**6, -1])
def test_ids_outside_the_vocabulary(backend, bad):
    model = random_model(backend)
    ids = IDS.copy()
    ids[1, 2] = bad
    for call in (
        lambda: model.forward(ids),
        lambda: model.loss(ids, TARGETS),
        lambda: model.decode(ids, model.new_cache(2)),
    ):
        with pytest.raises(ValueError, match=rf"{bad} at position \(1, 2\).*{V} tokens"):
            call()


@both_backends
@pytest.mark.parametrize("bad", [V, V + 10**6, -2])
def test_targets_outside_the_vocabulary(backend, bad):
    targets = TARGETS.copy()
    targets[1, 0] = bad
    with pytest.raises(ValueError, match=rf"{bad} at position 5.*{V} tokens"):
        random_model(backend).loss(IDS, targets)


@pytest.mark.parametrize("shape", [(5, 2), (10,), (2, 4), (1, 10), ()])
def test_targets_of_another_shape(shape):
    with pytest.raises(ValueError, match="shape"):
        random_model("numpy").loss(IDS, np.zeros(shape, int))


@pytest.mark.parametrize("ids", [[], [[]], [[[1]]], 3, [[1.5]], [[True]], "text"])
def test_what_is_no_text(ids):
    with pytest.raises(ValueError, match=r"ids|token"):
        random_model("numpy").forward(ids)


@both_backends
def test_a_text_longer_than_the_context(backend):
    model = random_model(backend)
    ids = np.zeros((1, CONTEXT + 1), int)
    model.forward(ids[:, 1:])
    message = rf"{CONTEXT + 1} tokens.*{CONTEXT}"
    with pytest.raises(ValueError, match=message):
        model.forward(ids)
    with pytest.raises(ValueError, match=message):
        model.loss(ids, ids)
    cache = model.new_cache()
    model.decode(ids[:, 2:], cache)
    with pytest.raises(ValueError, match=message):
        model.decode(ids[:, :2], cache)
    assert cache.length == CONTEXT - 1
    model.decode(ids[:, :1], cache)


def test_models_that_cannot_be():
    with pytest.raises(ValueError, match="backend"):
        GPT2(SMALL, backend="torch")
    with pytest.raises(ValueError, match=r"runtime.*numba"):
        GPT2(SMALL, runtime="openmp")
    with pytest.raises(ValueError, match="parameters are those of"):
        GPT2(SMALL, parameters=Parameters(GPT2Config.preset("tiny")))


def test_given_parameters_are_used_not_copied():
    parameters = random_parameters(SMALL)
    model = GPT2(SMALL, parameters=parameters)
    assert model.parameters is parameters
    before = model.forward(IDS)
    parameters["wte"][...] += 1
    assert (model.forward(IDS) != before).any()


def test_there_is_no_second_head():
    model = GPT2(SMALL)
    assert [n for n, value in model.parameters.items() if V in value.shape] == ["wte"]
    assert [n for n, value in model.gradients.items() if V in value.shape] == ["wte"]


# ------------------------------------------------------------------------- backward


def test_a_backward_needs_a_forward_of_its_own():
    model = random_model("numpy")
    with pytest.raises(RuntimeError, match="loss"):
        model.backward()
    model.loss(IDS, TARGETS)
    model.backward()
    with pytest.raises(RuntimeError, match="loss"):
        model.backward()
    model.loss(IDS, TARGETS)
    model.forward(IDS)  # its activations are not those of the loss
    with pytest.raises(RuntimeError, match="dlogits"):
        model.backward()


def test_a_forward_that_broke_off_serves_no_backward():
    model = random_model("numpy")
    model.loss(IDS, TARGETS)

    class Broken:
        def __getattr__(self, name):
            return getattr(operations("numpy"), name)

        def attention_forward(self, *args, **more):
            raise KeyboardInterrupt

    whole, model.ops = model.ops, Broken()
    with pytest.raises(KeyboardInterrupt):
        model.loss(IDS, TARGETS)
    model.ops = whole
    with pytest.raises(RuntimeError, match="loss"):
        model.backward()


@both_backends
def test_own_gradients_of_the_logits(backend):
    model = random_model(backend, dtype=np.float64)
    expected = gradients(model, (IDS, TARGETS, 1.0))
    logits = model.forward(IDS)
    p = np.exp(logits) / np.exp(logits).sum(axis=-1, keepdims=True)
    model.zero_gradients()
    model.backward(dlogits=(p - np.eye(V)[TARGETS]) / TARGETS.size)
    np.testing.assert_allclose(model.gradients.flat, expected, rtol=1e-8, atol=1e-12)


@both_backends
def test_dloss_scales_the_gradient(backend):
    model = random_model(backend, dtype=np.float64)
    once, half = (gradients(model, (IDS, TARGETS, d)) for d in (1.0, 0.5))
    np.testing.assert_allclose(half, once / 2, rtol=1e-12, atol=1e-15)


@both_backends
@pytest.mark.parametrize("size", [1, 2, 4])
@pytest.mark.parametrize("ignored", [False, True])
def test_micro_batches_add_up_to_the_large_one(backend, size, ignored):
    ids, targets = random_ids(SMALL, 8, 5, seed=3)
    if ignored:  # so that the micro-batches count differently many tokens
        targets[np.random.default_rng(0).random(targets.shape) < 0.4] = -1
        targets[0] = -1
    counted = (targets >= 0).sum()
    parts = [
        (ids[i : i + size], targets[i : i + size], (targets[i : i + size] >= 0).sum() / counted)
        for i in range(0, 8, size)
    ]
    model = random_model(backend, dtype=np.float64)
    whole, added = gradients(model, (ids, targets, 1.0)), gradients(model, *parts)
    np.testing.assert_allclose(added, whole, rtol=1e-9, atol=1e-13)
    losses = sum(model.loss(i, t) * d for i, t, d in parts)
    assert losses == pytest.approx(model.loss(ids, targets), rel=1e-12)


@both_backends
def test_other_sizes_in_between_change_nothing(backend):
    model = random_model(backend)
    expected = gradients(model, (IDS, TARGETS, 1.0))
    for ids, targets in ((IDS[:1], TARGETS[:1]), (IDS[:, :2], TARGETS[:, :2])):
        model.loss(ids, targets)
        model.backward()
    model.forward(IDS[0])
    np.testing.assert_array_equal(gradients(model, (IDS, TARGETS, 1.0)), expected)


def test_buffers_are_used_again():
    model = random_model("numpy")
    model.loss(IDS, TARGETS)
    activations, logits = model._activations, model._logits
    model.backward()
    model.loss(IDS[::-1], TARGETS)
    assert model._activations is activations
    assert model._logits is logits


@both_backends
def test_one_layer_learns_to_count(backend):
    config = GPT2Config(vocab_size=10, context=20, layers=1, heads=2, channels=16)
    model = GPT2(config, seed=0)
    model.ops = operations(backend)
    digits = np.arange(24) % 10
    ids = np.stack([digits[i : i + 20] for i in range(4)])
    targets = np.stack([digits[i + 1 : i + 21] for i in range(4)])
    optimizer = AdamW(model.parameters, learning_rate=0.01, weight_decay=0.0, ops=model.ops)
    for _ in range(120):
        model.zero_gradients()
        model.loss(ids, targets)
        model.backward()
        optimizer.step(model.gradients)
    assert (model.forward(ids).argmax(axis=-1) == (ids + 1) % 10).mean() > 0.99


# ------------------------------------------------------------------------- head mask


def off(model: GPT2, layer: int, head: int, factor: float = 0.0, mean: Any = None) -> GPT2:
    """Return a copy without the head, made without a mask: by its rows of c_proj."""
    parameters = model.parameters.copy()
    hs = SMALL.head_size
    rows = parameters[f"h.{layer}.attn.c_proj.weight"][head * hs : (head + 1) * hs]
    if mean is not None:
        parameters[f"h.{layer}.attn.c_proj.bias"][...] += (1 - factor) * (mean @ rows)
    rows *= factor
    copy = GPT2(SMALL, parameters=parameters)
    copy.ops = model.ops
    return copy


def mask_of(layer: int, head: int, factor: float = 0.0) -> np.ndarray:
    mask = np.ones((L, NH))
    mask[layer, head] = factor
    return mask


@both_backends
@both_types
def test_a_mask_of_ones_is_no_mask_to_the_last_bit(backend, dtype):
    model = random_model(backend, dtype=dtype)
    plain = model.forward(IDS)
    np.testing.assert_array_equal(model.forward(IDS, head_mask=np.ones((L, NH))), plain)
    without = gradients(model, (IDS, TARGETS, 1.0))
    masked = gradients(model, (IDS, TARGETS, 1.0), head_mask=np.ones((L, NH)))
    np.testing.assert_array_equal(masked, without)


@both_backends
@pytest.mark.parametrize("factor", [0.0, 0.5, -1.0])
def test_a_mask_scales_a_head(backend, factor):
    model = random_model(backend, dtype=np.float64)
    for layer, head in ((0, 2), (1, 0), (2, 1)):
        masked = model.forward(IDS, head_mask=mask_of(layer, head, factor))
        np.testing.assert_allclose(masked, off(model, layer, head, factor).forward(IDS), rtol=1e-9)


@both_backends
def test_a_head_replaced_by_given_means(backend):
    model = random_model(backend, dtype=np.float64)
    means = np.random.default_rng(0).standard_normal((L, NH, SMALL.head_size))
    masked = model.forward(IDS, head_mask=mask_of(1, 2), ablation="mean", head_means=means)
    np.testing.assert_allclose(masked, off(model, 1, 2, mean=means[1, 2]).forward(IDS), rtol=1e-9)


@both_backends
def test_a_head_replaced_by_its_mean_over_the_batch(backend):
    model = random_model(backend, dtype=np.float64)
    with model.record("h.1.attn.heads") as seen:
        model.forward(IDS)
    mean = seen["h.1.attn.heads"].mean(axis=(0, 1)).reshape(NH, -1)[2]
    masked = model.forward(IDS, head_mask=mask_of(1, 2), ablation="mean")
    np.testing.assert_allclose(masked, off(model, 1, 2, mean=mean).forward(IDS), rtol=1e-9)


@both_backends
def test_the_masks_gradient_is_a_heads_importance(backend):
    model = random_model(backend, dtype=np.float64)
    model.loss(IDS, TARGETS, head_mask=np.ones((L, NH)))
    model.backward()
    importance = model.head_mask_gradient
    assert importance.shape == (L, NH)
    h = 1e-5
    up, down = (off(model, 1, 2, 1 + e).loss(IDS, TARGETS) for e in (h, -h))
    assert importance[1, 2] == pytest.approx((up - down) / (2 * h), rel=1e-6)
    model.loss(IDS, TARGETS)
    assert model.head_mask_gradient is None


def test_masks_that_do_not_fit():
    model = random_model("numpy")
    ones = np.ones((L, NH))
    for mask, more, message in (
        (np.ones((NH, L + 1)), {}, r"\(3, 3\).*\(3, 4\)"),
        (np.ones(NH), {}, "layers, heads"),
        (np.full((L, NH), np.nan), {}, "finite"),
        (ones, {"ablation": "median"}, "zero, mean.*'median'"),
        (ones, {"ablation": "mean", "head_means": np.ones((L, NH))}, "head size"),
        (ones, {"head_means": np.ones((L, NH, SMALL.head_size))}, 'with ablation="mean" only'),
    ):
        with pytest.raises(ValueError, match=message):
            model.forward(IDS, head_mask=mask, **more)
        with pytest.raises(ValueError, match=message):
            model.decode(IDS, model.new_cache(len(IDS)), head_mask=mask, **more)
    with pytest.raises(ValueError, match="token by token there is no batch"):
        model.decode(IDS, model.new_cache(len(IDS)), head_mask=ones, ablation="mean")


@both_backends
@pytest.mark.parametrize("ablation", ["zero", "mean"])
def test_heads_stay_off_while_a_text_is_read_token_by_token(backend, ablation):
    model = random_model(backend, dtype=np.float64)
    mask, more = mask_of(1, 2), {"ablation": ablation}
    if ablation == "mean":
        more["head_means"] = np.random.default_rng(0).standard_normal((L, NH, SMALL.head_size))
    whole = model.forward(IDS, head_mask=mask, **more)
    cache = model.new_cache(len(IDS))
    first = model.decode(IDS[:, :2], cache, every=True, head_mask=mask, **more)
    np.testing.assert_allclose(first, whole[:, :2], rtol=1e-9)
    for t in range(2, IDS.shape[1]):
        logits = model.decode(IDS[:, t : t + 1], cache, head_mask=mask, **more)
        np.testing.assert_allclose(logits, whole[:, t], rtol=1e-9)


def test_a_list_of_heads_makes_a_mask():
    mask = heads_off(SMALL, [(0, 1), (2, 0)])
    np.testing.assert_array_equal(np.argwhere(mask == 0), [[0, 1], [2, 0]])
    assert mask.sum() == L * NH - 2
    for pair in ((L, 0), (0, NH), (-1, 0)):
        with pytest.raises(ValueError, match=rf"no head {pair[0]}\.{pair[1]}: layers go from 0"):
            heads_off(SMALL, [pair])


# ------------------------------------------------------------------------- recording


@both_backends
@both_types
def test_everything_can_be_recorded(backend, dtype):
    model = random_model(backend, dtype=dtype)
    with model.record("*") as seen:
        logits = model.forward(IDS)
    assert set(seen) == set(model.activation_names())
    B, T = IDS.shape
    shapes = {
        "embedding": (B, T, C),
        "h.0.ln_1": (B, T, C),
        "h.0.attn.qkv": (B, T, 3 * C),
        "h.1.attn.probabilities": (B, NH, T, T),
        "h.1.attn.heads": (B, T, C),
        "h.1.attn": (B, T, C),
        "h.1.residual": (B, T, C),
        "h.2.ln_2": (B, T, C),
        "h.2.mlp.pre": (B, T, 4 * C),
        "h.2.mlp.gelu": (B, T, 4 * C),
        "h.2.mlp": (B, T, C),
        "h.2": (B, T, C),
        "ln_f": (B, T, C),
        "logits": (B, T, V),
    }
    for name, shape in shapes.items():
        assert seen[name].shape == shape, name
    assert {a.dtype for a in seen.values()} == {np.dtype(dtype)}
    close = {"rtol": 1e-4, "atol": 1e-5}
    np.testing.assert_array_equal(seen["logits"], logits)
    np.testing.assert_allclose(seen["embedding"] + seen["h.0.attn"], seen["h.0.residual"], **close)
    np.testing.assert_allclose(seen["h.1.residual"] + seen["h.1.mlp"], seen["h.1"], **close)
    p = seen["h.1.attn.probabilities"]
    np.testing.assert_allclose(p.sum(axis=-1), 1, rtol=1e-5)
    assert not np.triu(p, 1).any()
    values = seen["h.1.attn.qkv"][..., 2 * C :].reshape(B, T, NH, -1).transpose(0, 2, 1, 3)
    heads = (p @ values).transpose(0, 2, 1, 3).reshape(B, T, C)
    np.testing.assert_allclose(heads, seen["h.1.attn.heads"], **close)


def test_patterns_choose_and_nothing_else_is_recorded():
    model = random_model("numpy")
    with model.record("h.*.attn.probabilities", "ln_f") as seen:
        model.forward(IDS)
    assert set(seen) == {"ln_f", *(f"h.{layer}.attn.probabilities" for layer in range(L))}
    kept = {name: value.copy() for name, value in seen.items()}
    model.forward(IDS[:, ::-1])  # not inside any more
    for name, value in seen.items():
        np.testing.assert_array_equal(value, kept[name])


def test_recordings_are_copies_of_the_last_forward():
    model = random_model("numpy")
    with model.record("h.0") as seen:
        model.forward(IDS)
        first = seen["h.0"]
        expected = model.forward(IDS[:, ::-1])
    assert (seen["h.0"] != first).any()
    seen["h.0"][...] = 0
    np.testing.assert_array_equal(model.forward(IDS[:, ::-1]), expected)


def test_recordings_nest_and_end_with_an_error():
    model = random_model("numpy")
    with model.record("ln_f") as outer:
        with model.record("h.0", "ln_f") as inner:
            model.loss(IDS, TARGETS)
        assert set(inner) == {"h.0", "ln_f"}
    assert set(outer) == {"ln_f"}
    with pytest.raises(ValueError, match="vocabulary"), model.record("ln_f") as broken:
        model.forward([[V]])
    model.forward(IDS)
    assert not broken


def test_recording_does_not_change_the_model():
    model = random_model("numpy")
    plain, expected = model.forward(IDS), gradients(model, (IDS, TARGETS, 1.0))
    with model.record("*"):
        np.testing.assert_array_equal(model.forward(IDS), plain)
        np.testing.assert_array_equal(gradients(model, (IDS, TARGETS, 1.0)), expected)


def test_a_name_that_nothing_has():
    with pytest.raises(ValueError, match=r"'h\.9\.attn'"), random_model("numpy").record("h.9.attn"):
        pass


# ------------------------------------------------------------------------- memory and types


def arrays_of(thing: Any) -> list[np.ndarray]:
    """Return every array that a model (or a part of it) holds on to."""
    if isinstance(thing, np.ndarray):
        return [thing]
    if isinstance(thing, Parameters):
        return [thing.flat, *thing.values()]
    if isinstance(thing, GPT2 | Activations):
        return [a for value in vars(thing).values() for a in arrays_of(value)]
    return []


@both_backends
@both_types
def test_one_type_everywhere(backend, dtype):
    model = random_model(backend, dtype=dtype)
    model.loss(IDS, TARGETS, head_mask=np.ones((L, NH)), ablation="mean")
    model.backward()
    AdamW(model.parameters, learning_rate=0.1, ops=model.ops).step(model.gradients)
    cache = model.new_cache(2)
    logits = model.decode(IDS, cache)
    held = [*arrays_of(model), cache.keys, cache.values, logits]
    assert len(held) > 60
    assert {a.dtype for a in held} == {np.dtype(dtype)}


@both_backends
def test_no_array_with_two_axes_of_time_is_kept(backend):
    config = GPT2Config(vocab_size=11, context=37, layers=2, heads=2, channels=6)
    model = random_model(backend, config)
    ids = np.zeros((1, 37), int)
    model.loss(ids, ids)
    for _ in range(2):
        assert not [a.shape for a in arrays_of(model) if a.shape.count(37) > 1]
        if model._pending is not None:
            model.backward()


def test_memory_kept_grows_with_t_not_with_its_square():
    config = GPT2Config(vocab_size=11, context=256, layers=3, heads=4, channels=4)
    model = random_model("numpy", config)
    ids = np.zeros((1, 256), int)
    gc.collect()
    tracemalloc.start()
    try:
        model.loss(ids, ids)
        kept_by_loss, peak = tracemalloc.get_traced_memory()
        model.backward()
        kept_by_backward, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    one_layer = 4 * 256 * 256 * 4  # bytes of (NH, T, T) float32
    assert peak > one_layer  # NumPy makes the scores, one layer at a time,
    assert kept_by_loss < one_layer  # and lets them go
    assert kept_by_backward < one_layer


# ------------------------------------------------------------------------- the cache


@both_backends
@both_types
@pytest.mark.parametrize("cuts", [[5], [1] * 5, [2, 3], [3, 1, 1], [4, 1]])
@pytest.mark.parametrize("batch", [1, 2])
def test_the_cache_gives_the_logits_of_a_forward(backend, dtype, cuts, batch):
    model = random_model(backend, dtype=dtype)
    ids = IDS[:batch]
    full, cache = model.forward(ids), model.new_cache(batch)
    tolerance = {"rtol": 0, "atol": 1e-4 if dtype == np.float32 else 1e-9}
    start = 0
    for length in cuts:
        piece = ids[:, start : start + length]
        if start % 2:
            last = model.decode(piece, cache)
        else:
            every = model.decode(piece, cache, every=True)
            assert every.shape == (batch, length, V)
            np.testing.assert_allclose(every, full[:, start : start + length], **tolerance)
            last = every[:, -1]
        start += length
        assert cache.length == start
        assert last.shape == (batch, V)
        np.testing.assert_allclose(last, full[:, start - 1], **tolerance)


def test_a_cleared_cache_is_a_new_one():
    model = random_model("numpy")
    cache = model.new_cache()
    model.decode(IDS[0], cache)
    cache.clear()
    again = model.decode(IDS[1], cache)
    np.testing.assert_array_equal(again, model.decode(IDS[1], model.new_cache()))


def test_a_cache_for_another_batch_is_refused():
    model = random_model("numpy")
    with pytest.raises(ValueError, match=r"1 sequences, got 2"):
        model.decode(IDS, model.new_cache())
