"""The page about kernels: its worked example works, and what it shows exists."""

from __future__ import annotations

import ast
import importlib.util
import re
import sys
from pathlib import Path

import numpy as np
import pytest

from gpt2lib import kernels
from gpt2lib.kernels import _compile

PAGE = Path(__file__).resolve().parents[2] / "book" / "kernels.md"
TEXT = PAGE.read_text(encoding="utf-8")


def code_with(words):
    """Return the page's Python blocks that contain these words."""
    return [block for block in re.findall(r"```python\n(.*?)```", TEXT, re.S) if words in block]


@pytest.fixture(scope="module")
def example(tmp_path_factory):
    """Return (the NumPy functions, a module with the kernels), as the page has them."""
    mathematics, bodies, operations = code_with("relu_squared")
    numpy_functions = {"np": np}
    exec(mathematics, numpy_functions)
    path = tmp_path_factory.mktemp("page") / "relu_squared.py"
    path.write_text(bodies + "\n\n" + operations, encoding="utf-8")
    name = "gpt2lib_page_relu_squared"
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    yield numpy_functions, module
    del sys.modules[name]
    for kernel in [key for key in _compile._KERNELS if key.startswith("relu_squared")]:
        del _compile._KERNELS[kernel]


@pytest.mark.parametrize("threads", [1, 3])
def test_the_worked_example_agrees_with_its_mathematics(example, threads):
    numpy_functions, module = example
    backend = kernels.load("threads", threads)
    rng = np.random.default_rng(0)
    x, dout, dx = rng.standard_normal((3, 5, 7001), np.float32)  # two chunks and a bit
    found = module.relu_squared_forward(backend, x)
    np.testing.assert_allclose(found, numpy_functions["relu_squared_forward"](x), rtol=1e-6)
    mine, theirs = dx.copy(), dx.copy()
    module.relu_squared_backward(backend, dout, x, dx=mine)
    numpy_functions["relu_squared_backward"](dout, x, dx=theirs)
    np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-6)


def test_the_worked_examples_gradient_is_the_slope(example):
    numpy_functions, _ = example
    x = np.array([-2.0, -0.5, 0.5, 3.0])
    forward = numpy_functions["relu_squared_forward"]
    slope = (forward(x + 1e-6) - forward(x - 1e-6)) / 2e-6
    found = numpy_functions["relu_squared_backward"](np.ones(4), x)
    np.testing.assert_allclose(found, slope, atol=1e-8)


def test_everything_that_it_includes_is_there():
    blocks = re.findall(r"```\{literalinclude\} (\S+)\n(.*?)```", TEXT, re.S)
    assert len(blocks) >= 5
    for file, options in blocks:
        source = (PAGE.parent / file).read_text(encoding="utf-8")
        (wanted,) = re.findall(r":pyobject: (\S+)", options)
        scope = ast.parse(source).body
        for name in wanted.split("."):
            (node,) = [n for n in scope if getattr(n, "name", None) == name]
            scope = node.body


def test_every_command_that_it_shows_is_known():
    """The options of the shown gpt2lib commands exist."""
    from gpt2lib.cli import build_parser

    shown = re.findall(r"^ *\$ (gpt2lib .*)$", TEXT, re.M)
    assert shown
    for line in shown:
        outer, *inner = line.split(" -- ")
        for command in (outer + (" -- x" if inner else ""), *inner):
            words = command.split()[1:]
            if command.startswith("gpt2lib"):
                assert build_parser(words).parse_args(words).command == words[0]


def test_its_length():
    prose = re.sub(r"```.*?```", "", TEXT, flags=re.S)
    assert len(prose.split()) <= 1800
