"""The block chapter's figures, and the counts in them."""

from __future__ import annotations

import re

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib import pyplot as plt

from gpt2lib import GPT2Config, figures
from gpt2lib.figures import block as drawings


@pytest.fixture(autouse=True)
def book_style():
    with mpl.rc_context():
        figures.use_style()
        yield
        plt.close("all")


def texts(fig):
    return [text.get_text() for text in fig.findobj(mpl.text.Text) if text.get_text()]


# Parameters of the released checkpoints.
RELEASED = {"gpt2": 124_439_808, "gpt2-medium": 354_823_168, "gpt2-xl": 1_557_611_200}


@pytest.mark.parametrize("name", RELEASED)
def test_costs_add_up_to_the_released_parameters(name):
    config = GPT2Config.preset(name)
    parameters, _, _ = drawings.totals(drawings.costs(config, 2, 64), config.layers)
    assert parameters == RELEASED[name]


def test_costs_by_hand():
    """A model small enough for pencil and paper: V=5, context=4, L=1, NH=1, C=2; B=1, T=3."""
    config = GPT2Config(vocab_size=5, context=4, layers=1, heads=1, channels=2)
    rows = drawings.costs(config, 1, 3)
    flops = [row.flops for row in rows]
    c_attn, attention, c_proj, c_fc, head = 3 * 2 * 12, 4 * 3 * 3 * 2, 3 * 2 * 4, 96, 3 * 2 * 10
    assert flops == [0, 0, c_attn, attention, c_proj, 0, 0, c_fc, 0, c_fc, 0, 0, head]
    by_name = {row.name: row for row in rows}
    assert by_name["attn.c_attn"].bytes == 4 * (3 * 2 + 2 * 6 + 6 + 3 * 6)
    assert by_name["attn.c_attn"].shape == (1, 3, 6)
    assert by_name["head"].bytes == 4 * (3 * 2 + 5 * 2 + 3 * 5)
    assert by_name["head"].shape == (1, 3, 5)
    assert by_name["add"].bytes == 4 * 3 * 3 * 2
    assert by_name["embedding"].bytes == 3 * 8 + 3 * 4 * 3 * 2


@pytest.mark.parametrize("name", ["tiny", "gpt2"])
def test_flops_are_those_of_the_configuration(name):
    config = GPT2Config.preset(name)
    _, flops, _ = drawings.totals(drawings.costs(config, 4, 64), config.layers)
    assert flops == config.forward_flops(4, 64)


def test_the_map_has_every_box_and_the_total():
    config = GPT2Config.preset("gpt2")
    words = texts(drawings.forward_map(config, 1, 1024))
    for row in drawings.costs(config, 1, 1024):
        assert (row.name if row.name != "add" else "+") in words
    assert "124,439,808" in words
    assert "block, 12 times" in words
    assert "(1, 1024, 50257)" in words


def test_layernorm_steps_write_mean_and_deviation():
    x = np.array([1.0, 2.0, 3.0, 4.0])
    words = texts(drawings.layernorm_steps({"x": x, "centred": x - 2.5}))
    assert "mean 2.500, std 1.118" in words
    assert "mean 0.000, std 1.118" in words


def test_lens_has_the_last_layer_on_top():
    p = np.array([[0.1, 0.2], [0.9, 0.8]])
    fig = drawings.lens([["a", "b"], ["c", "d"]], p, ["x", "y"], ["embedding", "h.0"])
    ax = fig.axes[0]
    np.testing.assert_allclose(ax.images[0].get_array(), p[::-1])
    assert [label.get_text() for label in ax.get_yticklabels()] == ["h.0", "embedding"]
    places = {text.get_text(): text.get_position() for text in ax.texts}
    assert places == {"a": (0, 1), "b": (1, 1), "c": (0, 0), "d": (1, 0)}


def test_shares_sum_to_one():
    fig = drawings.shares(["tiny", "gpt2"])
    bars = [patch for patch in fig.axes[0].patches if patch.get_width() > 0]
    assert len(bars) == 8
    for row in range(2):
        widths = [bar.get_width() for bar in bars if round(bar.get_y() + 0.34) == row]
        assert sum(widths) == pytest.approx(1)


def test_firing_shows_positive_values_only():
    fig = drawings.firing(np.array([[-0.2, 1.0]]), ["a", "b"], ["7"])
    np.testing.assert_allclose(fig.axes[0].images[0].get_array(), [[0, 1]])


X = np.linspace(-4, 4, 9)


@pytest.mark.parametrize(
    "fig",
    [
        lambda: drawings.forward_map(GPT2Config.preset("tiny"), 1, 128),
        drawings.orders,
        lambda: drawings.bends(X, {"a": X, "b": X, "c": X}, X * 1e-4),
        lambda: drawings.survival({"a": X[5:], "b": X[5:]}, {"a": X[5:], "b": X[5:]}),
        lambda: drawings.stream(
            {"a": [1, 2], "b": [1, 1]}, [1, 2], {"c": np.ones(1), "d": np.ones(1)}
        ),
    ],
)
def test_every_colour_follows_the_theme(fig):
    svg = figures.to_svg(fig(), alt="x")
    assert not re.findall(r"(?:fill|stroke): #", svg[svg.index("</style>") :])
