"""One observer, one display for each change, nothing left behind, no dead control on a page."""

from __future__ import annotations

import gc

import ipywidgets
import pytest
from matplotlib import pyplot as plt

from gpt2lib import widgets
from gpt2lib.widgets import _controls

calls: list[dict] = []


def draw(k, on=True):
    calls.append({"k": k, "on": on})
    if k == 13:
        raise ValueError("thirteen heads do not divide C")
    fig, ax = plt.subplots()
    ax.plot([0, k])
    return fig


@pytest.fixture(autouse=True)
def clean(monkeypatch):
    calls.clear()
    _controls._live.clear()
    _controls._counts.clear()
    displayed: list = []
    monkeypatch.setattr("IPython.display.display", displayed.append)
    yield displayed
    for instance in list(_controls._live.values()):
        instance.close()
    plt.close("all")


def slider(value=3):
    return ipywidgets.IntSlider(value, 1, 20)


def live():
    (instance,) = _controls._live.values()
    return instance


def shown():
    """Return what the output shows: its HTML and its text."""
    (output,) = live().output.outputs
    assert output["output_type"] == "display_data"
    return output["data"]["text/html"], output["data"]["text/plain"]


def same_cell(monkeypatch, execution):
    monkeypatch.setattr(_controls, "_where", lambda: ("cell-1", execution))


def test_the_page_gets_a_figure_and_the_names_of_the_controls(clean):
    widgets.controls(draw, alt="a line", caption="With `k`.", k=slider(), on=True)
    bundle = live()._repr_mimebundle_()
    page = bundle["text/html"]
    assert page.count("<svg") == 1
    assert 'aria-label="a line"' in page
    assert "controls in the notebook: <b>k</b>, <b>on</b>." in page
    assert not any(tag in page for tag in ("<input", "<button", "<select", "<script"))
    assert bundle["text/plain"] == "a line"
    assert "application/vnd.jupyter.widget-view+json" in bundle


def test_a_change_replaces_the_figure_at_once(clean):
    widgets.controls(draw, alt="x", k=slider())
    before, changes = shown(), []
    live().output.observe(changes.append, names="outputs")
    live().widgets["k"].value = 7
    assert calls[-1] == {"k": 7, "on": True}
    assert len(changes) == 1
    assert shown() != before
    assert plt.get_fignums() == []


def test_running_the_cell_again_leaves_one_observer_and_no_widgets(clean, monkeypatch):
    registry = ipywidgets.widgets.widget._instances
    same_cell(monkeypatch, 0)
    widgets.controls(draw, alt="x", k=slider(), on=True)
    before = len(registry)
    for execution in range(1, 21):
        same_cell(monkeypatch, execution)
        widgets.controls(draw, alt="x", k=slider(), on=True)
    assert len(registry) - before < 5
    calls.clear()
    live().widgets["k"].value = 9
    assert len(calls) == 1
    assert plt.get_fignums() == []


def test_a_shared_widget_survives_a_new_run(clean, monkeypatch):
    shared = slider()
    for execution in range(3):
        same_cell(monkeypatch, execution)
        widgets.controls(draw, alt="x", k=shared)
    calls.clear()
    shared.value = 5
    assert len(calls) == 1
    assert shared.layout.model_id is not None


def test_the_same_call_twice_in_a_cell_is_two_instances(clean, monkeypatch):
    for execution in (1, 2):
        same_cell(monkeypatch, execution)
        for _ in range(2):
            widgets.controls(draw, alt="x", k=slider())
        assert len(_controls._live) == 2
        assert not any(instance.closed for instance in _controls._live.values())


def test_an_error_is_a_sentence_and_the_next_change_goes_on(clean):
    widgets.controls(draw, alt="x", k=slider())
    live().widgets["k"].value = 13
    page, text = shown()
    assert text == "This setting cannot be drawn: thirteen heads do not divide C."
    assert 'role="alert"' in page
    live().widgets["k"].value = 2
    assert "<svg" in shown()[0]
    assert plt.get_fignums() == []


def test_garbage_waits_until_the_picture_is_out_even_after_an_error(clean):
    seen = []

    def watched(k):
        seen.append(gc.isenabled())
        return draw(k)  # 13 is an error

    widgets.controls(watched, alt="x", k=slider())
    for value in (7, 13, 2):
        live().widgets["k"].value = value
        assert gc.isenabled()
    assert seen == [True, False, False, False]  # the first drawing is no answer to anybody
    gc.disable()
    try:
        live().widgets["k"].value = 3
        assert not gc.isenabled()  # whoever has switched it off finds it off
    finally:
        gc.enable()


def test_an_error_in_the_first_drawing_is_raised(clean):
    with pytest.raises(ValueError, match="thirteen"):
        widgets.controls(draw, alt="x", k=slider(13))


def test_figures_that_draw_forgets_are_closed(clean):
    def careless(k):
        plt.subplots()
        return plt.subplots()[0]

    mine = plt.figure()
    widgets.controls(careless, alt="x", k=slider())
    assert plt.get_fignums() == [mine.number]


def test_alt_may_follow_the_setting(clean):
    widgets.controls(draw, alt=lambda k: f"slope {k}", k=slider(4))
    live().widgets["k"].value = 6
    assert shown()[1] == "slope 6"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"alt": "x"}, "at least one control"),
        ({"alt": " ", "k": (1, 5)}, "alt text"),
        ({"alt": "x", "k": object()}, "'k'"),
    ],
)
def test_what_cannot_be_is_refused_in_words(clean, arguments, message):
    with pytest.raises(ValueError, match=message):
        widgets.controls(draw, **arguments)


def test_draw_must_return_a_figure(clean):
    with pytest.raises(ValueError, match="must return a figure, not int"):
        widgets.controls(lambda k: k, alt="x", k=slider())


def test_the_output_keeps_its_height(clean):
    widgets.controls(draw, alt="x", k=slider())
    height = int(live().output.layout.min_height.removesuffix("px"))
    assert height >= 3.6 * 96
