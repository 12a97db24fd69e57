"""Learn the merges of a byte-pair encoding from text.

Sennrich, Haddow and Birch (2016), section 3.2, with their two remedies for slowness: equal words
are counted once, and a merge updates the counts of the pairs that it touches instead of counting
all over again.
"""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise

from gpt2lib.tokenizer.pretokenizer import pretokenize
from gpt2lib.tokenizer.protocol import valid_unicode

Pair = tuple[int, int]


def count_words(texts: Iterable[str] | str) -> Counter[bytes]:
    """Count the pieces that the pre-tokenizer cuts ``texts`` into, as UTF-8.

    Examples
    --------
    >>> dict(count_words(["the cat the dog", "the"]))
    {b'the': 2, b' cat': 1, b' the': 1, b' dog': 1}
    """
    texts = [texts] if isinstance(texts, str) else texts
    pieces: Counter[str] = Counter()
    for text in texts:
        pieces.update(pretokenize(valid_unicode(text)))
    return Counter({piece.encode("utf-8"): count for piece, count in pieces.items()})


def learn_merges(words: Mapping[bytes, int]) -> Iterator[tuple[Pair, int]]:
    """Yield the pair to merge next and how often it occurs, until no pairs are left.

    The pair that occurs most often is merged; among equals, the one with the smaller ids. So the
    merges depend on the words and their counts only, never on their order.

    Parameters
    ----------
    words
        How often each word occurs.

    Yields
    ------
    pair : tuple of int
        The two ids to merge. Ids below 256 are bytes, and the k-th pair yielded makes 256 + k.
    count : int
        How often the two stood side by side (in ``aaa`` they do so twice, though only one such
        pair can be merged).
    """
    spelling = [list(word) for word in words]  # the ids that each word is made of by now
    frequency = list(words.values())
    counts: Counter[Pair] = Counter()
    where: defaultdict[Pair, set[int]] = defaultdict(set)  # the words that a pair may be found in
    for index, ids in enumerate(spelling):
        for pair in pairwise(ids):
            counts[pair] += frequency[index]
            where[pair].add(index)
    queue = [(-count, pair) for pair, count in counts.items()]
    heapq.heapify(queue)
    new = 256
    while queue:
        count, pair = heapq.heappop(queue)
        if counts[pair] != -count:
            continue  # the count has changed since this entry was made; there is a newer one
        yield pair, -count
        change: Counter[Pair] = Counter()
        for index in where.pop(pair):
            before, after = spelling[index], merge_pair(spelling[index], pair, new)
            spelling[index] = after
            for gone in pairwise(before):
                change[gone] -= frequency[index]
            for made in pairwise(after):
                change[made] += frequency[index]
                where[made].add(index)
        for touched, difference in change.items():
            counts[touched] += difference
            if difference and counts[touched]:
                heapq.heappush(queue, (-counts[touched], touched))
        new += 1


def merge_pair(ids: list[int], pair: Pair, new: int) -> list[int]:
    """Return ``ids`` with each ``pair``, from the left, replaced by ``new``.

    Examples
    --------
    >>> merge_pair([1, 1, 1, 2], (1, 1), 256)
    [256, 1, 2]
    """
    merged = []
    position = 0
    while position < len(ids):
        if ids[position] == pair[0] and tuple(ids[position : position + 2]) == pair:
            merged.append(new)
            position += 2
        else:
            merged.append(ids[position])
            position += 1
    return merged
