"""The validation loss: always over the same tokens, and without touching training's randomness."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpt2lib.model import GPT2

Array = np.ndarray[Any, Any]
IGNORED = -1


def windows(tokens: Array, seq: int) -> tuple[Array, Array]:
    """Cut a stream into rows that cover it once, each target exactly once.

    Parameters
    ----------
    tokens
        (n,) integers, n >= 2.
    seq
        T.

    Returns
    -------
    tuple
        ids and targets, (rows, T). What the last row lacks has the target −1, which does not count.
    """
    count = len(tokens) - 1
    rows = -(-count // seq)
    ids = np.zeros(rows * seq, np.int64)
    targets = np.full(rows * seq, IGNORED, np.int64)
    ids[:count], targets[:count] = tokens[:-1], tokens[1:]
    return ids.reshape(rows, seq), targets.reshape(rows, seq)


def evaluate(
    model: GPT2, ids: Array, targets: Array, *, batch: int = 16, batches: int | None = None
) -> float:
    """Return the mean loss over the targets that count, in nats a token.

    Parameters
    ----------
    model
        The model; its gradients are not touched.
    ids, targets
        (rows, T).
    batch
        Rows at once. The last batch is filled up with rows that do not count, so that the model's
        buffers keep their shape.
    batches
        Only the first so many batches; None for all.

    Raises
    ------
    ValueError
        When no target counts.
    """
    total, counted = 0.0, 0
    for lo in range(0, len(ids), batch)[:batches]:
        x, y = ids[lo : lo + batch], targets[lo : lo + batch]
        if short := batch - len(x):
            x = np.pad(x, ((0, short), (0, 0)))
            y = np.pad(y, ((0, short), (0, 0)), constant_values=IGNORED)
        here = int((y != IGNORED).sum())
        total += model.loss(x, y) * here  # the mean over a batch, back to its sum
        counted += here
    if not counted:
        raise ValueError("the validation set has no target to predict.")
    return total / counted
