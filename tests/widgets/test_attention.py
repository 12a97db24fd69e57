"""The controls of the attention chapter: what they show is what the model does."""

from __future__ import annotations

import re

import matplotlib as mpl
import numpy as np
import pytest
from ipywidgets.widgets import widget as ipywidgets_registry
from matplotlib import pyplot as plt

from gpt2lib import GPT2, GPT2Config, figures, ops
from gpt2lib.widgets import attention as live


class Letters:
    """A tokenizer of one character a token."""

    end_of_text = 0

    def encode(self, text):
        return [ord(letter) - 96 for letter in text]

    def token_label(self, token):
        return chr(token + 96) if token else "<end>"


@pytest.fixture(autouse=True)
def book_style():
    with mpl.rc_context():
        figures.use_style()
        yield
        plt.close("all")


@pytest.fixture
def model():
    model = GPT2(GPT2Config(vocab_size=30, context=24, layers=2, heads=2, channels=8), seed=0)
    for values in model.parameters.values():
        values *= 8  # heads that matter
    return model


@pytest.fixture
def shown(monkeypatch):
    """Catch the Controls object that a function displays."""
    caught = []
    monkeypatch.setattr("IPython.display.display", caught.append)
    return caught


TEXT = "abcabcabd"


def only(shown):
    (controls,) = [thing for thing in shown if hasattr(thing, "widgets")]
    return controls


def test_encode_puts_the_end_of_text_first_and_refuses_in_words(model):
    ids, labels = live.encode(model, Letters(), "ab")
    assert ids.tolist() == [0, 1, 2]
    assert labels == ["<end>", "a", "b"]
    with pytest.raises(ValueError, match="at least two"):
        live.encode(model, Letters(), "")
    with pytest.raises(ValueError, match="31 tokens; take at most 24"):
        live.encode(model, Letters(), "a" * 30)


def test_maps_draw_the_head_that_is_chosen(model, shown):
    live.maps(model, Letters(), TEXT)
    controls = only(shown)
    ids, _ = live.encode(model, Letters(), TEXT)
    with model.record("h.*.attn.probabilities") as recorded:
        model.forward(ids)
    fig = controls.draw(layer=1, head=1)
    drawn = np.ma.filled(fig.axes[0].images[0].get_array(), 0) ** 2
    expected = recorded["h.1.attn.probabilities"][0, 1]
    np.testing.assert_allclose(drawn, expected, rtol=1e-5, atol=1e-7)


def test_terms_start_at_the_key_that_is_read_most_and_refuse_the_future(model, shown):
    live.terms(model, Letters(), TEXT, layer=1, head=0)
    controls = only(shown)
    ids, _ = live.encode(model, Letters(), TEXT)
    with model.record("h.1.attn.probabilities") as recorded:
        model.forward(ids)
    row = recorded["h.1.attn.probabilities"][0, 0, -1]
    assert controls.values == {
        "layer": 1,
        "head": 0,
        "query": len(ids) - 1,
        "key": int(row.argmax()),
    }
    with pytest.raises(ValueError, match="future"):
        controls.draw(layer=0, head=0, query=2, key=3)


def test_switches_show_the_loss_of_the_masked_model(model, shown):
    live.switches(model, Letters(), TEXT, off=((1, 0),))
    controls = only(shown)
    ids, _ = live.encode(model, Letters(), TEXT)
    assert controls.values["heads"] == ((True, True), (False, True))
    mask = np.array([[1, 1], [0, 1]])
    before = model.loss(ids[:-1], ids[1:])
    for word in ("zero", "mean"):
        after = model.loss(ids[:-1], ids[1:], head_mask=mask, ablation=word)
        fig = controls.draw(heads=controls.values["heads"], instead=word)
        assert f"loss {before:.3f} → {after:.3f}" in fig.axes[1].get_title("left")
        assert abs(after - before) > 1e-3


def test_head_switches_change_once_for_all_and_close_what_they_own():
    registry = ipywidgets_registry._instances
    before = set(registry)
    switches = live.HeadSwitches(2, 3, off=((0, 1),))
    assert switches.value == ((True, False, True), (True, True, True))
    seen = []
    switches.observe(lambda change: seen.append(change.new), names="value")
    switches.set_all(False)
    assert seen == [((False,) * 3, (False,) * 3)]
    switches._boxes[1][2].value = True
    assert seen[-1] == ((False,) * 3, (False, False, True))
    switches.close()
    left = [registry[key] for key in set(registry) - before]
    assert {type(widget).__name__ for widget in left} <= {"Layout"}  # of the box: Controls' job
    assert len(left) <= 1


def test_head_counts_are_the_divisors_and_draw_one_head_each(shown):
    x = np.random.default_rng(0).standard_normal((1, 5, 3 * 12)).astype(np.float32)
    live.head_counts(x, list("abcde"), heads=3)
    controls = only(shown)
    assert list(controls.widgets["heads"].options) == [1, 2, 3, 4, 6, 12]
    p = np.zeros((1, 12, 5, 5), np.float32)
    ops.attention_forward(x, 12, probabilities=p)
    fig = controls.draw(heads=12)
    drawn = np.ma.filled(fig.axes[0].images[0].get_array(), np.nan)
    drawn = np.sort(drawn[np.isfinite(drawn)] ** 2)
    np.testing.assert_allclose(drawn, np.sort(p[:, :, np.tri(5, dtype=bool)].ravel()), rtol=1e-5)


def picture_of(controls):
    """What a control shows, without the names that make pictures differ on a page."""
    (output,) = controls.output.outputs
    return re.sub(r"g2-[0-9a-f]{8}(-\d+)?", "id", output["data"]["text/html"])


@pytest.mark.parametrize(
    ("show", "name", "value"),
    [
        (live.maps, "head", 1),
        (live.terms, "layer", 1),
        (live.switches, "heads", ((True, False), (True, True))),
        (live.switches, "instead", "mean"),
    ],
)
def test_a_control_that_is_turned_back_shows_its_first_picture(model, shown, show, name, value):
    show(model, Letters(), TEXT, **({"off": ((0, 0),)} if show is live.switches else {}))
    controls = only(shown)
    first, before = picture_of(controls), controls.values[name]
    controls.widgets[name].value = value
    assert picture_of(controls) != first
    controls.widgets[name].value = before
    assert picture_of(controls) == first


def test_running_the_cell_again_leaves_nothing_behind(model, shown):
    from gpt2lib.widgets import _controls

    for _ in range(3):
        _controls._cell[0] = None  # as if the cell ran anew
        _controls._counts.clear()
        live.switches(model, Letters(), TEXT)
    made = [thing for thing in shown if hasattr(thing, "widgets")]
    assert [controls.closed for controls in made] == [True, True, False]
    assert not plt.get_fignums()
