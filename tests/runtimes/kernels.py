"""Small kernels of the tests' own. In a module, so that fresh processes find them compiled."""

from __future__ import annotations

import numpy as np
from numba import carray, cfunc, types

CELLS = 1 << 16
_KERNEL = types.void(types.int64, types.voidptr)


@cfunc(_KERNEL, cache=True)
def count(chunk, arguments):
    """Add one to the chunk's own cell: no two chunks share one, so no race can hide a mistake."""
    cells = carray(arguments, (CELLS,), np.int64)
    cells[chunk] += 1


@cfunc(_KERNEL, cache=True)
def work(chunk, arguments):
    """Count, after some 20 µs of arithmetic that the compiler cannot leave out."""
    cells = carray(arguments, (CELLS,), np.int64)
    x = chunk + 1
    for _ in range(20_000):
        x = x * 6364136223846793005 + 1442695040888963407
    cells[chunk] += 2 if x == 77 else 1


@cfunc(_KERNEL, cache=True)
def slow(chunk, arguments):
    """Count, after some 20 ms."""
    cells = carray(arguments, (CELLS,), np.int64)
    x = chunk + 1
    for _ in range(20_000_000):
        x = x * 6364136223846793005 + 1442695040888963407
    cells[chunk] += 2 if x == 77 else 1


class Counter:
    """A kernel with its argument block, and what the block holds after some regions."""

    def __init__(self, kernel=count):
        self.kernel = kernel
        self.cells = np.zeros(CELLS, np.int64)

    def run(self, runtime, chunks, **options):
        runtime.run(self.kernel.address, self.cells.ctypes.data, chunks, **options)

    def check(self, chunks, times):
        np.testing.assert_array_equal(self.cells[:chunks], times)
        np.testing.assert_array_equal(self.cells[chunks:], 0)


def exactly_once(runtime, chunks=(1, 2, 3, 7, 64, 1001), times=5):
    """Check that a runtime runs every chunk once, for several counts."""
    for number in chunks:
        counter = Counter()
        for _ in range(times):
            counter.run(runtime, number)
        counter.check(number, times)


def job(chunks):
    """Run a region in a process of a pool; return how many chunks were run."""
    from gpt2lib import runtimes

    counter = Counter()
    counter.run(runtimes.get("threads", 2), chunks)
    return int(counter.cells.sum())
