"""From a row of tokens to batches: inputs, and targets that are one token further on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from gpt2lib.data.dataset import TokenStream

__all__ = ["IGNORE", "Batches", "validation_rows"]

IGNORE = -1
"""The target of a place that does not count (``ignore_index`` of the loss)."""


class Batches:
    """Batches of a token stream, for ever: epoch after epoch, each in an order of its own.

    The stream is cut into windows of T inputs, which touch: window k has inputs ``[kT, kT + T)``
    and targets ``[kT + 1, kT + T + 1)``. An epoch goes once through them in shuffled order, B at
    a time: floor((n - 1) / (B·T)) batches of a stream of n tokens. The shift by one is made here
    and nowhere else.

    Parameters
    ----------
    stream
        The tokens.
    batch, seq
        B and T.
    rng
        A seed, or a generator from which one is drawn; None: another order in every run.
    aligned
        Rows start at document starts instead: a row is T + 1 tokens from the end-of-text id that
        opens a document. A document near the end, with fewer tokens after its start, is not used.
    shuffle
        False: the windows in their order, so batch k of an epoch starts at token k·B·T.

    Raises
    ------
    ValueError
        Where there are too few tokens (or document starts) for one batch.

    Examples
    --------
    >>> stream = TokenStream(np.arange(13), end_of_text=0)
    >>> ids, targets = Batches(stream, batch=2, seq=3, shuffle=False).next()
    >>> ids.tolist(), targets.tolist()
    ([[0, 1, 2], [3, 4, 5]], [[1, 2, 3], [4, 5, 6]])
    """

    def __init__(
        self,
        stream: TokenStream,
        batch: int,
        seq: int,
        *,
        rng: int | np.random.Generator | None = None,
        aligned: bool = False,
        shuffle: bool = True,
    ):
        if batch < 1 or seq < 1:
            raise ValueError(f"batch={batch} and seq={seq} must be at least 1")
        self.stream, self.batch, self.seq = stream, batch, seq
        self.aligned, self.shuffle = aligned, shuffle
        # A seed instead of the generator itself: order is a function of (seed, epoch), so that
        # the place in the data is three numbers, and nobody else's draws can disturb it.
        self._seed = int(
            rng
            if isinstance(rng, (int, np.integer))
            else np.random.default_rng(rng).integers(2**63)
        )
        self._windows = self._find_windows()
        self.batches_per_epoch = len(self._windows) // batch
        self._begin(epoch=0, done=0)

    def _find_windows(self) -> np.ndarray:
        """Return where windows start, shape (windows,)."""
        n, b, t = len(self.stream), self.batch, self.seq
        if n < b * t + 1 and not self.aligned:
            raise ValueError(
                f"a batch of {b} x {t} needs {b * t + 1} tokens (one more than it has inputs, for "
                f"the last target), but there are {n}: take a longer text or a smaller batch"
            )
        if not self.aligned:
            return np.arange((n - 1) // t) * t
        starts = self.stream.starts
        starts = starts[starts + t + 1 <= n]
        if len(starts) < b:
            raise ValueError(
                f"a batch of {b} rows needs {b} documents with {t + 1} tokens from their start on, "
                f"but there are {len(starts)} ({n} tokens in all)"
            )
        return starts

    def _begin(self, epoch: int, done: int) -> None:
        self._epoch, self._done = epoch, done
        self._order = self._windows
        if self.shuffle:
            self._order = np.random.default_rng([self._seed, epoch]).permutation(self._windows)

    def next(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the next batch: ids (B, T) and targets (B, T), int64, each C-contiguous."""
        if self._done == self.batches_per_epoch:
            self._begin(self._epoch + 1, done=0)
        chosen = self._order[self._done * self.batch : (self._done + 1) * self.batch]  # (B,)
        self._done += 1
        places = chosen[:, None] + np.arange(self.seq + 1)  # (B, T+1)
        rows = self.stream.tokens[places].astype(np.int64)
        return np.ascontiguousarray(rows[:, :-1]), np.ascontiguousarray(rows[:, 1:])

    def __iter__(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        while True:
            yield self.next()

    def state(self) -> dict[str, Any]:
        """Return the place in the data, for a checkpoint: small, and JSON can hold it."""
        return {"seed": self._seed, "epoch": self._epoch, "batch": self._done, **self._shape()}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on as the one whose :meth:`state` this is would have gone on.

        Raises
        ------
        ValueError
            Where the state belongs to other data or other batches.
        """
        for key, mine in self._shape().items():
            if state.get(key) != mine:
                raise ValueError(
                    f"this place in the data is of {key}={state.get(key)}, but here {key}={mine}: "
                    f"resume with the corpus and the batch that the run began with"
                )
        done = int(state["batch"])
        if not 0 <= done <= self.batches_per_epoch:
            raise ValueError(f"batch {done} of an epoch of {self.batches_per_epoch}: damaged state")
        self._seed = int(state["seed"])
        self._begin(int(state["epoch"]), done)

    def _shape(self) -> dict[str, Any]:
        return {
            "tokens": len(self.stream),
            "rows": self.batch,
            "seq": self.seq,
            "aligned": self.aligned,
            "shuffle": self.shuffle,
        }


def validation_rows(stream: TokenStream, seq: int) -> tuple[np.ndarray, np.ndarray]:
    """Pack whole documents into rows, to be scored once each.

    A row holds as many documents as fit, each from the end-of-text id that opens it; what is left
    of the row counts nothing (target -1). So every token of every document is predicted exactly
    once, with all of its document before it, and the mean loss over the targets that count can be
    held against :attr:`Dataset.floor`. A document longer than a row is cut, and only then does a
    token lack what came before.

    Parameters
    ----------
    stream
        The tokens.
    seq
        T, the length of a row.

    Returns
    -------
    ids, targets : ndarray
        (R, T) int64. The number of targets that are not -1 is ``len(stream) - 1``.
    """
    if seq < 1 or len(stream) < 2:
        raise ValueError(f"seq={seq} and {len(stream)} tokens: nothing to predict")
    places = _row_starts(stream, seq)  # (R+1,): where each row starts, and where the last ends
    lengths = np.diff(places)  # (R,)
    columns = np.arange(seq)
    counts = columns < lengths[:, None]  # (R, T): inside the row's documents
    source = np.where(counts, places[:-1, None] + columns, 0)
    ids = np.where(counts, stream.tokens[source], stream.end_of_text).astype(np.int64)
    targets = np.where(counts, stream.tokens[source + 1].astype(np.int64), IGNORE)
    return ids, targets


def _row_starts(stream: TokenStream, seq: int) -> np.ndarray:
    """Cut the stream greedily: a row ends with the last document that still fits."""
    last = len(stream) - 1  # the last token is nobody's input
    borders = np.concatenate(([0], stream.starts, [last]))
    places = [0]
    while places[-1] < last:
        here = places[-1]
        whole = int(borders[np.searchsorted(borders, here + seq, side="right") - 1])
        places.append(whole if whole > here else min(here + seq, last))
    return np.array(places)
