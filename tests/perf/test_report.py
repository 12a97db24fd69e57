"""The report: a page of its own, whole, escaped, light and dark, wide and narrow."""

from __future__ import annotations

import copy
import re
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest

from gpt2lib.perf import report
from gpt2lib.perf import results as files
from tests.perf import made_up

VOID = {"meta", "br", "hr", "img", "link", "input"}
FIGURES = ["breakdown", "iteration-times", "karp-flatt", "means", "roofline", "scaling"]
NASTY = '<script>alert("1")</script>&\'"><b>$x_{$'


class Page(HTMLParser):
    """What is open, what was met, and the cells of every table's rows."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.ids, self.rows, self.links = [], [], [], [], []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        values = dict(attrs)
        self.tags.append(tag)
        self.links += [values[k] for k in ("src", "href", "xlink:href") if k in values]
        self.ids += [values["id"]] if "id" in values else []
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        self.handle_endtag(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] in ("td", "th"):
            self.rows[-1][-1] += data


@pytest.fixture(scope="module")
def results():
    return made_up.results()


@pytest.fixture(scope="module")
def folder(results, tmp_path_factory):
    folder = tmp_path_factory.mktemp("bench")
    assert report.write(folder, results) == folder / "report.html"
    return folder


@pytest.fixture(scope="module")
def text(folder):
    return (folder / "report.html").read_text(encoding="utf-8")


def test_the_made_up_results_are_what_bench_writes(results):
    files.check(results)
    key = ("runtime", "threads")
    own = {tuple(row[k] for k in key): row for row in results["summary"]}
    for row in files.summarise(results):
        assert row == pytest.approx(own[row["runtime"], row["threads"]])


def test_the_page_is_well_formed_and_whole(text, results):
    page = Page(text)
    assert len(page.ids) == len(set(page.ids))
    assert page.tags.count("svg") == len(FIGURES)
    for run in results["runs"]:
        start = [run["runtime"], str(run["threads"]), str(run["repeat"]), str(run["order"] + 1)]
        assert [row for row in page.rows if row[:4] == start]
    for row in results["summary"]:
        want = [row["runtime"], str(row["threads"]), str(row["runs"]), f"{row['mean_ms']:,.0f}"]
        plain = [[cell.replace("\N{NARROW NO-BREAK SPACE}", ",") for cell in r] for r in page.rows]
        assert [r for r in plain if r[:4] == want and f"{row['speedup']:.2f}" in r]
    for said in (
        "gpt2, B=4, T=64",
        "Imagined 3000",
        "libnosv.so was not found.",
        "set NOSV_HOME",
        results["git"]["commit"],
        "interquartile range",
        "numba",
        "2026-01-02 03:04 UTC",
    ):
        assert said in text


def test_the_page_asks_for_nothing_and_runs_nothing(text):
    page = Page(text)
    assert all(link.startswith("#") for link in page.links)
    assert "script" not in page.tags
    assert "link" not in page.tags
    outside = re.sub(r'xmlns(:xlink)?="http://www.w3.org/[^"]+"', "", text)
    assert "http" not in outside
    assert "@import" not in text
    assert not re.search(r"url\((?!#)", text)


def test_captions_have_the_numbers(text, results):
    fastest = min(results["summary"], key=lambda row: row["mean_ms"])
    mean = f"{fastest['mean_ms']:,.0f}".replace(",", "\N{NARROW NO-BREAK SPACE}")
    name = f"{fastest['runtime']}, 2 threads"
    assert f"The fastest is {name}: {mean} ms on average" in text
    row = next(r for r in results["summary"] if (r["runtime"], r["threads"]) == ("threads", 2))
    assert f"threads on 2 threads is {row['speedup']:.2f} times as fast as sequential" in text


def test_figures_open_without_the_page(folder):
    paths = sorted((folder / "figures").iterdir())
    assert [path.name for path in paths] == [f"{name}.svg" for name in FIGURES]
    for path in paths:
        text = path.read_text(encoding="utf-8")
        assert ElementTree.fromstring(text).tag == "{http://www.w3.org/2000/svg}svg"
        assert "var(" not in text  # not every viewer knows them
        assert "#fffdf9" in text


def test_what_comes_from_outside_is_text(results, tmp_path):
    bad = copy.deepcopy(results)
    for run in bad["runs"]:
        run["runtime"] = run["runtime"].replace("openmp", NASTY)
        for row in run["operations"]:
            row["operation"] = row["operation"].replace("head_forward", NASTY)
    for row in bad["summary"]:
        row["runtime"] = row["runtime"].replace("openmp", NASTY)
    bad["machine"] = {**bad["machine"], "processor": NASTY, NASTY: NASTY}
    bad["versions"][NASTY] = NASTY
    bad["settings"]["preset"] = NASTY
    bad["created"] = bad["git"]["commit"] = NASTY
    bad["absent"] = [{"runtime": NASTY, "reason": NASTY, "how_to_get": NASTY}]
    bad["failed"] = [{"runtime": NASTY, "threads": 2, "repeat": 0, "reason": NASTY}]
    text = report.write(tmp_path, bad).read_text(encoding="utf-8")
    page = Page(text)
    assert "script" not in page.tags
    assert "b" not in page.tags
    assert text.count("&lt;script&gt;") > 10
    for path in (tmp_path / "figures").iterdir():
        ElementTree.fromstring(path.read_text(encoding="utf-8"))


def test_what_failed_and_what_is_unfinished_is_said(results, tmp_path):
    failed = [{"runtime": "openmp", "threads": 2, "repeat": 3, "reason": "it hung for 60 s"}]
    half = {**results, "failed": failed, "finished": False}
    text = report.write(tmp_path, half).read_text(encoding="utf-8")
    assert ["openmp", "it hung for 60 s", "2", "3"] in Page(text).rows
    assert "not finished" in text


def test_one_number_of_threads_and_no_operations(tmp_path):
    few = made_up.results(threads={"threads": (2,)}, repeats=1, iterations=2)
    for run in few["runs"]:
        run["operations"], run["peak_bytes"] = [], None
    few["ceilings"], few["git"] = [], {"commit": None, "dirty": None}
    few["summary"] = files.summarise(few)
    text = report.write(tmp_path, few).read_text(encoding="utf-8")
    assert "No runtime was measured on two different numbers of threads." in text
    assert sorted(path.stem for path in (tmp_path / "figures").iterdir()) == [
        "iteration-times",
        "means",
        "scaling",
    ]


def test_no_finished_run_is_an_error_in_words_and_leaves_no_file(results, tmp_path):
    with pytest.raises(ValueError, match="no finished run"):
        report.write(tmp_path, {**results, "runs": [], "summary": []})
    assert list(tmp_path.iterdir()) == []


def test_writing_again_writes_the_same(folder, results, text):
    assert report.write(folder, results).read_text(encoding="utf-8") == text


LUMINANCE = """() => {
    const [r, g, b] = getComputedStyle(document.body).backgroundColor.match(/[\\d.]+/g).map(Number);
    const ink = getComputedStyle(document.querySelector("svg text")).fill.match(/[\\d.]+/g);
    return [r + g + b, ink.map(Number).reduce((x, y) => x + y)];
}"""


@pytest.mark.browser
def test_the_page_in_a_browser(folder, chromium):
    page = chromium.new_page(viewport={"width": 1440, "height": 900})
    asked, complaints = [], []
    page.on("request", lambda request: asked.append(request.url))
    page.on("console", lambda line: complaints.append(line.text))
    address = (folder / "report.html").as_uri()
    page.goto(address)
    for theme in ("light", "dark"):
        page.emulate_media(color_scheme=theme)
        background, ink = page.evaluate(LUMINANCE)
        assert (background > 400) is (theme == "light")
        assert (ink < 300) is (theme == "light")
    for width in (1440, 390):
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.close()
    assert asked == [address]
    assert complaints == []
