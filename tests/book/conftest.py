"""The built pages, a browser to look at them, and a small book to break."""

from __future__ import annotations

import contextlib
import functools
import http.server
import importlib.util
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
_JUPYTER_BOOK = "from jupyter_book.cli.main import main; main()"


def load_extension() -> Any:
    """Import the book's Sphinx extension, which lives outside any package."""
    spec = importlib.util.spec_from_file_location("gpt2book", ROOT / "book/_ext/gpt2book.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run_build(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Build a book the way ``make book`` does, and return its status and its log."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    return subprocess.run(
        [sys.executable, "-c", _JUPYTER_BOOK, "build", ".", *options],
        cwd=folder,
        env={**os.environ, "PATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        encoding="utf-8",
        timeout=900,
    )


@pytest.fixture(scope="session")
def build():
    """``build(folder, *options)``: status and log of ``jupyter-book build .`` in a folder."""
    return run_build


@pytest.fixture(scope="session")
def pages() -> Path:
    """The real book's pages; built here only if ``make book`` has not just done it."""
    extension = load_extension()
    note = ROOT / "_build" / "built-from.txt"
    now = f"{extension.digest(ROOT)} {extension.sources(ROOT)}"
    if not note.exists() or note.read_text(encoding="utf-8").strip() != now:
        done = run_build(ROOT, "-W", "-n", "--keep-going")
        assert done.returncode == 0, done.stdout[-6000:]
    return ROOT / "_build" / "html"


@dataclass
class Visit:
    """What a browser saw of a page."""

    page: Any
    requests: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture(scope="session")
def site(pages) -> Iterator[str]:
    """Serve the pages from this machine and return their address."""
    handler = functools.partial(_Quiet, directory=str(pages))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="session")
def visit(chromium, site):
    """``with visit(path) as v``: open a page and note what it asks for and complains about."""

    @contextlib.contextmanager
    def opened(path: str) -> Iterator[Visit]:
        context = chromium.new_context(viewport={"width": 1440, "height": 900})
        context.set_default_timeout(120_000)  # a busy machine is no reason to fail
        page = context.new_page()
        seen = Visit(page)
        page.on("request", lambda request: seen.requests.append(request.url))
        page.on("requestfailed", lambda request: seen.complaints.append(f"failed {request.url}"))
        page.on("pageerror", lambda error: seen.complaints.append(f"error {error}"))
        page.on(
            "response",
            lambda reply: (
                reply.status >= 400 and seen.complaints.append(f"{reply.status} {reply.url}")
            ),
        )
        page.on(
            "console",
            lambda line: line.type == "error" and seen.complaints.append(f"console {line.text}"),
        )
        page.goto(f"{site}/{path}", wait_until="load")
        page.evaluate("() => window.MathJax?.startup?.promise")
        page.evaluate("() => document.fonts.ready")
        try:
            yield seen
        finally:
            context.close()

    return opened
