"""One process of the experiment on the first iteration: prepare, make steps, say what they took.

``python -m gpt2lib.perf._first_worker SPEC`` with SPEC in JSON prints its report as JSON, on the
last line of its output. It is fresh: what it has not prepared, its first iteration meets for the
first time. :mod:`gpt2lib.perf.first_iteration` starts it and explains what the switches do.
"""

from __future__ import annotations

import json
import mmap
import sys
import time
from typing import Any

import numpy as np

from gpt2lib.config import GPT2Config
from gpt2lib.model import GPT2
from gpt2lib.optimizer import AdamW
from gpt2lib.parameters import Parameters

LARGE = 768  # the product that warms BLAS up is LARGE x LARGE x LARGE, in each chunk


class Training:
    """A model, its optimizer and a batch, as a program has them before its first step.

    The parameters are mapped from a file, copy on write: like those of a checkpoint that was opened
    and not read. Gradients, moments and activations are whatever the library allocates.
    """

    def __init__(self, spec: dict[str, Any]) -> None:
        self.spec = spec
        self.config = config = GPT2Config.from_dict(spec["config"])
        mapped = np.memmap(spec["weights"], np.float32, "c", shape=(config.parameter_count,))
        self.model = GPT2(
            config,
            parameters=Parameters(config, flat=np.asarray(mapped)),
            backend="numba",
            runtime=spec["runtime"],
            threads=spec["threads"],
            matmul=spec["matmul"],
        )
        self.optimizer = AdamW(self.model.parameters, ops=self.model.ops)
        shape = (4, spec["batch"], spec["seq"])
        tokens = np.random.default_rng(spec["seed"]).integers(0, config.vocab_size, shape)
        self.ids, self.targets, *self.other = tokens
        # What the switches use is kept: memory that is given back would be there for the next one.
        self.kept: list[Any] = []

    def step(self) -> dict[str, Any]:
        """Make a training step; return the milliseconds of its parts, and what the system did."""
        before = _usage()
        times = [time.perf_counter_ns()]
        self.model.loss(self.ids, self.targets)
        times.append(time.perf_counter_ns())
        self.model.backward()
        times.append(time.perf_counter_ns())
        self.optimizer.step(self.model.gradients, zero_gradients=True)
        times.append(time.perf_counter_ns())
        parts = (np.diff(times) / 1e6).tolist()
        keys = ("forward_ms", "backward_ms", "update_ms")
        report: dict[str, Any] = dict(zip(keys, parts, strict=True))
        report["total_ms"] = sum(parts)
        return report | {key: after - before[key] for key, after in _usage().items()}

    # ------------------------------------------------------------------ the switches

    def code(self) -> None:
        """Load the code of every operation of a step: a step of a tiny model, on this thread."""
        small = GPT2Config(vocab_size=64, context=16, layers=1, heads=1, channels=16)
        model = GPT2(small, backend="numba", runtime="sequential", matmul=self.spec["matmul"])
        ids = np.zeros((1, 16), np.int64)
        model.loss(ids, ids)
        model.backward()
        AdamW(model.parameters, ops=model.ops).step(model.gradients, zero_gradients=True)
        self.kept.append(model)

    def threads(self) -> None:
        """Start the runtime's threads: a region that has something to do for each."""
        numbers = np.empty(1 << 21, np.float32)
        self.model.ops.zero(numbers)
        self.kept.append(numbers)

    def blas(self) -> None:
        """Have every thread multiply large matrices once: BLAS then has its packing buffers."""
        from gpt2lib.kernels.linear import linear_forward_tiles

        ops, chunks = self.model.ops, 2 * self.spec["threads"]
        x, weight = (
            np.ones((chunks * LARGE, LARGE), np.float32),
            np.ones((LARGE, LARGE), np.float32),
        )
        out = np.zeros_like(x)
        arguments = ops.gemm(x.dtype), x, weight, weight[0], out, LARGE, LARGE
        ops.run(linear_forward_tiles, chunks, 1, *arguments)
        self.kept += [x, weight, out]

    def parameters(self) -> None:
        """Write every parameter to its own place: the pages are this process's from now on."""
        flat = self.model.parameters.flat
        np.multiply(flat, np.float32(1), out=flat)

    def gradients(self) -> None:
        """Touch the gradients."""
        self.model.gradients.flat.fill(0)

    def moments(self) -> None:
        """Touch AdamW's moments."""
        self.optimizer.m.flat.fill(0)
        self.optimizer.v.flat.fill(0)

    def activations(self) -> None:
        """Allocate and touch what the forward leaves, the logits, and the backward's scratch."""
        model, batch, seq = self.model, self.spec["batch"], self.spec["seq"]
        activations = model._allocate(batch, seq)  # the model has no public way to do only this
        activations.gradient_scratch()
        for value in vars(activations).values():
            if isinstance(value, np.ndarray):
                value.fill(0)
        model._logits = np.full((batch, seq, self.config.vocab_size), 0, np.float32)

    def rehearsal(self) -> None:
        """Make a whole step on other data that changes nothing: the update has gradients of 0."""
        self.model.loss(*self.other)
        self.model.backward()
        self.model.zero_gradients()
        self.optimizer.step(self.model.gradients, learning_rate=0.0, zero_gradients=True)
        self.optimizer.t = 0


def first(spec: dict[str, Any]) -> dict[str, Any]:
    """Prepare what ``spec["on"]`` names, in order; return the iterations."""
    begin = time.perf_counter()
    training = Training(spec)
    for name in spec["on"]:
        getattr(training, name)()
    prepared = time.perf_counter() - begin
    iterations = [training.step() for _ in range(spec["iterations"])]
    return {"prepare_s": prepared, "iterations": iterations}


# --- How can a first iteration be faster? ---------------------------------------------------------


def faster(spec: dict[str, Any]) -> dict[str, Any]:
    """Measure what could make a first iteration faster than the later ones (one thread)."""
    training = Training(spec)
    for name in spec["on"]:
        getattr(training, name)()
    training.rehearsal()
    return {
        "zeroing": _zeroing(training, spec["iterations"]),
        "reading": {kind: _reading(training, kind) for kind in _MEMORY},
        "adamw": {kind: _adamw(training, kind, spec["iterations"]) for kind in _MEMORY},
        "clock": clock(),
    }


def _zeroing(training: Training, count: int) -> dict[str, list[float]]:
    """Time steps that clear the gradients first, which the first one need not; in ms."""
    model = training.model
    report: dict[str, list[float]] = {"steps": [], "clearing": []}
    for step in range(count):
        begin = time.perf_counter_ns()
        report["clearing"].append(_ms(model.zero_gradients) if step else 0.0)
        model.loss(training.ids, training.targets)
        model.backward()
        training.optimizer.step(model.gradients)
        report["steps"].append((time.perf_counter_ns() - begin) / 1e6)
    return report


def _reading(training: Training, kind: str) -> dict[str, float]:
    """Time a pass that reads as many numbers as there are parameters, before and after a write."""
    ops, x = training.model.ops, _MEMORY[kind](training.config.parameter_count)
    ops.squared_norm(np.ones(1, np.float32))  # its code is loaded before
    untouched = _ms(lambda: ops.squared_norm(x))
    again = min(_ms(lambda: ops.squared_norm(x)) for _ in range(3))
    x.fill(0)
    written = min(_ms(lambda: ops.squared_norm(x)) for _ in range(3))
    return {"untouched": untouched, "again": again, "written": written}


def _adamw(training: Training, kind: str, count: int) -> list[float]:
    """Time AdamW's steps where the moments were never touched before the first; in ms."""
    optimizer, size = training.optimizer, training.config.parameter_count
    optimizer.m, optimizer.v = (
        Parameters(training.config, flat=_MEMORY[kind](size)) for _ in range(2)
    )
    return [_ms(lambda: optimizer.step(training.model.gradients)) for _ in range(count)]


def _small_pages(size: int) -> np.ndarray:
    """Return untouched memory in pages of 4 KiB (Linux), as most C programs have it."""
    memory = mmap.mmap(-1, 4 * size)
    if hasattr(mmap, "MADV_NOHUGEPAGE"):
        memory.madvise(mmap.MADV_NOHUGEPAGE)
    return np.frombuffer(memory, np.float32)


_MEMORY: dict[str, Any] = {
    "numpy": lambda size: np.zeros(size, np.float32),  # calloc, and huge pages where Linux has them
    "small pages": _small_pages,
}


def clock(seconds: float = 0.4) -> dict[str, float]:
    """Compare the clock right after a rest with the clock after work, by a chain of operations.

    Each operation waits for the one before it, so their number is a number of cycles, and nothing
    but the clock makes them faster. Of the blocks of about a millisecond the quickest of the first
    20 and of the last 20 are compared: others' work on the machine only makes a block slower.
    """
    from numba import njit

    @njit("uint64(uint64, int64)")
    def chain(x, count):
        for _ in range(count):
            x = x * x + np.uint64(1)  # squares cannot be composed into fewer operations
        return x

    chain(1, 10)
    time.sleep(0.3)
    blocks: list[float] = []
    end = time.perf_counter() + seconds
    while len(blocks) < 60 or time.perf_counter() < end:
        blocks.append(_ms(lambda: chain(1, 500_000)))
    start, later = min(blocks[:20]), min(blocks[-20:])
    return {"start_ms": start, "later_ms": later, "start_over_later": later / start}


def _ms(call: Any) -> float:
    begin = time.perf_counter_ns()
    call()
    return (time.perf_counter_ns() - begin) / 1e6


def _usage() -> dict[str, Any]:
    """Return the page faults so far, and the processor's ms in the system; none on Windows."""
    try:
        import resource
    except ImportError:
        return {}
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "minor_faults": usage.ru_minflt,
        "major_faults": usage.ru_majflt,
        "user_ms": 1000 * usage.ru_utime,
        "system_ms": 1000 * usage.ru_stime,
    }


def main() -> None:
    """Do what the command line says and print the report."""
    spec = json.loads(sys.argv[1])
    report = faster(spec) if spec["what"] == "faster" else first(spec)
    print(json.dumps(report))


if __name__ == "__main__":
    main()
