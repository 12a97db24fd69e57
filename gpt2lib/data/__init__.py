"""Corpora, token streams, shards and batches: from text to what a model is trained on.

=========================  ==========================================================
module                     what it does
=========================  ==========================================================
``grammar``, ``stories``   tell stories whose probabilities are known
``text``                   files to documents: encodings, separators, repairs
``download``               two corpora from the network, checked
``corpus``                 documents for training and for validation
``dataset``                documents to token ids, in memory or to shards
``shards``                 token files in llm.c's format
``batches``                token ids to inputs and targets
=========================  ==========================================================
"""

from gpt2lib.data.batches import Batches, validation_rows
from gpt2lib.data.corpus import CORPORA, Corpus, load_corpus
from gpt2lib.data.dataset import Dataset, TokenStream, tokenize, tokenize_to_shards
from gpt2lib.data.grammar import Grammar, Story
from gpt2lib.data.shards import read_shard, write_shard
from gpt2lib.data.stories import STORIES
from gpt2lib.data.text import read_documents, repair_mojibake

__all__ = [
    "CORPORA",
    "STORIES",
    "Batches",
    "Corpus",
    "Dataset",
    "Grammar",
    "Story",
    "TokenStream",
    "load_corpus",
    "read_documents",
    "read_shard",
    "repair_mojibake",
    "tokenize",
    "tokenize_to_shards",
    "validation_rows",
    "write_shard",
]
