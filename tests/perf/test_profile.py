import itertools

import numpy as np
import pytest

import gpt2lib
from gpt2lib.perf import profile as module
from gpt2lib.perf.machine import Ceilings
from gpt2lib.perf.profile import core_ceilings, profile
from gpt2lib.perf.results import check

CONFIG = gpt2lib.GPT2Config(vocab_size=40, context=16, layers=2, heads=2, channels=16)


def made():
    model = gpt2lib.GPT2(CONFIG, seed=0)
    ids = np.random.default_rng(0).integers(0, 40, (2, 9))
    return model, gpt2lib.AdamW(model.parameters, ops=model.ops), ids[:, :-1], ids[:, 1:]


def test_a_profile_makes_the_same_steps_as_training():
    model, optimizer, ids, targets = made()
    results = profile(model, optimizer, ids, targets, steps=2)
    other, its, *_ = made()
    losses = []
    for _ in range(5):  # iteration 0, two counted, two operation by operation
        losses.append(other.loss(ids, targets))
        other.backward()
        its.step(other.gradients, zero_gradients=True)
    (run,) = results["runs"]
    assert [step["loss"] for step in run["iterations"]] == losses[:3]
    np.testing.assert_array_equal(model.parameters.flat, other.parameters.flat)
    for step in run["iterations"]:
        parts = step["forward_ms"] + step["backward_ms"] + step["update_ms"]
        assert step["total_ms"] == pytest.approx(parts)
        assert step["total_ms"] > 0


def test_its_operations_are_those_of_one_step():
    model, optimizer, ids, targets = made()
    plain = model.ops
    ceiling = Ceilings(1, 100.0, 30.0, 20.0, 2048, "blas", 1 << 28)._asdict()
    results = profile(model, optimizer, ids, targets, steps=2, ceilings=[ceiling])
    rows = {(row["operation"], row["shape"]): row for row in results["runs"][0]["operations"]}
    assert rows["layernorm_forward", ""]["calls"] == 2 * CONFIG.layers + 1
    assert rows["linear_forward", "16 -> 48"]["flops"] == CONFIG.layers * 2 * 16 * 16 * 48
    assert results["ceilings"] == [ceiling]
    check(results)  # of the form that every figure and report reads
    (row,) = results["summary"]
    assert row["median_ms"] > 0
    assert model.ops is plain
    assert optimizer.ops is plain


def test_its_times_are_the_clocks():
    """A clock that goes on by a second whenever it is asked."""
    model, optimizer, ids, targets = made()
    clock = map(float, itertools.count()).__next__
    (run,) = profile(model, optimizer, ids, targets, steps=2, clock=clock)["runs"]
    assert {step["total_ms"] for step in run["iterations"]} == {3000.0}
    norms = next(row for row in run["operations"] if row["operation"] == "layernorm_forward")
    assert norms["ms"] == 1000.0 * norms["calls"]


def test_the_backend_is_put_back_after_an_error(monkeypatch):
    model, optimizer, ids, targets = made()
    plain, losses = model.ops, []

    def loss(*batch):
        losses.append(gpt2lib.GPT2.loss(model, *batch))
        if len(losses) == 3:  # iteration 0, one that counts, and the first that is taken apart
            assert model.ops is not plain
            raise KeyboardInterrupt
        return losses[-1]

    monkeypatch.setattr(model, "loss", loss)
    with pytest.raises(KeyboardInterrupt):
        profile(model, optimizer, ids, targets, steps=1)
    assert model.ops is plain
    assert optimizer.ops is plain


def test_no_step_is_refused():
    with pytest.raises(ValueError, match="at least one step"):
        profile(*made(), steps=0)


def test_ceilings_are_work_over_the_shortest_time(monkeypatch):
    """Every way gets a time of its own; the ceilings must be made of the right ones."""
    seconds = {"blas": 0.5, "read_one": 4.0, "read_four": 2.0, "copy_one": 8.0, "copy_block": 5.0}

    def timed(ways, rounds, clock):
        for way in ways.values():
            assert way() > 0
        assert rounds == 7
        return {way: seconds[way] for way in ways}

    monkeypatch.setattr(module, "in_turns", timed)
    found = core_ceilings(size=50, memory_bytes=1 << 16, rounds=7)
    assert found.threads == 1
    assert found.sgemm_gflops == pytest.approx(2 * 50**3 / 0.5 / 1e9)
    assert found.memory_bytes == 1 << 16
    assert found.read_gbs == pytest.approx((1 << 16) / 2.0 / 1e9)
    assert found.copy_gbs == pytest.approx(2 * (1 << 16) / 5.0 / 1e9)


def test_ceilings_are_measured():
    found = core_ceilings(size=40, memory_bytes=1 << 16, rounds=1)
    assert min(found.sgemm_gflops, found.read_gbs, found.copy_gbs) > 0
