import json

import pytest

from gpt2lib import cli
from gpt2lib.commands import info

SECTIONS = {
    "versions",
    "processor",
    "memory",
    "BLAS",
    "runtimes",
    "tokenizers",
    "packaged model",
    "optional packages",
    "environment",
}


def test_json_has_every_section(capsys):
    assert cli.main(["info", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert set(facts) == SECTIONS
    assert facts["versions"]["numpy"].split(".")[0] == "2"
    assert facts["processor"]["CPUs this process may use"] >= 1
    assert facts["runtimes"]["sequential"].startswith("yes")
    assert any("openblas" in text for text in facts["BLAS"].values())
    assert facts["tokenizers"]["gpt2"] == "yes: 50,257 tokens"


def test_the_table_names_the_same(capsys):
    assert cli.main(["info"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert {line for line in lines if not line.startswith(" ")} == SECTIONS
    assert any(line.split()[:2] == ["gpt2", "yes:"] for line in lines)


def test_affinity_is_what_counts_not_the_machine(monkeypatch):
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {3}, raising=False)
    processor = info.gather()["processor"]
    assert processor["CPUs this process may use"] == 1
    assert processor["threads by default"] == 1


def test_what_is_missing_says_why_and_how(monkeypatch):
    monkeypatch.setitem(info._OPTIONAL, "no-such-package", ("no_such_module", "a test"))
    monkeypatch.setattr("gpt2lib.pretrained.PACKAGED_MODEL", "/nowhere/tiny.safetensors")
    facts = info.gather()
    missing = facts["optional packages"]["no-such-package"]
    assert missing == "not installed; for a test: pip install no-such-package"
    assert "/nowhere/tiny.safetensors" in facts["packaged model"]["unknown"]


@pytest.mark.parametrize("part", ["_blas", "_runtimes", "_memory", "_tokenizers"])
def test_a_broken_part_does_not_hide_the_others(monkeypatch, part):
    def broken():
        raise RuntimeError("broken installation")

    monkeypatch.setattr(info, part, broken)
    facts = info.gather()
    assert set(facts) == SECTIONS
    assert [s for s in facts.values() if s == {"unknown": "RuntimeError: broken installation"}]
