"""A trained model together with its tokenizer, by name, folder or file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NamedTuple

from gpt2lib.model import GPT2
from gpt2lib.tokenizer import Tokenizer, load_tokenizer
from gpt2lib.weights.huggingface import HUB_NAMES, load_huggingface
from gpt2lib.weights.llmc import load_llmc
from gpt2lib.weights.model_file import load_model
from gpt2lib.weights.safetensors import TensorFile

_PACKAGED = Path(__file__).parent / "models"
PACKAGED_MODEL = _PACKAGED / "tiny.safetensors"
PACKAGED_TOKENIZER = _PACKAGED / "tiny-tokenizer.json"
_RUN_FILES = ("checkpoint.safetensors", "model.safetensors")


class Pretrained(NamedTuple):
    """A model and the tokenizer whose ids it knows; unpack it."""

    model: GPT2
    tokenizer: Tokenizer


def load(
    name_or_path: str | os.PathLike[str] = "tiny",
    *,
    backend: str = "numpy",
    runtime: str | None = None,
    threads: int | None = None,
) -> Pretrained:
    """Return a trained model and its tokenizer.

    Parameters
    ----------
    name_or_path
        - ``tiny``: the small model in this package, trained on its ``stories``;
        - ``gpt2``, ``gpt2-medium``, ``gpt2-large``, ``gpt2-xl``, or another name on the Hugging
          Face hub, where there is a network or the hub's cache;
        - a folder that ``gpt2lib train`` wrote, or one in Hugging Face's form;
        - a file: ``.safetensors`` (ours or Hugging Face's), ``.bin`` (llm.c's).
    backend, runtime, threads
        Who computes: see :class:`gpt2lib.model.GPT2`.

    Returns
    -------
    Pretrained
        ``model, tokenizer``.

    Raises
    ------
    ValueError
        For a file that is damaged or of another kind, or a tokenizer that does not fit the model.
    OSError
        When there is no such file, or no network for a name.

    Examples
    --------
    >>> model, tokenizer = load("tiny")               # doctest: +SKIP
    >>> model.forward(tokenizer.encode("Once upon a time")).shape   # doctest: +SKIP
    (4, 512)
    """
    kwargs: dict[str, Any] = {"backend": backend, "runtime": runtime, "threads": threads}
    if name_or_path == "tiny":
        return _own(PACKAGED_MODEL, PACKAGED_TOKENIZER, kwargs)
    path = Path(name_or_path)
    if name_or_path == "":
        raise ValueError(f"an empty name is no model: give {_KNOWN}, or a folder or file.")
    if name_or_path in HUB_NAMES and not path.exists():
        return _with_gpt2_vocabulary(load_huggingface(name_or_path, **kwargs), name_or_path)
    if path.is_dir():
        for name in _RUN_FILES:
            if _is_ours(path / name):
                return _own(path / name, path / "tokenizer.json", kwargs)
    elif path.is_file():
        if path.suffix == ".bin":
            return _with_gpt2_vocabulary(load_llmc(path, **kwargs), path)
        if _is_ours(path):
            beside = path.with_name(f"{path.stem}-tokenizer.json")
            if not beside.exists():
                beside = path.with_name("tokenizer.json")
            return _own(path, beside, kwargs)
    return _with_gpt2_vocabulary(load_huggingface(name_or_path, **kwargs), name_or_path)


_KNOWN = ", ".join(["tiny", *HUB_NAMES])


def _own(path: Path, tokenizer_path: Path, kwargs: dict[str, Any]) -> Pretrained:
    """Load a model of this library, and check that the tokenizer is the one of its training."""
    from gpt2lib.train.checkpoint import tokenizer_digest
    from gpt2lib.weights.model_file import read_model_metadata

    model = load_model(path, **kwargs)
    notes = read_model_metadata(path)
    name = notes.get("tokenizer", "gpt2")
    tokenizer = load_tokenizer(str(tokenizer_path) if tokenizer_path.exists() else name)
    expected = notes.get("tokenizer_sha256")
    if expected is not None and expected != tokenizer_digest(tokenizer):
        raise ValueError(
            f"{path} was trained with another tokenizer ({name}) than {tokenizer_path} has: "
            "copy the tokenizer of its run beside it."
        )
    return Pretrained(model, tokenizer)


def _is_ours(path: Path) -> bool:
    """Say whether a file is one of this library's (and not Hugging Face's)."""
    if not path.is_file():
        return False
    return TensorFile(path).metadata.get("format", "").startswith("gpt2lib-")


def _with_gpt2_vocabulary(model: GPT2, source: str | os.PathLike[str]) -> Pretrained:
    """Put GPT-2's tokenizer beside a model that speaks its vocabulary."""
    tokenizer = load_tokenizer("gpt2")
    if tokenizer.vocab_size > model.config.vocab_size:
        raise ValueError(
            f"{source} has a vocabulary of {model.config.vocab_size} tokens, not GPT-2's "
            f"{tokenizer.vocab_size}: load it with gpt2lib.weights and bring its own tokenizer."
        )
    return Pretrained(model, tokenizer)
