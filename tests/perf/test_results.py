"""The results' form, against another validator; reading, writing, and the summary by hand."""

from __future__ import annotations

import copy
import json
import math

import pytest

from gpt2lib.perf import results as module
from gpt2lib.perf.results import NAME, SCHEMA, check, load, save, summarise

jsonschema = pytest.importorskip("jsonschema")  # nbformat brings it


def iteration(total, loss=5.0):
    return {
        "loss": loss,
        "forward_ms": 0.25 * total,
        "backward_ms": 0.5 * total,
        "update_ms": 0.25 * total,
        "total_ms": total,
        "minor_faults": 7,
        "major_faults": 0,
        "voluntary_switches": 1,
        "involuntary_switches": 0,
        "mhz": None,
    }


def run(runtime, threads, repeat, totals):
    return {
        "runtime": runtime,
        "threads": threads,
        "matmul": "blas",
        "repeat": repeat,
        "order": 0,
        "setup_s": 1.5,
        "peak_bytes": None,
        "compiled": 0,
        "described": {"name": runtime, "threads": threads, "library": "", "version": ""},
        "iterations": [iteration(total) for total in totals],
        "operations": [
            {"operation": "zero", "shape": "", "calls": 3, "ms": 0.25, "flops": 0, "bytes": 12}
        ],
    }


def results():
    """Return results of two runtimes, written by hand."""
    return {
        "format": "gpt2lib-bench",
        "version": 1,
        "created": "2026-01-01T00:00:00+00:00",
        "finished": True,
        "machine": {
            "processor": "a processor",
            "cores": 2,
            "caches": {"L1d": 32768},
            "memory_bytes": None,
            "system": "a system",
        },
        "versions": {"gpt2lib": "0", "python": "3", "numpy": "2"},
        "git": {"commit": None, "dirty": None},
        "settings": {
            "preset": "tiny",
            "config": {"vocab_size": 9, "context": 8, "layers": 1, "heads": 1, "channels": 2},
            "batch": 1,
            "seq": 8,
            "matmul": "blas",
            "iterations": 5,
            "repeats": 2,
            "runtimes": ["sequential", "threads"],
            "threads": [1, 2],
            "seed": 0,
        },
        "flops_per_step": 2_000_000_000,
        "absent": [{"runtime": "tbb", "reason": "no library", "how_to_get": "install it"}],
        "failed": [{"runtime": "threads", "threads": 2, "repeat": 1, "reason": "it died"}],
        "ceilings": [
            {
                "threads": 1,
                "sgemm_gflops": 80.0,
                "read_gbs": 20.0,
                "copy_gbs": 15.0,
                "sgemm_size": 2048,
                "sgemm_by": "blas",
                "memory_bytes": 1 << 28,
            }
        ],
        "runs": [
            run("threads", 2, 0, [90, 20, 25, 25, 30]),
            run("sequential", 1, 0, [50, 40, 40, 40, 40]),
            run("sequential", 1, 1, [70, 60, 60, 60, 80]),
        ],
        "summary": [],
    }


@pytest.fixture
def good():
    return results()


def valid(value) -> bool:
    return jsonschema.Draft202012Validator(SCHEMA).is_valid(value)


# ------------------------------------------------------------------------- the form


def test_the_schema_is_one(good):
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    good["summary"] = summarise(good)
    check(good)
    assert valid(good)


def test_own_validator_knows_every_word_of_the_schema():
    """Words that it does not look at would let pass what another validator refuses."""
    known = {
        *("$schema", "title", "description", "type", "properties", "required", "items"),
        *("additionalProperties", "const", "enum", "minimum", "exclusiveMinimum", "minItems"),
    }

    def words(schema):
        yield from schema
        for inner in [*schema.get("properties", {}).values(), *(
            [schema["items"]] if "items" in schema else []
        )]:  # fmt: skip
            yield from words(inner)

    assert set(words(SCHEMA)) <= known


def places(value, where=()):
    """Yield the path of everything in the results."""
    inner = value.items() if isinstance(value, dict) else enumerate(value)
    for key, item in inner:
        yield (*where, key)
        if isinstance(item, dict | list):
            yield from places(item, (*where, key))


def at(value, path):
    for key in path:
        value = value[key]
    return value


def text_of(path) -> str:
    words = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in path)
    return words.removeprefix(".")


def complaint(value) -> str:
    """Return what our own validator has to say."""
    try:
        module._validate(value, SCHEMA, "")
    except ValueError as error:
        return str(error)
    return ""


BAD = ["x", None, -1, 0, 2.5, True, [], {}, ["x"], {"x": 1}]


def test_whatever_another_validator_refuses_is_refused(good):
    """Every value of the file replaced by every kind of wrong one, and every key left out."""
    good["summary"] = summarise(good)
    for group in ("runs", "summary"):  # one of each kind is enough
        good[group] = good[group][:1]
    tried = refused = 0
    for path in list(places(good)):
        for bad in [*BAD, "leave it out"]:
            changed = copy.deepcopy(good)
            parent = at(changed, path[:-1])
            if bad == "leave it out":
                del parent[path[-1]]
            else:
                parent[path[-1]] = bad
            message = complaint(changed)
            assert (message == "") == valid(changed), (path, bad, message)
            assert not message or text_of(path[:1]) in message
            tried += 1
            refused += bool(message)
    assert refused > 500
    assert tried > refused


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        (("runs", 1, "iterations", 2, "loss"), "x", r'runs\[1\].iterations\[2\].loss: .*got "x"'),
        (("runs", 0, "iterations", 0, "total_ms"), 91, r"total_ms: is not the sum of its parts"),
        (("runs", 2, "repeat"), 0, r"runs\[2\]: a second run of sequential, 1 threads, 0"),
        (("settings", "iterations"), 6, r"runs\[0\].iterations: there are 5, .* says 6"),
        (("runs", 0, "extra"), 1, r"runs\[0\].extra: is not known"),
        (("ceilings", 0, "sgemm_by"), "hand", r'sgemm_by: expected one of "threads", "blas"'),
        (("settings", "threads"), [], r"settings.threads: needs at least 1 entries"),
        (("summary",), 3, r"summary: expected array, got 3"),
    ],
)
def test_what_is_wrong_is_named_by_its_place(good, path, value, words):
    at(good, path[:-1])[path[-1]] = value
    with pytest.raises(ValueError, match=words):
        check(good)


# ------------------------------------------------------------------------- the file


def test_it_comes_back_to_the_last_bit(good, tmp_path):
    good["runs"][0]["iterations"][0]["loss"] = math.nextafter(5.1, 6)
    path = tmp_path / NAME
    save(path, good)
    assert load(path) == good
    assert load(tmp_path) == good  # the folder will do
    lines = path.read_text(encoding="utf-8").splitlines()
    assert sum('"loss"' in line for line in lines) == 3 * 5  # an iteration a line


def test_nothing_wrong_is_written(good, tmp_path):
    path = tmp_path / NAME
    save(path, good)
    before = path.read_bytes()
    good["runs"][0]["iterations"][1]["loss"] = float("nan")
    with pytest.raises(ValueError):
        save(path, good)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == [NAME]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "no JSON at line 1, column 1"),
        (b'{"format": "gpt2lib-bench",\n', "no JSON at line 2"),
        (b"\xff\xfe", "no UTF-8 at byte 0"),
        (b"[" * 100_000, "nested too deeply"),
        (b"[1, 2]", "no results of gpt2lib bench"),
        (b'{"schema": 1, "phases": {}}', "no results of gpt2lib bench"),
        (b'{"format": "gpt2lib-bench", "version": 2}', "newer gpt2lib; this one reads 1"),
        (b'{"format": "gpt2lib-bench", "version": NaN}', "NaN is no number"),
        (b'{"format": "gpt2lib-bench", "version": 1}', "created: is missing"),
    ],
)
def test_a_bad_file_is_named_with_place_and_remedy(content, words, tmp_path):
    path = tmp_path / "mine.json"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=words) as caught:
        load(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert str(caught.value).endswith(".")  # what to do stands last
    assert len(str(caught.value)) < 300 + len(str(path))


def test_every_cut_of_a_file_is_refused(good, tmp_path):
    text = json.dumps(good)
    path = tmp_path / NAME
    for length in range(0, len(text) - 1, 97):
        path.write_text(text[:length], encoding="utf-8")
        with pytest.raises(ValueError, match="no JSON"):
            load(path)


def test_a_missing_file_is_an_oserror(tmp_path):
    with pytest.raises(FileNotFoundError):
        load(tmp_path)


# ------------------------------------------------------------------------- the summary


def test_summary_by_hand(good):
    sequential, threads = summarise(good)
    # 40 40 40 40 60 60 60 80: mean 52.5, median 50, quartiles 40 and 60.
    assert sequential == {
        "runtime": "sequential",
        "threads": 1,
        "runs": 2,
        "iterations": 8,
        "mean_ms": 52.5,
        "median_ms": 50.0,
        "spread": 0.4,
        "first_ms": 60.0,
        "total_s": pytest.approx((0.210 + 0.330) / 2),
        "speedup": 1.0,
        "efficiency": 1.0,
        "gflops": 40.0,
        "share_of_peak": 0.5,
    }
    # 20 25 25 30
    assert threads["median_ms"] == 25.0
    assert threads["spread"] == pytest.approx(2.5 / 25)
    assert threads["first_ms"] == 90
    assert threads["speedup"] == 2.0
    assert threads["efficiency"] == 1.0
    assert threads["share_of_peak"] is None  # nothing was measured with two threads


def test_without_the_sequential_runtime_one_thread_is_the_base(good):
    good["runs"][1:] = [run("threads", 1, 0, [1, 50, 50, 50, 50]), run("tbb", 2, 0, [1] * 5)]
    rows = {(row["runtime"], row["threads"]): row for row in summarise(good)}
    assert rows["threads", 1]["speedup"] == 1.0
    assert rows["threads", 2]["speedup"] == 2.0
    assert rows["tbb", 2]["speedup"] is None
    assert rows["tbb", 2]["efficiency"] is None
    good["summary"] = summarise(good)
    check(good)


def test_no_run_no_row(good):
    good["runs"] = []
    assert summarise(good) == []
