"""Every target is the next token; every epoch is every window once; a restored place is exact."""

import json

import numpy as np
import pytest

from gpt2lib.data import Batches, TokenStream, tokenize, validation_rows
from gpt2lib.data.batches import IGNORE
from tests.data.stand_in import Bytes

E = Bytes.end_of_text


def counting(n):
    return TokenStream(np.arange(n, dtype=np.uint32), end_of_text=2**32 - 1)


@pytest.mark.parametrize("n", [0, 1, 64, 256])
def test_fewer_tokens_than_a_batch_are_refused_with_both_numbers(n):
    with pytest.raises(ValueError, match=rf"needs 257 tokens.*there are {n}:"):
        Batches(counting(n), 4, 64)


def test_exactly_enough_tokens_give_one_batch_and_then_wrap():
    batches = Batches(counting(257), 4, 64, shuffle=False)
    assert batches.batches_per_epoch == 1
    for _ in range(3):
        ids, targets = batches.next()
        np.testing.assert_array_equal(ids.ravel(), np.arange(256))
        np.testing.assert_array_equal(targets, ids + 1)


@pytest.mark.parametrize(("extra", "count"), [(0, 2), (1, 3), (2, 3), (200, 3)])
def test_batches_per_epoch_and_the_target_after_every_input(extra, count):
    b, t = 4, 60
    batches = Batches(counting(b * t * 3 + extra), b, t, shuffle=False)
    assert batches.batches_per_epoch == count
    for k in range(count):
        ids, targets = batches.next()
        assert ids[0, 0] == k * b * t
        assert ids.shape == targets.shape == (b, t)
        assert ids.dtype == targets.dtype == np.int64
        assert ids.flags.c_contiguous
        assert targets.flags.c_contiguous
        np.testing.assert_array_equal(targets, ids + 1)
        np.testing.assert_array_equal(ids.ravel(), k * b * t + np.arange(b * t))


def test_a_shuffled_epoch_has_every_window_once_and_each_epoch_another_order():
    batches = Batches(counting(10 * 8 + 1), 2, 8, rng=3)
    orders = []
    for _ in range(3):
        firsts = np.concatenate([batches.next()[0][:, 0] for _ in range(5)])
        assert sorted(firsts) == list(range(0, 80, 8))
        orders.append(firsts.tolist())
    assert orders[0] != orders[1] != orders[2]


def test_targets_follow_inputs_in_shuffled_order_too():
    for _, (ids, targets) in zip(range(20), Batches(counting(1000), 3, 7, rng=1), strict=False):
        np.testing.assert_array_equal(targets, ids + 1)


def test_seed_and_generator_decide_the_order():
    def first(rng):
        return Batches(counting(2000), 2, 8, rng=rng).next()[0].tolist()

    assert first(7) == first(7) != first(8)
    assert first(None) != first(None)
    assert first(np.int64(7)) == first(7)
    assert first(np.random.default_rng(1)) == first(np.random.default_rng(1))


@pytest.mark.parametrize("aligned", [False, True])
@pytest.mark.parametrize("steps", [0, 1, 4, 5, 13])
def test_a_restored_place_goes_on_exactly(aligned, steps):
    stream = tokenize([f"Document number {i}, and so on." for i in range(12)], Bytes())
    make = lambda seed: Batches(stream, 2, 16, rng=seed, aligned=aligned)  # noqa: E731
    one = make(1)
    for _ in range(steps):
        one.next()
    state = json.loads(json.dumps(one.state()))
    other = make(99)
    other.next()
    other.restore(state)
    for _ in range(15):
        for mine, theirs in zip(one.next(), other.next(), strict=True):
            np.testing.assert_array_equal(mine, theirs)


def test_a_generator_shared_with_others_is_not_disturbed_and_does_not_disturb():
    rng = np.random.default_rng(0)
    batches = Batches(counting(2000), 2, 8, rng=rng)
    before = rng.bit_generator.state
    state = batches.state()
    expected = [batches.next()[0].tolist() for _ in range(300)]
    assert rng.bit_generator.state == before
    rng.random(10)
    batches.restore(state)
    assert [batches.next()[0].tolist() for _ in range(300)] == expected


@pytest.mark.parametrize(
    ("batch", "seq", "n", "aligned"),
    [(3, 8, 2000, False), (2, 9, 2000, False), (2, 8, 1999, False)],
)
def test_the_place_of_other_data_is_refused(batch, seq, n, aligned):
    state = Batches(counting(2000), 2, 8).state()
    with pytest.raises(ValueError, match="resume with the corpus"):
        Batches(counting(n), batch, seq, aligned=aligned).restore(state)
    damaged = {**state, "batch": 10**6}
    with pytest.raises(ValueError, match="damaged"):
        Batches(counting(2000), 2, 8).restore(damaged)


@pytest.mark.parametrize(("batch", "seq"), [(0, 4), (4, 0), (-1, 4)])
def test_no_batch_of_nothing(batch, seq):
    with pytest.raises(ValueError, match="at least 1"):
        Batches(counting(100), batch, seq)


def test_aligned_rows_start_where_documents_start_and_never_wrap():
    texts = [chr(97 + i) * (3 + i) for i in range(20)]
    stream = tokenize(texts, Bytes())
    batches = Batches(stream, 4, 25, rng=0, aligned=True)
    usable = [s for s in stream.starts if s + 26 <= len(stream)]
    assert 4 < len(usable) < 20
    assert batches.batches_per_epoch == len(usable) // 4
    seen = set()
    for _ in range(batches.batches_per_epoch * 2):
        ids, targets = batches.next()
        assert (ids[:, 0] == E).all()
        for row, target in zip(ids, targets, strict=True):
            [start] = [s for s in usable if stream.tokens[s + 1] == row[1]]
            seen.add(start)
            np.testing.assert_array_equal(row, stream.tokens[start : start + 25])
            np.testing.assert_array_equal(target, stream.tokens[start + 1 : start + 26])
    assert len(seen) >= len(usable) - 3


def test_too_few_documents_for_aligned_rows_are_refused_with_both_numbers():
    stream = tokenize(["a" * 20, "b" * 20], Bytes())
    with pytest.raises(ValueError, match=r"needs 3 documents.*there are 2"):
        Batches(stream, 3, 16, aligned=True)
    Batches(stream, 2, 16, aligned=True).next()


def check_rows(stream, seq):
    """Every token but the first is a target once; what stands before it is its document."""
    ids, targets = validation_rows(stream, seq)
    assert ids.shape == targets.shape
    assert ids.shape[1] == seq
    assert ids.dtype == targets.dtype == np.int64
    counted = targets != IGNORE
    np.testing.assert_array_equal(targets[counted], stream.tokens[1:])
    np.testing.assert_array_equal(ids[counted], stream.tokens[:-1])
    assert (ids[~counted] == stream.end_of_text).all()
    return ids, targets


@pytest.mark.parametrize("seq", [6, 7, 8, 13, 64])
def test_documents_are_whole_within_a_row_where_they_fit(seq):
    stream = tokenize(["abcde", "fg", "", "hijkl", "m", "nop"] * 7, Bytes())
    ids, _ = check_rows(stream, seq)
    assert (ids[:, 0] == E).all()
    if seq >= 13:
        assert len(ids) < stream.documents


def test_a_document_longer_than_a_row_is_cut_and_nothing_is_lost():
    stream = tokenize(["ab", "x" * 50, "cd", "y" * 16, "ef"], Bytes())
    ids, targets = check_rows(stream, 16)
    assert len(ids) == 7  # ab | 16 x | 16 x | 16 x | 2 x, cd | 16 y | end of y, ef
    assert (targets == IGNORE).any()


@pytest.mark.parametrize("n", [2, 3, 50])
def test_rows_of_a_stream_without_separators(n):
    check_rows(counting(n), 8)


def test_random_streams_lose_and_repeat_nothing():
    rng = np.random.default_rng(0)
    for _ in range(200):
        texts = ["z" * int(k) for k in rng.integers(0, 30, size=rng.integers(1, 12))]
        ids, _ = check_rows(tokenize(texts, Bytes()), int(rng.integers(1, 40)))
        assert len(ids) >= 1


def test_nothing_to_predict_is_refused():
    with pytest.raises(ValueError, match="nothing to predict"):
        validation_rows(tokenize([], Bytes()), 8)
