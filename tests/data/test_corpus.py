"""Every document is in exactly one part; what cannot be split is refused or explained."""

import math
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from gpt2lib.data import load_corpus
from gpt2lib.data.stories import log_probability


def write(path, documents):
    path.write_text("\n<|endoftext|>\n".join(documents) + "\n<|endoftext|>\n", encoding="utf-8")
    return path


def test_every_document_is_in_exactly_one_part(tmp_path):
    documents = [f"Document {i}." for i in range(200)] + ["twice", "twice", ""]
    corpus = load_corpus(write(tmp_path / "c.txt", documents), seed=4)
    assert Counter(corpus.train + corpus.validation) == Counter(documents)
    assert len(corpus.validation) == 20
    order = {d: i for i, d in enumerate(documents)}
    for part in (corpus.train, corpus.validation):
        assert [order[d] for d in part] == sorted(order[d] for d in part)


def test_the_seed_decides_the_split(tmp_path):
    path = write(tmp_path / "c.txt", [f"Document {i}." for i in range(50)])
    assert load_corpus(path, seed=1) == load_corpus(path, seed=1)
    assert load_corpus(path, seed=1).validation != load_corpus(path, seed=2).validation


@pytest.mark.parametrize("validation", [0.001, 0.5, 0.999])
@pytest.mark.parametrize("count", [2, 3, 10])
def test_both_parts_have_a_document(tmp_path, count, validation):
    path = write(tmp_path / "c.txt", [f"D{i}" for i in range(count)])
    corpus = load_corpus(path, validation=validation)
    assert corpus.train
    assert corpus.validation
    assert len(corpus.train) + len(corpus.validation) == count


@pytest.mark.parametrize("validation", [0.0, 1.0, -0.1, 2, math.nan])
def test_a_share_outside_0_and_1_is_refused(validation):
    with pytest.raises(ValueError, match="between 0 and 1"):
        load_corpus("stories", validation=validation)


@pytest.mark.parametrize("text", ["word " * 400, "x" * 1000, "ab", "line\n" * 50])
def test_a_single_document_is_cut_by_position_and_it_is_said(tmp_path, text):
    path = tmp_path / "one.txt"
    path.write_text(text, encoding="utf-8")
    corpus = load_corpus(path)
    [train], [validation] = corpus.train, corpus.validation
    assert train + validation == text.strip("\n")
    assert train
    assert validation
    assert len(validation) < len(train) or len(text) == 2
    assert "cut in two" in corpus.notes[-1]


@pytest.mark.parametrize("text", ["", "\n \n", "x", "<|endoftext|>\n<|endoftext|>\n"])
def test_too_little_text_is_refused_in_words(tmp_path, text):
    path = tmp_path / "one.txt"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=r"one\.txt"):
        load_corpus(path)


def test_a_path_is_not_taken_for_a_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "stories", ["one", "two"])
    corpus = load_corpus(Path("stories"))
    assert sorted(corpus.train + corpus.validation) == ["one", "two"]
    assert load_corpus("./stories").train == corpus.train


def test_unknown_names_and_empty_folders_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"nosuch.*stories.*tinyshakespeare"):
        load_corpus("nosuch")
    with pytest.raises(ValueError, match="no text file"):
        load_corpus(tmp_path)
    with pytest.raises(ValueError, match="documents=0"):
        load_corpus("python-docs", documents=0)


def test_a_folder_has_a_document_a_file(tmp_path):
    for i in range(5):
        (tmp_path / f"{i}.txt").write_text(f"First.\n\nSecond {i}.", encoding="utf-8")
    write(tmp_path / "several.txt", ["a", "b"])
    (tmp_path / "x.bin").write_bytes(b"\0\1")
    corpus = load_corpus(tmp_path)
    assert sorted(corpus.train + corpus.validation) == sorted(
        [f"First.\n\nSecond {i}." for i in range(5)] + ["a", "b"]
    )
    assert any("x.bin" in note for note in corpus.notes)


def test_a_folder_with_one_file_is_like_the_file(tmp_path):
    (tmp_path / "only.txt").write_text("One.\n\nTwo.\n\nThree.", encoding="utf-8")
    corpus = load_corpus(tmp_path)
    assert sorted(corpus.train + corpus.validation) == ["One.", "Three.", "Two."]


def test_replaced_characters_are_told(tmp_path):
    path = tmp_path / "latin1.txt"
    path.write_bytes("Ein schöner Tag.\n\nUnd noch ein Tag.".encode("latin-1"))
    assert "1 characters are U+FFFD" in load_corpus(path).notes[0]


def test_damage_is_repaired_on_demand(tmp_path):
    path = write(tmp_path / "t.txt", ["â€œHi,â€\x9d said Tim.", "Noâ€¦"])
    repaired, left = load_corpus(path, repair=True), load_corpus(path)
    assert {*repaired.train, *repaired.validation} == {"No…", "“Hi,” said Tim."}
    assert "â€œHi,â€\x9d said Tim." in {*left.train, *left.validation}


def test_python_docs_are_real_text_split_by_topic():
    from pydoc_data.topics import topics

    corpus = load_corpus("python-docs")
    assert Counter(corpus.train + corpus.validation) == Counter(topics.values())
    assert corpus.floor_nats(corpus.validation) is None
    assert len(load_corpus("python-docs", documents=7).train) == 6


def test_stories_are_drawn_apart_and_more_training_keeps_the_validation():
    small = load_corpus("stories", documents=200, seed=5)
    large = load_corpus("stories", documents=400, seed=5)
    assert (len(small.train), len(small.validation)) == (180, 20)
    assert large.train[:180] == small.train
    assert large.validation[:20] == small.validation
    assert not set(large.train) & set(large.validation)
    assert load_corpus("stories", documents=200, seed=6).train != small.train
    with pytest.raises(ValueError, match="two documents"):
        load_corpus("stories", documents=1)


def test_the_floor_is_the_sum_over_the_documents():
    corpus = load_corpus("stories", documents=100)
    expected = -np.sum([log_probability(text) for text in corpus.validation])
    assert corpus.floor_nats(corpus.validation) == pytest.approx(expected)
    assert corpus.floor_nats(["A foreign text."]) == math.inf
