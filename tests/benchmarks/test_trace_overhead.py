"""The program that measures what a record costs: what it prints, and its exit status."""

from __future__ import annotations

import json

import pytest

from benchmarks import trace_overhead as program
from gpt2lib.perf.recording import Overhead

SMALL = ["--layers", "1", "--heads", "1", "--channels", "32", "--vocab-size", "64"]
SMALL += ["--batch", "1", "--seq", "16", "--json"]


def test_a_small_run(capsys):
    program.main([*SMALL, "--threads", "1", "--pairs", "2"])
    out = capsys.readouterr().out.splitlines()
    (row,) = json.loads(out[-1])
    assert len(out) == 3  # the head, a line, the JSON
    assert (row["threads"], row["pairs"]) == (1, 2)
    # Forward: a block and what is outside of it; backward: the same; two updates.
    assert row["operations"] == (9 + 4) + (12 + 6) + 2
    assert row["chunks"] >= row["operations"]


@pytest.mark.parametrize(("factor", "status"), [(1.05, 1), (1.01, 0)])
def test_the_status_says_whether_the_budget_is_kept(factor, status, capsys, monkeypatch):
    cost = Overhead((1.0,) * 20, (factor,) * 20)
    monkeypatch.setattr(program, "overhead", lambda *_, **__: cost)
    assert program.main([*SMALL, "--threads", "1"]) == status
    assert f"{factor - 1:+.2%}" in capsys.readouterr().out
