"""The regions of a step against a trace of a real one, and against the model's own count."""

from __future__ import annotations

import ctypes
from collections import Counter

import pytest

from gpt2lib import runtimes
from gpt2lib.config import GPT2Config
from gpt2lib.kernels import Backend, kernels
from gpt2lib.perf import regions
from gpt2lib.runtimes import TraceBuffer

TINY = GPT2Config.preset("tiny")


@pytest.mark.parametrize(("batch", "seq"), [(4, 64), (1, 128), (3, 17)])
def test_the_list_is_what_a_real_step_runs(batch, seq):
    """The same kernels, in the same order, with the same chunks."""
    runtime = runtimes.get("sequential")
    step = regions.training_step(TINY, batch, seq, Backend(runtime), seed=0)
    buffer = TraceBuffer(1 << 14)
    try:
        runtime.trace = buffer
        step()
    finally:
        runtime.trace = None
    names = {kernel.number: name for name, kernel in kernels().items()}
    ran = [(names[r["region"]], int(r["chunk"])) for r in buffer.records()]
    listed = regions.of_step(TINY, batch, seq)
    assert ran == [(region.kernel, i) for region in listed for i in range(region.chunks)]


def test_the_work_is_what_the_configuration_counts():
    """Matrix products are nearly all of it; LayerNorm, GELU and AdamW add a little."""
    config = GPT2Config.preset("gpt2")
    listed = regions.of_step(config, 4, 64)
    flops: Counter[str] = Counter()
    for region in listed:
        flops[region.operation] += region.flops
    assert sum(flops.values()) == pytest.approx(config.training_flops(4, 64), rel=0.02)
    assert flops["head_forward"] == 2 * 4 * 64 * 768 * 50257
    moved = sum(r.bytes for r in listed if r.operation == "adamw_update")
    assert moved == 8 * 4 * config.parameter_count


def test_a_step_that_runs_nothing_touches_no_memory():
    """GPT-2 XL has six gigabytes of parameters; its list needs none of them."""
    resource = pytest.importorskip("resource")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    listed = regions.of_step(GPT2Config.preset("gpt2-xl"), 1, 64)
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert len(listed) > 1000
    assert after - before < 500_000  # kilobytes (on a Mac bytes, where this says less)


def test_python_alone_takes_time():
    assert 0 < regions.python_seconds(TINY, 1, 8, repeats=2) < 10


@pytest.mark.parametrize("threads", [1, 2])
def test_a_region_where_all_meet_comes_to_an_end(threads):
    found = regions.hand_over(runtimes.get("threads", threads), seconds=0.01)
    assert 0 < found.best <= found.median


def test_chunks_that_never_meet_give_up():
    """A runtime may put all chunks on one thread (TBB does, on one core): it must not hang."""

    class OneAfterTheOther:
        threads = 2

        def run(self, function, arguments, chunks):
            chunk = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64)(function)
            for number in range(chunks):
                chunk(number, arguments)

    assert regions.hand_over(OneAfterTheOther(), seconds=0.01).best >= 0.01


def test_a_runtime_in_a_process_of_its_own():
    found = regions.hand_overs(["sequential", "nobody"], 1)
    assert found["sequential"].best > 0
    assert "nobody" in found["nobody"]
