"""exp, tanh and GELU for compiled kernels: float32 by polynomials that LLVM turns into vectors.

The C library's ``expf`` is called once a number; a loop around it cannot become vector code. The
float32 versions here are arithmetic only, without a branch or a table. In float64, where results
matter and speed does not, the C library is used.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import types
from numba.extending import overload

from gpt2lib.kernels._compile import INLINED, emitted, exact_part, part

F = np.float32
LOG2_E = F(1.4426950408889634)
LN2_HIGH = F(0.693359375)  # the first 10 bits of ln 2: n * LN2_HIGH is exact
LN2_LOW = F(-2.12194440e-4)  # ln 2 - LN2_HIGH
LOWEST, HIGHEST = F(-87.33654), F(88.72283)  # below: 0 (or denormal), above: infinity
ROUND = F(12582912.0)  # 1.5 * 2**23: adding it rounds to an integer, which lands in the low bits
# exp(r) - 1 - r = r**2 * P(r) on |r| <= ln(2) / 2; minimax coefficients of Cephes' expf
P0, P1, P2 = F(5.0000001201e-1), F(1.6666665459e-1), F(4.1665795894e-2)
P3, P4, P5 = F(8.3334519073e-3), F(1.3981999507e-3), F(1.9875691500e-4)


@emitted
def _scale_by_power_of_two(typingctx, x, rounded):
    """Return x * 2**n for n in the low bits of ``rounded``: n is added to x's exponent.

    x is in [0.7, 1.5) and the result a normal number, so the exponent field cannot overflow.
    """

    def codegen(context, builder, signature, args):
        i32 = ir.IntType(32)
        exponent = builder.shl(builder.bitcast(args[1], i32), ir.Constant(i32, 23))
        bits = builder.add(builder.bitcast(args[0], i32), exponent)
        return builder.bitcast(bits, ir.FloatType())

    return types.float32(types.float32, types.float32), codegen


@exact_part
def _exp32(x):
    """Return exp(x) in float32, within 1.2 units in the last place; 0 below -87.3, inf above 88.7.

    x = n ln 2 + r with |r| <= ln(2)/2, exp(x) = 2**n exp(r).
    """
    clamped = LOWEST if x < LOWEST else x
    clamped = HIGHEST if clamped > HIGHEST else clamped  # a NaN passes through both comparisons
    rounded = clamped * LOG2_E + ROUND
    n = rounded - ROUND
    r = clamped - n * LN2_HIGH
    r = r - n * LN2_LOW
    p = ((((P5 * r + P4) * r + P3) * r + P2) * r + P1) * r + P0
    power: Any = _scale_by_power_of_two(p * (r * r) + r + F(1.0), rounded)
    power = F(0.0) if x < LOWEST else power
    return F(np.inf) if x > HIGHEST else power


def exp(x):
    """Return exp(x) in the type of x (compiled code only)."""
    raise NotImplementedError("for compiled kernels")


@overload(exp, jit_options=INLINED)
def _exp(x):
    if x == types.float32:
        return lambda x: _exp32(x)
    return lambda x: math.exp(x)


# --- GELU ----------------------------------------------------------------------------------------
# tanh form: x/2 (1 + tanh(u)) with u = sqrt(2/pi) (x + 0.044715 x^3). Since 1 + tanh(u) is
# 2 sigmoid(2u), it is x sigmoid(2u): one exp and one division, and no cancellation for x << 0.
TWICE_SQRT_2_OVER_PI = 2 * math.sqrt(2 / math.pi)
CUBIC = 0.044715
FLAT = 30.0  # beyond, sigmoid(2u) is 0 or 1 to the last bit; x**3 must not overflow


def gelu(x):
    """Return GELU(x) in the type of x (compiled code only)."""
    raise NotImplementedError("for compiled kernels")


@overload(gelu, jit_options=INLINED)
def _gelu(x):
    real = np.float32 if x == types.float32 else np.float64
    k, cubic, flat, one = (real(c) for c in (TWICE_SQRT_2_OVER_PI, CUBIC, FLAT, 1.0))

    def implementation(x):
        z = -flat if x < -flat else x
        z = flat if z > flat else z
        return x / (one + exp(-(k * z * (one + cubic * z * z))))

    return implementation


def gelu_slope(x):
    """Return GELU'(x) in the type of x (compiled code only)."""
    raise NotImplementedError("for compiled kernels")


@overload(gelu_slope, jit_options=INLINED)
def _gelu_slope(x):
    real = np.float32 if x == types.float32 else np.float64
    k, cubic, flat, one = (real(c) for c in (TWICE_SQRT_2_OVER_PI, CUBIC, FLAT, 1.0))
    three = real(3.0)

    def implementation(x):
        z = -flat if x < -flat else x
        z = flat if z > flat else z
        square = cubic * z * z
        s = one / (one + exp(-(k * z * (one + square))))  # sigmoid(2u)
        return s + z * s * (one - s) * (k * (one + three * square))

    return implementation


def tanh(x):
    """Return tanh(x) in the type of x (compiled code only)."""
    raise NotImplementedError("for compiled kernels")


@overload(tanh, jit_options=INLINED)
def _tanh(x):
    if x != types.float32:
        return lambda x: math.tanh(x)
    one, two = F(1.0), F(2.0)
    # 1 - 2 / (1 + exp(2x)): absolute error below 1e-6 everywhere; exp's inf and 0 give 1 and -1
    return lambda x: one - two / (one + exp(two * x))


@functools.partial(part, fastmath=frozenset({"nnan", "nsz"}))
def largest(a):
    """Return the largest number of a 1-D array, in vector lanes.

    LLVM makes vectors of a running maximum only when told that there are no NaNs ("nnan"). Where
    there are, any number of the row may come back: the softmax then still meets the NaN itself.
    """
    top = a[0]
    for k in range(a.size):
        top = a[k] if a[k] > top else top
    return top
