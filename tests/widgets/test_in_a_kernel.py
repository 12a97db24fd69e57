"""Controls in a real kernel: what a front end hears when a cell runs again or a value changes."""

from __future__ import annotations

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

SETUP = """
import matplotlib.pyplot as plt
from gpt2lib import widgets
from gpt2lib.widgets import _controls

calls = []

def draw(k):
    calls.append(k)
    fig, ax = plt.subplots(figsize=(2, 1))
    ax.plot([0, k])
    return fig
"""
CELL = "widgets.controls(draw, alt='a line that rises', k=(1, 300))"


@pytest.fixture(scope="module")
def run():
    """``run(code)``: execute code in one kernel and return its messages on iopub."""
    from jupyter_client.manager import start_new_kernel

    manager, client = start_new_kernel()

    def execute(code: str) -> list[dict]:
        messages: list[dict] = []
        reply = client.execute_interactive(code, timeout=120, output_hook=messages.append)
        assert reply["content"]["status"] == "ok", reply["content"]
        return messages

    execute(SETUP)
    yield execute
    client.stop_channels()
    manager.shutdown_kernel(now=True)


def of_type(messages: list[dict], kind: str) -> list[dict]:
    return [m["content"] for m in messages if m["header"]["msg_type"] == kind]


def printed(messages: list[dict]) -> str:
    return "".join(content["text"] for content in of_type(messages, "stream"))


def test_the_cell_displays_a_view_and_its_static_twin_and_nothing_else(run):
    messages = run(CELL)
    views = [
        content["data"]
        for content in of_type(messages, "display_data")
        if "application/vnd.jupyter.widget-view+json" in content["data"]
    ]
    assert len(views) == 1
    assert "<svg" in views[0]["text/html"]
    assert views[0]["text/plain"] == "a line that rises"
    assert printed(messages) == ""
    assert of_type(messages, "execute_result") == []


def test_after_many_runs_a_change_draws_once_and_the_old_stays_until_then(run):
    for _ in range(20):
        run(CELL)
    run("calls.clear()")
    messages = run("list(_controls._live.values())[-1].widgets['k'].value = 7")
    updates = [content["data"]["state"] for content in of_type(messages, "comm_msg")]
    (new,) = [state["outputs"] for state in updates if "outputs" in state]
    assert len(new) == 1
    assert "<svg" in new[0]["data"]["text/html"]
    assert of_type(messages, "clear_output") == of_type(messages, "display_data") == []
    assert printed(messages) == ""
    state = run("import ipywidgets; print(calls, plt.get_fignums(), len(_controls._live))")
    assert printed(state).strip() == "[7] [] 1"


def test_nobody_is_asked_to_capture_output(run):
    """Whoever captures it for a widget writes to the kernel while a cell runs, and may hang."""
    messages = run(CELL)
    comms = of_type(messages, "comm_open") + of_type(messages, "comm_msg")
    states = [content["data"]["state"] for content in comms]
    assert any("outputs" in state for state in states)
    assert not [state for state in states if state.get("msg_id")]


def test_memory_stays_flat_over_many_changes(run):
    run(CELL)
    count = "len(ipywidgets.widgets.widget._instances)"
    grow = printed(
        run(
            "import gc, tracemalloc, ipywidgets\n"
            "slider = list(_controls._live.values())[-1].widgets['k']\n"
            "for value in range(2, 12): slider.value = value\n"
            "gc.collect(); tracemalloc.start(); before = " + count + "\n"
            "for value in range(12, 52): slider.value = value\n"
            "gc.collect(); size = tracemalloc.get_traced_memory()[0]\n"
            "tracemalloc.stop()\n"
            "print(" + count + " - before, size)"
        )
    )
    widgets, size = map(int, grow.split())
    assert widgets == 0
    assert size < 2_000_000  # bytes kept after forty drawings
