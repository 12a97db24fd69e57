"""Ctrl-C, or SIGTERM, that waits for the end of a step."""

from __future__ import annotations

import signal
import sys
import threading
import time
from types import FrameType, TracebackType
from typing import Any

_PATIENCE = 1.0  # seconds: a Ctrl-C this long after the first one means now


class Interrupts:
    """Notes Ctrl-C instead of raising, so that a step or a save is never cut in two.

    SIGTERM, which a machine sends that is about to stop, means the same.

    A key that bounces, or a shell and a terminal that both send the signal, give two within a
    moment: they count as one. Whoever asks again after a second gets Python's own
    ``KeyboardInterrupt`` at once; the last checkpoint is whole all the same.

    Outside the main thread Python lets nobody handle signals; there this does nothing.

    Attributes
    ----------
    asked
        Whether Ctrl-C came.
    """

    def __init__(self) -> None:
        self.asked = False
        self._first = 0.0
        self._old: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._old[number] = signal.signal(number, self._handle)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in self._old.items():
            signal.signal(number, self._late if self.asked else handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if not self.asked:
            self.asked, self._first = True, now
            sys.stderr.write("\nstopping after this step (Ctrl-C again: at once)\n")
        elif now - self._first > _PATIENCE:
            raise KeyboardInterrupt("stopped at once; the last checkpoint is whole")

    def _late(self, number: int, frame: FrameType | None) -> None:
        """Take a signal after the end: one that belongs to the first is dropped, as inside."""
        if time.monotonic() - self._first > _PATIENCE:
            signal.signal(number, self._old[signal.Signals(number)])
            signal.raise_signal(number)
