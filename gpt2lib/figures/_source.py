"""Code in the book is the library's own source, fetched from it and never copied."""

from __future__ import annotations

import ast
import html
import inspect
import textwrap
from pathlib import Path
from typing import Any

# Pygments token classes -> palette; written into each block so that it also works in JupyterLab.
_COLOURS = {
    "plum": (".k", ".kn", ".kc", ".ow", ".kd", ".kr"),
    "blue": (".nf", ".nc", ".fm", ".nd", ".kt"),
    "teal": (".s", ".s1", ".s2", ".sd", ".si", ".sa", ".se", ".sr"),
    "orange": (".mi", ".mf", ".mh", ".mb", ".mo"),
    "muted": (".c", ".c1", ".cm", ".o"),
}
_FALLBACK = {
    "plum": "#67154f",
    "blue": "#2641a6",
    "teal": "#08725b",
    "orange": "#cd5717",
    "muted": "#5b6475",
}
_PACKAGE_PARENT = Path(__file__).resolve().parents[2]


class Source:
    """A piece of the library's source: highlighted HTML, or the plain text."""

    def __init__(self, code: str, path: str, first_line: int, name: str) -> None:
        self.code = code
        self.path = path
        self.first_line = first_line
        self.name = name

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return {"text/html": self._html(), "text/plain": self.code}

    def __repr__(self) -> str:
        return self.code

    def _html(self) -> str:
        from pygments import highlight
        from pygments.formatters import HtmlFormatter
        from pygments.lexers import PythonLexer

        rules = "".join(
            ",".join(f".g2-source {cls}" for cls in classes)
            + f"{{color:var(--g2-{colour},{_FALLBACK[colour]})}}"
            for colour, classes in _COLOURS.items()
        )
        body = highlight(
            self.code, PythonLexer(), HtmlFormatter(cssclass="highlight", wrapcode=False)
        )
        title = f"{self.path}, line {self.first_line}"
        return (
            f'<figure class="g2-source"><style>{rules}</style>'
            f"<figcaption><code>{html.escape(self.path)}</code>"
            f'<span class="g2-line">line {self.first_line}</span></figcaption>'
            f'<div role="group" aria-label="{html.escape(title)}">{body}</div></figure>'
        )


def show_source(obj: Any, *, docstring: bool = False) -> None:
    """Display the source of a function, method, class or module of the library.

    Parameters
    ----------
    obj : function, method, class, module or Numba dispatcher
        What to show. Decorators that keep ``__wrapped__`` or ``py_func`` are seen through.
    docstring : bool, optional
        Show the docstrings too. By default they are left out, since the text around the block
        says the same; comments stay.

    Raises
    ------
    ValueError
        If ``obj`` has no Python source (a built-in, a compiled function, something typed in).
    """
    from IPython.display import display

    display(source(obj, docstring=docstring))


def source(obj: Any, *, docstring: bool = False) -> Source:
    """Return what :func:`show_source` displays."""
    target = inspect.unwrap(getattr(obj, "py_func", obj))
    name = getattr(target, "__qualname__", getattr(target, "__name__", repr(target)))
    try:
        lines, first = inspect.getsourcelines(target)
        file = inspect.getsourcefile(target)
    except (OSError, TypeError):
        file = None
    if file is None:
        raise ValueError(f"{name} has no Python source to show: pass a function, class or module")
    code = textwrap.dedent("".join(lines))
    if not docstring:
        code = without_docstrings(code)
    return Source(code.strip("\n") + "\n", _short(Path(file)), max(first, 1), name)


def without_docstrings(code: str) -> str:
    """Remove the docstring of every function, class and module in ``code``; keep comments."""
    lines = code.splitlines(keepends=True)
    owners = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    drop: set[int] = set()
    for node in ast.walk(ast.parse(code)):
        if not isinstance(node, owners) or ast.get_docstring(node, clean=False) is None:
            continue
        if len(node.body) == 1 and not isinstance(node, ast.Module):
            continue  # the docstring is the whole body: without it the code would not parse
        doc = node.body[0]
        assert doc.end_lineno is not None  # set by ast.parse
        drop.update(range(doc.lineno, doc.end_lineno + 1))
        # A blank line between the docstring and the first statement belongs to the docstring.
        after = doc.end_lineno
        while after < len(lines) and not lines[after].strip():
            drop.add(after + 1)
            after += 1
    return "".join(line for number, line in enumerate(lines, start=1) if number not in drop)


def _short(path: Path) -> str:
    """Return the path from the package on, with forward slashes on every system."""
    path = path.resolve()
    if path.is_relative_to(_PACKAGE_PARENT):
        return path.relative_to(_PACKAGE_PARENT).as_posix()
    return path.name
