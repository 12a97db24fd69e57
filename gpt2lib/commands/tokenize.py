"""Turn a corpus into token files in llm.c's format, which gpt2lib and llm.c both read.

For instance:

  gpt2lib tokenize my-texts/ --out shards
  gpt2lib tokenize stories --documents 1000 --tokenizer tiny --validation 0.1 --out shards

Memory stays bounded whatever the size of the text. The files are the same for any number of
processes, and appear only when all is done.
"""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

from gpt2lib._files import new_folder, one_writer

HELP = "turn a corpus into token files (llm.c's format)"

Documents = Callable[[], Iterator[str]]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    from gpt2lib.data import CORPORA

    parser.add_argument(
        "corpus", metavar="NAME|PATH", help=f"{', '.join(CORPORA)}, or a text file or folder"
    )
    parser.add_argument("--out", required=True, metavar="DIR", help="folder for the files")
    parser.add_argument(
        "--tokenizer", default="gpt2", metavar="gpt2|tiny|PATH", help="default: gpt2"
    )
    parser.add_argument("--documents", type=int, metavar="N", help="use so many documents")
    parser.add_argument(
        "--validation",
        type=float,
        default=0.0,
        metavar="SHARE",
        help="share of the documents for val_….bin; the others are train_….bin (default 0)",
    )
    parser.add_argument(
        "--shard-tokens", type=int, default=100_000_000, metavar="N", help="tokens a file at most"
    )
    parser.add_argument("--processes", type=int, default=1, metavar="N", help="default 1")
    parser.add_argument("--overwrite", action="store_true", help="replace files that are there")


def run(args: argparse.Namespace) -> int:
    """Write the shards and say how many tokens they hold."""
    from gpt2lib.data import read_shard, tokenize_to_shards
    from gpt2lib.tokenizer import load_tokenizer

    if not 0 <= args.validation < 1:
        raise ValueError(f"--validation is a share, 0 to 1, got {args.validation}")
    if not args.out:
        raise ValueError("--out needs the name of a folder.")
    tokenizer = load_tokenizer(args.tokenizer)
    source = _documents(args.corpus, args.documents)
    with new_folder(args.out) as folder, one_writer(folder):
        for side in ("train", "val"):
            for stale in folder.glob(f".{side}.*.part"):  # of one that was killed
                shutil.rmtree(stale, ignore_errors=True)
        for name, documents in _sides(source, args.validation):
            paths = tokenize_to_shards(
                documents,
                tokenizer,
                folder,
                name=name,
                shard_tokens=args.shard_tokens,
                processes=args.processes,
                overwrite=args.overwrite,
            )
            tokens = sum(len(read_shard(path)) for path in paths)
            print(f"{name}: {tokens:,} tokens in {len(paths)} file(s), {paths[0]} …")
    return 0


def _sides(source: Documents, validation: float) -> Iterator[tuple[str, Iterator[str]]]:
    """Yield "val" and "train" with their documents: every so manyth goes to validation."""
    if not validation:
        yield "train", source()
        return
    every = max(2, round(1 / max(validation, 1e-15)))
    if next(islice(source(), every, None), None) is None:
        raise ValueError(
            f"to keep every {every}th document for validation takes more than {every} documents; "
            "this corpus has fewer"
        )
    yield "val", islice(source(), 0, None, every)
    yield "train", (text for number, text in enumerate(source()) if number % every)


def _documents(name: str, limit: int | None) -> Documents:
    """Return a function that begins reading a corpus's documents anew at each call."""
    from gpt2lib.data import CORPORA, load_corpus, read_documents
    from gpt2lib.data.corpus import check_request
    from gpt2lib.data.text import text_files

    check_request(name, limit)
    path = Path(name)
    if name in CORPORA:
        corpus = load_corpus(name, documents=limit)
        return lambda: iter([*corpus.train, *corpus.validation])
    if path.is_file():
        return lambda: islice(read_documents(path), limit)
    if path.is_dir():
        files, refused = text_files(path)
        for reason in refused:
            print(f"note: left out: {reason}")
        if not files:
            raise ValueError(f"{name}: no text file in this folder")
        alone = len(files) == 1  # then its paragraphs are documents, as if it had been named
        return lambda: islice(
            (text for file in files for text in read_documents(file, paragraphs=alone)), limit
        )
    raise ValueError(
        f"no corpus {name!r}: give {', '.join(CORPORA)}, or the path of a text file or folder"
    )
