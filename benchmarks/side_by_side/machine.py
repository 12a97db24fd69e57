"""What the machine can do at best: multiply matrices, and read memory."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numba import njit


@njit(nogil=True, fastmath=True, error_model="numpy")
def read(x):
    """Add an array up: one stream through memory."""
    total = np.float32(0)
    for i in range(x.size):
        total += x[i]
    return total


@njit(nogil=True, fastmath=True, error_model="numpy")
def read_four(x):
    """Add an array up in four streams, which keeps more of a core's prefetchers busy."""
    quarter = x.size // 4
    a, b, c, d = x[:quarter], x[quarter : 2 * quarter], x[2 * quarter : 3 * quarter], x[-quarter:]
    total = np.float32(0)
    for i in range(quarter):
        total += (a[i] + b[i]) + (c[i] + d[i])
    return total


class Machine:
    """The two ceilings, measured with as many threads as the contenders have."""

    def set_up(self, threads: int, size: int, megabytes: int) -> dict[str, Any]:
        """Make the operands, and touch them."""
        rng = np.random.default_rng(0)
        self.threads = threads
        self.a, self.b = (rng.random((size, size), np.float32) for _ in range(2))
        self.product = self.a @ self.b
        self.memory = np.ones(megabytes << 18, np.float32)
        self.pool = ThreadPoolExecutor(threads)
        parts = np.array_split(self.memory, threads)
        self.parts = [part[: part.size // 4 * 4] for part in parts]
        for reader in (read, read_four):
            self._read(reader)
        return {"sgemm": f"{size}^3", "read": f"{megabytes} MiB"}

    def sgemm(self, count: int) -> dict[str, Any]:
        """Return the seconds of some products, and the operations of one."""
        np.matmul(self.a, self.b, out=self.product)
        seconds = []
        for _ in range(count):
            begin = time.perf_counter()
            np.matmul(self.a, self.b, out=self.product)
            seconds.append(time.perf_counter() - begin)
        return {"seconds": seconds, "flops": 2 * len(self.a) ** 3}

    def read_memory(self, count: int) -> dict[str, Any]:
        """Return the seconds of some passes over the array, and the bytes of one.

        Of the two ways of reading the faster one counts: what is asked for is a ceiling.
        """
        self._read(read)
        ways = {way.__name__: [self._read(way) for _ in range(count)] for way in (read, read_four)}
        seconds = min(ways.values(), key=min)
        return {"seconds": seconds, "bytes": sum(part.nbytes for part in self.parts)}

    def _read(self, reader: Any) -> float:
        begin = time.perf_counter()
        list(self.pool.map(reader, self.parts))
        return time.perf_counter() - begin
