"""The attention chapter's figures show the numbers that they are given."""

from __future__ import annotations

import itertools
import re

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib import pyplot as plt

from gpt2lib import figures
from gpt2lib.figures import attention as drawings
from tests.figures.looks import bar_heights, faults


@pytest.fixture(autouse=True)
def book_style():
    with mpl.rc_context():
        figures.use_style()
        yield
        plt.close("all")


def texts(fig):
    return [text.get_text() for text in fig.findobj(mpl.text.Text) if text.get_text()]


def maps(*shape, seed=0):
    """Random causal weights (..., T, T) whose rows sum to 1."""
    p = np.tril(np.random.default_rng(seed).random(shape) + 0.01)
    return p / p.sum(axis=-1, keepdims=True)


def test_plane_writes_each_score_beside_its_key():
    fig = drawings.plane({"a": (2, 2), "b": (-2, 2), "c": (0, 0)}, ("d", (2, 1)))
    words = texts(fig)
    assert "“a”  +6" in words
    assert "“b”  −2" in words
    assert "“c”  0" in words
    assert "query of “d”" in words


def test_stages_cross_out_what_is_masked_and_write_the_rest():
    values = np.array([[1.5, -np.inf], [-0.25, 2.0]])
    panels = [drawings.Panel("mask", values), drawings.Panel("p", np.eye(2), signed=False)]
    fig = drawings.stages(panels, ["x", "$y$"])
    first = [text.get_text() for text in fig.axes[0].texts]
    assert first == ["1.50", "×", "−0.25", "2.00"]
    assert fig.axes[0].images[0].get_clim() == (-2.0, 2.0)
    assert fig.axes[1].images[0].get_clim() == (0.0, 1.0)
    assert "$y$" in texts(fig)


def test_a_negative_zero_is_a_zero():
    fig = drawings.head_values(np.array([[-1e-9, 0.5]]), label="nats")
    assert [text.get_text() for text in fig.axes[0].texts] == ["0.00", "0.50"]


def test_score_terms_add_up():
    q, k = np.array([1.0, -2.0, 3.0, 0.0]), np.array([1.0, 1.0, 2.0, 9.0])
    fig = drawings.score_terms(q, k, query="a", key="b")
    up, down = map(bar_heights, fig.axes[0].patches)
    assert up == [1, 0, 6, 0]
    assert down == [0, -2, 0, 0]
    assert "q·k = 5.00, over √hs 2.50" in fig.axes[0].get_title("left")


def test_the_title_of_long_tokens_is_not_cut_off():
    place = "(layer 11, head 11)"
    q = np.linspace(-1, 1, 32)
    fig = drawings.score_terms(q, q, query="␣straightforward", key="<|endoftext|>", place=place)
    assert faults(fig) == []


def test_influence_writes_a_zero_only_where_nothing_changed():
    change = np.array([[1.0, 0.0], [1e-9, 2.0]])
    fig = drawings.influence({"masked": change}, ["a", "b"])
    (zero,) = fig.axes[0].texts
    assert zero.get_text() == "0"
    assert zero.get_position() == (1, 0)  # column, row


def test_cheating_draws_both_floors():
    fig = drawings.cheating([2.7, 2.7], [2.7, 0.2], vocab=16, seq=16)
    levels = [line.get_ydata()[0] for line in fig.axes[0].lines[:2]]
    np.testing.assert_allclose(levels, [np.log(16), np.log(16) / 16])


@pytest.mark.parametrize(("L", "NH"), [(2, 3), (2, 12)])
def test_map_grid_shows_every_head_at_its_place(L, NH):
    T = 7
    p = maps(L, NH, T, T)
    fig = drawings.map_grid(p)
    picture = np.ma.filled(fig.axes[0].images[0].get_array(), np.nan)
    height, width = picture.shape[0] // L, picture.shape[1] // NH
    for layer, head in np.ndindex(L, NH):
        tile = picture[layer * height : (layer + 1) * height, head * width : (head + 1) * width]
        seen = tile[np.isfinite(tile)]
        np.testing.assert_allclose(seen**2, p[layer, head][np.tri(T, dtype=bool)])
    assert ("layer 1, head 2" in texts(fig)) == (NH < 10)


def test_head_map_leaves_the_future_empty():
    p = maps(5, 5)
    fig = drawings.head_map(p, list("abcd$"), title="layer 0, head 0")
    shown = fig.axes[0].images[0].get_array()
    assert (shown.mask == np.triu(np.ones((5, 5), bool), 1)).all()
    labels = [text for text in fig.axes[0].texts if text.get_text() in "abcd$"]
    assert [text.get_text() for text in labels] == list("abcd$") * 2  # below, and to the left
    fig.draw_without_rendering()
    middles = [text.get_window_extent() for text in labels]
    pixels = fig.axes[0].transData.transform([(i, i) for i in range(5)])
    np.testing.assert_allclose([(b.x0 + b.x1) / 2 for b in middles[:5]], pixels[:, 0], atol=1)
    np.testing.assert_allclose([(b.y0 + b.y1) / 2 for b in middles[5:]], pixels[:, 1], atol=3)


def test_the_longest_token_does_not_push_the_axes_names_out():
    fig = drawings.head_map(maps(5, 5), ["<|endoftext|>", *"abcd"])
    assert faults(fig) == []


def test_a_long_text_loses_its_labels_and_a_longer_one_is_refused():
    fig = drawings.head_map(maps(100, 100), ["t"] * 100)
    assert "t" not in texts(fig)
    with pytest.raises(ValueError, match="1024 tokens"):
        drawings.head_map(np.eye(1024), ["t"] * 1024)
    with pytest.raises(ValueError, match="at most 256"):
        drawings.map_grid(np.zeros((1, 1, 300, 300)))


def test_a_map_of_64_tokens_is_a_small_page():
    fig = drawings.map_grid(maps(12, 12, 64, 64))
    assert len(figures.to_svg(fig, alt="x")) < 1_500_000
    fig = drawings.head_map(maps(64, 64), ["t"] * 64)
    assert len(figures.to_svg(fig, alt="x")) < 200_000


def test_switched_says_what_was_lost():
    before, after = np.array([1.0, 2.0]), np.array([1.0, 3.0])
    mask = np.array([[1, 0], [1, 1]])
    fig = drawings.switched(["a", "b"], before, after, mask, [(1, "x", "y")])
    words = texts(fig)
    assert "loss 1.500 → 2.000 nats/token; 1 of 2 first guesses change" in words
    assert "x → y" in words
    (cross,) = [text for text in fig.axes[0].texts if text.get_text() == "×"]
    assert cross.get_position() == (1, 0)
    on, off = fig.axes[0].patches
    assert len(bar_heights(on)) == 3
    assert len(bar_heights(off)) == 1
    lost, more = map(bar_heights, fig.axes[1].patches)
    np.testing.assert_allclose(lost, before)
    np.testing.assert_allclose(more, after - before)


@pytest.mark.parametrize("count", [4, 12, 48])
def test_the_numbers_of_many_heads_do_not_lie_on_each_other(count):
    fig = drawings.switched(["a"], np.ones(1), np.ones(1), np.ones((count, count)), [])
    numbers = [text for text in fig.axes[0].texts if text.get_text().isdigit()]
    assert [text.get_text() for text in numbers[:2]] == ["0", {4: "1", 12: "2", 48: "6"}[count]]
    fig.draw_without_rendering()
    boxes = [text.get_window_extent() for text in numbers]
    assert not any(one.overlaps(other) for one, other in itertools.combinations(boxes, 2))


def test_cut_shows_sixteen_and_says_so():
    fig = drawings.cut(maps(32, 5, 5), title="NH = 32")
    words = texts(fig)
    assert "NH = 32 (the first 16 of them)" in words
    assert "head 15" in words
    assert "head 16" not in words
    assert "NH = 1" in texts(drawings.cut(maps(1, 5, 5), title="NH = 1"))


@pytest.mark.parametrize(
    "fig",
    [
        lambda: drawings.entropies([1, 4, 16], [3.7, 2.8, 1.4], [3.7, 3.7, 3.7], 64),
        lambda: drawings.head_views(4, 32),
        lambda: drawings.samples({"one": maps(5, 5), "two": maps(5, 5)}),
        lambda: drawings.growth(2 ** np.arange(3), {"a": np.ones(3), "b": np.ones(3)}, ylabel="MB"),
    ],
)
def test_every_colour_follows_the_theme(fig):
    svg = figures.to_svg(fig(), alt="x")
    body = svg[svg.index("</style>") :]
    assert not re.findall(r"(?:fill|stroke): #", body)
