"""The backends that every test of the model runs on: NumPy, and the compiled kernels if there."""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from gpt2lib.backend import load_backend
from gpt2lib.check import one_blas_thread
from gpt2lib.config import GPT2Config
from gpt2lib.model import GPT2
from gpt2lib.parameters import Parameters


def _kernels_exist() -> bool:
    if importlib.util.find_spec("gpt2lib.kernels") is None:
        return False
    from gpt2lib import kernels

    return hasattr(kernels, "load")


BACKENDS = [
    "numpy",
    pytest.param(
        "numba",
        marks=pytest.mark.skipif(not _kernels_exist(), reason="gpt2lib.kernels.load is not there"),
    ),
]

# No two of these numbers are equal, nor is one a multiple of another where the other would do:
# an axis taken for another then gives another shape or another number.
SMALL = GPT2Config(vocab_size=41, context=7, layers=3, heads=3, channels=12)


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """Keep NumPy's BLAS on one thread, in every test module that imports this."""
    with one_blas_thread():
        yield


@functools.cache
def operations(backend: str) -> Any:
    """Return a backend's operations, compiled once for all tests."""
    return load_backend(backend, threads=2) if backend == "numba" else load_backend(backend)


def random_parameters(
    config: GPT2Config, seed: int = 0, dtype: Any = np.float32, std: float = 0.3
) -> Parameters:
    """Return parameters far from GPT-2's start: large, with random biases and gains."""
    rng = np.random.default_rng(seed)
    parameters = Parameters(config, dtype)
    for name, view in parameters.items():
        gain = 1.0 if name.endswith("weight") and view.ndim == 1 else 0.0
        view[...] = gain + std * rng.standard_normal(view.shape)
    return parameters


def random_model(
    backend: str, config: GPT2Config = SMALL, *, seed: int = 0, dtype: Any = np.float32
) -> GPT2:
    """Return a model with random parameters on a backend."""
    model = GPT2(config, parameters=random_parameters(config, seed, dtype))
    model.ops = operations(backend)
    return model


def random_ids(config: GPT2Config, batch: int, seq: int, seed: int = 0) -> tuple[Any, Any]:
    """Return ids and targets (B, T); every other token is unused as input or as target."""
    rng = np.random.default_rng(seed)
    ids = rng.integers(0, config.vocab_size * 2 // 3, (batch, seq))
    targets = rng.integers(config.vocab_size // 3, config.vocab_size, (batch, seq))
    return ids, targets
