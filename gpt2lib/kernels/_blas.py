"""Matrix products from compiled kernels: BLAS's gemm, called by address.

SciPy publishes the addresses of its BLAS for compiled code (``scipy.linalg.cython_blas``). A kernel
is handed the address as an argument, ``gemm``: so its machine code can be kept on disk, and any
function with gemm's interface can take BLAS's place (see ``kernels/matmul``).
"""

from __future__ import annotations

import functools

from llvmlite import ir
from numba.core import cgutils, types

from gpt2lib.kernels._compile import emitted

INT8, INT32 = ir.IntType(8), ir.IntType(32)


@functools.cache
def blas_gemm(real: str) -> int:
    """Return the address of BLAS's sgemm ("float32") or dgemm ("float64")."""
    from numba.extending import get_cython_function_address

    name = {"float32": "sgemm", "float64": "dgemm"}[real]
    return get_cython_function_address("scipy.linalg.cython_blas", name)


@emitted
def matmul(typingctx, gemm, a, b, out, alpha, beta):
    """Compute out = alpha * a @ b + beta * out, for use in kernels.

    ``gemm`` is the address of the function that does it. a (M, K), b (K, N): arrays or views in
    which rows or columns are contiguous (``x[:, lo:hi]``, ``w.T``); out (M, N): rows contiguous.
    With beta = 0, ``out`` is not read.

    gemm thinks in columns: a row-major (M, N) is its (N, M), so it is asked for out.T = b.T @ a.T.
    """
    signature = types.void(types.int64, a, b, out, out.dtype, out.dtype)
    return signature, _emit_matmul


def _emit_matmul(context, builder, signature, args):
    """Emit the call of gemm: as Fortran has it, every argument by reference."""
    gemm, alpha, beta = args[0], args[4], args[5]
    a, b, out = (
        context.make_array(signature.args[i])(context, builder, args[i]) for i in (1, 2, 3)
    )
    m, n = cgutils.unpack_tuple(builder, out.shape, 2)
    k = builder.extract_value(a.shape, 1)
    trans_a, lda = _layout(builder, a)
    trans_b, ldb = _layout(builder, b)
    ldc = _layout(builder, out)[1]
    not_empty = builder.and_(*(builder.icmp_signed(">", size, _int(0)) for size in (m, n)))
    with builder.if_then(not_empty):
        passed = [
            *(_by_reference(builder, letter) for letter in (trans_b, trans_a)),
            *(_by_reference(builder, builder.trunc(size, INT32)) for size in (n, m, k)),
            _by_reference(builder, alpha),
            b.data,
            _by_reference(builder, builder.trunc(ldb, INT32)),
            a.data,
            _by_reference(builder, builder.trunc(lda, INT32)),
            _by_reference(builder, beta),
            out.data,
            _by_reference(builder, builder.trunc(ldc, INT32)),
        ]
        function = ir.FunctionType(ir.VoidType(), [value.type for value in passed])
        builder.call(builder.inttoptr(gemm, function.as_pointer()), passed)
    return context.get_dummy_value()


def _int(value):
    return ir.Constant(ir.IntType(64), value)


def _by_reference(builder, value):
    slot = cgutils.alloca_once(builder, value.type)
    builder.store(value, slot)
    return slot


def _layout(builder, matrix):
    """Say how a matrix lies in memory: gemm's letter for it, and the distance of its lines.

    Where the columns of a row lie side by side it is "N" to gemm, whose matrix is the transposed
    one; else its rows must lie side by side, and it is "T". A matrix of one line may give that line
    any stride; gemm wants the distance to be no shorter than a line all the same.
    """
    rows, columns = cgutils.unpack_tuple(builder, matrix.shape, 2)
    row_step, column_step = (
        builder.sdiv(step, matrix.itemsize)
        for step in cgutils.unpack_tuple(builder, matrix.strides)
    )
    one = _int(1)
    single = builder.and_(
        builder.icmp_signed("==", columns, one), builder.icmp_signed("!=", row_step, one)
    )
    plain = builder.or_(builder.icmp_signed("==", column_step, one), single)
    letter = builder.select(plain, ir.Constant(INT8, ord("N")), ir.Constant(INT8, ord("T")))
    step = builder.select(plain, row_step, column_step)
    line = builder.select(plain, columns, rows)
    for least in (line, one):
        step = builder.select(builder.icmp_signed("<", step, least), least, step)
    return letter, step
