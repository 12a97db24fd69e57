"""What all tests share."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("MPLBACKEND", "Agg")  # before matplotlib is imported: no test needs a window
if "PYTEST_XDIST_WORKER" in os.environ:
    # A worker a core already: BLAS threads on top would only wait for each other.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import pytest
from hypothesis import HealthCheck, settings

# Started in the background (`pytest &`, some CI), a shell has Ctrl-C ignored, and programs that the
# tests start would inherit that. A handler of our own is not inherited: they begin afresh.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    with contextlib.suppress(ValueError):  # not in the main thread
        signal.signal(signal.SIGINT, signal.default_int_handler)

ROOT = Path(__file__).resolve().parents[1]
CHROMIUM_FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]

# A busy machine is no reason to fail: examples have no deadline.
settings.register_profile(
    "gpt2lib", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.load_profile("gpt2lib")


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    """Return Debian's Chromium through playwright; a missing one fails only in CI."""
    names = ("chromium", "chromium-browser", "google-chrome")
    found = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, names)), None)
    if found is None:
        if os.environ.get("CI") == "true":
            pytest.fail("CI needs Chromium: .ci/run installs it")
        pytest.skip("no Chromium: install it, or set CHROMIUM to its path")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=found, args=CHROMIUM_FLAGS)
        yield browser
        browser.close()
