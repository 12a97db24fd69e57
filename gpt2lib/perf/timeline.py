r"""What every thread did, chunk by chunk: load balance, and files for Paraver and Perfetto.

A runtime writes one record a chunk into a :class:`~gpt2lib.runtimes.TraceBuffer`. A *timeline* is
those records with their times counted from its beginning, and the names of what ran. Between two
chunks a thread is idle: it waits for the others, or for the Python code that starts the next
region.

.. code-block:: python

    buffer = TraceBuffer()
    model.ops.runtime.trace = buffer
    begin = time.perf_counter_ns()
    model.loss(ids, targets)
    end = time.perf_counter_ns()
    model.ops.runtime.trace = None
    timeline = Timeline.from_buffer(buffer, threads=2, labels=region_labels(), begin=begin, end=end)
"""

from __future__ import annotations

import datetime
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from gpt2lib._files import atomic_write

if TYPE_CHECKING:
    from gpt2lib.runtimes import TraceBuffer

__all__ = ["Efficiency", "Timeline", "region_labels", "write_chrome", "write_paraver"]

OPERATION, CHUNK = 84_000_001, 84_000_002  # Paraver's event types, ours to choose
IDLE, RUNNING = 0, 1  # Paraver's own numbers for these states


class Efficiency(NamedTuple):
    r"""Where the threads' time went, as a product of three shares, each at most 1.

    With :math:`u_i` the time that thread i spent inside chunks, T the whole time and
    :math:`T_r` the time in which at least one thread was inside a chunk:

    .. math::
        \frac{\overline{u}}{T}
        = \underbrace{\frac{\overline{u}}{\max u}}_{\text{load balance}}
        \cdot \underbrace{\frac{\max u}{T_r}}_{\text{communication}}
        \cdot \underbrace{\frac{T_r}{T}}_{\text{serial part}}

    Attributes
    ----------
    parallel
        Parallel efficiency, :math:`\overline{u}/T`: the product of the other three.
    load_balance
        1 when all threads have equally much to do.
    communication
        What hand-over, and turns that threads take, leave: 1 when the busiest thread never waits
        while another one works.
    serial
        1 when there is always somebody inside a chunk; Python between two regions lowers it.

    Notes
    -----
    In the way of the POP project's multiplicative model (Rosas, Giménez and Labarta, 2014), whose
    transfer and serialisation are told apart here by whether any thread is working.
    """

    parallel: float
    load_balance: float
    communication: float
    serial: float


@dataclass(frozen=True)
class Timeline:
    """The chunks of a run, on their threads.

    Attributes
    ----------
    threads
        How many threads there were, those that did nothing included.
    duration
        Nanoseconds from begin to end.
    records
        Structured array, ordered by start: ``region``, ``chunk``, ``thread``, ``start_ns``,
        ``end_ns``, the times counted from the timeline's beginning.
    labels
        Region number -> name.
    """

    threads: int
    duration: int
    records: np.ndarray[Any, Any]
    labels: Mapping[int, str]

    def __post_init__(self) -> None:
        r = self.records
        if self.threads < 1 or self.duration < 1:
            raise ValueError(
                f"a timeline has at least one thread and one nanosecond, got {self.threads} and "
                f"{self.duration}."
            )
        if r.size == 0:
            return
        if r["thread"].min() < 0 or r["thread"].max() >= self.threads:
            raise ValueError(
                f"a record names thread {r['thread'].max()} (or one below 0); there are "
                f"{self.threads} threads, counted from 0."
            )
        if r["start_ns"].min() < 0 or r["end_ns"].max() > self.duration:
            raise ValueError(
                "a record lies outside the timeline: take its begin before the first region and "
                "its end after the last one."
            )
        for thread in range(self.threads):
            own = r[r["thread"] == thread]
            if np.any(own["end_ns"] < own["start_ns"]) or np.any(
                own["start_ns"][1:] < own["end_ns"][:-1]
            ):
                raise ValueError(f"the records of thread {thread} overlap or run backwards.")

    @classmethod
    def from_buffer(
        cls,
        buffer: TraceBuffer,
        *,
        threads: int,
        labels: Mapping[int, str],
        begin: int,
        end: int,
    ) -> Timeline:
        """Make a timeline of what a runtime has recorded.

        Parameters
        ----------
        buffer
            The record, with the runtime's tracing stopped.
        threads
            The runtime's number of threads.
        labels
            Region number -> name, such as :func:`region_labels` gives.
        begin, end
            ``time.perf_counter_ns()`` before the first region and after the last.

        Raises
        ------
        ValueError
            When the buffer was too small for all records, or a record does not fit in.
        """
        if buffer.dropped:
            raise ValueError(
                f"the trace is not whole: {buffer.dropped} records found no room. Give the buffer "
                f"a capacity of at least {buffer.capacity + buffer.dropped}."
            )
        records = buffer.records()
        records["start_ns"] -= begin
        records["end_ns"] -= begin
        return cls(threads, end - begin, records, dict(labels))

    def busy(self) -> np.ndarray[Any, Any]:
        """Return the nanoseconds that each thread spent inside chunks, (threads,)."""
        spent = self.records["end_ns"] - self.records["start_ns"]
        return np.bincount(self.records["thread"], weights=spent, minlength=self.threads)

    def covered(self) -> int:
        """Return the nanoseconds in which at least one thread was inside a chunk."""
        total, reached = 0, 0
        for start, end in zip(
            self.records["start_ns"].tolist(), self.records["end_ns"].tolist(), strict=True
        ):
            if end > reached:
                total += end - max(start, reached)
                reached = end
        return total

    def by_region(self) -> dict[str, int]:
        """Return the nanoseconds of all threads together for each region's name, longest first."""
        spent: dict[str, int] = {}
        for region in np.unique(self.records["region"]).tolist():
            of = self.records[self.records["region"] == region]
            spent[self.label(region)] = int((of["end_ns"] - of["start_ns"]).sum())
        return dict(sorted(spent.items(), key=lambda item: -item[1]))

    def label(self, region: int) -> str:
        """Return a region's name, or its number where it has none."""
        return self.labels.get(region, f"region {region}")

    def efficiency(self) -> Efficiency:
        """Split the parallel efficiency into load balance, communication and serial part.

        Raises
        ------
        ValueError
            When nothing ran.
        """
        busy, covered = self.busy(), self.covered()
        if covered == 0:
            raise ValueError("nothing ran in this timeline, so there is no efficiency.")
        mean, most = float(busy.mean()), float(busy.max())
        return Efficiency(
            mean / self.duration, mean / most, most / covered, covered / self.duration
        )


def region_labels() -> dict[int, str]:
    """Return the name of every compiled kernel by the number that its records carry."""
    from gpt2lib.kernels import kernels

    return {kernel.number: name for name, kernel in kernels().items()}


def write_chrome(path: str | os.PathLike[str], timeline: Timeline) -> None:
    """Write a timeline as JSON that ``chrome://tracing`` and Perfetto read.

    One complete event (``"ph": "X"``) a chunk, microseconds, a row for each thread.

    Notes
    -----
    "Trace Event Format" (Google, 2016), complete events and metadata events.
    """
    events: list[dict[str, Any]] = [
        {"ph": "M", "name": "thread_name", "pid": 1, "tid": i, "args": {"name": f"thread {i}"}}
        for i in range(timeline.threads)
    ]
    for region, chunk, thread, start, end in timeline.records.tolist():
        events.append(
            {
                "ph": "X",
                "name": timeline.label(region),
                "cat": "chunk",
                "pid": 1,
                "tid": thread,
                "ts": start / 1000,
                "dur": (end - start) / 1000,
                "args": {"chunk": chunk},
            }
        )
    with atomic_write(path) as temporary:
        temporary.write_text(
            json.dumps({"displayTimeUnit": "ns", "traceEvents": events}), encoding="utf-8"
        )


def write_paraver(
    path: str | os.PathLike[str], timeline: Timeline, *, when: datetime.datetime | None = None
) -> None:
    """Write a timeline for Paraver: ``path`` (a ``.prv``), and ``.pcf`` and ``.row`` beside it.

    The trace has two states, idle and running, for every moment of every thread, and two event
    types: the operation (its region number + 1) and the chunk (counted from 1). 0 ends either.

    Parameters
    ----------
    path
        Where the ``.prv`` goes; its name must end so.
    timeline
        What to write.
    when
        The time of day that the header names; by default now.

    Raises
    ------
    ValueError
        For a name that does not end in ``.prv``.

    Notes
    -----
    "Paraver Trace Format" (Barcelona Supercomputing Center): identifiers count from 1, records are
    ordered by time, and Paraver finds the other two files by the name of the first.
    """
    target = Path(path)
    if target.suffix != ".prv":
        raise ValueError(f"a Paraver trace's name ends in .prv, got {target.name!r}.")
    when = when or datetime.datetime.now()
    n = timeline.threads
    header = f"#Paraver ({when:%d/%m/%Y at %H:%M}):{timeline.duration}_ns:1({n}):1:1({n}:1)"
    lines = sorted(_paraver_records(timeline))  # by time, then states before events, then thread
    # The names first: whoever sees the trace then finds all three files.
    for suffix, text in (
        (".pcf", _paraver_names(timeline)),
        (".row", _paraver_rows(n)),
        (".prv", "\n".join([header, *(line for *_, line in lines), ""])),
    ):
        with atomic_write(target.with_suffix(suffix)) as temporary:
            temporary.write_text(text, encoding="utf-8")


def _paraver_records(timeline: Timeline) -> Iterator[tuple[int, int, int, str]]:
    """Yield (time, kind, thread, line) of every state and event, in no particular order."""
    for thread in range(timeline.threads):
        who = f"{thread + 1}:1:1:{thread + 1}"  # cpu, application, task, thread
        own = timeline.records[timeline.records["thread"] == thread]
        own = own[own["end_ns"] > own["start_ns"]]  # a chunk of no length has no place on a line
        reached = 0
        starts = set(own["start_ns"].tolist())
        for region, chunk, _, start, end in own.tolist():
            if start > reached:
                yield reached, 1, thread, f"1:{who}:{reached}:{start}:{IDLE}"
            yield start, 1, thread, f"1:{who}:{start}:{end}:{RUNNING}"
            yield start, 2, thread, f"2:{who}:{start}:{OPERATION}:{region + 1}:{CHUNK}:{chunk + 1}"
            if end not in starts:  # else the next one's beginning says it
                yield end, 2, thread, f"2:{who}:{end}:{OPERATION}:0:{CHUNK}:0"
            reached = end
        if reached < timeline.duration:
            yield reached, 1, thread, f"1:{who}:{reached}:{timeline.duration}:{IDLE}"


def _paraver_names(timeline: Timeline) -> str:
    """Return the ``.pcf``: what the numbers stand for, and the colours of the states."""
    used = np.unique(timeline.records["region"]).tolist()
    operations = "\n".join(f"{number + 1}  {timeline.label(number)}" for number in used)
    return f"""DEFAULT_OPTIONS

LEVEL               THREAD
UNITS               NANOSEC
LOOK_BACK           100
SPEED               1
FLAG_ICONS          ENABLED
NUM_OF_STATE_COLORS 1000
YMAX_SCALE          37


DEFAULT_SEMANTIC

THREAD_FUNC         State As Is


STATES
{IDLE}    Idle
{RUNNING}    Running


STATES_COLOR
{IDLE}    {{200,200,200}}
{RUNNING}    {{0,90,181}}


EVENT_TYPE
9    {OPERATION}    Operation
VALUES
0  End
{operations}


EVENT_TYPE
9    {CHUNK}    Chunk (counted from 1)

"""


def _paraver_rows(threads: int) -> str:
    """Return the ``.row``: the names of processors, node and threads."""
    cpus = "\n".join(f"CPU {i + 1}" for i in range(threads))
    names = "\n".join(f"thread {i}" for i in range(threads))
    return f"""LEVEL CPU SIZE {threads}
{cpus}

LEVEL NODE SIZE 1
node 1

LEVEL THREAD SIZE {threads}
{names}
"""
