"""Who multiplies matrices: BLAS, or one of the rungs of the ladder that leads up to it.

Every rung is a native function with the interface of BLAS's gemm, so kernels call any of them.
"""

from __future__ import annotations

from gpt2lib.kernels._blas import blas_gemm

RUNGS = ("naive", "blocked", "micro", "blas")


def check(name: str) -> None:
    """Refuse a rung that does not exist."""
    if name not in RUNGS:
        raise ValueError(f"there is no matmul {name!r}; there are {', '.join(RUNGS)}.")


def address(name: str, real: str) -> int:
    """Return the address of a rung's gemm for "float32" or "float64"."""
    if name == "blas":
        return blas_gemm(real)
    raise NotImplementedError(name)
