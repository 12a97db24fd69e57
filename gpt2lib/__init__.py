"""GPT-2 in Python: the model, its gradients, its training and its threads, to be read and run.

``import gpt2lib`` loads NumPy and nothing heavier. Everything below loads when it is first used.

==================  =============================================================
name                what it is
==================  =============================================================
``GPT2Config``      the numbers that fix a model's shape
``GPT2``            the model: forward, loss, backward
``Parameters``      one flat buffer, many named views
``load``            a trained model together with its tokenizer
``generate``        sampling, token by token
``AdamW``           the optimizer
==================  =============================================================
"""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0"

# Public name -> the module that defines it; imported on first use (PEP 562).
_LAZY = {
    "GPT2Config": "gpt2lib.config",
    "GPT2": "gpt2lib.model",
    "Parameters": "gpt2lib.parameters",
    "load": "gpt2lib.pretrained",
    "Pretrained": "gpt2lib.pretrained",
    "generate": "gpt2lib.generate",
    "AdamW": "gpt2lib.optimizer",
}
# Sub-packages and modules that ``gpt2lib.x`` reaches without an import statement of its own.
_MODULES = {
    "check",
    "config",
    "data",
    "exercises",
    "figures",
    "kernels",
    "model",
    "ops",
    "optimizer",
    "parameters",
    "perf",
    "pretrained",
    "runtimes",
    "tokenizer",
    "train",
    "weights",
    "widgets",
}

__all__ = ["__version__", *sorted(_LAZY)]


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        value = getattr(importlib.import_module(_LAZY[name]), name)
        globals()[name] = value  # the next access does not come here
        return value
    if name in _MODULES:
        return importlib.import_module(f"gpt2lib.{name}")
    raise AttributeError(f"module 'gpt2lib' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY, *_MODULES})
