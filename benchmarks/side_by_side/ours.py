"""gpt2lib as a contender: training steps, generation, and where the time of a step goes."""

from __future__ import annotations

import contextlib
import math
import time
from collections import defaultdict
from typing import Any

import numpy as np

from benchmarks.side_by_side import data
from gpt2lib.model import GPT2
from gpt2lib.optimizer import AdamW

# Which argument of an operation is its weight.
_WEIGHT_AT = {
    "linear_forward": 1,
    "linear_gelu_forward": 1,
    "linear_backward": 2,
    "linear_gelu_backward": 3,
    "head_forward": 1,
    "head_backward": 2,
}


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
            total = sum(self.steps(count)["seconds"])
        finally:
            self.model.ops = self.optimizer.ops = ops
        rows = [
            {
                "operation": name,
                "shape": shape,
                "calls": len(seconds) // count,
                "seconds": sum(seconds) / count,
                "flops": timed.flops[name, shape] // count,
            }
            for (name, shape), seconds in timed.seconds.items()
        ]
        rows.sort(key=lambda row: -row["seconds"])
        spent = sum(row["seconds"] for row in rows)
        between = {"operation": "(Python between them)", "shape": "", "calls": 0, "flops": 0}
        return [*rows, {**between, "seconds": total / count - spent}]


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


class TimedOps:
    """A backend that times every call of another one. Operations return when they are done."""

    def __init__(self, ops: Any) -> None:
        self._ops = ops
        self.seconds: dict[tuple[str, str], list[float]] = defaultdict(list)
        self.flops: dict[tuple[str, str], int] = defaultdict(int)

    def __getattr__(self, name: str) -> Any:
        operation = getattr(self._ops, name)

        def timed(*arguments: Any, **options: Any) -> Any:
            shape, flops = what(name, arguments)
            begin = time.perf_counter()
            result = operation(*arguments, **options)
            self.seconds[name, shape].append(time.perf_counter() - begin)
            self.flops[name, shape] += flops
            return result

        return timed


def what(name: str, arguments: tuple[Any, ...]) -> tuple[str, int]:
    """Say of which shape a call is, and how many operations its matrix products take.

    A multiply-add counts as two. Attention is counted in full, as ``training_flops`` does.
    """
    shapes = [argument.shape for argument in arguments if isinstance(argument, np.ndarray)]
    if name in _WEIGHT_AT:
        rows, weight = math.prod(shapes[0][:-1]), shapes[_WEIGHT_AT[name]]
        inputs, outputs = weight[::-1] if name.startswith("head") else weight
        products = 1 if name.endswith("forward") else 2
        return f"{inputs} -> {outputs}", 2 * products * rows * inputs * outputs
    if name in ("attention_forward", "attention_backward"):
        batch, seq, channels = shapes[0]
        channels = channels // 3 if name.endswith("forward") else channels
        products = 2 if name.endswith("forward") else 4
        return "", 2 * products * batch * seq * seq * channels
    return "", 0


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


@contextlib.contextmanager
def compilations() -> Any:
    """Collect what Numba compiles in the meantime: nothing, or the times are not of the code."""
    try:
        from numba.core import event
    except ImportError:
        yield []
        return
    with event.install_recorder("numba:compile") as recorder:
        yield recorder.buffer
