"""The diary: whole lines, cut where a checkpoint begins again."""

import json

import pytest

from gpt2lib.train.log import Log, read_log


def test_lines_are_on_disk_at_once(tmp_path):
    log = Log(tmp_path / "log.jsonl")
    for step in (1, 2):
        log.write({"step": step, "loss": 1.5, "note": "é 日本"})
        assert (tmp_path / "log.jsonl").read_text(encoding="utf-8").count("\n") == step
    assert read_log(tmp_path) == log.records == read_log(tmp_path / "log.jsonl")
    log.close()


def test_a_continued_log_is_cut_at_the_step(tmp_path):
    lines = [json.dumps({"step": s, "loss": 2}) for s in range(1, 6)]
    (tmp_path / "log.jsonl").write_text("\n".join(lines) + '\n{"st', encoding="utf-8")
    log = Log(tmp_path / "log.jsonl", step=3)
    log.write({"step": 4, "loss": 1.0, "again": True})
    log.close()
    assert [r["step"] for r in read_log(tmp_path)] == [1, 2, 3, 4]
    assert read_log(tmp_path)[-1] == {"step": 4, "loss": 1.0, "again": True}


@pytest.mark.parametrize(
    "line",
    [
        *("nonsense", "[1]", "", '{"loss": 1}', '{"step": 1}', '{"step": null, "loss": 1}'),
        *('{"step": "1", "loss": 1}', '{"step": 1e999, "loss": 1}', '{"step": 1, "loss": "x"}'),
    ],
)
def test_a_spoilt_line_is_named_by_its_number(tmp_path, line):
    whole = '{"step": 1, "loss": 2.5}'
    (tmp_path / "log.jsonl").write_text(f"{whole}\n{line}\n{whole}\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"log\.jsonl, line 2"):
        read_log(tmp_path)


def test_an_empty_log_has_no_records(tmp_path):
    (tmp_path / "log.jsonl").touch()
    assert read_log(tmp_path) == []
