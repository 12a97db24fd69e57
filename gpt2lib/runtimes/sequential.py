"""One thread, one loop: what the others are compared with."""

from __future__ import annotations

from typing import Any

from gpt2lib.runtimes import native
from gpt2lib.runtimes.base import Availability, Runtime
from gpt2lib.runtimes.libraries import c_library


class Sequential(Runtime):
    """Run the chunks one after the other, on the thread that asks."""

    name = "sequential"

    def __init__(self, threads: int | None = None) -> None:
        super().__init__(1 if threads is None else threads)
        if self.threads != 1:
            raise ValueError(
                f"runtime 'sequential' has one thread, not {self.threads}; "
                "runtime 'threads' has as many as you like"
            )

    def _run(self, function: int, arguments: int, chunks: int, trace: int, region: int) -> None:
        native.run_sequentially(function, arguments, chunks, trace, region)

    @classmethod
    def availability(cls) -> Availability:
        """Say that it is there."""
        return Availability(
            True, "one thread and a compiled loop: always there", "", c_library()["library"]
        )

    def describe(self) -> dict[str, Any]:
        """Say what runs here; the only library is the C library under Python."""
        return {**super().describe(), **c_library()}
