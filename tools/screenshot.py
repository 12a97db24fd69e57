"""Take the README's pictures from the built pages: ``python -m tools.screenshot``.

Needs Chromium (or ``CHROMIUM`` set to its path) and ``make book`` first.
"""

from __future__ import annotations

import functools
import http.server
import os
import shutil
import sys
import threading
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGES = ROOT / "_build" / "html"
WIDTH, HEIGHT = 1280, 960
PAGE, PLACE = "chapters/03-attention.html", "#where-do-the-heads-look"


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *arguments: object) -> None:
        """Say nothing."""


def take(page: str, anchor: str = "") -> None:
    """Write ``book/_static/page-light.png`` and ``page-dark.png``, scrolled to an element."""
    from playwright.sync_api import sync_playwright

    chromium = os.environ.get("CHROMIUM") or shutil.which("chromium")
    if chromium is None:
        raise SystemExit("no Chromium: install it, or set CHROMIUM to its path")
    handler = functools.partial(_Quiet, directory=str(PAGES))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for theme in ("light", "dark"):
            tab = browser.new_page(
                viewport={"width": WIDTH, "height": HEIGHT},
                color_scheme="dark" if theme == "dark" else "light",
            )
            tab.set_default_timeout(120_000)
            tab.goto(f"http://127.0.0.1:{server.server_port}/{page}")
            tab.evaluate("() => window.MathJax?.startup?.promise")
            if anchor:
                tab.evaluate(
                    "a => document.querySelector(a).scrollIntoView({behavior: 'instant'})", anchor
                )
                tab.wait_for_timeout(500)
            target = ROOT / "book" / "_static" / f"page-{theme}.png"
            tab.screenshot(path=target)
            _shrink(target)
            print(f"wrote {target.relative_to(ROOT)}, {target.stat().st_size // 1000} kB")
        browser.close()
    server.shutdown()


def _shrink(path: Path) -> None:
    """Keep 256 colours: the pages have few, and the picture is half the size."""
    from PIL import Image

    picture = Image.open(path).convert("RGB")
    picture.quantize(256, dither=Image.Dither.NONE).save(path, optimize=True)


if __name__ == "__main__":
    if not (PAGES / "index.html").exists():
        raise SystemExit("nothing is built yet: make book")
    take(*(sys.argv[1:] or [PAGE, PLACE]))
