"""What follows from encode and token_bytes for every tokenizer: streaming, labels, surrogates."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpt2lib.tokenizer import BPE, StreamDecoder, gpt2, valid_unicode

from .texts import any_text, plain

BYTES = BPE([])  # the id of a byte is the byte


def streamed(tokenizer, ids):
    stream = tokenizer.stream_decoder()
    return [*(stream.push(token) for token in ids), stream.finish()]


@given(plain)
@settings(max_examples=200)
def test_a_stream_joins_to_the_text_and_shows_whole_characters(text):
    for tokenizer in (BYTES, gpt2()):
        chunks = streamed(tokenizer, tokenizer.encode(text))
        assert "".join(chunks) == text
        assert ("\ufffd" in "".join(chunks)) == ("\ufffd" in text)
        assert chunks[-1] == ""


@given(st.binary(max_size=12))
@settings(max_examples=200)
def test_a_stream_joins_to_what_decode_gives_for_any_bytes(data):
    assert "".join(streamed(BYTES, data)) == BYTES.decode(data)


@given(st.lists(st.integers(0, 50256), max_size=12))
@settings(max_examples=150)
def test_a_stream_joins_to_what_decode_gives_for_any_ids(ids):
    assert "".join(streamed(gpt2(), ids)) == gpt2().decode(ids)


def test_half_a_character_waits():
    text = "“naïve” 日本 👍🏽 ∩"
    chunks = streamed(gpt2(), gpt2().encode(text))
    assert "".join(chunks) == text
    assert "" in chunks[:-1]
    assert not any("\ufffd" in chunk for chunk in chunks)


def test_a_character_that_never_gets_whole_is_shown_at_the_end():
    stream = StreamDecoder(BYTES)
    assert stream.push(0xF0) + stream.push(0x9F) == ""
    assert stream.finish() == "\ufffd"
    assert stream.push(ord("a")) == "a"  # finish() has begun anew


@pytest.mark.parametrize(
    ("piece", "label"),
    [
        (b"cat", "cat"),
        (b" cat", "␣cat"),
        (b"\n\n", "↵↵"),
        (b"\t", "⇥"),
        (b"\x00", "\\x00"),
        ("\u200b".encode(), "\\u200b"),
        ("\u0301".encode(), "◌\u0301"),
        ("日".encode(), "日"),
        (b"\xe2\x80", "⟨E2 80⟩"),
        (b" \xf0\x9f", "⟨20 F0 9F⟩"),
    ],
)
def test_labels(piece, label):
    merges = [(piece[0], piece[1])] if len(piece) > 1 else []
    merges += [(255 + k, piece[k + 1]) for k in range(1, len(piece) - 1)]
    bpe = BPE(merges)
    token = 255 + len(merges) if merges else piece[0]
    assert bpe.token_bytes(token) == piece
    assert bpe.token_label(token) == label


def test_every_label_prints():
    for tokenizer in (BYTES, gpt2()):
        labels = [tokenizer.token_label(token) for token in range(tokenizer.vocab_size)]
        assert all(label and label.isprintable() for label in labels)
        for token, label in enumerate(labels):
            assert ("\ufffd" in label) == ("\ufffd".encode() in tokenizer.token_bytes(token))
            assert " " not in label or label.startswith("⟨")
        assert labels[tokenizer.end_of_text] == "<|endoftext|>"
    assert gpt2().token_label(447) == "⟨E2 80⟩"


@given(any_text)
@settings(max_examples=150)
def test_surrogates_are_repaired_and_nothing_else(text):
    repaired = valid_unicode(text)
    assert BYTES.decode(BYTES.encode(text)) == repaired
    if not any(0xD800 <= ord(character) < 0xE000 for character in text):
        assert repaired == text


def test_surrogates_by_hand():
    assert valid_unicode("\ud83d\udc4d") == "👍"
    assert valid_unicode("a\ud83d b") == "a\ufffd b"
    assert valid_unicode("\udc4d\ud83d") == "\ufffd\ufffd"
    assert valid_unicode("\ufeffa\udc00") == "\ufeffa\ufffd"  # a text's own byte order mark stays
