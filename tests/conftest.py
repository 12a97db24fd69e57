"""What all tests share."""

from __future__ import annotations

import os
from pathlib import Path

os.environ.setdefault("MPLBACKEND", "Agg")  # before matplotlib is imported: no test needs a window
if "PYTEST_XDIST_WORKER" in os.environ:
    # A worker a core already: BLAS threads on top would only wait for each other.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from hypothesis import HealthCheck, settings

ROOT = Path(__file__).resolve().parents[1]

# A busy machine is no reason to fail: examples have no deadline.
settings.register_profile(
    "gpt2lib", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.load_profile("gpt2lib")
