"""Files that are either whole or not there: written beside their place, then moved into it."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def atomic_write(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Hand out a temporary path beside ``path``; move it into place when the block succeeds.

    A reader meets either the old file or the new one, never half of either. If the block raises
    (a full disk, Ctrl-C), the old file stays as it was and the temporary one is removed.

    Parameters
    ----------
    path
        Where the finished file shall stand. Its folder must exist.

    Yields
    ------
    Path
        A path in the same folder, to be written by the caller and closed before the block ends.

    Raises
    ------
    OSError
        Where the folder cannot be written to.
    """
    target = Path(path)
    handle, name = tempfile.mkstemp(
        prefix=f".{target.name[:40]}.", suffix=".part", dir=target.parent
    )
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())  # the bytes must be on the disk before the name is
        temporary.chmod(0o666 & ~_umask())
        temporary.replace(target)
        _sync_folder(target.parent)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


@contextlib.contextmanager
def one_writer(folder: str | os.PathLike[str]) -> Iterator[None]:
    """Hold a folder, so that no two programs write one run's files in turns.

    The hold is the system's lock on the folder itself (``flock``): it leaves no file behind, and
    ends with the process, however that ends. Where there is no such lock (Windows, some network
    disks) nothing is held and nobody is refused.

    Parameters
    ----------
    folder
        It must exist.

    Raises
    ------
    ValueError
        While somebody else holds it: another process, or an unfinished loop of this one.
    """
    descriptor = _locked(folder)
    try:
        yield
    finally:
        if descriptor is not None:
            os.close(descriptor)


def _locked(folder: str | os.PathLike[str]) -> int | None:
    """Open and lock a folder; return None where the system has no such lock."""
    try:
        import fcntl
    except ImportError:
        return None
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise ValueError(
            f"{folder} is in use: a run is writing to it. Wait for its end, or choose another "
            "folder."
        ) from None
    except OSError:  # a disk that knows no locks
        os.close(descriptor)
        return None
    return descriptor


def _umask() -> int:
    """Return the process's file creation mask (reading it means setting it, so put it back)."""
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _sync_folder(folder: Path) -> None:
    """Make the rename itself durable, where the system lets a folder be opened (not Windows)."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
