import pytest

from gpt2lib.perf import table
from gpt2lib.perf.recorded import recorded
from gpt2lib.perf.scaling import wiki


def test_the_wikis_rows_come_out_as_they_were_published():
    given = wiki()["rows"]
    for row, found in zip(given, table.rows(wiki()), strict=True):
        assert (found["runtime"], found["threads"]) == (row["runtime"], row["threads"])
        assert found["speedup"] == pytest.approx(row["speedup"], abs=0.05)
        assert found["efficiency"] == pytest.approx(row["efficiency"], abs=0.006)


def test_a_benchs_summary_is_held_against_the_sequential_runtime():
    summary = [
        {"runtime": "threads", "threads": 1, "median_ms": 11.0},
        {"runtime": "sequential", "threads": 1, "median_ms": 10.0},
        {"runtime": "threads", "threads": 2, "median_ms": 5.5},
    ]
    found = table.rows({"summary": summary})
    assert [row["speedup"] for row in found] == pytest.approx([10 / 11, 1.0, 10 / 5.5])
    assert found[2]["efficiency"] == pytest.approx(10 / 11)


def test_the_recorded_benchmark_beside_others():
    record = recorded("zen4-2cpu", required=False)
    if record is None:
        pytest.skip("the records come with a clone of the repository")
    found = {(row["runtime"], row["threads"]): row for row in table.rows(record)}
    assert {("threads", 1), ("threads", 2), ("openmp", 2)} <= set(found)
    assert found["threads", 1]["speedup"] == 1
    assert found["threads", 1]["ms"] == pytest.approx(2203, abs=1)  # as the README has it
    assert found["threads", 2]["ms"] == pytest.approx(1284, abs=1)


def test_the_text_has_a_line_a_row():
    lines = table.text(table.rows(wiki())).splitlines()
    assert len(lines) == 4
    assert lines[2].split() == ["OpenMP", "112", "1,430", "24.67", "22%"]


@pytest.mark.parametrize(
    "record", [{}, {"summary": [{"runtime": "threads", "threads": 2, "median_ms": 1.0}]}]
)
def test_what_is_no_record_is_refused(record):
    with pytest.raises(ValueError, match=r"no record|one thread"):
        table.rows(record)
