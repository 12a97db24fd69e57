"""Which shared libraries this process has really loaded: asked of the loader, not guessed."""

from __future__ import annotations

import ctypes
import functools
import os
import platform
import re
import sys
from pathlib import Path


def loaded_libraries() -> list[str]:
    """Return the files that are mapped into this process (Linux; elsewhere an empty list)."""
    try:
        lines = Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
    fields = (line.split(maxsplit=5) for line in lines)
    return sorted({field[5] for field in fields if len(field) == 6 and field[5].startswith("/")})


class _DlInfo(ctypes.Structure):
    """``Dl_info`` of ``dladdr``: which file an address belongs to."""

    _fields_ = (
        ("file", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("symbol", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
    )


def file_of_symbol(name: str, library: str | None = None) -> str:
    """Return the file that defines the function ``name``, as the loader resolves it; or ``""``.

    Parameters
    ----------
    name
        The function, such as ``"GOMP_parallel"``.
    library
        A loaded library that calls it. The loader looks in the global scope first (the program,
        what was preloaded, their dependencies), then among that library's own dependencies; so
        does this function, and it ends at the same place.
    """
    if sys.platform == "win32":
        return ""
    for handle in (None, library) if library else (None,):
        try:
            function = getattr(ctypes.CDLL(handle), name)
        except (AttributeError, OSError):
            continue
        path = file_of_address(ctypes.cast(function, ctypes.c_void_p).value or 0)
        if path:
            return path
    return ""


def file_of_address(address: int) -> str:
    """Return the file into which ``address`` was loaded, or ``""``."""
    try:
        dladdr = ctypes.CDLL(None).dladdr
    except (AttributeError, OSError, TypeError):
        return ""
    dladdr.argtypes = [ctypes.c_void_p, ctypes.POINTER(_DlInfo)]
    info = _DlInfo()
    if not address or not dladdr(address, ctypes.byref(info)) or not info.file:
        return ""
    path = Path(os.fsdecode(info.file))
    return str(path.resolve()) if path.exists() else str(path)


# What a compiler or a maker leaves in a shared library about its version.
_MARKS = (
    rb"Intel\(R\) OMP version: [ -~]{1,40}",
    rb"LLVM OMP version: [ -~]{1,40}",
    rb"TBB: VERSION\s+[ -~]{1,30}",
    rb"GCC: \([ -~]{1,60}\) [0-9.]+",
    rb"(?:[A-Za-z]+ )?clang version [0-9.]+[ -~]{0,40}",
)


@functools.lru_cache(maxsize=32)
def version_of_file(path: str) -> str:
    """Return what a shared library says of its own version, or ``""`` where it says nothing."""
    if not path:
        return ""
    try:
        content = Path(path).read_bytes()
    except OSError:
        return ""
    for mark in _MARKS:
        found = re.search(mark, content)
        if found:
            return re.sub(r"\s+", " ", found.group().decode("ascii", "replace")).strip()
    # A stripped GNU OpenMP says no more than which generation of its functions it has.
    symbols = re.findall(rb"\0GOMP_(\d+)\.(\d+)(?:\.(\d+))?(?=\0)", content)
    if symbols:
        newest = max(tuple(int(part or 0) for part in symbol) for symbol in symbols)
        return "GNU OpenMP, functions up to GOMP_" + ".".join(str(part) for part in newest)
    return ""


def c_library() -> dict[str, str]:
    """Return the C library under Python, as ``library`` and ``version`` of ``describe()``."""
    name, version = platform.libc_ver()
    return {"library": file_of_symbol("sched_yield"), "version": f"{name} {version}".strip()}
