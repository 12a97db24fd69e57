"""``gpt2lib compare``: what it prints, writes and refuses, and its exit status."""

from __future__ import annotations

import json

import pytest

from gpt2lib.cli import main
from gpt2lib.perf import results
from tests.perf import made_up


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("benchmarks")
    for name, options in {
        "old": {"seed": 1},
        "again": {"seed": 2, "sitting": 0.99},
        "slow": {"seed": 3, "slower": {"linear_gelu_backward": 1.2}},
        "fast": {"seed": 4, "slower": {"linear_gelu_backward": 1 / 1.2}},
        "other": {"seed": 5, "batch": 8},
    }.items():
        (root / name).mkdir()
        results.save(root / name / "results.json", made_up.results(**options))
    return {path.name: str(path) for path in root.iterdir()}


def test_nothing_slower_is_status_0(folders, capsys):
    assert main(["compare", folders["old"], folders["again"]]) == 0
    out = capsys.readouterr().out
    assert "again against old: none of 138 times is shown to have changed" in out
    assert "threads, 2 threads" in out
    assert "SLOWER" not in out
    assert "110 more rows are the same" in out


def test_something_slower_is_status_1(folders, capsys):
    assert main(["compare", folders["old"], folders["slow"]]) == 1
    lines = capsys.readouterr().out.splitlines()
    changed = [line for line in lines if line.endswith("SLOWER")]
    assert changed
    assert all("linear_gelu_backward 768→3072" in line for line in changed)


def test_something_faster_is_status_0(folders, capsys):
    assert main(["compare", folders["old"], folders["fast"], "--all"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any("linear_gelu_backward" in line and line.endswith("faster") for line in lines)
    assert len([line for line in lines if line.endswith((" same", " faster"))]) == 138


def test_a_high_threshold_forgives(folders):
    assert main(["compare", folders["old"], folders["slow"], "--threshold", "40"]) == 0


def test_three_folders_and_files(folders, tmp_path, capsys):
    out = tmp_path / "new" / "folder"
    three = [folders[name] for name in ("old", "fast", "slow")]
    assert main(["compare", *three, "--out", str(out)]) == 1
    assert "fast against old" in capsys.readouterr().out
    names = ["change-1.svg", "change-2.svg", "comparison.html", "comparison.json"]
    assert sorted(path.name for path in out.iterdir()) == names
    record = json.loads((out / "comparison.json").read_text(encoding="utf-8"))
    assert [c["after"] for c in record["comparisons"]] == ["fast", "slow"]
    assert {c["before"] for c in record["comparisons"]} == {"old"}


def test_folders_of_one_name_are_told_apart(folders, tmp_path, capsys):
    (tmp_path / "old").mkdir()
    results.save(tmp_path / "old" / "results.json", made_up.results(seed=2))
    main(["compare", folders["old"], str(tmp_path / "old")])
    assert f"{tmp_path / 'old'} against {folders['old']}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["old"], "name two folders or more"),
        (["old", "other"], "old measured batch 4 and other batch 8"),
        (["old", "nowhere"], "No such file"),
        (["old", "again", "--confidence", "2"], "confidence"),
        (["old", "again", "--threshold", "-5"], "threshold"),
        (["old", "again", "--out", ""], "--out"),
    ],
)
def test_bad_input_is_one_line_and_status_2(folders, arguments, message, capsys):
    arguments = [folders.get(argument, argument) for argument in arguments]
    assert main(["compare", *arguments]) == 2
    captured = capsys.readouterr()
    assert message in captured.err
    assert captured.err.count("\n") == 1
    assert "Traceback" not in captured.err


def test_a_place_that_cannot_be_written_is_one_line(folders, tmp_path, capsys):
    (tmp_path / "file").write_text("mine", encoding="utf-8")
    out = str(tmp_path / "file")
    assert main(["compare", folders["old"], folders["again"], "--out", out]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert (tmp_path / "file").read_text(encoding="utf-8") == "mine"


def test_runs_that_tell_nothing_are_not_called_the_same(tmp_path, capsys):
    folders = []
    for name, repeats in (("a", 1), ("b", 2)):
        (tmp_path / name).mkdir()
        found = made_up.results(seed=repeats, repeats=repeats)
        results.save(tmp_path / name / "results.json", found)
        folders.append(str(tmp_path / name))
    assert main(["compare", *folders]) == 0
    out = capsys.readouterr().out
    assert "cannot tell" in out
    assert max(map(len, out.splitlines())) < 200  # no number of forty digits


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--threshold", "-5"], "--threshold is a percentage"),
        (["--out", "{file}"], "is a file; name a folder"),
    ],
)
def test_options_are_refused_by_their_names(folders, tmp_path, capsys, options, message):
    (tmp_path / "file").write_text("x", encoding="utf-8")
    given = [option.replace("{file}", str(tmp_path / "file")) for option in options]
    assert main(["compare", folders["old"], folders["again"], *given]) == 2
    assert message in capsys.readouterr().err


def test_a_folder_without_results_says_what_makes_them(folders, tmp_path, capsys):
    assert main(["compare", folders["old"], str(tmp_path)]) == 2
    assert "holds no results.json: gpt2lib bench --out" in capsys.readouterr().err
