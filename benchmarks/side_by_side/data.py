"""What all contenders are given: the same weights, the same tokens, the same settings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from gpt2lib.config import GPT2Config
from gpt2lib.parameters import Parameters

# llm.c's, whose settings cannot be changed from outside.
ADAMW: dict[str, Any] = {"learning_rate": 1e-4, "betas": (0.9, 0.999), "eps": 1e-8}
WEIGHT_DECAY = 0.0


def write(folder: Path, config: GPT2Config, batch: int, seq: int, seed: int) -> None:
    """Write random weights, one batch of random tokens and the shape into ``folder``."""
    rng = np.random.default_rng(seed)
    np.save(folder / "weights.npy", Parameters.initialize(config, rng).flat)
    # One row of B*T + 1 tokens, as llm.c reads it: targets are the ids moved on by one.
    stream = rng.integers(0, config.vocab_size, batch * seq + 1)
    np.save(folder / "stream.npy", stream)
    shape = {"config": config.to_dict(), "batch": batch, "seq": seq}
    (folder / "shape.json").write_text(json.dumps(shape), encoding="utf-8")


def read_shape(folder: str | Path) -> tuple[GPT2Config, int, int]:
    """Return (config, batch, seq)."""
    shape = json.loads((Path(folder) / "shape.json").read_text(encoding="utf-8"))
    return GPT2Config.from_dict(shape["config"]), shape["batch"], shape["seq"]


def read_weights(folder: str | Path) -> Parameters:
    """Return the weights, in memory of their own."""
    config, _, _ = read_shape(folder)
    return Parameters(config, flat=np.load(Path(folder) / "weights.npy"))


def read_batch(folder: str | Path) -> tuple[np.ndarray, np.ndarray]:
    """Return ids and targets (B, T)."""
    _, batch, seq = read_shape(folder)
    stream = np.load(Path(folder) / "stream.npy")
    return stream[:-1].reshape(batch, seq), stream[1:].reshape(batch, seq)


def read_prompt(folder: str | Path, tokens: int) -> list[int]:
    """Return the first tokens of the stream: what generation begins with."""
    return np.load(Path(folder) / "stream.npy")[:tokens].tolist()
