"""What every tokenizer here can do, and what follows from that for all of them."""

from __future__ import annotations

import codecs
import unicodedata
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    import numpy as np

# How whitespace is drawn in a label, so that a reader sees that it is there.
_VISIBLE = {" ": "␣", "\n": "↵", "\t": "⇥"}


@runtime_checkable
class Tokenizer(Protocol):
    """Text to token ids, and back.

    A tokenizer supplies the members without a body (``name``, ``vocab_size``, ``end_of_text``,
    ``encode``, ``token_bytes``); a class that derives from this one gets the others for nothing.
    """

    @property
    def name(self) -> str:
        """What the tokenizer is called, such as ``"gpt2"`` or ``"tiny"``."""
        ...

    @property
    def vocab_size(self) -> int:
        """V, the number of different ids: they run from 0 to V - 1."""
        ...

    @property
    def end_of_text(self) -> int:
        """The id that stands between documents. No text encodes to it."""
        ...

    def encode(self, text: str) -> list[int]:
        """Return the ids of ``text``, all of which is taken as ordinary text."""
        ...

    def token_bytes(self, token: int) -> bytes:
        """Return the bytes that one id stands for."""
        ...

    def encode_array(self, text: str) -> np.ndarray:
        """Return the ids of ``text`` as an int64 array of shape (T,)."""
        import numpy as np  # here, because the rest of the package works without it

        return np.array(self.encode(text), dtype=np.int64)

    def decode_bytes(self, ids: Iterable[int]) -> bytes:
        """Return the bytes that ``ids`` stand for, one token after the other."""
        return b"".join(map(self.token_bytes, ids))

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text that ``ids`` stand for.

        Any text comes back from its own ids as it was. Other sequences of ids may stand for bytes
        that are not UTF-8: each faulty stretch becomes one U+FFFD, the replacement character.
        """
        return self.decode_bytes(ids).decode("utf-8", errors="replace")

    def token_label(self, token: int) -> str:
        """Return a short printable name of one token, for figures.

        Spaces, newlines and tabs become visible (``␣`` ``↵`` ``⇥``), other characters that do not
        print become escapes, and a token that is only a part of a character shows its bytes in
        hexadecimal: GPT-2's token 447, the start of a curly quote, is ``⟨E2 80⟩``.
        """
        piece = self.token_bytes(token)
        try:
            text = piece.decode("utf-8")
        except UnicodeDecodeError:
            return f"⟨{piece.hex(' ').upper()}⟩"
        return "".join(map(_visible, text))

    def stream_decoder(self) -> StreamDecoder:
        """Return a decoder that takes ids one by one, as a model samples them."""
        return StreamDecoder(self)


class StreamDecoder:
    """Decode ids one at a time, and never show half a character.

    A character may be spread over several tokens. The bytes of a token are held back until they
    complete a character, so that what ``push`` and ``finish`` return, joined, is exactly what
    ``tokenizer.decode`` makes of all ids at once.

    Examples
    --------
    >>> from gpt2lib.tokenizer import BPE
    >>> stream = BPE([]).stream_decoder()        # no merges: each byte is a token
    >>> [stream.push(token) for token in "é!".encode()]
    ['', 'é', '!']
    >>> stream.finish()
    ''
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def push(self, token: int) -> str:
        """Take the next id; return the characters that it completes, often one token's text."""
        return self._decoder.decode(self._tokenizer.token_bytes(token))

    def finish(self) -> str:
        """Return what was held back (U+FFFD for a character that never got whole); start afresh."""
        rest = self._decoder.decode(b"", final=True)
        self._decoder.reset()
        return rest


def valid_unicode(text: Any) -> str:
    """Return ``text`` without surrogates, which UTF-8 cannot hold.

    A Python string can hold surrogates, the halves in which UTF-16 writes the characters beyond
    U+FFFF: JSON escapes and file names bring them in. A pair of halves becomes the character that
    they spell; a half on its own becomes U+FFFD. All other text is returned as it is.

    Notes
    -----
    The repair is the one of tiktoken (``Encoding.encode``), so that the ids are the same.
    """
    if not isinstance(text, str):
        raise TypeError(f"a tokenizer encodes str, not {type(text).__name__}; decode bytes first")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def _visible(character: str) -> str:
    """Return ``character`` in a form that shows in a figure."""
    if character in _VISIBLE:
        return _VISIBLE[character]
    if not character.isprintable():
        return character.encode("unicode_escape").decode("ascii")
    if unicodedata.combining(character):
        return "◌" + character  # an accent needs something to stand on
    return character
