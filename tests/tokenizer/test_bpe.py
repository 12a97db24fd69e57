"""Encoding and decoding with a vocabulary of one's own."""

import copy
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gpt2lib
from gpt2lib.tokenizer import BPE, Tokenizer, pretokenize, valid_unicode

from .texts import any_text, plain

TEXT = "Once upon a time there was a cat. The cat's hat was red, the cat's mat was blue. " * 3
BPES = {
    "bytes": BPE([]),
    "small": BPE.train(TEXT, 280),
    "runs": BPE.train(["a" * 64 + " " + "ab" * 40 + " " * 16], 290),
}


@pytest.fixture(params=BPES.values(), ids=BPES)
def bpe(request):
    return request.param


@given(plain)
@settings(max_examples=150)
def test_any_text_comes_back(text):
    for bpe in BPES.values():
        ids = bpe.encode(text)
        assert bpe.decode(ids) == text
        assert all(0 <= token < bpe.end_of_text for token in ids)


@given(st.one_of(any_text, st.text("ab ", max_size=60)))
@settings(max_examples=150)
def test_encoding_is_what_the_steps_end_in(text):
    for bpe in BPES.values():
        by_steps = []
        for word in pretokenize(valid_unicode(text)):
            by_steps.extend(bpe.steps(word)[-1].ids)
        assert bpe.encode(text) == by_steps


def test_steps_tell_pieces_and_ranks():
    bpe = BPE([(ord("l"), ord("o")), (256, ord("w")), (ord("e"), ord("r"))])
    steps = bpe.steps("lower")
    assert [step.pieces for step in steps] == [
        (b"l", b"o", b"w", b"e", b"r"),
        (b"lo", b"w", b"e", b"r"),
        (b"low", b"e", b"r"),
        (b"low", b"er"),
    ]
    assert [step.ranks for step in steps] == [
        (0, None, None, 2),
        (1, None, 2),
        (None, 2),
        (None,),
    ]
    assert [step.rank for step in steps] == [0, 1, 2, None]
    assert steps[-1].ids == (257, 258)


@pytest.mark.parametrize(("text", "pieces"), [("", 0), ("two words", 2), ("it's", 2)])
def test_steps_take_one_word(text, pieces):
    with pytest.raises(ValueError, match=f"cut into {pieces} pieces"):
        BPE([]).steps(text)


def test_empty(bpe):
    assert bpe.encode("") == []
    assert bpe.decode([]) == ""
    assert bpe.decode_bytes(iter([])) == b""
    array = bpe.encode_array("")
    assert array.shape == (0,)
    assert array.dtype == np.int64


def test_arrays(bpe):
    array = bpe.encode_array(TEXT)
    assert array.dtype == np.int64
    assert array.tolist() == bpe.encode(TEXT)
    assert bpe.decode(array) == TEXT
    assert bpe.decode(array.astype(np.uint16)) == TEXT


def test_end_of_text_is_never_in_a_text(bpe):
    text = "a <|endoftext|> b"
    assert bpe.end_of_text not in bpe.encode(text)
    assert bpe.decode(bpe.encode(text)) == text
    assert bpe.end_of_text == bpe.vocab_size - 1
    assert bpe.decode([bpe.end_of_text]) == "<|endoftext|>"
    greedy = BPE.train("<|endoftext|>" * 50, 400)  # a token of the same bytes, at most
    assert greedy.end_of_text not in greedy.encode("<|endoftext|>")


def test_without_end_of_text():
    bpe = BPE.train(TEXT, 280, end_of_text=False)
    assert bpe.vocab_size == 280
    with pytest.raises(ValueError, match="end_of_text=True"):
        bpe.end_of_text  # noqa: B018


@pytest.mark.parametrize("token", [-1, 280, 10**9, np.int64(-1)])
def test_ids_outside_the_vocabulary_are_refused(token):
    bpe = BPES["small"]
    for call in (bpe.token_bytes, bpe.token_label, bpe.stream_decoder().push):
        with pytest.raises(ValueError, match=f"token id {token} .* from 0 to 279"):
            call(token)
    with pytest.raises(ValueError, match="not in the vocabulary"):
        bpe.decode([97, token])


def test_what_is_no_id_or_no_text_is_a_type_error(bpe):
    with pytest.raises(TypeError):
        bpe.decode([1.5])
    for text in (b"bytes", None, 3, ["a"]):
        with pytest.raises(TypeError, match="encodes str"):
            bpe.encode(text)


@pytest.mark.parametrize(
    ("merges", "words"),
    [
        ([(256, 1)], "merge 0 is of the ids 256 and 1"),
        ([(1, 2), (257, 0)], "only the ids 0 to 256 exist"),
        ([(-1, 2)], "merge 0"),
        ([(1, 2), (3, 4), (1, 2)], "merge 2, of the ids 1 and 2, repeats merge 0"),
    ],
)
def test_impossible_merges_are_refused(merges, words):
    with pytest.raises(ValueError, match=words):
        BPE(merges)


@pytest.mark.parametrize("order", [range(255), [0] * 256, range(1, 257)])
def test_impossible_byte_orders_are_refused(order):
    with pytest.raises(ValueError):
        BPE([], byte_order=list(order))


def test_first_merges():
    bpe = BPES["small"]
    assert bpe.first_merges(0).encode("cat") == list(b"cat")
    assert bpe.first_merges(10).merges == bpe.merges[:10]
    assert bpe.first_merges(10**6).encode(TEXT) == bpe.encode(TEXT)


def test_merges_cannot_be_changed_from_outside(bpe):
    bpe.merges.append((1, 2))
    bpe.encode("cat").append(0)
    assert (1, 2) not in bpe.merges
    assert bpe.decode(bpe.encode("cat")) == "cat"


def test_copies_for_worker_processes(bpe):
    for twin in (pickle.loads(pickle.dumps(bpe)), copy.deepcopy(bpe)):
        assert twin.encode(TEXT) == bpe.encode(TEXT)
        assert (twin.name, twin.vocab_size) == (bpe.name, bpe.vocab_size)


def test_the_protocol_is_fulfilled(bpe):
    assert isinstance(bpe, Tokenizer)


class CountingTable(dict):
    """The table of merges, which counts how often it is asked: the work that encoding does."""

    asked = 0

    def get(self, key, default=None):
        self.asked += 1
        return super().get(key, default)


@pytest.mark.parametrize("unit", ["a", "ab", "^", " ", "é"])
def test_work_is_linear_in_the_length_of_a_word(unit):
    bpe = BPE.train(["a" * 512 + " " + "ab" * 300 + " " * 300 + "^" * 300 + " " + "é" * 300], 400)

    def work(length):
        bpe._merged = CountingTable(bpe._merged)
        word = unit * (length // len(unit))
        assert bpe.decode(bpe.encode(word)) == word
        return bpe._merged.asked

    small, large = work(2_000), work(20_000)
    assert 2_000 <= small * len(unit) <= 10 * 2_000 * len(unit.encode())
    assert large < 11 * small


def test_the_cache_is_bounded(monkeypatch):
    bpe = BPE.train(TEXT, 280)
    monkeypatch.setattr("gpt2lib.tokenizer.bpe._CACHE_WORDS", 10)
    words = [f" w{'x' * number}" for number in range(100)]
    assert bpe.decode(bpe.encode("".join(words))) == "".join(words)
    assert 0 < len(bpe._cache) <= 10
    assert max(map(len, bpe._cache)) <= 64


def test_the_standard_library_is_enough(tmp_path):
    """Pyodide has NumPy at most: -S hides every installed package."""
    code = """
import sys
sys.path.insert(0, sys.argv[1])
from gpt2lib.tokenizer import BPE, load_tokenizer, pretokenize
bpe = BPE.train("low lower lowest", 270)
bpe.save(sys.argv[2])
text = "slower, " + chr(0xe9) + chr(0x65e5) + chr(0x1f44d)
assert load_tokenizer(sys.argv[2]).decode(bpe.encode(text)) == text
assert bpe.steps(" lower")[-1].ids
assert "numpy" not in sys.modules and "regex" not in sys.modules
"""
    root = str(Path(gpt2lib.__file__).parents[1])
    arguments = [sys.executable, "-S", "-c", code, root, str(tmp_path / "t.json")]
    result = subprocess.run(arguments, capture_output=True, encoding="utf-8", timeout=60)
    assert result.returncode == 0, result.stderr
