"""The run's diary: ``log.jsonl``, one JSON object a line, one line a step."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from gpt2lib._files import atomic_write

Record = dict[str, Any]


class Log:
    """Appends a line a step, each whole: one ``write`` of the operating system a line.

    Parameters
    ----------
    path
        The file.
    step
        Lines after this step are cut off first: they are of steps that a kill has undone, and that
        will be made (and logged) again.

    Attributes
    ----------
    records
        What is in the file, up to that step.
    """

    def __init__(self, path: Path, step: int = 0) -> None:
        self.path = path
        self.records = [r for r in read_log(path) if r["step"] <= step] if path.exists() else []
        with atomic_write(path) as temporary:
            lines = "".join(map(_line, self.records))
            temporary.write_text(lines, encoding="utf-8", newline="\n")
        # Unbuffered and appending: what is written is with the system at once, at the file's end.
        self._file = path.open("ab", buffering=0)

    def write(self, record: Record) -> None:
        """Append one record."""
        self.records.append(record)
        self._file.write(_line(record).encode("utf-8"))

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def read_log(path: str | os.PathLike[str]) -> list[Record]:
    """Return the records of a log; a last line that a crash cut short is left out.

    Parameters
    ----------
    path
        ``log.jsonl``, or the folder of the run.

    Raises
    ------
    ValueError
        For a line in the middle that is not a record, with its number.
    """
    path = Path(path)
    path = path / "log.jsonl" if path.is_dir() else path
    records: list[Record] = []
    lines = path.read_text(encoding="utf-8", errors="replace").split("\n")
    for number, line in enumerate(lines[:-1], start=1):  # what follows the last newline is no line
        try:
            record = json.loads(line)
            whole = type(record["step"]) is int and type(record["loss"]) in (int, float)
        except (ValueError, TypeError, KeyError):
            whole = False
        if not whole:
            raise ValueError(
                f"{path}, line {number}: expected a JSON object with a step and a loss, found "
                f"{line[:60]!r}. Mend the line, or take it out."
            )
        records.append(record)
    return records


def _line(record: Record) -> str:
    return json.dumps(record, ensure_ascii=False) + "\n"
