"""Stories: their probabilities, their entropy, and that they hold together."""

import itertools
import math
import re

import numpy as np
import pytest

from gpt2lib.data.grammar import By, Symbol, parse
from gpt2lib.data.stories import RULES, STORIES, WORDS, log_probability, stories


@pytest.fixture(scope="module")
def told():
    return list(itertools.islice(stories(seed=11), 6000))


def test_equal_seeds_tell_equal_stories_and_others_do_not(told):
    again = list(itertools.islice(stories(seed=11), 50))
    other = list(itertools.islice(stories(np.random.default_rng(12)), 50))
    assert again == told[:50]
    assert again != other


def test_the_reported_probability_is_the_probability_of_the_text(told):
    for story in told[:600]:
        assert log_probability(story.text) == pytest.approx(story.log_probability, abs=1e-9)


def test_entropy_agrees_with_the_mean_over_many_stories(told):
    surprise = -np.array([story.log_probability for story in told])
    standard_error = surprise.std(ddof=1) / math.sqrt(len(surprise))
    assert abs(surprise.mean() - STORIES.entropy()) < 4 * standard_error


def test_the_grammar_is_the_one_that_the_packaged_model_learnt():
    """Whoever changes the stories trains the packaged model again, and writes the new number."""
    assert STORIES.entropy() == pytest.approx(41.56490964965, abs=1e-9)


def _beginnings(parts, length):
    """All texts of ``parts`` cut to ``length``, as (text, whether it ended before the cut)."""
    seen, todo = set(), [("", tuple(parts))]
    while todo:
        text, rest = todo.pop()
        if len(text) >= length:
            seen.add((text[:length], False))
        elif not rest:
            seen.add((text, True))
        elif isinstance(rest[0], str):
            todo.append((text + rest[0], rest[1:]))
        else:
            for option in _every_option(rest[0]):
                todo.append((text, option + rest[1:]))
    return seen


def _every_option(symbol):
    """Every expansion of a symbol, whatever is remembered: more than the grammar allows."""
    if symbol.name in RULES:
        return [parse(alternative) for alternative in RULES[symbol.name]]
    slot = WORDS[symbol.name]
    lists = slot.table.values() if isinstance(slot, By) else [slot]
    return [(word,) for word in sorted(set(itertools.chain(*lists)))]


def _can_be_mistaken(one, two):
    """Whether some text of ``one`` may begin a text of ``two``, or the other way round.

    What both begin with is left away: its own choices are proved distinct by their own tests.
    """
    while one and two and one[0] == two[0]:
        one, two = one[1:], two[1:]
    for length in (1, 2, 4, 6, 8, 10, 12, 16, 20):
        first, second = _beginnings(one, length), _beginnings(two, length)
        if any(ended for _, ended in first | second):
            clash = any(
                (e and b.startswith(a)) or (f and a.startswith(b)) or a == b
                for (a, e), (b, f) in itertools.product(first, second)
            )
        else:
            clash = bool(first & second)
        if not clash:
            return False
    return True


@pytest.mark.parametrize("name", [*RULES, *WORDS])
def test_no_two_choices_lead_to_the_same_text(name):
    """A proof that a text has one derivation.

    Where two options of a choice can both go on in the text at hand, one's text begins the
    other's. If that cannot happen at any choice, reading from the left never has two ways.
    """
    if name in RULES:
        options = _every_option(Symbol(name))
        assert not any(_can_be_mistaken(a, b) for a, b in itertools.combinations(options, 2))
    else:
        slot = WORDS[name]
        for words in slot.table.values() if isinstance(slot, By) else [slot]:
            assert not any(a.startswith(b) for a, b in itertools.permutations(words, 2))


def test_every_rule_and_every_slot_is_used():
    used, todo = set(), [Symbol("STORY")]
    while todo:
        symbol = todo.pop()
        if symbol.name not in used:
            used.add(symbol.name)
            slot = WORDS.get(symbol.name)
            todo += [Symbol(slot.slot)] if isinstance(slot, By) else []
            todo += [p for o in _every_option(symbol) for p in o if isinstance(p, Symbol)]
    assert used == {*RULES, *WORDS}


def test_foreign_texts_have_probability_zero(told):
    text = told[0].text
    for foreign in ("", "Once upon a time", text + " ", text[:-1], text.upper(), text + text):
        assert log_probability(foreign) == -math.inf


def test_a_wrong_name_or_pronoun_has_probability_zero(told):
    girls = [s.text for s in told[:400] if " girl named " in s.text and " She " in s.text]
    assert len(girls) > 20
    for text in girls:
        assert log_probability(text.replace(" She ", " He ")) == -math.inf


def test_the_book_s_prompt_is_the_usual_beginning():
    assert math.exp(log_probability("Once upon a time", prefix=True)) == pytest.approx(0.8)


def test_next_word_probabilities_add_to_one_along_a_story(told):
    text = told[5].text
    letters = sorted(set("".join(s.text for s in told[:200])))
    for cut in range(0, len(text), 13):
        here = log_probability(text[:cut], prefix=True)
        following = [log_probability(text[:cut] + c, prefix=True) for c in letters]
        assert np.logaddexp.reduce(following) == pytest.approx(here, abs=1e-9)


def test_names_come_back_and_pronouns_fit(told):
    for story in told[:500]:
        child, name = re.search(r"(girl|boy) named (\w+)", story.text).groups()
        assert story.text.count(name) >= 2 or child in story.text
        wrong = {"girl": r"\b(He|he|him|his|His)\b", "boy": r"\b(She|she|her|Her)\b"}[child]
        assert not re.search(wrong, story.text)
    mentions = [s.text.count(re.search(r"named (\w+)", s.text).group(1)) for s in told[:2000]]
    assert np.mean(mentions) > 3


def test_vocabulary_is_small_and_plain_ascii(told):
    words = set()
    for story in told:
        assert story.text.isascii()
        assert "  " not in story.text
        assert story.text[0].isupper()
        assert story.text[-1] in '.!"'
        words |= set(re.findall(r"[A-Za-z']+", story.text))
    assert 250 < len(words) <= 400
