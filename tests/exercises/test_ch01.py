import pytest

from gpt2lib.exercises import ch01
from gpt2lib.tokenizer import gpt2, merge_pair


def encode(word, merges):
    ids = list(word)
    for k, pair in enumerate(merges):
        ids = merge_pair(ids, pair, 256 + k)
    return ids


def greedy(ids, pair, new):  # merges the middle of three twice
    merged = []
    for i, token in enumerate(ids):
        merged.append(new if tuple(ids[i : i + 2]) == pair else token)
    return merged


@pytest.mark.parametrize(
    ("check", "right", "wrong"),
    [
        (ch01.check_merge, merge_pair, [greedy, lambda ids, pair, new: ids, lambda *_: None]),
        (
            ch01.check_encode,
            encode,
            [lambda word, merges: list(word), lambda w, m: encode(w, m[::-1]), lambda *_: ...],
        ),
    ],
)
def test_functions(check, right, wrong):
    assert check(right) is True
    assert [check(answer) for answer in wrong] == [False] * len(wrong)


def test_banana():
    assert ch01.check_banana("an", "ban") is True
    for wrong in (("na", "ban"), ("an", "ana"), ("an", "anan"), (..., ...)):
        assert ch01.check_banana(*wrong) is False


def test_price():
    word = "antidisestablishmentarianism"
    right = [len(gpt2().encode(word)), len(gpt2().encode(" " + word))]
    assert ch01.check_price(*right) is True
    assert ch01.check_price(right[0] + 1, right[1]) is False
    assert ch01.check_price(..., 1) is False
