"""The program that records the experiment on the first iteration: refusals, and one small run."""

from __future__ import annotations

import pytest

from benchmarks import first_iteration as program
from gpt2lib.perf import first_iteration


def test_it_writes_what_it_prints(tmp_path, capsys, monkeypatch):
    """The measuring itself is tested elsewhere: here it is made up."""
    from tests.perf.test_first_iteration import made_up, report

    every = [cause.key for cause in first_iteration.CAUSES if cause.key != "threads"]
    results = {
        "format": "gpt2lib-first-iteration",
        "version": 1,
        "machine": {},
        "settings": {"threads": [1], "causes": [[cause.key for cause in first_iteration.CAUSES]]},
        "runs": [made_up(110), made_up(12, on=every)],
    }
    asked = {}
    monkeypatch.setattr(first_iteration, "run", lambda config, **o: asked.update(o) or results)
    monkeypatch.setattr(first_iteration, "faster", lambda config, **o: [report()])
    out = tmp_path / "a.json"
    assert program.main(["--threads", "1", "--repeats", "2", "--out", str(out)]) == 0
    assert (asked["threads"], asked["repeats"], asked["batch"]) == ([1], 2, 4)
    printed = capsys.readouterr().out
    assert first_iteration.table(first_iteration.load(out)) in printed
    assert "a step without clearing gradients" in printed
    assert "the clock cannot be read here; measured" in printed
    assert len(first_iteration.load(out)["faster"]) == 1


def test_a_folder_that_is_not_there_is_said_before_minutes_of_work(tmp_path, capsys):
    assert program.main(["--out", str(tmp_path / "none" / "a.json")]) == 2
    assert "there is no folder" in capsys.readouterr().err


def test_unknown_presets_are_refused():
    with pytest.raises(SystemExit):
        program.main(["--preset", "gpt9"])
