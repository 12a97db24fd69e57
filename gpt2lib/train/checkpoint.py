"""A run in one file: weights, AdamW's means, and everything else that the next step depends on."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any, NamedTuple

from gpt2lib.config import GPT2Config
from gpt2lib.optimizer import AdamW
from gpt2lib.weights.digest import write_sealed
from gpt2lib.weights.model_file import fill_parameters, open_model
from gpt2lib.weights.safetensors import TensorFile

FORMAT = "gpt2lib-checkpoint"
NAME = "checkpoint.safetensors"
# What a continuation needs, besides the tensors.
_STATE = ("step", "settings", "batches", "data", "tokenizer", "corpus", "seconds", "backend")


class Checkpoint(NamedTuple):
    """A checkpoint, opened and checked.

    Attributes
    ----------
    file
        The tensors: a model's under their own names, AdamW's as ``m.…`` and ``v.…``.
    config
        The model's shape.
    state
        ``step`` (steps made), ``settings`` (of :class:`~gpt2lib.train.config.TrainConfig`),
        ``batches`` (place in the data and state of the random generator), ``data`` and
        ``tokenizer`` (digests), ``corpus``, ``seconds`` (of training), ``backend``.
    """

    file: TensorFile
    config: GPT2Config
    state: dict[str, Any]


def save_checkpoint(
    path: str | os.PathLike[str], optimizer: AdamW, state: dict[str, Any], **notes: str
) -> None:
    """Write a checkpoint: whole, or not at all (the last one then stays).

    Weights and means are in the same file, so they cannot be of different steps. A model can be
    read from it as from any model file (:func:`gpt2lib.weights.load_model`).
    """
    parameters = optimizer.parameters
    tensors = dict(parameters)
    tensors |= {f"m.{name}": view for name, view in optimizer.m.items()}
    tensors |= {f"v.{name}": view for name, view in optimizer.v.items()}
    metadata = {
        **notes,
        "format": FORMAT,
        "config": json.dumps(parameters.config.to_dict()),
        "state": json.dumps(state),
    }
    write_sealed(path, tensors, metadata)


def open_checkpoint(path: str | os.PathLike[str]) -> Checkpoint:
    """Open a checkpoint and check every byte of it.

    Raises
    ------
    ValueError
        When it is damaged, or something else than a checkpoint; names the file, the place and the
        remedy.
    OSError
        When it cannot be opened.
    """
    path = Path(path)
    folder = path.parent
    file, config = open_model(
        path,
        f"Copy it again if it came from elsewhere; otherwise remove {folder} and train again.",
    )
    if file.metadata.get("format") != FORMAT:
        raise ValueError(
            f"{path} is a model without AdamW's state, not a checkpoint: nothing to resume."
        )
    try:
        state = json.loads(file.metadata["state"])
        missing = [key for key in _STATE if key not in state]
    except (KeyError, ValueError, TypeError) as error:
        raise ValueError(f"{path} has no readable training state ({error}).") from None
    if missing:
        raise ValueError(f"{path} has no {', '.join(missing)} in its training state.")
    return Checkpoint(file, config, state)


def restore_optimizer(checkpoint: Checkpoint, optimizer: AdamW) -> None:
    """Fill weights, m, v and the step count from a checkpoint.

    Raises
    ------
    ValueError
        When the model has another shape, or a tensor is missing.
    """
    path = checkpoint.file.path
    if checkpoint.config != optimizer.parameters.config:
        raise ValueError(
            f"{path} is of {checkpoint.config}, the model is {optimizer.parameters.config}."
        )
    fill_parameters(optimizer.parameters, checkpoint.file, path)
    fill_parameters(optimizer.m, checkpoint.file, path, prefix="m.")
    fill_parameters(optimizer.v, checkpoint.file, path, prefix="v.")
    optimizer.t = int(checkpoint.state["step"])


def tokenizer_digest(tokenizer: Any) -> str:
    """Return a SHA-256 over every token's bytes: equal exactly when ids mean the same."""
    sha = hashlib.sha256()
    for token in range(tokenizer.vocab_size):
        piece = tokenizer.token_bytes(token)
        sha.update(len(piece).to_bytes(4, "little") + piece)
    sha.update(f"end of text: {tokenizer.end_of_text}".encode())
    return sha.hexdigest()


def data_digest(dataset: Any) -> str:
    """Return a SHA-256 over the tokens of both sides, so that other data are noticed."""
    sha = hashlib.sha256()
    for stream in (dataset.train, dataset.validation):
        tokens = stream.tokens
        sha.update(f"{len(tokens)}:".encode())
        for lo in range(0, len(tokens), 1 << 20):
            sha.update(tokens[lo : lo + (1 << 20)].astype("<i8").tobytes())
    return sha.hexdigest()
