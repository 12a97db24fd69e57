import json

import pytest

from gpt2lib.perf import first_iteration, results
from gpt2lib.perf import recorded as records
from gpt2lib.perf.recorded import available, machine, recorded


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "one.json").write_text('{"taken": "2026-01-02T03:04:05", "x": 1}', "utf-8")
    (tmp_path / "two").mkdir()
    (tmp_path / "two" / "results.json").write_text('{"x": 2}', "utf-8")
    (tmp_path / "README.md").write_text("words", "utf-8")
    return tmp_path


def test_files_and_folders_are_found_by_name(folder):
    assert set(available(folder)) == {"one", "two"}
    assert recorded("one", folder=folder)["x"] == 1
    assert recorded("two", folder=folder)["x"] == 2


def test_what_is_not_there_is_named(folder, tmp_path):
    with pytest.raises(ValueError, match=r"no recorded result 'three'; recorded are two, one"):
        recorded("three", folder=folder)
    assert recorded("three", required=False, folder=folder) is None
    assert available(tmp_path / "nowhere") == {}
    with pytest.raises(ValueError, match="clone"):
        recorded("one", folder=tmp_path / "nowhere")
    with pytest.raises(ValueError, match="no recorded result"):
        recorded("../one", folder=folder / "two")  # a name is not a path


@pytest.mark.parametrize("content", [b"{", b"[1, 2]", b"\xff\xfe{}"])
def test_a_broken_file_is_refused(folder, content):
    (folder / "bad.json").write_bytes(content)
    with pytest.raises(ValueError, match=r"bad\.json.*fetch"):
        recorded("bad", folder=folder)
    with pytest.raises(ValueError, match=r"bad\.json"):
        recorded("bad", required=False, folder=folder)


def test_machines_of_both_formats():
    peers = {
        "taken": "2026-12-01T00:30:45",
        "machine": {"model": "A", "CPUs this process may use": 2},
    }
    assert machine(peers) == "A, 2 cores, 2026-12-01"
    bench = {"created": "2026-12-02", "machine": {"processor": "B", "cores": 1}}
    assert machine(bench) == "B, 1 core, 2026-12-02"
    assert machine({}) == "an unnamed processor"


def test_every_record_of_the_repository_can_be_read_and_names_its_machine():
    if not records.FOLDER.is_dir():
        pytest.skip("the recorded results come with a clone of the repository")
    names = available()
    assert "zen4-2cpu" in names
    for name in names:
        record = recorded(name)
        json.dumps(record)
        assert "unnamed" not in machine(record), name


def test_the_recorded_benchmark_is_whole_and_has_its_report():
    if not records.FOLDER.is_dir():
        pytest.skip("the recorded results come with a clone of the repository")
    folder = records.FOLDER / "gpt2-bench"
    found = results.load(folder / "results.json")
    assert found["finished"]
    assert not found["failed"]
    assert {row["threads"] for row in found["summary"]} == {1, 2}
    assert found["settings"]["config"]["channels"] == 768
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert all(row["runtime"] in page for row in found["summary"])
    text = (folder / "results.json").read_text(encoding="utf-8")
    assert not [word for word in text.split('"') if word[:1] == "/"]


def test_the_recorded_first_iteration_adds_up():
    if not records.FOLDER.is_dir():
        pytest.skip("the recorded results come with a clone of the repository")
    path = records.FOLDER / "gpt2-first-iteration.json"
    for case in first_iteration.cases(first_iteration.load(path)):
        total = sum(step.ms for step in case.steps)
        assert total == pytest.approx(case.first - case.steady, rel=1e-6)
