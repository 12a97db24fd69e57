import numpy as np
import pytest

import gpt2lib
from gpt2lib.exercises import ch08

GPT2 = gpt2lib.GPT2Config.preset("gpt2")


def nucleus(p, top_p):
    order = np.argsort(-p, kind="stable")
    before = np.cumsum(p[order]) - p[order]
    kept = np.zeros_like(p)
    stay = order[before < top_p - 1e-12]
    kept[stay] = p[stay]
    return kept / kept.sum()


def too_small(p, top_p):
    """Drop the token that crosses the line."""
    order = np.argsort(-p)
    stay = order[: max(1, int((np.cumsum(p[order]) <= top_p).sum()))]
    kept = np.zeros_like(p)
    kept[stay] = p[stay]
    return kept / kept.sum()


def one_too_many(p, top_p):
    """Keep one more where the sum is exactly enough."""
    order = np.argsort(-p)
    stay = order[: int((np.cumsum(p[order]) <= top_p + 1e-12).sum()) + 1]
    kept = np.zeros_like(p)
    kept[stay] = p[stay]
    return kept / kept.sum()


def not_renormalised(p, top_p):
    return np.where(nucleus(p, top_p) > 0, p, 0)


def unsorted(p, top_p):
    kept = np.where(np.cumsum(p) - p < top_p, p, 0)
    return kept / kept.sum()


def gumbel(z, temperature, rng):
    return np.argmax(z / temperature + rng.gumbel(size=z.shape))


def gaussian(z, temperature, rng):
    return np.argmax(z / temperature + rng.normal(size=z.shape))


def heat_forgotten(z, temperature, rng):
    return np.argmax(z + rng.gumbel(size=z.shape))


def noise_heated(z, temperature, rng):
    return np.argmax(z / temperature + temperature * rng.gumbel(size=z.shape))


@pytest.mark.parametrize(
    ("check", "right", "wrong"),
    [
        (
            ch08.check_nucleus,
            nucleus,
            [too_small, one_too_many, not_renormalised, unsorted, lambda p, top_p: p],
        ),
        (
            ch08.check_gumbel,
            gumbel,
            [
                gaussian,
                heat_forgotten,
                noise_heated,
                lambda z, t, rng: np.argmax(z),
                lambda z, t, rng: 4,
                lambda z, t, rng: -1,
                lambda z, t, rng: "first",
            ],
        ),
    ],
)
def test_functions(check, right, wrong, capsys):
    assert check(right) is True
    assert "✓" in capsys.readouterr().out
    for answer in wrong:
        assert check(answer) is False
        assert "✗" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("ids", "targets", "says"),
    [
        ([2, 9, 5], [2, 9, 5], "Shift"),  # no shift
        ([2, 9, 5], [5, 8, 9], "targets"),  # shifted twice
        ([4, 7, 2], [7, 2, 9], "Windows touch"),  # windows that overlap
        ([7, 2, 9], [2, 9, 5], "Windows touch"),
        ("2, 9", [9, 5, 8], "inputs"),
        ([], [], "inputs"),
    ],
)
def test_windows_that_are_wrong(ids, targets, says, capsys):
    assert ch08.check_window(ids, targets) is False
    assert says in capsys.readouterr().out


def test_the_right_window():
    assert ch08.check_window([2, 9, 5], [9, 5, 8]) is True
    assert ch08.check_window(np.array([2, 9, 5]), (9, 5, 8)) is True


def test_the_window_agrees_with_the_library():
    from gpt2lib.data import Batches, TokenStream

    stream = TokenStream(np.array([9, 4, 7, 2, 9, 5, 8, 9]), end_of_text=9)
    ids, targets = Batches(stream, batch=2, seq=3, shuffle=False).next()
    assert ch08.check_window(ids[1], targets[1]) is True


def test_years():
    given = {"parameters": 1.5e9, "tokens": 30e9, "rate": 1e12}
    right = 6 * 1.5e9 * 30e9 / 1e12 / 3600 / 24 / 365.25
    assert ch08.check_years(right, **given) is True
    assert ch08.check_years(right * 1.01, **given) is True  # a year of 365 days is as good
    for wrong in (right / 3, right * 365.25, right * 365.25 * 86400, "8.6 years", 0.0):
        assert ch08.check_years(wrong, **given) is False


def test_cache_bytes():
    right = 2 * 12 * 1024 * 768 * 4
    assert ch08.check_cache_bytes(right, config=GPT2) is True
    for wrong in (right / 2, right / 4, right * 12, right / 12, -right):
        assert ch08.check_cache_bytes(wrong, config=GPT2) is False


def test_cache_bytes_are_those_of_the_library():
    config = gpt2lib.GPT2Config(vocab_size=50, context=16, layers=3, heads=2, channels=8)
    cache = gpt2lib.GPT2(config, seed=0).new_cache()
    assert ch08.check_cache_bytes(cache.keys.nbytes + cache.values.nbytes, config=config) is True


def test_dots_are_no_answer_and_no_error(capsys):
    assert ch08.check_window(..., ...) is False
    assert ch08.check_window([2, 9, 5], None) is False
    assert ch08.check_years(..., parameters=1, tokens=1, rate=1) is False
    assert ch08.check_cache_bytes(..., config=GPT2) is False
    assert ch08.check_nucleus(lambda p, top_p: ...) is False
    assert ch08.check_gumbel(lambda z, temperature, rng: None) is False
    assert capsys.readouterr().out.count("not answered yet") == 6
