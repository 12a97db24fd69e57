from itertools import pairwise

import numpy as np
import pytest

from gpt2lib.figures import tokens
from tests.figures.looks import faults, texts, words

pytestmark = pytest.mark.usefixtures("book_style")


def test_boxes_shows_every_piece_once_and_wraps():
    pieces = {"bytes": [f"{i:02x}" for i in range(60)], "words": ["␣little", "␣token", "iser"]}
    fig = tokens.boxes(pieces)
    (ax,) = fig.axes
    shown = [t.get_text() for t in ax.texts]
    for label, cut in pieces.items():
        assert [s for s in shown if s in set(cut)] == cut
        assert label in shown
    lines = {t.get_position()[1] for t in ax.texts if t.get_text() in set(pieces["bytes"])}
    assert len(lines) == 2
    assert len(ax.patches) == sum(map(len, pieces.values()))
    assert faults(fig) == []


def test_boxes_grow_with_their_piece_and_stand_apart():
    fig = tokens.boxes({"": ["a", "abc", "ab"]})
    boxes = [patch.get_window_extent() for patch in fig.axes[0].patches]
    a, abc, ab = (box.width for box in boxes)
    assert a < ab < abc
    assert all(left.x1 < right.x0 for left, right in pairwise(boxes))


def test_stair_has_a_line_a_state_and_names_what_comes_next():
    states = [["l", "o", "w"], ["lo", "w"], ["low"]]
    fig = tokens.stair(states, [0, 3, None])
    (ax,) = fig.axes
    rows = [[t.get_text() for t in ax.texts if t.get_position()[1] == -row] for row in range(3)]
    assert [row[:-1] for row in rows] == states
    assert [row[-1] for row in rows] == [
        "next: merge number 0",
        "next: merge number 3",
        "done: no pair left to merge",
    ]
    low = ax.get_ylim()[0]
    assert all(patch.get_bbox().y0 > low for patch in ax.patches)  # the last line is whole
    assert faults(fig) == []


def test_pair_counts():
    fig = tokens.pair_counts(["␣t", "he", "in"], [9, 7, 2])
    (ax,) = fig.axes
    assert [bar.get_width() for bar in ax.patches] == [9, 7, 2]
    assert ax.patches[0].get_facecolor() != ax.patches[1].get_facecolor()
    assert [t.get_text() for t in ax.get_yticklabels()] == ["␣t", "he", "in"]
    assert faults(fig) == []


def test_compression():
    curves = {"this": [1, 1.6, 2.0], "that": [1, 1.4, 1.7]}
    fig = tokens.compression([256, 512, 2048], curves)
    (ax,) = fig.axes
    for line, (label, values) in zip(ax.lines, curves.items(), strict=True):
        np.testing.assert_allclose(line.get_xydata(), np.stack([[256, 512, 2048], values], axis=1))
        assert line.get_label() == label
    assert ax.get_ylabel() == "bytes per token"
    assert "2,048" in words(fig)
    assert faults(fig) == []


def test_languages_has_two_bars_a_language():
    fig = tokens.languages({"English": (9, 39), "Greek": (32, 33)})
    (ax,) = fig.axes
    counts, characters = ax.containers
    assert [bar.get_width() for bar in counts] == [9, 32]
    assert [bar.get_width() for bar in characters] == [39, 33]
    assert {"English", "Greek", "tokens", "characters"} <= {t.get_text() for t in texts(fig)}
    assert faults(fig) == []
