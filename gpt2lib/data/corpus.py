"""Corpora: documents for training and documents for validation, apart from each other."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np

from gpt2lib.data.download import DOWNLOADS, fetch
from gpt2lib.data.stories import log_probability, stories
from gpt2lib.data.text import read_documents, repair_mojibake, text_files

__all__ = ["CORPORA", "Corpus", "load_corpus"]

CORPORA = ("stories", "python-docs", *sorted(DOWNLOADS))
"""The names that :func:`load_corpus` knows; anything else is a path."""

_STORIES = 20_000  # how many are told where nobody says: some 1.6 million tokens of `tiny`


@dataclass(frozen=True)
class Corpus:
    """Documents, in two parts that share none.

    Attributes
    ----------
    name
        What it was loaded as.
    train, validation
        The documents.
    notes
        What a reader should know about them: files left out, characters replaced, a document cut
        in two. One sentence each.
    log_probability
        The exact log-probability of a document in nats, where the source is known: for `stories`.
    """

    name: str
    train: list[str]
    validation: list[str]
    notes: tuple[str, ...] = ()
    log_probability: Callable[[str], float] | None = None

    def floor_nats(self, documents: Iterable[str]) -> float | None:
        """Return -Σ log p over ``documents``: what the best model pays; None if unknown."""
        if self.log_probability is None:
            return None
        return -math.fsum(self.log_probability(document) for document in documents)


def load_corpus(
    name_or_path: str | os.PathLike[str],
    *,
    seed: int = 0,
    documents: int | None = None,
    validation: float = 0.1,
    repair: bool = False,
) -> Corpus:
    """Load a corpus and split it by document.

    Parameters
    ----------
    name_or_path
        A name (a ``str``; what is a ``Path`` is never taken for one) or a path:

        - ``stories``: told here, endless, of known probability (:mod:`gpt2lib.data.stories`);
        - ``python-docs``: the language reference that comes with Python, one topic a document;
        - ``tinyshakespeare``, ``tinystories``: downloaded once, size and SHA-256 checked;
        - a text file (:func:`gpt2lib.data.text.read_documents` says what its documents are), or
          a folder, in which every text file is a document, or several if it has separators.
    seed
        Decides which stories are told, and which documents become the validation part.
    documents
        How many stories to tell (20 000 where nobody says), or at most how many documents of
        another corpus to read.
    validation
        The share of documents to keep for validation: at least one, and never all.
    repair
        Undo mojibake (:func:`gpt2lib.data.text.repair_mojibake`), of which TinyStories has some.

    Returns
    -------
    Corpus
        Every document is in exactly one part, in its old order. A corpus of a single document is
        cut by position, and ``notes`` says so.

    Raises
    ------
    ValueError
        Where there is no such corpus, no text in it, or too little for two parts.
    """
    if not 0 < validation < 1:
        raise ValueError(f"validation={validation} must lie between 0 and 1: it is a share")
    check_request(os.fspath(name_or_path), documents)
    name = str(name_or_path)
    if name_or_path == "stories":
        return _tell_stories(seed, _STORIES if documents is None else documents, validation)
    texts, notes = _read(name_or_path, documents)
    if repair:
        texts = [repair_mojibake(text) for text in texts]
    if lost := sum(text.count("\N{REPLACEMENT CHARACTER}") for text in texts):
        notes.append(f"{name}: {lost} characters are U+FFFD: they could not be read as UTF-8.")
    if not any(texts):
        raise ValueError(f"{name}: no text in it")
    return _split(name, texts, notes, validation, np.random.default_rng(seed))


def check_request(name: str, documents: int | None) -> None:
    """Refuse a corpus that nobody can give.

    Raises
    ------
    ValueError
        For an empty name, a path that is no text (a run writes down where its corpus is), and for
        fewer documents than one or more than a machine can count.
    """
    if not name:
        raise ValueError("an empty name is no corpus: give a name, or the path of a file or folder")
    try:
        name.encode("utf-8")
    except UnicodeEncodeError:
        raise ValueError(f"the path {name!r} is not UTF-8: rename the file or folder") from None
    if documents is not None and not 1 <= documents <= sys.maxsize:
        raise ValueError(f"documents={documents}: from 1 to {sys.maxsize} can be used")


def _tell_stories(seed: int, documents: int, validation: float) -> Corpus:
    """Draw both parts from generators of their own: more training leaves validation as it is."""
    if documents < 2:
        raise ValueError("stories: at least two documents are needed, one for each part")
    held_out = _share(documents, validation)
    for_training, for_validation = np.random.SeedSequence(seed).spawn(2)
    told = stories(np.random.default_rng(for_validation))
    kept = [story.text for story in islice(told, held_out)]
    seen = set(kept)  # two equal stories are a matter of e^-40, but apart means apart
    fresh = (s.text for s in stories(np.random.default_rng(for_training)) if s.text not in seen)
    train = list(islice(fresh, documents - held_out))
    return Corpus("stories", train, kept, log_probability=log_probability)


def _read(source: str | os.PathLike[str], documents: int | None) -> tuple[list[str], list[str]]:
    """Return documents and notes of everything that is not told but read."""
    name, notes = str(source), []
    if source == "python-docs":
        try:
            from pydoc_data.topics import topics
        except ImportError as error:
            raise ValueError("python-docs: this Python came without pydoc_data.topics") from error
        found: Iterable[str] = (topics[topic] for topic in sorted(topics))
    elif source in DOWNLOADS:
        found = read_documents(fetch(name))
    elif Path(source).is_file():
        found = read_documents(source)
    elif Path(source).is_dir():
        files, refused = text_files(source)
        notes += [f"Left out: {reason}." for reason in refused]
        if not files:
            raise ValueError(f"{name}: no text file in this folder")
        alone = len(files) == 1  # then its paragraphs are documents, as if it had been named
        found = (text for file in files for text in read_documents(file, paragraphs=alone))
    else:
        raise ValueError(
            f"no corpus {name!r}: give {', '.join(CORPORA)}, or the path of a text file or folder"
        )
    return list(islice(found, documents)), notes


def _share(count: int, validation: float) -> int:
    """Return how many of ``count`` documents are for validation."""
    return min(max(1, round(validation * count)), count - 1)


def _split(
    name: str, texts: list[str], notes: list[str], validation: float, rng: np.random.Generator
) -> Corpus:
    if len(texts) == 1:
        return _cut(name, texts[0], notes, validation)
    chosen = np.zeros(len(texts), dtype=bool)
    chosen[rng.permutation(len(texts))[: _share(len(texts), validation)]] = True
    train = [text for text, held_out in zip(texts, chosen, strict=True) if not held_out]
    kept = [text for text, held_out in zip(texts, chosen, strict=True) if held_out]
    return Corpus(name, train, kept, tuple(notes))


def _cut(name: str, text: str, notes: list[str], validation: float) -> Corpus:
    """Cut the only document in two, at the line or word nearest before the wanted place."""
    if len(text) < 2:
        raise ValueError(f"{name}: {len(text)} characters are too few for two parts")
    place = min(max(1, round(len(text) * (1 - validation))), len(text) - 1)
    for border in ("\n", " "):
        found = text.rfind(border, place // 2, place) + 1
        if found:
            place = found
            break
    notes.append(
        f"{name}: one document, cut in two: the last {len(text) - place} characters validate."
    )
    return Corpus(name, [text[:place]], [text[place:]], tuple(notes))
