"""Record every chunk of a model's steps, and note of which operation, layer and phase it is.

A runtime's record knows regions and chunks, and nothing of transformers. The model knows which
operation follows which, and nothing of records. So the notes are taken from outside: while a
recording runs, the model's backend is replaced by one that hands every call on, and notes how many
records there were before and after it. An operation returns when its last chunk has ended, so the
records in between are its own.

.. code-block:: python

    with Recording(model, optimizer) as recording:
        for i in range(3):
            recording.iteration = i
            model.loss(ids, targets)
            model.backward()
            optimizer.step(model.gradients, zero_gradients=True)
    timeline = recording.timeline()
"""

from __future__ import annotations

import ctypes
import math
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from gpt2lib import ops as operations
from gpt2lib.model import GPT2
from gpt2lib.perf.timeline import NO_LAYER, PHASES, Timeline, region_labels
from gpt2lib.perf.turns import thread_clock

if TYPE_CHECKING:
    from gpt2lib.optimizer import AdamW
    from gpt2lib.runtimes import TraceBuffer

__all__ = ["Call", "NotingOps", "Overhead", "Recording", "overhead"]

_FORWARD, _BACKWARD, _UPDATE = range(len(PHASES))
# Operations that belong to no block, whatever stands beside them.
_OUTSIDE = ("embedding", "head_forward", "head_backward", "cross_entropy", "adamw", "squared_norm")


class Call(NamedTuple):
    """One call of an operation.

    Attributes
    ----------
    operation
        Its name.
    begin, end
        How many records there were before it, and when it returned.
    layer
        The layer whose parameter it was given; None where it was given none.
    clears
        Whether it was given the whole buffer of the gradients (to clear it).
    iteration
        The recording's iteration at that time.
    """

    operation: str
    begin: int
    end: int
    layer: int | None
    clears: bool
    iteration: int


class NotingOps:
    """A backend that hands every call on to another one and notes which records it left.

    A layer is recognised by the arrays that a call is given: the views of parameters and gradients
    are the same objects in every call, so a look into a table is enough. A call costs about 1 µs
    more.

    Parameters
    ----------
    model
        Whose backend, parameters and gradients.
    buffer
        Into which its runtime writes.
    """

    def __init__(self, model: GPT2, buffer: TraceBuffer) -> None:
        from gpt2lib.runtimes.native import TRACE_NEXT

        self._ops = model.ops
        # The buffer's own count, read in a twentieth of a microsecond.
        self._count = ctypes.c_int64.from_address(buffer.address + TRACE_NEXT)
        self._buffer = buffer  # and kept, as long as its memory is looked at
        self.calls: list[tuple[Any, ...]] = []  # what makes a Call
        self.iteration = 0
        gradients = model.gradients
        self._layers = {
            id(view): _layer_of(name)
            for tensors in (model.parameters, gradients)
            for name, view in tensors.items()
        }
        self._cleared = id(gradients.flat)

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._ops, name)
        if name not in operations.__all__:
            return attribute

        count, layers, note = self._count, self._layers, self.calls.append

        def noted(*arguments: Any, **options: Any) -> Any:
            begin = count.value
            result = attribute(*arguments, **options)
            end, layer = count.value, None
            for value in arguments:
                if (number := id(value)) in layers:
                    layer = layers[number]
            clears = bool(arguments) and id(arguments[0]) == self._cleared
            note((name, begin, end, layer, clears, self.iteration))
            return result

        setattr(self, name, noted)  # the next time there is nothing to look for
        return noted


class Recording:
    """A recording of a model's operations, from entering the block to leaving it.

    Parameters
    ----------
    model
        A model on compiled kernels.
    optimizer
        Whose updates are to be noted too.
    capacity
        How many records there is room for; :meth:`timeline` says when it was too small.

    Attributes
    ----------
    iteration
        Set it at the beginning of each step; it goes into the notes.

    Raises
    ------
    ValueError
        For a model on the NumPy backend, whose operations are not made of chunks.
    """

    def __init__(
        self, model: GPT2, optimizer: AdamW | None = None, *, capacity: int = 1 << 18
    ) -> None:
        from gpt2lib.runtimes import TraceBuffer

        if not hasattr(model.ops, "runtime"):
            raise ValueError("only compiled kernels have chunks to record: use backend='numba'.")
        self._model, self._optimizer = model, optimizer
        self._runtime = model.ops.runtime
        self._buffer = TraceBuffer(capacity)
        self._noting = NotingOps(model, self._buffer)
        self._plain = model.ops
        self._begin = self._end = 0

    @property
    def iteration(self) -> int:
        """The number of the step that is being made."""
        return self._noting.iteration

    @iteration.setter
    def iteration(self, number: int) -> None:
        self._noting.iteration = number

    @property
    def calls(self) -> tuple[Call, ...]:
        """The calls of operations so far."""
        return tuple(Call(*call) for call in self._noting.calls)

    @property
    def threads(self) -> int:
        """How many threads the runtime has."""
        return self._runtime.threads

    @property
    def needed(self) -> int:
        """How many records there have been, those without room included."""
        return len(self._buffer) + self._buffer.dropped

    def clear(self) -> None:
        """Forget what was recorded so far; not inside the block."""
        self._buffer.clear()
        self._noting.calls.clear()

    def __enter__(self) -> Recording:
        self._use(self._noting)
        self._runtime.trace = self._buffer
        self._begin = time.perf_counter_ns()
        return self

    def __exit__(self, *_: object) -> None:
        self._end = time.perf_counter_ns()
        self._runtime.trace = None
        self._use(self._plain)

    def _use(self, ops: Any) -> None:
        self._model.ops = ops
        if self._optimizer is not None:
            self._optimizer.ops = ops

    def timeline(self) -> Timeline:
        """Return what was recorded when the block was last run, with its notes.

        Raises
        ------
        ValueError
            When there was not room for all records.
        """
        timeline = Timeline.from_buffer(
            self._buffer,
            threads=self._runtime.threads,
            labels=region_labels(),
            begin=self._begin,
            end=self._end,
        )
        return timeline.with_notes(*notes(self.calls, len(timeline.records)))


def notes(calls: Sequence[Call], size: int) -> tuple[np.ndarray[Any, Any], tuple[str, ...]]:
    """Return a note for each record in the order of their starts, and the operations' names.

    Operations come one after the other, so what was recorded during a call stands together when
    the records are ordered by their start as well.

    Parameters
    ----------
    calls
        In their order.
    size
        How many records there are. One that no call left (somebody ran a region of his own) has
        the note -1 everywhere.
    """
    names = tuple(dict.fromkeys(call.operation for call in calls))
    array = np.full(size, -1, Timeline.note)
    array["layer"] = NO_LAYER
    for call, layer, phase in zip(calls, _layers(calls), _phases(calls), strict=True):
        own = array[call.begin : call.end]
        own["operation"] = names.index(call.operation)
        own["layer"] = layer
        own["phase"] = phase
        own["iteration"] = call.iteration
    return array, names


def _layer_of(name: str) -> int:
    """Return the layer that a parameter's name says: 3 for ``h.3.attn.c_attn.weight``."""
    return int(name.split(".")[1]) if name.startswith("h.") else NO_LAYER


def _layers(calls: Sequence[Call]) -> list[int]:
    """Find each call's layer: from its parameter, or else from its neighbours.

    Attention and the residual additions have no parameter. They follow a linear layer of their own
    block, forward and backward, with nothing but a ``zero`` in between. A ``zero`` clears the
    buffer of the operation that comes next.
    """
    found, before = [], NO_LAYER
    for call in calls:
        if call.operation.startswith(_OUTSIDE) or call.clears:
            before = NO_LAYER
        elif call.layer is not None:
            before = call.layer
        found.append(before)
    _from_the_next(calls, found)
    return found


def _phases(calls: Sequence[Call]) -> list[int]:
    """Find each call's phase: from its name, or else from its neighbours.

    The backward applies a head mask again, so ``head_mask_forward`` takes the phase that it is in.
    """
    found, phase = [], _FORWARD
    for call in calls:
        if call.operation in ("adamw_update", "squared_norm") or call.clears:
            phase = _UPDATE
        elif call.operation.endswith("_backward"):
            phase = _BACKWARD
        elif call.operation != "head_mask_forward":
            phase = _FORWARD
        found.append(phase)
    _from_the_next(calls, found)
    return found


def _from_the_next(calls: Sequence[Call], found: list[int]) -> None:
    """Give each ``zero`` of a scratch buffer what the operation after it has."""
    for at in reversed(range(len(calls) - 1)):
        if calls[at].operation == "zero" and not calls[at].clears:
            found[at] = found[at + 1]


# --- What the record costs ------------------------------------------------------------------------


class Overhead(NamedTuple):
    """What recording adds to a step.

    Attributes
    ----------
    plain, recorded
        Seconds of each step without and with the record, pair by pair.
    """

    plain: tuple[float, ...]
    recorded: tuple[float, ...]

    @property
    def ratios(self) -> np.ndarray[Any, Any]:
        """Recorded over plain, for each pair."""
        return np.array(self.recorded) / np.array(self.plain)

    @property
    def median(self) -> float:
        """The median of the ratios, minus 1."""
        return float(np.median(self.ratios)) - 1

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        r"""Return an interval for the median, minus 1, that supposes no distribution.

        Of n values, the j-th smallest lies above the median of what they are drawn from when at
        most j - 1 do not: a chance of :math:`2^{-n} \sum_{i<j} \binom{n}{i}`. The interval is
        between the j-th value from each end, with the largest j for which that is small enough
        (and between the ends, with a lower level, where there are too few values).
        """
        ordered, n = np.sort(self.ratios), len(self.ratios)
        tail, chances = (1 - level) / 2, np.cumsum([math.comb(n, i) / 2**n for i in range(n)])
        out = max(0, int(np.sum(chances <= tail)) - 1)
        return float(ordered[out]) - 1, float(ordered[n - 1 - out]) - 1


def overhead(
    step: Callable[[], object], recording: Recording, *, pairs: int | None = None
) -> Overhead:
    """Measure what a record costs: steps with it and without, in turns.

    On one thread the processor's time counts, which stands still while others have the core; on
    more, the time of the clock on the wall.

    Parameters
    ----------
    step
        Makes one step of the recording's model.
    recording
        It forgets what it recorded.
    pairs
        How many; by default as many as take about five seconds, 10 to 60. Which of the two comes
        first changes from pair to pair.
    """
    clock = thread_clock() if recording.threads == 1 else time.perf_counter

    def plainly() -> float:
        begin = clock()
        step()
        return clock() - begin

    def recorded() -> float:
        recording.clear()
        with recording:
            return plainly()

    plainly()
    if pairs is None:
        pairs = min(60, max(10, round(5 / (plainly() + recorded()))))
    plain, with_record = [], []
    for pair in range(pairs):
        if pair % 2:
            with_record.append(recorded())
            plain.append(plainly())
        else:
            plain.append(plainly())
            with_record.append(recorded())
    recording.clear()
    return Overhead(tuple(plain), tuple(with_record))
