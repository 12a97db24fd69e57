"""From text to token ids and back.

=====================  ==========================================================================
name                   what it is
=====================  ==========================================================================
``BPE``                byte-level byte-pair encoding from scratch: train, encode, decode, save
``Step``               one state on a word's way from bytes to tokens (``BPE.steps``)
``gpt2``               GPT-2's own tokenizer, through tiktoken, without a download
``load_tokenizer``     a tokenizer by name (``"gpt2"``, ``"tiny"``) or from its file
``pretokenize``        the cuts inside which merges happen
``learn_merges``       training, merge by merge, with the pairs' counts (``count_words`` first)
``merge_pair``         one merge, applied to a list of ids
``StreamDecoder``      ids in, one by one; whole characters out
``Tokenizer``          what all of them can do
``valid_unicode``      what happens to surrogates
=====================  ==========================================================================

All but ``gpt2`` needs the standard library alone. Each name loads when it is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gpt2lib.tokenizer.bpe import BPE, Step
    from gpt2lib.tokenizer.gpt2_vocabulary import gpt2
    from gpt2lib.tokenizer.loading import load_tokenizer
    from gpt2lib.tokenizer.pretokenizer import pretokenize
    from gpt2lib.tokenizer.protocol import StreamDecoder, Tokenizer, valid_unicode
    from gpt2lib.tokenizer.training import count_words, learn_merges, merge_pair

_LAZY = {
    "BPE": "bpe",
    "Step": "bpe",
    "StreamDecoder": "protocol",
    "Tokenizer": "protocol",
    "count_words": "training",
    "gpt2": "gpt2_vocabulary",
    "learn_merges": "training",
    "load_tokenizer": "loading",
    "merge_pair": "training",
    "pretokenize": "pretokenizer",
    "valid_unicode": "protocol",
}

__all__ = [
    "BPE",
    "Step",
    "StreamDecoder",
    "Tokenizer",
    "count_words",
    "gpt2",
    "learn_merges",
    "load_tokenizer",
    "merge_pair",
    "pretokenize",
    "valid_unicode",
]


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        value = getattr(importlib.import_module(f"gpt2lib.tokenizer.{_LAZY[name]}"), name)
        globals()[name] = value  # the next access does not come here
        return value
    raise AttributeError(f"module 'gpt2lib.tokenizer' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})
