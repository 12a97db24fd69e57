"""Safetensors files: a checked reader in NumPy, and a writer through the ``safetensors`` library.

The format is a header length (8 bytes, little-endian), a JSON header (name → type, shape, byte
range; ``__metadata__`` → strings), and the tensors' bytes, one after the other without a gap. The
reader is our own for two reasons: NumPy has no BF16, and it must run where only NumPy is (in a
browser). It believes nothing before checking it, and it maps the file instead of reading it, so a
file as large as the memory costs no second copy.

Format: https://github.com/huggingface/safetensors#format
"""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from gpt2lib._files import atomic_write, check_regular

Array = np.ndarray[Any, Any]

MAX_HEADER = 100_000_000  # the format's own limit, bytes
_MAX_DIMENSIONS = 32  # NumPy's limit before 2.0
# Type in the file -> NumPy's type, little-endian. BF16 has none: it is read as 16 bits.
_TYPES = {
    "F64": "<f8",
    "F32": "<f4",
    "F16": "<f2",
    "BF16": "<u2",
    "I64": "<i8",
    "I32": "<i4",
    "I16": "<i2",
    "I8": "i1",
    "U64": "<u8",
    "U32": "<u4",
    "U16": "<u2",
    "U8": "u1",
    "BOOL": "?",
}
_FLOATS = ("F64", "F32", "F16", "BF16")


class TensorFile(Mapping[str, Array]):
    """The tensors of one safetensors file, read when asked for.

    Parameters
    ----------
    path
        The file.

    Attributes
    ----------
    metadata
        The strings that the file carries beside the tensors.

    Raises
    ------
    ValueError
        For a file that is not whole and consistent; names the file and the place.
    OSError
        When it cannot be opened.

    Examples
    --------
    >>> file = TensorFile("model.safetensors")            # doctest: +SKIP
    >>> file.shape("wte.weight"), file.dtype("wte.weight")  # doctest: +SKIP
    ((50257, 768), 'F32')
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        header, self._start, self._size = _read_header(self.path)
        metadata = header.pop("__metadata__", {})
        self.metadata: dict[str, str] = _checked_metadata(self.path, metadata)
        self._entries = {
            name: _checked_entry(self.path, name, entry) for name, entry in header.items()
        }
        _check_layout(self.path, self._entries, self._size)
        self._bytes: Array = (
            np.memmap(self.path, np.uint8, "r", self._start, (self._size,))
            if self._size
            else np.empty(0, np.uint8)
        )

    def __getitem__(self, name: str) -> Array:
        """Return a tensor in its own type (BF16 as float32), a view of the file where it can be."""
        raw = self.raw(name)
        return bfloat16_to_float32(raw) if self.dtype(name) == "BF16" else raw

    def floats(self, name: str, dtype: Any = np.float32) -> Array:
        """Return a tensor of floating-point numbers as ``dtype``, converted exactly where it fits.

        F16 and BF16 are exact in float32; F64 is rounded to it.

        Raises
        ------
        ValueError
            For a tensor of whole numbers: weights are never that, so something is mistaken.
        """
        if self.dtype(name) not in _FLOATS:
            raise ValueError(
                f"{self.path}: the tensor {name!r} has type {self.dtype(name)}; expected one of "
                f"{', '.join(_FLOATS)}. Quantised files must be converted to floats first."
            )
        return self[name].astype(dtype, copy=False)

    def raw(self, name: str) -> Array:
        """Return a tensor's numbers as they lie in the file; BF16 as 16-bit whole numbers."""
        kind, shape, begin, end = self._entry(name)
        data = self._bytes[begin:end]
        # An offset need not be a multiple of the item's size; then NumPy works on unaligned data.
        return np.ndarray(shape, _TYPES[kind], data)

    def dtype(self, name: str) -> str:
        """Return a tensor's type as the format calls it: ``F32``, ``BF16`` and so on."""
        return self._entry(name)[0]

    def shape(self, name: str) -> tuple[int, ...]:
        """Return a tensor's shape without reading it."""
        return self._entry(name)[1]

    def place(self, name: str) -> int:
        """Return where in the file a tensor begins, in bytes."""
        return self._start + self._entry(name)[2]

    def _entry(self, name: str) -> _Entry:
        try:
            return self._entries[name]
        except KeyError:
            raise KeyError(f"{self.path} holds no tensor called {name!r}") from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)


_Entry = tuple[str, tuple[int, ...], int, int]  # type, shape, begin, end


def write_tensors(
    path: str | os.PathLike[str],
    tensors: Mapping[str, Array],
    metadata: Mapping[str, str] | None = None,
) -> None:
    """Write a safetensors file; a reader meets the old file or the new one, never half of either.

    Parameters
    ----------
    path
        The file.
    tensors
        Name to array.
    metadata
        Strings to carry beside them.

    Raises
    ------
    OSError
        When it cannot be written (no space, no permission); the old file is then still there.
    """
    with atomic_write(path) as temporary:
        write_in_place(temporary, tensors, metadata)


def write_in_place(
    path: Path, tensors: Mapping[str, Array], metadata: Mapping[str, str] | None = None
) -> None:
    """Write a safetensors file straight to its place: for a caller who moves it there later."""
    from safetensors.numpy import save_file

    whole = {name: np.ascontiguousarray(array) for name, array in tensors.items()}
    try:
        save_file(whole, path, metadata=dict(metadata) if metadata else None)
    except Exception as error:  # the library has an error class of its own for a full disk
        if isinstance(error, OSError):
            raise
        raise OSError(f"{path} could not be written: {error}") from error


def bfloat16_to_float32(bits: Array) -> Array:
    """Return the numbers that 16-bit patterns stand for: bfloat16 is float32's upper half.

    Examples
    --------
    >>> bfloat16_to_float32(np.array([0x3F80, 0xC000], np.uint16)).tolist()
    [1.0, -2.0]
    """
    wide = bits.astype("<u4")
    wide <<= 16
    return wide.view("<f4")


def float32_to_bfloat16(x: Array) -> Array:
    """Return the nearest bfloat16 of each number as a 16-bit pattern; a tie goes to the even one.

    Examples
    --------
    >>> [hex(b) for b in float32_to_bfloat16(np.array([1.0, -2.0], np.float32))]
    ['0x3f80', '0xc000']
    """
    bits = np.ascontiguousarray(x, "<f4").view("<u4")
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> 16) & 1)) >> 16
    nan = (bits & np.uint32(0x7FFFFFFF)) > 0x7F800000  # rounding could carry a NaN into infinity
    return np.where(nan, (bits >> 16) | 0x40, rounded).astype("<u2")


# ---------------------------------------------------------------------------- checks


def _fail(path: Path, problem: str) -> NoReturn:
    raise ValueError(
        f"{path} is not a whole safetensors file: {problem}. Download it or write it again."
    )


def _read_header(path: Path) -> tuple[dict[str, Any], int, int]:
    """Return the parsed header, where the tensors' bytes start, and how many there are."""
    check_regular(path)
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        first = file.read(8)
        if len(first) < 8:
            _fail(path, f"it has {size} bytes, and the header's length alone takes 8")
        length = int.from_bytes(first, "little")
        # Checked before anything of that length is allocated.
        if length > min(MAX_HEADER, size - 8):
            _fail(
                path,
                f"byte 0 announces a header of {length} bytes; the file has {size - 8} more, "
                f"and the format allows {MAX_HEADER}",
            )
        text = file.read(length)
    try:
        header = json.loads(text.decode("utf-8"), object_pairs_hook=_refuse_twice)
    except (ValueError, RecursionError) as error:
        what = "nested too deep" if isinstance(error, RecursionError) else str(error)
        _fail(path, f"the header (bytes 8 to {8 + length}) is not the JSON it should be: {what}")
    if not isinstance(header, dict):
        _fail(path, f"the header must be a JSON object, found {_kind(header)}")
    return header, 8 + length, size - 8 - length


def _refuse_twice(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Build a JSON object, refusing a key that comes twice (JSON's own habit: the last wins)."""
    built = dict(pairs)
    if len(built) != len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise ValueError(f"the key {twice!r} comes twice")
    return built


def _checked_metadata(path: Path, metadata: Any) -> dict[str, str]:
    if not isinstance(metadata, dict) or not all(isinstance(v, str) for v in metadata.values()):
        _fail(path, "__metadata__ must map strings to strings")
    return metadata


def _checked_entry(path: Path, name: str, entry: Any) -> _Entry:
    """Return a tensor's type, shape and byte range, after looking at each."""
    if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
        _fail(path, f"the tensor {name!r} needs dtype, shape and data_offsets, and nothing else")
    kind, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(kind, str) or kind not in _TYPES:
        raise ValueError(
            f"{path}: the tensor {name!r} has type {kind!r}, which is not read here; "
            f"known: {', '.join(_TYPES)}."
        )
    if not isinstance(shape, list) or len(shape) > _MAX_DIMENSIONS or not all(map(_whole, shape)):
        _fail(
            path,
            f"the tensor {name!r} has the shape {str(shape)[:80]}; expected at most "
            f"{_MAX_DIMENSIONS} whole numbers that are not negative",
        )
    if not isinstance(offsets, list) or len(offsets) != 2 or not all(map(_whole, offsets)):
        _fail(
            path,
            f"the tensor {name!r} has the offsets {str(offsets)[:80]}; expected two whole "
            "numbers that are not negative",
        )
    begin, end = offsets
    if begin > end:
        _fail(path, f"the tensor {name!r} begins at byte {begin} and ends before, at {end}")
    needed = math.prod(shape) * np.dtype(_TYPES[kind]).itemsize  # Python's integers do not wrap
    if needed != end - begin:
        _fail(
            path,
            f"the tensor {name!r} of shape {shape} and type {kind} needs {needed} bytes, "
            f"its offsets {begin} to {end} hold {end - begin}",
        )
    return kind, tuple(shape), begin, end


def _check_layout(path: Path, entries: Mapping[str, _Entry], size: int) -> None:
    """Refuse tensors that overlap, leave a gap, or end elsewhere than the file."""
    at = 0
    last = "the header"
    for name in sorted(entries, key=lambda name: entries[name][2:]):
        _, _, begin, end = entries[name]
        if begin != at:
            kind = "overlaps" if begin < at else "leaves a gap after"
            _fail(path, f"the tensor {name!r} begins at byte {begin} and {kind} {last} ({at})")
        at, last = end, repr(name)
    if at != size:
        _fail(path, f"the tensors take {at} bytes, and {size} follow the header")


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < sys.maxsize


def _kind(value: Any) -> str:
    return type(value).__name__
