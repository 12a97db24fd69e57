"""Every chapter has the parts of the template, in its order. CONTRIBUTING.md explains each rule."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import gpt2lib.ops
from tools import notebooks

ROOT = notebooks.ROOT
CHAPTERS = notebooks.notebooks()
each_chapter = pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.stem)

FIRST = ["What you will learn", "What you need"]
LAST = ["Exercises", "Summary", "Further reading"]
UNITS = r"(ms|µs|us|ns|seconds?|minutes|GFLOP(/s|S)?|[GM]B/s|tokens/s|tokens per second)"
MEASURED = re.compile(rf"\d(\.\d+)?[  ]?({UNITS}\b|(×|times) (as fast|faster))")


def markdown(path: Path) -> list[str]:
    return [
        "\n".join(notebooks.lines(cell))
        for cell in notebooks.load(path)["cells"]
        if cell["cell_type"] == "markdown"
    ]


def code(path: Path) -> list[tuple[dict, str]]:
    """Code cells as (metadata, source without magics)."""
    found = []
    for cell in notebooks.load(path)["cells"]:
        if cell["cell_type"] == "code":
            lines = [re.sub(r"^(\s*)[%!].*", r"\1pass", line) for line in notebooks.lines(cell)]
            found.append((cell["metadata"], "\n".join(lines)))
    return found


def calls(source: str, name: str) -> list[ast.Call]:
    """Calls of ``….name(…)`` or ``name(…)``."""
    return [
        node
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call)
        and (
            (isinstance(node.func, ast.Attribute) and node.func.attr == name)
            or (isinstance(node.func, ast.Name) and node.func.id == name)
        )
    ]


def all_calls(path: Path, name: str) -> list[ast.Call]:
    return [call for _, source in code(path) for call in calls(source, name)]


def without_fences(text: str) -> str:
    return re.sub(r"^(`{3,}).*?^\1", "", text, flags=re.S | re.M)


def headings(path: Path, level: int) -> list[str]:
    text = "\n\n".join(without_fences(cell) for cell in markdown(path))
    return re.findall(rf"^#{{{level}}} (.+?)\s*$", text, flags=re.M)


def section(path: Path, title: str) -> str:
    text = "\n\n".join(markdown(path))
    match = re.search(rf"^## {re.escape(title)}\s*$(.*?)(?=^## |\Z)", text, flags=re.S | re.M)
    assert match, f"no section {title!r}"
    return match.group(1)


def solutions(path: Path) -> dict[str, list[tuple[dict, str]]]:
    """Label of the exercise -> the code cells of its solution."""
    found: dict[str, list[tuple[dict, str]]] = {}
    label = None
    for cell in notebooks.load(path)["cells"]:
        text = "\n".join(notebooks.lines(cell))
        if cell["cell_type"] == "code":
            if label is not None:
                found[label].append((cell["metadata"], text))
            continue
        for start, name, end in re.findall(r"\{(solution-start)\} (\S+)|\{(solution-end)\}", text):
            if start:
                assert label is None, f"solution of {label} has no end"
                label = name
                found[label] = []
                assert ":class: dropdown" in text, f"solution of {name} is not a dropdown"
            if end:
                label = None
    assert label is None, f"solution of {label} has no end"
    return found


@each_chapter
def test_committed_form(path):
    assert notebooks.problems(path) == []


@each_chapter
def test_title_carries_the_number(path):
    number = re.fullmatch(r"(\d\d)-[a-z0-9-]+", path.stem)
    assert number, "a chapter is named NN-name.ipynb"
    first = notebooks.load(path)["cells"][0]
    assert first["cell_type"] == "markdown"
    text = "\n".join(notebooks.lines(first))
    title = re.match(r"(?:\([a-z0-9-]+\)=\n)?# (\d+) · \S.*\n\n+(\S[^\n]+)", text)
    assert title, "the first cell begins with '# N · Title' and a lead"
    assert int(title.group(1)) == int(number.group(1))
    assert not title.group(2).startswith(("#", "-", ":::", "```")), "a lead comes after the title"
    assert len(headings(path, 1)) == 1


@each_chapter
def test_parts_and_their_order(path):
    titles = headings(path, 2)
    assert titles[:2] == FIRST
    assert titles[-3:] == LAST
    assert len(titles) > 5, "there is no body"
    learn = re.findall(r"^[-*] ", section(path, "What you will learn"), flags=re.M)
    assert 3 <= len(learn) <= 6
    assert re.search(r"\*\*Time:\*\* ", section(path, "What you need"))
    assert re.findall(r"^[-*] ", section(path, "Summary"), flags=re.M)
    assert len(re.findall(r"\{cite", section(path, "Further reading"))) >= 2


@each_chapter
def test_ideas_come_with_question_picture_formula_code_and_number(path):
    text = "\n".join(markdown(path))
    assert ":::{div} g2-question" in text
    assert len(all_calls(path, "show")) + len(all_calls(path, "controls")) >= 2
    assert text.count("$$") >= 2 or "{math}" in text
    assert len(all_calls(path, "show_source")) >= 1
    assert len(all_calls(path, "print")) >= 1


@each_chapter
def test_length(path):
    text = without_fences("\n".join(markdown(path)))
    words = len(re.sub(r"\$\$.*?\$\$|\$[^$]*\$|[`{}()\[\]#*_:|-]", " ", text, flags=re.S).split())
    assert 1200 <= words <= 3600, words


@each_chapter
def test_exercises_have_checkers_and_executed_hidden_solutions(path):
    checker = f"ch{path.stem[:2]}.check_"
    labels = re.findall(r"\{exercise(?:-start)?\}.*?:label: (\S+)", "\n".join(markdown(path)), re.S)
    assert len(labels) >= 3
    assert len(set(labels)) == len(labels)
    found = solutions(path)
    assert set(found) == set(labels)
    for label, cells in found.items():
        assert any(checker in source for _, source in cells), f"{label}: no checker in the solution"
        for metadata, _ in cells:
            assert "solution" in metadata.get("tags", []), label
            assert metadata.get("jupyter", {}).get("source_hidden") is True, label
    asked = [source for metadata, source in code(path) if "exercise" in metadata.get("tags", [])]
    assert len([source for source in asked if checker in source]) >= 3


@each_chapter
def test_figures_have_alt_text_and_the_books_style(path):
    for call in [*all_calls(path, "controls"), *all_calls(path, "show")]:
        owner = call.func.value if isinstance(call.func, ast.Attribute) else None
        name = owner.id if isinstance(owner, ast.Name) else ""
        assert name != "plt", "plt.show() leaves a figure without alt text: use figures.show"
        assert "alt" in {keyword.arg for keyword in call.keywords}, ast.unparse(call)
        for keyword in call.keywords:
            if keyword.arg == "alt" and isinstance(keyword.value, ast.Constant):
                assert len(str(keyword.value.value).split()) >= 4, ast.unparse(call)
    assert len(all_calls(path, "use_style")) == 1
    assert "use_style" in code(path)[0][1], "the first code cell sets the style"


@each_chapter
def test_cells_work_anywhere_and_ask_nothing(path):
    for _, source in code(path):
        assert not calls(source, "input"), "a page cannot answer input()"
        assert '"../' not in source, "paths come from the package, not from the working folder"
    raw = "\n".join("\n".join(notebooks.lines(c)) for c in notebooks.load(path)["cells"])
    assert "%matplotlib" not in raw
    assert "pip install" not in raw


@each_chapter
def test_the_library_is_not_written_again(path):
    defined = {
        node.name
        for _, source in code(path)
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef | ast.ClassDef)
    }
    assert not defined & set(gpt2lib.ops.__all__)


@each_chapter
def test_no_measured_number_is_typed(path):
    for cell in markdown(path):
        text = without_fences(re.sub(r"^.*\*\*Time:\*\*.*(\n  .*)*", "", cell, flags=re.M))
        found = MEASURED.search(text)
        assert not found, f"{found.group(0)!r} should come out of a cell: {text[:80]!r}"


@each_chapter
def test_links_to_files_resolve(path):
    for target in re.findall(r"\]\(([^)#\s]+\.(?:ipynb|md|py))[^)]*\)", "\n".join(markdown(path))):
        assert (path.parent / target).exists(), target


def test_the_measured_number_rule_catches_and_lets_pass():
    for text in ("takes 12 ms", "about 3.5 seconds", "40 GFLOP/s", "2 times faster", "9 tokens/s"):
        assert MEASURED.search(text), text
    for text in ("a rate of 0.1", "12 heads", "50 257 tokens", "the last 3 samples", "1024 µ"):
        assert not MEASURED.search(text), text


@pytest.fixture(scope="module")
def template_text(tmp_path_factory):
    import jupytext

    path = tmp_path_factory.mktemp("template") / "00-template.ipynb"
    source = ROOT / "book" / "_templates" / "chapter.md"
    jupytext.write(jupytext.read(source, fmt="md:myst"), path)
    notebooks.main(["strip", str(path)])
    return path.read_text(encoding="utf-8")


@pytest.fixture
def template(tmp_path, template_text):
    path = tmp_path / "00-template.ipynb"
    path.write_text(template_text, encoding="utf-8")
    return path


RULES = [
    test_committed_form,
    test_title_carries_the_number,
    test_parts_and_their_order,
    test_ideas_come_with_question_picture_formula_code_and_number,
    test_exercises_have_checkers_and_executed_hidden_solutions,
    test_figures_have_alt_text_and_the_books_style,
    test_cells_work_anywhere_and_ask_nothing,
    test_the_library_is_not_written_again,
    test_no_measured_number_is_typed,
]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_the_template_keeps_the_rules(template, rule):
    rule(template)


BREAKS = {
    "a title without its number": ("# 0 · Template", "# Template"),
    "no time": ("**Time:**", "Time"),
    "parts in another order": ("## Summary", "## Exercises again"),
    "no question": ("{div} g2-question", "{note}"),
    "a solution in the open": (":class: dropdown", ""),
    "a solution without an end": ("{solution-end}", "{note}"),
    "a solution that is not hidden in the notebook": ("source_hidden", "source_shown"),
    "no checker": ("ch00.check_entropy(nats);", "pass"),
    "no alt text": ("alt=", "title="),
    "a bare plt.show": ("figures.show(", "plt.show("),
    "a question to the reader": ("nats = np.log(8)", "nats = float(input())"),
    "a second implementation": ("def soft(", "def softmax_forward("),
    "a typed measurement": ("Then a picture.", "It takes 12 ms."),
    "no citation": ("{cite:t}", ""),
}


@pytest.mark.parametrize("name", BREAKS)
def test_a_broken_template_breaks_a_rule(template, name):
    import json

    old, new = BREAKS[name]
    notebook = notebooks.load(template)
    text = json.dumps(notebook, ensure_ascii=False)
    broken = text.replace(json.dumps(old, ensure_ascii=False)[1:-1], new)
    assert broken != text
    template.write_text(notebooks.text(json.loads(broken)), encoding="utf-8")
    failed = []
    for rule in RULES:
        try:
            rule(template)
        except AssertionError:
            failed.append(rule.__name__)
    assert failed


def test_every_chapter_is_in_the_table_of_contents():
    toc = (ROOT / "_toc.yml").read_text(encoding="utf-8")
    listed = set(re.findall(r"^\s*- file: (\S+)", toc, flags=re.M))
    assert {f"chapters/{path.stem}" for path in CHAPTERS} <= listed
    for page in listed:
        assert any((ROOT / f"{page}{suffix}").exists() for suffix in (".md", ".ipynb")), page
