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

:class:`gpt2lib.perf.recording.Recording` does this, and adds *notes*: of which operation, layer,
phase and iteration each record is.
"""

from __future__ import annotations

import datetime
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from gpt2lib._files import atomic_write

if TYPE_CHECKING:
    from gpt2lib.runtimes import TraceBuffer

__all__ = [
    "NO_LAYER",
    "PHASES",
    "Efficiency",
    "Span",
    "Timeline",
    "region_labels",
    "write_chrome",
    "write_paraver",
]

#: The parts of a training step, by the number that notes carry.
PHASES = ("forward", "backward", "update")
#: The note of what belongs to no layer: embedding, ln_f, head, loss, AdamW.
NO_LAYER = -1

# Paraver's event types, ours to choose.
KERNEL, CHUNK, OPERATION, LAYER, PHASE, ITERATION = range(84_000_001, 84_000_007)
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


class Span(NamedTuple):
    """A phase of an iteration, from its first chunk to its last.

    Attributes
    ----------
    iteration, phase
        Its numbers; ``PHASES`` has the names.
    start, end
        Nanoseconds.
    """

    iteration: int
    phase: int
    start: int
    end: int


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
    notes
        Structured array with a note for each record, or None: ``operation`` (an index into
        ``operations``), ``layer`` (or ``NO_LAYER``), ``phase`` (an index into ``PHASES``),
        ``iteration``. All are -1 where nothing is known.
    operations
        The names of the operations.
    """

    note: ClassVar[np.dtype[Any]] = np.dtype(
        [(name, np.int64) for name in ("operation", "layer", "phase", "iteration")]
    )

    threads: int
    duration: int
    records: np.ndarray[Any, Any]
    labels: Mapping[int, str]
    notes: np.ndarray[Any, Any] | None = None
    operations: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        r = self.records
        if self.notes is not None and len(self.notes) != len(r):
            raise ValueError(f"there are {len(self.notes)} notes for {len(r)} records.")
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

    def with_notes(self, notes: np.ndarray[Any, Any], operations: tuple[str, ...]) -> Timeline:
        """Return the same timeline with a note for each record."""
        return replace(self, notes=notes, operations=operations)

    def part(self, start: int, end: int) -> Timeline:
        """Return what happened in [start, end) ns, counted from there; no record may be cut.

        Raises
        ------
        ValueError
            When a record begins before ``start`` or ends after ``end``, and not outside.
        """
        inside = (self.records["start_ns"] < end) & (self.records["end_ns"] > start)
        records = self.records[inside].copy()
        records["start_ns"] -= start
        records["end_ns"] -= start
        notes = None if self.notes is None else self.notes[inside]
        return replace(self, duration=end - start, records=records, notes=notes)

    def spans(self) -> list[Span]:
        """Return the phases in their order; none without notes.

        What is noted as the same phase of the same iteration twice, with another one in between
        (gradients of several micro-batches), is several spans.
        """
        if self.notes is None:
            return []
        found: list[Span] = []
        columns = (self.notes["iteration"], self.notes["phase"])
        times = (self.records["start_ns"], self.records["end_ns"])
        for iteration, phase, start, end in zip(
            *(c.tolist() for c in (*columns, *times)), strict=True
        ):
            if phase < 0:
                continue
            last = found[-1] if found else None
            if last is not None and last[:2] == (iteration, phase):
                found[-1] = last._replace(end=max(last.end, end))
            else:
                found.append(Span(iteration, phase, start, end))
        return found

    def by_note(self, column: str) -> dict[int, int]:
        """Return the nanoseconds of all threads together for each value of a note.

        Parameters
        ----------
        column
            ``"operation"``, ``"layer"``, ``"phase"`` or ``"iteration"``.
        """
        if self.notes is None:
            raise ValueError("this timeline has no notes: record it with perf.recording.Recording.")
        spent = self.records["end_ns"] - self.records["start_ns"]
        values = np.unique(self.notes[column]).tolist()
        return {value: int(spent[self.notes[column] == value].sum()) for value in values}

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

    One complete event (``"ph": "X"``) a chunk, microseconds, a row for each thread. With notes, an
    event's arguments say its operation, layer, phase and iteration, its category is the phase, and
    a row above the threads has the phases.

    Notes
    -----
    "Trace Event Format" (Google, 2016), complete events and metadata events.
    """
    names = [f"thread {i}" for i in range(timeline.threads)]
    if timeline.notes is not None:
        names.append("phases")
    events: list[dict[str, Any]] = []
    for tid, name in enumerate(names):
        order = -1 if name == "phases" else tid
        about = {"ph": "M", "pid": 1, "tid": tid}
        events.append({**about, "name": "thread_name", "args": {"name": name}})
        events.append({**about, "name": "thread_sort_index", "args": {"sort_index": order}})
    for (region, chunk, thread, start, end), note in zip(
        timeline.records.tolist(), _noted(timeline), strict=True
    ):
        event = _event(timeline.label(region), note.get("phase", "chunk"), thread, start, end)
        events.append({**event, "args": {"chunk": chunk, **note}})
    for span in timeline.spans():
        event = _event(PHASES[span.phase], "phase", timeline.threads, span.start, span.end)
        events.append({**event, "args": {"iteration": span.iteration}})
    with atomic_write(path) as temporary:
        temporary.write_text(
            json.dumps({"displayTimeUnit": "ns", "traceEvents": events}), encoding="utf-8"
        )


def _event(name: str, category: str, row: int, start: int, end: int) -> dict[str, Any]:
    times = {"ts": start / 1000, "dur": (end - start) / 1000}
    return {"ph": "X", "name": name, "cat": category, "pid": 1, "tid": row, **times}


def _noted(timeline: Timeline) -> Iterator[dict[str, Any]]:
    """Yield what each record's note says, in words; what is not known is left out."""
    if timeline.notes is None:
        yield from ({} for _ in timeline.records)
        return
    for operation, layer, phase, iteration in timeline.notes.tolist():
        note: dict[str, Any] = {}
        if operation >= 0:
            note |= {"operation": timeline.operations[operation], "layer": layer_name(layer)}
            note |= {"phase": PHASES[phase], "iteration": iteration}
        yield note


def layer_name(layer: int) -> str:
    """Return a layer's number as text, or ``"none"``."""
    return "none" if layer == NO_LAYER else str(layer)


def write_paraver(
    path: str | os.PathLike[str], timeline: Timeline, *, when: datetime.datetime | None = None
) -> None:
    """Write a timeline for Paraver: ``path`` (a ``.prv``), and ``.pcf`` and ``.row`` beside it.

    The trace has two states, idle and running, for every moment of every thread, and two event
    types: the kernel (its region number + 1) and the chunk (counted from 1). With notes there are
    four more: the operation (from 1), the layer (1 for none, then each layer + 2), the phase and
    the iteration (from 1). 0 ends any of them. The ``.pcf`` has their names.

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
    types, values = _paraver_values(timeline)
    nothing = "".join(f":{kind}:0" for kind in types)
    for thread in range(timeline.threads):
        who = f"{thread + 1}:1:1:{thread + 1}"  # cpu, application, task, thread
        r = timeline.records
        # A chunk of no length has no place on a line.
        chosen = np.flatnonzero((r["thread"] == thread) & (r["end_ns"] > r["start_ns"]))
        own, events = r[chosen], values[chosen].tolist()
        reached = 0
        starts = set(own["start_ns"].tolist())
        for (_, _, _, start, end), event in zip(own.tolist(), events, strict=True):
            if start > reached:
                yield reached, 1, thread, f"1:{who}:{reached}:{start}:{IDLE}"
            yield start, 1, thread, f"1:{who}:{start}:{end}:{RUNNING}"
            pairs = "".join(f":{kind}:{value}" for kind, value in zip(types, event, strict=True))
            yield start, 2, thread, f"2:{who}:{start}{pairs}"
            if end not in starts:  # else the next one's beginning says it
                yield end, 2, thread, f"2:{who}:{end}{nothing}"
            reached = end
        if reached < timeline.duration:
            yield reached, 1, thread, f"1:{who}:{reached}:{timeline.duration}:{IDLE}"


def _paraver_values(timeline: Timeline) -> tuple[list[int], np.ndarray[Any, Any]]:
    """Return the event types, and for each record a row with the values of its beginning."""
    r, notes = timeline.records, timeline.notes
    types, columns = [KERNEL, CHUNK], [r["region"] + 1, r["chunk"] + 1]
    if notes is not None:
        types += [OPERATION, LAYER, PHASE, ITERATION]
        columns += [notes["operation"] + 1, notes["layer"] + 2]
        columns += [notes["phase"] + 1, notes["iteration"] + 1]
    return types, np.stack(columns, axis=1)


def _paraver_names(timeline: Timeline) -> str:
    """Return the ``.pcf``: what the numbers stand for, and the colours of the states."""
    used = np.unique(timeline.records["region"]).tolist()
    parts = [
        _PCF_HEAD,
        _event_type(KERNEL, "Kernel", {n + 1: timeline.label(n) for n in used}),
        _event_type(CHUNK, "Chunk (counted from 1)", {}),
    ]
    if timeline.notes is not None:
        layers, steps = (np.unique(timeline.notes[c]).tolist() for c in ("layer", "iteration"))
        named = {n + 2: f"layer {n}" if n >= 0 else "none" for n in layers}
        parts += [
            _event_type(OPERATION, "Operation", dict(enumerate(timeline.operations, 1))),
            _event_type(LAYER, "Layer", named),
            _event_type(PHASE, "Phase", dict(enumerate(PHASES, 1))),
            _event_type(ITERATION, "Iteration", {n + 1: f"iteration {n}" for n in steps if n >= 0}),
        ]
    return "\n\n".join(parts)


def _event_type(number: int, name: str, values: Mapping[int, str]) -> str:
    lines = ["EVENT_TYPE", f"9    {number}    {name}"]
    if values:
        lines += ["VALUES", "0  End", *(f"{value}  {words}" for value, words in values.items())]
    return "\n".join([*lines, ""])


_PCF_HEAD = f"""DEFAULT_OPTIONS

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
