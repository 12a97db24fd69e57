"""Ctrl-C that waits for the end of a step."""

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
        self._old: Any = None
        self._active = False

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():
            self._old = signal.signal(signal.SIGINT, self._handle)
            self._active = True
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._active:
            signal.signal(signal.SIGINT, self._old)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if not self.asked:
            self.asked, self._first = True, now
            sys.stderr.write("\nstopping after this step (Ctrl-C again: at once)\n")
        elif now - self._first > _PATIENCE:
            raise KeyboardInterrupt("stopped at once; the last checkpoint is whole")
