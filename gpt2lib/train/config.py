"""The settings of a training run."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

# What may differ between a run and its continuation: it changes no weight.
FREE = ("eval_every", "eval_batches", "checkpoint_every")


@dataclass(frozen=True)
class TrainConfig:
    """How to train: how long, on how much at once, how fast.

    Parameters
    ----------
    steps
        Steps in all; the learning rate's course ends there.
    batch
        B, sequences a step.
    seq
        T, tokens a sequence.
    learning_rate
        The highest rate, reached after the warm-up.
    final_rate
        The rate at the end, as a fraction of the highest.
    warmup
        Steps on which the rate rises.
    betas, eps, weight_decay, decay_all
        AdamW's, see :class:`gpt2lib.optimizer.AdamW`.
    clip
        The largest norm of all gradients together; None for no limit.
    accumulate
        Into how many micro-batches a step's batch is cut. The step is the same, the memory less;
        must divide ``batch``.
    aligned
        Whether every sequence begins where a document begins.
    seed
        Of the order in which the data come.
    eval_every
        Steps between two looks at the validation loss; the last step always has one. 0: only that.
    eval_batches
        How many batches of the validation set to look at; 0 for all of it.
    checkpoint_every
        Steps between two checkpoints; the last step always has one. 0: only that.

    Raises
    ------
    ValueError
        For a setting that cannot be, naming it.
    """

    steps: int = 200
    batch: int = 16
    seq: int = 128
    learning_rate: float = 3e-3
    final_rate: float = 0.05
    warmup: int = 50
    betas: tuple[float, float] = (0.9, 0.98)
    eps: float = 1e-8
    weight_decay: float = 0.0
    decay_all: bool = False
    clip: float | None = 1.0
    accumulate: int = 1
    aligned: bool = False
    seed: int = 0
    eval_every: int = 100
    eval_batches: int = 16
    checkpoint_every: int = 100

    def __post_init__(self) -> None:
        for name, least in _LEAST.items():
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                raise ValueError(f"{name} must be a whole number of at least {least}, got {value}.")
        object.__setattr__(self, "betas", tuple(self.betas))  # JSON makes it a list
        if not (self.learning_rate > 0 and math.isfinite(self.learning_rate)):
            raise ValueError(f"learning_rate must be a positive number, got {self.learning_rate}.")
        if not 0 <= self.final_rate <= 1:
            raise ValueError(
                f"final_rate is a fraction of the highest rate, 0 to 1, got {self.final_rate}."
            )
        if self.batch % self.accumulate:
            raise ValueError(
                f"a batch of {self.batch} cannot be cut into {self.accumulate} equal "
                "micro-batches: accumulate must divide batch."
            )

    def to_dict(self) -> dict[str, Any]:
        """Return the settings as a plain dictionary (JSON-able)."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> TrainConfig:
        """Build settings from :meth:`to_dict`'s dictionary."""
        return cls(**values)

    def contradictions(self, other: TrainConfig) -> list[str]:
        """Say in words which settings of ``other`` would not continue a run with these."""
        mine, theirs = self.to_dict(), other.to_dict()
        return [
            f"{name} was {mine[name]} and is {theirs[name]} now"
            for name in mine
            if name not in FREE and mine[name] != theirs[name]
        ]


_LEAST = {
    "steps": 1,
    "batch": 1,
    "seq": 1,
    "warmup": 0,
    "accumulate": 1,
    "seed": 0,
    "eval_every": 0,
    "eval_batches": 0,
    "checkpoint_every": 0,
}
