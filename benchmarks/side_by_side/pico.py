"""Generation in plain NumPy in the manner of picoGPT: a few functions, no cache, no batch.

Each token reads the whole text again. In one thing it is kinder than picoGPT, whose constants are
float64 and lift the whole model to it: here everything stays float32.
"""

from __future__ import annotations

import math
import time
from typing import Any

import numpy as np

from benchmarks.side_by_side import data


def gelu(x):  # (T, 4C) -> (T, 4C)
    """Bend."""
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def softmax(x):  # rows sum to one
    """Normalise."""
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def layer_norm(x, p, name):  # (T, C) -> (T, C)
    """Centre and scale each row."""
    centred = x - x.mean(-1, keepdims=True)
    scaled = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5)
    return p[f"{name}.weight"] * scaled + p[f"{name}.bias"]


def linear(x, p, name):  # (T, I) -> (T, O)
    """Multiply and add."""
    return x @ p[f"{name}.weight"] + p[f"{name}.bias"]


def attention(q, k, v):  # each (T, hs) -> (T, hs)
    """Mix the values of what came before."""
    mask = np.where(np.tri(len(q), dtype=bool), np.float32(0), np.float32(-1e10))
    return softmax(q @ k.T / math.sqrt(q.shape[-1]) + mask) @ v


def heads(x, p, name, count):  # (T, C) -> (T, C)
    """Attend, head by head."""
    qkv = np.split(linear(x, p, f"{name}.c_attn"), 3, axis=-1)
    parts = zip(*(np.split(part, count, axis=-1) for part in qkv), strict=True)
    return linear(np.hstack([attention(*part) for part in parts]), p, f"{name}.c_proj")


def gpt2(ids, p, config):  # (T,) -> (T, V)
    """Score every token at every position."""
    x = p["wte"][ids] + p["wpe"][: len(ids)]
    for layer in range(config.layers):
        h = f"h.{layer}"
        x = x + heads(layer_norm(x, p, f"{h}.ln_1"), p, f"{h}.attn", config.heads)
        y = layer_norm(x, p, f"{h}.ln_2")
        x = x + linear(gelu(linear(y, p, f"{h}.mlp.c_fc")), p, f"{h}.mlp.c_proj")
    return layer_norm(x, p, "ln_f") @ p["wte"].T


class Generation:
    """Greedy generation."""

    def set_up(self, folder: str, threads: int) -> dict[str, Any]:
        """Load the weights. NumPy's BLAS has its threads from the environment."""
        self.folder = folder
        self.config, _, _ = data.read_shape(folder)
        self.weights = data.read_weights(folder)
        return {"version": np.__version__, "threads": threads}

    def generate(self, prompt: int, tokens: int) -> dict[str, Any]:
        """Continue the prompt; return the ids, and the seconds from each token to the next."""
        ids = data.read_prompt(self.folder, prompt)
        times = []
        for _ in range(tokens):
            logits = gpt2(ids, self.weights, self.config)
            ids.append(int(np.argmax(logits[-1])))
            times.append(time.perf_counter())
        return {"ids": ids[prompt:], "seconds": np.diff(times).tolist()}
