"""The palette is told apart by everybody, in grey too, on light and on dark pages."""

from __future__ import annotations

import itertools

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib import style as mpl_style

from gpt2lib import figures

# Machado, Oliveira & Fernandes, "A Physiologically-based Model for Simulation of Color Vision
# Deficiency" (2009), table for severity 1.0; they act on linear RGB.
VISION = {
    "normal": np.eye(3),
    "protanopia": np.array(
        [
            [0.152286, 1.052583, -0.204868],
            [0.114503, 0.786281, 0.099216],
            [-0.003882, -0.048116, 1.051998],
        ]
    ),
    "deuteranopia": np.array(
        [
            [0.367322, 0.860646, -0.227968],
            [0.280085, 0.672501, 0.047413],
            [-0.011820, 0.042940, 0.968881],
        ]
    ),
    "tritanopia": np.array(
        [
            [1.255528, -0.076749, -0.178779],
            [-0.078411, 0.930809, 0.147602],
            [0.004733, 0.691367, 0.303900],
        ]
    ),
}
THEMES = {"light": figures.PALETTE, "dark": figures.DARK}


def linear(colour: str) -> np.ndarray:
    rgb = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    return np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)


def cielab(rgb: np.ndarray) -> np.ndarray:
    """CIE 1976 L*a*b* of linear sRGB, D65."""
    xyz = np.array(
        [
            [0.4124, 0.3576, 0.1805],
            [0.2126, 0.7152, 0.0722],
            [0.0193, 0.1192, 0.9505],
        ]
    ) @ np.clip(rgb, 0, 1)
    t = xyz / np.array([0.9505, 1.0, 1.089])
    f = np.where(t > (6 / 29) ** 3, np.cbrt(t), t / (3 * (6 / 29) ** 2) + 4 / 29)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def contrast(a: str, b: str) -> float:
    """WCAG 2 contrast ratio."""
    weights = np.array([0.2126, 0.7152, 0.0722])
    high, low = sorted((float(weights @ linear(c)) + 0.05 for c in (a, b)), reverse=True)
    return high / low


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("vision", VISION)
def test_series_colours_are_told_apart(theme, vision):
    seen = [cielab(VISION[vision] @ linear(THEMES[theme][name])) for name in figures.SERIES]
    distances = [np.linalg.norm(a - b) for a, b in itertools.combinations(seen, 2)]
    assert min(distances) > 15


@pytest.mark.parametrize("theme", THEMES)
def test_series_colours_are_told_apart_in_grey(theme):
    lightness = sorted(cielab(linear(THEMES[theme][name]))[0] for name in figures.SERIES)
    assert np.diff(lightness).min() > 6


@pytest.mark.parametrize("theme", THEMES)
def test_contrast_with_the_page(theme):
    colours = THEMES[theme]
    for name in ("ink", "muted"):
        for ground in ("paper", "panel"):
            assert contrast(colours[name], colours[ground]) > 4.5, (name, ground)
    for name in figures.SERIES:
        floor = 2.2 if name == "gold" else 3.0  # gold is for areas and for a fifth line only
        assert contrast(colours[name], colours["paper"]) > floor, name


@pytest.mark.parametrize("name", [figures.SEQUENTIAL, "g2-sequential_r"])
def test_sequential_map_is_monotone_in_grey(name):
    lightness = [cielab(linear(mpl.colors.to_hex(c)))[0] for c in mpl.colormaps[name].colors]
    steps = np.diff(lightness)
    assert (np.sign(steps) == np.sign(steps[0])).all()
    assert abs(lightness[-1] - lightness[0]) > 75


def test_diverging_map_is_symmetric_in_grey_and_neutral_at_zero():
    colours = [mpl.colors.to_hex(c) for c in mpl.colormaps[figures.DIVERGING].colors]
    lightness = np.array([cielab(linear(c))[0] for c in colours])
    middle = len(colours) // 2
    assert len(colours) % 2 == 1
    assert lightness.argmax() == middle
    assert (np.diff(lightness[: middle + 1]) > 0).all()
    assert np.abs(lightness - lightness[::-1]).max() < 8


def test_both_ends_of_the_diverging_map_are_told_apart_by_everybody():
    colours = [mpl.colors.to_hex(c) for c in mpl.colormaps[figures.DIVERGING].colors]
    for matrix in VISION.values():
        for level in range(16):
            a, b = (cielab(matrix @ linear(colours[i])) for i in (level, -1 - level))
            assert np.linalg.norm(a - b) > 15


@pytest.mark.parametrize("theme", [0, 1])
@pytest.mark.parametrize("letter", ["s", "d"])
def test_text_on_a_map_can_be_read(theme, letter):
    cmap = figures.SEQUENTIAL if letter == "s" else figures.DIVERGING
    colours = THEMES[("light", "dark")[theme]]
    for level in range(65):
        ground = figures.VARIABLES[f"--g2-{letter}{level}"][theme]
        light_name = figures.text_on(cmap, level / 64)
        name = "ink" if light_name == figures.PALETTE["ink"] else "paper"
        assert contrast(colours[name], ground) > 3, level


def test_every_variable_has_a_light_value_of_its_own():
    light = [value for value, _ in figures.VARIABLES.values()]
    assert len(set(light)) == len(light)
    assert set(figures.ROLES.values()) <= set(figures.PALETTE)
    assert set(figures.DARK) == set(figures.PALETTE)


def test_the_style_file_uses_the_palette():
    values = mpl_style.library.get("gpt2lib") or mpl.rc_params_from_file(
        figures._style.STYLE_FILE, use_default_template=False
    )
    cycle = values["axes.prop_cycle"].by_key()["color"]
    assert [mpl.colors.to_hex(c) for c in cycle] == [figures.PALETTE[n] for n in figures.SERIES]
    colours = {
        mpl.colors.to_hex(value)
        for key, value in values.items()
        if "color" in key and value not in ("none", "auto", "face")
    }
    assert colours <= set(figures.PALETTE.values())
