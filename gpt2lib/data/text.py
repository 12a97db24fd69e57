"""From a file to documents: encodings, line ends, separators, and damaged text made whole."""

from __future__ import annotations

import codecs
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

__all__ = ["SEPARATOR", "read_documents", "repair_mojibake", "text_encoding", "text_files"]

SEPARATOR = "<|endoftext|>"
"""A line with nothing but this ends a document, as in the TinyStories files."""

_SAMPLE = 1 << 16  # bytes looked at to tell text from something else

# The longer marks first: UTF-32's little-endian mark begins with UTF-16's.
_MARKS = [
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
]


def text_encoding(path: str | os.PathLike[str]) -> str:
    """Tell how a text file is encoded: by its byte order mark, else UTF-8.

    Raises
    ------
    ValueError
        Where the beginning of the file is not text: bytes that no text holds, or more than a
        tenth of its characters unreadable as UTF-8.
    """
    path = Path(path)
    with path.open("rb") as file:
        sample = file.read(_SAMPLE)
    for mark, encoding in _MARKS:
        if sample.startswith(mark):
            return encoding
    if b"\0" in sample:
        raise ValueError(
            f"{path}: binary file (it holds zero bytes), not text; convert it to UTF-8"
        )
    controls = sum(sample.count(byte) for byte in set(range(32)) - {*b"\t\n\v\f\r\x1b"})
    if controls > len(sample) // 50:
        raise ValueError(f"{path}: binary file (it is full of control bytes), not text")
    # The last character of the sample may be cut through: that is no fault of the file.
    characters = codecs.getincrementaldecoder("utf-8")("replace").decode(sample)
    unreadable = characters.count("\N{REPLACEMENT CHARACTER}")
    if unreadable > max(8, len(characters) // 10):
        raise ValueError(
            f"{path}: {unreadable} of its first {len(characters)} characters are unreadable as "
            f"UTF-8; convert it, for example with iconv -f cp1251 -t utf-8"
        )
    return "utf-8"


def read_documents(path: str | os.PathLike[str], *, paragraphs: bool = True) -> Iterator[str]:
    r"""Read the documents of a text file one by one; no more than one is held in memory.

    UTF-8, or UTF-16 and UTF-32 with a byte order mark; what cannot be read becomes U+FFFD. Line
    ends are ``\n`` on every system, whatever they are in the file. Nothing depends on the
    system's own encoding: that is why reading TinyStories elsewhere ends in ``'charmap' codec
    can't decode byte 0x9d``, where a bare ``open(path)`` reads it as the code page of Windows.

    A line ``<|endoftext|>`` ends a document. Where the file has none, paragraphs are documents:
    in a large file, neighbouring ones together until they make some 2 000 characters. A file
    with neither is one document.

    Parameters
    ----------
    path
        A text file.
    paragraphs
        False: a file without separators is one document, whatever it holds.

    Yields
    ------
    str
        A document, without line ends around it; it may be empty.

    Raises
    ------
    ValueError
        Where the file is not text.
    """
    path = Path(path)
    encoding = text_encoding(path)
    if any(line.strip() == SEPARATOR for line in _lines(path, encoding)):
        return _separated(_lines(path, encoding))
    if not paragraphs:
        return iter(["".join(_lines(path, encoding)).strip("\n")])
    return _paragraphs(_lines(path, encoding), enough=min(2000, path.stat().st_size // 100))


def _lines(path: Path, encoding: str) -> Iterator[str]:
    # newline=None: \r\n and \r become \n
    with path.open(encoding=encoding, errors="replace", newline=None) as file:
        for number, line in enumerate(file, start=1):
            if "\0" in line:
                raise ValueError(f"{path}: zero character in line {number}: binary file, not text")
            yield line


def _separated(lines: Iterable[str]) -> Iterator[str]:
    """Yield what stands between lines of ``<|endoftext|>``."""
    document: list[str] = []
    for line in lines:
        if line.strip() == SEPARATOR:
            yield "".join(document).strip("\n")
            document = []
        else:
            document.append(line)
    if rest := "".join(document).strip("\n"):  # after the last separator there need be nothing
        yield rest


def _paragraphs(lines: Iterable[str], enough: int) -> Iterator[str]:
    """Yield paragraphs, joined until they have ``enough`` characters."""
    document: list[str] = []
    size = 0
    for line in lines:
        if line.strip():
            document.append(line)
            size += len(line)
        elif size > enough:
            yield "".join(document).strip("\n")
            document, size = [], 0
        elif document:
            document.append("\n")
    if size:
        yield "".join(document).strip("\n")


def text_files(folder: str | os.PathLike[str]) -> tuple[list[Path], list[str]]:
    """List the text files below a folder, in order of name, and say why others are left out.

    Hidden files and folders (``.git``) are passed over.
    """
    files, refused = [], []
    for path in sorted(Path(folder).rglob("*")):
        hidden = any(part.startswith(".") for part in path.relative_to(folder).parts)
        if hidden or not path.is_file():
            continue
        try:
            text_encoding(path)
            files.append(path)
        except ValueError as reason:
            refused.append(str(reason))
    return files, refused


# The characters that bytes 0x80 … 0xBF become when UTF-8 is taken for cp1252. Five of them are
# not defined there: some programs keep them as control characters, some lose them.
_CONTINUATION = "".join(
    bytes([byte]).decode("cp1252", "ignore") or chr(byte) for byte in range(0x80, 0xC0)
)
_C = f"[{re.escape(_CONTINUATION)}]"
_DAMAGE = re.compile(
    f"Ã¢â‚¬(?:â{_C}{_C}|[ÂÅÆË]{_C})"  # the next line's, damaged once more
    f"|â€{_C}"  # E2 80 xx: quotes, dashes, dots
    "|â„¢"  # E2 84 A2: ™
    f"|ðŸ{_C}{_C}"  # F0 9F xx xx: emoji
    f"|(?<=[^\\W\\d_A-Z])Ã{_C}"  # C3 xx after a small letter: cafÃ©
    f"|Ã{_C}(?=[a-z])"  # C3 xx before a small letter: Ã©tÃ©
    "|(?<![^\\W\\d_])Â[£©®°·¼½¾¿¡]"  # C2 xx, not at the end of a word: 20Â°C
)
_BYTES = {character: 0x80 + i for i, character in enumerate(_CONTINUATION)}
_LOST = re.compile("â€(?![" + re.escape(_CONTINUATION) + "])")


def repair_mojibake(text: str) -> str:
    r"""Undo the damage of UTF-8 that was read as cp1252 and saved again: ``â€œ`` was ``“``.

    Many TinyStories documents have it: the quotation marks of the model that wrote them went
    through a program that took their three UTF-8 bytes for three characters of the code page.
    Each damaged run goes the way back, from characters to bytes and from bytes to UTF-8. Only
    runs that no healthy text contains are touched: ``Ã`` between small letters, ``â€`` before one
    of the 64 characters that a continuation byte becomes, and the like; a Portuguese ``AMANHÃ”``
    stays as it is. A right quotation mark's last byte, 0x9D, is undefined in cp1252 and often
    lost; a lone ``â€`` is taken for it.

    Repairing twice is repairing once; quotes that were damaged twice are repaired twice.

    Examples
    --------
    >>> repair_mojibake("Lily said, â€œItâ€™s mine!â€\x9d")
    'Lily said, “It’s mine!”'
    """
    while True:
        repaired = _LOST.sub("”", _DAMAGE.sub(_undo, text))
        if repaired == text:
            return text
        text = repaired  # each round is shorter, so this ends


def _undo(match: re.Match[str]) -> str:
    run = match.group()
    raw = bytes(_BYTES.get(character, ord(character) & 0xFF) for character in run)
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return run
