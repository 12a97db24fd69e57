r"""Cut text into the pieces inside which GPT-2's tokenizer may merge.

Byte pairs are never merged across these cuts, so that ``dog``, ``dog.`` and ``dog!`` share a token
(Radford et al., 2019, section 2.2). GPT-2's own program makes the cuts with a regular expression::

    's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+

Python's ``re`` knows neither ``\p{L}`` (letters) nor ``\p{N}`` (numbers), and its ``\s`` holds four
control characters more than Unicode's white space. So each character beyond ASCII is first replaced
by one of ASCII that is of its kind, where the expression is easy to write; the text is then cut in
the same places.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

# GPT-2's expression for text in ASCII. Its parts are tried in this order; the last but one takes
# white space in a row, less the last character if more text follows, so that "\n\n  see" is cut
# into "\n\n " and " see".
PATTERN = re.compile(
    r"'s|'t|'re|'ve|'m|'ll|'d| ?[A-Za-z]+| ?[0-9]+| ?[^\sA-Za-z0-9]+|\s+(?!\S)|\s+", re.ASCII
)

# What stands for the characters beyond ASCII. No other space than U+0020 goes with a word (" see"),
# so the others become newlines.
LETTER, NUMBER, SPACE, OTHER = "a", "0", "\n", "!"

# Unicode's White_Space property: what \s means to GPT-2. ``str.isspace`` also takes \x1c to \x1f.
WHITESPACE = frozenset(
    "\t\n\v\f\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000"
)

# Letters and numbers that Unicode 15.0, 15.1 and 16.0 added. Python 3.11 knows Unicode 14 and
# Python 3.13 knows 15.1; with these every Python cuts alike, and as tiktoken (Unicode 16) does.
_NEWER = {
    LETTER: (
        "1C89-1C8A A7CB-A7CD A7DA-A7DC 105C0-105F3 10D4A-10D65 10D6F-10D85 10EC2-10EC4 "
        "1123F-11240 11380-11389 1138B 1138E 11390-113B5 113B7 113D1 113D3 11BC0-11BE0 11F02 "
        "11F04-11F10 11F12-11F33 1342F 13441-13446 13460-143FA 16100-1611D 16D40-16D6C 18CFF "
        "1B132 1B155 1DF25-1DF2A 1E030-1E06D 1E4D0-1E4EB 1E5D0-1E5ED 1E5F0 2B739 2EBF0-2EE5D "
        "31350-323AF"
    ),
    NUMBER: (
        "10D40-10D49 116D0-116E3 11BF0-11BF9 11F50-11F59 16130-16139 16D70-16D79 1CCF0-1CCF9 "
        "1D2C0-1D2D3 1E4F0-1E4F9 1E5F1-1E5FA"
    ),
}


def pretokenize(text: str) -> Iterator[str]:
    """Cut ``text`` into pieces, which joined give ``text`` again.

    Parameters
    ----------
    text
        Any text, without surrogates if the pieces are to be encoded.

    Yields
    ------
    str
        A contraction's ending, or letters, or numbers, or other signs, the last three with the one
        space before them; or white space.

    Examples
    --------
    >>> list(pretokenize("We'll see 3 dogs,  OK?"))
    ['We', "'ll", ' see', ' 3', ' dogs', ',', ' ', ' OK', '?']
    """
    ascii_text = text if text.isascii() else text.translate(_STAND_INS)  # "3 Öfen" -> "3 afen"
    for match in PATTERN.finditer(ascii_text):
        yield text[match.start() : match.end()]


class _StandIns(dict[int, str]):
    """A table for ``str.translate``, filled as characters are met."""

    def __missing__(self, code: int) -> str:
        stand_in = self[code] = chr(code) if code < 128 else _kind(chr(code))
        return stand_in


def _kind(character: str) -> str:
    """Return LETTER, NUMBER, SPACE or OTHER for a character."""
    if character in WHITESPACE:
        return SPACE
    category = unicodedata.category(character)
    if category == "Cn":  # not assigned, as far as this Python knows
        return _NEWER_KIND.get(ord(character), OTHER)
    return {"L": LETTER, "N": NUMBER}.get(category[0], OTHER)


def _codes(ranges: str) -> Iterator[int]:
    """Yield the code points of ranges such as "1C89-1C8A 1138B"."""
    for entry in ranges.split():
        low, _, high = entry.partition("-")
        yield from range(int(low, 16), int(high or low, 16) + 1)


_NEWER_KIND = {code: kind for kind, ranges in _NEWER.items() for code in _codes(ranges)}
_STAND_INS = _StandIns()
