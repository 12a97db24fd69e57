"""A tokenizer's file: written, read, and refused when anything is wrong with it."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpt2lib.tokenizer import BPE, files, load_tokenizer

from .texts import plain

BPE_ = BPE.train("low lower lowest é " * 3, 270, name="täst")


@pytest.fixture
def path(tmp_path):
    BPE_.save(tmp_path / "t.json")
    return tmp_path / "t.json"


@given(texts=st.lists(plain, max_size=4), size=st.integers(257, 290), end=st.booleans())
@settings(max_examples=30)
def test_what_is_saved_is_what_is_loaded(tmp_path_factory, texts, size, end):
    path = tmp_path_factory.mktemp("bpe") / "t.json"
    bpe = BPE.train(texts, size, end_of_text=end, name="a")
    bpe.save(path)
    twin = BPE.load(path)
    assert (twin.name, twin.merges, twin.vocab_size) == (bpe.name, bpe.merges, bpe.vocab_size)
    assert repr(twin) == repr(bpe)
    for text in texts:
        assert twin.encode(text) == bpe.encode(text)
    again = path.with_name("again.json")
    twin.save(again)
    assert again.read_bytes() == path.read_bytes()


def test_gpt2s_vocabulary_can_be_saved(tmp_path):
    BPE.gpt2().save(tmp_path / "gpt2.json")
    bpe = load_tokenizer(tmp_path / "gpt2.json")
    assert bpe.encode("Hello world") == [15496, 995]
    assert bpe.end_of_text == 50256


def test_the_layout_of_the_file_does_not_matter(path):
    path.write_text(json.dumps(json.loads(path.read_text("utf-8")), indent=7), encoding="utf-8")
    assert BPE.load(path).merges == BPE_.merges


def change(path, *, sign=True, **fields):
    content = json.loads(path.read_text("utf-8")) | fields
    content = {key: value for key, value in content.items() if value is not ...}
    if sign:  # so that what comes after the digest is reached
        content.pop("sha256", None)
        content["sha256"] = files._digest(content)
    path.write_text(json.dumps(content), encoding="utf-8")


MERGES = [list(pair) for pair in BPE_.merges]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"format": "other"}, "its format is 'other'"),
        ({"format": ...}, "its format is None"),
        ({"version": 2}, "version 2.*update gpt2lib"),
        ({"merges": ...}, "'merges' is missing or not a list"),
        ({"merges": {}}, "'merges' is missing or not a list"),
        ({"name": 3}, "'name' is missing or not a str"),
        ({"end_of_text": 1}, "'end_of_text' is missing or not a bool"),
        ({"byte_order": "zz"}, "byte_order is not hexadecimal"),
        ({"byte_order": "00" * 256}, "byte_order does not hold each"),
        ({"byte_order": bytes(range(255)).hex()}, "byte_order does not hold each"),
        ({"merges": [*MERGES, [999, 1]]}, f"merge {len(MERGES)} is not a pair of ids from 0"),
        ({"merges": [[-1, 1]]}, "merge 0 is not a pair"),
        ({"merges": [[1, 256]]}, "merge 0 is not a pair"),
        ({"merges": [[1.0, 2]]}, "merge 0 is not a pair"),
        ({"merges": [[True, 2]]}, "merge 0 is not a pair"),
        ({"merges": ["ab"]}, "merge 0 is not a pair"),
        ({"merges": [[1, 2, 3]]}, "merge 0 is not a pair"),
        ({"merges": [[1, 2], [1, 2]]}, "merge 1 repeats an earlier one"),
    ],
)
def test_wrong_fields_are_refused(path, fields, words):
    change(path, **fields)
    with pytest.raises(ValueError, match=words) as refusal:
        BPE.load(path)
    assert "t.json" in str(refusal.value)


@pytest.mark.parametrize(
    "fields", [{"name": "x"}, {"merges": MERGES[:-1]}, {"sha256": ...}, {"sha256": "0"}, {"new": 1}]
)
def test_edits_are_noticed(path, fields):
    change(path, sign=False, **fields)
    with pytest.raises(ValueError, match="does not agree with its SHA-256"):
        BPE.load(path)


def test_every_flipped_byte_is_noticed_or_harmless(path):
    good = path.read_bytes()
    for place in range(0, len(good), 17):
        bad = bytearray(good)
        bad[place] ^= 1 << (place % 8)
        path.write_bytes(bad)
        try:
            twin = BPE.load(path)
        except ValueError as refusal:
            assert "t.json" in str(refusal)  # noqa: PT017
        else:  # white space between the fields became other white space, a digit's case changed
            assert (twin.merges, twin.name) == (BPE_.merges, BPE_.name)


def test_truncated_files_are_refused(path):
    good = path.read_bytes()
    for length in (0, 1, 2, len(good) // 2, len(good) - 3):
        path.write_bytes(good[:length])
        with pytest.raises(ValueError, match="it is not JSON from line"):
            BPE.load(path)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"[]", "no JSON object"),
        (b"\xff\xfe{}", "byte 0 is not UTF-8"),
        (b"[" * 100_000, "cannot be read|not JSON"),
        (b'{"merges": ' + b"9" * 5000 + b"}", "cannot be read|format"),
    ],
)
def test_other_files_are_refused(path, content, words):
    path.write_bytes(content)
    with pytest.raises(ValueError, match=words):
        BPE.load(path)


def test_places_without_a_file(tmp_path):
    with pytest.raises(ValueError, match="No such file"):
        BPE.load(tmp_path / "none.json")
    with pytest.raises(ValueError, match="cannot read the tokenizer"):
        BPE.load(tmp_path)
    with pytest.raises(ValueError, match="cannot be read"):
        BPE.load("a\0b")


def test_a_failed_save_leaves_the_old_file(path, monkeypatch):
    before = path.read_bytes()
    monkeypatch.setattr("pathlib.Path.write_text", lambda *_, **__: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        BPE.train("other", 260).save(path)
    assert path.read_bytes() == before
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]
