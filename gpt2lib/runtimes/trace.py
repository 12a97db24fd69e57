"""A record of every chunk: which region, which chunk, on which thread, from when to when."""

from __future__ import annotations

import numpy as np

# The header and the record as native.py writes them.
_HEADER, _FIELDS = 8, ("region", "chunk", "thread", "start_ns", "end_ns")


class TraceBuffer:
    """Memory into which the threads of a runtime write one record a chunk.

    Assign one to ``runtime.trace``; assign ``None`` to stop. The thread that ran a chunk writes
    its record, with two readings of the clock and one atomic addition (about 0.1 µs a chunk), and
    needs neither a lock nor the GIL. All memory is there, and touched, from the start.

    Parameters
    ----------
    capacity
        How many records it holds (40 bytes each). Those that come later are dropped and counted.

    Notes
    -----
    Times are nanoseconds of the clock that ``time.perf_counter_ns()`` reads. A region's number is
    the ``region=`` that ``Runtime.run`` was given; what it stands for is the caller's business.

    Examples
    --------
    >>> buffer = TraceBuffer(capacity=1000)
    >>> len(buffer), buffer.dropped
    (0, 0)
    >>> buffer.records().dtype.names
    ('region', 'chunk', 'thread', 'start_ns', 'end_ns')
    """

    dtype = np.dtype([(name, np.int64) for name in _FIELDS])

    def __init__(self, capacity: int = 1 << 20) -> None:
        if not 1 <= capacity <= 1 << 32:
            raise ValueError(f"a trace buffer holds between 1 and 2**32 records, not {capacity}")
        self._memory = np.full(_HEADER + len(_FIELDS) * capacity, 0, np.int64)
        self._memory[_HEADER:].fill(0)  # no page faults later, in the middle of what is measured
        self._memory[0] = capacity

    @property
    def capacity(self) -> int:
        """The number of records that there is room for."""
        return int(self._memory[0])

    @property
    def address(self) -> int:
        """Where the compiled code finds the buffer."""
        return self._memory.ctypes.data

    @property
    def dropped(self) -> int:
        """The number of records that found no room."""
        return max(0, int(self._memory[1]) - self.capacity)

    def __len__(self) -> int:
        return min(int(self._memory[1]), self.capacity)

    def clear(self) -> None:
        """Forget all records; not while a region is running."""
        self._memory[1] = 0

    def records(self) -> np.ndarray:
        """Return a copy of the records, ordered by start (structured, see ``dtype``)."""
        end = _HEADER + len(_FIELDS) * len(self)
        records = self._memory[_HEADER:end].copy().view(self.dtype)
        return records[np.argsort(records["start_ns"], kind="stable")]
