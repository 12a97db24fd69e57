"""A corpus and a model so small that a step takes milliseconds."""

import pytest

from gpt2lib.config import GPT2Config
from gpt2lib.data import Dataset, load_corpus
from gpt2lib.model import GPT2
from gpt2lib.tokenizer import BPE
from gpt2lib.train import TrainConfig


@pytest.fixture(scope="session")
def dataset():
    corpus = load_corpus("stories", documents=60)
    return Dataset.from_corpus(corpus, BPE.train(corpus.train, 300))


@pytest.fixture
def small_model(dataset):
    def make(seed=0, **backend):
        config = GPT2Config(dataset.tokenizer.vocab_size, 32, layers=2, heads=2, channels=16)
        return GPT2(config, seed=seed, **backend)

    return make


@pytest.fixture
def settings():
    def make(**changes):
        few = {"steps": 12, "batch": 4, "seq": 16, "warmup": 2, "eval_every": 5, "eval_batches": 3}
        return TrainConfig(**{**few, "checkpoint_every": 4, **changes})

    return make
