r"""What each operation takes: its time, its floating-point operations, the bytes that it must move.

Every number here is what the operation needs *at least*, worked out from the shapes of a call and
the same for every backend. Divided by the measured time it says how fast the operation did what
had to be done, which is what a roofline shows.

**FLOPs.** One for each addition, subtraction, multiplication, division, root, ``exp``, ``log`` and
``tanh`` in the equation (a library's ``exp`` takes a dozen instructions; here it is one). Copies,
comparisons (a maximum, the causal mask) and integers are none.

- A matrix product of (N, I) and (I, O) takes 2·N·I·O. A bias that is laid out first, or a gradient
  that is added to, needs no more than that: it is the term that the first product is added to.
- Attention counts the T (T + 1) / 2 pairs that the causal mask leaves.
  ``GPT2Config.training_flops`` counts the full square, as is usual; :func:`products` does too.
  The backward makes the scores again from queries and keys: its inputs hold nothing else to get
  them from, so that counts.
- For each number: LayerNorm 7 forward and 14 backward, GELU 9 and 17, cross-entropy 3 and 3,
  softmax 4 and 5, residual 1 and 2, AdamW 15. The functions below say how they come about.

**Bytes.** Inputs are read once, outputs written once, gradients that are added to read and written.
What a cache saves or does not save, and the line that a processor reads before it writes to it, is
not in it. An embedding reads and writes only the rows of the tokens that occur.

Williams, Waterman and Patterson (2009) call FLOPs over bytes the *operational intensity*.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

__all__ = ["BETWEEN", "TimedOps", "Work", "products", "work"]

Array = np.ndarray[Any, Any]

#: The row of :meth:`TimedOps.rows` that holds the time outside of operations.
BETWEEN = "(Python between them)"


class Work(NamedTuple):
    """What one call of an operation needs at least.

    Attributes
    ----------
    shape
        ``"inputs -> outputs"`` of a linear layer; else empty.
    flops
        Floating-point operations.
    bytes
        Bytes between the processor and memory.
    """

    shape: str
    flops: int
    bytes: int


def work(name: str, arguments: tuple[Any, ...], options: dict[str, Any] | None = None) -> Work:
    """Say what a call of an operation needs at least.

    Parameters
    ----------
    name
        An operation of :mod:`gpt2lib.ops`, such as ``"linear_forward"``.
    arguments, options
        What it is called with.

    Returns
    -------
    Work
        Shape, FLOPs and bytes; nothing at all for a name that is no operation.

    Examples
    --------
    >>> x, w, b = np.zeros((2, 3), "f4"), np.zeros((3, 5), "f4"), np.zeros(5, "f4")
    >>> work("linear_forward", (x, w, b))
    Work(shape='3 -> 5', flops=60, bytes=144)
    """
    count = _COUNTS.get(name)
    return Work("", 0, 0) if count is None else count(*arguments, **(options or {}))


def products(name: str, arguments: tuple[Any, ...]) -> int:
    """Return the FLOPs of a call's matrix products, as ``GPT2Config.training_flops`` counts them.

    That is: a multiply-add as two, attention's full square, no score made twice, and no FLOP
    outside of products.

    Examples
    --------
    >>> products("attention_forward", (np.zeros((2, 8, 3 * 16), "f4"), 4))
    8192
    """
    if name in ("attention_forward", "attention_backward"):
        forward = name.endswith("forward")
        batch, seq, channels = arguments[0].shape
        channels = channels // 3 if forward else channels
        return (4 if forward else 8) * batch * seq * seq * channels
    if name not in _WEIGHT_AT:
        return 0
    rows, weight = _rows(arguments[0]), arguments[_WEIGHT_AT[name]]
    return (2 if name.endswith("forward") else 4) * rows * weight.size


# Which argument of an operation is its weight.
_WEIGHT_AT = {
    "linear_forward": 1,
    "linear_gelu_forward": 1,
    "linear_backward": 2,
    "linear_gelu_backward": 3,
    "head_forward": 1,
    "head_backward": 2,
}


class TimedOps:
    """A backend that times every call of another one. Operations return when they are done.

    Parameters
    ----------
    ops
        The backend, such as ``model.ops``.
    clock
        What gives the time in seconds: elapsed time, or for work on one thread
        :func:`gpt2lib.perf.turns.thread_clock`'s.

    Examples
    --------
    >>> from gpt2lib import GPT2, GPT2Config
    >>> model = GPT2(GPT2Config.preset("tiny"), seed=0)
    >>> plain, model.ops = model.ops, TimedOps(model.ops)
    >>> _ = model.loss([[1, 2, 3]], [[2, 3, 4]])
    >>> rows, model.ops = model.ops.rows(steps=1), plain
    >>> sum(row["calls"] for row in rows if row["operation"] == "linear_forward")
    12
    """

    def __init__(self, ops: Any, clock: Callable[[], float] = time.perf_counter) -> None:
        self._ops = ops
        self._clock = clock
        self._totals: dict[tuple[str, str], _Total] = {}
        self._between = 0.0
        self._left = 0.0  # when the last operation returned; 0 before the first

    def __getattr__(self, name: str) -> Any:
        operation = getattr(self._ops, name)
        if not callable(operation) or isinstance(operation, type):
            return operation

        def timed(*arguments: Any, **options: Any) -> Any:
            entered = self._clock()
            if self._left:
                self._between += entered - self._left
            shape, flops, moved = work(name, arguments, options)
            total = self._totals.setdefault((name, shape), _Total())
            begin = self._clock()
            result = operation(*arguments, **options)
            total.seconds += self._clock() - begin
            total.calls += 1
            total.flops += flops
            total.bytes += moved
            total.products += products(name, arguments)
            self._left = self._clock()
            return result

        return timed

    def rows(self, steps: int) -> list[dict[str, Any]]:
        """Return a row for each operation and shape, the longest first.

        Parameters
        ----------
        steps
            How many equal steps were made; the rows are of one.

        Returns
        -------
        list
            ``operation``, ``shape``, ``calls``, ``ms``, ``flops``, ``bytes``: of one step, all its
            calls together. The last row, :data:`BETWEEN`, is the time from the end of each
            operation to the beginning of the next, what the counting takes left out.

        Raises
        ------
        ValueError
            When ``steps`` is not at least 1.
        """
        if steps < 1:
            raise ValueError(f"a breakdown needs at least one step, got {steps}.")
        rows: list[dict[str, Any]] = [
            {
                "operation": name,
                "shape": shape,
                "calls": total.calls // steps,
                "ms": 1e3 * total.seconds / steps,
                "flops": total.flops // steps,
                "bytes": total.bytes // steps,
            }
            for (name, shape), total in self._totals.items()
        ]
        rows.sort(key=lambda row: -row["ms"])
        between = {"operation": BETWEEN, "shape": "", "calls": 0}
        return [*rows, {**between, "ms": 1e3 * self._between / steps, "flops": 0, "bytes": 0}]

    def products(self, name: str, shape: str) -> int:
        """Return the :func:`products` of all calls of an operation with this shape so far."""
        total = self._totals.get((name, shape))
        return 0 if total is None else total.products


class _Total:
    """The calls of one operation with one shape."""

    def __init__(self) -> None:
        self.calls = self.flops = self.bytes = self.products = 0
        self.seconds = 0.0


# ------------------------------------------------------------------ operation by operation
#
# Each function has the parameters of the operation that it counts. N is the rows of its input
# (tokens), then n numbers a row.


def _rows(x: Array) -> int:
    return math.prod(x.shape[:-1])


def _index_bytes(ids: Any) -> int:
    return np.asarray(ids).nbytes


def _linear_forward(x: Array, weight: Array, bias: Array, **_: Any) -> Work:
    n, (i, o) = _rows(x), weight.shape
    numbers = n * i + i * o + o + n * o
    return Work(f"{i} -> {o}", 2 * n * i * o, x.itemsize * numbers)


def _linear_backward(dout: Array, x: Array, weight: Array, **_: Any) -> Work:
    n, (i, o) = _rows(x), weight.shape
    flops = 4 * n * i * o + n * o  # two products, and dbias
    numbers = n * o + n * i + i * o + 2 * (n * i + i * o + o)
    return Work(f"{i} -> {o}", flops, x.itemsize * numbers)


def _linear_gelu_forward(x: Array, weight: Array, bias: Array, **_: Any) -> Work:
    shape, flops, moved = _linear_forward(x, weight, bias)
    outputs = _rows(x) * weight.shape[1]
    return Work(shape, flops + 9 * outputs, moved + x.itemsize * outputs)


def _linear_gelu_backward(dout: Array, pre: Array, x: Array, weight: Array, **_: Any) -> Work:
    shape, flops, moved = _linear_backward(dout, x, weight)
    # dpre = dout * slope is not added to anything; pre is read and dpre written.
    return Work(shape, flops + 17 * pre.size, moved + 2 * pre.nbytes)


def _head_forward(x: Array, wte: Array, **_: Any) -> Work:
    n, (v, c) = _rows(x), wte.shape
    return Work(f"{c} -> {v}", 2 * n * c * v, x.itemsize * (n * c + v * c + n * v))


def _head_backward(dlogits: Array, x: Array, wte: Array, **_: Any) -> Work:
    n, (v, c) = _rows(x), wte.shape
    numbers = n * v + n * c + v * c + 2 * (n * c + v * c)
    return Work(f"{c} -> {v}", 4 * n * c * v, x.itemsize * numbers)


def _attention_forward(
    qkv: Array, n_head: int, *, probabilities: Array | None = None, **_: Any
) -> Work:
    B, T, C = qkv.shape[0], qkv.shape[1], qkv.shape[2] // 3
    pairs = B * T * (T + 1) // 2  # of a query and a key, for each head
    # q·k and p·v: 2 hs each, over all heads 2 C. The softmax: scale, shift, exp, sum.
    flops = pairs * (4 * C + 4 * n_head) + B * T * C + 3 * B * T * n_head  # 1/sum; log, 1/x, +
    numbers = 4 * B * T * C + B * T * n_head
    written = 0 if probabilities is None else probabilities.nbytes
    return Work("", flops, qkv.itemsize * numbers + written)


def _attention_backward(
    dout: Array, qkv: Array, out: Array, lse: Array, n_head: int, **_: Any
) -> Work:
    B, T, C = dout.shape
    pairs = B * T * (T + 1) // 2
    # q·k again, dv, dp, dq, dk; then scale, shift, exp, subtract, two factors; and dz·z.
    flops = pairs * (10 * C + 6 * n_head) + 2 * B * T * C
    numbers = 5 * B * T * C + B * T * n_head + 2 * 3 * B * T * C
    return Work("", flops, dout.itemsize * numbers)


def _attention_cached(
    qkv: Array, keys: Array, values: Array, position: int, n_head: int, **_: Any
) -> Work:
    B, T, C = qkv.shape[0], qkv.shape[1], qkv.shape[2] // 3
    pairs = B * (T * position + T * (T + 1) // 2)
    flops = pairs * (4 * C + 4 * n_head) + B * T * C + B * T * n_head
    numbers = 4 * B * T * C + 2 * B * T * C + 2 * B * position * C  # qkv, out; stored; read
    return Work("", flops, qkv.itemsize * numbers)


def _layernorm_forward(x: Array, weight: Array, bias: Array, **_: Any) -> Work:
    n, c = _rows(x), x.shape[-1]
    # A number: sum, centre, square and add, scale, gain, bias. A row: /C twice, + eps, root, 1/x.
    return Work("", 7 * n * c + 5 * n, x.itemsize * (2 * n * c + 2 * c + 2 * n))


def _layernorm_backward(
    dout: Array, x: Array, weight: Array, mean: Array, rstd: Array, **_: Any
) -> Work:
    n, c = _rows(x), x.shape[-1]
    # x-hat 2, dbias 1, dweight 2, g 1, its two means 1 and 2, taken off 1 and 2, scale 1, add 1.
    flops = 14 * n * c + 2 * n
    return Work("", flops, x.itemsize * (2 * n * c + c + 2 * n + 2 * (n * c + 2 * c)))


def _gelu_forward(x: Array, **_: Any) -> Work:
    return Work("", 9 * x.size, 2 * x.nbytes)


def _gelu_backward(dout: Array, x: Array, **_: Any) -> Work:
    # u and tanh: 6. 1 - t², times x times u': 2 + 5. + 1 + t, half, dout: 4. Added to dx: 1.
    return Work("", 18 * x.size, 4 * x.nbytes)


def _softmax_forward(x: Array, **_: Any) -> Work:
    return Work("", 4 * x.size, 2 * x.nbytes)  # shift, exp, sum, divide


def _softmax_backward(dout: Array, out: Array, **_: Any) -> Work:
    return Work("", 5 * out.size, 4 * out.nbytes)  # the sum 2, subtract, multiply, add


def _cross_entropy_forward(logits: Array, targets: Any, **_: Any) -> Work:
    n = _rows(logits)
    flops = 3 * logits.size + 4 * n  # shift, exp, sum; a row's log, + top, - z, and the mean
    return Work("", flops, logits.nbytes + _index_bytes(targets) + 2 * n * logits.itemsize)


def _cross_entropy_backward(
    dloss: float, logits: Array, targets: Any, lse: Array, **_: Any
) -> Work:
    flops = 3 * logits.size + _rows(logits)  # shift, exp, scale; the target's - 1
    return Work("", flops, 2 * logits.nbytes + _index_bytes(targets) + lse.nbytes)


def _residual_forward(x: Array, y: Array, **_: Any) -> Work:
    return Work("", x.size, 3 * x.nbytes)


def _residual_backward(dout: Array, **_: Any) -> Work:
    return Work("", 2 * dout.size, 5 * dout.nbytes)


def _embedding_forward(ids: Any, wte: Array, wpe: Array, **_: Any) -> Work:
    ids = np.asarray(ids)
    c, rows = wte.shape[1], np.unique(ids).size + ids.shape[-1]  # of wte and of wpe
    return Work("", ids.size * c, wte.itemsize * c * (rows + ids.size) + ids.nbytes)


def _embedding_backward(dout: Array, ids: Any, *, dwte: Array, **_: Any) -> Work:
    ids = np.asarray(ids)
    rows = np.unique(ids).size + ids.shape[-1]
    moved = dout.nbytes + ids.nbytes + 2 * rows * dwte.shape[1] * dwte.itemsize
    return Work("", 2 * dout.size, moved)


def _head_mask_forward(x: Array, mask: Array, *, mean: Array | None = None, **_: Any) -> Work:
    extra = 0 if mean is None else mean.nbytes
    flops = x.size if mean is None else 2 * x.size + 2 * mean.size
    return Work("", flops, 2 * x.nbytes + mask.nbytes + extra)


def _head_mask_backward(
    dout: Array, x: Array, mask: Array, *, mean: Array | None = None, **_: Any
) -> Work:
    extra = 0 if mean is None else mean.nbytes
    flops = (4 if mean is None else 5) * x.size
    return Work("", flops, 4 * x.nbytes + 3 * mask.nbytes + extra)


def _adamw_update(
    parameters: Array,
    gradients: Array,
    m: Array,
    v: Array,
    *,
    zero_gradients: bool = False,
    **_: Any,
) -> Work:
    # Scale g 1; m 3; v 4; root, its correction, + eps, divide, rate, subtract 6; decay 1.
    moved = (8 if zero_gradients else 7) * parameters.nbytes  # reads four, writes three
    return Work("", 15 * parameters.size, moved)


def _squared_norm(x: Array, **_: Any) -> Work:
    return Work("", 2 * x.size, x.nbytes)


def _zero(x: Array, **_: Any) -> Work:
    return Work("", 0, x.nbytes)


_COUNTS: dict[str, Callable[..., Work]] = {
    "adamw_update": _adamw_update,
    "attention_backward": _attention_backward,
    "attention_cached": _attention_cached,
    "attention_forward": _attention_forward,
    "cross_entropy_backward": _cross_entropy_backward,
    "cross_entropy_forward": _cross_entropy_forward,
    "embedding_backward": _embedding_backward,
    "embedding_forward": _embedding_forward,
    "gelu_backward": _gelu_backward,
    "gelu_forward": _gelu_forward,
    "head_backward": _head_backward,
    "head_forward": _head_forward,
    "head_mask_backward": _head_mask_backward,
    "head_mask_forward": _head_mask_forward,
    "layernorm_backward": _layernorm_backward,
    "layernorm_forward": _layernorm_forward,
    "linear_backward": _linear_backward,
    "linear_forward": _linear_forward,
    "linear_gelu_backward": _linear_gelu_backward,
    "linear_gelu_forward": _linear_gelu_forward,
    "residual_backward": _residual_backward,
    "residual_forward": _residual_forward,
    "softmax_backward": _softmax_backward,
    "softmax_forward": _softmax_forward,
    "squared_norm": _squared_norm,
    "zero": _zero,
}
