"""From a readable kernel body to a native function that any runtime can call.

A *kernel* is a plain Python function over one chunk ``[lo, hi)`` of its work::

    @kernel
    def residual_forward_elements(lo: int, hi: int, x: Real1, y: Real1, out: Real1) -> None:
        a, b, c = x[lo:hi], y[lo:hi], out[lo:hi]
        for i in range(c.size):
            c[i] = a[i] + b[i]

Its annotations say what each argument is (``Real2``: a C-contiguous 2-D array of the model's own
type). A runtime, which knows nothing of arrays, wants a native function
``void f(int64 chunk, void *block)``. So for each kernel, and for float32 and float64 each, this
module does three things when it is first used:

1. It writes the *entry*: a dozen lines of Python that read pointers, lengths and scalars from a
   block of 8-byte words, make arrays of them, work out ``lo`` and ``hi``, and call the body.
2. It has Numba compile entry and body into one native function that holds no GIL.
3. It keeps the machine code on disk, under a name that holds a digest of everything the code
   depends on. No edit of a helper or a constant can ever meet old machine code.

The block that goes with a call is made by :meth:`Kernel.pack`.

For the digest to be complete there is one rule: **a kernel uses names of its own file and of the
files of this folder that begin with an underscore, and of nothing else of gpt2lib.**
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import inspect
import os
import shutil
import struct
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, NamedTuple, get_type_hints

import llvmlite
import numba
import numpy as np
from numba.core import types
from numba.extending import intrinsic

from gpt2lib._files import atomic_write
from gpt2lib.runtimes import blas_single_thread


class Kind(NamedTuple):
    """What a kernel's argument is: its element type and its number of dimensions (0: a scalar)."""

    element: str  # "real" (float32 or float64, as the model has it), "double", "int"
    dimensions: int


# The annotations of a kernel's arguments. To a type checker they are arrays and numbers.
Real = Annotated[float, Kind("real", 0)]
Real1 = Annotated[np.ndarray, Kind("real", 1)]
Real2 = Annotated[np.ndarray, Kind("real", 2)]
Real3 = Annotated[np.ndarray, Kind("real", 3)]
Real4 = Annotated[np.ndarray, Kind("real", 4)]
Double1 = Annotated[np.ndarray, Kind("double", 1)]
Int = Annotated[int, Kind("int", 0)]
Int1 = Annotated[np.ndarray, Kind("int", 1)]

# Reductions may be reordered into vector lanes, a*b + c may become one FMA. Never "nnan" or "ninf":
# infinities and NaNs keep their meaning.
VECTORIZE = frozenset({"contract", "reassoc", "nsz"})
CONTRACT = frozenset({"contract"})  # where the order of the operations is the algorithm

REALS = {"f": "float32", "d": "float64"}  # dtype.char to dtype.name, which takes NumPy 2 µs
_OPTIONS: dict[str, Any] = {"error_model": "numpy", "nogil": True}
# A part becomes part of every entry that calls it. Otherwise a process that compiles it would have
# two copies, the part's own and the entry's, optimised apart, and call the former. The next
# process, with the entry from the disk, has only the latter: other sums, other last bits.
_PART: dict[str, Any] = {
    **_OPTIONS,
    "no_cpython_wrapper": True,
    "no_cfunc_wrapper": True,
    "forceinline": True,
}
INLINED: Any = {**_PART, "fastmath": set(CONTRACT)}  # numba.extending.overload's jit_options
_FIRST: Callable[[Any], Any] = ctypes.c_char.from_buffer
_KERNELS: dict[str, Kernel] = {}
_LOCK = threading.Lock()


class Kernel:
    """A chunk body and its native entries, one for each type of real number, made when first used.

    Parameters
    ----------
    body
        ``body(lo, hi, *arguments)``, every argument annotated with one of the kinds above.
    fastmath
        LLVM's licences to reorder floating-point arithmetic in this body.
    """

    def __init__(self, body: Callable[..., None], fastmath: frozenset[str] = VECTORIZE) -> None:
        self.name = body.__name__
        self.body = body
        self.__wrapped__ = body
        self.__doc__ = body.__doc__
        self.fastmath = fastmath
        hints = get_type_hints(body, include_extras=True)
        names = list(inspect.signature(body).parameters)[2:]
        self.arguments = {name: _kind(body.__name__, name, hints[name]) for name in names}
        self._kinds = tuple(self.arguments.values())
        self._layout = struct.Struct("qq" + "".join(_words(kind) for kind in self._kinds))
        self._block = ctypes.c_int64 * (self._layout.size // 8)
        self._real = next(
            (i for i, k in enumerate(self._kinds) if k.element == "real" and k[1]), -1
        )
        self._entries: dict[str, Any] = {}
        self.number = 0  # set when registered: what a trace knows the kernel by
        # BLAS on one thread inside every chunk: one level of parallelism.
        self.guard = blas_single_thread if "gemm" in self.arguments else contextlib.nullcontext

    def pack(self, extent: int, size: int, arguments: tuple[Any, ...]) -> ctypes.Array:
        """Lay the arguments out as the entry reads them: total work, chunk size, each argument.

        An array becomes its address and its lengths, a scalar one word. The arrays must outlive
        the call.
        """
        words: list[Any] = [extent, size]
        for kind, value in zip(self._kinds, arguments, strict=True):
            if kind[1]:
                words.append(_address(value))
                words += value.shape
            else:
                words.append(value)
        block = self._block()
        self._layout.pack_into(block, 0, *words)
        return block

    def address(self, arguments: tuple[Any, ...]) -> int:
        """Return the entry's address for arguments of these types; compile it if need be."""
        real = REALS[arguments[self._real].dtype.char] if self._real >= 0 else "float32"
        entry = self._entries.get(real)
        return entry.address if entry is not None else self.entry(real).address

    def entry(self, real: str) -> Any:
        """Return the native entry for ``real`` ("float32" or "float64"); compile it if need be."""
        with _LOCK:
            if real not in self._entries:
                self._entries[real] = self.compile(real)
            return self._entries[real]

    def compile(self, real: str) -> Any:
        """Compile the entry for ``real`` ("float32" or "float64"), or load it from the disk."""
        text = entry_source(self.name, self._kinds, real)
        signature = types.void(types.int64, types.voidptr)
        return native(self.name, real, text, signature, body=part(self.body, self.fastmath))


def _address(array: np.ndarray[Any, Any]) -> int:
    """Return where an array's numbers begin.

    By way of its buffer, which is four times as fast as NumPy's own ways; these take what offers
    no such buffer, an array that is empty or only to be read.
    """
    try:
        return ctypes.addressof(_FIRST(array))
    except (TypeError, ValueError):
        return int(array.__array_interface__["data"][0])


def native(name: str, real: str, text: str, signature: Any, **scope: Any) -> Any:
    """Compile the function ``entry`` of a Python text for callers in C, or load it from the disk.

    Parameters
    ----------
    name, real
        What the entry is for; with a digest they name its file in the cache.
    text
        The source of ``entry``. It may use ``carray``, ``pointer``, ``np`` and ``scope``.
    signature
        Its native signature.
    **scope
        The compiled functions that it calls; the first one's source file goes into the digest.

    Returns
    -------
    numba.core.ccallback.CFunc
        Its ``address`` is what a runtime, or another kernel, calls.
    """
    body = next(iter(scope.values())).py_func
    source = Path(inspect.getfile(body)).read_bytes()
    path = cache_folder() / f"{name}_{real}_{_digest(source, text.encode())}.py"
    if not path.exists():  # two processes write the same bytes: who comes last changes nothing
        with atomic_write(path) as temporary:
            temporary.write_text(text, encoding="utf-8")
    scope |= {"pointer": pointer, "carray": numba.carray, "np": np}
    scope["__name__"] = body.__module__  # Numba imports it when it loads the cached code
    exec(compile(text, str(path), "exec"), scope)
    with _announced(path):
        return numba.cfunc(signature, cache=True, **_OPTIONS)(scope["entry"])


def emitted(function: Callable[..., Any]) -> Any:
    """Make an operation of compiled code out of LLVM instructions (Numba's ``intrinsic``)."""
    return intrinsic(function)


def part(function: Callable[..., Any], fastmath: frozenset[str] = VECTORIZE) -> Any:
    """Compile a function that kernels call (decorator); Python itself cannot call it.

    Without the wrappers for calls from Python it compiles in half the time.
    """
    return numba.njit(fastmath=set(fastmath), **_PART)(function)


def exact_part(function: Callable[..., Any]) -> Any:
    """Do as ``part`` does, for a function whose operations keep the order they are written in."""
    return part(function, CONTRACT)


def kernel(body: Callable[..., None]) -> Kernel:
    """Make a kernel of a chunk body (decorator); its sums may be reordered into vector lanes."""
    return _register(Kernel(body))


def exact_kernel(body: Callable[..., None]) -> Kernel:
    """Make a kernel whose operations keep the order in which they are written (decorator)."""
    return _register(Kernel(body, CONTRACT))


def _register(made: Kernel) -> Kernel:
    if made.name in _KERNELS:
        raise ValueError(f"two kernels are called {made.name!r}")
    _KERNELS[made.name] = made
    made.number = len(_KERNELS)
    return made


def kernels() -> dict[str, Kernel]:
    """Return every kernel by name."""
    return dict(_KERNELS)


# --- The entry -----------------------------------------------------------------------------------


def _kind(kernel: str, name: str, hint: Any) -> Kind:
    """Read an argument's kind off its annotation."""
    kinds = [kind for kind in getattr(hint, "__metadata__", ()) if isinstance(kind, Kind)]
    if not kinds:
        raise TypeError(f"{kernel}: the argument {name} must be annotated as Real2, Int, ...")
    return kinds[0]


def _words(kind: Kind) -> str:
    """Return the struct letters of one argument in the block."""
    if kind.dimensions:
        return "q" + "q" * kind.dimensions
    return "q" if kind.element == "int" else "d"


def entry_source(name: str, kinds: tuple[Kind, ...], real: str) -> str:
    """Write the entry of a kernel as Python: it unpacks the block and calls the body."""
    element = {"real": f"np.{real}", "double": "np.float64", "int": "np.int64"}
    count = 2 + sum(len(_words(kind)) for kind in kinds)
    lines = [
        f'"""The entry of the kernel {name} for {real}; written by gpt2lib.kernels._compile."""',
        "",
        "",
        "def entry(chunk, block):",
        f"    words = carray(block, ({count},), np.int64)",
        f"    reals = carray(block, ({count},), np.float64)",
        "    lo = chunk * words[1]",
        "    hi = min(lo + words[1], words[0])",
    ]
    at = 2
    for number, kind in enumerate(kinds):
        dtype = element[kind.element]
        if kind.dimensions:
            shape = ", ".join(f"words[{at + 1 + i}]" for i in range(kind.dimensions))
            value = f"carray(pointer(words[{at}]), ({shape},), {dtype})"
        else:
            value = f"words[{at}]" if kind.element == "int" else f"{dtype}(reals[{at}])"
        lines.append(f"    a{number} = {value}")
        at += len(_words(kind))
    names = ", ".join(["lo", "hi", *(f"a{i}" for i in range(len(kinds)))])
    return "\n".join([*lines, f"    body({names})", ""])


@emitted
def pointer(typingctx, address):
    """Turn an address (an integer) into a ``void *``."""

    def codegen(context, builder, signature, args):
        return builder.inttoptr(args[0], context.get_value_type(types.voidptr))

    return types.voidptr(address), codegen


@part
def contiguous(row):
    """Say of a 1-D view that its numbers lie side by side, which only the caller knows.

    Numba calls a slice of a view "any layout", and loops over it do not become vector code.
    """
    return numba.carray(pointer(row.ctypes.data), (row.size,), row.dtype)


# --- The cache -----------------------------------------------------------------------------------


def _digest(*parts: bytes) -> str:
    key = hashlib.sha256()
    for part in parts:
        key.update(len(part).to_bytes(8, "little") + part)
    return key.hexdigest()[:16]


def common_digest() -> str:
    """Return a digest of what all machine code depends on.

    The files that kernels share, the versions of Numba, LLVM and Python, and the settings of Numba
    that change code. (Numba itself also keys on the processor.)
    """
    shared = [path.read_bytes() for path in sorted(Path(__file__).parent.glob("_*.py"))]
    settings = sorted(
        item
        for item in os.environ.items()
        if item[0].startswith("NUMBA_") and not _harmless(item[0])
    )
    versions = [numba.__version__, llvmlite.__version__, sys.version, settings]
    return _digest(repr(versions).encode(), *shared)


def _harmless(setting: str) -> bool:
    """Tell whether a setting of Numba leaves machine code as it is: where caches lie, threads."""
    return "CACHE" in setting or "THREAD" in setting


def _user_cache() -> Path:
    """Return where this system keeps a user's caches."""
    if chosen := os.environ.get("GPT2LIB_CACHE_DIR"):
        return Path(chosen)
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local"
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "gpt2lib"


_FOLDER: list[Path] = []


def cache_folder() -> Path:
    """Return the folder of the compiled kernels: ``$GPT2LIB_CACHE_DIR`` or the user's cache.

    Where neither can be written, a folder that lasts as long as the process does.
    """
    if not _FOLDER:
        try:
            folder = _user_cache() / f"kernels-{common_digest()}"
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=folder):
                pass
            _forget_old(folder)
        except (OSError, RuntimeError):  # RuntimeError: no home directory
            folder = Path(tempfile.mkdtemp(prefix="gpt2lib-kernels-"))
            import atexit

            atexit.register(shutil.rmtree, folder, ignore_errors=True)
        _FOLDER.append(folder)
    return _FOLDER[0]


def _forget_old(current: Path, *, keep: int = 4, days: float = 2.0) -> None:
    """Delete the code of earlier versions, except the latest few and what was used lately."""
    with contextlib.suppress(OSError):
        os.utime(current)
        others = [path for path in current.parent.glob("kernels-*") if path != current]
        others.sort(key=lambda path: path.stat().st_mtime, reverse=True)
        for path in others[keep:]:
            if path.stat().st_mtime < time.time() - days * 86400:
                shutil.rmtree(path, ignore_errors=True)


# --- A word on the screen ------------------------------------------------------------------------

_SPENT = {"seconds": 0.0, "kernels": 0}


@contextlib.contextmanager
def _announced(entry: Path) -> Iterator[None]:
    """Say on stderr, once, that kernels are being compiled; on a terminal also which."""
    if any((entry.parent / "__pycache__").glob(f"{entry.stem}.*")):  # Numba's files: compiled
        yield
        return
    if not _SPENT["kernels"] and sys.stderr is not None:
        print(
            f"gpt2lib: compiling kernels for this processor, once (kept in {entry.parent.parent}; "
            "under a minute in all).",
            file=sys.stderr,
            flush=True,
        )
    begin = time.perf_counter()
    yield
    _SPENT["kernels"] += 1
    _SPENT["seconds"] += time.perf_counter() - begin
    if sys.stderr is not None and sys.stderr.isatty():
        done = f"{_SPENT['kernels']:.0f} kernels compiled in {_SPENT['seconds']:.0f} s"
        print(f"\rgpt2lib: {done}\x1b[K", end="", file=sys.stderr, flush=True)
