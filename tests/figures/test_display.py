"""What ``figures.show`` puts on a page."""

from __future__ import annotations

import base64
import io
import re
import xml.etree.ElementTree as ET

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib import pyplot as plt
from PIL import Image

from gpt2lib import figures
from gpt2lib.figures import _display

ids_of = re.compile(r'\bid="([^"]+)"')
references_of = re.compile(r'(?:href="#|url\(#)([^")]+)')


@pytest.fixture(autouse=True)
def book_style():
    with mpl.rc_context():
        figures.use_style()
        yield
        plt.close("all")


def lines():
    fig, ax = plt.subplots()
    for row in np.arange(10.0).reshape(5, 2):
        ax.plot(row)
    ax.set_title("a <title> & more")
    return fig


def heat(size=8):
    fig, ax = plt.subplots()
    ax.imshow(np.linspace(0, 1, size * size).reshape(size, size))
    return fig


def svg_root(fig):
    return ET.fromstring(figures.to_svg(fig, alt="x", prefix="p"))


def test_every_palette_colour_becomes_a_variable():
    svg = figures.to_svg(lines(), alt="x")
    for name in (*figures.SERIES, "ink", "muted", "grid", "paper"):
        assert f"var(--g2-{name}, {figures.PALETTE[name]})" in svg
    body = svg[svg.index("</style>") :]
    assert not re.findall(r"(?:fill|stroke): #", body)


def test_the_ground_under_a_hatch_is_a_variable_too():
    fig, ax = plt.subplots()
    ax.bar(
        [0], [1], color=figures.PALETTE["orange"], hatch="//", edgecolor=figures.PALETTE["paper"]
    )
    svg = figures.to_svg(fig, alt="x")
    pattern = svg[svg.index("<pattern") : svg.index("</pattern>")]
    assert f"fill: var(--g2-orange, {figures.PALETTE['orange']})" in pattern
    assert not re.search(r'fill="#', svg)


def test_svg_is_well_formed_and_has_a_name():
    root = svg_root(lines())
    assert root.attrib["role"] == "img"
    assert root.attrib["aria-label"] == "x"
    assert "viewBox" in root.attrib


def test_the_same_figure_gives_the_same_bytes():
    first, second = (figures.to_svg(lines(), alt="x", prefix="p") for _ in range(2))
    assert first == second


def test_ids_do_not_clash_and_references_resolve():
    fig_a, fig_b, fig_c = lines(), lines(), heat()
    pages = [figures.to_svg(f, alt="x") for f in (fig_a, fig_b, fig_c)]
    ids = [ids_of.findall(svg) for svg in pages]
    for svg, own in zip(pages, ids, strict=True):
        assert len(set(own)) == len(own)
        assert set(references_of.findall(svg)) <= set(own)
    assert not set(ids[0]) & set(ids[1])


def test_two_equal_pictures_in_a_figure_share_no_id():
    fig, axes = plt.subplots(1, 2)
    for ax in axes:
        ax.imshow(np.eye(4))
    own = ids_of.findall(figures.to_svg(fig, alt="x"))
    assert len(set(own)) == len(own)


def test_no_rule_reaches_outside_the_figure():
    svg = figures.to_svg(lines(), alt="x", prefix="p")
    (css,) = re.findall(r"<style[^>]*>(.*?)</style>", svg, flags=re.S)
    for rule in filter(None, css.split("}")):
        assert all("#p" in selector for selector in rule.split("{")[0].split(","))


def test_an_attention_map_is_one_small_picture_and_its_dark_twin():
    svg = figures.to_svg(heat(64), alt="x")
    assert svg.count('class="g2-light"') == svg.count('class="g2-dark"') == 1
    assert len(svg) < 40_000


def test_the_dark_twin_has_the_dark_colours():
    svg = figures.to_svg(heat(), alt="x")
    tags = {re.search('class="([^"]+)"', t)[1]: t for t in re.findall("<image .*?/>", svg, re.S)}
    corner = {}
    for name, tag in tags.items():
        data = base64.b64decode(re.search('base64,([^"]+)"', tag)[1])
        pixels = np.array(Image.open(io.BytesIO(data)).convert("RGBA"))
        assert pixels.shape[:2] == (8, 8)
        corner[name] = {f"#{bytes(pixels[i, i, :3]).hex()}" for i in (0, 7)}
    ends = [figures.VARIABLES[f"--g2-s{level}"] for level in (0, 64)]
    assert corner == {"g2-light": {e[0] for e in ends}, "g2-dark": {e[1] for e in ends}}


def decoded(tag):
    data = base64.b64decode(re.search('base64,([^"]+)"', tag)[1])
    return np.array(Image.open(io.BytesIO(data)).convert("RGBA"))


def test_light_and_dark_are_what_was_drawn_level_by_level():
    values = np.ma.masked_greater(np.random.default_rng(0).random((30, 20)), 0.9)
    fig, ax = plt.subplots()
    image = ax.imshow(values, vmin=0, vmax=1)
    svg = figures.to_svg(fig, alt="x")
    light, dark = (decoded(tag) for tag in re.findall("<image .*?/>", svg, re.S))
    drawn = image.cmap(image.norm(values), bytes=True)
    if (light[::-1] == drawn).all():  # stored from the bottom to the top
        light, dark = light[::-1], dark[::-1]
    np.testing.assert_array_equal(light, drawn)
    np.testing.assert_array_equal(dark[..., 3] == 0, values.mask)
    levels = np.minimum((values.filled(0) * 65).astype(int), 64)
    names = [figures.VARIABLES[f"--g2-s{level}"][1] for level in range(65)]
    want = np.array([list(bytes.fromhex(name[1:])) for name in names], np.uint8)[levels]
    seen = ~values.mask
    np.testing.assert_array_equal(dark[..., :3][seen], want[seen])


@pytest.mark.parametrize("count", [64, 1000])
def test_pictures_of_few_and_of_many_colours_keep_them(count):
    rgb = [tuple(int(v[0][i : i + 2], 16) for i in (1, 3, 5)) for v in figures.VARIABLES.values()]
    rng = np.random.default_rng(1)
    rgba = np.empty((40, 50, 4), np.uint8)
    rgba[..., :3] = np.array(rgb)[rng.integers(len(rgb), size=(40, 50))]
    rgba[..., 3] = 255 if count == 64 else rng.integers(1, 256, (40, 50))  # half-transparent edges
    if count == 64:
        rgba[..., :3] = np.array(rgb[:64])[rng.integers(64, size=(40, 50))]
    out = io.BytesIO()
    Image.fromarray(rgba).save(out, format="png")
    light, dark = (
        np.array(Image.open(io.BytesIO(png)).convert("RGBA"))
        for png in _display._light_and_dark(out.getvalue())
    )
    np.testing.assert_array_equal(light, rgba)
    np.testing.assert_array_equal(dark[..., 3], rgba[..., 3])
    turned = {v[0]: v[1] for v in figures.VARIABLES.values()}
    for y, x in ((0, 0), (13, 7), (39, 49)):
        assert f"#{bytes(dark[y, x, :3]).hex()}" == turned[f"#{bytes(rgba[y, x, :3]).hex()}"]


def test_a_picture_in_other_colours_has_no_twin():
    fig, ax = plt.subplots()
    ax.imshow(np.random.default_rng(0).random((8, 8, 3)))
    svg = figures.to_svg(fig, alt="x")
    assert "g2-photo" in svg
    assert 'class="g2-dark"' not in svg


def test_big_artists_are_rasterized_small_ones_are_not():
    rng = np.random.default_rng(0)
    sizes = {}
    for count in (500, 20_000):
        fig, ax = plt.subplots()
        ax.scatter(*rng.normal(size=(2, count)), color=figures.PALETTE["blue"])
        svg = figures.to_svg(fig, alt="x")
        sizes[count] = ("<image" in svg, len(svg))
    assert sizes[500][0] is False
    assert sizes[20_000][0] is True
    assert sizes[20_000][1] < 500_000


def test_text_is_text_and_formulas_are_shapes():
    fig, ax = plt.subplots()
    ax.set_title("plain words")
    ax.set_xlabel(r"$\sqrt{h_s}$")
    svg = figures.to_svg(fig, alt="x")
    assert "plain words</text>" in svg
    assert "DejaVu" not in svg
    assert "STIX" not in svg


@pytest.mark.parametrize("layout", ["none", "constrained"])
def test_formulas_on_an_axis_are_shapes_with_a_layout_and_without(layout):
    fig, ax = plt.subplots(layout=layout)
    ax.semilogy([1e-3, 1.0, 1e3])
    body = figures.to_svg(fig, alt="x")
    assert "<tspan" not in body  # what a formula written as text consists of
    written = re.findall(r"<text[^>]*>([^<]*)</text>", body)
    assert "1.00" in written  # the x-axis' plain labels


@pytest.mark.parametrize("alt", ["", "  \n", None])
def test_alt_is_mandatory(alt):
    with pytest.raises(ValueError, match="alt"):
        figures.show(lines(), alt=alt)


def test_show_displays_once_and_closes(monkeypatch):
    shown = []
    monkeypatch.setattr("IPython.display.display", shown.append)
    fig = lines()
    figures.show(fig, alt='a "quoted" <alt>', caption="Loss of `gpt2`, *falling*, $x<y$.")
    assert not plt.fignum_exists(fig.number)
    (picture,) = shown
    bundle = picture._repr_mimebundle_()
    assert bundle["text/plain"] == 'a "quoted" <alt>'
    markup = bundle["text/html"]
    assert 'aria-label="a &quot;quoted&quot; &lt;alt&gt;"' in markup
    assert "<code>gpt2</code>, <em>falling</em>" in markup
    assert r"\(x&lt;y\)" in markup


def test_the_figure_is_closed_when_drawing_fails(monkeypatch):
    fig = lines()
    monkeypatch.setattr(fig, "savefig", lambda *a, **k: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        figures.picture(fig, alt="x")
    assert not plt.fignum_exists(fig.number)
