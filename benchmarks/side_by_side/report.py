"""Medians, spreads and ratios of what was measured; the table; the file of results."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from gpt2lib._files import atomic_write

Record = dict[str, Any]
SCHEMA = 1
MIB, GB = 2**20, 1e9


def spread(samples: Iterable[float]) -> Record:
    """Return median, quartiles, extremes and number of some samples."""
    values = sorted(samples)
    if len(values) > 1:
        first, _, third = statistics.quantiles(values, n=4, method="inclusive")
    else:
        first = third = values[0]
    return {
        "median": statistics.median(values),
        "q1": first,
        "q3": third,
        "min": values[0],
        "max": values[-1],
        "n": len(values),
    }


def by_round(entry: Record) -> dict[int, float]:
    """Return the median seconds of each round."""
    return {r["round"]: statistics.median(r["seconds"]) for r in entry["rounds"] if r["seconds"]}


def ratio(slower: Record, faster: Record) -> Record | None:
    """Return how many times as long one takes as the other, paired round by round."""
    a, b = by_round(slower), by_round(faster)
    pairs = [a[number] / b[number] for number in a if number in b]
    return spread(pairs) if pairs else None


def baseline(phase: Record) -> tuple[str, Record]:
    """Return name and entry of the contender that the others are held against: the first one."""
    timed = [(name, entry) for name, entry in phase["contenders"].items() if by_round(entry)]
    return timed[0] if timed else ("", {"rounds": []})


# --- The summary ----------------------------------------------------------------------------------


def summarize(results: Record) -> Record:
    """Return what the samples come to: a section for each phase that was measured."""
    summary: Record = {}
    for name, phase in results["phases"].items():
        if name in ("training", "runtimes", "long") and "contenders" in phase:
            summary[name] = _training(phase)
        elif name == "generation" and "contenders" in phase:
            summary[name] = _generation(phase)
        elif name == "startup" and "import" in phase:
            summary[name] = _startup(phase)
    summary["goals"] = _goals(results, summary)
    return summary


def _rates(phase: Record, what: str, unit: str) -> dict[int, float]:
    """Return the machine's best rate in each round: sgemm in FLOP/s, reading in B/s."""
    return {c["round"]: c[what][unit] / min(c[what]["seconds"]) for c in phase["ceilings"]}


def _training(phase: Record) -> Record:
    sgemm = _rates(phase, "sgemm", "flops")
    section: Record = {"contenders": {}}
    if sgemm:
        section["sgemm_flops_per_second"] = spread(sgemm.values())
    entries = phase["contenders"]
    section["baseline"], ours = baseline(phase)
    for name, entry in entries.items():
        rounds = by_round(entry)
        if not rounds:
            continue
        seconds = [second for r in entry["rounds"] for second in r["seconds"]]
        row: Record = {"seconds": spread(seconds), "peak_bytes": entry.get("peak_bytes")}
        row["flops_per_second"] = phase["training_flops"] / row["seconds"]["median"]
        shares = [phase["training_flops"] / rounds[n] / sgemm[n] for n in rounds if n in sgemm]
        row["share_of_sgemm"] = spread(shares) if shares else None
        row["times_baseline"] = ratio(entry, ours)
        section["contenders"][name] = row
    return section


def _generation(phase: Record) -> Record:
    read = _rates(phase, "read", "bytes")
    section: Record = {"contenders": {}}
    if read:
        section["read_bytes_per_second"] = spread(read.values())
    section["baseline"], ours = baseline(phase)
    for name, entry in phase["contenders"].items():
        rounds = by_round(entry)
        if not rounds:
            continue
        seconds = [second for r in entry["rounds"] for second in r["seconds"]]
        row: Record = {"seconds": spread(seconds), "peak_bytes": entry.get("peak_bytes")}
        row["tokens_per_second"] = 1 / row["seconds"]["median"]
        shares = [phase["weight_bytes"] / rounds[n] / read[n] for n in rounds if n in read]
        row["share_of_reading"] = spread(shares) if shares else None
        row["times_baseline"] = ratio(entry, ours)
        section["contenders"][name] = row
    return section


def _startup(phase: Record) -> Record:
    section = {f"import {name}": spread(values) for name, values in phase["import"].items()}
    for name, values in phase.get("first_use", {}).items():
        if values:
            section[f"first use, {name}"] = spread(values)
    return section


def _goals(results: Record, summary: Record) -> list[Record]:
    """Hold the numbers against what the library sets out to reach."""
    goals: list[Record] = []

    def goal(what: str, value: float | None, limit: float, *, at_most: bool = False) -> None:
        if value is not None:
            reached = value <= limit if at_most else value >= limit
            sign = "<=" if at_most else ">="
            goals.append({"goal": f"{what} {sign} {limit:g}", "value": value, "reached": reached})

    def median(section: str, contender: str, key: str) -> float | None:
        part = summary.get(section, {})
        row = part.get("contenders", {}).get(contender, {})
        if part.get("baseline") != "gpt2lib" and key == "times_baseline":
            return None
        return row[key]["median"] if row.get(key) else None

    goal("PyTorch eager's step / ours", median("training", "pytorch", "times_baseline"), 1.5)
    goal("llm.c's step / ours", median("training", "llmc", "times_baseline"), 4.5)
    goal("share of the sgemm rate", median("training", "gpt2lib", "share_of_sgemm"), 0.8)
    goal("one thread's step / ours", median("training", "gpt2lib-1", "times_baseline"), 1.85)
    goal("the same, PyTorch, one long row", median("long", "pytorch", "times_baseline"), 1.5)
    training = results["phases"].get("training", {})
    peak = summary.get("training", {}).get("contenders", {}).get("gpt2lib", {}).get("peak_bytes")
    if peak and (activations := training.get("llmc_activations")):
        allowed = 16 * training["parameters"] + 1.1 * 2 * 4 * activations
        goal("peak memory / (16 B a parameter + 1.1 x llm.c's activations and their gradients)",
             peak / allowed, 1.0, at_most=True)  # fmt: skip
        lean = 16 * training["parameters"] + 1.1 * 4 * activations
        goal("the same without the gradients of the activations", peak / lean, 1.0, at_most=True)
    goal("generation, share of reading", median("generation", "gpt2lib", "share_of_reading"), 0.85)
    goal("Hugging Face / ours, a token", median("generation", "huggingface", "times_baseline"), 2.0)
    for what, limit in (
        ("import gpt2lib", 0.2),
        ("first use, cold", 60.0),
        ("first use, warm", 2.0),
    ):
        found = summary.get("startup", {}).get(what)
        goal(f"{what}, seconds", found["median"] if found else None, limit, at_most=True)
    return goals


# --- The table ------------------------------------------------------------------------------------


def table(results: Record) -> str:
    """Return everything as text."""
    summary = results["summary"]
    blocks = [_head(results)]
    titles = {"training": "Training step", "runtimes": "The same, by runtime", "long": "One row"}
    for name, title in titles.items():
        phase = results["phases"].get(name)
        if phase is not None:
            blocks.append(_training_table(title, phase, summary.get(name)))
        if name == "training" and phase and "breakdown" in phase:
            blocks.append(_breakdown_table(phase, summary.get(name)))
    if "generation" in results["phases"]:
        phase = results["phases"]["generation"]
        blocks.append(_generation_table(phase, summary.get("generation")))
    if "startup" in summary:
        blocks.append(_startup_table(summary["startup"]))
    if summary["goals"]:
        blocks.append(_goals_table(summary["goals"]))
    return "\n\n".join(blocks)


def _head(results: Record) -> str:
    s, machine = results["settings"], results["machine"]
    shape = ", ".join(f"{key} {value}" for key, value in s["config"].items())
    lines = [
        f"{s['preset']} ({shape}), float32, {s['threads']} threads",
        f"{machine.get('model', 'unknown processor')}; taken {results['taken']}",
    ]
    if not results.get("finished"):
        lines.append("This run was not finished.")
    return "\n".join(lines)


def _columns(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Align: the first column to the left, the others to the right."""
    every = [header, *rows]
    widths = [max(len(row[i]) for row in every) for i in range(len(header))]
    lines = []
    for row in every:
        cells = [row[0].ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        lines.append("  ".join(cells).rstrip())
    return [lines[0], "-" * len(lines[0]), *lines[1:]]


def _milliseconds(s: Record) -> list[str]:
    return [
        f"{1e3 * s['median']:.4g}",
        f"{1e3 * s['q1']:.4g}-{1e3 * s['q3']:.4g}",
        f"{1e3 * s['min']:.4g}-{1e3 * s['max']:.4g}",
        str(s["n"]),
    ]


def _times(value: Record | None) -> str:
    if value is None:
        return "?"
    if value["min"] == value["max"] == 1:
        return "1"
    return f"{value['median']:.2f} ({value['min']:.2f}-{value['max']:.2f})"


def _against(phase: Record) -> str:
    name, entry = baseline(phase)
    return f"x {entry['label']}" if name else "x"


def _share(value: Record | None) -> str:
    if value is None:
        return "?"
    return f"{value['median']:.1%} ({value['min']:.0%}-{value['max']:.0%})"


def _peak(row: Record) -> str:
    return f"{row['peak_bytes'] / MIB:.0f}" if row.get("peak_bytes") else "?"


def _who_is_missing(phase: Record) -> list[str]:
    return [
        f"{entry['label']}: {entry['status']}: {entry['reason']}"
        for entry in phase.get("contenders", {}).values()
        if entry["status"] != "ok"
    ]


def _training_table(title: str, phase: Record, section: Record | None) -> str:
    if "skipped" in phase:
        return f"{title}: {phase['skipped']}"
    lines = [f"{title}, B={phase['batch']} T={phase['seq']}"]
    rows = []
    for name, row in (section or {"contenders": {}})["contenders"].items():
        entry = phase["contenders"][name]
        rows.append(
            [
                entry["label"],
                *_milliseconds(row["seconds"]),
                f"{row['flops_per_second'] / GB:.1f}",
                _share(row["share_of_sgemm"]),
                _times(row["times_baseline"]),
                f"{1e3 * entry['first']['seconds'][0]:.4g}",
                _peak(row),
            ]
        )
    header = ["", "ms", "quartiles", "min-max", "n", "GFLOP/s", "of sgemm", _against(phase),
              "first, ms", "peak MiB"]  # fmt: skip
    lines += _columns(header, rows) + _who_is_missing(phase)
    if section and "sgemm_flops_per_second" in section:
        rate = section["sgemm_flops_per_second"]
        lines.append(
            f"sgemm {phase['ceilings_of']['sgemm']}: {rate['median'] / GB:.1f} GFLOP/s "
            f"({rate['min'] / GB:.1f}-{rate['max'] / GB:.1f})"
        )
    losses = [
        f"{entry['label']} " + " ".join(f"{loss:.5f}" for loss in entry["first"]["losses"])
        for entry in phase["contenders"].values()
        if "first" in entry
    ]
    return "\n".join([*lines, "losses of the first steps: " + "; ".join(losses)])


def _breakdown_table(phase: Record, section: Record | None) -> str:
    rows = phase["breakdown"]["rows"]
    total = sum(row["seconds"] for row in rows)
    rate = (section or {}).get("sgemm_flops_per_second", {}).get("median")
    cells = []
    for row in rows:
        speed = row["flops"] / row["seconds"] if row["flops"] and row["seconds"] > 0 else None
        cells.append(
            [
                f"{row['operation']} {row['shape']}".strip(),
                str(row["calls"]),
                f"{1e3 * row['seconds']:.4g}",
                f"{row['seconds'] / total:.1%}",
                f"{speed / GB:.1f}" if speed else "",
                f"{speed / rate:.0%}" if speed and rate else "",
            ]
        )
    header = ["Where the time of a step goes", "calls", "ms", "share", "GFLOP/s", "of sgemm"]
    return "\n".join(_columns(header, cells))


def _generation_table(phase: Record, section: Record | None) -> str:
    rows = []
    for name, row in (section or {"contenders": {}})["contenders"].items():
        rows.append(
            [
                phase["contenders"][name]["label"],
                f"{row['tokens_per_second']:.3g}",
                *_milliseconds(row["seconds"]),
                _share(row["share_of_reading"]),
                _times(row["times_baseline"]),
                _peak(row),
            ]
        )
    header = ["", "tokens/s", "ms a token", "quartiles", "min-max", "n", "of reading",
              _against(phase), "peak MiB"]  # fmt: skip
    lines = [
        f"Generation, one sequence, greedy, after a prompt of {phase.get('prompt', '?')} tokens",
        *_columns(header, rows),
        *_who_is_missing(phase),
    ]
    if section and "read_bytes_per_second" in section:
        rate = section["read_bytes_per_second"]
        lines.append(
            f"reading memory: {rate['median'] / GB:.1f} GB/s "
            f"({rate['min'] / GB:.1f}-{rate['max'] / GB:.1f}); "
            f"a token reads {phase['weight_bytes'] / 1e6:.0f} MB of weights"
        )
    return "\n".join(lines)


def _startup_table(section: Record) -> str:
    rows = [
        [name, f"{s['median']:.3f}", f"{s['min']:.3f}-{s['max']:.3f}", str(s["n"])]
        for name, s in section.items()
    ]
    return "\n".join(_columns(["Starting up", "s", "min-max", "n"], rows))


def _goals_table(goals: Sequence[Record]) -> str:
    rows = [
        [goal["goal"], f"{goal['value']:.3g}", "yes" if goal["reached"] else "NO"] for goal in goals
    ]
    return "\n".join(_columns(["Goals", "here", "reached"], rows))


# --- The file -------------------------------------------------------------------------------------


def save(path: Path, results: Record) -> None:
    """Write the results as JSON, after checking their form."""
    check(results)
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(path) as temporary:
        temporary.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


def load(path: Path) -> Record:
    """Read a file of results.

    Raises
    ------
    ValueError
        When it is none, or has a form that this version does not know.
    """
    try:
        results = json.loads(Path(path).read_text(encoding="utf-8"))
        check(results)
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path}: no results of benchmarks/peers.py: {error}") from None
    return results


_FORM = {
    "schema": int,
    "taken": str,
    "finished": bool,
    "machine": dict,
    "versions": dict,
    "settings": dict,
    "phases": dict,
    "summary": dict,
}


def check(results: Record) -> None:
    """Refuse results that lack a part, or whose samples are not there."""
    if results.get("schema") != SCHEMA:
        raise ValueError(f"schema {results.get('schema')!r}, expected {SCHEMA}")
    for key, kind in _FORM.items():
        if not isinstance(results.get(key), kind):
            raise ValueError(f"{key} is missing, or no {kind.__name__}")
    for phase_name, phase in results["phases"].items():
        for name, entry in phase.get("contenders", {}).items():
            where = f"phases.{phase_name}.contenders.{name}"
            if entry.get("status") not in ("ok", "absent", "failed", "disagrees"):
                raise ValueError(f"{where}.status is {entry.get('status')!r}")
            if entry["status"] != "ok" and not entry.get("reason"):
                raise ValueError(f"{where} gives no reason")
            for turn in entry["rounds"]:
                if not all(second >= 0 for second in turn["seconds"]):
                    raise ValueError(f"{where}: a time is negative")
