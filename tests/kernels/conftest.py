from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from gpt2lib import kernels

# Nothing here takes long but the first use of a kernel, which compiles it.
_PATIENCE = pytest.mark.timeout(600)
CHUNK = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_void_p)


class Shuffled:
    """A runtime of ten lines: one thread, the chunks in an order drawn at random."""

    name, threads = "shuffled", 1

    def __init__(self, seed: int | None) -> None:
        self.rng = None if seed is None else np.random.default_rng(seed)

    def run(self, function: int, arguments: int, chunks: int, *, region: int = 0) -> None:
        call = CHUNK(function)
        order = range(chunks) if self.rng is None else self.rng.permutation(chunks)
        for chunk in order:
            call(int(chunk), arguments)


@pytest.fixture(scope="session")
def backend() -> Any:
    """The compiled operations, every chunk in order, on one thread."""
    return kernels.load(Shuffled(None))


@pytest.fixture
def shuffled() -> Callable[[int], Any]:
    """The compiled operations with chunks in another order for every seed."""
    return lambda seed: kernels.load(Shuffled(seed))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give the tests of this folder the time to compile."""
    for item in items:
        if "tests/kernels" in item.path.as_posix():
            item.add_marker(_PATIENCE)
