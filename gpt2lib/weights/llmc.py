"""llm.c's binary files: models (``gpt2_124M.bin``) and the debug state of its test.

Each begins with 256 int32 numbers, little-endian; the first is a magic number, the second a
version. Then come the tensors, without names, each *stacked over the layers* and with weights
(out, in), the transpose of ours. The vocabulary is padded to a multiple of 128 rows.

Source: ``write_model`` and ``write_state`` of ``train_gpt2.py`` and ``test_gpt2.c`` in
https://github.com/karpathy/llm.c.
"""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from gpt2lib._files import atomic_write, check_regular
from gpt2lib.config import GPT2Config
from gpt2lib.model import GPT2
from gpt2lib.parameters import Array, Parameters
from gpt2lib.weights.safetensors import bfloat16_to_float32, float32_to_bfloat16

_HEADER = 256  # int32 numbers
_MODEL, _STATE = 20240326, 20240327
_KINDS = {
    _MODEL: "a model",
    _STATE: "a debug state",
    20240328: "a tokenizer",
    20240520: "a token shard (uint16)",
    20240801: "a token shard (uint32)",
}
_VERSIONS = {3: "float32", 5: "bfloat16"}
_PAD = 128  # rows: the vocabulary is padded to a multiple of it
# The order in the file, with our name of each layer's part; {} marks what is stacked over layers.
_ORDER = (
    "wte",
    "wpe",
    "h.{}.ln_1.weight",
    "h.{}.ln_1.bias",
    "h.{}.attn.c_attn.weight",
    "h.{}.attn.c_attn.bias",
    "h.{}.attn.c_proj.weight",
    "h.{}.attn.c_proj.bias",
    "h.{}.ln_2.weight",
    "h.{}.ln_2.bias",
    "h.{}.mlp.c_fc.weight",
    "h.{}.mlp.c_fc.bias",
    "h.{}.mlp.c_proj.weight",
    "h.{}.mlp.c_proj.bias",
    "ln_f.weight",
    "ln_f.bias",
)


class DebugState(NamedTuple):
    """What llm.c's test compares with: one batch, and what PyTorch made of it.

    Attributes
    ----------
    ids, targets
        (B, T) integers.
    logits
        (B, T, V) float32.
    loss
        Mean cross-entropy in nats.
    gradients
        Of every parameter.
    """

    ids: Array
    targets: Array
    logits: Array
    loss: float
    gradients: Parameters


def load_llmc(path: str | os.PathLike[str], *, dtype: Any = np.float32, **backend: Any) -> GPT2:
    """Read a model file of llm.c, version 3 (float32) or 5 (bfloat16).

    Parameters
    ----------
    path
        Such as ``gpt2_124M.bin`` or ``gpt2_124M_bf16.bin``.
    dtype
        float32, or float64 to check gradients.
    **backend
        ``backend``, ``runtime``, ``threads``, ``matmul`` of :class:`gpt2lib.model.GPT2`.

    Raises
    ------
    ValueError
        For another kind of file, another version or byte order, or another length than the header
        asks for; says what was expected and what was found.
    """
    path = Path(path)
    check_regular(path)
    with path.open("rb") as file:
        header = _read_header(file, path, _MODEL)
        kind = _VERSIONS.get(int(header[1]))
        if kind is None:
            raise ValueError(
                f"{path}: expected a model file of version 3 (float32) or 5 (bfloat16), "
                f"found version {header[1]}."
            )
        config, padded = _config(header, path)
        item = 4 if kind == "float32" else 2
        _check_size(file, path, 4 * _HEADER + item * _padded_count(config, padded))
        parameters = Parameters(config, dtype)
        _read_tensors(file, parameters, padded, kind)
    return GPT2(config, parameters=parameters, **backend)


def save_llmc(
    path: str | os.PathLike[str], model: GPT2 | Parameters, *, dtype: str = "float32"
) -> None:
    """Write a model file that llm.c reads.

    Parameters
    ----------
    path
        The file.
    model
        The model, or its parameters.
    dtype
        ``"float32"`` (version 3) or ``"bfloat16"`` (version 5, rounded to nearest even).
    """
    version = next((v for v, name in _VERSIONS.items() if name == dtype), None)
    if version is None:
        raise ValueError(f"dtype must be 'float32' or 'bfloat16', got {dtype!r}.")
    parameters = model if isinstance(model, Parameters) else model.parameters
    config = parameters.config
    padded = -(-config.vocab_size // _PAD) * _PAD
    header = np.zeros(_HEADER, "<i4")
    header[:8] = (
        _MODEL,
        version,
        config.context,
        config.vocab_size,
        config.layers,
        config.heads,
        config.channels,
        padded,
    )
    with atomic_write(path) as temporary, temporary.open("wb") as file:
        file.write(header.tobytes())
        for name in _ORDER:
            for tensor in _layers(parameters, name):
                data = np.ascontiguousarray(_turned(tensor, name), "<f4")
                if name == "wte":
                    data = np.pad(data, ((0, padded - config.vocab_size), (0, 0)))
                file.write((data if version == 3 else float32_to_bfloat16(data)).tobytes())


def read_debug_state(path: str | os.PathLike[str], config: GPT2Config) -> DebugState:
    """Read llm.c's debug state, version 2: inputs, logits, loss and gradients of one batch.

    Parameters
    ----------
    path
        Such as ``gpt2_124M_debug_state.bin``.
    config
        The model's shape, which the file does not tell.

    Raises
    ------
    ValueError
        As :func:`load_llmc`.
    """
    path = Path(path)
    with path.open("rb") as file:
        header = _read_header(file, path, _STATE)
        version, batch, seq = (int(n) for n in header[1:4])
        if version != 2:
            raise ValueError(f"{path}: expected a debug state of version 2, found {version}.")
        if not (batch > 0 and 0 < seq <= config.context):
            raise ValueError(f"{path}: a batch of {batch} x {seq} tokens does not fit {config}.")
        padded = -(-config.vocab_size // _PAD) * _PAD
        tokens = batch * seq
        numbers = 2 * tokens + tokens * config.vocab_size + 1 + _padded_count(config, padded)
        _check_size(file, path, 4 * (_HEADER + numbers))
        ids, targets = (_take(file, "<i4", (batch, seq)).astype(np.int64) for _ in range(2))
        logits = _take(file, "<f4", (batch, seq, config.vocab_size))
        loss = float(_take(file, "<f4", (1,))[0])
        gradients = Parameters(config)
        _read_tensors(file, gradients, padded, "float32")
    return DebugState(ids, targets, logits, loss, gradients)


def _read_header(file: BinaryIO, path: Path, magic: int) -> Array:
    """Return the 256 numbers at a file's start, after checking what kind of file it is."""
    data = file.read(4 * _HEADER)
    expected = f"expected {_KINDS[magic]} of llm.c (magic {magic})"
    if len(data) < 4 * _HEADER:
        raise ValueError(
            f"{path}: {expected}, found a file of {len(data)} bytes: too short for the header."
        )
    header = np.frombuffer(data, "<i4")
    found = int(header[0])
    if found == magic:
        return header
    if int(header[:1].byteswap()[0]) in _KINDS:
        raise ValueError(f"{path}: {expected}, found one whose bytes are in big-endian order.")
    what = f"{_KINDS[found]} (magic {found})" if found in _KINDS else f"the number {found}"
    raise ValueError(f"{path}: {expected}, found {what}.")


def _config(header: Array, path: Path) -> tuple[GPT2Config, int]:
    """Return the shape that a model's header tells, and the rows of its padded vocabulary."""
    context, vocab, layers, heads, channels, padded = (int(n) for n in header[2:8])
    try:
        config = GPT2Config(vocab, context, layers, heads, channels)
    except ValueError as error:
        raise ValueError(f"{path}: the header describes no GPT-2: {error}") from None
    if padded < vocab:
        raise ValueError(f"{path}: a padded vocabulary of {padded} cannot hold {vocab} tokens.")
    return config, padded


def _check_size(file: BinaryIO, path: Path, expected: int) -> None:
    """Refuse a file that is longer or shorter than its header says, before reading on."""
    found = os.fstat(file.fileno()).st_size
    if found != expected:
        raise ValueError(
            f"{path}: the header asks for {expected:,} bytes in all, the file has {found:,}: "
            "it was cut short, or it is of another kind."
        )


def _padded_count(config: GPT2Config, padded: int) -> int:
    return config.parameter_count + (padded - config.vocab_size) * config.channels


def _read_tensors(file: BinaryIO, parameters: Parameters, padded: int, kind: str) -> None:
    """Fill parameters from a file, layer after layer, so that no second copy of all exists."""
    for name in _ORDER:
        for tensor in _layers(parameters, name):
            target = _turned(tensor, name)  # a view: writing to it writes to the parameters
            shape = (padded, tensor.shape[1]) if name == "wte" else target.shape
            if kind == "float32":
                data = _take(file, "<f4", shape)
            else:
                data = bfloat16_to_float32(_take(file, "<u2", shape))
            target[...] = data[: target.shape[0]]


def _layers(parameters: Parameters, name: str) -> list[Array]:
    """Return the tensors that a name of :data:`_ORDER` stands for: one, or one a layer."""
    if "{}" not in name:
        return [parameters[name]]
    return [parameters[name.format(layer)] for layer in range(parameters.config.layers)]


def _turned(tensor: Array, name: str) -> Array:
    """Return a view of a tensor as llm.c has it: linear weights (out, in), all else the same."""
    return tensor.T if name.startswith("h.") and tensor.ndim == 2 else tensor


def _take(file: BinaryIO, dtype: str, shape: tuple[int, ...]) -> Array:
    return np.fromfile(file, dtype, math.prod(shape)).reshape(shape)
