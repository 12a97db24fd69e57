import numpy as np
import pytest

from gpt2lib.figures import backward
from gpt2lib.model import GPT2
from tests.figures.looks import faults, words

pytestmark = pytest.mark.usefixtures("book_style")


def test_chain_writes_values_above_and_gradients_below():
    fig = backward.chain([("x", 3.0, 16.0), ("× w", 6.0, 8.0), ("+ b", 4.0, 8.0), ("²", 16.0, 1.0)])
    (ax,) = fig.axes
    numbers = [t for t in ax.texts if t.get_text() in {"3", "6", "4", "16", "8", "1"}]
    above = [t.get_text() for t in numbers if t.get_position()[1] > 0]
    below = [t.get_text() for t in numbers if t.get_position()[1] < 0]
    assert above == ["3", "6", "4", "16"]
    assert below == ["16", "8", "8", "1"]
    assert faults(fig) == []


def test_v_curve_marks_the_best_step_of_each_type():
    steps = np.geomspace(1e-9, 1, 28)
    errors = {"float32": 1e-7 / steps + steps**2, "float64": 1e-16 / steps + steps**2}
    fig = backward.v_curve(steps, errors)
    (ax,) = fig.axes
    for line, (label, error) in zip(ax.lines, errors.items(), strict=False):
        np.testing.assert_allclose(line.get_ydata(), error)
        assert f"{label}: best near {steps[np.argmin(error)]:.0e}" in words(fig)
    assert faults(fig) == []


def test_directions():
    cosines = {"with": np.array([0.5, 0.7, 1.0]), "without": np.array([0.0, 0.1, 1.0])}
    fig = backward.directions(cosines)
    (ax,) = fig.axes
    for line, values in zip(ax.lines, cosines.values(), strict=False):
        np.testing.assert_allclose(line.get_xydata(), np.stack([np.arange(3), values], axis=1))
    assert [t.get_text() for t in ax.get_xticklabels()] == ["0", "1", "2"]
    assert faults(fig) == []


def test_rows_of_wte():
    fig = backward.rows_of_wte({"as input only": (0.1, 0.001), "nowhere": (1e-9, 0.002)})
    lookup, head = fig.axes[0].containers
    assert [bar.get_height() for bar in lookup] == [0.1, 1e-9]
    assert [bar.get_height() for bar in head] == [0.001, 0.002]
    assert faults(fig) == []


def test_mirror_pairs_each_operation_with_the_one_that_undoes_it():
    table = backward.mirror(GPT2._mlp, GPT2._mlp_backward)
    pairs = [(forward, back) for forward, back, _ in table.rows]
    assert ("layernorm_forward", "layernorm_backward") in pairs
    assert ("linear_gelu_forward", "linear_gelu_backward") in pairs
    assert all(back in {f.replace("_forward", "_backward"), "(nothing to do)"} for f, back in pairs)
    markup = table._repr_html_()
    assert markup.count("<tr>") == len(table.rows) + 1
    assert 'scope="col"' in markup
    assert "layernorm_backward" in repr(table)


def test_mirror_says_what_the_forward_saved():
    table = backward.mirror(GPT2._mlp, GPT2._mlp_backward)
    saved = {forward: what for forward, _, what in table.rows}
    assert "rstd" in saved["layernorm_forward"]
