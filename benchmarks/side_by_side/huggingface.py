"""The generation of Hugging Face's ``transformers``: greedy, with its key/value cache."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import torch
import transformers

from benchmarks.side_by_side import data


class Generation:
    """``GPT2LMHeadModel.generate`` on one sequence."""

    def set_up(self, folder: str, threads: int) -> dict[str, Any]:
        """Make the model with the library's weights, whose names and shapes are the same."""
        torch.set_num_threads(threads)
        transformers.logging.set_verbosity_error()
        self.folder = folder
        config, _, _ = data.read_shape(folder)
        shape = transformers.GPT2Config(
            vocab_size=config.vocab_size,
            n_positions=config.context,
            n_embd=config.channels,
            n_layer=config.layers,
            n_head=config.heads,
            bos_token_id=None,
            eos_token_id=None,
        )
        self.model = transformers.GPT2LMHeadModel(shape).eval()
        weights = {
            f"transformer.{name}.weight" if name in ("wte", "wpe") else f"transformer.{name}": value
            for name, value in data.read_weights(folder).items()
        }
        state = {name: torch.from_numpy(value) for name, value in weights.items()}
        missing, unexpected = self.model.load_state_dict(state, strict=False)
        left = [name for name in missing if name != "lm_head.weight"]  # tied to wte
        if left or unexpected:
            raise ValueError(f"weights do not fit: missing {left}, unexpected {unexpected}")
        self.model.tie_weights()
        return {
            "version": transformers.__version__,
            "torch": torch.__version__,
            "threads": torch.get_num_threads(),
        }

    @torch.inference_mode()
    def generate(self, prompt: int, tokens: int) -> dict[str, Any]:
        """Continue the prompt; return the ids, and the seconds from each token to the next."""
        ids = torch.tensor([data.read_prompt(self.folder, prompt)])
        clock = _Clock()
        out = self.model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=tokens,
            do_sample=False,
            use_cache=True,
            pad_token_id=0,
            stopping_criteria=transformers.StoppingCriteriaList([clock]),
        )
        return {"ids": out[0, prompt:].tolist(), "seconds": np.diff(clock.times).tolist()}


class _Clock(transformers.StoppingCriteria):
    """Notes the time after every token, and never stops."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def __call__(self, input_ids: Any, scores: Any, **kwargs: Any) -> Any:
        self.times.append(time.perf_counter())
        return torch.zeros(input_ids.shape[0], dtype=torch.bool)
