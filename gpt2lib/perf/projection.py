r"""A model of a step's time on p threads, to look past this machine: **not a measurement**.

A training step is a list of regions (:mod:`gpt2lib.perf.regions`). Region r is cut into
:math:`n_r` chunks, takes :math:`c_r` seconds on one thread, and moves :math:`Q_r` bytes. With
:math:`a = \min(p, n_r)` threads that have something to do,

.. math::
    T(p) = \underbrace{s}_{\text{Python}} + \sum_r \Bigg[
      \underbrace{\Big\lceil \frac{n_r}{p} \Big\rceil}_{\text{rounds}} \frac{1}{n_r}
      \max\!\Big(c_r,\; \underbrace{\frac{Q_r\,a}{B(a)}}_{\text{memory}}\Big) + h(p) \Bigg],
    \qquad B(a) = \min(a\,b, B).

- :math:`c_r = k_o \max(F_r / f,\; Q_r / b)`: the *roofline* (Williams, Waterman and Patterson,
  2009) of one thread, which computes f operations and moves b bytes a second, times how much slower
  than that the operation o really was on one thread.
- :math:`B(a)`: threads share the memory. Each draws b bytes a second until all together draw B.
- The rounds: a region ends with its last chunk. Nine equal chunks on eight threads take two rounds.
- :math:`h(p)`: handing a region over and hearing that it is over, :math:`h_2 \log_2 p` where
  threads meet in a tree and :math:`h_2 (p - 1)` where they queue for one word of memory; the model
  LogP (Culler et al., 1993) calls it overhead. A region of one chunk is not handed over.
- s: the Python between the regions, which nobody helps with: Amdahl's (1967) serial part.

With :math:`n_r = B = \infty` and h = 0 this is Amdahl's law with :math:`f = s / T(1)`.

What it leaves out: caches that grow with the threads, clocks that sink with them, two sockets,
threads that the system takes away, chunks of one region that differ in length. :func:`calibrate`
and :func:`measure` look at one thread and at the machine's ceilings only, so that the time on two
threads is a prediction, which :func:`errors` holds against the measurement.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from gpt2lib.config import GPT2Config
from gpt2lib.perf import regions as _regions
from gpt2lib.perf.scaling import karp_flatt

__all__ = [
    "Calibration",
    "Measured",
    "Parts",
    "Projection",
    "Task",
    "calibrate",
    "errors",
    "explanations",
    "measure",
    "project",
    "required",
]

_GROWTH = {"log": math.log2, "linear": lambda p: p - 1}


@dataclass(frozen=True)
class Calibration:
    """What the model knows of a machine.

    Attributes
    ----------
    flops
        f, operations a second of one thread: its sgemm.
    bandwidth
        b, bytes a second that one thread copies (read and written).
    shared_bandwidth
        B, bytes a second of all threads together; ``inf`` where every thread brings its own.
    hand_over
        :math:`h_2`, seconds that a region on two threads costs more than on one.
    python
        Seconds of Python around one region.
    slowness
        Operation -> :math:`k_o`, its time on one thread over the roofline's.
    source
        Where the numbers are from, for a figure's caption.
    """

    flops: float
    bandwidth: float
    shared_bandwidth: float
    hand_over: float
    python: float
    slowness: Mapping[str, float]
    source: str = ""

    def __post_init__(self) -> None:
        for name in ("flops", "bandwidth"):
            if not 0 < getattr(self, name) < math.inf:
                raise ValueError(f"{name} must be positive and finite, got {getattr(self, name)}.")
        for name in ("hand_over", "python"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ValueError(f"{name} cannot be {getattr(self, name)!r} seconds.")
        if not self.shared_bandwidth >= self.bandwidth:
            raise ValueError(
                f"all threads together move {self.shared_bandwidth:g} bytes a second, which is "
                f"less than one of them alone, {self.bandwidth:g}: measure the ceilings again."
            )


class Task(NamedTuple):
    """A region, in seconds of one thread.

    Attributes
    ----------
    operation
        The operation that it belongs to.
    chunks
        :math:`n_r`; ``inf`` for work that any number of threads can share.
    seconds
        :math:`c_r`: what one thread takes.
    memory
        :math:`Q_r / b`: what moving its bytes alone takes one thread; at most ``seconds``.
    """

    operation: str
    chunks: float
    seconds: float
    memory: float


class Parts(NamedTuple):
    """A step's time on p threads, in parts that add up to it; seconds.

    Attributes
    ----------
    work
        What one thread takes, shared equally: the time that a perfect machine would need.
    memory
        What sharing the memory adds.
    chunks
        What rounds add: threads without a chunk, and the last round.
    hand_over
        What starting and ending regions adds.
    python
        What stays serial.
    """

    work: float
    memory: float
    chunks: float
    hand_over: float
    python: float


@dataclass(frozen=True)
class Projection:
    """The model of a step: see the module's text for its equation.

    Attributes
    ----------
    tasks
        The regions.
    width
        B / b: how many threads it takes to use the memory up; ``inf`` for no limit.
    hand_over
        :math:`h_2` in seconds.
    python
        s, seconds a step.
    growth
        How the hand-over grows: ``"log"`` or ``"linear"``.

    Examples
    --------
    Eight chunks of one second: three threads need three rounds.

    >>> step = Projection((Task("matmul", 8, 8.0, 0.0),), math.inf, 0.0, 0.0)
    >>> [step.seconds(p) for p in (1, 2, 3, 8, 100)]
    [8.0, 4.0, 3.0, 1.0, 1.0]
    """

    tasks: tuple[Task, ...]
    width: float
    hand_over: float
    python: float
    growth: str = "log"

    def __post_init__(self) -> None:
        if self.growth not in _GROWTH:
            raise ValueError(f"growth must be 'log' or 'linear', got {self.growth!r}.")
        if not self.width >= 1:
            raise ValueError(f"the memory serves at least one thread, got width {self.width!r}.")

    def seconds(self, threads: int) -> float:
        """Return T(p), the model's time of a step in seconds."""
        return math.fsum(self.parts(threads))

    def speedup(self, threads: int) -> float:
        """Return S(p) = T(1) / T(p) of the model."""
        return self.seconds(1) / self.seconds(threads)

    def parts(self, threads: int) -> Parts:
        """Return T(p) part by part."""
        p = _checked(threads)
        work = math.fsum(task.seconds for task in self.tasks) / p
        shared = math.fsum(self._task(task._replace(chunks=math.inf), p) for task in self.tasks)
        cut = math.fsum(self._task(task, p) for task in self.tasks)
        handed = sum(task.chunks > 1 for task in self.tasks) * self._hand_over(p)
        return Parts(work, shared - work, cut - shared, handed, self.python)

    def _task(self, task: Task, p: int) -> float:
        """Return the seconds of one region's chunks on p threads."""
        n = task.chunks
        share = 1 / p if n == math.inf else math.ceil(n / p) / n  # of the work, on one thread
        active = min(p, n)
        return share * max(task.seconds, task.memory * active / min(active, self.width))

    def _hand_over(self, p: int) -> float:
        return self.hand_over * float(_GROWTH[self.growth](p))

    # --- The same step, if something were otherwise ---------------------------------------------

    def cut(self, chunks: float) -> Projection:
        """Return the model of the same step with every region cut into so many chunks."""
        return self._with(task._replace(chunks=chunks) for task in self.tasks)

    def finer(self, factor: float) -> Projection:
        """Return the model of the same step with ``factor`` times the chunks in every region."""
        return self._with(task._replace(chunks=task.chunks * factor) for task in self.tasks)

    def taking(self, seconds: float) -> Projection:
        """Return the model of another program with the same regions: its T(1) is ``seconds``.

        Its bytes stay what they are, since it has the same arrays to move. It has no Python.
        """
        now = math.fsum(task.seconds for task in self.tasks)
        tasks = (t._replace(seconds=t.seconds * seconds / now) for t in self.tasks)
        return dataclasses.replace(
            self._with(t._replace(memory=min(t.memory, t.seconds)) for t in tasks), python=0.0
        )

    def perfect(self) -> Projection:
        """Return the model of the same step with nothing in its way: S(p) = p."""
        free = dataclasses.replace(self.cut(math.inf), width=math.inf, hand_over=0.0)
        return dataclasses.replace(free, python=0.0)

    def _with(self, tasks: Iterable[Task]) -> Projection:
        return dataclasses.replace(self, tasks=tuple(tasks))


def project(config: GPT2Config, batch: int, seq: int, machine: Calibration) -> Projection:
    """Return the model of a training step on a machine.

    Parameters
    ----------
    config
        The model's shape.
    batch, seq
        B and T.
    machine
        What is known of the machine.
    """
    listed = _regions.of_step(config, batch, seq)
    tasks = []
    for region in listed:
        moved = region.bytes / machine.bandwidth
        seconds = _roofline(region, machine.flops, machine.bandwidth)
        seconds *= machine.slowness.get(region.operation, 1.0)
        tasks.append(Task(region.operation, region.chunks, seconds, min(moved, seconds)))
    width = machine.shared_bandwidth / machine.bandwidth
    return Projection(tuple(tasks), width, machine.hand_over, machine.python * len(listed))


def _roofline(region: _regions.Region, flops: float, bandwidth: float) -> float:
    return max(region.flops / flops, region.bytes / bandwidth)


# --- From measurements ----------------------------------------------------------------------------


def calibrate(
    results: Mapping[str, Any], *, hand_over: float | None = None, python: float | None = None
) -> Calibration:
    """Take the model's numbers from a run of ``gpt2lib bench``: one thread and the ceilings only.

    Parameters
    ----------
    results
        What ``gpt2lib bench`` wrote, or :func:`gpt2lib.perf.recorded.recorded` returns.
    hand_over, python
        As in :class:`Calibration`. Such a run does not hold them, so by default both are measured
        now, on the machine that this runs on.

    Raises
    ------
    ValueError
        When no run on one thread, or no ceiling of one thread, is among the results.
    """
    settings = results["settings"]
    listed = _regions.of_step(GPT2Config(**settings["config"]), settings["batch"], settings["seq"])
    if python is None:
        small = GPT2Config.preset("tiny")
        python = _regions.python_seconds(small, 1, 8) / len(_regions.of_step(small, 1, 8))
    if hand_over is None:
        hand_over = _measure_hand_over("threads", 2)
    one, most = _ceilings(results["ceilings"])
    flops, bandwidth = 1e9 * one["sgemm_gflops"], 1e9 * one["copy_gbs"]
    calls = Counter(region.operation for region in listed)
    took = {
        name: max(seconds - python * calls[name], 0.1 * seconds)  # its rows hold its Python too
        for name, seconds in _one_thread(results["runs"]).items()
    }
    return Calibration(
        flops, bandwidth, max(1e9 * most, bandwidth), hand_over, python,
        _slowness(listed, took, flops, bandwidth), _name(results),
    )  # fmt: skip


def _one_thread(runs: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """Return the seconds of each operation in a step on one thread: the median of such runs."""
    alone = [run["operations"] for run in runs if run["threads"] == 1 and run["operations"]]
    if not alone:
        raise ValueError(
            "the model is calibrated on one thread, and no run of these results is: run gpt2lib "
            "bench with --threads 1,2."
        )
    seconds: defaultdict[str, list[float]] = defaultdict(list)
    for operations in alone:
        total: Counter[str] = Counter()
        for row in operations:
            total[row["operation"]] += row["ms"] / 1000  # all shapes of it together
        for name, taken in total.items():
            seconds[name].append(taken)
    return {name: statistics.median(taken) for name, taken in seconds.items()}


def _ceilings(ceilings: Iterable[Mapping[str, Any]]) -> tuple[Mapping[str, Any], float]:
    """Return the ceilings of one thread, and the most that any number of threads copied (GB/s)."""
    rows = list(ceilings)
    one = next((row for row in rows if row["threads"] == 1), None)
    if one is None:
        raise ValueError("the results hold no ceilings of one thread: run gpt2lib bench again.")
    return one, max(row["copy_gbs"] for row in rows)


def _slowness(
    listed: Iterable[_regions.Region], took: Mapping[str, float], flops: float, bandwidth: float
) -> dict[str, float]:
    """Return how many times the roofline's time each operation took."""
    ideal: defaultdict[str, float] = defaultdict(float)
    for region in listed:
        ideal[region.operation] += _roofline(region, flops, bandwidth)
    return {name: took[name] / ideal[name] for name in ideal if name in took and ideal[name] > 0}


def _name(results: Mapping[str, Any]) -> str:
    from gpt2lib.perf.recorded import machine

    return machine(dict(results))


class Measured(NamedTuple):
    """A calibration, and the times to hold its predictions against.

    Attributes
    ----------
    machine
        The calibration.
    seconds
        Threads -> the time of the fastest step.
    """

    machine: Calibration
    seconds: dict[int, float]


def measure(
    config: GPT2Config,
    batch: int,
    seq: int,
    *,
    runtime: str = "threads",
    threads: int = 2,
    steps: int = 3,
) -> Measured:
    """Calibrate the model on this machine, in some seconds, with a model that may be small.

    Parameters
    ----------
    config, batch, seq
        What to run. How far an operation is from its roofline depends on its width more than on
        anything else, so a few layers of the width that is to be projected will do.
    runtime
        Who runs the chunks.
    threads
        On how many threads besides one; with 1 there is nothing to predict.
    steps
        Timed steps on each number of threads.
    """
    from gpt2lib import runtimes
    from gpt2lib.perf.machine import measure_ceilings

    alone = runtimes.get("sequential")
    seconds, took = _traced(config, batch, seq, alone, steps)
    python = _regions.python_seconds(config, batch, seq)
    listed = _regions.of_step(config, batch, seq)
    ceilings = [measure_ceilings(n, size=1024, passes=3) for n in sorted({1, threads})]
    flops, bandwidth = 1e9 * ceilings[0].sgemm_gflops, 1e9 * ceilings[0].copy_gbs
    shared = max(1e9 * ceiling.copy_gbs for ceiling in ceilings)
    handed = _measure_hand_over(runtime, threads) if threads > 1 else 0.0
    slowness = _slowness(listed, took, flops, bandwidth)
    machine = Calibration(
        flops, bandwidth, max(shared, bandwidth), handed, python / len(listed), slowness,
        "this machine",
    )  # fmt: skip
    times = {1: seconds}
    if threads > 1:
        several = runtimes.get(runtime, threads)
        times[threads] = _traced(config, batch, seq, several, steps)[0]
    return Measured(machine, times)


def _measure_hand_over(runtime: str, threads: int) -> float:
    """Return h_2: by the tree's law, if it was measured on more threads than two."""
    from gpt2lib import runtimes

    alone = _regions.hand_over(runtimes.get("sequential")).best
    several = _regions.hand_over(runtimes.get(runtime, threads)).best
    return max(several - alone, 0.0) / math.log2(threads)


def _traced(
    config: GPT2Config, batch: int, seq: int, runtime: Any, steps: int
) -> tuple[float, dict[str, float]]:
    """Return the seconds of the best step, and those of its operations inside of chunks.

    On one thread the chunks come in the order of the regions, so that every record is known by
    its place.
    """
    from gpt2lib.kernels import Backend
    from gpt2lib.runtimes import TraceBuffer

    listed = _regions.of_step(config, batch, seq)
    chunks = sum(region.chunks for region in listed)
    step = _regions.training_step(config, batch, seq, Backend(runtime), seed=0)
    step()  # compiles, and touches the memory
    buffers, taken = [TraceBuffer(chunks) for _ in range(steps)], []
    try:
        for buffer in buffers:
            runtime.trace = buffer
            begin = time.perf_counter()
            step()
            taken.append(time.perf_counter() - begin)
    finally:
        runtime.trace = None
    best = min(taken)  # what else the machine does only ever adds
    if runtime.threads > 1:
        return best, {}
    records = buffers[taken.index(best)].records()
    spent = (records["end_ns"] - records["start_ns"]) / 1e9
    took: defaultdict[str, float] = defaultdict(float)
    at = 0
    for region in listed:
        took[region.operation] += float(spent[at : at + region.chunks].sum())
        at += region.chunks
    return best, dict(took)


# --- Held against measurements --------------------------------------------------------------------


def errors(model: Projection, seconds: Mapping[int, float]) -> dict[int, float]:
    """Return by how much the model is off: (predicted − measured) / measured, for each p.

    Parameters
    ----------
    model
        The model.
    seconds
        Threads -> the measured time of a step.
    """
    return {p: (model.seconds(p) - taken) / taken for p, taken in sorted(seconds.items())}


def required(model: Projection, speedup: float, threads: int) -> dict[str, float | None]:
    r"""Say what would have to be true for a speedup: each cause alone, with all else perfect.

    Parameters
    ----------
    model
        The step. Of it count the regions, the time on one thread and the bytes.
    speedup
        S, what was measured.
    threads
        p.

    Returns
    -------
    dict
        ``width``: for how many threads the memory suffices (B / b). ``chunks``: how many equal
        chunks each region has. ``hand_over``: h(p), seconds a region. ``serial``: how many of the
        seconds on one thread nobody helps with. None where no value of this cause alone gives
        that speedup.

    Raises
    ------
    ValueError
        For a speedup that is not between 1 and the number of threads.

    Notes
    -----
    With all else perfect :math:`T(p) = T(1)/p`. The serial seconds are :math:`T(1)` times Karp and
    Flatt's serial part; the hand-over is :math:`T(1)/S - T(1)/p`, divided by the number of regions;
    the other two are searched for.
    """
    p = _checked(threads)
    if not 1 <= speedup <= p:
        raise ValueError(f"a speedup on {p} threads is between 1 and {p}, got {speedup!r}.")
    best = model.perfect()
    one = best.seconds(1)
    handed = sum(task.chunks > 1 for task in model.tasks)
    missing = one / speedup - one / p
    return {
        "width": _narrowest(best, speedup, p),
        "chunks": next(n for n in range(1, p + 1) if best.cut(n).speedup(p) >= speedup - 1e-9),
        "hand_over": missing / handed if handed else None,
        "serial": one * karp_flatt(speedup, p) if p > 1 else None,
    }


def explanations(model: Projection, speedup: float, threads: int) -> dict[str, Projection]:
    """Return a model for each cause that alone explains a speedup: they agree there only.

    Where they part, a measurement on another number of threads can tell them apart.

    Parameters
    ----------
    model, speedup, threads
        As in :func:`required`.

    Returns
    -------
    dict
        Cause, by :func:`required`'s names, to the model of the step with that cause alone; those
        causes are left out that cannot explain it.
    """
    needed = required(model, speedup, threads)
    free, found = model.perfect(), {}
    one, grown = free.seconds(1), float(_GROWTH[model.growth](threads))
    for cause, value in needed.items():
        if value is None:
            continue
        if cause == "chunks":
            found[cause] = free.cut(value)
        elif cause == "width":
            found[cause] = dataclasses.replace(free, width=value)
        elif cause == "serial":
            left = 1 - value / one
            shared = (Task(t[0], t[1], left * t.seconds, left * t.memory) for t in free.tasks)
            found[cause] = dataclasses.replace(free._with(shared), python=value)
        elif grown:
            handed = sum(task.chunks > 1 for task in model.tasks) / len(free.tasks)
            found[cause] = dataclasses.replace(free, hand_over=value * handed / grown)
    return found


def _narrowest(best: Projection, speedup: float, p: int) -> float | None:
    """Return the width of the memory that gives a speedup; None where even one thread's does."""
    low, high = 1.0, float(p)
    if dataclasses.replace(best, width=low).speedup(p) > speedup:
        return None
    for _ in range(80):
        middle = (low + high) / 2
        if dataclasses.replace(best, width=middle).speedup(p) < speedup:
            low = middle
        else:
            high = middle
    return high


def _checked(threads: int) -> int:
    if threads < 1:
        raise ValueError(f"the number of threads must be at least 1, got {threads!r}.")
    return threads
