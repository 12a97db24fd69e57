"""Find a tokenizer by its name or its file."""

from __future__ import annotations

import os
from pathlib import Path

from gpt2lib.tokenizer.bpe import BPE

TINY = Path(__file__).parents[1] / "models" / "tiny-tokenizer.json"


def load_tokenizer(name_or_path: str | os.PathLike[str]) -> BPE:
    """Return a tokenizer by its name or from its file.

    Parameters
    ----------
    name_or_path
        ``"gpt2"``, ``"tiny"`` (that of the small model in this package), a file that
        :meth:`BPE.save` wrote, or a folder with such a file named ``tokenizer.json``.

    Raises
    ------
    ValueError
        Where there is none by that name, or the file is not a tokenizer's.
    """
    if name_or_path == "gpt2":
        from gpt2lib.tokenizer.gpt2_vocabulary import gpt2

        return gpt2()
    if name_or_path == "tiny":
        return BPE.load(TINY)
    path = Path(name_or_path)
    try:
        path = path / "tokenizer.json" if path.is_dir() else path
        exists = path.exists()
    except OSError:  # a name that is no file's name, such as a very long one
        exists = False
    if not exists:
        raise ValueError(
            f"there is no tokenizer {os.fspath(name_or_path)!r:.200}: give 'gpt2', 'tiny', or the "
            "path of a file that BPE.save() wrote"
        )
    return BPE.load(path)
