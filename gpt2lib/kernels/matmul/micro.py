"""The third rung: packed panels, and a kernel that keeps its tile of the output in registers.

A core that can do two vector FMAs a cycle can load two vectors and store one in that time. Loops
that load and store ``out`` for each multiplication wait for memory even when all of it is in the
first-level cache. So a small tile of ``out`` (6 rows x 2 vectors) stays in 12 registers while the
products of a whole stretch of the inner dimension are added to it; and a and b are copied once
into *panels*, in the order in which that kernel reads them.

Goto and van de Geijn (2008), sections 4 and 5; Van Zee and van de Geijn (2015) for the loops.
"""

from __future__ import annotations

import llvmlite.binding
import numpy as np
from llvmlite import ir
from numba.core import cgutils, types

from gpt2lib.kernels._compile import contiguous, emitted, part

ROWS = 6  # of the register tile: 6 x 2 accumulators, 2 vectors of b and 1 of a make 15 of 16
INNER = 384  # numbers of a panel: ROWS and two vectors of them stay in the first-level cache
BLOCK_ROWS = 20 * ROWS  # rows of a packed at once: 180 KiB of float32, in the second-level cache
BLOCK_COLUMNS = 1024  # columns of b packed at once: 1.5 MiB, in the third-level cache
UNROLL = 4


def _vector_bytes() -> int:
    """Return the width of this processor's vector registers."""
    try:
        features = llvmlite.binding.get_host_cpu_features()
    except RuntimeError:  # LLVM cannot say: what every x86-64 and ARM64 has
        return 16
    return 64 if features.get("avx512f") else 32 if features.get("avx") else 16


VECTOR_BYTES = _vector_bytes()


@emitted
def _multiply_panels(typingctx, a, b, inner, out, stride, accumulate):
    """Add (or, if not ``accumulate``, write) a panel of a times a panel of b to a tile of out.

    a: address of (inner, ROWS); b: of (inner, two vectors), both contiguous; out: of the tile's
    first number, its rows ``stride`` numbers apart. ``inner`` is a multiple of UNROLL. What it is
    made of stands in ``_emit``.
    """
    integer = types.int64
    signature = types.void(a, b, integer, out, integer, types.boolean)

    def codegen(context, builder, signature, args):
        real = context.get_value_type(signature.args[0].dtype)
        lanes = VECTOR_BYTES // (4 if isinstance(real, ir.FloatType) else 8)
        a, b, out = (context.make_array(signature.args[i])(context, builder, args[i]).data
                     for i in (0, 1, 3))  # fmt: skip
        _emit(builder, ir.VectorType(real, lanes), a, b, args[2], out, args[4], args[5])
        return context.get_dummy_value()

    return signature, codegen


def _emit(builder, vector, a, b, inner, out, stride, accumulate):
    """Emit the kernel: a loop over the inner dimension with 12 sums in registers."""
    i64, zero = ir.IntType(64), ir.Constant(vector, None)
    lanes = vector.count
    suffix = "f32" if isinstance(vector.element, ir.FloatType) else "f64"
    kind = ir.FunctionType(vector, [vector] * 3)  # one instruction where the processor has FMA
    fma = cgutils.get_or_insert_function(builder.module, kind, f"llvm.fmuladd.v{lanes}{suffix}")
    pair = range(2)
    before = builder.block
    loop = builder.append_basic_block("inner")
    done = builder.append_basic_block("done")
    builder.branch(loop)
    builder.position_at_end(loop)
    k = builder.phi(i64)
    sums = [builder.phi(vector) for _ in range(ROWS * 2)]
    for value, start in ((k, ir.Constant(i64, 0)), *((s, zero) for s in sums)):
        value.add_incoming(start, before)
    running = list(sums)
    for step in range(UNROLL):
        here = builder.add(k, ir.Constant(i64, step))
        at_b = builder.gep(b, [builder.mul(here, ir.Constant(i64, 2 * lanes))])
        at_a = builder.gep(a, [builder.mul(here, ir.Constant(i64, ROWS))])
        columns = [_load(builder, _offset(builder, at_b, p * lanes), vector) for p in pair]
        for r in range(ROWS):
            factor = _splat(builder, builder.load(_offset(builder, at_a, r)), vector)
            for p in pair:
                running[2 * r + p] = builder.call(fma, [factor, columns[p], running[2 * r + p]])
    following = builder.add(k, ir.Constant(i64, UNROLL))
    for value, new in ((k, following), *zip(sums, running, strict=True)):
        value.add_incoming(new, loop)
    builder.cbranch(builder.icmp_signed("<", following, inner), loop, done)
    builder.position_at_end(done)
    for r in range(ROWS):
        row = builder.gep(out, [builder.mul(stride, ir.Constant(i64, r))])
        for p in pair:
            place = _offset(builder, row, p * lanes)
            with builder.if_else(accumulate) as (then, otherwise):
                with then:
                    total = builder.fadd(_load(builder, place, vector), running[2 * r + p])
                    _store(builder, total, place, vector)
                with otherwise:
                    _store(builder, running[2 * r + p], place, vector)


def _offset(builder, address, count):
    return builder.gep(address, [ir.Constant(ir.IntType(64), count)])


def _load(builder, address, vector):
    return builder.load(builder.bitcast(address, vector.as_pointer()), align=4)


def _store(builder, value, address, vector):
    builder.store(value, builder.bitcast(address, vector.as_pointer()), align=4)


def _splat(builder, scalar, vector):
    """Return a vector whose every lane is ``scalar``."""
    i32 = ir.IntType(32)
    one = builder.insert_element(ir.Constant(vector, ir.Undefined), scalar, ir.Constant(i32, 0))
    mask = ir.Constant(ir.VectorType(i32, vector.count), [0] * vector.count)
    return builder.shuffle_vector(one, ir.Constant(vector, ir.Undefined), mask)


@part
def _pack_rows(a, alpha, panels):
    """Copy alpha * a (M, K) into panels (M / ROWS, K, ROWS); rows and numbers beyond a are 0."""
    M, K = a.shape
    for panel in range(panels.shape[0]):
        target = panels[panel]
        for r in range(ROWS):
            i = panel * ROWS + r
            if i < M:
                row = a[i]
                for k in range(K):
                    target[k, r] = alpha * row[k]
                target[K:, r] = 0
            else:
                target[:, r] = 0


@part
def _pack_columns(b, panels):
    """Copy b (K, N) into panels (N / width, K, width); what lies beyond b is 0."""
    K, N = b.shape
    width = panels.shape[2]
    for panel in range(panels.shape[0]):
        target, first = panels[panel], panel * width
        count = min(width, N - first)
        if b.strides[1] == b.itemsize:
            for k in range(K):
                row, place = contiguous(b[k, first : first + count]), target[k]
                for j in range(count):
                    place[j] = row[j]
                place[count:] = 0
        else:
            for j in range(count):
                column = b[:, first + j]
                for k in range(K):
                    target[k, j] = column[k]
            target[:K, count:] = 0
        target[K:] = 0


def matmul_micro(a: np.ndarray, b: np.ndarray, out: np.ndarray, alpha: float, beta: float) -> None:
    """Compute out = alpha * a @ b + beta * out by panels and a register tile."""
    M, N, K = out.shape[0], out.shape[1], a.shape[1]
    width = 2 * (VECTOR_BYTES // out.itemsize)
    depth = min(INNER, -(-K // UNROLL) * UNROLL)
    rows_of_panels = -(-min(M, BLOCK_ROWS) // ROWS)
    columns_of_panels = -(-min(N, BLOCK_COLUMNS) // width)
    a_panels = np.empty((rows_of_panels, depth, ROWS), out.dtype)
    b_panels = np.empty((columns_of_panels, depth, width), out.dtype)
    edge = np.empty((ROWS, width), out.dtype)
    if beta != 0 and beta != 1:
        for i in range(M):
            for j in range(N):
                out[i, j] *= beta
    for n in range(0, N, BLOCK_COLUMNS):
        columns = min(BLOCK_COLUMNS, N - n)
        for k in range(0, K, INNER):
            inner = min(INNER, K - k)
            padded = -(-inner // UNROLL) * UNROLL
            add = beta != 0 or k > 0
            right = b_panels[: -(-columns // width), :padded]
            _pack_columns(b[k : k + inner, n : n + columns], right)
            for m in range(0, M, BLOCK_ROWS):
                rows = min(BLOCK_ROWS, M - m)
                left = a_panels[: -(-rows // ROWS), :padded]
                _pack_rows(a[m : m + rows, k : k + inner], alpha, left)
                for q in range(right.shape[0]):
                    j = n + q * width
                    for p in range(left.shape[0]):
                        i = m + p * ROWS
                        if i + ROWS <= M and j + width <= N:
                            tile = out[i:, j:]
                            stride = out.strides[0] // out.itemsize
                            _multiply_panels(left[p], right[q], padded, tile, stride, add)
                            continue
                        _multiply_panels(left[p], right[q], padded, edge, width, False)
                        for r in range(min(ROWS, M - i)):
                            for c in range(min(width, N - j)):
                                old = out[i + r, j + c] if add else out.dtype.type(0)
                                out[i + r, j + c] = old + edge[r, c]
