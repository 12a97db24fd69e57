import numpy as np
import pytest

from gpt2lib import ops
from gpt2lib.figures import adamw
from tests.figures.looks import faults, words

pytestmark = pytest.mark.usefixtures("book_style")

SETTINGS = {"beta1": 0.9, "beta2": 0.95, "eps": 1e-8, "weight_decay": 0.0}


def plain(xy, g, m, v, *, step, learning_rate):
    xy -= learning_rate * g


def test_ravine_and_its_gradient_agree():
    xy, step = np.array([1.5, -0.7]), 1e-6 * np.eye(2)
    numeric = [(adamw.ravine(xy + e) - adamw.ravine(xy - e)) / 2e-6 for e in step]
    np.testing.assert_allclose(adamw.ravine_gradient(xy), numeric, rtol=1e-6)


def test_descend_follows_the_update():
    path = adamw.descend(plain, 3, start=(2.0, 1.0), learning_rate=0.01)
    want = [np.array([2.0, 1.0]) * [0.99**t, 0.8**t] for t in range(4)]
    np.testing.assert_allclose(path, want)


def test_descend_counts_steps_from_one():
    path = adamw.descend(ops.adamw_update, 1, learning_rate=0.1, **SETTINGS)
    np.testing.assert_allclose(path[1] - path[0], [0.1, -0.1], rtol=1e-6)  # a step is the rate


def test_paths_and_heights():
    named = {
        "one": adamw.descend(plain, 20, learning_rate=0.09),
        "two": adamw.descend(ops.adamw_update, 20, learning_rate=0.4, **SETTINGS),
    }
    fig = adamw.paths(named)
    above, down = fig.axes
    for line, height, path in zip(above.lines, down.lines, named.values(), strict=False):
        np.testing.assert_allclose(line.get_xydata(), path)
        np.testing.assert_allclose(height.get_ydata(), adamw.ravine(path))
    assert {"one", "two"} <= set(words(fig).splitlines())
    assert faults(fig) == []


def test_bias_correction_starts_where_the_text_says():
    fig = adamw.bias_correction(3000, 0.9, 0.999)
    raw, corrected = (line.get_ydata() for line in fig.axes[0].lines)
    assert raw[0] == pytest.approx(0.1 / np.sqrt(0.001))
    assert raw.max() > 6
    np.testing.assert_array_equal(corrected, 1)
    assert faults(fig) == []


def test_decay_shares_its_scale():
    fast, slow = 0.9 ** np.arange(50), 0.99 ** np.arange(50)
    fig = adamw.decay({"a": fast, "b": slow}, {"a": slow, "b": slow})
    left, right = fig.axes
    np.testing.assert_allclose(left.lines[0].get_ydata(), fast)
    np.testing.assert_allclose(right.lines[0].get_ydata(), slow)
    assert left.get_ylim() == right.get_ylim()
    assert faults(fig) == []


def test_schedule():
    rates = {"warm-up 0": np.linspace(3e-3, 0, 100), "warm-up 9": np.linspace(0, 3e-3, 100)}
    fig = adamw.schedule(rates)
    for line, (label, rate) in zip(fig.axes[0].lines, rates.items(), strict=True):
        np.testing.assert_allclose(line.get_ydata(), rate)
        assert line.get_label() == label
    assert faults(fig) == []


def test_curves_smooth_and_draw_the_floor():
    losses = np.array([6.0, 5.0, 4.0, 3.0, 2.0, 1.0])
    fig = adamw.curves({"run": losses}, floor=0.5, window=3)
    curve, floor = fig.axes[0].lines
    np.testing.assert_allclose(curve.get_xydata(), [[2, 5], [3, 4], [4, 3], [5, 2]])
    np.testing.assert_allclose(floor.get_ydata(), 0.5)
    assert "nats" in fig.axes[0].get_ylabel()
    assert faults(fig) == []


def test_update_ratios_tell_matrices_from_the_rest():
    ratios = {"wte": 0.01, "h.0.ln_1.weight": 0.001, "h.0.attn.c_attn.weight": 0.05}
    fig = adamw.update_ratios(ratios, {"wte", "h.0.attn.c_attn.weight"})
    (ax,) = fig.axes
    matrices, others = ax.lines[:2]
    np.testing.assert_allclose(matrices.get_xydata(), [[0.01, 0], [0.05, 2]])
    np.testing.assert_allclose(others.get_xydata(), [[0.001, 1]])
    assert [t.get_text() for t in ax.get_yticklabels()] == list(ratios)
    assert faults(fig) == []


def test_update_ratios_of_a_whole_model_can_be_read():
    names = [
        f"h.{layer}.{part}"
        for layer in range(2)
        for part in ("attn.c_attn.weight", "mlp.c_fc.bias")
    ]
    fig = adamw.update_ratios(dict.fromkeys(names, 0.01), set(names[:2]))
    assert faults(fig) == []


def test_memory_stacks_and_adds_up():
    parts = dict.fromkeys(("weights", "gradients", "m", "v"), 0.5)
    fig = adamw.memory({"gpt2": parts, "gpt2-xl": dict.fromkeys(parts, 6.2)})
    (ax,) = fig.axes
    bars = [(bar.get_x(), bar.get_width()) for bar in ax.patches[:4]]
    np.testing.assert_allclose(bars, [(0, 0.5), (0.5, 0.5), (1, 0.5), (1.5, 0.5)])
    assert "2.0 GB" in words(fig)
    assert "24.8 GB" in words(fig)
    assert faults(fig) == []
