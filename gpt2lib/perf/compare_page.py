"""A comparison as files: JSON, its figure, and a page of its own."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from html import escape
from pathlib import Path

from gpt2lib.perf import _page
from gpt2lib.perf.compare import SITTING, Comparison, Row

__all__ = ["headline", "write"]


def write(folder: str | os.PathLike[str], comparisons: Sequence[Comparison]) -> list[Path]:
    """Write ``comparison.json``, ``comparison.html`` and a ``change-N.svg`` for each comparison.

    Parameters
    ----------
    folder
        Where to; it must exist.
    comparisons
        One or more, all against the same benchmark.

    Returns
    -------
    list of Path
        What was written.
    """
    folder = Path(folder)
    plates = _plates(comparisons)
    drawn = [plate.write(folder) for plate in plates]
    record = {
        "format": "gpt2lib-compare",
        "version": 1,
        "comparisons": [comparison.to_dict() for comparison in comparisons],
    }
    text = json.dumps(record, ensure_ascii=False, allow_nan=False, indent=1)
    _page.write(folder / "comparison.json", text + "\n")
    sections: list[tuple[str, str]] = []
    for comparison, plate in zip(comparisons, plates, strict=True):
        sections += _sections(comparison, plate)
    title = f"Compared with {comparisons[0].before}"
    lead = "; ".join(headline(comparison) for comparison in comparisons)
    _page.write(folder / "comparison.html", _page.page(title, lead, sections))
    return [folder / "comparison.json", folder / "comparison.html", *drawn]


def headline(comparison: Comparison) -> str:
    """Return the result in a sentence."""
    slower, faster = (len(comparison.of(verdict)) for verdict in ("slower", "faster"))
    many = len(comparison.rows)
    if not slower and not faster:
        said = f"none of {many} times is shown to have changed"
    else:
        said = f"of {many} times {slower} are slower and {faster} faster"
    return f"{comparison.after} against {comparison.before}: {said}"


def _plates(comparisons: Sequence[Comparison]) -> list[_page.Plate]:
    """Draw every comparison."""
    import matplotlib as mpl

    from gpt2lib.figures import performance, use_style

    with mpl.rc_context():
        use_style()
        mpl.rcParams["text.parse_math"] = False  # a dollar from a file is a dollar
        return [
            _page.plate(f"change-{number}", performance.change(comparison), _caption(comparison))
            for number, comparison in enumerate(comparisons, 1)
        ]


def _caption(comparison: Comparison) -> str:
    said = headline(comparison) + "."
    changed = [*comparison.of("slower"), *comparison.of("faster")][:3]
    if changed:
        most = ", ".join(f"{_name(row)} × {row.ratio:.2f}" for row in changed)
        said += f" The most: {most}."
    return said + (
        f" A change below about {comparison.resolution:.0%} could have gone unnoticed in half of "
        "the rows."
    )


def _name(row: Row) -> str:
    return row.label if row.label == row.pair else f"{row.label} ({row.pair})"


def _sections(comparison: Comparison, plate: _page.Plate) -> list[tuple[str, str]]:
    """Return the warnings, the figure and the table of a comparison."""
    title = f"{comparison.after} against {comparison.before}"
    loud = "".join(f'<p class="warning">{escape(text)}</p>' for text in comparison.warnings)
    notes = "".join(f"<li>{escape(text)}</li>" for text in comparison.notes)
    columns = [
        "runtime", "operation", "before, ms", "after, ms", "ratio", "from", "to", "runs", "verdict",
    ]  # fmt: skip
    rows = [
        [
            row.pair,
            row.operation if row.label == row.pair else row.label,
            f"{row.before_ms:.4g}",
            f"{row.after_ms:.4g}",
            f"{row.ratio:.3f}",
            f"{row.low:.3f}",
            f"{row.high:.3f}",
            f"{row.runs_before} / {row.runs_after}",
            row.verdict,
        ]
        for row in comparison.rows
    ]
    told = (
        f"Slower and faster are changes by more than {comparison.threshold:.1%} in the middle of "
        f"all pairs of runs, of which the interval lies beyond {SITTING:.0%} (two sittings of one "
        "program differ by that much) and on which nine of ten pairs of runs agree. All intervals "
        f"together hold with {comparison.confidence:.1%} confidence. The rest is called the same, "
        "which means that no change was shown: the interval says what is possible still."
    )
    table = _page.table(columns, rows, text=2, about=f"comparison: {title}")
    for verdict in ("slower", "faster"):
        table = table.replace(f"<td>{verdict}</td>", f'<td class="{verdict}">{verdict}</td>')
    more = f"<p>What else differs:</p><ul>{notes}</ul>" if notes else ""
    return [(title, loud + plate.html() + more), ("All times", f"<p>{escape(told)}</p>{table}")]
