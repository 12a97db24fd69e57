"""Training against a version that counts everything anew for each merge."""

import random
from collections import Counter
from itertools import islice, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpt2lib.tokenizer import BPE, count_words, learn_merges, merge_pair

words_strategy = st.dictionaries(
    st.binary(min_size=1, max_size=8).map(lambda word: bytes(byte % 4 + 97 for byte in word)),
    st.integers(1, 9),
    max_size=12,
)


def naive_merges(words, count):
    """The definition: count all pairs, merge the most frequent, the smallest among equals."""
    spelling = {word: list(word) for word in words}
    merges = []
    for new in range(256, 256 + count):
        counts = Counter()
        for word, ids in spelling.items():
            for pair in pairwise(ids):
                counts[pair] += words[word]
        if not counts:
            break
        best = min(counts, key=lambda pair: (-counts[pair], pair))
        merges.append((best, counts[best]))
        for word, ids in spelling.items():
            out = []
            for token in ids:
                # "aaa" under (a, a) is "aa" + "a": never pair what a merge has just made
                if out and (out[-1], token) == best:
                    out[-1] = new
                else:
                    out.append(token)
            spelling[word] = out
    return merges


@given(words_strategy)
@settings(max_examples=200)
def test_merges_equal_the_naive_ones(words):
    assert list(islice(learn_merges(words), 40)) == naive_merges(words, 40)


def test_the_order_of_the_texts_does_not_matter():
    texts = ["low lower lowest", "new newer newest wide wider", "slow slower", "aa ab ba bb aaa"]
    first = BPE.train(texts, 300)
    random.Random(1).shuffle(texts)
    assert BPE.train(texts, 300).merges == first.merges
    assert BPE.train(iter(texts), 300).merges == first.merges


def test_ties_go_to_the_smaller_ids():
    assert next(learn_merges({b"xy": 1, b"ab": 1, b"ac": 1})) == ((97, 98), 1)


def test_overlapping_pairs():
    assert merge_pair([97, 97, 97, 97, 97], (97, 97), 256) == [256, 256, 97]
    assert merge_pair([], (97, 97), 256) == []
    assert list(learn_merges({b"aaaa": 1})) == [((97, 97), 3), ((256, 256), 1)]


def test_sennrichs_example():
    # Sennrich, Haddow and Birch (2016), figure 1; their end-of-word sign written as a full stop
    words = {b"low.": 5, b"lower.": 2, b"newest.": 6, b"widest.": 3}
    made = [bytes([byte]) for byte in range(256)]
    for (left, right), _ in islice(learn_merges(words), 10):
        made.append(made[left] + made[right])
    assert {b"est.", b"low", b"newest."} <= set(made[256:])


def test_sizes():
    bpe = BPE.train("low lower lowest", 260)
    assert bpe.vocab_size == 260
    assert len(bpe.merges) == 3
    assert bpe.end_of_text == 259
    assert BPE.train("low lower lowest", 259, end_of_text=False).merges == bpe.merges
    assert BPE.train("", 512).vocab_size == 257  # nothing to merge
    assert BPE.train([], 512).vocab_size == 257
    assert BPE.train("ab", 512).vocab_size == 258
    assert BPE.train("ab", 257).merges == []
    for size in (256, 0, -1):
        with pytest.raises(ValueError, match="need 257"):
            BPE.train("ab", size)


def test_words_are_counted_within_the_cuts():
    assert count_words("a a\ud800") == {b"a": 1, b" a": 1, "\ufffd".encode(): 1}
    # "a b" is cut into "a" and " b": the only pair is inside the second
    assert BPE.train("a b", 512).merges == [(ord(" "), ord("b"))]
