"""The process of one run: ``python -m gpt2lib.perf._worker REQUEST`` answers in lines of JSON.

REQUEST is JSON: ``{"do": "compile" | "ceilings" | "run", …}``. The answers have standard output to
themselves; whatever a library prints goes to stderr. The last answer has the key ``done`` or
``error``.
"""

from __future__ import annotations

import ctypes
import json
import math
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any

Record = dict[str, Any]
Say = Callable[[Record], None]

OPERATION_STEPS = 3  # extra iterations in which every operation is timed
_EVERY = 0.5  # seconds of measuring between two words: whoever listens needs a core for a moment


def load_code(runtime: str, matmul: str) -> None:
    """Bring all code into the process, from the disk, or compile it; have BLAS found.

    Nothing is computed, no thread starts: iteration 0 stays the first to do so.
    """
    import numpy as np

    from gpt2lib import kernels
    from gpt2lib.kernels import matmul as ladder
    from gpt2lib.runtimes import blas_single_thread, native

    kernels.compile_all("float32")
    ladder.address(matmul, np.dtype(np.float32).name)
    numbers = "int64, " * 9
    code: dict[str, list[tuple[Any, str]]] = {
        "sequential": [],
        "threads": [
            (native.run_on_workers, "int64, " * 6),
            (native.stay_worker, "int64, int64, int64, boolean"),
            (native.send_home, "int64"),
        ],
        "openmp": [(native.run_on_layer, "int64, " * 7)],
        "tbb": [(native.run_on_layer, "int64, " * 7)],
        "nosv": [(native.run_as_tasks, numbers)],
    }
    for function, arguments in [(native.run_sequentially, "int64, " * 5), *code[runtime]]:
        function.compile(f"({arguments.rstrip(', ')},)")
    with blas_single_thread():  # it looks through all loaded libraries once
        pass


def compile_code(request: Record, say: Say) -> None:
    """Compile what the runs will need, and leave it on the disk."""
    from gpt2lib.perf.counters import compilations, started

    begin = time.perf_counter()
    with compilations() as compiled:
        for runtime in request["runtimes"]:
            load_code(runtime, request["matmul"])
    say({"done": True, "compiled": started(compiled), "seconds": time.perf_counter() - begin})


def measure_ceilings(request: Record, say: Say) -> None:
    """Measure what the machine can do at best."""
    from gpt2lib.perf.machine import measure_ceilings

    found = measure_ceilings(
        request["threads"],
        size=request["size"],
        memory_bytes=request["memory_bytes"],
        passes=request["passes"],
    )
    say({"done": True, "ceilings": found._asdict()})


class Training:
    """Training iterations of a model with random weights on one random batch."""

    def __init__(self, request: Record) -> None:
        import numpy as np

        from gpt2lib.config import GPT2Config
        from gpt2lib.model import GPT2
        from gpt2lib.optimizer import AdamW

        config = GPT2Config.from_dict(request["config"])
        options = {key: request[key] for key in ("runtime", "threads", "matmul", "seed")}
        self.model = GPT2(config, backend="numba", **options)
        self.optimizer = AdamW(self.model.parameters, ops=self.model.ops)
        rng = np.random.default_rng(request["seed"])
        shape = 2, request["batch"], request["seq"]
        self.ids, self.targets = rng.integers(0, config.vocab_size, shape)

    def describe(self) -> Record:
        """Say what runs the chunks, without a path of this machine."""
        found = self.model.ops.runtime.describe()
        found["library"] = os.path.basename(found["library"])  # noqa: PTH119  "" stays ""
        return {key: found[key] for key in ("name", "threads", "library", "version")}

    def step(self) -> tuple[float, float, float, float]:
        """Make one iteration; return the loss, and when forward, backward and update had ended."""
        loss = self.model.loss(self.ids, self.targets)
        forward = time.perf_counter()
        self.model.backward()
        backward = time.perf_counter()
        self.optimizer.step(self.model.gradients, zero_gradients=True)
        return loss, forward, backward, time.perf_counter()

    def iterate(self) -> Record:
        """Make one iteration; return its times, and what the system counted in the meantime."""
        from gpt2lib.perf.counters import Counters, processor_mhz

        before, begin = Counters.read(), time.perf_counter()
        loss, forward, backward, update = self.step()
        after = Counters.read()
        if not math.isfinite(loss):
            raise ValueError(f"the loss is {loss}")
        parts = {
            "forward_ms": round(1e3 * (forward - begin), 4),
            "backward_ms": round(1e3 * (backward - forward), 4),
            "update_ms": round(1e3 * (update - backward), 4),
        }
        total = {"total_ms": round(sum(parts.values()), 4)}
        return {
            "loss": loss,
            **parts,
            **total,
            **(after - before)._asdict(),
            "mhz": processor_mhz(),
        }

    def operations(self, steps: int) -> list[Record]:
        """Time every operation of some more iterations."""
        from gpt2lib.perf.operations import TimedOps

        plain = self.model.ops
        self.model.ops = self.optimizer.ops = timed = TimedOps(plain)
        try:
            for _ in range(steps):
                self.step()
        finally:
            self.model.ops = self.optimizer.ops = plain
        return [{**row, "ms": round(row["ms"], 5)} for row in timed.rows(steps)]


def run(request: Record, say: Say) -> None:
    """Make one run: say when it is ready, then its iterations, then the rest."""
    from gpt2lib.perf.counters import Counters, compilations, peak_bytes, processor_mhz, started

    training = Training(request)
    Counters.read(), processor_mhz()  # their own first time is not iteration 0's
    load_code(request["runtime"], request["matmul"])
    say({"ready": training.describe()})
    waiting: list[Record] = []
    spoken = time.perf_counter()
    with compilations() as compiled:
        for _ in range(request["iterations"]):
            waiting.append(training.iterate())
            if time.perf_counter() - spoken > _EVERY:
                say({"iterations": waiting})
                waiting, spoken = [], time.perf_counter()
    peak = peak_bytes()
    if waiting:
        say({"iterations": waiting})
    say({"operations": training.operations(OPERATION_STEPS)})
    say({"done": True, "peak_bytes": peak, "compiled": started(compiled)})


def die_with_parent() -> None:
    """Have the system end this process when the one that started it is gone (Linux)."""
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def main() -> int:
    """Do what the command line asks for; return the exit status."""
    die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the one who keeps the results
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def say(answer: Record) -> None:
        answers.write(json.dumps(answer) + "\n")
        answers.flush()

    request = json.loads(sys.argv[1])
    doing = {"compile": compile_code, "ceilings": measure_ceilings, "run": run}
    try:
        doing[request["do"]](request, say)
    except Exception as error:
        traceback.print_exc(file=sys.stderr)
        say({"error": f"{type(error).__name__}: {' '.join(str(error).split())}"[:500]})
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
