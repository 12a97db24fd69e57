"""Token files in llm.c's format, so that both programs read both.

====================  =====================================================
bytes                 content
====================  =====================================================
0 … 1023              256 little-endian int32: magic 20240520, version 1,
                      number of tokens, then zeros
1024 …                the tokens, little-endian uint16
====================  =====================================================

Source: llm.c, ``dev/data/data_common.py`` (``write_datafile``) and ``llmc/dataloader.h``.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from gpt2lib._files import atomic_write

__all__ = ["ShardWriter", "read_shard", "write_shard"]

MAGIC, VERSION = 20240520, 1
HEADER_BYTES = 256 * 4
LARGEST_ID = 2**16 - 1
_MOST_TOKENS = 2**31 - 1  # the count is an int32

_OTHERS = {  # what else begins with such a number, so that the message can say it
    20240801: "a token file of uint32 (llm.c's version 7, for Llama 3's larger vocabulary)",
    20240326: "llm.c model weights, not tokens",
    20240327: "an llm.c debug state, not tokens",
    20240522: "an llm.c evaluation file, not tokens",
}


def check_ids(tokens: np.ndarray) -> np.ndarray:
    """Return ``tokens`` as uint16; refuse what would not be the same number there."""
    tokens = np.asarray(tokens)
    if tokens.ndim != 1:
        raise ValueError(f"tokens have shape {tokens.shape}; a shard holds one row of them")
    if tokens.size and not np.issubdtype(tokens.dtype, np.integer):
        raise ValueError(f"tokens are {tokens.dtype}; a shard holds whole numbers")
    if tokens.size and (tokens.min() < 0 or tokens.max() > LARGEST_ID):
        place = int(np.argmax((tokens < 0) | (tokens > LARGEST_ID)))
        raise ValueError(
            f"token {place} is {tokens[place]}; a uint16 shard holds 0 … {LARGEST_ID}, and any "
            f"other would come back as a different token"
        )
    return tokens.astype("<u2")


class ShardWriter:
    """Writes a shard piece by piece; the header, which needs the count, comes last."""

    def __init__(self, path: Path):
        self.count = 0
        self._file = path.open("wb")
        self._file.write(bytes(HEADER_BYTES))

    def write(self, tokens: np.ndarray) -> None:
        """Append tokens; refuse ids that do not fit before any of them is written."""
        checked = check_ids(tokens)
        if self.count + checked.size > _MOST_TOKENS:
            raise ValueError(f"a shard holds at most {_MOST_TOKENS} tokens; write several")
        self._file.write(checked.tobytes())
        self.count += checked.size

    def finish(self) -> None:
        """Write the header and close."""
        header = np.zeros(256, dtype="<i4")
        header[:3] = MAGIC, VERSION, self.count
        self._file.seek(0)
        self._file.write(header.tobytes())
        self._file.close()

    def abandon(self) -> None:
        """Close without a header: what was written is not a shard."""
        self._file.close()


@contextmanager
def open_shard(path: str | os.PathLike[str]) -> Iterator[ShardWriter]:
    """Open a shard to be written; it appears under its name when the block has succeeded."""
    with atomic_write(path) as temporary:
        writer = ShardWriter(temporary)
        try:
            yield writer
            writer.finish()
        finally:
            writer.abandon()  # closing twice does no harm


def write_shard(path: str | os.PathLike[str], tokens: np.ndarray) -> None:
    """Write one shard.

    Parameters
    ----------
    path
        Where it shall stand; an older file of that name is replaced as a whole.
    tokens
        Ids, shape (n,), of any integer type.

    Raises
    ------
    ValueError
        Where an id is negative or above 65535, before anything is written.
    """
    checked = check_ids(tokens)
    with open_shard(path) as shard:
        shard.write(checked)


def read_shard(path: str | os.PathLike[str]) -> np.ndarray:
    """Map a shard into memory.

    Parameters
    ----------
    path
        A file in llm.c's format.

    Returns
    -------
    ndarray
        Ids, shape (n,), uint16, read-only. They stay on the disk until they are looked at.

    Raises
    ------
    ValueError
        Where magic number, version, byte order or length are not what they should be: it says
        what was expected, and what the file seems to be.
    """
    path = Path(path)
    with path.open("rb") as file:
        raw = file.read(HEADER_BYTES)
    if len(raw) < HEADER_BYTES:
        raise ValueError(f"{path}: {len(raw)} bytes, shorter than a shard's header (1024 bytes)")
    header = np.frombuffer(raw, dtype="<i4")
    magic, version, count = (int(number) for number in header[:3])
    if magic != MAGIC:
        if int(header[:1].byteswap()[0]) == MAGIC:
            raise ValueError(f"{path}: written on a big-endian machine; shards are little-endian")
        kind = f": {_OTHERS[magic]}" if magic in _OTHERS else ""
        raise ValueError(f"{path}: magic number {magic}, not {MAGIC}{kind}")
    if version != VERSION:
        raise ValueError(f"{path}: version {version} of the format; only {VERSION} is known")
    present = path.stat().st_size - HEADER_BYTES
    if count < 0 or present != 2 * count:
        raise ValueError(
            f"{path}: the header tells of {count} tokens, {2 * count} bytes, but {present} follow; "
            f"cut off, or not uint16"
        )
    if count == 0:
        return np.zeros(0, dtype="<u2")  # nothing cannot be mapped
    return np.memmap(path, dtype="<u2", mode="r", offset=HEADER_BYTES, shape=(count,))
