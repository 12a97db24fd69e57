r"""The parallel regions of a training step: how many, cut into how many chunks, with how much work.

An operation hands its work to the runtime as one or two *regions*, and each region is cut into
*chunks*, whose number depends on the problem and not on the threads. :func:`of_step` finds out by
asking the kernels themselves: it makes a whole step on a backend that writes down what it is asked
to run, and runs nothing. So it takes milliseconds, for GPT-2 XL too, and can never disagree with
what the kernels do.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from gpt2lib.config import GPT2Config
from gpt2lib.model import GPT2
from gpt2lib.optimizer import AdamW
from gpt2lib.parameters import Parameters

__all__ = [
    "HandOver",
    "Region",
    "hand_over",
    "hand_overs",
    "of_step",
    "python_seconds",
    "training_step",
]

_BURST, _REST = 40, 0.004  # regions in a row, and the seconds between two bursts
_GIVEN_UP = 10_000_000  # nanoseconds after which a chunk waits for the others no more
_WAITED = 2e-4  # seconds: a region that took longer waited for a core
_ADDS_UP = "add_partials"  # a region that only adds up what the one before it left behind


class Region(NamedTuple):
    """One call of the runtime.

    Attributes
    ----------
    operation
        The operation that it belongs to, such as ``"linear_backward"``.
    kernel
        The compiled body that each chunk runs.
    chunks
        How many chunks: no more threads than these can help.
    flops
        Floating-point operations of all chunks together, a multiply-add counted as two.
    bytes
        What must be read and written at least, each array once.
    """

    operation: str
    kernel: str
    chunks: int
    flops: float
    bytes: float


def of_step(config: GPT2Config, batch: int, seq: int) -> list[Region]:
    """Return the regions of a training step (loss, backward, AdamW), in their order.

    Parameters
    ----------
    config
        The model's shape.
    batch, seq
        B and T.

    Notes
    -----
    An operation's work is that of :func:`gpt2lib.perf.operations.work`, shared equally among its
    regions: both halves of a linear layer's backward are one matrix product of the same size.
    Regions that only add partial sums up count as free.
    """
    listing = _listing()
    with np.errstate(all="ignore"):  # the loss is the sum of whatever lies in memory
        training_step(config, batch, seq, listing)()
    return listing.regions


def python_seconds(config: GPT2Config, batch: int, seq: int, repeats: int = 5) -> float:
    """Return the seconds of Python in a training step: all of it but the chunks.

    Parameters
    ----------
    config, batch, seq
        As in :func:`of_step`.
    repeats
        How many steps are timed; the fastest counts.

    Notes
    -----
    The step runs on a runtime that returns at once, so what is left are the checks, the argument
    blocks and the calls. The arrays are never touched, and take up no memory.
    """
    from gpt2lib.kernels import Backend

    step = training_step(config, batch, seq, Backend(_Nobody()))
    with np.errstate(all="ignore"):  # the loss is the sum of whatever lies in memory
        step()
        return min(_seconds(step) for _ in range(repeats))


def training_step(
    config: GPT2Config, batch: int, seq: int, ops: Any, *, seed: int | None = None
) -> Callable[[], None]:
    """Return a function that makes one training step on a batch of random tokens.

    Parameters
    ----------
    config, batch, seq
        As in :func:`of_step`.
    ops
        The backend.
    seed
        Of the parameters; None leaves them zero, and their memory untouched.
    """
    parameters = Parameters(config) if seed is None else Parameters.initialize(config, seed)
    model = GPT2(config, parameters=parameters)
    model.ops = ops
    optimizer = AdamW(parameters, ops=ops)
    rng = np.random.default_rng(0)
    ids, targets = rng.integers(0, config.vocab_size, (2, batch, seq))

    def step() -> None:
        model.loss(ids, targets)
        model.backward()
        optimizer.step(model.gradients, zero_gradients=True)

    return step


class HandOver(NamedTuple):
    """What it costs to hand a region over, in seconds.

    Attributes
    ----------
    best
        The cheapest region: every thread had a core to itself.
    median
        Half of them cost at most this: on a machine that is busy with others too, far more.
    """

    best: float
    median: float


def hand_over(runtime: Any, *, gap: float = 15e-6, seconds: float = 0.3) -> HandOver:
    """Measure what a region costs in which there is nothing to do but to meet.

    Each of its chunks, one a thread, waits until all have begun: no thread can do them alone. So it
    is what a runtime takes to start everybody, and to hear that everybody is done.

    Parameters
    ----------
    runtime
        A runtime of :mod:`gpt2lib.runtimes`.
    gap
        Seconds between two regions, as the Python of a training step leaves.
    seconds
        How long to measure; up to four times as long while no region had all its cores at once.

    Notes
    -----
    Regions come in bursts with a rest between them: on a busy machine a process that has rested is
    given its cores at once, and keeps them for the length of a burst.
    """
    function, block = _meeting_chunk(), np.array([0, runtime.threads, _GIVEN_UP], np.int64)
    taken: list[float] = []
    start = time.perf_counter()
    while (
        not taken
        or (spent := time.perf_counter() - start) < seconds
        or (min(taken) > _WAITED and spent < 4 * seconds)
    ):
        time.sleep(_REST)
        for at in range(_BURST):
            end = time.perf_counter() + gap
            while time.perf_counter() < end:
                pass
            begin = time.perf_counter()
            runtime.run(function.address, block.ctypes.data, runtime.threads)
            if at > 4:  # the first ones wake who has gone to sleep
                taken.append(time.perf_counter() - begin)
    return HandOver(min(taken), statistics.median(taken))


def hand_overs(
    names: Iterable[str], threads: int, *, timeout: float = 60
) -> dict[str, HandOver | str]:
    """Return the :func:`hand_over` of several runtimes, each in a fresh process; or why it failed.

    A process has one layer of Numba's for life, and nOS-V wants to be loaded before Python.

    Parameters
    ----------
    names
        Names of runtimes.
    threads
        On how many threads.
    timeout
        Seconds after which a process is given up.
    """
    return {name: _in_a_process(name, threads, timeout) for name in names}


def _in_a_process(name: str, threads: int, timeout: float) -> HandOver | str:
    command = [sys.executable, "-m", "gpt2lib.perf.regions", name, str(threads)]
    if name == "nosv":
        launcher = ["-m", "gpt2lib.runtimes.launch", "--runtime", "nosv", "--", sys.executable]
        command[1:1] = launcher
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=timeout)
    except subprocess.TimeoutExpired:
        return f"not ended after {timeout:g} s"
    if done.returncode != 0:
        return (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
    best, median = done.stdout.split()[-2:]
    return HandOver(float(best), float(median))


class _Nobody:
    """A runtime that runs nothing."""

    name, threads = "nobody", 1

    def run(self, function: int, arguments: int, chunks: int, *, region: int = 0) -> None:
        """Return at once."""


def _listing() -> Any:
    """Return a backend that lists the regions that it is asked to run."""
    from gpt2lib import ops as numpy_ops
    from gpt2lib.kernels import Backend
    from gpt2lib.perf.operations import work

    class Listing(Backend):
        def __init__(self) -> None:
            super().__init__(_Nobody())
            self.regions: list[Region] = []
            self._asked: list[tuple[str, int]] = []

        def run(self, kernel: Any, extent: int, size: int, *arguments: Any) -> None:
            self._asked.append((kernel.name, -(-extent // size)))

    def listed(name: str) -> Any:
        operation = getattr(Backend, name)

        def call(self: Any, *arguments: Any, **options: Any) -> Any:
            self._asked = []
            result = operation(self, *arguments, **options)
            _, flops, moved = work(name, arguments, options)
            self.regions += _shared(name, self._asked, flops, moved)
            return result

        return call

    for name in (*numpy_ops.__all__, "zero"):
        if hasattr(Backend, name):
            setattr(Listing, name, listed(name))
    return Listing()


def _shared(
    name: str, asked: list[tuple[str, int]], flops: float, moved: float
) -> Iterator[Region]:
    """Share an operation's work among its regions."""
    working = sum(kernel != _ADDS_UP for kernel, _ in asked)
    for kernel, chunks in asked:
        part = 0.0 if kernel == _ADDS_UP else 1 / working
        yield Region(name, kernel, chunks, part * flops, part * moved)


_compiled: list[Any] = []


def _meeting_chunk() -> Any:
    """Return a compiled chunk that waits for the others of its region; compiled once.

    Its block: how many chunks have ever begun, how many a region has, and for how many nanoseconds
    to wait: a runtime that runs them one after the other would never have all of them begun.
    """
    if not _compiled:
        from numba import cfunc, types

        from gpt2lib.runtimes import native

        load: Any = native.load
        fetch_add: Any = native.fetch_add
        nanoseconds: Any = native.nanoseconds

        @cfunc(types.void(types.int64, types.int64))
        def meeting(chunk: int, block: int) -> None:
            everybody = load(block + 8)
            turn = fetch_add(block, 1) // everybody  # the count is never set back
            end = nanoseconds() + load(block + 16)
            while load(block) < (turn + 1) * everybody and nanoseconds() < end:
                pass

        _compiled.append(meeting)
    return _compiled[0]


def _seconds(function: Callable[[], None]) -> float:
    begin = time.perf_counter()
    function()
    return time.perf_counter() - begin


def _main() -> None:
    """Measure one runtime, named on the command line, and print both numbers."""
    from gpt2lib import runtimes

    name, threads = sys.argv[1:]
    print(*hand_over(runtimes.get(name, int(threads))))


if __name__ == "__main__":
    _main()
