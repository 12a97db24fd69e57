"""Who computes the operations: NumPy, or the compiled kernels."""

from __future__ import annotations

from typing import Any


def load_backend(
    backend: str = "numpy",
    *,
    runtime: str | None = None,
    threads: int | None = None,
    matmul: str | None = None,
) -> Any:
    """Return the operations: :mod:`gpt2lib.ops`, or the compiled ones with the same names.

    Parameters
    ----------
    backend
        ``"numpy"`` or ``"numba"``.
    runtime, threads, matmul
        As in :class:`GPT2`; they go with ``"numba"`` only.

    Raises
    ------
    ValueError
        For another name, or a runtime, threads or matmul with the NumPy backend.
    """
    if backend == "numba":
        from gpt2lib import kernels

        return kernels.load(runtime or "threads", threads=threads, matmul=matmul or "blas")
    if backend != "numpy":
        raise ValueError(f"the backend must be 'numpy' or 'numba', got {backend!r}.")
    given = [n for n, v in (("runtime", runtime), ("threads", threads), ("matmul", matmul)) if v]
    if given:
        raise ValueError(
            f"{' and '.join(given)} can be chosen for the backend numba only; this one is numpy."
        )
    from gpt2lib import ops

    return ops
