"""What this book asks of Sphinx beyond its extensions.

* Formulas come from the reader's own copy of MathJax, taken out of a wheel at build time.
* Outputs are never older than the library: a digest of the library, its data and the versions of
  what it stands on is part of the execution cache's path and of Sphinx's own configuration.
* The kernels are compiled before a cell is executed, so that no page shows or times the compiler.
* A page with a failed cell fails the build, with or without ``-W``.
* Nothing on a page comes from another origin.
* A Python name in a docstring finds its entry in the reference by whatever path it is written.
* The build ends with a table of how long each page took to execute.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx
from sphinx.errors import ExtensionError
from sphinx.util import logging

logger = logging.getLogger(__name__)

MATHJAX = ("tex-chtml-full.js", "output/chtml/fonts/woff-v2")
_COMPILE = """
from gpt2lib.kernels import compile_all, matmul
compile_all("float32", "float64")
for rung in matmul.RUNGS:
    matmul.address(rung, "float32")
"""
# What a cell's output depends on, next to the cell itself.
DEPENDS_ON = ("numpy", "scipy", "numba", "matplotlib", "tiktoken", "ipywidgets")
IGNORED = {"__pycache__", ".nbi", ".nbc", ".pyc"}


def digest(root: Path) -> str:
    """Return a digest of everything outside the notebooks that an output can depend on."""
    state = hashlib.sha256(sys.version.encode())
    for name in DEPENDS_ON:
        try:
            state.update(f"{name}=={importlib.metadata.version(name)}\n".encode())
        except importlib.metadata.PackageNotFoundError:
            state.update(f"no {name}\n".encode())
    for folder in ("gpt2lib", "benchmarks/results"):
        for path in sorted((root / folder).rglob("*")):
            if path.is_file() and not IGNORED & {path.suffix, *path.parts}:
                state.update(path.relative_to(root).as_posix().encode())
                state.update(hashlib.sha256(path.read_bytes()).digest())
    return state.hexdigest()[:16]


def sources(root: Path) -> str:
    """Return a digest of the book's own files; with :func:`digest` it tells a stale build."""
    state = hashlib.sha256()
    for folder, pattern in ((".", "_*.yml"), ("book", "**/*"), ("chapters", "*.ipynb")):
        for path in sorted((root / folder).glob(pattern)):
            if path.is_file() and not IGNORED & {path.suffix, *path.parts}:
                state.update(path.relative_to(root).as_posix().encode())
                state.update(hashlib.sha256(path.read_bytes()).digest())
    return state.hexdigest()[:16]


def _stamp(app: Sphinx, error: Exception | None) -> None:
    """Leave a note of what the pages were built from, for the tests that read them."""
    if error is None:
        root = Path(app.srcdir)
        note = f"{digest(root)} {sources(root)}\n"
        (Path(app.outdir).parent / "built-from.txt").write_text(note, encoding="utf-8")


def _key_outputs(app: Sphinx, config: Any) -> None:
    root = Path(app.srcdir)
    config.gpt2book_digest = digest(root)
    if config.nb_execution_mode == "cache":
        caches = Path(app.outdir).parent / ".jupyter_cache"
        for stale in caches.glob("*"):
            if stale.name != config.gpt2book_digest:
                shutil.rmtree(stale, ignore_errors=True)
        config.nb_execution_cache_path = str(caches / config.gpt2book_digest)


def _copy_mathjax(app: Sphinx, error: Exception | None) -> None:
    if error is not None or app.builder.format != "html":
        return
    spec = importlib.util.find_spec("mathjax")
    places = list(spec.submodule_search_locations or []) if spec else []
    if not places:
        raise ExtensionError("MathJax is missing: pip install -r requirements.txt")
    source = Path(places[0]) / "static" / "mathjax" / "es5"
    target = Path(app.outdir) / "_static" / "mathjax"
    for name in MATHJAX:
        if (source / name).is_dir():
            shutil.copytree(source / name, target / name, dirs_exist_ok=True)
        else:
            target.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source / name, target / name)


def _same_origin(
    app: Sphinx, pagename: str, templatename: str, context: dict[str, Any], doctree: Any
) -> None:
    """Drop Thebe's scripts: they name a server elsewhere, and the book does not use them."""
    for kind in ("script_files", "css_files"):
        context[kind] = [
            file
            for file in context.get(kind, [])
            if "thebe" not in f"{file} {getattr(file, 'attributes', '')}".lower()
        ]


def _exists(names: list[str]) -> bool:
    """Return whether one of the dotted names can be reached by importing."""
    for name in names:
        parts = name.split(".")
        for length in range(len(parts), 0, -1):
            try:
                found = importlib.import_module(".".join(parts[:length]))
            except ImportError:
                continue
            try:
                for part in parts[length:]:
                    found = getattr(found, part)
            except AttributeError:
                break
            return True
    return False


def _find_python(app: Sphinx, env: Any, node: Any, contnode: Any) -> Any:
    """Resolve a name that a docstring uses but the reference documents under another path.

    ``gpt2lib.ops.gelu.gelu_forward`` is documented as ``gpt2lib.ops.gelu_forward``. What exists and
    is documented nowhere stays plain text; what does not exist stays a warning.
    """
    if node.get("refdomain") != "py":
        return None
    target = node["reftarget"]
    domain = env.get_domain("py")
    tail = target.split(".")
    for keep in range(len(tail), 0, -1):
        suffix = "." + ".".join(tail[-keep:])
        names = sorted((n for n in domain.objects if n.endswith(suffix)), key=len)
        if names and (keep > 1 or len(names) == 1):
            kind = domain.objects[names[0]].objtype
            role = domain.role_for_objtype(kind) or "obj"
            return domain.resolve_xref(
                env, node["refdoc"], app.builder, role, names[0], node, contnode
            )
    owners = [node.get("py:module"), f"{node.get('py:module')}.{node.get('py:class')}"]
    return contnode if _exists([target, *(f"{owner}.{target}" for owner in owners)]) else None


def _whole_sentences(
    app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]
) -> None:
    """Keep napoleon from reading "Heads: how many" above a property as a type and a text."""
    if what == "property":
        lines.insert(0, "")


def _compile_kernels(app: Sphinx) -> None:
    """Have all kernels compiled before a cell uses one.

    Else the first build on a machine would show the line that says so in the middle of a page, and
    a cell that times something might time the compiler.
    """
    if app.config["nb_execution_mode"] == "off":
        return
    logger.info("compiling the kernels, where that has not been done")
    done = subprocess.run([sys.executable, "-c", _COMPILE], capture_output=True, text=True)
    if done.returncode:  # the cells will say what is wrong, each in its place
        logger.info(done.stderr)


def _report(app: Sphinx, error: Exception | None) -> None:
    data = getattr(app.env, "nb_metadata", {})
    pages = {page: meta["exec_data"] for page, meta in data.items() if "exec_data" in meta}
    if error is None and pages:
        total = 0.0
        logger.info("\nexecution time, seconds")
        for page, run in sorted(pages.items()):
            seconds = run.get("runtime") or 0.0
            total += seconds
            mark = "" if run.get("succeeded") else "  FAILED"
            logger.info(f"{seconds:8.1f}  {page}{mark}")
        logger.info(f"{total:8.1f}  all pages")
    failed = sorted(page for page, run in pages.items() if not run.get("succeeded"))
    for page in failed:
        trace = pages[page].get("traceback") or "no trace was recorded"
        print(f"\n{page}:\n{re.sub(chr(27) + r'[[0-9;]*m', '', trace)}", file=sys.stderr)
    if failed and error is None:
        raise ExtensionError(f"a cell failed in {', '.join(failed)}: see the trace above")


def setup(app: Sphinx) -> dict[str, Any]:
    """Connect the pieces."""
    app.add_config_value("gpt2book_digest", "", "env", str)
    app.connect("config-inited", _key_outputs, priority=900)
    app.connect("builder-inited", _compile_kernels)
    app.connect("missing-reference", _find_python)
    app.connect("autodoc-process-docstring", _whole_sentences, priority=100)
    app.connect("html-page-context", _same_origin, priority=900)
    app.connect("build-finished", _copy_mathjax)
    app.connect("build-finished", _report, priority=900)
    app.connect("build-finished", _stamp, priority=950)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
