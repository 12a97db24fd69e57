"""A counter of chunks, and a way to run a script in a fresh process."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from .kernels import Counter

_ROOT = Path(__file__).parents[2]
_PREAMBLE = """
import os, signal, sys, threading, time
from gpt2lib import runtimes
from tests.runtimes.kernels import Counter, count, exactly_once, slow, work
"""


@pytest.fixture
def counter():
    return Counter()


def run_script(body, *, timeout=90, env=None, prefix=(), check=True):
    """Run a script in a fresh interpreter; return the finished process."""
    environment = {**os.environ, **(env or {})}
    done = subprocess.run(
        [*prefix, sys.executable, "-c", _PREAMBLE + textwrap.dedent(body)],
        capture_output=True,
        text=True,
        timeout=timeout,
        cwd=_ROOT,
        env={key: value for key, value in environment.items() if value is not None},
    )
    if check:
        assert done.returncode == 0, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done
