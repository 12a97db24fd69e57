"""What the machine can do at best: multiply matrices, and read memory."""

from __future__ import annotations

from typing import Any

from gpt2lib.perf.machine import MatrixProduct, Streams


class Machine:
    """The two ceilings, measured with as many threads as the contenders have."""

    def set_up(self, threads: int, size: int, megabytes: int) -> dict[str, Any]:
        """Make the operands, and touch them."""
        self.product = MatrixProduct(threads, size)
        self.streams = Streams(threads, megabytes << 20)
        return {"sgemm": f"{size}^3", "read": f"{megabytes} MiB"}

    def sgemm(self, count: int) -> dict[str, Any]:
        """Return the seconds of some products of NumPy's BLAS, and the operations of one."""
        self.product.seconds("blas")
        seconds = [self.product.seconds("blas") for _ in range(count)]
        return {"seconds": seconds, "flops": 2 * len(self.product.a) ** 3}

    def read_memory(self, count: int) -> dict[str, Any]:
        """Return the seconds of some passes over the array, and the bytes of one.

        Of the two ways of reading the faster one counts: what is asked for is a ceiling.
        """
        self.streams.seconds("read_one")
        ways = [[self.streams.seconds(way) for _ in range(count)] for way in Streams.READING]
        return {"seconds": min(ways, key=min), "bytes": self.streams.bytes}
