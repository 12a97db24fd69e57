"""Measurements that were recorded on a named machine: the files in ``benchmarks/results``.

A chapter runs in a minute and cannot train GPT-2. What took longer was measured once, by the
programs in ``benchmarks/`` and by ``gpt2lib bench``, and is kept with the machine that it was
measured on. The files lie beside the library in a clone of the repository. An installed wheel does
not have them, so every reader of a record says what happens without it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal, overload

__all__ = ["available", "machine", "recorded"]

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks" / "results"


def available(folder: Path | None = None) -> dict[str, Path]:
    """Return the records that are there: name to file.

    ``NAME.json`` and ``NAME/results.json`` are both the record ``NAME``.

    Parameters
    ----------
    folder
        Where to look; ``benchmarks/results`` of this clone by default.
    """
    folder = FOLDER if folder is None else folder
    found = {path.parent.name: path for path in sorted(folder.glob("*/results.json"))}
    return found | {path.stem: path for path in sorted(folder.glob("*.json"))}


@overload
def recorded(name: str, *, folder: Path | None = ...) -> dict[str, Any]: ...
@overload
def recorded(
    name: str, *, required: Literal[False], folder: Path | None = ...
) -> dict[str, Any] | None: ...
def recorded(
    name: str, *, required: bool = True, folder: Path | None = None
) -> dict[str, Any] | None:
    """Return a recorded result.

    Parameters
    ----------
    name
        Its name, as :func:`available` has it: ``"zen4-2cpu"``.
    required
        Whether it is an error that there is no such record; if not, None is returned.
    folder
        Where to look; ``benchmarks/results`` of this clone by default.

    Raises
    ------
    ValueError
        Where there is no such record, or its file is not a JSON object.
    """
    there = available(folder)
    if name not in there:
        if not required:
            return None
        names = ", ".join(there) or "none: they come with a clone of the repository"
        raise ValueError(f"there is no recorded result {name!r}; recorded are {names}.")
    try:
        data = json.loads(there[name].read_text(encoding="utf-8"))
    except ValueError as error:  # also what is not UTF-8
        raise ValueError(f"{there[name]}: not JSON ({error}); fetch the file again.") from None
    if not isinstance(data, dict):
        raise ValueError(f"{there[name]}: a recorded result is a JSON object; fetch it again.")
    return data


def machine(record: dict[str, Any]) -> str:
    """Say in a few words where and when a result was recorded.

    Parameters
    ----------
    record
        What ``benchmarks/peers.py``, ``gpt2lib bench`` or the first-iteration experiment wrote.

    Examples
    --------
    >>> machine({"created": "2026-12-01T10:00:00", "machine": {"processor": "AMD", "cores": 2}})
    'AMD, 2 cores, 2026-12-01'
    """
    about = record.get("machine") or {}
    name = about.get("processor") or about.get("model") or "an unnamed processor"
    cores = about.get("cores") or about.get("CPUs this process may use")
    day = str(record.get("created") or record.get("taken") or "")[:10]
    count = f"{cores} core{'s' if cores != 1 else ''}" if cores else ""
    return ", ".join(part for part in (str(name), count, day) if part)
