"""The ladder of matrix products: from three loops to the speed of BLAS, one file a rung.

==============  ===================================================================
rung            what it adds
==============  ===================================================================
``naive``       three loops: the definition
``blocked``     tiles that fit the cache, and an inner loop that becomes vector code
``micro``       packed panels, and a kernel that keeps its tile in registers
``blas``        SciPy's BLAS
==============  ===================================================================

Every rung is a native function with the interface of BLAS's gemm. So the kernels call any of them
(``load(..., matmul="micro")``), and :func:`multiply` sets one beside the other.
"""

from __future__ import annotations

import ctypes
import threading
from typing import Any

import numpy as np
from numba import carray
from numba.core import types

from gpt2lib.kernels._blas import blas_gemm, matmul
from gpt2lib.kernels._check import real, result, same
from gpt2lib.kernels._compile import Int, Real2, exact_part, kernel, native, part
from gpt2lib.kernels.matmul.blocked import matmul_blocked
from gpt2lib.kernels.matmul.micro import matmul_micro
from gpt2lib.kernels.matmul.naive import matmul_naive

Array = np.ndarray[Any, Any]

RUNGS = ("naive", "blocked", "micro", "blas")
_BODIES = {
    "naive": exact_part(matmul_naive),
    "blocked": part(matmul_blocked),
    "micro": part(matmul_micro),
}
_ENTRIES: dict[tuple[str, str], Any] = {}
_LOCK = threading.Lock()

# gemm thinks in columns: its (m, n, k), A, B, C are our out.T = b.T @ a.T. "N" is 78.
_ENTRY = '''"""gemm by matmul_{name} for {real}; written by gpt2lib.kernels.matmul."""


def entry(trans_b, trans_a, columns, rows, inner, alpha, b, ldb, a, lda, beta, out, ldo):
    n, m, k = number(columns), number(rows), number(inner)
    plain_a = carray(trans_a, 1)[0] == 78
    plain_b = carray(trans_b, 1)[0] == 78
    wide_a, wide_b, wide_out = number(lda), number(ldb), number(ldo)
    body(
        strided(a, m, k, wide_a if plain_a else 1, 1 if plain_a else wide_a),
        strided(b, k, n, wide_b if plain_b else 1, 1 if plain_b else wide_b),
        strided(out, m, n, wide_out, 1),
        carray(alpha, 1)[0],
        carray(beta, 1)[0],
    )
'''


@part
def _number(pointer):
    """Read an int that Fortran passes by reference."""
    return np.int64(carray(pointer, 1)[0])


@part
def _strided(pointer, rows, columns, row_step, column_step):
    """Look at memory as a matrix with any steps, counted in numbers."""
    extent = (rows - 1) * row_step + (columns - 1) * column_step + 1
    flat = carray(pointer, (max(extent, 0),))
    item = flat.itemsize
    shape, steps = (rows, columns), (row_step * item, column_step * item)
    return np.lib.stride_tricks.as_strided(flat, shape, steps)


def check(name: str) -> None:
    """Refuse a rung that does not exist."""
    if name not in RUNGS:
        raise ValueError(f"there is no matmul {name!r}; there are {', '.join(RUNGS)}.")


def address(name: str, real: str) -> int:
    """Return the address of a rung's gemm for "float32" or "float64"; compile it if need be."""
    if name == "blas":
        return blas_gemm(real)
    entry = _ENTRIES.get((name, real))
    if entry is None:
        with _LOCK:
            entry = _ENTRIES.get((name, real)) or _compile(name, real)
            _ENTRIES[name, real] = entry
    return entry.address


def _compile(name: str, real: str) -> Any:
    byte, int32 = types.CPointer(types.int8), types.CPointer(types.int32)
    number = types.CPointer(getattr(types, real))
    signature = types.void(
        byte, byte, int32, int32, int32, number, number, int32, number, int32, number, number, int32
    )
    text = _ENTRY.format(name=name, real=real)
    scope = {"body": _BODIES[name], "number": _number, "strided": _strided}
    return native(f"matmul_{name}", real, text, signature, **scope)


@kernel
def multiply_whole(lo: int, hi: int, gemm: Int, a: Real2, b: Real2, out: Real2) -> None:
    """Multiply two matrices in one chunk."""
    matmul(gemm, a, b, out, 1, 0)


def multiply(a: Array, b: Array, *, rung: str = "blas", out: Array | None = None) -> Array:
    """Multiply two matrices on one thread, by one rung of the ladder.

    Parameters
    ----------
    a
        (M, K), float32 or float64.
    b
        (K, N), of the same type.
    rung
        ``"naive"``, ``"blocked"``, ``"micro"`` or ``"blas"``.
    out
        (M, N) buffer for the result.

    Returns
    -------
    ndarray
        (M, N).

    Raises
    ------
    ValueError
        For a rung that does not exist, or matrices that do not fit each other.
    """
    check(rung)
    a = real(a, "a")
    b = same(b, "b", (a.shape[1], b.shape[-1]), a.dtype)
    out = result(out, (a.shape[0], b.shape[1]), a.dtype)
    arguments = address(rung, a.dtype.name), a, b, out
    function = multiply_whole.address(arguments)
    block = multiply_whole.pack(1, 1, arguments)
    call = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_void_p)(function)
    with multiply_whole.guard():
        call(0, ctypes.addressof(block))
    return out
