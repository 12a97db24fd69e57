"""The report of a benchmark: one HTML file that needs nothing else, and its figures as SVG.

The page has no script and asks for nothing. What comes from the results is text in it, never HTML.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from gpt2lib.perf import _page
from gpt2lib.perf.reading import Operation, curves, operations, pair_name, pick, steady
from gpt2lib.perf.scaling import AmdahlFit, karp_flatt

__all__ = ["write"]

Results = Mapping[str, Any]

_RESTLESS = 0.2  # a spread that is worth a warning
_BUSY = " (more than a ceiling allows: the machine was busy when that was measured)"

_METHOD = (
    "Every run is a fresh process with one runtime and one number of threads, which makes the "
    "given number of training steps (forward, backward, AdamW) on one batch of random tokens. "
    "The runs of all combinations take turns, so that a busy minute of the machine does not fall "
    "on one of them alone. BLAS has one thread inside each chunk.",
    "Iteration 0 is the first of its process. It touches memory for the first time (the table of "
    "runs has its page faults, and the median of the later ones), and is in no mean and no median. "
    "The time of a step is the sum of its forward, backward and update.",
    "Spread is the interquartile range of all iterations but the first, divided by their median: "
    "half of them lie within a band as wide as that. It says how restless the machine was, not how "
    "sure a mean is: iterations of one process resemble each other, runs differ. The white dots in "
    "the means' figure are the runs.",
    "Operations are timed in extra steps at the end of each run, because the clocks cost a little. "
    "Their FLOPs and bytes are what they need at least, worked out from their shapes.",
    "The ceilings are measured on this machine with the same number of threads: a product of two "
    "large matrices, and one pass over an array larger than the caches, reading or copying it.",
)


def write(folder: str | os.PathLike[str], results: Results) -> Path:
    """Write ``report.html``, and the figures as ``figures/*.svg``.

    Parameters
    ----------
    folder
        Where to; it must exist.
    results
        The content of a ``results.json``.

    Returns
    -------
    Path
        The report.

    Raises
    ------
    ValueError
        When no run is finished.
    OSError
        Where the files cannot be written.
    """
    steady(results)  # says it in words where there is nothing to report
    folder = Path(folder)
    (folder / "figures").mkdir(exist_ok=True)
    plates = list(_plates(results))
    for plate in plates:
        plate.write(folder / "figures")
    path = folder / "report.html"
    _page.write(path, _document(results, plates))
    return path


def _document(results: Results, plates: list[_page.Plate]) -> str:
    """Return the page."""
    s, machine = results["settings"], results["machine"]
    title = f"GPT-2 training steps: {s['preset']}, B={s['batch']}, T={s['seq']}"
    lead = (
        f"{machine['processor']}, {machine['cores']} cores, {machine['system']}. "
        f"{len(results['runs'])} runs of {s['iterations']} iterations, begun "
        f"{_when(results['created'])}."
    )
    sections = [("Summary", _summary(results)), *_troubles(results)]
    sections += [(_NAMES[plate.name], plate.html()) for plate in plates]
    git = results["git"]
    commit = _page.in_words(git["commit"]) + (", with changes" if git["dirty"] else "")
    sections += [
        ("Every run", _runs(results)),
        ("How it was measured", "".join(f"<p>{_page.escape(text)}</p>" for text in _METHOD)),
        ("Settings", _page.facts(s)),
        ("Machine", _page.facts(machine)),
        ("Ceilings", _ceilings(results)),
        ("Versions", _page.facts({**results["versions"], "git commit": commit})),
    ]
    return _page.page(title, lead, sections)


def _when(text: str) -> str:
    """Return an ISO 8601 time to the minute, or the text where it is none."""
    try:
        return f"{datetime.fromisoformat(text).astimezone(UTC):%Y-%m-%d %H:%M} UTC"
    except ValueError:
        return text


# --- Tables ---------------------------------------------------------------------------------------


def _summary(results: Results) -> str:
    columns = [
        "runtime", "threads", "runs", "mean ms", "median ms", "spread", "iteration 0, ms",
        "a run, s", "speedup", "efficiency", "GFLOP/s", "of sgemm",
    ]  # fmt: skip
    rows = [
        [
            row["runtime"],
            str(row["threads"]),
            str(row["runs"]),
            _number(row["mean_ms"]),
            _number(row["median_ms"]),
            f"{row['spread']:.1%}",
            _number(row["first_ms"]),
            _number(row["total_s"]),
            _optional(row["speedup"], "{:.2f}"),
            _optional(row["efficiency"], "{:.0%}"),
            _number(row["gflops"]),
            _optional(row["share_of_peak"], "{:.0%}"),
        ]
        for row in results["summary"]
    ]
    said = [] if results["finished"] else ["The benchmark is not finished."]
    restless = [row for row in results["summary"] if row["spread"] > _RESTLESS]
    if restless:
        names = "; ".join(pair_name(row["runtime"], row["threads"]) for row in restless)
        said.append(
            f"The spread is above {_RESTLESS:.0%} for {names}: the machine was busy with something "
            "else, or has fewer cores than threads. Such times say little: measure again."
        )
    return "".join(map(_warning, said)) + _page.table(columns, rows, about="summary")


def _troubles(results: Results) -> list[tuple[str, str]]:
    """Return what is absent, and what failed."""
    sections = []
    if results["absent"]:
        rows = [[row["runtime"], row["reason"], row["how_to_get"]] for row in results["absent"]]
        columns = ["runtime", "why it is not there", "how to get it"]
        sections.append(
            ("Runtimes that are absent", _page.table(columns, rows, text=3, about="absent"))
        )
    if results["failed"]:
        rows = [
            [row["runtime"], row["reason"], str(row["threads"]), str(row["repeat"])]
            for row in results["failed"]
        ]
        columns = ["runtime", "what happened", "threads", "repeat"]
        sections.append(
            ("Runs that failed", _page.table(columns, rows, text=2, about="failed runs"))
        )
    return sections


def _runs(results: Results) -> str:
    columns = [
        "runtime", "threads", "repeat", "place", "ready after, s", "iteration 0, ms", "median ms",
        "longest ms", "peak MiB", "faults in 0", "faults later",
    ]  # fmt: skip
    rows = []
    for run in results["runs"]:
        first, later = run["iterations"][0], run["iterations"][1:]
        times = [step["total_ms"] for step in later] or [float("nan")]
        faults = [step["minor_faults"] + step["major_faults"] for step in later]
        rows.append(
            [
                run["runtime"],
                str(run["threads"]),
                str(run["repeat"]),
                str(run["order"] + 1),
                f"{run['setup_s']:.1f}",
                _number(first["total_ms"]),
                _number(float(np.median(times))),
                _number(max(times)),
                _optional(run["peak_bytes"], "{:.0f}", 1 / 2**20),
                _number(first["minor_faults"] + first["major_faults"]),
                _number(float(np.median(faults))) if faults else "–",
            ]
        )
    return _page.table(columns, rows, about="every run")


def _ceilings(results: Results) -> str:
    columns = ["threads", "sgemm, GFLOP/s", "read, GB/s", "copy, GB/s"]
    rows = [
        [str(c["threads"]), *(_number(c[k]) for k in ("sgemm_gflops", "read_gbs", "copy_gbs"))]
        for c in results["ceilings"]
    ]
    return _page.table(columns, rows, about="ceilings") if rows else "<p>Not measured.</p>"


def _warning(text: str) -> str:
    return f'<p class="warning">{_page.escape(text)}</p>'


def _number(value: float) -> str:
    """Return a number to three digits or more."""
    if value != value:
        return "–"
    return (
        f"{value:,.0f}".replace(",", "\N{NARROW NO-BREAK SPACE}")
        if value >= 100
        else f"{value:.3g}"
    )


def _optional(value: float | None, form: str, factor: float = 1.0) -> str:
    return "–" if value is None else form.format(value * factor)


# --- Figures --------------------------------------------------------------------------------------

_NAMES = {
    "iteration-times": "Every iteration",
    "means": "Means",
    "scaling": "Scaling",
    "karp-flatt": "The serial part by Karp and Flatt",
    "breakdown": "Where the time goes",
    "roofline": "The roofline",
}


def _plates(results: Results) -> Iterator[_page.Plate]:
    """Draw every figure that the results have something for."""
    import matplotlib as mpl

    from gpt2lib.figures import performance, use_style

    with mpl.rc_context():
        use_style()
        mpl.rcParams["text.parse_math"] = False  # a dollar from a file is a dollar
        for name, caption in (
            ("iteration-times", _about_iterations),
            ("means", _about_means),
            ("scaling", _about_scaling),
            ("karp-flatt", _about_karp_flatt),
            ("breakdown", _about_breakdown),
            ("roofline", _about_roofline),
        ):
            said = caption(results)
            if said:
                draw = getattr(performance, name.replace("-", "_"))
                yield _page.plate(name, draw(results), said)


def _about_iterations(results: Results) -> str:
    ratios = {}
    for pair, runs in steady(results).items():
        first = [
            run["iterations"][0]["total_ms"]
            for run in results["runs"]
            if (run["runtime"], run["threads"]) == pair
        ]
        ratios[pair_name(*pair)] = float(np.median(first) / np.median(np.concatenate(runs)))
    least, most = min(ratios, key=lambda k: ratios[k]), max(ratios, key=lambda k: ratios[k])
    said = f"Each line is a run, the hollow mark its iteration 0. For {most} that took "
    said += f"{ratios[most]:.2f} times the median of the iterations after it"
    return said + (f", for {least} {ratios[least]:.2f} times." if least != most else ".")


def _about_means(results: Results) -> str:
    times = {pair_name(*pair): np.concatenate(runs) for pair, runs in steady(results).items()}
    order = sorted(times, key=lambda name: float(np.mean(times[name])))
    first = times[order[0]]
    low, middle, high = np.percentile(first, [25, 50, 75])
    said = (
        f"The fastest is {order[0]}: {_number(float(np.mean(first)))} ms on average, with a spread "
        f"of {(high - low) / middle:.1%}."
    )
    if len(order) > 1:
        ratio = float(np.mean(times[order[-1]]) / np.mean(first))
        said += f" The slowest, {order[-1]}, takes {ratio:.3g} times as long."
    return said + " The line is the middle half of all iterations, the dots are medians of runs."


def _about_scaling(results: Results) -> str:
    said = []
    for curve in curves(results):
        if curve.fit is not None:
            p, gain = int(curve.threads[-1]), float(curve.speedup[-1])
            said.append(
                f"{curve.runtime} on {p} threads is {gain:.2f} times as fast as {curve.reference} "
                f"on one, an efficiency of {gain / p:.0%}. "
                + _about_law(curve.fit, len(curve.threads))
            )
    if not said:
        return "No runtime was measured on two different numbers of threads."
    return " ".join(["Dots are measured, lines are Amdahl's law.", *said])


def _about_law(fit: AmdahlFit, points: int) -> str:
    """Say what Amdahl's law makes of some times, and whether it describes them."""
    said = f"Amdahl's law needs a serial part of {fit.serial:.1%} for that"
    if fit.error > 0.1:
        return f"{said} and is {fit.error:.0%} off its times even so: it does not describe them."
    if points < 3:
        return f"{said}; two times cannot tell whether it describes them."
    return f"{said} and is at most {fit.error:.1%} off its times."


def _about_karp_flatt(results: Results) -> str:
    said = []
    for curve in curves(results):
        if curve.fit is not None:
            values = [
                f"{karp_flatt(gain, p):.1%} on {p}"
                for p, gain in zip(curve.threads.tolist(), curve.speedup.tolist(), strict=True)
                if p > 1
            ]
            said.append(f"{curve.runtime}: {', '.join(values)} threads.")
    if not said:
        return ""  # the figure before has said it
    return " ".join(
        [
            "The serial part that each speedup alone would need. If it grows with the threads, it "
            "is waiting and shared memory rather than serial work; below zero, the speedup is "
            "better than the number of threads.",
            *said,
        ]
    )


def _timed(results: Results) -> tuple[str, list[Operation]] | None:
    """Return the fastest pair's name and operations, where any were timed."""
    if not any(run["operations"] for run in results["runs"]):
        return None
    pair = pick(results)
    return pair_name(*pair), operations(results, *pair)


def _about_breakdown(results: Results) -> str:
    timed = _timed(results)
    if timed is None:
        return ""
    name, rows = timed
    longest = rows[:3]
    return (
        f"{name}: {_number(sum(op.ms for op in rows))} ms in a step of its own, "
        "with a clock round each operation (medians of the runs). "
        f"The longest are {', '.join(f'{op.label} ({op.share:.0%})' for op in longest)}; "
        f"together {sum(op.share for op in longest):.0%} of the time."
    )


def _about_roofline(results: Results) -> str:
    timed = _timed(results)
    if timed is None:
        return ""
    name, rows = timed
    rows = [op for op in rows if op.flops and op.bytes]
    if not rows:
        return ""
    best = max(rows, key=lambda op: op.flops / op.ms)
    rate = best.flops / best.ms / 1e6
    said = f"{name}: {best.label} is the quickest, {_number(rate)} GFLOP/s at "
    said += f"{best.flops / best.bytes:.3g} FLOP per byte."
    threads = pick(results)[1]
    for c in results["ceilings"]:
        if c["threads"] == threads:
            said += (
                f" That is {rate / c['sgemm_gflops']:.0%} of what sgemm reaches on {threads} "
                f"thread{'s' if threads > 1 else ''}, {_number(c['sgemm_gflops'])} GFLOP/s"
                f"{_BUSY if rate > 1.05 * c['sgemm_gflops'] else ''}. Below "
                f"{c['sgemm_gflops'] / c['read_gbs']:.3g} FLOP per byte the memory is the lower "
                f"roof: it is read at {_number(c['read_gbs'])} GB/s. What lies above it found its "
                "numbers in a cache, or reads and writes at once, which moves more than "
                "reading alone."
            )
    return said
