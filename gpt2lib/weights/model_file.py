"""A model of this library in one safetensors file: its parameters, its shape, its tokenizer."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from gpt2lib.config import GPT2Config
from gpt2lib.model import GPT2
from gpt2lib.parameters import Parameters
from gpt2lib.weights.digest import open_sealed, write_sealed
from gpt2lib.weights.safetensors import TensorFile

_REMEDY = "Copy it again from where it came, or train again."


def save_model(
    path: str | os.PathLike[str],
    model: GPT2 | Parameters,
    *,
    tokenizer_name: str | None = None,
    metadata: Mapping[str, str] | None = None,
) -> None:
    """Write a model's parameters, float32, under GPT-2's names; the head is ``wte``, written once.

    Parameters
    ----------
    path
        The file; an older one stays whole until the new one is.
    model
        The model, or its parameters.
    tokenizer_name
        The tokenizer whose ids the model knows.
    metadata
        More strings to carry: how it was trained, on what.

    Raises
    ------
    OSError
        When it cannot be written.
    """
    parameters = model if isinstance(model, Parameters) else model.parameters
    notes = {
        "format": "gpt2lib-model",
        "config": json.dumps(parameters.config.to_dict()),
        **({"tokenizer": tokenizer_name} if tokenizer_name else {}),
        **(metadata or {}),
    }
    tensors = {name: view.astype(np.float32, copy=False) for name, view in parameters.items()}
    write_sealed(path, tensors, notes)


def load_model(path: str | os.PathLike[str], *, dtype: Any = np.float32, **backend: Any) -> GPT2:
    """Read a model that :func:`save_model` wrote, or the model inside a training checkpoint.

    Parameters
    ----------
    path
        The file.
    dtype
        float32, or float64 to check gradients.
    **backend
        ``backend``, ``runtime``, ``threads``, ``matmul`` of :class:`gpt2lib.model.GPT2`.

    Raises
    ------
    ValueError
        For a file that is damaged, or holds something else than a whole model.
    """
    file, config = open_model(path)
    parameters = Parameters(config, dtype)
    fill_parameters(parameters, file, file.path)
    return GPT2(config, parameters=parameters, **backend)


def read_model_metadata(path: str | os.PathLike[str]) -> dict[str, str]:
    """Return the strings that a model file carries, after checking the file."""
    return dict(open_model(path)[0].metadata)


def open_model(
    path: str | os.PathLike[str], remedy: str = _REMEDY
) -> tuple[TensorFile, GPT2Config]:
    """Open and check a model file; return its tensors and the model's shape."""
    file = open_sealed(path, remedy=remedy)
    try:
        config = GPT2Config.from_dict(json.loads(file.metadata["config"]))
    except (KeyError, ValueError, TypeError) as error:
        raise ValueError(f"{path} does not say what shape its model has ({error}).") from None
    return file, config


def fill_parameters(
    parameters: Parameters, tensors: TensorFile, path: Path, prefix: str = ""
) -> None:
    """Copy tensors of a file into parameters, one by one, so that no second copy of all exists.

    Raises
    ------
    ValueError
        Naming the tensor that is missing or has another shape.
    """
    for name, view in parameters.items():
        stored = prefix + name
        if stored not in tensors:
            raise ValueError(f"{path} holds no tensor {stored!r}; the model needs one.")
        if tensors.shape(stored) != view.shape:
            raise ValueError(
                f"{path}: the tensor {stored!r} has shape {tensors.shape(stored)}, "
                f"the model needs {view.shape}."
            )
        view[...] = tensors.floats(stored, parameters.dtype)
