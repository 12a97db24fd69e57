"""The file that a :class:`~gpt2lib.tokenizer.BPE` is kept in: JSON that is checked when it is read.

::

    {
     "format": "gpt2lib-bpe",
     "version": 1,
     "name": "tiny",
     "byte_order": "000102…ff",      the bytes of the ids 0 to 255, in hexadecimal
     "end_of_text": true,            whether the last id stands between documents
     "merges": [[104, 101], …],      the k-th makes the id 256 + k
     "sha256": "…"                   of all the rest, as compact JSON with sorted keys
    }
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gpt2lib._files import atomic_write, check_regular

FORMAT = "gpt2lib-bpe"
VERSION = 1
_FIELDS = {"name": str, "byte_order": str, "end_of_text": bool, "merges": list}


def write(
    path: str | os.PathLike[str],
    *,
    name: str,
    byte_order: bytes,
    merges: Sequence[tuple[int, int]],
    end_of_text: bool,
) -> None:
    """Write a tokenizer's file, whole or not at all."""
    content: dict[str, Any] = {
        "format": FORMAT,
        "version": VERSION,
        "name": name,
        "byte_order": byte_order.hex(),
        "end_of_text": end_of_text,
        "merges": [list(pair) for pair in merges],
    }
    content["sha256"] = _digest(content)
    lines = [f" {json.dumps(key)}: {json.dumps(value)}" for key, value in content.items()]
    with atomic_write(path) as temporary:
        temporary.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def read(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read a tokenizer's file and check it.

    Returns
    -------
    dict
        ``merges``, ``byte_order``, ``end_of_text`` and ``name``: the arguments of ``BPE``.

    Raises
    ------
    ValueError
        Where it cannot be read or is not such a file: with its name, the place, and the remedy.
    """
    content = _parse(path)
    if content.get("format") != FORMAT:
        raise _refusal(path, f"its format is {content.get('format')!r}, not {FORMAT!r}")
    if content.get("version") != VERSION:
        raise _refusal(
            path,
            f"it is of version {content.get('version')!r} and this gpt2lib reads {VERSION}",
            "update gpt2lib",
        )
    for field, kind in _FIELDS.items():
        if not isinstance(content.get(field), kind):
            raise _refusal(path, f"its field {field!r} is missing or not a {kind.__name__}")
    stated = content.pop("sha256", None)
    if stated != _digest(content):
        raise _refusal(path, "its content does not agree with its SHA-256: it is damaged or edited")
    return {
        "name": content["name"],
        "byte_order": _byte_order(path, content["byte_order"]),
        "end_of_text": content["end_of_text"],
        "merges": _merges(path, content["merges"]),
    }


def _parse(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the JSON object in the file."""
    try:
        check_regular(path)
        content = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise _refusal(path, error.strerror or str(error), "check the path") from error
    except UnicodeDecodeError as error:
        raise _refusal(path, f"byte {error.start} is not UTF-8 text") from error
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        raise _refusal(path, f"it is not JSON from {place} on: {error.msg}") from error
    except (ValueError, RecursionError) as error:  # a NUL in the path; brackets in brackets in …
        raise _refusal(path, f"it cannot be read: {error}") from error
    if not isinstance(content, dict):
        raise _refusal(path, "it holds no JSON object")
    return content


def _byte_order(path: str | os.PathLike[str], text: str) -> bytes:
    try:
        order = bytes.fromhex(text)
    except ValueError as error:
        raise _refusal(path, f"its byte_order is not hexadecimal: {error}") from error
    if sorted(order) != list(range(256)):
        raise _refusal(path, "its byte_order does not hold each of the 256 bytes once")
    return order


def _merges(path: str | os.PathLike[str], pairs: list[Any]) -> list[tuple[int, int]]:
    """Check that each merge is of two ids that exist by then, and none comes twice."""
    merges: dict[tuple[int, int], None] = {}
    for number, pair in enumerate(pairs):
        is_pair = isinstance(pair, list) and len(pair) == 2 and all(type(i) is int for i in pair)
        if not is_pair or not all(0 <= i < 256 + number for i in pair):
            raise _refusal(
                path, f"merge {number} is not a pair of ids from 0 to {255 + number}: {pair!r:.60}"
            )
        if tuple(pair) in merges:
            raise _refusal(path, f"merge {number} repeats an earlier one: {pair}")
        merges[pair[0], pair[1]] = None
    return list(merges)


def _digest(content: dict[str, Any]) -> str:
    """Return the SHA-256 of the content, which does not depend on how the file is laid out."""
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode("utf-8")).hexdigest()


def _refusal(
    path: str | os.PathLike[str],
    reason: str,
    remedy: str = "give a file that BPE.save() wrote, or write it again",
) -> ValueError:
    return ValueError(f"cannot read the tokenizer {os.fspath(path)!r}: {reason}; {remedy}")
