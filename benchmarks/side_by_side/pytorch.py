"""PyTorch as a contender: GPT-2 in its own modules, fused attention, fused AdamW.

Runs under the interpreter that has PyTorch; of this library it uses only what needs NumPy alone.
"""

from __future__ import annotations

import time
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from benchmarks.side_by_side import data
from gpt2lib.parameters import Parameters


class Block(nn.Module):
    """LayerNorm, attention, LayerNorm, MLP; both halves added to the stream."""

    def __init__(self, channels: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(channels), nn.LayerNorm(channels)
        self.c_attn = nn.Linear(channels, 3 * channels)
        self.c_proj = nn.Linear(channels, channels)
        self.c_fc = nn.Linear(channels, 4 * channels)
        self.mlp_proj = nn.Linear(4 * channels, channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(B, T, C) -> (B, T, C)."""
        B, T, C = x.shape
        qkv = self.c_attn(self.ln_1(x)).view(B, T, 3, self.heads, C // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)  # each (B, NH, T, hs)
        z = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.c_proj(z.transpose(1, 2).reshape(B, T, C))
        return x + self.mlp_proj(functional.gelu(self.c_fc(self.ln_2(x)), approximate="tanh"))


class GPT2(nn.Module):
    """The model, with the head tied to the token embedding."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.wte = nn.Embedding(config.vocab_size, config.channels)
        self.wpe = nn.Embedding(config.context, config.channels)
        self.h = nn.ModuleList(Block(config.channels, config.heads) for _ in range(config.layers))
        self.ln_f = nn.LayerNorm(config.channels)

    def forward(self, ids: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Return the mean cross-entropy of the targets."""
        x = self.wte(ids) + self.wpe(torch.arange(ids.shape[1]))
        for block in self.h:
            x = block(x)
        logits = functional.linear(self.ln_f(x), self.wte.weight)
        return functional.cross_entropy(logits.flatten(0, 1), targets.flatten())

    @torch.no_grad()
    def take(self, weights: Parameters) -> None:
        """Copy the library's weights; a linear layer of PyTorch holds the transpose."""
        for name, value in weights.items():
            place = name.replace(".mlp.c_proj.", ".mlp_proj.")
            place = place.replace(".attn.", ".").replace(".mlp.", ".")
            place = f"{name}.weight" if name in ("wte", "wpe") else place
            matrix = value.ndim == 2 and name.startswith("h.")
            parameter = self.get_parameter(place)
            parameter.copy_(torch.from_numpy(value.T if matrix else value))


class Training:
    """Training steps on one batch."""

    def set_up(self, folder: str, threads: int, compiled: bool = False) -> dict[str, Any]:
        """Load weights and batch; compile where asked, which happens at the first step."""
        torch.set_num_threads(threads)
        config, _, _ = data.read_shape(folder)
        model = GPT2(config)
        model.take(data.read_weights(folder))
        self.optimizer = torch.optim.AdamW(
            model.parameters(),
            lr=data.ADAMW["learning_rate"],
            betas=data.ADAMW["betas"],
            eps=data.ADAMW["eps"],
            weight_decay=data.WEIGHT_DECAY,
            fused=True,
        )
        self.loss = torch.compile(model) if compiled else model
        self.ids, self.targets = (torch.from_numpy(array) for array in data.read_batch(folder))
        return {
            "version": torch.__version__,
            "threads": torch.get_num_threads(),
            "attention": "scaled_dot_product_attention",
            "optimizer": "AdamW, fused",
            "compiled": compiled,
        }

    def steps(self, count: int) -> dict[str, Any]:
        """Make training steps; return the seconds and the loss of each."""
        seconds, losses = [], []
        for _ in range(count):
            begin = time.perf_counter()
            self.optimizer.zero_grad(set_to_none=True)
            loss = self.loss(self.ids, self.targets)
            loss.backward()
            self.optimizer.step()
            losses.append(loss.item())
            seconds.append(time.perf_counter() - begin)
        return {"seconds": seconds, "losses": losses}


class Compiled(Training):
    """The same through ``torch.compile``."""

    def set_up(self, folder: str, threads: int, compiled: bool = True) -> dict[str, Any]:
        """Do as ``Training`` does, compiled."""
        return super().set_up(folder, threads, compiled)
