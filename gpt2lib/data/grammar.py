"""A grammar that remembers: it tells stories, and knows how probable each one is.

A grammar is data, two dictionaries:

* ``rules`` maps a NAME in capitals to its alternatives: a list (all equally probable) or a
  dictionary from alternative to weight. A rule chooses afresh each time it is mentioned.
* ``words`` maps a slot's name to its words. A slot chooses once, uniformly, the first time that
  it is mentioned; from then on it repeats the word. That is what makes a character keep its name.
  With ``By(slot, table)`` the words depend on an earlier slot: ``By("child", {"girl": ["she"],
  "boy": ["he"]})`` is a pronoun, and as it has a single choice it costs nothing to predict.

An alternative is text with names in braces: ``"{He} had a {colour} {object}."``

As every choice is known, so is the probability of a text, the entropy of the whole grammar, and
with it the lowest loss that any model of these texts can reach.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import accumulate
from typing import NamedTuple

import numpy as np

__all__ = ["By", "Grammar", "Story"]


class By(NamedTuple):
    """Words that depend on another slot, which must have been mentioned before."""

    slot: str
    table: Mapping[str, Sequence[str]]


class Story(NamedTuple):
    """A text and the natural logarithm of its probability (nats)."""

    text: str
    log_probability: float


class Symbol(NamedTuple):
    """A rule's or a slot's name inside an alternative; a ``str`` there is text as it stands."""

    name: str


Parts = tuple[str | Symbol, ...]  # in reading order


class Choice(NamedTuple):
    """One thing that a symbol may become, and log p of it."""

    parts: Parts
    log_probability: float


class Choices:
    """All that a symbol may become; ``limits`` are the running sums of the probabilities."""

    def __init__(self, alternatives: Mapping[str, float]):
        total = math.fsum(alternatives.values())
        self.options = [
            Choice(parse(text), math.log(weight / total)) for text, weight in alternatives.items()
        ]
        self.limits = list(accumulate(weight / total for weight in alternatives.values()))
        self.limits[-1] = math.inf  # the sum may round to just below 1; the draw may fall there

    def draw(self, rng: np.random.Generator) -> Choice:
        """Choose one; a single option needs no random number."""
        if len(self.options) == 1:
            return self.options[0]
        return self.options[bisect_right(self.limits, rng.random())]


def parse(alternative: str) -> Parts:
    """Cut ``"{He} sat."`` into ``(Symbol("He"), " sat.")``."""
    pieces = re.split(r"\{(\w+)\}", alternative)  # text, name, text, name, …, text
    parts = (Symbol(piece) if i % 2 else piece for i, piece in enumerate(pieces))
    return tuple(part for part in parts if part)


class Grammar:
    r"""Rules and words, and what follows from them.

    With :math:`c_1 \dots c_n` the choices that tell a text :math:`x`,

    .. math:: \log p(x) = \sum_i \log p(c_i \mid c_1 \dots c_{i-1}).

    Parameters
    ----------
    rules
        Rule name to a list of alternatives, or to ``{alternative: weight}``. No rule may lead
        back to itself.
    words
        Slot name to a list of words, or to :class:`By`. In one ``By`` all lists have the same
        length; so a choice's entropy depends on *which* slots were drawn, not on what they hold,
        and :meth:`entropy` is a short sum instead of one over every story.
    start
        The rule that a story begins with.

    Raises
    ------
    ValueError
        Where a name in braces is neither rule nor slot, a word depends on a slot that is not yet
        known where it is mentioned, a weight is not positive, or lists differ in length.
    """

    def __init__(
        self,
        rules: Mapping[str, Sequence[str] | Mapping[str, float]],
        words: Mapping[str, Sequence[str] | By],
        start: str = "STORY",
    ):
        self.rules, self.words, self.start = rules, words, Symbol(start)
        self._rules = {name: _read_rule(name, rule) for name, rule in rules.items()}
        # slot -> (slot it depends on or None, {that slot's word or None: choices})
        self._slots = {name: _read_slot(name, words) for name in words}
        self._mentions: dict[str, frozenset[str]] = {}
        self._entropy = self._walk_entropy()  # visits every rule: a wrong name shows here

    def choices(self, name: str, memory: Mapping[str, str]) -> Choices:
        """Return what ``name`` may become, given the slots drawn so far (``memory``)."""
        if name in self._rules:
            return self._rules[name]
        by, table = self._slots[name]
        return table[memory[by] if by else None]

    def tell(self, rng: np.random.Generator) -> Story:
        """Draw one story and its log-probability; every choice comes from ``rng``."""
        text: list[str] = []
        memory: dict[str, str] = {}
        log_probability = 0.0
        todo: list[str | Symbol] = [self.start]  # a stack: what comes next is last
        while todo:
            part = todo.pop()
            if isinstance(part, str):
                text.append(part)
            elif part.name in memory:
                text.append(memory[part.name])
            else:
                parts, logp = self.choices(part.name, memory).draw(rng)
                log_probability += logp
                todo.extend(reversed(parts))
                if part.name in self._slots:
                    memory[part.name] = _word(parts)
        return Story("".join(text), log_probability)

    def log_probability(self, text: str, *, prefix: bool = False) -> float:
        """Return log p(text) in nats, from the text alone; ``-inf`` for one never told.

        The text is read from left to right along every choice that still fits it, and the
        probabilities of all ways through are added. Nothing is known of how it was drawn, so this
        checks :meth:`tell`.

        Parameters
        ----------
        text
            A whole story, or the beginning of one.
        prefix
            Return the probability that a story *begins* with ``text``. The difference between
            two prefixes is the exact surprise of what the longer one adds: the lowest loss
            possible at that place.
        """
        found: list[float] = []
        # One entry for each way to read text[:position]: what must follow, which words are
        # remembered, and how probable the way was so far.
        Way = tuple[int, Parts, dict[str, str], float]
        ways: list[Way] = [(0, (self.start,), {}, 0.0)]
        while ways:
            position, parts, memory, logp = ways.pop()
            if position == len(text) and (prefix or not parts):
                found.append(logp)
                continue
            if not parts:
                continue
            part, rest = parts[0], parts[1:]
            word = part if isinstance(part, str) else memory.get(part.name)
            if word is not None:
                end = min(position + len(word), len(text)) if prefix else position + len(word)
                if text[position:end] == word[: end - position]:
                    ways.append((end, rest, memory, logp))
                continue
            assert isinstance(part, Symbol)
            for option, cost in self.choices(part.name, memory).options:
                known = memory
                if part.name in self._slots:
                    known = memory | {part.name: _word(option)}
                ways.append((position, option + rest, known, logp + cost))
        return float(np.logaddexp.reduce(found)) if found else -math.inf

    def entropy(self) -> float:
        r"""Return :math:`-\sum_x p(x) \log p(x)` over all stories, in nats a story, exactly."""
        return self._entropy

    def _walk_entropy(self) -> float:
        # What a symbol costs depends on which slots are known by then, and leaves more of them
        # known: (nats, {newly known slots: probability}). Going through a sequence of parts
        # therefore carries along a distribution over sets of slots.
        Outcome = tuple[float, dict[frozenset[str], float]]
        nothing: frozenset[str] = frozenset()

        @cache
        def symbol(name: str, known: frozenset[str]) -> Outcome:
            if name in known:
                return 0.0, {nothing: 1.0}
            if name in self._slots:
                by, table = self._slots[name]
                if by and by not in known:
                    raise ValueError(f"slot {{{name}}} is mentioned before {{{by}}}")
                size = len(next(iter(table.values())).options)
                return math.log(size), {frozenset([name]): 1.0}
            if name not in self._rules:
                raise ValueError(f"{{{name}}} is neither a rule nor a slot of the grammar")
            nats = 0.0
            added: dict[frozenset[str], float] = defaultdict(float)
            for parts, logp in self._rules[name].options:
                p = math.exp(logp)
                inner, outcomes = sequence(parts, known)
                nats += p * (inner - logp)
                for new, q in outcomes.items():
                    added[new] += p * q
            return nats, added

        def sequence(parts: Parts, known: frozenset[str]) -> Outcome:
            nats, after = 0.0, {nothing: 1.0}
            for name in (part.name for part in parts if isinstance(part, Symbol)):
                then: dict[frozenset[str], float] = defaultdict(float)
                for so_far, p in after.items():
                    cost, outcomes = symbol(name, (known | so_far) & self._mentioned(name))
                    nats += p * cost
                    for new, q in outcomes.items():
                        then[so_far | new] += p * q
                after = then
            return nats, after

        return symbol(self.start.name, nothing)[0]

    def _mentioned(self, name: str) -> frozenset[str]:
        """Return the slots that a symbol may mention, and those that they depend on."""
        if name not in self._mentions:
            mentioned = {name}
            if name in self._slots and (by := self._slots[name][0]):
                mentioned.add(by)
            for option in self._rules[name].options if name in self._rules else ():
                for part in option.parts:
                    if isinstance(part, Symbol):
                        mentioned |= self._mentioned(part.name)
            self._mentions[name] = frozenset(mentioned)
        return self._mentions[name]


def _word(parts: Parts) -> str:
    """Return the one piece of plain text that a slot's choice is."""
    (word,) = parts
    assert isinstance(word, str)
    return word


def _read_rule(name: str, rule: Sequence[str] | Mapping[str, float]) -> Choices:
    weights = dict(rule) if isinstance(rule, Mapping) else dict.fromkeys(rule, 1.0)
    if not weights or len(weights) != len(rule) or min(weights.values()) <= 0:
        raise ValueError(f"rule {name}: needs different alternatives, each of positive weight")
    return Choices(weights)


def _read_slot(
    name: str, words: Mapping[str, Sequence[str] | By]
) -> tuple[str | None, dict[str | None, Choices]]:
    slot = words[name]
    by: str | None = None
    table: dict[str | None, Sequence[str]] = {}
    if isinstance(slot, By):
        by = slot.slot
        table.update(slot.table)
    else:
        table[None] = slot
    lists = list(table.values())
    same = len({len(words) for words in lists}) == 1 and all(lists)
    if not same or any(len(set(words)) != len(words) for words in lists):
        raise ValueError(f"slot {name}: needs lists of different words, all of the same length")
    if any(not word or "{" in word for words in lists for word in words):
        raise ValueError(f"slot {name}: needs words that are plain text and not empty")
    if by is not None and not _all_words(words.get(by, ())) <= table.keys():
        raise ValueError(f"slot {name}: needs a list for every word of slot {by}")
    return by, {key: Choices(dict.fromkeys(words, 1.0)) for key, words in table.items()}


def _all_words(slot: Sequence[str] | By) -> set[str]:
    lists = slot.table.values() if isinstance(slot, By) else [slot]
    return {word for words in lists for word in words}
