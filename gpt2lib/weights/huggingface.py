"""Hugging Face's GPT-2: its names, its ``config.json``, its sharded files.

Their linear layers are ``Conv1D``, whose weight is (in, out) like ours: nothing is transposed. The
causal masks that old checkpoints carry (``attn.bias``, ``attn.masked_bias``) are not parameters
and are left out; ``lm_head.weight`` is ``wte`` once more.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from gpt2lib._files import atomic_write, check_regular
from gpt2lib.config import GPT2Config
from gpt2lib.model import GPT2
from gpt2lib.parameters import Array, Parameters
from gpt2lib.weights.safetensors import TensorFile, write_tensors

_WEIGHTS = "model.safetensors"
_INDEX = "model.safetensors.index.json"
_PREFIX = "transformer."
_MASKS = (".attn.bias", ".attn.masked_bias")
_MOST = 10**12  # parameters: a thousand times GPT-2's largest model
# Settings of GPT2Config (transformers) that change what is computed, with what GPT-2 has.
_FIXED: dict[str, tuple[Any, ...]] = {
    "model_type": ("gpt2",),
    "activation_function": ("gelu_new", "gelu_pytorch_tanh"),
    "layer_norm_epsilon": (1e-5,),
    "scale_attn_weights": (True,),
    "scale_attn_by_inverse_layer_idx": (False,),
    "add_cross_attention": (False,),
    "tie_word_embeddings": (True,),
}
HUB_NAMES = {
    "gpt2": "openai-community/gpt2",
    "gpt2-medium": "openai-community/gpt2-medium",
    "gpt2-large": "openai-community/gpt2-large",
    "gpt2-xl": "openai-community/gpt2-xl",
}


def load_huggingface(
    name_or_path: str | os.PathLike[str],
    *,
    heads: int | None = None,
    dtype: Any = np.float32,
    **backend: Any,
) -> GPT2:
    """Read a GPT-2 in Hugging Face's form.

    Parameters
    ----------
    name_or_path
        A folder with ``config.json`` and ``model.safetensors`` (or its shards and their index), a
        ``.safetensors`` file, or a name on the hub such as ``gpt2`` or ``distilgpt2``.
    heads
        NH, for a file without a ``config.json`` beside it: shapes do not tell it. By default
        C / 64, as in every released GPT-2.
    dtype
        float32, or float64 to check gradients.
    **backend
        ``backend``, ``runtime``, ``threads``, ``matmul`` of :class:`gpt2lib.model.GPT2`.

    Raises
    ------
    ValueError
        For a model that is not a GPT-2, a missing or misshapen tensor, a damaged file.
    OSError
        When a name is given and there is no network; says which files to put where.
    """
    folder, files = _locate(name_or_path)
    tensors = _Tensors(folder, files)
    config = _read_config(folder, tensors, heads)
    parameters = Parameters(config, dtype)
    unused = set(tensors)
    for name, view in parameters.items():
        _copy(tensors, name, view)
        unused.discard(name if name.startswith(("h.", "ln_f")) else f"{name}.weight")
    _check_head(tensors, parameters["wte"])
    unused = {n for n in unused if not n.endswith(_MASKS) and n != "lm_head.weight"}
    if unused:
        raise ValueError(
            f"{folder}: the model has tensors that a GPT-2 of {config} has not: "
            f"{', '.join(sorted(unused)[:5])}."
        )
    return GPT2(config, parameters=parameters, **backend)


def save_huggingface(folder: str | os.PathLike[str], model: GPT2 | Parameters) -> None:
    """Write a folder that ``transformers.GPT2LMHeadModel.from_pretrained`` reads.

    Parameters
    ----------
    folder
        Made if it does not exist. Gets ``model.safetensors`` (float32) and ``config.json``.
    model
        The model, or its parameters.
    """
    parameters = model if isinstance(model, Parameters) else model.parameters
    config, target = parameters.config, Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    tensors = {
        _PREFIX + _theirs(name): view.astype(np.float32, copy=False)
        for name, view in parameters.items()
    }
    settings = {
        **{key: values[0] for key, values in _FIXED.items()},
        "architectures": ["GPT2LMHeadModel"],
        "vocab_size": config.vocab_size,
        "n_positions": config.context,
        "n_ctx": config.context,
        "n_embd": config.channels,
        "n_layer": config.layers,
        "n_head": config.heads,
        "n_inner": None,
        "bos_token_id": config.vocab_size - 1,
        "eos_token_id": config.vocab_size - 1,
    }
    write_tensors(target / _WEIGHTS, tensors, {"format": "pt"})  # transformers asks for this
    with atomic_write(target / "config.json") as temporary:
        temporary.write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")


class _Tensors:
    """The tensors of one or more files, by GPT-2's name without Hugging Face's prefix."""

    def __init__(self, folder: Path, files: list[Path]) -> None:
        self.folder = folder
        self._where: dict[str, tuple[TensorFile, str]] = {}
        for path in files:
            file = TensorFile(path)
            for name in file:
                self._where[name.removeprefix(_PREFIX)] = (file, name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._where)

    def __contains__(self, name: str) -> bool:
        return name in self._where

    def shape(self, name: str) -> tuple[int, ...]:
        if name not in self._where:
            raise ValueError(
                f"{self.folder} holds no tensor {name!r} (nor {_PREFIX + name!r}); it has "
                f"{', '.join(list(self._where)[:4]) or 'none at all'}, …"
            )
        file, stored = self._where[name]
        return file.shape(stored)

    def floats(self, name: str, dtype: Any) -> Array:
        file, stored = self._where[name]
        return file.floats(stored, dtype)


def _theirs(name: str) -> str:
    """Return Hugging Face's name of a parameter: the embeddings are modules with a weight."""
    return f"{name}.weight" if name in ("wte", "wpe") else name


def _copy(tensors: _Tensors, name: str, view: Array) -> None:
    theirs = _theirs(name)
    shape = tensors.shape(theirs)
    if shape != view.shape:
        raise ValueError(
            f"{tensors.folder}: the tensor {theirs!r} has shape {shape}, expected {view.shape} "
            "(weights are (in, out); a transposed file must be turned first)."
        )
    view[...] = tensors.floats(theirs, view.dtype)


def _check_head(tensors: _Tensors, wte: Array) -> None:
    """Refuse a head of its own: ours is ``wte``, so another one would be lost without a word."""
    name = "lm_head.weight"
    if name not in tensors:
        return
    same = tensors.shape(name) == wte.shape
    if not (same and np.array_equal(tensors.floats(name, wte.dtype), wte)):
        raise ValueError(
            f"{tensors.folder}: lm_head.weight is not wte.weight; a GPT-2 shares the two."
        )


def _read_config(folder: Path, tensors: _Tensors, heads: int | None) -> GPT2Config:
    """Return the shape from ``config.json`` where there is one, else from the tensors."""
    path = folder / "config.json"
    if not path.exists():
        return _config_from_shapes(tensors, heads)
    check_regular(path)
    try:
        settings = json.loads(path.read_text(encoding="utf-8"))
        config = GPT2Config(
            vocab_size=settings["vocab_size"],
            context=settings.get("n_positions", settings.get("n_ctx", 1024)),
            layers=settings["n_layer"],
            heads=settings["n_head"],
            channels=settings["n_embd"],
        )
    except KeyError as error:
        raise ValueError(f"{path} has no {error}, which a GPT-2's config.json has.") from None
    except (ValueError, TypeError, RecursionError) as error:
        raise ValueError(f"{path} is not the config.json of a GPT-2: {error}") from None
    if config.parameter_count > _MOST:
        raise ValueError(
            f"{path} describes a model of {config.parameter_count:.2g} parameters, which no file "
            "of weights holds. Take a whole copy of it."
        )
    for key, allowed in _FIXED.items():
        if settings.get(key, allowed[0]) not in allowed:
            raise ValueError(
                f"{path}: {key} is {settings[key]!r}; this GPT-2 computes with {allowed[0]!r} only."
            )
    if settings.get("n_inner") not in (None, 4 * config.channels):
        raise ValueError(f"{path}: n_inner is {settings['n_inner']}, not 4 x {config.channels}.")
    return config


def _config_from_shapes(tensors: _Tensors, heads: int | None) -> GPT2Config:
    """Return the shape as far as tensors tell it: everything but the number of heads."""
    vocab_size, channels = _pair(tensors, "wte.weight")
    context, _ = _pair(tensors, "wpe.weight")
    layers = 0
    while f"h.{layers}.ln_1.weight" in tensors:
        layers += 1
    if heads is None and channels % 64:
        raise ValueError(
            f"{tensors.folder} has no config.json, and {channels} channels do not make heads of "
            "64: say how many heads the model has (heads=…), or put its config.json there."
        )
    return GPT2Config(vocab_size, context, layers, heads or channels // 64, channels)


def _pair(tensors: _Tensors, name: str) -> tuple[int, int]:
    shape = tensors.shape(name)
    if len(shape) != 2:
        raise ValueError(f"{tensors.folder}: the tensor {name!r} has shape {shape}, not two sizes.")
    return shape[0], shape[1]


def _locate(name_or_path: str | os.PathLike[str]) -> tuple[Path, list[Path]]:
    """Return the folder and the weight files of a folder, a file or a name on the hub."""
    path = Path(name_or_path)
    if path.is_dir():
        return path, _files_in(path)
    if path.is_file():
        return path.parent, [path]
    text = os.fspath(name_or_path)
    if isinstance(text, str) and _looks_like_a_name(text):
        folder = _download(HUB_NAMES.get(text, text))
        return folder, _files_in(folder)
    raise FileNotFoundError(f"{name_or_path} does not exist (a folder or a .safetensors file).")


def _looks_like_a_name(text: str) -> bool:
    """Say whether this could be ``name`` or ``owner/name`` on the hub."""
    return text.count("/") <= 1 and not text.startswith((".", "/", "~")) and "\\" not in text


def _files_in(folder: Path) -> list[Path]:
    """Return a folder's weight files: one, or the shards that its index names."""
    whole, index = folder / _WEIGHTS, folder / _INDEX
    if whole.is_file():
        return [whole]
    if index.is_file():
        try:
            names = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise ValueError(
                f"{index} is not an index of shards: expected a weight_map from tensor to file "
                f"name ({error!r})."
            ) from None
        strange = [n for n in names if not isinstance(n, str) or Path(n).name != n]
        missing = [n for n in names if n not in strange and not (folder / n).is_file()]
        if strange or missing or not names:
            raise ValueError(
                f"{index} names shards that are not there: "
                f"{', '.join(map(str, sorted(strange + missing, key=str))) or 'none at all'}."
            )
        return sorted(folder / name for name in names)
    if (folder / "pytorch_model.bin").exists():
        raise ValueError(
            f"{folder} has its weights as pytorch_model.bin, a pickle, which can run any code "
            f"when it is opened; it is not read here. Put {_WEIGHTS} there."
        )
    raise FileNotFoundError(f"{folder} holds neither {_WEIGHTS} nor {_INDEX}.")


def _download(name: str) -> Path:
    """Fetch a model from the hub (or find it in the hub's cache); return its folder."""
    advice = (
        f"Put config.json and {_WEIGHTS} of https://huggingface.co/{name} into a folder and give "
        "the folder instead."
    )
    try:
        from huggingface_hub import snapshot_download
    except ImportError:
        if name not in HUB_NAMES.values() and "/" not in name:
            raise OSError(
                f"{name} is neither a folder nor a file, nor a model that is known by name "
                f"(tiny, {', '.join(HUB_NAMES)})."
            ) from None
        raise OSError(
            f"{name} is neither a folder nor a file, and huggingface_hub, which would fetch it, "
            f"is not installed (pip install huggingface_hub). {advice}"
        ) from None
    try:
        return Path(snapshot_download(name, allow_patterns=["config.json", "*.safetensors*"]))
    except Exception as error:  # whatever its network library raises
        line = (str(error) or type(error).__name__).splitlines()[0]
        raise OSError(f"{name} could not be fetched ({line}). {advice}") from None
