"""What every operation needs: rows of an array, gradients to add to, ids that are checked."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def rows(x: Array) -> Array:
    """View (..., C) as a matrix (N, C), so that a batch of sequences is one matmul.

    Raises
    ------
    ValueError
        When ``x`` is not C-contiguous: its reshape would be a copy, and what is written lost.
    """
    if not x.flags.c_contiguous:
        raise ValueError(
            f"an array of shape {x.shape} is not C-contiguous; pass np.ascontiguousarray(...)."
        )
    return x.reshape(-1, x.shape[-1])


def buffer(out: Array | None, shape: tuple[int, ...], dtype: Any) -> Array:
    """Return ``out`` after checking that it fits, or a new array where none is given.

    Raises
    ------
    ValueError
        For another shape, another type, or a buffer that is not C-contiguous (see :func:`rows`).
    """
    if out is None:
        return np.empty(shape, dtype)
    if out.shape != shape or out.dtype != dtype:
        raise ValueError(
            f"the buffer for the result has shape {out.shape} and type {out.dtype}; "
            f"needed: {shape}, {np.dtype(dtype)}."
        )
    if not out.flags.c_contiguous:
        raise ValueError(f"the buffer of shape {out.shape} for the result is not C-contiguous.")
    return out


def gradient(given: Array | None, like: Array) -> Array:
    """Return the gradient buffer to add to: the given one (checked), or fresh zeros."""
    if given is None:
        return np.zeros_like(like)
    return buffer(given, like.shape, like.dtype)


def check_ids(ids: Any, vocab_size: int, what: str = "token ids") -> Array:
    """Return ``ids`` as an integer array whose every entry names a row of the vocabulary.

    NumPy would let -1 mean the last row, and compiled code would read past the table; both give
    wrong numbers without a word. So ids are checked once, here, for every backend.

    Raises
    ------
    ValueError
        Naming the first id that is outside, where it stands and what is allowed.
    """
    ids = np.asarray(ids)
    if ids.size == 0:
        raise ValueError(f"there are no {what}: at least one token is needed.")
    if not np.issubdtype(ids.dtype, np.integer):
        raise ValueError(f"{what} must be whole numbers, got an array of {ids.dtype}.")
    if int(ids.min()) < 0 or int(ids.max()) >= vocab_size:
        where = np.argwhere((ids < 0) | (ids >= vocab_size))[0]
        place = tuple(int(i) for i in where)
        raise ValueError(
            f"{what}: {int(ids[place])} at position {place} is outside the vocabulary "
            f"of {vocab_size} tokens (0 to {vocab_size - 1})."
        )
    return ids


def check_targets(targets: Any, vocab_size: int, ignore_index: int, count: int) -> Array:
    """Return targets as a flat integer array; each is in the vocabulary or ``ignore_index``.

    Raises
    ------
    ValueError
        When their number is not that of the predictions, or one is neither.
    """
    targets = np.asarray(targets).reshape(-1)
    if targets.size != count:
        raise ValueError(f"there are {targets.size} targets for {count} predictions.")
    if not np.issubdtype(targets.dtype, np.integer):
        raise ValueError(f"targets must be whole numbers, got an array of {targets.dtype}.")
    wrong = ((targets < 0) | (targets >= vocab_size)) & (targets != ignore_index)
    if wrong.any():
        at = int(np.argmax(wrong))
        raise ValueError(
            f"targets: {int(targets[at])} at position {at} is neither in the vocabulary of "
            f"{vocab_size} tokens (0 to {vocab_size - 1}) nor the ignored {ignore_index}."
        )
    return targets
