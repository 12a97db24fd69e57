"""What an import loads: NumPy and nothing heavier."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

LOADED = """
import json, sys
before = set(sys.modules)
{code}
new = [n for n in set(sys.modules) - before if getattr(sys.modules[n], "__spec__", None)]
print(json.dumps(sorted({{name.split('.')[0] for name in new}})))
"""


def loads(code: str) -> set[str]:
    """Return the top-level packages that running this loads, without the standard library's.

    (What has no ``__spec__`` was not imported: Cython puts such modules in for its own use.)
    """
    # -S keeps out what a .pth file of the environment may load beforehand, -I the current folder.
    paths = f"import sys; sys.path[:0] = {[p for p in sys.path if p]!r}\n"
    script = paths + LOADED.format(code=code)
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", script],
        capture_output=True, text=True, timeout=100, check=True,
    )  # fmt: skip
    return set(json.loads(done.stdout)) - set(sys.stdlib_module_names)


def test_gpt2lib_alone_loads_numpy_at_most():
    assert loads("import gpt2lib") <= {"gpt2lib", "numpy"}


@pytest.mark.parametrize(
    "code",
    [
        "import gpt2lib.ops",
        "from gpt2lib import GPT2, GPT2Config, Parameters, AdamW",
        "import gpt2lib.tokenizer.bpe",
        "import gpt2lib.check, gpt2lib.opcheck, gpt2lib.generate",
        (
            "from gpt2lib import GPT2, GPT2Config\n"
            "model = GPT2(GPT2Config(7, 4, 1, 1, 2), seed=0)\n"
            "model.loss([[1, 2]], [[2, 3]]); model.backward()\n"
            "from gpt2lib.generate import generate\n"
            "list(generate(model, [1], tokens=2))\n"
            "from gpt2lib.tokenizer.bpe import BPE\n"
            "BPE([]).decode(BPE([]).encode('x'))"
        ),
    ],
)
def test_the_model_and_the_tokenizer_need_numpy_only(code):
    # They run in a browser's Python too, where nothing else is installed.
    assert loads(code) <= {"gpt2lib", "numpy"}


def test_the_command_line_loads_little_to_say_what_it_can_do():
    code = (
        "from gpt2lib.cli import build_parser; build_parser(['check']); build_parser(['generate'])"
    )
    assert loads(code) <= {"gpt2lib", "numpy"}


def test_this_test_would_notice():
    assert "numba" in loads("import numba")


def test_every_public_name_is_there():
    import gpt2lib

    for name in gpt2lib.__all__:
        assert getattr(gpt2lib, name) is not None
    with pytest.raises(AttributeError, match="nothing_of_the_kind"):
        _ = gpt2lib.nothing_of_the_kind
