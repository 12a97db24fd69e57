import numpy as np
import pytest

from gpt2lib import figures
from gpt2lib.figures import training
from tests.figures.looks import faults, texts, words

pytestmark = pytest.mark.usefixtures("book_style")

LABELS = ["END", "Tom", "␣was", "␣sad", ".", "END", "M", "ia", "␣ran", ".", "END"]
DOCUMENT = [-1, 0, 0, 0, 0, -1, 1, 1, 1, 1, -1]


def test_stream_writes_inputs_and_targets_below_the_stream():
    fig = training.stream(LABELS, DOCUMENT, seq=5)
    places = {(round(t.get_position()[1], 2), t.get_text()) for t in texts(fig)}
    rows = sorted({y for y, label in places if label == "␣sad"})
    assert len(rows) == 3  # stream, inputs, targets
    lines = {y: _line(fig, y) for y in rows}
    stream, inputs, targets = (lines[y] for y in reversed(rows))
    assert stream == LABELS
    assert inputs == LABELS[:10]
    assert targets == LABELS[1:11]
    assert "window 0" in words(fig)
    assert "window 1" in words(fig)
    assert "window 2" not in words(fig)
    assert faults(fig) == []


def _line(fig, y):
    (ax,) = fig.axes
    cells = [t for t in ax.texts if np.isclose(t.get_position()[1], y) and t.get_ha() == "center"]
    return [t.get_text() for t in sorted(cells, key=lambda t: t.get_position()[0])]


def test_learning_draws_both_losses_and_names_the_levels():
    losses = 5 * np.exp(-np.arange(60) / 15) + 1
    validation = {0: 6.2, 30: 1.9, 60: 1.2}
    levels = {"knows nothing": 6.24, "floor": 0.51}
    fig = training.learning(losses, validation, levels=levels, marks=(1, 30))
    (ax,) = fig.axes
    train, held, low, high, marks = (line.get_xydata() for line in ax.lines)
    np.testing.assert_allclose(train, np.stack([np.arange(1, 61), losses], axis=1))
    np.testing.assert_allclose(held, list(validation.items()))
    assert {low[0, 1], high[0, 1]} == {6.24, 0.51}
    np.testing.assert_allclose(marks[:, 0], [1, 30])
    assert "floor: 0.51" in words(fig)
    assert "nats" in ax.get_ylabel()
    assert faults(fig) == []


def test_kinds_draws_one_line_a_kind():
    losses = {"pronoun": [6, 2, 1], "name": (6, 4, 3)}
    fig = training.kinds([0, 10, 20], losses)
    (ax,) = fig.axes
    for line, (label, values) in zip(ax.lines, losses.items(), strict=True):
        np.testing.assert_allclose(line.get_xydata(), list(zip([0, 10, 20], values, strict=True)))
        assert line.get_label() == label
    assert "nats" in ax.get_ylabel()
    assert faults(fig) == []


def test_kinds_sets_another_model_apart():
    fig = training.kinds([0, 100, 240], {"a": [6, 2, 1], "b": [3, 3, 3]}, [0.2, 0.7], "tiny")
    (ax,) = fig.axes
    points = [line.get_xydata()[0] for line in ax.lines if len(line.get_xdata()) == 1]
    assert [y for _, y in points] == [0.2, 0.7]
    assert all(x > 240 for x, _ in points)
    assert "tiny" in words(fig)
    assert faults(fig) == []


def test_overfitting_points_at_the_best_validation_loss():
    fig = training.overfitting([10, 20, 30], [3.0, 1.0, 0.2], [3.5, 2.4, 2.9], 0.51)
    (ax,) = fig.axes
    train, validation = ax.lines[:2]
    np.testing.assert_allclose(train.get_ydata(), [3.0, 1.0, 0.2])
    np.testing.assert_allclose(validation.get_ydata(), [3.5, 2.4, 2.9])
    assert train.get_color() != validation.get_color()
    assert "best here: 2.40" in words(fig)
    assert faults(fig) == []


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0.5, "0.5 seconds"),
        (1, "1 second"),
        (90, "1.5 minutes"),
        (7200, "2 hours"),
        (86400 * 3.5, "3.5 days"),
        (365.25 * 86400, "1 year"),
        (365.25 * 86400 * 250, "250 years"),
        (365.25 * 86400 * 12_300, "12 thousand years"),
        (365.25 * 86400 * 4e6, "4 million years"),
    ],
)
def test_durations_in_words(seconds, said):
    assert training.duration(seconds) == said


def test_durations_draws_the_times_it_is_given():
    rows = {"small": 12.0, "large": 4e8, "larger": 3e11}
    fig = training.durations(rows)
    (ax,) = fig.axes
    np.testing.assert_allclose([bar.get_width() for bar in ax.patches], list(rows.values()))
    assert [t.get_text() for t in ax.get_yticklabels()] == list(rows)
    assert "12 seconds" in words(fig)
    assert "1 minute" in words(fig)
    assert faults(fig) == []


def test_resumed_starts_after_the_stop():
    fig = training.resumed({"with": [0.0, 0.0], "without": [0.1, 0.4]}, stopped=80)
    (ax,) = fig.axes
    for line, values in zip(ax.lines, ([0, 0], [0.1, 0.4]), strict=True):
        np.testing.assert_allclose(line.get_xydata(), list(zip((81, 82), values, strict=True)))
    assert "nats" in ax.get_ylabel()
    assert faults(fig) == []


def test_figures_can_be_shown():
    fig = training.resumed({"with": [0.0, 0.0], "without": [0.1, 0.4]}, stopped=80)
    assert 'aria-label="what it shows"' in figures.picture(fig, alt="what it shows").html
