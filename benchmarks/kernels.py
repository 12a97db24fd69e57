"""Time every compiled operation at the shapes of one training step, beside the matrix-product rate.

    python benchmarks/kernels.py --preset gpt2 --batch 4 --seq 64 --threads 2

For each operation: milliseconds (the best of several rounds), how many calls a step makes, its
share of the step, and the rate: GFLOP/s and percent of a 2048 x 2048 x 2048 matrix product with
the same threads for what multiplies matrices, GB/s for what passes over memory. With one thread the
clock counts the processor's time of this thread, so that a busy machine disturbs it little.

The rounds go through all operations in turn, so that a disturbance meets all of them alike.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from gpt2lib import kernels
from gpt2lib.config import GPT2Config


class Row(NamedTuple):
    """One operation: what to call, how often a step does, and what it costs."""

    name: str
    call: Callable[[], Any]
    calls: int
    flops: float
    bytes: float


def operations(ops: Any, config: GPT2Config, B: int, T: int) -> list[Row]:
    """Return the operations of one step with buffers that exist, as a training step has them."""
    C, V, L, NH, N = config.channels, config.vocab_size, config.layers, config.heads, B * T
    rng = np.random.default_rng(0)

    def R(*shape: int) -> Any:
        return rng.standard_normal(shape, np.float32)

    x, wide, four, dx = R(B, T, C), R(B, T, 3 * C), R(B, T, 4 * C), R(B, T, C)
    four2, four3, wide2 = R(B, T, 4 * C), R(B, T, 4 * C), R(B, T, 3 * C)
    out, mean, rstd, lse = R(B, T, C), R(B, T), R(B, T), np.zeros((B, NH, T), np.float32)
    gain, small = R(C), R(C)
    logits, losses, row_lse = np.zeros((B, T, V), np.float32), R(B, T), R(B, T)
    ids = rng.integers(0, V, (B, T))
    wte, dwte, wpe = 0.02 * R(V, C), R(V, C), R(config.context, C)
    rows: list[Row] = []

    def row(
        name: str, call: Callable[[], Any], calls: int, flops: float = 0, numbers: float = 0
    ) -> None:
        rows.append(Row(name, call, calls, flops, 4.0 * numbers))

    def linear(name: str, inputs: int, outputs: int, a: Any, da: Any, y: Any) -> None:
        w, b, dw, db = 0.02 * R(inputs, outputs), R(outputs), R(inputs, outputs), R(outputs)
        f, gradients = 2.0 * N * inputs * outputs, {"dx": da, "dweight": dw, "dbias": db}
        row(f"linear_forward {name}", lambda: ops.linear_forward(a, w, b, out=y), L, f)
        back = lambda: ops.linear_backward(y, a, w, **gradients)  # noqa: E731
        row(f"linear_backward {name}", back, L, 2 * f)

    linear("c_attn", C, 3 * C, x, dx, wide)
    linear("attn.c_proj", C, C, x, dx, out)
    linear("mlp.c_proj", 4 * C, C, four, four2, out)
    w, b, f = 0.02 * R(C, 4 * C), R(4 * C), 8.0 * N * C * C
    gradients = {"dx": dx, "dweight": R(C, 4 * C), "dbias": R(4 * C)}
    forward = lambda: ops.linear_gelu_forward(x, w, b, out=four, pre=four2)  # noqa: E731
    row("linear_gelu_forward c_fc", forward, L, f)
    back = lambda: ops.linear_gelu_backward(four, four2, x, w, dpre=four3, **gradients)  # noqa: E731
    row("linear_gelu_backward c_fc", back, L, 2 * f)
    f = 2.0 * N * C * V
    row("head_forward", lambda: ops.head_forward(x, wte, out=logits), 1, f)
    row("head_backward", lambda: ops.head_backward(logits, x, wte, dx=dx, dwte=dwte), 1, 2 * f)
    f = 2.0 * N * T * C  # half of the square, for each of two products
    row("attention_forward", lambda: ops.attention_forward(wide, NH, out=out, lse=lse), L, f)
    attend = lambda: ops.attention_backward(dx, wide, out, lse, NH, dqkv=wide2)  # noqa: E731
    row("attention_backward", attend, L, 2.5 * f)
    ce = lambda: ops.cross_entropy_forward(logits, ids, losses=losses, lse=row_lse)  # noqa: E731
    row("cross_entropy_forward", ce, 1, 0, N * V)
    dce = lambda: ops.cross_entropy_backward(1.0, logits, ids, row_lse, out=logits)  # noqa: E731
    row("cross_entropy_backward", dce, 1, 0, 2 * N * V)
    kept = {"mean": mean, "rstd": rstd}
    norm = lambda: ops.layernorm_forward(x, gain, small, out=out, **kept)  # noqa: E731
    row("layernorm_forward", norm, 2 * L + 1, 0, 2 * N * C)
    g = {"dx": dx, "dweight": small, "dbias": small}
    dnorm = lambda: ops.layernorm_backward(out, x, gain, mean, rstd, **g)  # noqa: E731
    row("layernorm_backward", dnorm, 2 * L + 1, 0, 4 * N * C)
    row("residual_forward", lambda: ops.residual_forward(x, dx, out=out), 2 * L, 0, 3 * N * C)
    look = lambda: ops.embedding_forward(ids, wte, wpe, out=out)  # noqa: E731
    row("embedding_forward", look, 1, 0, 3 * N * C)
    dlook = lambda: ops.embedding_backward(out, ids, dwte=dwte, dwpe=wpe)  # noqa: E731
    row("embedding_backward", dlook, 1, 0, 3 * N * C)
    P = config.parameter_count
    flat = [np.zeros(P, np.float32) for _ in range(4)]
    rates = {"learning_rate": 1e-4, "beta1": 0.9, "beta2": 0.95, "eps": 1e-8, "weight_decay": 0.1}
    row("adamw_update", lambda: ops.adamw_update(*flat, step=1, **rates), 1, 0, 7 * P)
    row("squared_norm", lambda: ops.squared_norm(flat[1]), 1, 0, P)
    row("zero (gradients)", lambda: ops.zero(flat[1]), 1, 0, P)
    return rows


def decoding(ops: Any, config: GPT2Config, past: int) -> list[Row]:
    """Return the operations of one generated token, which read every weight once."""
    C, V, L, NH = config.channels, config.vocab_size, config.layers, config.heads
    rng = np.random.default_rng(0)

    def R(*shape: int) -> Any:
        return rng.standard_normal(shape, np.float32)

    rows = []
    x, four, qkv = R(1, 1, C), R(1, 1, 4 * C), R(1, 1, 3 * C)
    layers = [(R(C, 3 * C), R(C, C), R(C, 4 * C), R(4 * C, C)) for _ in range(L)]
    b, out, pre = R(4 * C), R(1, 1, C), R(1, 1, 4 * C)
    keys = R(1, NH, config.context, C // NH)
    wte, logits = R(V, C), R(1, 1, V)

    def linears() -> None:
        for attn, proj, fc, down in layers:
            ops.linear_forward(x, attn, b[: 3 * C], out=qkv)
            ops.linear_forward(x, proj, b[:C], out=out)
            ops.linear_gelu_forward(x, fc, b, out=four, pre=pre)
            ops.linear_forward(four, down, b[:C], out=out)

    rows.append(Row("decode: all linear layers", linears, 1, 0, 48.0 * L * C * C))
    rows.append(
        Row("decode: head", lambda: ops.head_forward(x, wte, out=logits), 1, 0, 4.0 * V * C)
    )
    cached = lambda: ops.attention_cached(qkv, keys, keys, past, NH, out=out)  # noqa: E731
    rows.append(Row(f"decode: attention, {past} past", cached, L, 0, 8.0 * past * C))
    return rows


def best(calls: list[Callable[[], Any]], rounds: int, clock: Callable[[], float]) -> list[float]:
    """Return the shortest time of each call over rounds that go through all of them."""
    times = [float("inf")] * len(calls)
    for turn in range(rounds + 1):
        for i, call in enumerate(calls):
            begin = clock()
            call()
            if turn:  # the first round compiles and touches fresh memory
                times[i] = min(times[i], clock() - begin)
    return times


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--preset", default="gpt2")
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--seq", type=int, default=64)
    parser.add_argument("--threads", type=int, default=None)
    parser.add_argument("--runtime", default="threads")
    parser.add_argument("--matmul", default="blas")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    config = GPT2Config.preset(options.preset)
    backend = kernels.load(options.runtime, options.threads, options.matmul)
    threads = backend.runtime.threads
    clock = time.thread_time if threads == 1 else time.perf_counter

    from threadpoolctl import threadpool_limits

    square = np.random.default_rng(0).standard_normal((2048, 2048), np.float32)
    product = np.empty_like(square)

    def sgemm() -> None:
        with threadpool_limits(threads, user_api="blas"):
            np.matmul(square, square, out=product)

    block = np.ones(1 << 26, np.float32)  # 256 MiB
    rows = operations(backend, config, options.batch, options.seq)
    rows += decoding(backend, config, 64)
    calls = [sgemm, lambda: backend.squared_norm(block), *(row.call for row in rows)]
    measured = best(calls, options.rounds, clock)
    rate, stream = 2 * 2048**3 / measured[0], 4.0 * block.size / measured[1]
    times = measured[2:]
    step = sum(
        t * row.calls for t, row in zip(times, rows, strict=True) if "decode" not in row.name
    )
    flops = sum(row.flops * row.calls for row in rows)
    print(f"{backend!r}; sgemm {rate / 1e9:.1f} GFLOP/s; reading {stream / 1e9:.1f} GB/s")
    print(
        f"{'operation':32}{'ms':>9}{'calls':>7}{'% step':>8}{'GFLOP/s':>9}{'% sgemm':>9}{'GB/s':>7}"
    )
    for row, t in zip(rows, times, strict=True):
        share = "" if "decode" in row.name else f"{100 * t * row.calls / step:.1f}"
        gflops, percent = row.flops / t / 1e9, 100 * row.flops / t / rate
        speed = f"{gflops:9.1f}{percent:9.0f}" if row.flops else " " * 18
        moved = f"{row.bytes / t / 1e9:7.1f}" if row.bytes else ""
        print(f"{row.name:32}{1e3 * t:9.3f}{row.calls:7d}{share:>8}{speed}{moved}")
    speed, percent = flops / step / 1e9, 100 * flops / step / rate
    print(f"step {1e3 * step:.0f} ms, {speed:.1f} GFLOP/s, {percent:.1f} % of sgemm")


if __name__ == "__main__":
    main()
