"""Files that are either whole or not there: written beside their place, then moved into it."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import tempfile
import threading
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
    disks) nothing is held and nobody is refused. A thread may hold a folder several times over.

    Parameters
    ----------
    folder
        It must exist.

    Raises
    ------
    ValueError
        While somebody else holds it: another process, or another thread of this one.
    """
    hold = _hold(folder)
    try:
        yield
    finally:
        with _HOLDS_LOCK:
            hold.count -= 1
            if hold.count == 0:
                del _HOLDS[hold.key]
                if hold.descriptor is not None:
                    os.close(hold.descriptor)


@dataclasses.dataclass
class _Hold:
    """A folder that this process holds: which one, for which thread, how many times over."""

    key: tuple[int, int]
    thread: int
    descriptor: int | None
    count: int = 1


_HOLDS: dict[tuple[int, int], _Hold] = {}
_HOLDS_LOCK = threading.RLock()


def _hold(folder: str | os.PathLike[str]) -> _Hold:
    """Take hold of a folder, or once more if it is this thread's already."""
    status = Path(folder).stat()
    key, thread = (status.st_dev, status.st_ino), threading.get_ident()
    with _HOLDS_LOCK:
        hold = _HOLDS.get(key)
        if hold is None:
            hold = _HOLDS[key] = _Hold(key, thread, _locked(folder))
        elif hold.thread == thread:
            hold.count += 1
        else:
            raise _in_use(folder)
        return hold


def _in_use(folder: str | os.PathLike[str]) -> ValueError:
    return ValueError(
        f"{folder} is in use: a run is writing to it. Wait for its end, or choose another folder."
    )


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
        raise _in_use(folder) from None
    except OSError:  # a disk that knows no locks
        os.close(descriptor)
        return None
    return descriptor


@contextlib.contextmanager
def new_folder(folder: str | os.PathLike[str]) -> Iterator[Path]:
    """Make a folder and those above it; take away again what stayed empty if the block raises.

    Parameters
    ----------
    folder
        It may be there already.

    Yields
    ------
    Path
        The folder.

    Raises
    ------
    ValueError
        Where it cannot be made: because of a file of that name, or as the system says.
    """
    path = Path(folder)
    try:
        made = [p for p in (path, *path.parents) if not p.exists()]  # the innermost first
        path.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise ValueError(
            f"{path} cannot be a folder: a file is in its place. Name another."
        ) from None
    except OSError as error:
        reason = error.strerror or str(error)
        raise ValueError(f"the folder {path} cannot be made: {reason}. Name another.") from None
    try:
        yield path
    except BaseException:
        with contextlib.suppress(OSError):  # it holds something: that stays
            for empty in made:
                empty.rmdir()
        raise


def check_regular(path: str | os.PathLike[str]) -> None:
    """Refuse what is no file: reading a pipe or a device might never end.

    Raises
    ------
    ValueError
        Naming it. What does not exist passes: who opens it will say so.
    """
    path = Path(path)
    if path.exists() and not path.is_file():
        what = "a folder" if path.is_dir() else "a pipe or a device"
        raise ValueError(f"{path} is {what}, not a file. Name a file.")


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
