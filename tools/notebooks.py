"""Keep the chapters' notebooks in their committed form: ``python -m tools.notebooks check|strip``.

A committed notebook holds no outputs, no counts and no metadata that changes from one machine to
the next, so that a diff shows what the author changed and nothing else.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
MAX_LINES = 20
CELL_METADATA = {"tags", "jupyter", "mystnb"}
KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}


def notebooks() -> list[Path]:
    """Return the chapters, in order."""
    return sorted((ROOT / "chapters").glob("*.ipynb"))


def load(path: Path) -> dict[str, Any]:
    """Read a notebook as plain JSON."""
    return json.loads(path.read_text(encoding="utf-8"))


def lines(cell: dict[str, Any]) -> list[str]:
    """Return a cell's lines, whichever of the format's two ways they are stored in."""
    source = cell["source"]
    return (source if isinstance(source, str) else "".join(source)).splitlines()


def stripped(notebook: dict[str, Any]) -> dict[str, Any]:
    """Return the committed form of a notebook."""
    cells = []
    for cell in notebook["cells"]:
        cell = dict(cell)
        kept = {k: v for k, v in cell.get("metadata", {}).items() if k in CELL_METADATA}
        if not kept.get("tags", True):
            del kept["tags"]
        cell["metadata"] = kept
        if cell["cell_type"] == "code":
            cell["outputs"], cell["execution_count"] = [], None
        if isinstance(cell["source"], str):
            cell["source"] = cell["source"].splitlines(keepends=True)
        cells.append(cell)
    metadata = {"kernelspec": KERNEL, "language_info": {"name": "python"}}
    return {
        "cells": cells,
        "metadata": metadata,
        "nbformat": notebook["nbformat"],
        "nbformat_minor": notebook["nbformat_minor"],
    }


def text(notebook: dict[str, Any]) -> str:
    """Return a notebook's JSON as Jupyter writes it."""
    return json.dumps(notebook, indent=1, ensure_ascii=False, sort_keys=True) + "\n"


def problems(path: Path) -> list[str]:
    """Return what is not as it should be, a line each."""
    found = []
    if path.read_text(encoding="utf-8") != text(stripped(load(path))):
        found.append("holds outputs, counts or stray metadata: run make strip")
    for number, cell in enumerate(load(path)["cells"]):
        if cell["cell_type"] == "code" and len(lines(cell)) > MAX_LINES:
            found.append(f"cell {number} has {len(lines(cell))} lines, more than {MAX_LINES}")
    return [f"{path.name}: {problem}" for problem in found]


def main(arguments: list[str]) -> int:
    """Check the notebooks, or strip them."""
    if arguments[:1] == ["strip"]:
        for path in [Path(a).resolve() for a in arguments[1:]] or notebooks():
            new = text(stripped(load(path)))
            if new != path.read_text(encoding="utf-8"):
                path.write_text(new, encoding="utf-8", newline="\n")
                print(f"stripped {path.name}")
        return 0
    if arguments[:1] == ["check"]:
        found = [p for path in notebooks() for p in problems(path)]
        print("\n".join(found) or f"{len(notebooks())} notebooks are in their committed form")
        return 1 if found else 0
    print("usage: python -m tools.notebooks check | strip [NOTEBOOK …]", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
