"""The cuts are those of GPT-2's own regular expression."""

import unicodedata

import regex
import tiktoken
from hypothesis import given, settings

from gpt2lib.tokenizer import pretokenizer
from gpt2lib.tokenizer.pretokenizer import pretokenize

from .texts import plain

# From OpenAI's gpt-2 repository, src/encoder.py.
GPT2_PATTERN = regex.compile(
    r"""'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"""
)


@given(plain)
@settings(max_examples=200)
def test_cuts_as_gpt2_does_and_loses_nothing(text):
    pieces = list(pretokenize(text))
    assert "".join(pieces) == text
    # The module regex may know letters newer than Unicode 16's; all kinds are compared below.
    if all(unicodedata.category(character) != "Cn" for character in text):
        assert pieces == GPT2_PATTERN.findall(text)


def test_by_hand():
    assert list(pretokenize("")) == []
    assert list(pretokenize(" ")) == [" "]
    assert list(pretokenize("a  b")) == ["a", " ", " b"]
    assert list(pretokenize("a \n\n b\n")) == ["a", " \n\n", " b", "\n"]
    assert list(pretokenize("a\n\nb")) == ["a", "\n", "\n", "b"]
    assert list(pretokenize("\xa0\xa0x")) == ["\xa0", "\xa0", "x"]
    assert list(pretokenize("\x1c\x1cx")) == ["\x1c\x1c", "x"]  # controls, not white space
    assert list(pretokenize("it's IT'S 'twas !'s")) == [
        *["it", "'s", " IT", "'", "S", " '", "twas", " !'", "s"]
    ]
    assert list(pretokenize("x² + ½ٱ٣")) == ["x", "²", " +", " ½", "ٱ", "٣"]


def test_every_code_point_is_of_the_kind_that_tiktoken_sees():
    everything = [chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE000]
    byte_tokens = {bytes([byte]): byte for byte in range(256)}

    def matching(pattern: str) -> set[str]:
        # tiktoken passes over what its pattern does not match, so what it encodes has matched
        encoding = tiktoken.Encoding(
            "kinds", pat_str=pattern, mergeable_ranks=byte_tokens, special_tokens={}
        )
        return set(encoding.decode(encoding.encode_ordinary("".join(everything))))

    for kind, pattern in [
        (pretokenizer.LETTER, r"\p{L}"),
        (pretokenizer.NUMBER, r"\p{N}"),
        (pretokenizer.SPACE, r"\s"),
    ]:
        ours = {character for character in everything if pretokenizer._kind(character) == kind}
        assert ours == matching(pattern), f"pretokenizer._NEWER is out of date for {pattern}"
