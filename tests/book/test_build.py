"""The build tells the truth: failures fail it, and no output is older than the library.

The mechanism is tested on a book of two pages that has the real book's configuration.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from tools.notebooks import ROOT

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.xdist_group("small book"),
]

PAGE = """---
kernelspec:
  display_name: Python 3
  name: python3
jupytext:
  text_representation:
    extension: .md
    format_name: myst
---

# {title}

```{{code-cell}} ipython3
{code}
```
"""
READ = """
from pathlib import Path

home = Path.cwd().parent / "gpt2lib"
names = {}
exec((home / "answer.py").read_text(encoding="utf-8"), names)
print("answer", names["ANSWER"], "datum", (home / "models" / "datum.txt").read_text())
"""
ANNOUNCED = ":tags: [raises-exception]\n\n1 / 0"
TOC = """format: jb-book
root: book/intro
chapters:
  - file: chapters/01-tokens
  - file: chapters/00-template
  - file: chapters/02-embeddings
  - file: book/notation
  - file: book/how-to-read
"""


def write_page(path: Path, title: str, code: str) -> None:
    import jupytext

    path.parent.mkdir(parents=True, exist_ok=True)
    jupytext.write(jupytext.reads(PAGE.format(title=title, code=code), fmt="md:myst"), path)


def files(folder: Path) -> set[str]:
    return {
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*")
        if path.is_file() and "_build" not in path.parts and "__pycache__" not in path.parts
    }


def shown(folder: Path, page: str) -> str:
    return (folder / "_build" / "html" / f"{page}.html").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def small_book(tmp_path_factory, build):
    """The chapter template between two tiny pages, with a library of two files."""
    import jupytext

    folder = tmp_path_factory.mktemp("book")
    for name in ("_ext", "_static", "_templates"):
        shutil.copytree(ROOT / "book" / name, folder / "book" / name)
    shutil.copy(ROOT / "_config.yml", folder)
    shutil.copy(ROOT / "book" / "references.bib", folder / "book")
    (folder / "_toc.yml").write_text(TOC, encoding="utf-8")
    (folder / "book" / "intro.md").write_text("# Intro\n\nText.\n", encoding="utf-8")
    (folder / "book" / "how-to-read.md").write_text("# Read\n\nText.\n", encoding="utf-8")
    (folder / "book" / "notation.md").write_text(
        "# Notation\n\n```{bibliography}\n```\n", encoding="utf-8"
    )
    (folder / "gpt2lib" / "models").mkdir(parents=True)
    (folder / "gpt2lib" / "answer.py").write_text("ANSWER = 41\n", encoding="utf-8")
    (folder / "gpt2lib" / "models" / "datum.txt").write_text("first", encoding="utf-8")
    write_page(folder / "chapters" / "01-tokens.ipynb", "1 · Tokens", READ)
    write_page(folder / "chapters" / "02-embeddings.ipynb", "2 · Embeddings", ANNOUNCED)
    template = jupytext.read(folder / "book" / "_templates" / "chapter.md", fmt="md:myst")
    jupytext.write(template, folder / "chapters" / "00-template.ipynb")
    before = files(folder)
    done = build(folder, "-W", "-n", "--keep-going")
    assert done.returncode == 0, done.stdout[-4000:]
    assert files(folder) == before, "the build leaves something in the source tree"
    return folder, done.stdout


def test_the_template_is_a_working_chapter(small_book):
    folder, _ = small_book
    page = shown(folder, "chapters/00-template")
    assert page.count("✓") == 3  # each solution was executed, and its checker agreed
    assert page.count("… not answered yet") == 3
    assert page.count('class="g2-figure"') == 2
    assert 'class="g2-source"' in page
    assert "controls in the notebook: <b>temperature</b>" in page


def test_an_announced_exception_is_let_pass(small_book):
    folder, _ = small_book
    assert "ZeroDivisionError" in shown(folder, "chapters/02-embeddings")


def test_the_log_ends_with_the_time_of_each_page(small_book):
    _, log = small_book
    assert re.search(r"execution time, seconds\n(.*\n)* +\d+\.\d  chapters/01-tokens\n", log)
    assert re.search(r"\d+\.\d  all pages", log)


def test_a_change_of_the_library_or_its_data_is_executed_again(small_book, build):
    folder, _ = small_book
    assert "answer 41 datum first" in shown(folder, "chapters/01-tokens")
    (folder / "gpt2lib" / "answer.py").write_text("ANSWER = 42\n", encoding="utf-8")
    (folder / "gpt2lib" / "models" / "datum.txt").write_text("second", encoding="utf-8")
    done = build(folder)
    assert done.returncode == 0, done.stdout[-4000:]
    assert "answer 42 datum second" in shown(folder, "chapters/01-tokens")


def test_a_failing_cell_fails_every_build_and_shows_its_trace(small_book, build):
    folder, _ = small_book
    code = "def inner():\n    return 1 / 0\n\n\ninner()"
    write_page(folder / "chapters" / "02-embeddings.ipynb", "2 · Embeddings", code)
    for options in ("-W", "-n", "--keep-going"), ():  # the second time nothing is out of date
        done = build(folder, *options)
        assert done.returncode != 0
        assert "ZeroDivisionError" in done.stdout
        assert "return 1 / 0" in done.stdout
        assert "chapters/02-embeddings" in done.stdout
