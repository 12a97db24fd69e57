"""What a forward leaves behind: activations for the backward, keys and values to read on with."""

from __future__ import annotations

import fnmatch
from typing import Any

import numpy as np

from gpt2lib.config import GPT2Config
from gpt2lib.ops._shapes import Array


class Activations:
    """What a forward leaves for its backward, for one (B, T); allocated once and used again.

    Every array is (L, …) where there is one a layer. The (T, T) attention probabilities are not
    among them.

    Parameters
    ----------
    config
        The model's shape.
    batch, seq
        B and T.
    dtype
        The parameters' type.
    """

    def __init__(self, config: GPT2Config, batch: int, seq: int, dtype: Any) -> None:
        L, C, NH = config.layers, config.channels, config.heads
        B, T = batch, seq
        self.shape = (B, T)
        # The residual stream before each block, and after the last.
        self.x = np.empty((L + 1, B, T, C), dtype)
        self.ln_1 = np.empty((L, B, T, C), dtype)
        self.ln_1_mean = np.empty((L, B, T), dtype)
        self.ln_1_rstd = np.empty((L, B, T), dtype)
        self.qkv = np.empty((L, B, T, 3 * C), dtype)
        self.lse = np.empty((L, B, NH, T), dtype)
        self.heads = np.empty((L, B, T, C), dtype)
        self.middle = np.empty((L, B, T, C), dtype)  # the residual stream between attention and MLP
        self.ln_2 = np.empty((L, B, T, C), dtype)
        self.ln_2_mean = np.empty((L, B, T), dtype)
        self.ln_2_rstd = np.empty((L, B, T), dtype)
        self.pre = np.empty((L, B, T, 4 * C), dtype)
        self.gelu = np.empty((L, B, T, 4 * C), dtype)
        self.ln_f = np.empty((B, T, C), dtype)
        self.ln_f_mean = np.empty((B, T), dtype)
        self.ln_f_rstd = np.empty((B, T), dtype)
        self.lse_logits = np.empty((B, T), dtype)
        self.losses = np.empty((B, T), dtype)
        # Scratch of one block, used by every block in turn, forward and backward.
        self.branch = np.empty((B, T, C), dtype)  # what a sub-layer adds to the stream
        self.masked = np.empty((B, T, C), dtype)  # the heads after the head mask

    def gradient_scratch(self) -> None:
        """Allocate what only a backward needs (generation and evaluation never do)."""
        if not hasattr(self, "dx"):
            B, T, C = self.ln_f.shape
            dtype = self.ln_f.dtype
            self.dx = np.empty((B, T, C), dtype)
            self.dbranch = np.empty((B, T, C), dtype)
            self.dheads = np.empty((B, T, C), dtype)
            self.dqkv = np.empty((B, T, 3 * C), dtype)
            self.dgelu = np.empty((B, T, 4 * C), dtype)


class Cache:
    """Keys and values of the tokens that a model has already read.

    Parameters
    ----------
    config
        The model's shape.
    batch
        How many sequences are decoded side by side.
    dtype
        The parameters' type.

    Attributes
    ----------
    keys, values
        (L, B, NH, context, hs).
    length
        How many positions are filled.
    """

    def __init__(self, config: GPT2Config, batch: int = 1, dtype: Any = np.float32) -> None:
        shape = (config.layers, batch, config.heads, config.context, config.head_size)
        self.keys = np.zeros(shape, dtype)
        self.values = np.zeros(shape, dtype)
        self.length = 0

    def clear(self) -> None:
        """Forget every token."""
        self.length = 0


class Recording:
    """Patterns of activation names, and the copies taken so far."""

    def __init__(self, patterns: tuple[str, ...]) -> None:
        self.patterns = patterns
        self.values: dict[str, Array] = {}

    def wants(self, name: str) -> bool:
        """Say whether a pattern matches this name."""
        return any(fnmatch.fnmatchcase(name, pattern) for pattern in self.patterns)
