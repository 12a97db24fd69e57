from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

import gpt2lib
from gpt2lib.config import GPT2Config
from gpt2lib.generate import generate, generate_text, probabilities, sample, window_start
from gpt2lib.tokenizer import BPE
from tests.backends import BACKENDS, one_thread, random_model

__all__ = ["one_thread"]

CONFIG = GPT2Config(vocab_size=31, context=12, layers=2, heads=2, channels=8)


class Fixed:
    """A generator whose every uniform number is the same."""

    def __init__(self, number):
        self.number = number

    def random(self):
        return self.number


@pytest.fixture
def fixed(monkeypatch):
    """Let ``rng`` be a number: the one that is drawn."""
    monkeypatch.setattr(np.random, "default_rng", Fixed)


# ------------------------------------------------------------------------- probabilities


def test_temperature_by_hand():
    z = np.log([1.0, 2.0, 5.0])
    np.testing.assert_allclose(probabilities(z), [0.125, 0.25, 0.625], rtol=1e-12)
    squared = np.array([1, 4, 25]) / 30
    np.testing.assert_allclose(probabilities(z, temperature=0.5), squared, rtol=1e-12)
    np.testing.assert_allclose(probabilities(z, temperature=1e9), 1 / 3, rtol=1e-6)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("temperature", [0, 0.0, 1e-6, 1e-30, 5e-324])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_temperature_zero_and_almost_zero_is_the_largest(temperature, dtype):
    z = np.array([-3e4, 7.0, 7.1, -np.inf, 2e-3], dtype)
    np.testing.assert_array_equal(probabilities(z, temperature=temperature), [0, 0, 1, 0, 0])
    assert {sample(z, temperature=temperature, rng=seed) for seed in range(5)} == {2}


def test_greedy_takes_the_lowest_of_equal_ids_and_draws_nothing():
    rng = np.random.default_rng(0)
    before = rng.bit_generator.state
    assert sample([1.0, 5.0, 5.0, 2.0], temperature=0, rng=rng) == 1
    assert rng.bit_generator.state == before


@pytest.mark.parametrize("temperature", [-1, -1e-9, np.nan, np.inf, -np.inf])
def test_temperatures_that_are_none(temperature):
    with pytest.raises(ValueError, match="temperature"):
        sample([1.0, 2.0], temperature=temperature)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    ("p", "top_p", "kept"),
    [
        ([0.5, 0.41, 0.09], 0.9, {0, 1}),
        ([0.4, 0.3, 0.2, 0.1], 0.8, {0, 1, 2}),
        ([0.3, 0.1, 0.1, 0.5], 0.8, {0, 3}),
        ([0.3, 0.1, 0.1, 0.5], 0.81, {0, 1, 3}),  # of equals, the lowest id first
        ([0.3, 0.1, 0.1, 0.5], 1e-9, {3}),
        ([0.3, 0.1, 0.1, 0.5], 1.0, {0, 1, 2, 3}),
        ([0.25, 0.25, 0.25, 0.25], 0.5, {0, 1}),
        ([1.0], 0.5, {0}),
    ],
)
def test_top_p_is_the_smallest_set_that_reaches_p(p, top_p, kept, dtype):
    z = np.log(np.array(p)).astype(dtype)
    left = probabilities(z, top_p=top_p)
    assert set(np.flatnonzero(left)) == kept
    np.testing.assert_allclose(left[list(kept)].sum(), 1, rtol=1e-12)
    ratios = left[list(kept)] / np.array(p)[list(kept)]
    np.testing.assert_allclose(ratios, ratios[0], rtol=1e-5)
    rng = np.random.default_rng(0)
    assert {sample(z, top_p=top_p, rng=rng) for _ in range(400)} == kept


@pytest.mark.parametrize(
    ("top_k", "kept"),
    [(1, {2}), (2, {0, 2}), (3, {0, 1, 2}), (4, {0, 1, 2, 3}), (99, {0, 1, 2, 3, 4})],
)
def test_top_k_keeps_k_and_the_lowest_of_equals(top_k, kept):
    z = [1.0, 0.5, 3.0, 0.5, 0.5]
    assert set(np.flatnonzero(probabilities(z, top_k=top_k))) == kept


def test_top_k_comes_before_top_p():
    # Among the first two, 0.4 is already 4/7 of what is left; of all four it would take two.
    z = np.log([0.4, 0.3, 0.2, 0.1])
    assert set(np.flatnonzero(probabilities(z, top_k=2, top_p=0.5))) == {0}
    assert set(np.flatnonzero(probabilities(z, top_p=0.5))) == {0, 1}


def test_top_p_on_a_large_vocabulary_against_plain_sorting():
    rng = np.random.default_rng(0)
    for _ in range(20):
        z = 3 * rng.standard_normal(5000)
        p = np.exp(z) / np.exp(z).sum()
        order, top_p = np.argsort(-p), rng.uniform(0.01, 0.999)
        count = int(np.searchsorted(np.cumsum(p[order]), top_p - 1e-6)) + 1
        assert set(np.flatnonzero(probabilities(z, top_p=top_p))) == set(order[:count])


@pytest.mark.parametrize(
    "settings",
    [
        {"top_k": 0},
        {"top_k": -3},
        {"top_k": 2.5},
        {"top_k": True},
        {"top_p": 0},
        {"top_p": 1.01},
        {"top_p": -0.1},
        {"top_p": np.nan},
    ],
)
def test_filters_out_of_range(settings):
    with pytest.raises(ValueError, match=next(iter(settings))):
        probabilities([1.0, 2.0], **settings)


@pytest.mark.parametrize(
    "logits", [[1.0, np.nan], [np.inf, 1.0], [-np.inf, -np.inf], [], [[1.0, 2.0]], 3.0]
)
def test_logits_that_have_no_probabilities(logits):
    with pytest.raises(ValueError, match="logit"):
        probabilities(logits)


# ------------------------------------------------------------------------- drawing


def test_frequencies_are_the_probabilities():
    z, rng = np.log([0.1, 0.6, 0.3]), np.random.default_rng(0)
    drawn = np.bincount([sample(z, rng=rng) for _ in range(8000)])
    np.testing.assert_allclose(drawn / 8000, [0.1, 0.6, 0.3], atol=0.02)


@pytest.mark.parametrize("number", [0.0, 0.99999, np.nextafter(1.0, 0.0)])
def test_the_ends_of_the_unit_interval(fixed, number):
    rng = np.random.Generator(np.random.PCG64(0))
    for _ in range(100):
        z = (3 * rng.standard_normal(50257)).astype(np.float32)
        z[:10] = z[-10:] = -np.inf
        drawn = sample(z, rng=number)
        assert 10 <= drawn < 50257 - 10
        assert probabilities(z)[drawn] > 0


def test_the_number_decides_which_token(fixed):
    z = np.log([0.25, 1e-300, 0.25, 0.5])
    z[1] = -np.inf
    draws = [(0.0, 0), (0.249, 0), (0.25, 2), (0.499, 2), (0.5, 3), (0.999, 3)]
    for number, token in draws:
        assert sample(z, rng=number) == token


def test_a_seed_is_a_text():
    z = np.zeros(1000)
    assert sample(z, rng=3) == sample(z, rng=3)
    assert len({sample(z, rng=seed) for seed in range(20)}) > 10
    assert type(sample(z, rng=3)) is int


# ------------------------------------------------------------------------- token by token


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("stride", [None, 1, 5, 12])
@pytest.mark.parametrize("prompt", [1, 5, 12, 13, 40])
def test_the_cache_gives_the_ids_of_recomputation(backend, stride, prompt):
    model = random_model(backend, CONFIG)
    ids = np.random.default_rng(prompt).integers(0, 31, prompt)
    how = {"tokens": 40, "rng": 1, "stride": stride, "temperature": 1.2}
    cached = list(generate(model, ids, **how))
    again = list(generate(model, ids, cache=False, **how))
    assert cached == again
    assert len(cached) == 40
    assert len(set(cached)) > 5


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("ablation", ["zero", "mean"])
def test_heads_that_are_off_stay_off(backend, ablation):
    model = random_model(backend, CONFIG)
    settings = {"head_mask": [[1, 0], [0, 1]], "ablation": ablation}
    if ablation == "mean":
        with pytest.raises(ValueError, match="needs head_means"):  # before the first token
            generate(model, [1, 2], tokens=1, **settings)
        settings["head_means"] = np.full((2, 2, CONFIG.head_size), 0.5)
    settings.update(tokens=30, rng=3)
    ids = list(generate(model, [1, 2], **settings))
    assert ids == list(generate(model, [1, 2], cache=False, **settings))
    assert ids != list(generate(model, [1, 2], tokens=30, rng=3))


@pytest.mark.parametrize("cache", [True, False])
@pytest.mark.parametrize("stride", [1, 4])
def test_greedy_by_hand_past_the_end_of_the_context(cache, stride):
    model = random_model("numpy", CONFIG)
    text = [3, 1, 4]
    for _ in range(25):
        start = 0
        while len(text) - start > 12:
            start += stride
        text.append(int(np.argmax(model.forward(text[start:])[-1])))
    drawn = generate(model, [3, 1, 4], tokens=25, temperature=0, cache=cache, stride=stride)
    assert list(drawn) == text[3:]


def test_the_window():
    assert [window_start(n, 12, 3) for n in (1, 12, 13, 15, 16, 18, 19)] == [0, 0, 3, 3, 6, 6, 9]
    for length in range(1, 60):
        assert window_start(length, 12, 1) == max(0, length - 12)
        for stride in range(1, 13):
            start = window_start(length, 12, stride)
            assert 0 < length - start <= 12
            assert start % stride == 0


def test_the_cache_is_read_anew_only_when_the_window_moves():
    lengths = []

    class Counted(type(random_model("numpy", CONFIG))):
        def decode(self, ids, cache):
            lengths.append(ids.shape[1])
            return super().decode(ids, cache)

    model = Counted(CONFIG, seed=0)
    list(generate(model, [1, 2], tokens=18, stride=4, rng=0))
    assert lengths == [2] + [1] * 10 + [9] + [1] * 3 + [9] + [1] * 2


def test_stops_and_does_not_yield_the_stop():
    model = random_model("numpy", CONFIG)
    ids = list(generate(model, [1], tokens=30, rng=0))
    stop = ids[7]
    first = ids.index(stop)
    assert list(generate(model, [1], tokens=30, rng=0, stop=stop)) == ids[:first]
    assert list(generate(model, [1], tokens=30, rng=0, stop={stop, ids[2]})) == ids[: min(first, 2)]
    assert list(generate(model, [1], tokens=30, rng=0, stop=[])) == ids


def test_the_caller_keeps_its_prompt_and_generator():
    model, prompt, rng = random_model("numpy", CONFIG), [1, 2], np.random.default_rng(0)
    first = list(generate(model, prompt, tokens=5, rng=rng))
    second = list(generate(model, prompt, tokens=5, rng=rng))
    assert prompt == [1, 2]
    assert first != second  # the generator went on
    assert list(generate(model, np.array(prompt), tokens=5, rng=0)) == first
    assert all(type(i) is int for i in first)


def test_a_padded_vocabulary():
    model = random_model("numpy", CONFIG)
    assert max(generate(model, [1], tokens=60, rng=0, temperature=3)) > 9
    assert max(generate(model, [1], tokens=60, rng=0, temperature=3, vocab_size=10)) <= 9


def test_no_tokens():
    assert list(generate(random_model("numpy", CONFIG), [1], tokens=0)) == []


@pytest.mark.parametrize(
    ("ids", "more", "message"),
    [
        ([], {}, "end_of_text"),
        ([[1, 2]], {}, "one text"),
        ([31], {}, "vocabulary of 31"),
        ([-1], {}, "vocabulary of 31"),
        ([1.5], {}, "whole numbers"),
        ([1], {"tokens": -1}, "tokens"),
        ([1], {"tokens": 1.5}, "tokens"),
        ([1], {"stride": 0}, "stride"),
        ([1], {"stride": 13}, "stride"),
        ([1], {"temperature": -1}, "temperature"),
        ([1], {"top_k": 0}, "top_k"),
        ([1], {"top_p": 2}, "top_p"),
        ([1], {"vocab_size": 32}, "vocab_size"),
        ([1], {"stop": 0.5}, "stop"),
    ],
)
def test_refused_before_the_first_token(ids, more, message):
    with pytest.raises(ValueError, match=message):
        generate(random_model("numpy", CONFIG), ids, **{"tokens": 3, **more})


def test_generating_leaves_a_backward_that_is_due_alone():
    model = random_model("numpy", CONFIG)
    ids = np.array([[1, 2, 3]])
    model.loss(ids, ids)
    list(generate(model, [1], tokens=20, rng=0))
    model.backward()
    got = model.gradients.flat.copy()
    model.zero_gradients()
    model.loss(ids, ids)
    model.backward()
    np.testing.assert_array_equal(got, model.gradients.flat)


# ------------------------------------------------------------------------- text


class Puppet:
    """Says the ids that it is told to say, whatever it reads."""

    def __init__(self, ids, vocab_size):
        self.ids, self.read = list(ids), []
        self.config = GPT2Config(vocab_size, 1024, 1, 1, 1)

    def new_cache(self):
        return gpt2lib.model.Cache(self.config)

    def decode(self, ids, cache):
        self.read.append(ids[0].tolist())
        cache.length += ids.shape[1]
        logits = np.full((1, self.config.vocab_size), -np.inf)
        logits[0, self.ids.pop(0)] = 0
        return logits


@pytest.fixture(scope="module")
def byte_tokenizer():
    return BPE([])


def test_pieces_join_to_the_text_and_none_is_half_a_character(byte_tokenizer):
    text = "“naïve” 日本 👍🏽 ∩"
    ids = byte_tokenizer.encode(text)
    assert len(ids) > len(text)  # a byte a token: characters are cut apart
    puppet = Puppet([*ids, byte_tokenizer.end_of_text], byte_tokenizer.vocab_size)
    pieces = list(generate_text(puppet, byte_tokenizer, "x", tokens=100))
    assert "".join(pieces) == text
    assert "\N{REPLACEMENT CHARACTER}" not in "".join(pieces)
    assert all(pieces)


def test_a_text_cut_inside_a_character_ends_like_decode(byte_tokenizer):
    ids = byte_tokenizer.encode("日")[:2]
    puppet = Puppet(ids, byte_tokenizer.vocab_size)
    pieces = generate_text(puppet, byte_tokenizer, "x", tokens=2)
    assert "".join(pieces) == byte_tokenizer.decode(ids)


def test_the_end_of_text_ends_it_unless_ignored(byte_tokenizer):
    end, (a, b) = byte_tokenizer.end_of_text, byte_tokenizer.encode("ab")
    said = [a, end, b]
    V = byte_tokenizer.vocab_size
    assert "".join(generate_text(Puppet(said, V), byte_tokenizer, "x", tokens=3)) == "a"
    drawn: list[int] = []
    on = generate_text(Puppet(said, V), byte_tokenizer, "x", tokens=3, ignore_end=True, drawn=drawn)
    assert "".join(on) == byte_tokenizer.decode(said)
    assert drawn == said


def test_an_empty_prompt_begins_with_end_of_text(byte_tokenizer):
    puppet = Puppet(byte_tokenizer.encode("hey"), byte_tokenizer.vocab_size)
    assert "".join(generate_text(puppet, byte_tokenizer, "", tokens=3)) == "hey"
    assert puppet.read[0] == [byte_tokenizer.end_of_text]


def test_the_marker_in_a_prompt_is_ordinary_text(byte_tokenizer):
    puppet = Puppet(byte_tokenizer.encode("!"), byte_tokenizer.vocab_size)
    list(generate_text(puppet, byte_tokenizer, "<|endoftext|>", tokens=1))
    assert byte_tokenizer.end_of_text not in puppet.read[0]


def test_settings_reach_the_sampling():
    model = random_model("numpy", GPT2Config(257, 12, 1, 2, 8))
    tokenizer = BPE([])
    assert tokenizer.vocab_size <= 257
    greedy = [
        list(generate_text(model, tokenizer, "a", tokens=9, temperature=0, rng=seed))
        for seed in (0, 1)
    ]
    assert greedy[0] == greedy[1]
    with pytest.raises(ValueError, match="temperature"):
        generate_text(model, tokenizer, "a", temperature=-1)


@pytest.mark.parametrize(
    "imports",
    [
        "from gpt2lib import generate",
        "import gpt2lib.generate; from gpt2lib import generate",
        "from gpt2lib.generate import sample; import gpt2lib; generate = gpt2lib.generate",
        "from gpt2lib.generate import generate",
    ],
)
def test_the_name_is_a_function_whatever_was_imported_before(imports):
    code = (
        f"{imports}\nfrom gpt2lib import GPT2, GPT2Config\n"
        "model = GPT2(GPT2Config(7, 4, 1, 1, 2), seed=0)\n"
        "assert len(list(generate(model, [1], tokens=3, rng=0))) == 3"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
