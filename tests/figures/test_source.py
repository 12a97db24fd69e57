"""``show_source`` shows the library's own text."""

from __future__ import annotations

import ast
import inspect
import re

import pytest

from gpt2lib import _files, figures
from gpt2lib.figures import _source


def sample(x):
    """Say what it does.

    At length.
    """

    # a comment that stays
    return x + 1  # and this one


class Sample:
    """A class."""

    limit = 3

    def method(self):
        """A method."""
        return "not a docstring"

    def empty(self):
        """Only a docstring."""


def test_docstrings_go_and_comments_stay():
    code = figures.source(sample).code
    assert code == (
        "def sample(x):\n    # a comment that stays\n    return x + 1  # and this one\n"
    )
    assert figures.source(sample, docstring=True).code == inspect.getsource(sample)


def test_a_class_and_its_methods():
    code = figures.source(Sample).code
    assert "A class" not in code
    assert "A method" not in code
    assert '"not a docstring"' in code
    assert "Only a docstring" in code  # the body must not be empty
    ast.parse(code)


def test_a_method_is_dedented():
    assert figures.source(Sample.method).code.startswith("def method")


def test_the_title_is_the_path_inside_the_project():
    shown = figures.source(_files.atomic_write)
    assert shown.path == "gpt2lib/_files.py"
    assert inspect.getsourcelines(inspect.unwrap(_files.atomic_write))[1] == shown.first_line


def test_html_holds_exactly_the_code():
    import html

    shown = figures.source(_source.without_docstrings)
    bundle = shown._repr_mimebundle_()
    assert bundle["text/plain"] == shown.code
    pre = re.search(r"<pre>(.*)</pre>", bundle["text/html"], re.S)[1]
    assert html.unescape(re.sub(r"<[^>]+>", "", pre)) == shown.code
    assert "gpt2lib/figures/_source.py" in bundle["text/html"]


def test_a_compiled_dispatcher_shows_its_python():
    class Dispatcher:
        py_func = staticmethod(sample)

    assert "def sample" in figures.source(Dispatcher()).code


@pytest.mark.parametrize("thing", [len, 3])
def test_what_has_no_source_is_refused_in_words(thing):
    with pytest.raises(ValueError, match="no Python source"):
        figures.show_source(thing)
