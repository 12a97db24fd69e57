"""Downloads are believed only when size and digest are right."""

import hashlib
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from gpt2lib.data import load_corpus
from gpt2lib.data.download import DOWNLOADS, Download, cache_folder, fetch

CONTENT = b"First.\n\nSecond.\n\nThird.\n"


@pytest.fixture
def cache(tmp_path, monkeypatch):
    folder = tmp_path / "a cache"
    monkeypatch.setenv("GPT2LIB_CACHE", str(folder))
    return folder


@pytest.fixture
def source(monkeypatch):
    """Serve CONTENT on this machine, and make it a known corpus; yields the requests made."""
    asked = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            self.send_response(200)
            self.end_headers()
            self.wfile.write(Handler.content)

        def log_message(self, *_):
            pass

    Handler.content = CONTENT
    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    known = Download(
        f"http://127.0.0.1:{server.server_port}/input.txt",
        "known.txt",
        len(CONTENT),
        hashlib.sha256(CONTENT).hexdigest(),
    )
    monkeypatch.setitem(DOWNLOADS, "tinyshakespeare", known)
    yield asked, Handler
    server.shutdown()
    server.server_close()
    thread.join()


def test_downloaded_once_then_taken_from_the_cache(cache, source):
    asked, _ = source
    first = load_corpus("tinyshakespeare")
    assert load_corpus("tinyshakespeare") == first
    assert len(asked) == 1
    assert (cache / "known.txt").read_bytes() == CONTENT
    assert [p.name for p in cache.iterdir()] == ["known.txt"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (CONTENT[:-1], f"{len(CONTENT) - 1} bytes, not {len(CONTENT)}"),
        (CONTENT + b"x" * 1000, f"more than {len(CONTENT)} bytes"),
        (b"X" + CONTENT[1:], "SHA-256"),
        (b"<html>Sign in</html>", "bytes, not"),
    ],
)
def test_another_file_is_refused_and_not_kept(cache, source, content, message):
    _, handler = source
    handler.content = content
    with pytest.raises(ValueError, match=message):
        fetch("tinyshakespeare")
    assert not cache.exists()


def test_a_damaged_cache_is_found(cache, source):
    path = fetch("tinyshakespeare")
    path.write_bytes(b"X" + CONTENT[1:])
    with pytest.raises(ValueError, match=r"known.txt: SHA-256 .* delete it"):
        fetch("tinyshakespeare")


@pytest.mark.parametrize("name", sorted(DOWNLOADS))
def test_without_a_network_one_line_says_which_file_goes_where(cache, monkeypatch, name):
    unreachable = DOWNLOADS[name]._replace(url="http://127.0.0.1:9/input.txt")
    monkeypatch.setitem(DOWNLOADS, name, unreachable)
    with pytest.raises(ValueError, match="put the file from") as caught:
        load_corpus(name)
    message = str(caught.value)
    assert "\n" not in message
    assert str(cache / unreachable.file) in message


@pytest.mark.parametrize("name", sorted(DOWNLOADS))
def test_what_is_known_of_each_file_is_complete(name):
    known = DOWNLOADS[name]
    assert known.url.startswith("https://")
    assert len(known.sha256) == 64
    assert int(known.sha256, 16)
    assert known.size > 10**6


def test_the_cache_is_where_the_system_keeps_caches(monkeypatch, tmp_path):
    monkeypatch.delenv("GPT2LIB_CACHE", raising=False)
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "gpt2lib"
    monkeypatch.setattr("sys.platform", "win32")
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path / "local"))
    assert cache_folder() == tmp_path / "local" / "gpt2lib"
