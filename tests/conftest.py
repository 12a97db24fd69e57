"""What all tests share."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

os.environ.setdefault("MPLBACKEND", "Agg")  # before matplotlib is imported: no test needs a window
if "PYTEST_XDIST_WORKER" in os.environ:
    # A worker a core already: BLAS threads on top would only wait for each other.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from hypothesis import HealthCheck, settings

# Started in the background (`pytest &`, some CI), a shell has Ctrl-C ignored, and programs that the
# tests start would inherit that. A handler of our own is not inherited: they begin afresh.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    with contextlib.suppress(ValueError):  # not in the main thread
        signal.signal(signal.SIGINT, signal.default_int_handler)

ROOT = Path(__file__).resolve().parents[1]

# A busy machine is no reason to fail: examples have no deadline.
settings.register_profile(
    "gpt2lib", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.load_profile("gpt2lib")
