"""The built pages: whole, small, on their own, light and dark, wide and narrow."""

from __future__ import annotations

import html.parser
import re
import urllib.parse
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tools import notebooks

pytestmark = [pytest.mark.timeout(1200), pytest.mark.xdist_group("pages")]

LARGEST = 5_000_000  # bytes
VOID_PAGES = {"genindex.html", "search.html", "index.html", "py-modindex.html"}


@dataclass
class Document(html.parser.HTMLParser):
    """Ids, links, sources and headings of a page."""

    path: Path
    ids: list[str] = field(default_factory=list)
    links: list[str] = field(default_factory=list)
    sources: list[str] = field(default_factory=list)
    unnamed: list[str] = field(default_factory=list)

    def __post_init__(self):
        super().__init__()
        self.text = self.path.read_text(encoding="utf-8")
        self.feed(self.text)

    def handle_starttag(self, tag, attrs):
        values = dict(attrs)
        if values.get("id"):
            self.ids.append(values["id"])
        if tag == "a" and values.get("href"):
            self.links.append(values["href"])
        if tag in ("script", "img", "iframe", "source", "video", "audio") and values.get("src"):
            self.sources.append(values["src"])
        if tag == "link" and values.get("href"):
            self.sources.append(values["href"])
        if tag == "svg" and values.get("role") == "img" and not values.get("aria-label"):
            self.unnamed.append("svg")
        if tag == "img" and "alt" not in values:
            self.unnamed.append(values.get("src", "img"))


@pytest.fixture(scope="module")
def documents(pages):
    found = {}
    for path in sorted(pages.rglob("*.html")):
        name = path.relative_to(pages).as_posix()
        if not name.startswith("_"):
            found[name] = Document(path)
    return found


@pytest.fixture(scope="module")
def names(documents):
    return [name for name in documents if name not in VOID_PAGES]


def test_every_page_of_the_contents_is_there(documents):
    toc = (notebooks.ROOT / "_toc.yml").read_text(encoding="utf-8")
    for page in re.findall(r"^\s*(?:- file|root): (\S+)", toc, flags=re.M):
        assert f"{page}.html" in documents


def test_pages_are_small(documents):
    sizes = {name: len(document.text.encode()) for name, document in documents.items()}
    assert max(sizes.values()) < LARGEST, max(sizes.items(), key=lambda item: item[1])


def test_links_inside_the_book_resolve(pages, documents):
    broken = []
    for name, document in documents.items():
        for link in document.links:
            parts = urllib.parse.urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            if not parts.path:
                target = documents[name].path
            else:
                target = (pages / name).parent / urllib.parse.unquote(parts.path)
            if not target.exists():
                broken.append(f"{name}: {link}")
                continue
            where = target.resolve().relative_to(pages.resolve()).as_posix()
            fragment = urllib.parse.unquote(parts.fragment)
            if fragment and where in documents and fragment not in documents[where].ids:
                broken.append(f"{name}: {link}")
    assert not broken


def test_ids_are_unique(documents):
    for name, document in documents.items():
        twice = {i for i in document.ids if document.ids.count(i) > 1}
        # sphinx-exercise calls the body of every exercise and solution the same
        assert not twice - {"exercise-content", "solution-content"}, name


def test_nothing_is_named_on_another_origin(documents):
    for name, document in documents.items():
        outside = [s for s in document.sources if re.match(r"(https?:)?//", s)]
        assert not outside, name
        assert "jupyter-widgets/html-manager" not in document.text, name
        assert "thebe" not in " ".join(document.sources).lower(), name


def test_figures_and_pictures_have_a_name(documents):
    for name, document in documents.items():
        assert not document.unnamed, name


def test_no_page_has_a_failed_cell_or_a_dead_control(documents):
    for name, document in documents.items():
        assert "CellTimeoutError" not in document.text, name
        article = re.search(r"<article.*?</article>", document.text, flags=re.S)
        body = article.group(0) if article else ""
        assert "widget-view+json" not in body, name
        assert "jupyter-widgets" not in body, name
        assert not re.search(r"<input[^>]*type=.?(range|checkbox|number)", body), name
        for cell in re.findall(r'<div class="cell[^"]*docutils container">', body):
            assert "traceback" not in cell or "tag_raises-exception" in cell, name


def test_pages_do_not_depend_on_the_machine_that_built_them(documents):
    for name, document in documents.items():
        assert str(notebooks.ROOT) not in document.text, name
        assert not re.search(r" at 0x[0-9a-f]{6,}", document.text), name


def test_every_solution_was_executed_and_its_checker_agreed(documents):
    for path in notebooks.notebooks():
        text = documents[f"chapters/{path.stem}.html"].text
        exercises = len(re.findall(r'<div class="exercise admonition', text))
        assert exercises >= 3
        assert text.count("✓") >= exercises, path.stem
        assert "✗" not in text, path.stem


LUMINANCE = """selector => {
    const element = document.querySelector(selector);
    if (!element) return null;
    const style = getComputedStyle(element);
    const colour = element instanceof SVGElement ? style.fill : style.backgroundColor;
    const [r, g, b] = colour.match(/[\\d.]+/g).map(Number);
    return (0.2126 * r + 0.7152 * g + 0.0722 * b) / 255;
}"""
SEEN_PICTURES = """kind => [...document.querySelectorAll(`.g2-figure .g2-${kind}`)]
    .filter(image => getComputedStyle(image).display !== "none").length"""

# Another machine has other fonts: no page may need its own to stay within its window.
WIDE_LETTERS = (
    "article * { font-family: 'DejaVu Sans', Verdana, sans-serif; letter-spacing: 0.06em }"
)


@pytest.fixture(scope="module")
def survey(visit, names):
    """What a browser sees of every page: loaded once, then turned dark, then made narrow."""
    seen = {}
    for name in [*names, "search.html", "genindex.html"]:
        with visit(name) as v:
            page = v.page
            facts = {
                "requests": v.requests,
                "complaints": v.complaints,
                "formulas": page.locator("article .math").count(),
                "set": page.locator("article .math mjx-container").count(),
                "misset": page.locator("mjx-merror").count(),
                "width 1440": page.evaluate("document.documentElement.scrollWidth"),
            }
            for theme, other in (("light", "dark"), ("dark", "light")):
                page.emulate_media(color_scheme=theme)
                page.wait_for_function(f"document.documentElement.dataset.theme === '{theme}'")
                facts[theme] = {
                    "page": page.evaluate(LUMINANCE, "body"),
                    "figure": page.evaluate(LUMINANCE, "[id$=patch_1] path"),
                    "source": page.evaluate(LUMINANCE, ".g2-source pre"),
                    "wrong pictures": page.evaluate(SEEN_PICTURES, other),
                }
            page.set_viewport_size({"width": 390, "height": 844})
            facts["width 390"] = page.evaluate("document.documentElement.scrollWidth")
            page.add_style_tag(content=WIDE_LETTERS)
            facts["width 390, wide letters"] = page.evaluate("document.documentElement.scrollWidth")
            seen[name] = facts
    return seen


@pytest.mark.browser
def test_pages_ask_nothing_of_another_origin(survey, site):
    for name, facts in survey.items():
        own = (site, "data:", "blob:")
        assert not [url for url in facts["requests"] if not url.startswith(own)], name


@pytest.mark.browser
def test_pages_raise_no_error(survey):
    assert not {name: facts["complaints"] for name, facts in survey.items() if facts["complaints"]}


@pytest.mark.browser
def test_every_formula_is_set(survey):
    for name, facts in survey.items():
        assert facts["set"] >= facts["formulas"], name
        assert facts["misset"] == 0, name


@pytest.mark.browser
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_pages_and_their_figures_follow_the_theme(survey, theme):
    for name, facts in survey.items():
        seen = facts[theme]
        for part in ("page", "figure", "source"):
            if seen[part] is not None:
                assert (seen[part] < 0.2) is (theme == "dark"), (name, part)
        assert seen["wrong pictures"] == 0, name
        assert seen["figure"] is not None or not name.startswith("chapters/"), name


@pytest.mark.browser
@pytest.mark.parametrize("letters", ["1440", "390", "390, wide letters"])
def test_no_page_is_wider_than_its_window(survey, letters):
    width = int(letters.split(",")[0])
    wide = {name: facts[f"width {letters}"] for name, facts in survey.items()}
    assert not {name: pixels for name, pixels in wide.items() if pixels > width}


@pytest.mark.browser
def test_the_fonts_are_the_books_own(visit):
    with visit("book/intro.html") as seen:
        assert any("source-serif-4" in url for url in seen.requests)
        assert seen.page.evaluate("document.fonts.check('16px \"IBM Plex Sans\"')")


@pytest.mark.browser
def test_a_solution_opens(visit, names):
    chapters = [name for name in names if name.startswith("chapters/")]
    if not chapters:
        pytest.skip("there is no chapter yet")
    with visit(chapters[0]) as seen:
        solution = seen.page.locator(".solution.dropdown").first
        code = solution.locator("pre").first
        assert not code.is_visible()
        solution.locator(".admonition-title").first.click()
        code.wait_for(state="visible")


@pytest.mark.browser
def test_keyboard_focus_can_be_seen(visit):
    with visit("book/intro.html") as seen:
        for _ in range(4):
            seen.page.keyboard.press("Tab")
        outline = seen.page.evaluate("getComputedStyle(document.activeElement).outlineWidth")
        assert outline == "3px"


def test_the_palette_of_the_pages_is_the_palette_of_the_figures():
    from gpt2lib import figures

    css = (notebooks.ROOT / "book/_static/palette.css").read_text(encoding="utf-8")
    assert css == figures.stylesheet()


def test_the_stylesheet_names_no_colour_of_its_own():
    css = (notebooks.ROOT / "book/_static/book.css").read_text(encoding="utf-8")
    assert not re.search(r"#[0-9a-fA-F]{3,8}\b(?![^{]*\{)", css)
    assert "http" not in css
