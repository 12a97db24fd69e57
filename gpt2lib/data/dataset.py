"""From documents to one long row of token ids: in memory, or streamed to shards on the disk."""

from __future__ import annotations

import itertools
import os
import re
import shutil
import tempfile
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from gpt2lib.data.corpus import Corpus
from gpt2lib.data.shards import LARGEST_ID, ShardWriter, open_shard, read_shard

if TYPE_CHECKING:
    from concurrent.futures import Executor, Future

    from gpt2lib.tokenizer import Tokenizer

__all__ = ["Dataset", "TokenStream", "tokenize", "tokenize_to_shards"]


@dataclass(frozen=True, eq=False)  # arrays have no single answer to ==
class TokenStream:
    """Documents as one row of ids, with an end-of-text id before, between and after them.

    ``[E, d d d, E, d d, E]``: so every token of a document has something before it from which it
    can be predicted, the first one too, and generation starts from ``E`` as training did.

    Attributes
    ----------
    tokens
        Ids, shape (n,): an array, or a shard mapped into memory.
    end_of_text
        The id ``E``. Documents do not contain it (the tokenizer's ``encode`` never gives it).
    """

    tokens: np.ndarray
    end_of_text: int

    def __len__(self) -> int:
        return len(self.tokens)

    @cached_property
    def starts(self) -> np.ndarray:
        """Where documents start, shape (documents,): the place of the ``E`` that opens each."""
        return np.flatnonzero(self.tokens == self.end_of_text)[:-1]

    @property
    def documents(self) -> int:
        """How many documents there are."""
        return len(self.starts)

    def document(self, index: int) -> np.ndarray:
        """Return the ids of one document, without the separators around it."""
        ends = np.append(self.starts[1:], len(self.tokens) - 1)
        return self.tokens[self.starts[index] + 1 : ends[index]]

    @classmethod
    def from_shards(
        cls, paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]], end_of_text: int
    ) -> TokenStream:
        """Map one shard into memory; several are joined, which reads them (2 bytes a token)."""
        if isinstance(paths, (str, os.PathLike)):
            return cls(read_shard(paths), end_of_text)
        if not paths:
            raise ValueError("no shards were given")
        parts = [read_shard(path) for path in paths]
        # Each shard opens with a separator; the one that closed the shard before it is enough.
        joined = [parts[0], *(part[1:] for part in parts[1:])]
        return cls(joined[0] if len(joined) == 1 else np.concatenate(joined), end_of_text)


@dataclass(frozen=True, eq=False)
class Dataset:
    """A tokenised corpus.

    Attributes
    ----------
    tokenizer
        What the ids mean.
    train, validation
        The two parts.
    floor
        The lowest validation loss possible, in nats a token: -Σ log p over these very validation
        documents, divided by the number of tokens predicted (separators included: where a story
        ends is part of it). None where the source's probabilities are not known. A model may
        score below it only by chance on few documents, or by having seen them.
    """

    tokenizer: Tokenizer
    train: TokenStream
    validation: TokenStream
    floor: float | None = None

    @classmethod
    def from_corpus(cls, corpus: Corpus, tokenizer: Tokenizer) -> Dataset:
        """Tokenise both parts of a corpus."""
        validation = tokenize(corpus.validation, tokenizer)
        nats = corpus.floor_nats(corpus.validation)
        floor = None if nats is None else nats / (len(validation) - 1)
        return cls(tokenizer, tokenize(corpus.train, tokenizer), validation, floor)


def tokenize(documents: Iterable[str], tokenizer: Tokenizer) -> TokenStream:
    """Turn documents into a stream in memory: 2 bytes a token up to 65536 ids, else 4."""
    dtype = np.uint16 if tokenizer.vocab_size <= LARGEST_ID + 1 else np.uint32
    pieces = [np.array([tokenizer.end_of_text], dtype)]
    pieces += [_encode([document], tokenizer).astype(dtype) for document in documents]
    return TokenStream(np.concatenate(pieces), tokenizer.end_of_text)


def _encode(documents: Sequence[str], tokenizer: Tokenizer) -> np.ndarray:
    """Return the ids of documents, each followed by an end of text."""
    ids: list[int] = []
    for document in documents:
        ids += tokenizer.encode(document)
        ids.append(tokenizer.end_of_text)
    return np.array(ids, dtype=np.int64)


def tokenize_to_shards(
    documents: Iterable[str],
    tokenizer: Tokenizer,
    folder: str | os.PathLike[str],
    *,
    name: str = "train",
    shard_tokens: int = 100_000_000,
    processes: int = 1,
    overwrite: bool = False,
) -> list[Path]:
    """Tokenise any number of documents to files ``name_000000.bin``, ``name_000001.bin``, ….

    Memory stays bounded, whatever the size of the corpus: give documents as a generator, such as
    :func:`gpt2lib.data.text.read_documents`. The files are the same for any number of processes.
    They appear together when all is done; after an error, in a worker or here, there is none.
    (Where TinyStories is tokenised in processes, a tokenizer that is made under ``if __name__ ==
    "__main__"`` is not there in a spawned worker, and an error that nobody collects leaves a
    shard missing without a word. Here each worker is handed the tokenizer, and every result is
    asked for.)

    Parameters
    ----------
    documents
        Texts.
    tokenizer
        Its ids must fit a shard, so at most 65536 of them. For worker processes it must pickle.
    folder
        Where to write; made if need be.
    name
        What the files' names begin with.
    shard_tokens
        A shard ends with the last document that fits into so many tokens. Each is a stream of its
        own, with separators at both ends.
    processes
        Workers. They are spawned, never forked: it is the same on every system, and a process
        that has run threads is safe to start them from. A script that asks for more than one
        needs ``if __name__ == "__main__":``, as always with spawned processes.
    overwrite
        Replace shards of that name.

    Returns
    -------
    list of Path
        The shards in order.

    Raises
    ------
    ValueError
        Where the vocabulary does not fit, shards of that name are there, or a worker could not
        start. An error of the tokenizer itself comes through as it is.
    """
    if tokenizer.vocab_size > LARGEST_ID + 1:
        raise ValueError(
            f"vocabulary of {tokenizer.vocab_size}: a shard's uint16 holds ids up to {LARGEST_ID}"
        )
    if shard_tokens < 1 or processes < 1:
        raise ValueError(
            f"tokens a shard and processes must be at least 1, got {shard_tokens} and {processes}."
        )
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    older = [
        p for p in folder.iterdir() if re.fullmatch(rf"{re.escape(name)}_\d{{6}}\.bin", p.name)
    ]
    if older and not overwrite:
        raise ValueError(f"{min(older)} is there already; remove it, or say to overwrite it")
    with ExitStack() as stack:
        # The workers start before anything is written. In a script without its guard they run
        # this very line; they must fail here, since they are killed before they can clean up.
        pieces = _pieces(documents, tokenizer, processes, stack)
        # Everything grows in a folder of its own, and moves out only when all of it is whole.
        workshop = Path(tempfile.mkdtemp(prefix=f".{name}.", suffix=".part", dir=folder))
        stack.callback(shutil.rmtree, workshop, ignore_errors=True)
        made = _write_shards(pieces, tokenizer.end_of_text, workshop, name, shard_tokens)
        for path in older:
            path.unlink()
        return [path.replace(folder / path.name) for path in made]


def _write_shards(
    pieces: Iterable[np.ndarray], end_of_text: int, folder: Path, name: str, most: int
) -> list[Path]:
    """Fill shards with whole documents, as they come."""
    made: list[Path] = []
    shard: ShardWriter | None = None
    with ExitStack() as stack:
        for piece in pieces:
            ends = np.flatnonzero(piece == end_of_text) + 1  # a document with what closes it
            for document in np.split(piece, ends[:-1]):
                if shard is None or (shard.count > 1 and shard.count + len(document) > most):
                    stack.close()  # the full shard gets its header and its name
                    made.append(folder / f"{name}_{len(made):06d}.bin")
                    shard = stack.enter_context(open_shard(made[-1]))
                    shard.write(np.array([end_of_text]))
                shard.write(document)
    if not made:
        raise ValueError("no documents were given")
    return made


# Worker processes ---------------------------------------------------------------------------

_DOCUMENTS_A_TASK = 64
_worker_tokenizer: Tokenizer | None = None  # one in each worker, set when it starts


def _start_worker(tokenizer: Tokenizer) -> None:
    global _worker_tokenizer
    _worker_tokenizer = tokenizer


def _encode_in_worker(documents: Sequence[str]) -> np.ndarray:
    assert _worker_tokenizer is not None
    return _encode(documents, _worker_tokenizer)


def _pieces(
    documents: Iterable[str], tokenizer: Tokenizer, processes: int, stack: ExitStack
) -> Iterator[np.ndarray]:
    """Encode batches of documents, here or in workers, and give them back in order."""
    batches = _batched(documents)
    if processes == 1:
        return (_encode(batch, tokenizer) for batch in batches)
    # Imported here: a browser's Python has no processes, and needs the rest of this module.
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor

    pool = ProcessPoolExecutor(
        processes,
        mp_context=multiprocessing.get_context("spawn"),
        initializer=_start_worker,
        initargs=(tokenizer,),
    )
    stack.callback(pool.shutdown, cancel_futures=True)
    _submit(pool, [])  # starts the workers, or says why not
    return _in_order(pool, batches, ahead=2 * processes)


def _in_order(pool: Executor, batches: Iterable[Sequence[str]], ahead: int) -> Iterator[np.ndarray]:
    """Keep ``ahead`` batches in work, no more: a huge corpus is never all in memory."""
    from concurrent.futures import BrokenExecutor

    waiting: deque[Future[np.ndarray]] = deque()
    try:
        for batch in batches:
            waiting.append(_submit(pool, batch))
            if len(waiting) > ahead:
                yield waiting.popleft().result()  # raises here what was raised there
        while waiting:
            yield waiting.popleft().result()
    except BrokenExecutor as error:
        raise ValueError(
            "a worker process ended at once; a script that tokenises in several processes must "
            'start under `if __name__ == "__main__":`; or use processes=1'
        ) from error


def _submit(pool: Executor, batch: Sequence[str]) -> Future[np.ndarray]:
    try:
        return pool.submit(_encode_in_worker, batch)
    except (TypeError, AttributeError, ValueError) as error:  # the first one starts the workers
        raise ValueError(
            f"this tokenizer cannot be sent to worker processes ({error}); use processes=1"
        ) from error


def _batched(documents: Iterable[str]) -> Iterator[list[str]]:
    remaining = iter(documents)
    while batch := list(itertools.islice(remaining, _DOCUMENTS_A_TASK)):
        yield batch
