"""Tokenizers by name and by path."""

import subprocess
import sys

import pytest

from gpt2lib.tokenizer import BPE, gpt2, load_tokenizer, loading

BPE_ = BPE.train("low lower lowest", 260)


def test_gpt2_by_name():
    assert load_tokenizer("gpt2") is gpt2()


def test_tiny_by_name(tmp_path, monkeypatch):
    BPE_.save(tmp_path / "tiny.json")
    monkeypatch.setattr(loading, "TINY", tmp_path / "tiny.json")
    assert load_tokenizer("tiny").merges == BPE_.merges


@pytest.mark.skipif(not loading.TINY.exists(), reason="the trained model is not in the package yet")
def test_the_packaged_tiny_tokenizer():
    tiny = load_tokenizer("tiny")
    assert tiny.vocab_size == 512
    text = "Once upon a time, é 👍"
    assert tiny.decode(tiny.encode(text)) == text


def test_by_path(tmp_path):
    BPE_.save(tmp_path / "tokenizer.json")
    for path in (tmp_path / "tokenizer.json", str(tmp_path / "tokenizer.json"), tmp_path):
        assert load_tokenizer(path).merges == BPE_.merges


def test_unknown_names_are_refused(tmp_path):
    for name in ("gpt3", tmp_path / "none.json", tmp_path, "x" * 5000, "", "a\0b"):
        with pytest.raises(ValueError, match=r"there is no tokenizer|cannot read the tokenizer"):
            load_tokenizer(name)


def test_the_exports_are_lazy_and_complete():
    code = """
import sys
import gpt2lib.tokenizer as package
assert not any(name.startswith("gpt2lib.tokenizer.") for name in sys.modules)
assert set(package.__all__) == set(package._LAZY) <= set(dir(package))
from gpt2lib.tokenizer import BPE
assert "tiktoken" not in sys.modules and "json" not in vars(package)
for name in package.__all__:
    assert callable(getattr(package, name)), name
assert callable(package.gpt2) and package.BPE is BPE
try:
    package.nothing
except AttributeError as error:
    assert "nothing" in str(error)
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, encoding="utf-8")
    assert result.returncode == 0, result.stderr
