"""The machine code on disk: made once, never stale, safe to share; and the rule behind that."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import gpt2lib
from gpt2lib.kernels import _compile, kernels

PACKAGE = Path(gpt2lib.__file__).parent
CALL = """
import numpy as np
from gpt2lib import kernels
x = np.float32([[1, 2, 4]])
print(kernels.load("sequential").residual_forward(x, x).tolist())
"""


def run(code, cache, *, root=None, **environment):
    variables = {**os.environ, "GPT2LIB_CACHE_DIR": str(cache), **environment}
    if root is not None:
        variables["PYTHONPATH"] = str(root)
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True, text=True, env=variables, timeout=300, check=False, cwd=root,
    )  # fmt: skip


def test_compiles_once_and_says_so(tmp_path):
    first, second = run(CALL, tmp_path), run(CALL, tmp_path)
    assert first.stdout == second.stdout == "[[2.0, 4.0, 8.0]]\n"
    assert "compiling" in first.stderr
    assert first.stderr.count("\n") == 1
    assert second.stderr == ""


def test_two_processes_at_once(tmp_path):
    variables = {**os.environ, "GPT2LIB_CACHE_DIR": str(tmp_path)}
    both = [
        subprocess.Popen([sys.executable, "-c", CALL], stdout=subprocess.PIPE, env=variables)
        for _ in range(2)
    ]
    assert [p.communicate(timeout=300)[0] for p in both] == [b"[[2.0, 4.0, 8.0]]\n"] * 2


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    """A copy of the package that may be edited, and a cache of its own."""
    root = tmp_path_factory.mktemp("copy")
    skip = shutil.ignore_patterns("__pycache__", "models", "widgets", "figures")
    shutil.copytree(PACKAGE, root / "gpt2lib", ignore=skip)
    return root


def test_an_edited_constant_or_helper_is_noticed(copy, tmp_path):
    code = """
import numpy as np
from gpt2lib import kernels
import gpt2lib
print(gpt2lib.__file__)
x = np.float32([1.0, -1.0])
backend = kernels.load("sequential")
print(backend.gelu_forward(x).tolist(), backend.residual_forward(x, x).tolist())
"""
    before = run(code, tmp_path, root=copy).stdout.splitlines()
    assert before[0].startswith(str(copy))
    math = copy / "gpt2lib" / "kernels" / "_math.py"
    math.write_text(math.read_text().replace("CUBIC = 0.044715", "CUBIC = 0.5"))
    between = run(code, tmp_path, root=copy).stdout.splitlines()
    assert between[1] != before[1]
    body = copy / "gpt2lib" / "kernels" / "residual.py"
    body.write_text(body.read_text().replace("c[i] = a[i] + b[i]", "c[i] = a[i] - b[i]"))
    after = run(code, tmp_path, root=copy).stdout.splitlines()
    assert after[1].endswith("[0.0, 0.0]")


def test_a_cache_that_cannot_be_written(tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")  # root may write anywhere, but not into a file
    done = run(CALL, blocked)
    assert done.stdout == "[[2.0, 4.0, 8.0]]\n"
    assert done.returncode == 0


def test_bounds_are_kept(tmp_path):
    """With Numba's checks on, the small shapes of the other tests touch nothing out of bounds."""
    code = """
from gpt2lib import kernels, ops
from tests.kernels.cases import SHAPES, cases
backend = kernels.load("sequential")
for case in cases(SHAPES[1], "float32"):
    case.run(backend)
print("done")
"""
    root = PACKAGE.parent
    done = run(code, _compile._user_cache(), root=root, NUMBA_BOUNDSCHECK="1")
    assert done.stdout == "done\n"
    complaints = [line for line in done.stderr.splitlines() if "compiling" not in line]
    assert complaints == []


def test_kernels_use_their_own_file_and_underscored_files_only():
    """Else an edit elsewhere would not change the digest, and old machine code would run."""
    folder = PACKAGE / "kernels"
    for name, kernel in kernels().items():
        file = Path(kernel.body.__code__.co_filename)
        used = set(kernel.body.__code__.co_names)
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.ImportFrom) or not (node.module or "").startswith(
                "gpt2lib"
            ):
                continue
            imported = {alias.asname or alias.name for alias in node.names}
            if imported & used:
                assert (node.module or "").startswith("gpt2lib.kernels._"), (name, node.module)
    assert {path.name for path in folder.glob("_*.py")} >= {"_math.py", "_blas.py", "_tiles.py"}


def test_threads_and_cache_settings_leave_the_digest_alone(monkeypatch):
    before = _compile.common_digest()
    monkeypatch.setenv("NUMBA_NUM_THREADS", "1")
    assert _compile.common_digest() == before
    monkeypatch.setenv("NUMBA_BOUNDSCHECK", "1")
    assert _compile.common_digest() != before


def test_an_argument_of_an_unknown_kind_is_refused():
    def body(lo: int, hi: int, x: int) -> None: ...

    with pytest.raises(TypeError, match="x"):
        _compile.Kernel(body)


def test_compile_all_leaves_nothing_to_compile():
    import gpt2lib.kernels

    gpt2lib.kernels.compile_all()
    assert all("float32" in kernel._entries for kernel in kernels().values())


def test_the_address_of_any_array():
    whole = np.zeros((3, 4), np.float32)
    fixed = whole.copy()
    fixed.flags.writeable = False
    for array in (whole, whole[1:], fixed, np.empty((0, 4), np.float64), whole.T):
        assert _compile._address(array) == array.ctypes.data
