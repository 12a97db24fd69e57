"""GPT-2's operations compiled: the names and signatures of :mod:`gpt2lib.ops`, on every core.

:func:`load` returns a *backend*: an object with one method for each operation, which the model
calls as it would call the NumPy ones. Three things work together, each ignorant of the next:

- a *kernel* is the body of an operation for one *chunk* of its output, a readable Python function
  compiled to a native one that holds no GIL (``_compile.py``);
- the operation (``layernorm.py``, ``linear.py``, ...) checks its arrays, decides by the problem's
  size where to cut, and names the kernel;
- a *runtime* (:mod:`gpt2lib.runtimes`) calls the native function once for each chunk, on as many
  threads as it has.
"""

from __future__ import annotations

import ctypes
import math
import threading
from typing import Any

import numpy as np

from gpt2lib.kernels import (
    adamw,
    attention,
    cross_entropy,
    embedding,
    gelu,
    head,
    head_mask,
    layernorm,
    linear,
    residual,
    softmax,
)
from gpt2lib.kernels import matmul as matmul_ladder
from gpt2lib.kernels._compile import REALS, Kernel, kernels

__all__ = ["Backend", "Kernel", "compile_all", "kernels", "load"]


class Backend:
    """The compiled operations on one runtime.

    Any number of Python threads may call it at once.

    Parameters
    ----------
    runtime
        What runs the chunks: see :mod:`gpt2lib.runtimes`.
    matmul
        The rung of the ladder that multiplies matrices: ``"blas"``, ``"micro"``, ``"blocked"`` or
        ``"naive"``.

    Attributes
    ----------
    runtime
        The runtime.
    matmul
        The name of the rung.
    """

    adamw_update = adamw.adamw_update
    attention_backward = attention.attention_backward
    attention_cached = attention.attention_cached
    attention_forward = attention.attention_forward
    cross_entropy_backward = cross_entropy.cross_entropy_backward
    cross_entropy_forward = cross_entropy.cross_entropy_forward
    embedding_backward = embedding.embedding_backward
    embedding_forward = embedding.embedding_forward
    gelu_backward = gelu.gelu_backward
    gelu_forward = gelu.gelu_forward
    head_backward = head.head_backward
    head_forward = head.head_forward
    head_mask_backward = head_mask.head_mask_backward
    head_mask_forward = head_mask.head_mask_forward
    layernorm_backward = layernorm.layernorm_backward
    layernorm_forward = layernorm.layernorm_forward
    linear_backward = linear.linear_backward
    linear_forward = linear.linear_forward
    linear_gelu_backward = linear.linear_gelu_backward
    linear_gelu_forward = linear.linear_gelu_forward
    residual_backward = residual.residual_backward
    residual_forward = residual.residual_forward
    softmax_backward = softmax.softmax_backward
    softmax_forward = softmax.softmax_forward
    squared_norm = adamw.squared_norm
    zero = adamw.zero

    def __init__(self, runtime: Any, matmul: str = "blas") -> None:
        self.runtime = runtime
        self.matmul = matmul
        matmul_ladder.check(matmul)
        self._own = threading.local()

    def __repr__(self) -> str:
        return f"<kernels on {self.runtime!r}, matmul by {self.matmul}>"

    def run(self, kernel: Kernel, extent: int, size: int, *arguments: Any) -> None:
        """Run a kernel over [0, extent) in chunks of ``size``.

        Parameters
        ----------
        kernel
            What to run.
        extent, size
            How much work there is, and how much of it makes a chunk. The caller derives both from
            the problem alone, so that results do not depend on who runs the chunks.
        *arguments
            The kernel's, after ``lo`` and ``hi``: arrays of the kinds that it names, and numbers.
        """
        chunks = -(-extent // size)
        function = kernel.address(arguments)
        block = kernel.pack(extent, size, arguments)
        with kernel.guard():
            self.runtime.run(function, ctypes.addressof(block), chunks, region=kernel.number)

    def gemm(self, dtype: np.dtype[Any]) -> int:
        """Return the address of the matrix product that kernels are to call."""
        return matmul_ladder.address(self.matmul, REALS[dtype.char])

    def scratch(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
        """Return memory for partial results: kept for the calling thread's next call, never shared.

        Fresh memory costs a page fault every 4 KiB, more than most kernels do with it.
        """
        size = math.prod(shape) * dtype.itemsize
        memory = getattr(self._own, "memory", None)
        if memory is None or memory.size < size:
            memory = self._own.memory = np.empty(size, np.uint8)
        return memory[:size].view(dtype).reshape(shape)


def load(runtime: Any = "threads", threads: int | None = None, matmul: str = "blas") -> Backend:
    """Return the compiled backend.

    Parameters
    ----------
    runtime
        The name of a runtime (``gpt2lib.runtimes.NAMES``), or a runtime.
    threads
        How many threads; None for as many as this process may use.
    matmul
        What multiplies matrices: ``"blas"`` (fast), ``"micro"`` (our own, close to it),
        ``"blocked"`` or ``"naive"`` (to see how far the first steps of the ladder get).

    Returns
    -------
    Backend
        An object with the operations of :mod:`gpt2lib.ops` as methods.

    Raises
    ------
    ValueError
        For a name that does not exist, or a number of threads that cannot be.
    RuntimeError
        Where the runtime cannot be had in this process.
    """
    from gpt2lib import runtimes

    if isinstance(runtime, str):
        runtime = runtimes.get(runtime, threads)
    elif threads is not None and threads != runtime.threads:
        raise ValueError(f"{runtime!r} has {runtime.threads} threads, not {threads}.")
    return Backend(runtime, matmul)


def compile_all(*reals: str) -> None:
    """Compile every kernel now, rather than each when it is first used.

    Parameters
    ----------
    *reals
        ``"float32"`` (the default) and/or ``"float64"``.
    """
    for real in reals or ("float32",):
        for kernel in kernels().values():
            kernel.entry(real)
