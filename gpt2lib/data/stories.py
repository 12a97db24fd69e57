"""Little stories, in the manner of TinyStories, of which every probability is known.

Each tells of a child with a name, of a thing, an animal or a friend, of something that happens
and why, and of how it ends. A model that tells them well must do what a model of real text must:
keep a name through the story, choose the pronoun that belongs to it, know which animal says
"Moo", tell two children apart. But here the best possible loss is a number that can be worked out
(:meth:`gpt2lib.data.grammar.Grammar.entropy`), so it shows how much is left to learn.

The idea of a small world of words for small models is from Eldan and Li, "TinyStories: How Small
Can Language Models Be and Still Speak Coherent English?" (2023), arXiv:2305.07759. The stories are
our own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from gpt2lib.data.grammar import By, Grammar, Story

__all__ = ["STORIES", "log_probability", "stories"]


def _words(text: str) -> list[str]:
    return text.split()


_GIRLS = ["Lily", "Mia", "Sue", "Anna", "Emma", "Lucy", "Rose", "Zoe"]
_BOYS = ["Tom", "Ben", "Max", "Sam", "Tim", "Jack", "Leo", "Finn"]

_KINDS = _words(
    "little kind shy good sweet bold wise calm merry young happy funny brave clever tall nice"
)

_COLOURS = _words("red blue green yellow pink white black brown gold grey")

_SOUNDS = {
    "cat": "Meow",
    "dog": "Woof",
    "duck": "Quack",
    "frog": "Croak",
    "bird": "Tweet",
    "mouse": "Peep",
    "cow": "Moo",
    "hen": "Cluck",
    "pig": "Oink",
    "sheep": "Baa",
    "bee": "Buzz",
    "owl": "Hoot",
    "lion": "Roar",
    "goat": "Maa",
}

_CHORES = {  # what a parent asks for, and that it was done
    "feed the hens": "fed the hens",
    "feed the pigs": "fed the pigs",
    "wash the cups": "washed the cups",
    "wash the dog": "washed the dog",
    "pick the plums": "picked the plums",
    "make the beds": "made the beds",
    "make some bread": "made some bread",
    "find my hat": "found the hat",
}


def _one(table: dict[str, str]) -> dict[str, list[str]]:
    """Make every list of a ``By`` table a single word: known once the other slot is known."""
    return {key: [word] for key, word in table.items()}


WORDS: dict[str, Sequence[str] | By] = {
    "child": ["girl", "boy"],
    "name": By("child", {"girl": _GIRLS, "boy": _BOYS}),
    "friend": By("name", {n: [m for m in _GIRLS + _BOYS if m != n] for n in _GIRLS + _BOYS}),
    "he": By("child", _one({"girl": "she", "boy": "he"})),
    "He": By("child", _one({"girl": "She", "boy": "He"})),
    "him": By("child", _one({"girl": "her", "boy": "him"})),
    "his": By("child", _one({"girl": "her", "boy": "his"})),
    "His": By("child", _one({"girl": "Her", "boy": "His"})),
    "parent": ["mum", "dad", "gran", "aunt"],
    "animal": list(_SOUNDS),
    "sound": By("animal", _one(_SOUNDS)),
    "chore": list(_CHORES),
    "chored": By("chore", _one(_CHORES)),
    "kind": _KINDS,
    "also": By("kind", {k: [other for other in _KINDS if other != k] for k in _KINDS}),
    "size": _words("big small tiny round soft fat wet cute warm cold thin funny"),
    "colour": _COLOURS,
    "coat": _COLOURS,  # an animal's colour, whatever colour the thing in the story has
    "object": _words(
        "ball kite hat book drum boat doll cup box bell key shell stone coin lamp ring sock pen "
        "map bag fan pot jar bow rope top"
    ),
    "place": _words(
        "park garden forest farm beach field lake river hill barn mill pond shop well cave road "
        "town gate hut den"
    ),
    "hobby": _words("sing dance run draw swim read bake ride dive sew cook row"),
    "weather": _words("sunny rainy windy cold warm hot wet fine foggy grey"),
    "day": ["day", "morning", "evening"],
    "sad": _words("sad upset mad tired ill cold hungry lonely"),
}

RULES: dict[str, Sequence[str] | Mapping[str, float]] = {
    "STORY": ["{OPENING} {PLOT}"],
    "OPENING": {
        "Once upon a time there was a {CHILD} named {name}.": 5,
        "Once upon a time a {CHILD} named {name} lived near the {place}.": 3,
        "Once there was a {CHILD} named {name}.": 1,
        "There was once a {CHILD} named {name}.": 1,
    },
    "PLOT": [
        # Something is lost, and an animal finds it.
        "{HAD} {ONE_DAY} {HERO} {LOST} the {object} {WHERE}. {WHO} {FELT}. {THEN} a {ANIMAL} came "
        'with it. "{sound}{BANG}" {SAID} the {animal}. {END_ANIMAL}',
        # Something is found, and it belongs to somebody.
        "{ONE_DAY} {HERO} found a {size} {colour} {object} {WHERE}. {WONDER} {THEN} {he} met "
        '{friend}, who {FELT}. "I lost my {object}{BANG}" {SAID} {friend}. {WHO} {GAVE} '
        "{END_FRIEND}",
        # An animal needs help.
        '{ONE_DAY} {HERO} met a {ANIMAL} {WHERE}. "{sound}{BANG}" {SAID} the {animal}. {NEED} It '
        "{THANKFUL}. {END_ANIMAL}",
        # Two children and one thing.
        "{HAD} {ONE_DAY} {friend} wanted the {object} too. {REFUSED} {friend} {FELT} and {LEFT}. "
        "{THEN} {name} felt bad. {SHARE} {END_FRIEND}",
        # A wish is earned.
        '{WHO} wanted a {size} {colour} {object}. "{CONDITION}{BANG}" {SAID} {his} {parent}. So '
        "{name} {chored} {HOW}. {THEN} {his} {parent} {REWARD} {END_WISH}",
        # Something breaks, and the truth is told.
        "{ONE_DAY} {HERO} {BROKE} the {size} {colour} {object} of {his} {parent}. {WHO} {FELT} "
        'and {HID}. {THEN} {name} told {his} {parent}. "{SORRY}{BANG}" {TAG}. {His} {parent} '
        "{FORGAVE} {END_TRUTH}",
        # A stranger in the night.
        "{ONE_NIGHT} {HERO} heard a sound {NEARBY}. {WHO} {FEARED}. It was a {ANIMAL}! "
        '"{sound}{BANG}" {SAID} the {animal}. It {FELT}. {WHO} {HUGGED} it. {END_ANIMAL}',
        # Something hard is learnt.
        "{ONE_DAY} {HERO} saw {friend} {hobby} {AT} the {place}. {WHO} wanted to {hobby} too, but "
        '{he} {FAILED}. "{ENCOURAGED}{BANG}" {SAID} {friend}. So {name} tried {TRIED}. '
        "{THEN} {he} could {hobby}! {END_LEARNT}",
    ],
    # Small words that many plots share.
    "CHILD": ["{kind} {child}", "{kind}, {also} {child}"],
    "ANIMAL": ["{size} {animal}", "{size} {coat} {animal}"],
    "BANG": [",", "!"],
    "ONE_DAY": {"One {day}": 1, "One {weather} {day}": 2},
    "ONE_NIGHT": ["One night", "One {weather} night"],
    "HERO": ["{name}", "{he}"],
    "WHO": ["{name}", "{He}"],  # the same at the beginning of a sentence
    "THEN": ["Then", "Soon", "At last", "But then", "And then"],
    "SAID": ["said", "cried", "called", "whispered"],
    "TAG": ["said {name}", "{he} said", "cried {name}", "{he} cried"],
    "FELT": ["was {sad}", "was so {sad}", "was very {sad}", "felt {sad}", "felt so {sad}"],
    "HUGGED": ["hugged", "kissed", "sang to", "read to", "danced with", "sat with", "fed", "held"],
    "AT": ["at", "near", "by"],
    "WHERE": [
        "at the {place}",
        "near the {place}",
        "by the {place}",
        "on the way home",
        "on a rock",
        "by a tree",
        "in the mud",
    ],
    "FOOD": _words("cake bread soup pie jam rice cheese honey plums nuts"),
    "PET": _words("Pip Dot Bob Fluff Star Moon Bell Sunny"),
    # What happens, plot by plot.
    "HAD": [
        "{He} had a {size} {colour} {object}.",
        "{name} had a {size} {colour} {object}.",
        "{He} loved a {colour} {object}.",
        "{His} {parent} gave {him} a {colour} {object}.",
        "{name} made a {size} {object}.",
        "{He} took a {size} {object} to bed.",
        "{friend} gave {him} a {colour} {object}.",
        "{He} won a {size} {object}.",
    ],
    "LOST": ["lost", "left", "hid"],
    "WONDER": [
        '"So nice{BANG}" {TAG}.',
        "It was like new.",
        "{WHO} put it in a bag.",
        '"Who lost this?" {TAG}.',
        "{WHO} wanted to keep it.",
        "{WHO} took it home.",
        "{WHO} loved it.",
        '"It is mine now{BANG}" {TAG}.',
    ],
    "GAVE": [
        "gave it back.",
        "gave {friend} the {object}.",
        'said, "Here it is!"',
        'said, "I have it!"',
        "ran to get it.",
        "took {friend} to the {object}.",
    ],
    "NEED": [
        "It was hungry, so {name} gave it some {FOOD}.",
        "It was cold, so {he} made a fire.",
        "It was lost, so {name} took it home.",
        "It was stuck, so {he} got it out.",
        "It was tired, so {name} sang to it.",
        "It was ill, so {name} sat with it.",
        "It was wet, so {he} held it.",
        "It was sad, so {he} read to it.",
    ],
    "THANKFUL": [
        "danced",
        "sang",
        "sat on {name}",
        "kissed {name}",
        "gave {him} a {colour} {object}",
        "found {him} a {colour} {object}",
        "got well",
        "was happy",
    ],
    "REFUSED": [
        '"No{BANG}" {TAG}.',
        '"It is mine{BANG}" {TAG}.',
        '"Go home{BANG}" {TAG}.',
        '"You are too little{BANG}" {TAG}.',
        "{WHO} did not want to share.",
        "But {name} ran home.",
        "But {he} hid the {object}.",
        "But {name} held it.",
    ],
    "LEFT": [
        "went home",
        "cried",
        "sat by a tree",
        "went to the {place}",
        "hid at the {place}",
        "did not play",
        "left",
        "ran home",
    ],
    "SHARE": [
        '"Let us share{BANG}" {TAG}.',
        '"You can have it{BANG}" {TAG}.',
        '"Come and play{BANG}" {TAG}.',
        '"I am sorry{BANG}" {TAG}.',
        "So {he} let {friend} have it.",
        "So {name} gave {friend} the {object}.",
        "So {name} hugged {friend}.",
        "So {he} ran to {friend}.",
    ],
    "CONDITION": [
        "First {chore}",
        "If you {chore}, you can have it",
        "You must {chore}",
        "Please {chore}",
    ],
    "HOW": [
        "all day",
        "all night",
        "with {friend}",
        "in the rain",
        "so well",
        "very well",
        "so fast",
        "with {his} {parent}",
    ],
    "REWARD": [
        "gave {him} the {object}.",
        "made {him} the {object}.",
        "got the {object} from a shop.",
        "took {him} to the shop.",
        'said, "Here it is!"',
        'said, "You did well!"',
        'said, "Look on your bed!"',
        "kissed {him}.",
    ],
    "BROKE": ["broke", "lost", "dropped", "sat on", "cut", "burnt"],
    "HID": [
        "hid it in a bag",
        "hid at the {place}",
        "ran to the {place}",
        "ran home",
        "did not eat",
        "did not play",
        "cried",
        "sat by a tree",
    ],
    "SORRY": ["It was me", "I am sorry", "I did it", "I am so sorry", "I lied", "I was bad"],
    "FORGAVE": [
        "hugged {him}.",
        "kissed {him}.",
        "was not mad.",
        'said, "Thank you, {name}."',
        'said, "I love you."',
        'said, "It was old."',
        "was so happy.",
        "felt happy.",
    ],
    "NEARBY": [
        "by the bed",
        "in the rain",
        "at home",
        "by a tree",
        "from the {place}",
        "near the {place}",
        "at the {place}",
        "by the {place}",
    ],
    "FEARED": [
        "hid in bed",
        "was brave",
        "took a lamp",
        "called {his} {parent}",
        "called {friend}",
        "held {his} {object}",
        "ran there",
        "went to look",
    ],
    "FAILED": [
        "fell",
        "could not do it",
        "was too little",
        "did not like it",
        "was too shy",
        "got wet",
        "cried",
        "ran home",
    ],
    "ENCOURAGED": [
        "You can do it",
        "I will help you",
        "I fell too",
        "Look at me",
        "Do not cry",
        "Come to the {place}",
        "It is not so bad",
        "Come with me",
    ],
    "TRIED": [
        "all day",
        "all night",
        "with {his} {parent}",
        "at the {place}",
        "near the {place}",
        "with {friend}",
        "so hard",
        "at home",
    ],
    "END_ANIMAL": [
        "Now {name} and the {animal} were friends.",
        "The {animal} went home with {name}.",
        "{WHO} told {his} {parent} of the {animal}.",
        "They went to play at the {place}.",
        "They went home to eat {FOOD}.",
        "{WHO} named the {animal} {PET}.",
        "And the {animal} helped {him} to {hobby}.",
        "The {animal} gave {him} some {FOOD}.",
    ],
    "END_FRIEND": [
        "Now {name} and {friend} were friends.",
        "They went to play at the {place}.",
        "{friend} hugged {name}.",
        '"Thank you, {name}{BANG}" {SAID} {friend}.',
        "{name} and {friend} ate {FOOD}.",
        "They went home to {hobby}.",
        "{friend} was happy, and so was {name}.",
        "{friend} gave {name} some {FOOD}.",
    ],
    "END_WISH": [
        "{WHO} was so happy.",
        "{WHO} took the {object} to bed.",
        "{WHO} ran to {friend} with it.",
        "They ate {FOOD}.",
        "{WHO} took it to the {place}.",
        "{WHO} named it {PET}.",
        "{WHO} hugged {his} {parent}.",
        "{WHO} kissed {his} {parent}.",
    ],
    "END_TRUTH": [
        "They made a new {object}.",
        "{WHO} never lied.",
        "{WHO} slept well.",
        "They ate {FOOD}.",
        "{WHO} gave {his} {parent} a new {object}.",
        "{WHO} hugged {his} {parent}.",
        "They went to {hobby} all day.",
        "They got a new {object}.",
    ],
    "END_LEARNT": [
        "{WHO} was so happy.",
        "{friend} was happy too.",
        "{name} and {friend} ate {FOOD}.",
        "They {hobby} all day now.",
        "{WHO} ran home to tell {his} {parent}.",
        "{WHO} helped {his} {parent} to {hobby}.",
        '"Thank you, {friend}{BANG}" {TAG}.',
        "{friend} hugged {name}.",
    ],
}

STORIES = Grammar(RULES, WORDS)


def stories(seed: int | np.random.Generator = 0) -> Iterator[Story]:
    """Tell stories without end.

    Parameters
    ----------
    seed
        A seed, or the generator to draw from. Equal seeds tell equal stories.

    Yields
    ------
    Story
        ``(text, log_probability)``, the latter in nats.

    Examples
    --------
    >>> from itertools import islice
    >>> [story] = islice(stories(seed=1), 1)
    >>> abs(story.log_probability - log_probability(story.text)) < 1e-9
    True
    """
    rng = np.random.default_rng(seed)
    while True:
        yield STORIES.tell(rng)


def log_probability(text: str, *, prefix: bool = False) -> float:
    """Return log p(text) under the stories' grammar (:meth:`Grammar.log_probability`)."""
    return STORIES.log_probability(text, prefix=prefix)
