"""Does a story hold together? The same name, the right pronoun, the animal that says "Moo".

The loss says how well a model predicts; this says whether what it tells makes sense. Every story
of :mod:`gpt2lib.data.stories` passes each test, so what a model fails is the model's.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from gpt2lib.data.grammar import By
from gpt2lib.data.stories import WORDS, log_probability

__all__ = ["Consistency", "check_story", "rates"]


def _table(slot: str) -> Mapping[str, Sequence[str]]:
    """Return the words of a slot that depends on another one."""
    words = WORDS[slot]
    assert isinstance(words, By)
    return words.table


_GENDERS = {"girl": {"she", "her"}, "boy": {"he", "him", "his"}}
_PRONOUNS = set.union(*_GENDERS.values())
_NAMES = {name for names in _table("name").values() for name in names}
_SOUNDS = {animal: words[0] for animal, words in _table("sound").items()}
_SPEECH = re.compile(r'"([A-Z][a-z]+)[,!]" \w+ the (\w+)')  # "Moo!" said the cow


class Consistency(NamedTuple):
    """What holds of one story.

    Attributes
    ----------
    name
        It is about one child, who is given a name, and at most one friend.
    pronoun
        Every *he, she, him, her, his* is the child's.
    animal
        One kind of animal at most, and it makes its own sound.
    grammatical
        The grammar could have told it, word by word: the strictest test, which implies the others.
    """

    name: bool
    pronoun: bool
    animal: bool
    grammatical: bool


def check_story(text: str) -> Consistency:
    """Test one story.

    Examples
    --------
    >>> check_story("Once upon a time there was a shy boy named Tom. She ran home.")
    Consistency(name=True, pronoun=False, animal=True, grammatical=False)
    """
    words = re.findall(r"[A-Za-z]+", text)
    hero = re.search(r"(girl|boy) named (\w+)", text)
    names = _NAMES.intersection(words)
    pronouns = _PRONOUNS.intersection(word.lower() for word in words)
    spoken = [(sound, animal) for sound, animal in _SPEECH.findall(text) if animal in _SOUNDS]
    return Consistency(
        name=hero is not None and hero[2] in names and len(names) <= 2,
        pronoun=hero is not None and pronouns <= _GENDERS[hero[1]],
        animal=len({animal for _, animal in spoken}) <= 1
        and all(_SOUNDS[animal] == sound for sound, animal in spoken),
        grammatical=math.isfinite(log_probability(text)),
    )


def rates(texts: Iterable[str]) -> dict[str, float]:
    """Return the share of stories that pass each test, by its name.

    Raises
    ------
    ValueError
        When there is no story.
    """
    checked = [check_story(text) for text in texts]
    if not checked:
        raise ValueError("no stories were given")
    return {
        field: sum(getattr(story, field) for story in checked) / len(checked)
        for field in Consistency._fields
    }
