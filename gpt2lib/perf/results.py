"""The file that ``gpt2lib bench`` writes: its form, reading it, writing it, summing it up.

The form is a JSON Schema, ``results.schema.json`` beside this file (:data:`SCHEMA`), with a
description of each key. One *run* is a process that made some training iterations with one runtime
and one number of threads; the runs of one combination are its *repeats*. Iteration 0 is the first
of its process. It is reported apart and is in no mean.
"""

from __future__ import annotations

import json
import os
import statistics
from importlib import resources
from pathlib import Path
from typing import Any

from gpt2lib._files import atomic_write, check_regular

__all__ = ["NAME", "SCHEMA", "check", "load", "save", "summarise"]

Record = dict[str, Any]

#: The file's name in the folder of a benchmark.
NAME = "results.json"
#: The form of the file, as a JSON Schema (draft 2020-12).
#:
#: :meta hide-value:
SCHEMA: Record = json.loads(
    resources.files("gpt2lib.perf").joinpath("results.schema.json").read_text(encoding="utf-8")
)


def load(path: str | os.PathLike[str]) -> Record:
    """Read results, and check them.

    Parameters
    ----------
    path
        The file, or the folder in which it is called ``results.json``.

    Raises
    ------
    ValueError
        Naming the file, the place in it and what to do.
    OSError
        When there is no such file.
    """
    path = Path(path)
    if path.is_dir():
        path = path / NAME
    check_regular(path)
    remedy = "It is not whole, or was changed by hand: take a copy, or measure again."
    try:
        results = json.loads(path.read_text(encoding="utf-8"), parse_constant=_refuse_constant)
        _check_kind(results)
        check(results)
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise ValueError(f"{path}: no JSON at {where}: {error.msg}. {remedy}") from None
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: no UTF-8 at byte {error.start}. {remedy}") from None
    except RecursionError:
        raise ValueError(f"{path}: nested too deeply. {remedy}") from None
    except _OtherFile as error:
        raise ValueError(f"{path}: {error}") from None
    except ValueError as error:
        raise ValueError(f"{path}: {error}. {remedy}") from None
    return results


def save(path: str | os.PathLike[str], results: Record) -> None:
    """Check results and write them, as a whole or not at all.

    Raises
    ------
    ValueError
        When they do not have the form; nothing is written then.
    OSError
        Where the file cannot be written.
    """
    check(results)
    with atomic_write(path) as temporary:
        temporary.write_text(_text(results) + "\n", encoding="utf-8")


def check(results: Any) -> None:
    """Refuse results that do not have the form, or contradict themselves.

    Raises
    ------
    ValueError
        Naming the place, as in ``runs[3].iterations[0].loss``.
    """
    _validate(results, SCHEMA, "")
    iterations, seen = results["settings"]["iterations"], set()
    for number, run in enumerate(results["runs"]):
        where = f"runs[{number}]"
        if len(run["iterations"]) != iterations:
            raise ValueError(
                f"{where}.iterations: there are {len(run['iterations'])}, "
                f"settings.iterations says {iterations}"
            )
        key = run["runtime"], run["threads"], run["repeat"]
        if key in seen:
            raise ValueError(f"{where}: a second run of {key[0]}, {key[1]} threads, {key[2]}")
        seen.add(key)
        for i, row in enumerate(run["iterations"]):
            parts = row["forward_ms"] + row["backward_ms"] + row["update_ms"]
            if abs(parts - row["total_ms"]) > 1e-3 + 1e-6 * parts:
                raise ValueError(f"{where}.iterations[{i}].total_ms: is not the sum of its parts")


class _OtherFile(ValueError):
    """A file of another kind, or of another version: nothing to be mended."""


def _check_kind(results: Any) -> None:
    kind = results.get("format") if isinstance(results, dict) else None
    if kind != "gpt2lib-bench":
        raise _OtherFile(
            'format: these are no results of gpt2lib bench ("format": "gpt2lib-bench"). '
            "Name a file or folder that gpt2lib bench has written."
        )
    version, known = results.get("version"), SCHEMA["properties"]["version"]["const"]
    if isinstance(version, int) and version > known:
        raise _OtherFile(
            f"version: {version} was written by a newer gpt2lib; this one reads {known}. Update it."
        )


def _refuse_constant(text: str) -> Any:
    raise ValueError(f"{text} is no number in JSON")


# ------------------------------------------------------------------------- the form


def _validate(value: Any, schema: Record, where: str) -> None:
    """Check a value against the words of JSON Schema that :data:`SCHEMA` uses."""
    if "const" in schema and not _equal(value, schema["const"]):
        raise _wrong(where, json.dumps(schema["const"]), value)
    if "enum" in schema and not any(_equal(value, known) for known in schema["enum"]):
        raise _wrong(where, "one of " + ", ".join(map(json.dumps, schema["enum"])), value)
    if "type" in schema:
        kinds = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
        if not any(_is(value, kind) for kind in kinds):
            raise _wrong(where, " or ".join(kinds), value)
    if isinstance(value, dict):
        _validate_object(value, schema, where)
    elif isinstance(value, list):
        if len(value) < schema.get("minItems", 0):
            raise ValueError(f"{where or 'the file'}: needs at least {schema['minItems']} entries")
        for number, item in enumerate(value):
            _validate(item, schema.get("items", {}), f"{where}[{number}]")
    elif _is(value, "number"):
        if "minimum" in schema and value < schema["minimum"]:
            raise _wrong(where, f"at least {schema['minimum']}", value)
        if "exclusiveMinimum" in schema and value <= schema["exclusiveMinimum"]:
            raise _wrong(where, f"above {schema['exclusiveMinimum']}", value)


def _validate_object(value: Record, schema: Record, where: str) -> None:
    prefix = f"{where}." if where else ""
    known = schema.get("properties", {})
    for key in schema.get("required", ()):
        if key not in value:
            raise ValueError(f"{prefix}{key}: is missing")
    for key, item in value.items():
        if key in known:
            _validate(item, known[key], f"{prefix}{key}")
        elif schema.get("additionalProperties", True) is False:
            raise ValueError(f"{prefix}{key}: is not known; there are {', '.join(known)}")


def _equal(value: Any, other: Any) -> bool:
    return value == other and isinstance(value, bool) == isinstance(other, bool)


def _is(value: Any, kind: str) -> bool:
    """Tell whether a value is of a JSON type; true and false are no numbers, 2.0 is an integer."""
    if kind in ("integer", "number") and isinstance(value, bool):
        return False
    if kind == "integer" and isinstance(value, float):
        return value.is_integer()
    types: dict[str, Any] = {
        "object": dict,
        "array": list,
        "string": str,
        "boolean": bool,
        "null": type(None),
        "integer": int,
        "number": (int, float),
    }
    return isinstance(value, types[kind])


def _wrong(where: str, expected: str, value: Any) -> ValueError:
    shown = json.dumps(value, default=repr)
    shown = shown if len(shown) <= 60 else shown[:57] + "..."
    return ValueError(f"{where or 'the file'}: expected {expected}, got {shown}")


def _text(value: Any, indent: int = 0) -> str:
    """Write JSON with one line for each row: an object or a list that holds no other."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    if not any(isinstance(item, dict | list) for item in inner):
        return json.dumps(value, ensure_ascii=False, allow_nan=False)
    space = "\n" + " " * (indent + 1)
    if isinstance(value, dict):
        items = [f"{json.dumps(k)}: {_text(v, indent + 1)}" for k, v in value.items()]
        return "{" + space + f",{space}".join(items) + "\n" + " " * indent + "}"
    items = [_text(item, indent + 1) for item in value]
    return "[" + space + f",{space}".join(items) + "\n" + " " * indent + "]"


# ------------------------------------------------------------------------- the summary


def summarise(results: Record) -> list[Record]:
    r"""Return a row for each combination of runtime and threads.

    With t the times of all its iterations but the first of each run:

    ==================  =========================================================================
    ``mean_ms``         mean of t
    ``median_ms``       median of t
    ``spread``          interquartile range of t, divided by the median
    ``first_ms``        median over the runs of iteration 0
    ``total_s``         seconds of all iterations of a run, 0 included: the mean of the runs
    ``speedup``         the median of ``sequential``, divided by this one; without ``sequential``
                        the median of the same runtime on one thread; else None
    ``efficiency``      speedup ÷ threads
    ``gflops``          ``flops_per_step`` ÷ median, in 10⁹ a second
    ``share_of_peak``   gflops ÷ the sgemm ceiling with so many threads; None where not measured
    ==================  =========================================================================

    Parameters
    ----------
    results
        As :func:`load` returns them; the rows that ``summary`` holds are not looked at.
    """
    runs: dict[tuple[str, int], list[Record]] = {}
    for run in results["runs"]:
        runs.setdefault((run["runtime"], run["threads"]), []).append(run)
    names = results["settings"]["runtimes"]
    peaks = {row["threads"]: row["sgemm_gflops"] for row in results["ceilings"]}
    rows = []
    for runtime, threads in sorted(runs, key=lambda key: (_place(names, key[0]), key[1])):
        row = _summary_row(runs[runtime, threads], results["flops_per_step"])
        peak = peaks.get(threads)
        row["share_of_peak"] = row["gflops"] / peak if peak else None
        rows.append({"runtime": runtime, "threads": threads, **row})
    medians = {(row["runtime"], row["threads"]): row["median_ms"] for row in rows}
    for row in rows:
        base = medians.get(("sequential", 1), medians.get((row["runtime"], 1)))
        row["speedup"] = base / row["median_ms"] if base else None
        row["efficiency"] = row["speedup"] / row["threads"] if base else None
    return rows


def _place(names: list[str], name: str) -> int:
    return names.index(name) if name in names else len(names)


def _summary_row(runs: list[Record], flops: int) -> Record:
    """Sum up the runs of one combination."""
    times = [[row["total_ms"] for row in run["iterations"]] for run in runs]
    counted = [t for run in times for t in run[1:]]
    median = statistics.median(counted)
    low, _, high = (
        statistics.quantiles(counted, n=4, method="inclusive") if len(counted) > 1 else [median] * 3
    )
    return {
        "runs": len(runs),
        "iterations": len(counted),
        "mean_ms": statistics.fmean(counted),
        "median_ms": median,
        "spread": (high - low) / median,
        "first_ms": statistics.median(run[0] for run in times),
        "total_s": statistics.fmean(sum(run) for run in times) / 1e3,
        "speedup": None,
        "efficiency": None,
        "gflops": flops / median / 1e6,
    }
