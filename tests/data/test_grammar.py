"""The grammar's arithmetic, against enumeration by hand and by brute force."""

import math
from collections import Counter

import numpy as np
import pytest

from gpt2lib.data.grammar import By, Grammar


def toy() -> Grammar:
    return Grammar(
        {
            "STORY": {"{name} sat. {TAIL}": 3, "{name} and a {pet} sat. {TAIL}": 1},
            "TAIL": ["{He} slept.", "The {pet} slept."],
        },
        {
            "name": ["Ann", "Bob"],
            "He": By("name", {"Ann": ["She"], "Bob": ["He"]}),
            "pet": ["cat", "dog"],
        },
    )


# Worked out by hand: STORY (3/4 or 1/4) x name (1/2) x TAIL (1/2) x pet (1/2, once, if at all).
TOY_TEXTS = {
    "Ann sat. She slept.": 3 / 16,
    "Bob sat. He slept.": 3 / 16,
    "Ann sat. The cat slept.": 3 / 32,
    "Ann sat. The dog slept.": 3 / 32,
    "Bob sat. The cat slept.": 3 / 32,
    "Bob sat. The dog slept.": 3 / 32,
    "Ann and a cat sat. She slept.": 1 / 32,
    "Ann and a dog sat. She slept.": 1 / 32,
    "Bob and a cat sat. He slept.": 1 / 32,
    "Bob and a dog sat. He slept.": 1 / 32,
    "Ann and a cat sat. The cat slept.": 1 / 32,
    "Ann and a dog sat. The dog slept.": 1 / 32,
    "Bob and a cat sat. The cat slept.": 1 / 32,
    "Bob and a dog sat. The dog slept.": 1 / 32,
}


def test_probabilities_equal_those_worked_by_hand():
    assert sum(TOY_TEXTS.values()) == 1
    for text, p in TOY_TEXTS.items():
        assert math.exp(toy().log_probability(text)) == pytest.approx(p, rel=1e-12)


@pytest.mark.parametrize(
    "foreign",
    [
        "",
        "Ann sat.",
        "Ann sat. He slept.",
        "Ann and a cat sat. The dog slept.",
        "Ann sat. She slept. ",
    ],
)
def test_a_text_never_told_has_probability_zero(foreign):
    assert toy().log_probability(foreign) == -math.inf


def test_entropy_equals_the_sum_over_all_texts():
    expected = -sum(p * math.log(p) for p in TOY_TEXTS.values())
    assert toy().entropy() == pytest.approx(expected, rel=1e-12)


def test_stories_come_with_the_frequency_that_they_report():
    rng = np.random.default_rng(3)
    grammar = toy()
    told = [grammar.tell(rng) for _ in range(8000)]
    assert all(
        s.log_probability == pytest.approx(math.log(TOY_TEXTS[s.text]), rel=1e-12) for s in told
    )
    counts = Counter(s.text for s in told)
    chi2 = sum((counts[t] - 8000 * p) ** 2 / (8000 * p) for t, p in TOY_TEXTS.items())
    assert chi2 < 34.5  # 99.9 % of the chi-squared distribution with 13 degrees of freedom


@pytest.mark.parametrize("length", range(0, 34))
def test_a_prefix_has_the_probability_of_all_its_continuations(length):
    grammar = toy()
    for text in TOY_TEXTS:
        start = text[:length]
        expected = sum(p for other, p in TOY_TEXTS.items() if other.startswith(start))
        assert math.exp(grammar.log_probability(start, prefix=True)) == pytest.approx(expected)
    assert grammar.log_probability("Cat", prefix=True) == -math.inf


def test_two_ways_to_the_same_text_are_added():
    ambiguous = Grammar({"STORY": ["a{X}", "{X}a"], "X": ["a", "b"]}, {})
    assert math.exp(ambiguous.log_probability("aa")) == pytest.approx(1 / 2)
    assert math.exp(ambiguous.log_probability("ab")) == pytest.approx(1 / 4)


def test_a_slot_named_like_a_word_is_not_mistaken_for_it():
    grammar = Grammar({"STORY": ["he{he}"]}, {"he": ["x", "y"]})
    assert grammar.entropy() == pytest.approx(math.log(2))
    assert math.exp(grammar.log_probability("hex")) == pytest.approx(1 / 2)


@pytest.mark.parametrize(
    ("rules", "words", "message"),
    [
        ({"STORY": ["{nobody}"]}, {}, "nobody"),
        ({"STORY": ["a", "a"]}, {}, "STORY"),
        ({"STORY": {"a": 0.0, "b": 1.0}}, {}, "STORY"),
        ({"STORY": []}, {}, "STORY"),
        ({"STORY": ["{he}"]}, {"n": ["A"], "he": By("n", {"A": ["x"]})}, "before"),
        ({"STORY": ["{n}{he}"]}, {"n": ["A", "B"], "he": By("n", {"A": ["x"]})}, "every word"),
        (
            {"STORY": ["{n}{he}"]},
            {"n": ["A", "B"], "he": By("n", {"A": ["x"], "B": ["y", "z"]})},
            "same length",
        ),
        ({"STORY": ["{n}"]}, {"n": ["A", "A"]}, "different words"),
        ({"STORY": ["{n}"]}, {"n": []}, "n"),
        ({"STORY": ["{n}"]}, {"n": ["{m}"]}, "plain"),
    ],
)
def test_a_faulty_grammar_is_refused_in_words(rules, words, message):
    with pytest.raises(ValueError, match=message):
        Grammar(rules, words)
