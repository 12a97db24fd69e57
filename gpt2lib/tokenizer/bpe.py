"""Byte-level byte-pair encoding, from scratch and with the standard library alone.

The idea: begin with the 256 bytes, so that any text can be written; then give the pair of tokens
that occurs most often in some training text a token of its own, and again, until the vocabulary
is as large as wished. To encode a text, replay those merges in the order in which they were
learned. Gage (1994) invented it for compression, Sennrich, Haddow and Birch (2016) brought it to
language models, Radford et al. (2019, section 2.2) had it work on bytes.
"""

from __future__ import annotations

import heapq
import operator
import os
from collections.abc import Iterable, Sequence
from itertools import islice, pairwise
from typing import Any, NamedTuple

from gpt2lib.tokenizer.pretokenizer import pretokenize
from gpt2lib.tokenizer.protocol import Tokenizer, valid_unicode
from gpt2lib.tokenizer.training import Pair, count_words, learn_merges, merge_pair

END_OF_TEXT = b"<|endoftext|>"

_CACHE_WORDS = 1 << 16  # how many words a tokenizer remembers the ids of …
_CACHE_LENGTH = 64  # … and how long they may be, in characters


class Step(NamedTuple):
    """One state on the way from bytes to tokens, as :meth:`BPE.steps` lists them."""

    ids: tuple[int, ...]
    """The ids that the word is made of."""
    pieces: tuple[bytes, ...]
    """Their bytes."""
    ranks: tuple[int | None, ...]
    """For each two neighbours when their merge was learned (0: first), None: never."""
    rank: int | None
    """The lowest of these, the merge that comes next; None: there is none, this is the end."""


class BPE(Tokenizer):
    """A byte-level byte-pair encoding.

    Ids are laid out as GPT-2 has them: 256 bytes, then one id for each merge in the order in which
    they were learned, then, if there is one, the end of text. Nothing of it can be changed after
    it is made.

    Parameters
    ----------
    merges
        Pairs of ids; the k-th pair (from 0) makes the id 256 + k out of two smaller ids.
    byte_order
        The byte that each of the first 256 ids stands for; in order if it is not given. (GPT-2's
        ids have the printable ones first.)
    end_of_text
        Whether the last id is the one that stands between documents.
    name
        What the tokenizer is called.

    Raises
    ------
    ValueError
        Where a merge uses an id that does not exist by then or repeats an earlier one, or where
        ``byte_order`` is not an order of the 256 bytes.

    Examples
    --------
    >>> bpe = BPE.train("low low low lower lowest", vocab_size=260, end_of_text=False)
    >>> [bpe.token_label(token) for token in bpe.encode("slower low")]
    ['s', 'low', 'e', 'r', '␣low']
    >>> bpe.decode(bpe.encode("any text: é, 日本, 👍"))
    'any text: é, 日本, 👍'
    """

    def __init__(
        self,
        merges: Iterable[Pair],
        *,
        byte_order: Sequence[int] | None = None,
        end_of_text: bool = True,
        name: str = "bpe",
    ) -> None:
        self._name = name
        self._byte_order = bytes(range(256)) if byte_order is None else bytes(byte_order)
        if sorted(self._byte_order) != list(range(256)):
            raise ValueError("byte_order must hold each number from 0 to 255 once")
        self._id_of_byte = [self._byte_order.index(byte) for byte in range(256)]
        self._tokens = [bytes([byte]) for byte in self._byte_order]
        # A pair -> the id that it merges into. The smaller that id, the earlier it was learned,
        # and the sooner it is replayed: this one table is both vocabulary and priority.
        self._merged: dict[Pair, int] = {}
        self._merges: list[Pair] = []
        for left, right in merges:
            self._add_merge(left, right)
        self._has_end = end_of_text
        if end_of_text:
            self._tokens.append(END_OF_TEXT)
        self._cache: dict[str, list[int]] = {}

    def _add_merge(self, left: int, right: int) -> None:
        new = len(self._tokens)
        if not (0 <= left < new and 0 <= right < new):
            raise ValueError(
                f"merge {new - 256} is of the ids {left} and {right}, "
                f"but when it is made only the ids 0 to {new - 1} exist"
            )
        if (left, right) in self._merged:
            raise ValueError(
                f"merge {new - 256}, of the ids {left} and {right}, "
                f"repeats merge {self._merged[left, right] - 256}"
            )
        self._merged[left, right] = new
        self._merges.append((left, right))
        self._tokens.append(self._tokens[left] + self._tokens[right])

    # ---- making one ------------------------------------------------------------------------

    @classmethod
    def train(
        cls,
        texts: Iterable[str] | str,
        vocab_size: int,
        *,
        end_of_text: bool = True,
        name: str = "bpe",
    ) -> BPE:
        """Learn a vocabulary from text.

        Parameters
        ----------
        texts
            One text or many; an iterator will do, only the distinct words are kept in memory.
        vocab_size
            V, the number of ids wished: the 256 bytes, the merges, and the end of text. There
            will be fewer if the texts run out of pairs to merge, so ask ``bpe.vocab_size``.
        end_of_text, name
            As for :class:`BPE`.

        Raises
        ------
        ValueError
            Where ``vocab_size`` leaves no room for the 256 bytes and the end of text.
        """
        merges = vocab_size - 256 - bool(end_of_text)
        if merges < 0:
            raise ValueError(
                f"vocab_size is {vocab_size}, but the 256 bytes"
                f"{' and the end of text' if end_of_text else ''} alone need {vocab_size - merges}"
            )
        pairs = islice(learn_merges(count_words(texts)), merges)
        return cls([pair for pair, _ in pairs], end_of_text=end_of_text, name=name)

    @classmethod
    def gpt2(cls) -> BPE:
        """Return GPT-2's vocabulary in this implementation (50 257 ids).

        The ids are those of :func:`gpt2lib.tokenizer.gpt2`, which is faster and needs tiktoken.
        """
        from gpt2lib.tokenizer.gpt2_vocabulary import gpt2_bpe

        return gpt2_bpe()

    def first_merges(self, count: int) -> BPE:
        """Return this vocabulary as it was after its first ``count`` merges."""
        return BPE(
            self._merges[:count],
            byte_order=self._byte_order,
            end_of_text=self._has_end,
            name=f"{self._name}, {min(count, len(self._merges))} merges",
        )

    # ---- what it is ------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """What the tokenizer is called."""
        return self._name

    @property
    def vocab_size(self) -> int:
        """V, the number of different ids: they run from 0 to V - 1."""
        return len(self._tokens)

    @property
    def merges(self) -> list[Pair]:
        """The merges in the order in which they were learned: the k-th makes the id 256 + k."""
        return list(self._merges)

    @property
    def byte_order(self) -> bytes:
        """The byte that each of the first 256 ids stands for."""
        return self._byte_order

    @property
    def end_of_text(self) -> int:
        """The id that stands between documents: the last one. No text encodes to it.

        Raises
        ------
        ValueError
            Where the tokenizer was made with ``end_of_text=False``.
        """
        if not self._has_end:
            raise ValueError(f"{self!r} has no end of text; make it with end_of_text=True")
        return len(self._tokens) - 1

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._name!r}, {self.vocab_size} tokens>"

    def __reduce__(self) -> Any:  # for worker processes and copies: all but the cache
        return _remake, (self.merges, self._byte_order, self._has_end, self._name)

    # ---- text to ids -----------------------------------------------------------------------

    def encode(self, text: str) -> list[int]:
        """Return the ids of ``text``.

        All of it is ordinary text: ``<|endoftext|>`` is seven tokens in GPT-2's vocabulary, never
        the special one. Surrogates are repaired first, as :func:`valid_unicode` says.

        Parameters
        ----------
        text
            Any text, the empty one too.

        Returns
        -------
        list of int
            The ids, each below ``vocab_size``. The time is about linear in the text's length,
            whatever the text is.
        """
        ids: list[int] = []
        for word in pretokenize(valid_unicode(text)):
            ids.extend(self._encode_word(word))
        return ids

    def _encode_word(self, word: str) -> list[int]:
        """Return the ids of one pre-token, from the cache if it has occurred lately."""
        ids = self._cache.get(word)
        if ids is None:
            ids = self._merge([self._id_of_byte[byte] for byte in word.encode("utf-8")])
            if len(word) <= _CACHE_LENGTH:
                if len(self._cache) >= _CACHE_WORDS:
                    self._cache.clear()
                self._cache[word] = ids
        return ids

    def _merge(self, ids: list[int]) -> list[int]:
        """Merge the pair that was learned first, wherever it stands, until no pair is left.

        Scanning the word once for each merge would take quadratic time. Here the tokens are a
        linked list, in which a merge takes one step, and ``places`` holds where each merge can be
        made. Merging into ``new`` only opens merges that were learned later than ``new``.
        """
        end = len(ids)
        ids = [*ids, -1]  # ids[end] and ids[-1], with which nothing merges, bound the word
        following = list(range(1, end + 1))
        preceding = list(range(-1, end))
        places: dict[int, list[int]] = {}  # the id that a merge makes -> where its left part is
        queue: list[int] = []  # the keys of places, as a heap

        def note(place: int) -> None:
            """Note down the merge of the token at ``place`` with its neighbour, if there is one."""
            new = self._merged.get((ids[place], ids[following[place]]))
            if new is not None:
                if new not in places:
                    places[new] = []
                    heapq.heappush(queue, new)
                places[new].append(place)

        for place in range(end):
            note(place)
        while queue:
            new = heapq.heappop(queue)
            for place in sorted(places.pop(new)):  # from the left: "aaa" is "aa" + "a"
                right = following[place]
                if self._merged.get((ids[place], ids[right])) != new:
                    continue  # another merge has taken one of the two
                ids[place], ids[right] = new, -1
                following[place] = following[right]
                preceding[following[right]] = place
                note(preceding[place])
                note(place)
        return [token for token in ids if token >= 0]

    def steps(self, word: str) -> list[Step]:
        """Return every state of a word from its bytes to its tokens, merge by merge.

        This is how GPT-2's own program encodes, the definition that :meth:`encode` fulfils
        faster: find the pair of neighbours that was learned first, merge it everywhere, repeat.

        Parameters
        ----------
        word
            One piece of text as :func:`pretokenize` cuts it, such as ``" low"``.

        Returns
        -------
        list of Step
            The last one is what ``encode`` gives.

        Raises
        ------
        ValueError
            Where the text is none or more than one such piece.

        Examples
        --------
        >>> bpe = BPE.train("low low lower", vocab_size=258, end_of_text=False)
        >>> for step in bpe.steps("low"):
        ...     print(step.pieces, step.ranks)
        (b'l', b'o', b'w') (0, None)
        (b'lo', b'w') (1,)
        (b'low',) ()
        """
        pieces = list(pretokenize(valid_unicode(word)))
        if len(pieces) != 1:
            raise ValueError(
                f"steps() takes one word, but the text is cut into {len(pieces)} pieces: "
                f"{pieces[:5]}; call it for each piece that pretokenize(text) gives"
            )
        ids = [self._id_of_byte[byte] for byte in pieces[0].encode("utf-8")]
        states = [self._step(ids)]
        while (rank := states[-1].rank) is not None:
            ids = merge_pair(ids, self._merges[rank], 256 + rank)
            states.append(self._step(ids))
        return states

    def _step(self, ids: list[int]) -> Step:
        made = [self._merged.get(pair) for pair in pairwise(ids)]
        ranks = tuple(None if new is None else new - 256 for new in made)
        lowest = min((rank for rank in ranks if rank is not None), default=None)
        return Step(tuple(ids), tuple(self._tokens[token] for token in ids), ranks, lowest)

    # ---- ids to text -----------------------------------------------------------------------

    def token_bytes(self, token: int) -> bytes:
        """Return the bytes that one id stands for.

        Raises
        ------
        ValueError
            Where the id is not from 0 to V - 1.
        """
        index = operator.index(token)
        if not 0 <= index < len(self._tokens):
            raise ValueError(
                f"token id {index} is not in the vocabulary of {self._name!r}, "
                f"whose ids run from 0 to {len(self._tokens) - 1}; was the text encoded with "
                f"another tokenizer?"
            )
        return self._tokens[index]

    # ---- files -----------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the tokenizer as JSON; :meth:`load` reads it. The old file, if any, goes."""
        from gpt2lib.tokenizer.files import write

        write(
            path,
            name=self._name,
            byte_order=self._byte_order,
            merges=self._merges,
            end_of_text=self._has_end,
        )

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> BPE:
        """Read a tokenizer that :meth:`save` wrote.

        Raises
        ------
        ValueError
            Where the file is not there, is something else, or was damaged or edited.
        """
        from gpt2lib.tokenizer.files import read

        return cls(**read(path))


def _remake(merges: list[Pair], byte_order: bytes, end_of_text: bool, name: str) -> BPE:
    return BPE(merges, byte_order=byte_order, end_of_text=end_of_text, name=name)
