# mypy: disable-error-code="call-arg, var-annotated"
# (an intrinsic is called without the typing context that it is defined with)
"""Everything of the runtimes that is compiled: atomics, a clock, and the loops that run chunks.

How a kernel, a chunk and a runtime fit together
------------------------------------------------
A *kernel* cuts its work into *chunks* and compiles to one native function ::

    void kernel(int64_t chunk, void *arguments)

that does the chunk with that number, holds no GIL and raises nothing. ``arguments`` points to a
block of memory in which the kernel finds its arrays. A *runtime* is given the function's address,
the block's address and the number of chunks; it calls the function once for every chunk, on as
many threads as it has, and returns when the last call has ended. That is a *region*. Neither side
knows more of the other: the runtime knows no arrays, the kernel no threads. Two plain integers and
a count go across, so the loops below are compiled once, for every kernel that there will ever be,
and stay valid in Numba's cache on disk: an address is always data, never a constant in the code.

``run_chunk`` is the one place where a kernel is called. Every runtime comes through it, so what a
trace records is the same for all of them.

Why one file: Numba's cache notices when the file of a cached function changes, not when the file
of a helper does. All that is compiled for the runtimes stands here, so no stale code can run.
"""

from __future__ import annotations

import platform
import sys
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import cfunc, njit, prange, types
from numba.extending import intrinsic

LINUX = sys.platform.startswith("linux")
WINDOWS = sys.platform == "win32"
_X86 = platform.machine().lower() in {"x86_64", "amd64", "i386", "i686"}
_ARM64 = platform.machine().lower() in {"aarch64", "arm64"}
# A futex compares 32 bits. They are the low half of an int64 slot, at its own address on a
# little-endian machine; elsewhere the threads park in Python.
FUTEX = LINUX and sys.byteorder == "little" and platform.machine().lower() in {
    "x86_64", "amd64", "aarch64", "arm64",
}  # fmt: skip

_I32 = ir.IntType(32)
_I64 = ir.IntType(64)
_BYTES = ir.IntType(8).as_pointer()


# --------------------------------------------------------------------------------------------
# Intrinsics: what Python has no word for. All addresses are int64 values.
# --------------------------------------------------------------------------------------------


@intrinsic
def call_chunk(typingctx: Any, function: Any, chunk: Any, arguments: Any) -> Any:
    """Call the native ``void f(int64_t chunk, void *arguments)`` that stands at ``function``."""
    signature = types.void(types.int64, types.int64, types.int64)

    def codegen(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        function_type = ir.FunctionType(ir.VoidType(), [_I64, _BYTES])
        pointer = builder.inttoptr(values[0], function_type.as_pointer())
        builder.call(pointer, [values[1], builder.inttoptr(values[2], _BYTES)])
        return context.get_dummy_value()

    return signature, codegen


@intrinsic
def fetch_add(typingctx: Any, address: Any, amount: Any) -> Any:
    """Add ``amount`` to the int64 at ``address`` in one indivisible step; return the old value."""
    signature = types.int64(types.int64, types.int64)

    def codegen(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        pointer = builder.inttoptr(values[0], _I64.as_pointer())
        return builder.atomic_rmw("add", pointer, values[1], "seq_cst")

    return signature, codegen


@intrinsic
def load(typingctx: Any, address: Any) -> Any:
    """Read the int64 at ``address``; what its writer wrote before it is visible afterwards."""
    signature = types.int64(types.int64)

    def codegen(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        pointer = builder.inttoptr(values[0], _I64.as_pointer())
        return builder.load_atomic(pointer, "seq_cst", 8)

    return signature, codegen


@intrinsic
def store(typingctx: Any, address: Any, value: Any) -> Any:
    """Write the int64 at ``address``, after everything that this thread wrote before."""
    signature = types.void(types.int64, types.int64)

    def codegen(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        pointer = builder.inttoptr(values[0], _I64.as_pointer())
        builder.store_atomic(values[1], pointer, "seq_cst", 8)
        return context.get_dummy_value()

    return signature, codegen


@intrinsic
def pause(typingctx: Any) -> Any:
    """Tell the core that this is a waiting loop: it saves power and yields to its sibling."""

    def codegen(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        module = builder.module
        if _X86:
            function_type = ir.FunctionType(ir.VoidType(), [])
            builder.call(_declare(module, function_type, "llvm.x86.sse2.pause"), [])
        elif _ARM64:
            function_type = ir.FunctionType(ir.VoidType(), [_I32])
            hint = _declare(module, function_type, "llvm.aarch64.hint")
            builder.call(hint, [ir.Constant(_I32, 1)])  # 1 is "yield"
        return context.get_dummy_value()

    return types.void(), codegen


@intrinsic
def nanoseconds(typingctx: Any) -> Any:
    """Read the monotonic clock of ``time.perf_counter_ns`` (on macOS: ``CLOCK_UPTIME_RAW``)."""

    def codegen(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        if WINDOWS:
            ticks = _performance_counter(builder, "QueryPerformanceCounter")
            frequency = _performance_counter(builder, "QueryPerformanceFrequency")
            billion = ir.Constant(_I64, 1_000_000_000)
            whole = builder.mul(builder.sdiv(ticks, frequency), billion)
            rest = builder.mul(builder.srem(ticks, frequency), billion)
            return builder.add(whole, builder.sdiv(rest, frequency))
        # struct timespec { int64 seconds, int64 nanoseconds } on every 64-bit Unix.
        moment = _scratch(builder, ir.ArrayType(_I64, 2))
        clock = 8 if sys.platform == "darwin" else 1  # CLOCK_UPTIME_RAW, CLOCK_MONOTONIC
        function_type = ir.FunctionType(_I32, [_I32, _BYTES])
        gettime = _declare(builder.module, function_type, "clock_gettime")
        builder.call(gettime, [ir.Constant(_I32, clock), builder.bitcast(moment, _BYTES)])
        zero = ir.Constant(_I32, 0)
        seconds = builder.load(builder.gep(moment, [zero, zero]))
        rest = builder.load(builder.gep(moment, [zero, ir.Constant(_I32, 1)]))
        return builder.add(builder.mul(seconds, ir.Constant(_I64, 1_000_000_000)), rest)

    return types.int64(), codegen


@intrinsic
def yield_core(typingctx: Any) -> Any:
    """Let another thread have the core for a moment, if one is waiting for it."""

    def codegen(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        function_type = ir.FunctionType(_I32, [])
        name = "SwitchToThread" if WINDOWS else "sched_yield"
        builder.call(_declare(builder.module, function_type, name), [])
        return context.get_dummy_value()

    return types.void(), codegen


@intrinsic
def doze(typingctx: Any) -> Any:
    """Sleep about 50 microseconds (on Windows: one tick), where there is no futex to wait on."""

    def codegen(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        if WINDOWS:
            sleep = _declare(builder.module, ir.FunctionType(ir.VoidType(), [_I32]), "Sleep")
            builder.call(sleep, [ir.Constant(_I32, 1)])
        else:
            sleep = _declare(builder.module, ir.FunctionType(_I32, [_I32]), "usleep")
            builder.call(sleep, [ir.Constant(_I32, 50)])
        return context.get_dummy_value()

    return types.void(), codegen


@intrinsic
def futex(typingctx: Any, address: Any, operation: Any, value: Any) -> Any:
    """Linux's ``futex(address, operation, value, no timeout)``; see :func:`futex_wait`."""
    signature = types.int64(types.int64, types.int64, types.int64)

    def codegen(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        if not FUTEX:
            return ir.Constant(_I64, -1)
        number = {"x86_64": 202, "amd64": 202}.get(platform.machine().lower(), 98)
        function_type = ir.FunctionType(_I64, [_I64], var_arg=True)
        syscall = _declare(builder.module, function_type, "syscall")
        nothing = ir.Constant(_I64, 0)
        arguments = [ir.Constant(_I64, number), *values, nothing, nothing, nothing]
        return builder.call(syscall, arguments)

    return signature, codegen


@intrinsic
def layer_threads(typingctx: Any, threads: Any) -> Any:
    """Set how many threads this thread's parallel loops use; return how many it was before.

    ``numba.set_num_threads`` does the same, but code that calls it cannot be cached on disk.
    """
    signature = types.int64(types.int64)

    def codegen(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        module = builder.module
        # A C int; Numba's own loops declare it as int64, and so must whoever shares their module.
        get = _declare(module, ir.FunctionType(_I64, []), "get_num_threads")
        put = _declare(module, ir.FunctionType(ir.VoidType(), [_I32]), "set_num_threads")
        before = builder.trunc(builder.call(get, []), _I32)
        builder.call(put, [builder.trunc(values[0], _I32)])
        return builder.sext(before, _I64)

    return signature, codegen


def _declare(module: Any, function_type: Any, name: str) -> Any:
    """Declare an external symbol; the loader finds it anew in every process."""
    known = module.globals.get(name)
    return known if known is not None else ir.Function(module, function_type, name)


def _scratch(builder: Any, kind: Any) -> Any:
    """Room on the stack, taken once at the function's entry and not at every turn of a loop."""
    with builder.goto_entry_block():
        return builder.alloca(kind)


def _performance_counter(builder: Any, name: str) -> Any:
    """Call one of Windows' two ``BOOL f(int64 *)`` that make up its monotonic clock."""
    cell = _scratch(builder, _I64)
    builder.call(_declare(builder.module, ir.FunctionType(_I32, [_I64.as_pointer()]), name), [cell])
    return builder.load(cell)


def compiled(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Compile a function that needs no GIL; keep the code on disk, where there is room for it.

    Numba keeps it beside this file, or else in the user's own cache. On an installation that can
    write to neither, it is compiled anew in every process.
    """

    def decorate(function: Callable[..., Any]) -> Any:
        try:
            return njit(nogil=True, error_model="numpy", cache=True, **options)(function)
        except RuntimeError:
            return njit(nogil=True, error_model="numpy", **options)(function)

    return decorate


# --------------------------------------------------------------------------------------------
# One chunk
# --------------------------------------------------------------------------------------------

# A trace buffer (see trace.py) begins with its capacity and the number of records asked for;
# after a header of eight int64 follow the records, five int64 each.
TRACE_CAPACITY, TRACE_NEXT, TRACE_HEADER, TRACE_RECORD = 0, 8, 64, 40


@compiled()
def run_chunk(function, chunk, arguments, trace, region, thread):
    """Do one chunk; with a trace buffer, write down who did it and when.

    Off, a trace costs one comparison a chunk; on, two readings of the clock and one atomic
    addition (about 0.1 µs). A full buffer drops records and counts them.
    """
    if trace == 0:
        call_chunk(function, chunk, arguments)
        return
    begin = nanoseconds()
    call_chunk(function, chunk, arguments)
    end = nanoseconds()
    slot = fetch_add(trace + TRACE_NEXT, 1)
    if slot < load(trace + TRACE_CAPACITY):
        record = trace + TRACE_HEADER + TRACE_RECORD * slot
        store(record, region)
        store(record + 8, chunk)
        store(record + 16, thread)
        store(record + 24, begin)
        store(record + 32, end)


@compiled()
def run_sequentially(function, arguments, chunks, trace, region):
    """Do all chunks, one after the other, on the calling thread."""
    for chunk in range(chunks):
        run_chunk(function, chunk, arguments, trace, region, 0)


# --------------------------------------------------------------------------------------------
# Python threads that wait in compiled code
# --------------------------------------------------------------------------------------------

# The control block that the caller and its workers share. What different threads write at the
# same time stands 128 bytes apart (two cache lines: cores fetch them in pairs).
EPOCH = 0  # how many regions there have been; the workers wait for it to change
CLAIM = 128  # chunks << 32 | next chunk to be taken
FINISHED = 256  # how many chunks of this region have been done and reported
SLEEPERS = 384  # workers that are parked, or about to be
CALLER_PARKED = 512  # 1 while the caller sleeps on FINISHED
FUNCTION, ARGUMENTS, TRACE, REGION = 640, 648, 656, 664  # the region itself
STOP = 768  # 1 when the workers shall go home
WORKER_SPIN, CALLER_SPIN, EAGER = 776, 784, 792  # ns awake before parking; ns before yielding
CONTROL_BYTES = 896

_FUTEX_WAIT, _FUTEX_WAKE = 128, 129  # FUTEX_WAIT, FUTEX_WAKE | FUTEX_PRIVATE_FLAG
_PAUSES = 32  # turns of a waiting loop between two looks at the clock


@compiled()
def futex_wait(address, value):
    """Sleep until woken, unless the int64's low half is no longer that of ``value``."""
    futex(address, _FUTEX_WAIT, value & 0xFFFFFFFF)


@compiled()
def futex_wake(address, count):
    """Wake up to ``count`` threads that sleep on ``address``."""
    futex(address, _FUTEX_WAKE, count)


@compiled()
def take_chunks(control, thread):
    """Claim chunks and do them until none is left, then report how many they were.

    The claim is one atomic addition to a word that holds the number of chunks beside the next
    one, so a thread that comes late, even from an earlier region, gets either a chunk of the
    region that is open now or none. A region stays open until every claimed chunk is reported, so
    what it is made of cannot change under a thread that holds one of its chunks.
    """
    done = 0
    while True:
        ticket = fetch_add(control + CLAIM, 1)
        chunk, chunks = ticket & 0xFFFFFFFF, ticket >> 32
        if chunk >= chunks:
            break
        function, arguments = load(control + FUNCTION), load(control + ARGUMENTS)
        trace, region = load(control + TRACE), load(control + REGION)
        run_chunk(function, chunk, arguments, trace, region, thread)
        done += 1
    if done == 0:
        return
    last = fetch_add(control + FINISHED, done) + done == chunks
    # The last one to report turns the light off. A caller that parks at this very moment either
    # shows its flag in time or finds FINISHED changed, and does not sleep.
    if last and load(control + CALLER_PARKED) != 0:
        futex_wake(control + FINISHED, 1)


@compiled()
def wait_awake(address, old, limit, eager):
    """Watch an int64 until it differs from ``old``, or ``limit`` ns have passed.

    After ``eager`` ns the core is offered to others at every look at the clock: with more threads
    than cores, the one we are waiting for may need this very core.
    """
    value = load(address)
    if value != old:
        return value
    start = nanoseconds()
    while True:
        for _ in range(_PAUSES):
            pause()
            value = load(address)
            if value != old:
                return value
        waited = nanoseconds() - start
        if waited > limit:
            return value
        if waited > eager:
            yield_core()


@compiled()
def open_region(control, function, arguments, chunks, trace, region):
    """Publish a region to the workers; return how many of them have to be woken."""
    store(control + FUNCTION, function)
    store(control + ARGUMENTS, arguments)
    store(control + TRACE, trace)
    store(control + REGION, region)
    store(control + FINISHED, 0)
    store(control + CLAIM, chunks << 32)  # from here on a straggler may claim
    fetch_add(control + EPOCH, 1)
    # Either we see a sleeper here, or it sees the new epoch before it falls asleep.
    return min(load(control + SLEEPERS), chunks - 1)


@compiled()
def close_region(control, chunks, park):
    """Take part in the region as thread 0; return when every chunk has been reported."""
    take_chunks(control, 0)
    limit, eager = load(control + CALLER_SPIN), load(control + EAGER)
    finished = load(control + FINISHED)
    while finished != chunks:
        seen = finished
        finished = wait_awake(control + FINISHED, seen, limit, eager)
        if finished != seen:
            continue
        if park:
            store(control + CALLER_PARKED, 1)
            futex_wait(control + FINISHED, seen)
            store(control + CALLER_PARKED, 0)
        else:
            doze()
        finished = load(control + FINISHED)


@compiled()
def run_on_workers(control, function, arguments, chunks, trace, region):
    """Run one region with workers that park on a futex."""
    sleepers = open_region(control, function, arguments, chunks, trace, region)
    if sleepers > 0:
        futex_wake(control + EPOCH, sleepers)
    close_region(control, chunks, True)


@compiled()
def stay_worker(control, thread, epoch, park):
    """Be a worker: wait for a region, take part in it, wait for the next.

    Returns
    -------
    int
        −1 when the pool has been closed. Without a futex (``park`` false) also the last epoch
        seen, when nothing has come for a while: the thread shall then sleep in Python, and come
        back. It has been counted as a sleeper already.
    """
    while True:
        limit, eager = load(control + WORKER_SPIN), load(control + EAGER)
        now = wait_awake(control + EPOCH, epoch, limit, eager)
        if load(control + STOP) != 0:
            return -1
        if now != epoch:
            epoch = now
            take_chunks(control, thread)
            continue
        fetch_add(control + SLEEPERS, 1)
        if park:
            futex_wait(control + EPOCH, epoch)
        elif load(control + EPOCH) == epoch:
            return epoch
        fetch_add(control + SLEEPERS, -1)


@compiled()
def leave_parking(control):
    """Take a worker that slept in Python off the count of sleepers."""
    fetch_add(control + SLEEPERS, -1)


@compiled()
def send_home(control):
    """Tell the workers that the pool is closed, and wake those that are parked."""
    store(control + STOP, 1)
    fetch_add(control + EPOCH, 1)
    futex_wake(control + EPOCH, 1 << 30)


# --------------------------------------------------------------------------------------------
# Numba's own parallel loop, on OpenMP or TBB
# --------------------------------------------------------------------------------------------


@compiled(parallel=True)
def run_on_layer(function, arguments, chunks, trace, region, threads, claim):
    """Run a region as a parallel loop over threads, each of which claims chunks till none is left.

    ``claim`` is the address of an int64 that holds the next chunk, like the counter behind OpenMP's
    ``schedule(dynamic, 1)``. Should the layer give two turns of the loop to one thread, the second
    finds nothing left.
    """
    before = layer_threads(threads)  # the user's own prange loops shall find their number again
    store(claim, 0)
    for thread in prange(threads):
        chunk = fetch_add(claim, 1)
        while chunk < chunks:
            run_chunk(function, chunk, arguments, trace, region, thread)
            chunk = fetch_add(claim, 1)
    layer_threads(before)


# --------------------------------------------------------------------------------------------
# nOS-V tasks: its functions are found in the process, where it has been preloaded
# --------------------------------------------------------------------------------------------

# The control block of the nosv runtime has FUNCTION … REGION as above, and:
TASK_CHUNKS, TASK_STRIDE, TASK_SELF = 0, 8, 16  # how many chunks and tasks; cell for nosv_attach
_WITHOUT_END = (1 << 64) - 1
_NOSV = {
    "attach": types.int32(types.int64, types.int64, types.int64, types.uint64),
    "detach": types.int32(types.uint64),
    "submit": types.int32(types.int64, types.uint64),
    "wait_all": types.int32(types.int64, types.uint64, types.uint64),
    "get_task_metadata": types.int64(types.int64),
    "get_current_logical_cpu": types.int32(),
}
_attach, _detach, _submit, _wait_all, _metadata, _logical_cpu = (
    types.ExternalFunction(f"nosv_{name}", signature) for name, signature in _NOSV.items()
)


@compiled()
def run_task(task):
    """Be the body of a task: do its chunk, and every ``TASK_STRIDE``-th one after it.

    A task carries two int64: the address of the control block, and its own number.
    """
    metadata = _metadata(task)
    control, chunk = load(metadata), load(metadata + 8)
    chunks, stride = load(control + TASK_CHUNKS), load(control + TASK_STRIDE)
    function, arguments = load(control + FUNCTION), load(control + ARGUMENTS)
    trace, region = load(control + TRACE), load(control + REGION)
    while chunk < chunks:
        run_chunk(function, chunk, arguments, trace, region, _logical_cpu())
        chunk += stride


@compiled()
def run_as_tasks(control, function, arguments, chunks, trace, region, tasks, count, label):
    """Submit ``count`` tasks, whose handles stand at ``tasks``, and wait for the last.

    Waiting is for those whom nOS-V knows. With a ``label`` the calling thread is made known
    ("attached") for the length of the region; with 0 it is so already.

    Returns
    -------
    int
        0, or nOS-V's (negative) error.
    """
    store(control + TASK_CHUNKS, chunks)
    store(control + TASK_STRIDE, count)
    store(control + FUNCTION, function)
    store(control + ARGUMENTS, arguments)
    store(control + TRACE, trace)
    store(control + REGION, region)
    if label != 0:
        status = _attach(control + TASK_SELF, 0, label, 0)
        if status != 0:
            return status
    submitted = 0
    status = 0
    while submitted < count and status == 0:
        status = _submit(load(tasks + 8 * submitted), 0)
        submitted += status == 0
    if submitted > 0:
        waited = _wait_all(tasks, submitted, _WITHOUT_END)
        if status == 0:
            status = waited
    if label != 0:
        detached = _detach(0)
        if status == 0:
            status = detached
    return status


def task_callback() -> Any:
    """Compile ``run_task`` to the native ``void f(nosv_task_t)`` that nOS-V calls."""

    def callback(task: Any) -> None:
        run_task(task)

    signature = types.void(types.int64)
    try:
        return cfunc(signature, cache=True)(callback)
    except RuntimeError:  # no room for a cache, see compiled()
        return cfunc(signature)(callback)
