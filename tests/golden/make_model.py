"""Record what PyTorch computes for a small, asymmetric GPT-2: tests/golden/model.npz.

The reference shares no code with gpt2lib: it is Hugging Face transformers' GPT2LMHeadModel with its
plain ("eager") attention, and torch.optim.AdamW. Run it where both are installed:

    python tests/golden/make_model.py

No two sizes are equal, every bias and gain is random, one target is ignored. The parameters are
far from GPT-2's start, so that every gradient is large enough to be compared.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
import transformers
from torch.nn import functional

B, T, C, NH, L, V, CONTEXT = 2, 5, 12, 3, 3, 41, 7
STEPS = 10
ADAMW = {"lr": 0.01, "betas": (0.9, 0.95), "eps": 1e-8}
DECAY = 0.1


def build(dtype: torch.dtype) -> transformers.GPT2LMHeadModel:
    config = transformers.GPT2Config(
        vocab_size=V,
        n_positions=CONTEXT,
        n_embd=C,
        n_layer=L,
        n_head=NH,
        activation_function="gelu_new",
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        attn_implementation="eager",
        tie_word_embeddings=True,
    )
    model = transformers.GPT2LMHeadModel(config).to(dtype)
    rng = np.random.default_rng(20240520)
    with torch.no_grad():
        for name, tensor in sorted(named(model).items()):
            gain = 1.0 if "ln_" in name and name.endswith("weight") else 0.0
            values = (gain + 0.3 * rng.standard_normal(tuple(tensor.shape))).astype(np.float32)
            tensor.copy_(torch.from_numpy(values).to(dtype))
    return model


def named(model: transformers.GPT2LMHeadModel) -> dict[str, torch.nn.Parameter]:
    """Return the parameters by GPT-2's names; the tied head is not listed twice."""
    ours = {"transformer.wte.weight": "wte", "transformer.wpe.weight": "wpe"}
    return {
        ours.get(name, name.removeprefix("transformer.")): parameter
        for name, parameter in model.named_parameters()
    }


def cross_entropy(model, ids, targets):
    logits = model(ids).logits
    loss = functional.cross_entropy(logits.reshape(-1, V), targets.reshape(-1), ignore_index=-1)
    return logits, loss


def record(dtype: torch.dtype, ids: torch.Tensor, targets: torch.Tensor) -> dict[str, np.ndarray]:
    """Return logits, loss, gradients of the first batch, and the losses of ten steps."""
    kind = str(dtype).removeprefix("torch.")
    model = build(dtype)
    logits, loss = cross_entropy(model, ids[0], targets[0])
    loss.backward()
    out = {f"{kind}/logits": logits.detach().numpy(), f"{kind}/loss": np.array(loss.item())}
    for name, tensor in named(model).items():
        out[f"{kind}/gradient/{name}"] = tensor.grad.numpy().copy()
        if dtype == torch.float32:
            out[f"parameter/{name}"] = tensor.detach().numpy().copy()
    matrices = [p for p in named(model).values() if p.ndim == 2]
    vectors = [p for p in named(model).values() if p.ndim == 1]
    groups = [
        {"params": matrices, "weight_decay": DECAY},
        {"params": vectors, "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, **ADAMW)
    losses = []
    for step in range(STEPS):
        optimizer.zero_grad()
        _, loss = cross_entropy(model, ids[step], targets[step])
        losses.append(loss.item())
        loss.backward()
        optimizer.step()
    out[f"{kind}/losses"] = np.array(losses)
    return out


def main() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    rng = np.random.default_rng(7)
    ids = rng.integers(0, V, (STEPS, B, T))
    targets = rng.integers(0, V, (STEPS, B, T))
    targets[:, 1, 2] = -1
    arrays = {"ids": ids.astype(np.int16), "targets": targets.astype(np.int16)}
    for dtype in (torch.float32, torch.float64):
        arrays |= record(dtype, torch.from_numpy(ids), torch.from_numpy(targets))
    versions = f"torch {torch.__version__}, transformers {transformers.__version__}"
    arrays["made_with"] = np.array(versions)
    path = Path(__file__).with_name("model.npz")
    np.savez_compressed(path, **arrays)
    print(f"{path.name}: {path.stat().st_size:,} bytes, {versions}")
    print("losses", arrays["float64/losses"])


if __name__ == "__main__":
    main()
