import numpy as np
import pytest

from gpt2lib.figures import cross_entropy
from tests.figures.looks import faults, texts, words

pytestmark = pytest.mark.usefixtures("book_style")

NAMES = ["time", "day", "dog", "the", "xylophone"]
Z = np.array([2.0, 1.5, 0.5, 0.0, -2.0])
P = np.exp(Z) / np.exp(Z).sum()


def test_surprise_marks_events_where_they_belong():
    marks = [(1 / 2, "a coin"), (1 / 6, "a die"), (1 / 512, "1 of 512"), (1 / 50257, "1 of 50 257")]
    fig = cross_entropy.surprise(marks)
    (ax,) = fig.axes
    p, nats = ax.lines[0].get_xydata().T
    np.testing.assert_allclose(nats, -np.log(p), atol=1e-12)
    for line, (probability, label) in zip(ax.lines[1:], marks, strict=True):
        np.testing.assert_allclose(line.get_xydata(), [[probability, -np.log(probability)]])
        assert f"{label}: {-np.log(probability):.2f} nats" in words(fig)
    assert faults(fig) == []


def test_surprise_of_something_nearly_certain():
    fig = cross_entropy.surprise([(1 / 2, "a coin"), (0.99, "nearly certain")])
    assert faults(fig) == []


def test_push_draws_logits_probabilities_and_gradient():
    fig = cross_entropy.push(NAMES, Z, target=1)
    drawn = [[bar.get_width() for bar in ax.patches] for ax in fig.axes]
    np.testing.assert_allclose(drawn[0], Z)
    np.testing.assert_allclose(drawn[1], P)
    np.testing.assert_allclose(drawn[2], P - [0, 1, 0, 0, 0])
    assert sum(drawn[2]) == pytest.approx(0)
    assert f"loss {-np.log(P[1]):.2f} nats" in words(fig)
    hatched = [bool(bar.get_hatch()) for bar in fig.axes[2].patches]
    assert hatched == [False, True, False, False, False]
    bar = fig.axes[2].patches[1]
    assert bar.get_hatchcolor() != bar.get_facecolor()  # the hatch can be seen
    assert all(ax.get_xlabel() for ax in fig.axes)
    assert faults(fig) == []


@pytest.mark.parametrize("count", [5, 46, 47, 97])
def test_token_losses_keeps_long_texts_readable(count):
    losses = np.random.default_rng(count).exponential(1, count)
    labels = [f"␣w{i}" for i in range(count)]
    fig = cross_entropy.token_losses(labels, losses, floor=0.5)
    assert len(fig.axes) == -(-count // 46)
    bars = [bar.get_height() for ax in fig.axes for bar in ax.patches]
    np.testing.assert_allclose(bars, losses)
    shown = [t.get_text() for ax in fig.axes for t in ax.get_xticklabels()]
    assert shown == labels
    for ax in fig.axes:
        np.testing.assert_allclose(ax.lines[0].get_ydata(), losses.mean())
        np.testing.assert_allclose(ax.lines[1].get_ydata(), 0.5)
    assert faults(fig) == []


def test_token_losses_without_a_floor():
    fig = cross_entropy.token_losses(["a", "b"], [1.0, 2.0])
    assert "floor" not in words(fig)


def test_jacobian():
    fig = cross_entropy.jacobian(P, NAMES)
    ax, bar = fig.axes
    want = np.diag(P) - np.outer(P, P)
    np.testing.assert_allclose(ax.images[0].get_array(), want)
    written = np.array([float(t.get_text().replace("−", "-")) for t in ax.texts]).reshape(5, 5)
    np.testing.assert_allclose(written, want, atol=0.0051)
    assert "logit" in bar.get_ylabel()
    assert faults(fig) == []


def test_reliability():
    claimed, observed, counts = np.array([0.2, 0.9]), np.array([0.3, 0.8]), np.array([10, 90])
    fig = cross_entropy.reliability(claimed, observed, counts)
    (ax,) = fig.axes
    dots = ax.collections[0]
    np.testing.assert_allclose(dots.get_offsets(), np.stack([claimed, observed], axis=1))
    assert dots.get_sizes()[0] < dots.get_sizes()[1]
    np.testing.assert_allclose(ax.lines[0].get_xydata(), [[0, 0], [1, 1]])
    assert faults(fig) == []


def test_overflow_says_where_the_naive_formula_ends():
    limit = np.arange(0, 140, dtype=np.float32)
    with np.errstate(over="ignore"):
        naive = np.log(np.exp(limit))
    fig = cross_entropy.overflow(limit, np.where(np.isfinite(naive), naive, np.nan), limit)
    assert "after 88" in words(fig)
    assert fig.axes[0].lines[2].get_xdata()[0] == 88
    assert any(t.get_text() == "with max off" for t in texts(fig))
    assert faults(fig) == []
