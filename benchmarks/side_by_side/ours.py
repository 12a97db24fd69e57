"""gpt2lib as a contender: training steps, generation, and where the time of a step goes."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from benchmarks.side_by_side import data
from gpt2lib.model import GPT2
from gpt2lib.optimizer import AdamW
from gpt2lib.perf.counters import compilations
from gpt2lib.perf.operations import TimedOps


class Training:
    """Training steps of a model on one batch."""

    def set_up(self, folder: str, backend: str, **options: Any) -> dict[str, Any]:
        """Load weights and batch; nothing is compiled yet."""
        weights = data.read_weights(folder)
        self.model = GPT2(weights.config, parameters=weights, backend=backend, **options)
        self.optimizer = AdamW(
            weights, weight_decay=data.WEIGHT_DECAY, ops=self.model.ops, **data.ADAMW
        )
        self.ids, self.targets = data.read_batch(folder)
        return describe(self.model)

    def steps(self, count: int) -> dict[str, Any]:
        """Make training steps; return the seconds and the loss of each, and what was compiled."""
        seconds, losses = [], []
        with compilations() as compiled:
            for _ in range(count):
                begin = time.perf_counter()
                losses.append(self._step())
                seconds.append(time.perf_counter() - begin)
        return {"seconds": seconds, "losses": losses, "compiled": len(compiled)}

    def _step(self) -> float:
        loss = self.model.loss(self.ids, self.targets)
        self.model.backward()
        self.optimizer.step(self.model.gradients, zero_gradients=True)
        return loss

    def breakdown(self, count: int) -> list[dict[str, Any]]:
        """Time every operation of some steps; return a row for each (operation, shape)."""
        ops = self.model.ops
        timed = TimedOps(ops)
        self.model.ops = self.optimizer.ops = timed
        try:
            self.steps(count)
        finally:
            self.model.ops = self.optimizer.ops = ops
        return [
            {
                "operation": row["operation"],
                "shape": row["shape"],
                "calls": row["calls"],
                "seconds": row["ms"] / 1e3,
                # Of the matrix products: they are what the step's own number counts.
                "flops": timed.products(row["operation"], row["shape"]) // count,
            }
            for row in timed.rows(count)
        ]


class Generation:
    """Greedy generation with the key/value cache."""

    def set_up(self, folder: str, backend: str, **options: Any) -> dict[str, Any]:
        """Load the weights."""
        self.folder = folder
        weights = data.read_weights(folder)
        self.model = GPT2(weights.config, parameters=weights, backend=backend, **options)
        return describe(self.model)

    def generate(self, prompt: int, tokens: int) -> dict[str, Any]:
        """Continue the prompt; return the ids, and the seconds from each token to the next."""
        from gpt2lib.generate import generate

        ids, times = [], []
        start = data.read_prompt(self.folder, prompt)
        for token in generate(self.model, start, tokens=tokens, temperature=0):
            times.append(time.perf_counter())
            ids.append(int(token))
        return {"ids": ids, "seconds": np.diff(times).tolist()}


def describe(model: GPT2) -> dict[str, Any]:
    """Say what computes: the backend, its runtime, its matrix product."""
    from gpt2lib import __version__

    ops = model.ops
    runtime = getattr(ops, "runtime", None)
    described = dict(runtime.describe()) if runtime else {}
    described.pop("library", None)  # a path of this machine
    return {
        "version": __version__,
        "runtime": described,
        "matmul": getattr(ops, "matmul", "NumPy's BLAS"),
    }
