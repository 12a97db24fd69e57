"""Matrix products from compiled kernels: BLAS's gemm, called by address.

SciPy publishes the addresses of its BLAS for compiled code (``scipy.linalg.cython_blas``). A kernel
is handed the address as an argument, ``gemm``: so its machine code can be kept on disk, and any
function with gemm's interface can take BLAS's place (see ``kernels/matmul``).
"""

from __future__ import annotations

import functools

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from gpt2lib.kernels._compile import part


@functools.cache
def blas_gemm(real: str) -> int:
    """Return the address of BLAS's sgemm ("float32") or dgemm ("float64")."""
    from numba.extending import get_cython_function_address

    name = {"float32": "sgemm", "float64": "dgemm"}[real]
    return get_cython_function_address("scipy.linalg.cython_blas", name)


@intrinsic
def _call_gemm(typingctx, gemm, trans_a, trans_b, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc):
    """Call ``gemm`` as Fortran does: every argument by reference, columns contiguous."""
    real = alpha
    i64 = types.int64
    signature = types.void(i64, i64, i64, i64, i64, i64, real, i64, i64, i64, i64, real, i64, i64)
    kinds = "ttiiirpipirpi"  # trans, trans, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc

    def codegen(context, builder, signature, args):
        real_type = context.get_value_type(real)
        widths = {"t": ir.IntType(8), "i": ir.IntType(32)}
        passed = []
        for kind, value in zip(kinds, args[1:], strict=True):
            if kind == "p":
                passed.append(builder.inttoptr(value, real_type.as_pointer()))
                continue
            if kind != "r":
                value = builder.trunc(value, widths[kind])
            slot = cgutils.alloca_once(builder, value.type)
            builder.store(value, slot)
            passed.append(slot)
        function = ir.FunctionType(ir.VoidType(), [p.type for p in passed])
        builder.call(builder.inttoptr(args[0], function.as_pointer()), passed)
        return context.get_dummy_value()

    return signature, codegen


@part
def _layout(rows, columns, row_stride, column_stride, item):
    """Say how a view lies in memory: its leading dimension, and whether rows are contiguous."""
    if column_stride == item or (columns == 1 and row_stride != item):
        return max(row_stride // item, columns, 1), True
    return max(column_stride // item, rows, 1), False


@part
def matmul(gemm, a, b, out, alpha, beta):
    """Compute out = alpha * a @ b + beta * out, for use in kernels.

    a (M, K), b (K, N): arrays or views in which rows or columns are contiguous (``x[:, lo:hi]``,
    ``w.T``); out (M, N): rows contiguous. With beta = 0, ``out`` is not read.

    gemm thinks in columns: a row-major (M, N) is its (N, M), so it is asked for out.T = b.T @ a.T.
    """
    m, n = out.shape
    k = a.shape[1]
    if m == 0 or n == 0:
        return
    lda, rows_a = _layout(m, k, a.strides[0], a.strides[1], a.itemsize)
    ldb, rows_b = _layout(k, n, b.strides[0], b.strides[1], b.itemsize)
    ldc = max(out.strides[0] // out.itemsize, n)
    _call_gemm(  # type: ignore[call-arg]
        gemm,
        78 if rows_b else 84,  # "N" or "T"
        78 if rows_a else 84,
        n,
        m,
        k,
        out.dtype.type(alpha),
        b.ctypes.data,
        ldb,
        a.ctypes.data,
        lda,
        out.dtype.type(beta),
        out.ctypes.data,
        ldc,
    )
