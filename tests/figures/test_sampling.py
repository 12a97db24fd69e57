import numpy as np
import pytest

from gpt2lib.figures import sampling
from tests.figures.looks import faults, words

pytestmark = pytest.mark.usefixtures("book_style")

P = np.array([0.05, 0.6, 0.1, 0.2, 0.03, 0.02])
LABELS = ["␣a", "␣the", "␣dog", "␣cat", "␣hen", "␣owl"]


def widths(bars):
    return [bar.get_width() for bar in bars]


def heights(bars):
    return [bar.get_height() for bar in bars]


def test_entropy():
    assert sampling.entropy(np.full(8, 1 / 8)) == pytest.approx(3 * np.log(2))
    assert sampling.entropy(np.array([0.0, 1.0])) == 0
    assert str(sampling.entropy(np.array([0.0, 1.0]))) == "0.0"


def test_temperatures_sorts_by_the_first_and_sums_the_rest():
    fig = sampling.temperatures(LABELS, {"cold": P, "hot": P[::-1]}, top=3)
    cold, hot = fig.axes
    np.testing.assert_allclose(widths(cold.patches), [0.6, 0.2, 0.1, 0.1])
    np.testing.assert_allclose(widths(hot.patches), [0.03, 0.1, 0.2, 0.67])
    named = [label.get_text() for label in cold.get_yticklabels()]
    assert named == ["␣the", "␣cat", "␣dog", "all others"]
    assert f"cold\n{sampling.entropy(P):.2f} nats" in words(fig)
    assert faults(fig) == []


@pytest.mark.parametrize(
    ("p", "top_p", "kept"),
    [([0.5, 0.41, 0.09], 0.9, 2), ([0.4, 0.3, 0.2, 0.1], 0.8, 3), ([0.5, 0.3, 0.1, 0.1], 0.8, 2)],
)
def test_nucleus_cuts_after_the_token_that_crosses(p, top_p, kept):
    fig = sampling.nucleus({"here": (LABELS[: len(p)], np.array(p))}, top_p)
    (ax,) = fig.axes
    inside, outside = (container.patches for container in ax.containers)
    np.testing.assert_allclose(heights(inside), p[:kept])
    np.testing.assert_allclose(heights(outside), p[kept:])
    np.testing.assert_allclose(ax.lines[0].get_ydata(), np.cumsum(p))
    assert f"{kept} of the tokens" in ax.get_title(loc="left")


def test_nucleus_says_where_the_shown_tokens_are_not_enough():
    fig = sampling.nucleus({"a": (LABELS[:3], np.array([0.3, 0.2, 0.1]))}, 0.9)
    assert fig.axes[0].get_title(loc="left") == "a\nmore than 3 reach 0.9"


def test_nucleus_of_two_contexts_can_be_read():
    labels = [f"␣word{i}" for i in range(16)]
    sure, unsure = np.geomspace(0.6, 1e-4, 16), np.full(16, 0.06)
    fig = sampling.nucleus({"“sure”": (labels, sure), "“unsure”": (labels, unsure)}, 0.9)
    assert faults(fig) == []


def test_choice_draws_before_after_and_the_text():
    text = "Once upon a time there was a little girl named Lily. " * 3
    fig = sampling.choice(LABELS, P, np.roll(P, 1), text)
    (ax,) = fig.axes
    before, after = ([to - low for (_, low), (_, to) in c.get_segments()] for c in ax.collections)
    np.testing.assert_allclose(before, P)
    np.testing.assert_allclose(after, np.roll(P, 1))
    assert [t.get_text() for t in ax.texts if t.get_text() in LABELS] == LABELS
    assert text.strip() in " ".join(words(fig).split())
    assert faults(fig) == []


def test_recomputed_counts_positions():
    fig = sampling.recomputed(prompt=4, steps=8)
    without, cached = fig.axes
    filled = [sum(p.get_facecolor()[3] > 0 for p in ax.patches) for ax in (without, cached)]
    assert filled == [sum(range(4, 12)), 4 + 7]
    assert len(cached.patches) == len(without.patches) == sum(range(4, 12))
    assert f"{sum(range(4, 12))} positions" in words(fig)
    assert "11 positions" in words(fig)
    assert faults(fig) == []


def test_cache_costs_in_their_units():
    at = np.arange(1, 9)
    counted = {"without": (at, 2e6 * at), "with": (at, np.full(8, 2e6))}
    measured = {"without": (at, 3e-3 * at), "with": (at, np.full(8, 3e-3))}
    fig = sampling.cache_costs(counted, measured)
    left, right = fig.axes
    np.testing.assert_allclose(left.lines[0].get_ydata(), 2.0 * at)
    np.testing.assert_allclose(right.lines[1].get_ydata(), 3.0)
    assert "million operations" in words(fig)
    assert "ms" in words(fig)
    assert faults(fig) == []
