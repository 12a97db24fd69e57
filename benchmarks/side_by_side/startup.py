"""How long the library takes to be there: its import, and the first use of its kernels."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.side_by_side.contender import ROOT, ContenderError

IMPORT = """
import json, time
a = time.perf_counter(); import numpy
b = time.perf_counter(); import gpt2lib
c = time.perf_counter(); print(json.dumps([b - a, c - b]))
"""
# Everything that a training run and a generation compile.
FIRST_USE = """
import json, time
a = time.perf_counter()
import numpy as np
b = time.perf_counter()
from gpt2lib import GPT2, GPT2Config, AdamW
model = GPT2(GPT2Config.preset("tiny"), backend="numba", seed=0, **json.loads({options!r}))
ids = np.arange(64).reshape(2, 32)
model.loss(ids, ids); model.backward()
AdamW(model.parameters, ops=model.ops).step(model.gradients)
c = time.perf_counter()
cache = model.new_cache()
model.decode([1, 2, 3], cache); model.decode([4], cache)
d = time.perf_counter()
print(json.dumps([b - a, c - b, d - c]))
"""


def import_times(repeats: int, timeout: float) -> dict[str, list[float]]:
    """Return the seconds of ``import numpy``, and of ``import gpt2lib`` after it."""
    pairs = [_run(IMPORT, {}, timeout) for _ in range(repeats + 1)][1:]
    return {"numpy": [pair[0] for pair in pairs], "gpt2lib": [pair[1] for pair in pairs]}


def first_use(repeats: int, options: dict[str, Any], timeout: float) -> dict[str, list[float]]:
    """Return the seconds from importing the library to the end of a step and two decodings.

    Cold: nothing has been compiled, in a cache of its own. Warm: the same again, with that cache.
    """
    text = FIRST_USE.format(options=json.dumps(options))
    found: dict[str, list[float]] = {"cold": [], "warm": []}
    with tempfile.TemporaryDirectory() as folder:
        caches = {
            "GPT2LIB_CACHE_DIR": str(Path(folder) / "kernels"),
            "NUMBA_CACHE_DIR": str(Path(folder) / "numba"),
        }
        for repeat in range(repeats + 1):
            _, training, decoding = _run(text, caches, timeout)
            found["warm" if repeat else "cold"].append(training + decoding)
    return found


def _run(text: str, environment: dict[str, str], timeout: float) -> Any:
    """Run a script in a fresh interpreter; return what it prints as JSON."""
    try:
        done = subprocess.run(
            [sys.executable, "-c", text],
            capture_output=True,
            text=True,
            timeout=timeout,
            cwd=ROOT,
            env={**os.environ, **environment},
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise ContenderError(f"no answer in {timeout:.0f} s") from None
    if done.returncode:
        raise ContenderError((done.stderr.strip().splitlines() or ["no message"])[-1])
    return json.loads(done.stdout.splitlines()[-1])
