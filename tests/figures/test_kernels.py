"""The picture on the page about kernels: up to date, complete, true to what it says."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

from gpt2lib.figures import kernels as drawing
from gpt2lib.figures._style import VARIABLES

FILE = Path(__file__).resolve().parents[2] / "book" / "_static" / "kernels.svg"


def test_the_committed_picture_is_what_the_module_draws():
    assert FILE.read_text(encoding="utf-8") == drawing.picture_svg(), (
        "python -m gpt2lib.figures.kernels > book/_static/kernels.svg"
    )


def test_it_is_well_formed_and_has_a_name():
    root = ElementTree.fromstring(drawing.picture_svg())
    assert root.get("role") == "img"
    assert root.get("aria-label") == drawing.ALT


def test_every_colour_follows_the_page():
    svg = drawing.picture_svg().replace("</style>", "<style>").split("<style>")[2]
    colours = re.findall(r"(fill|stroke): ([^;\"]+)", svg)
    assert colours
    for _, value in colours:
        name, light = re.fullmatch(r"var\((--g2-\w+), (#\w+)\)", value).groups()
        assert VARIABLES[name][0] == light


def test_every_chunk_is_run_once():
    chunks = sorted(chunk for lane in drawing.LANES for chunk, _ in lane)
    assert chunks == list(range(drawing.ROWS // drawing.CHUNK))


def test_a_free_thread_took_the_next_chunk():
    """The lanes are a schedule: chunks begin in their order."""
    begins = {}
    for lane in drawing.LANES:
        at = 0
        for chunk, width in lane:
            begins[chunk] = at
            at += width
    assert [begins[chunk] for chunk in sorted(begins)] == sorted(begins.values())


def test_nothing_leaves_the_picture():
    root = ElementTree.fromstring(drawing.picture_svg())
    for box in root.iter("{http://www.w3.org/2000/svg}rect"):
        x, y, width, height = (float(box.get(key)) for key in ("x", "y", "width", "height"))
        assert x >= 0
        assert x + width <= drawing.WIDTH
        assert y >= 0
        assert y + height <= drawing.HEIGHT
