"""Safetensors files that vouch for themselves: a SHA-256 over every byte of the file.

The digest stands in the file's own metadata. It is taken over the file with 64 zeros in the place
of the digest, so that not a single byte, in header or tensors, is left out. A CRC of each tensor
tells, when the digest is wrong, *where* the damage is.
"""

from __future__ import annotations

import hashlib
import json
import os
import zlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from gpt2lib._files import atomic_write
from gpt2lib.weights.safetensors import Array, TensorFile, write_in_place

_KEY = "sha256"
_BLANK = "0" * 64
_CRCS = "crc32"
_BLOCK = 1 << 20  # bytes hashed at once


def write_sealed(
    path: str | os.PathLike[str], tensors: Mapping[str, Array], metadata: Mapping[str, str]
) -> None:
    """Write a safetensors file with a digest over all its bytes, whole or not at all.

    Parameters
    ----------
    path
        The file.
    tensors
        Name to array.
    metadata
        Strings to carry beside them; ``sha256`` and ``crc32`` are added.

    Raises
    ------
    OSError
        When it cannot be written; an older file of that name is then still there.
    """
    crcs = {name: _crc(array) for name, array in tensors.items()}
    notes = {**metadata, _CRCS: json.dumps(crcs), _KEY: _BLANK}
    with atomic_write(path) as temporary:
        write_in_place(temporary, tensors, notes)
        at = _digest_place(temporary, _BLANK)
        digest = _digest(temporary, at)
        with temporary.open("rb+") as file:
            file.seek(at)
            file.write(digest.encode("ascii"))


def open_sealed(path: str | os.PathLike[str], *, remedy: str) -> TensorFile:
    """Open a file that :func:`write_sealed` wrote, after checking every byte of it.

    Parameters
    ----------
    path
        The file.
    remedy
        What to do about a damaged one; the end of the error message.

    Raises
    ------
    ValueError
        When a byte is not what was written; names the file, the place and the remedy.
    """
    path = Path(path)
    try:
        file = TensorFile(path)
    except ValueError as error:
        raise ValueError(f"{error} {remedy}") from None
    expected = file.metadata.get(_KEY)
    if expected is None:
        raise ValueError(f"{path} carries no digest, so it was not written by gpt2lib. {remedy}")
    try:
        found = _digest(path, _digest_place(path, expected))
    except ValueError:
        found = "none"
    if found != expected:
        raise ValueError(
            f"{path} is damaged in {_damaged_part(file)}: its SHA-256 should be "
            f"{expected[:16]}…, found {found[:16]}…. {remedy}"
        )
    return file


def _digest(path: Path, at: int) -> str:
    """Return the SHA-256 of a file, with zeros where its own digest stands."""
    sha = hashlib.sha256()
    with path.open("rb") as file:
        sha.update(file.read(at))
        sha.update(_BLANK.encode("ascii"))
        file.seek(at + len(_BLANK))
        while block := file.read(_BLOCK):
            sha.update(block)
    return sha.hexdigest()


def _digest_place(path: Path, digest: str) -> int:
    """Return where in the file its digest stands: in the JSON header, after its key."""
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        header = file.read(length)
    pattern = json.dumps({_KEY: digest}, separators=(",", ":"))[1:-1].encode("ascii")
    place = header.find(pattern)
    if place < 0 or len(digest) != len(_BLANK):
        raise ValueError(f"{path}: the digest is not where it should be.")
    return 8 + place + len(pattern) - len(_BLANK) - 1  # a quotation mark follows it


def _damaged_part(file: TensorFile) -> str:
    """Name the first tensor whose CRC is wrong, with its place; else it is the header."""
    try:
        crcs = json.loads(file.metadata.get(_CRCS, "{}"))
        for name in file:
            if crcs.get(name) != _crc(file.raw(name)):
                return f"the tensor {name!r} (from byte {file.place(name)} on)"
    except (ValueError, AttributeError):
        pass
    return "its header"


def _crc(array: Array) -> int:
    return zlib.crc32(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
