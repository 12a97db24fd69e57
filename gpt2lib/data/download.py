"""Two corpora from the network, checked before they are believed."""

from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path
from typing import NamedTuple

from gpt2lib._files import atomic_write

__all__ = ["DOWNLOADS", "Download", "cache_folder", "fetch"]


class Download(NamedTuple):
    """A file that is known by its size and digest."""

    url: str
    file: str
    size: int
    sha256: str


DOWNLOADS = {
    # Karpathy's selection of Shakespeare's plays, from char-rnn.
    "tinyshakespeare": Download(
        "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt",
        "tinyshakespeare.txt",
        1_115_394,
        "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed",
    ),
    # Eldan and Li's validation file (21 990 stories), at a fixed revision. The training file is
    # a hundred times as large; give its path if you have it.
    "tinystories": Download(
        "https://huggingface.co/datasets/roneneldan/TinyStories/resolve/"
        "f54c09fd23315a6f9c86f9dc80f725de7d8f9c64/TinyStories-valid.txt",
        "TinyStories-valid.txt",
        19_447_282,
        "94e431816c4cce81ff71e4408ff8d3bda9a42e8d2663986697c3954288cb38b4",
    ),
}


def cache_folder() -> Path:
    """Return where downloads are kept: ``$GPT2LIB_CACHE``, else the system's place for caches."""
    if chosen := os.environ.get("GPT2LIB_CACHE"):
        return Path(chosen).expanduser()
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or "~/AppData/Local"
    else:
        base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "gpt2lib"


def fetch(name: str) -> Path:
    """Return the path of a corpus of :data:`DOWNLOADS`, downloading it the first time.

    Raises
    ------
    ValueError
        Without a network, in one line that says which file to put where; and where what came, or
        what lies in the cache, has another size or SHA-256.
    """
    source = DOWNLOADS[name]
    path = cache_folder() / source.file
    if not path.exists():
        data = _download(name, source, path)
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(path) as temporary:
            temporary.write_bytes(data)
        return path
    if fault := _fault(path.read_bytes(), source):
        raise ValueError(f"{path}: {fault}; delete it, and it will be downloaded again")
    return path


def _download(name: str, source: Download, path: Path) -> bytes:
    import urllib.request  # a tenth of a second that only a download needs

    try:
        with urllib.request.urlopen(source.url, timeout=30) as answer:
            data: bytes = answer.read(source.size + 1)  # never more than can be right
    except OSError as error:
        raise ValueError(
            f"{name}: cannot download it ({error}); put the file from {source.url} "
            f"({source.size} bytes) at {path}"
        ) from error
    if fault := _fault(data, source):
        raise ValueError(f"{name}: {source.url} gave another file: {fault}; nothing was kept")
    return data


def _fault(data: bytes, source: Download) -> str:
    """Say how ``data`` differs from what is expected; empty where it does not."""
    if len(data) != source.size:
        more = "more than " if len(data) == source.size + 1 else ""
        return (
            f"{more}{min(len(data), source.size) if more else len(data)} bytes, not {source.size}"
        )
    if (digest := hashlib.sha256(data).hexdigest()) != source.sha256:
        return f"SHA-256 {digest}, not {source.sha256}"
    return ""
