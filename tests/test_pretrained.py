"""A model and its tokenizer, found by folder, file or name, and checked against each other."""

import shutil

import numpy as np
import pytest

import gpt2lib
from gpt2lib.config import GPT2Config
from gpt2lib.data import Dataset, load_corpus
from gpt2lib.model import GPT2
from gpt2lib.pretrained import load
from gpt2lib.tokenizer import BPE
from gpt2lib.train import TrainConfig, Trainer
from gpt2lib.weights import save_huggingface, save_llmc, save_model


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run of two steps, as ``gpt2lib train`` leaves it."""
    out = tmp_path_factory.mktemp("run")
    corpus = load_corpus("stories", documents=40)
    tokenizer = BPE.train(corpus.train, 280)
    model = GPT2(GPT2Config(280, 32, 1, 2, 16), seed=0)
    config = TrainConfig(steps=2, batch=2, seq=16, warmup=0)
    Trainer(model, Dataset.from_corpus(corpus, tokenizer), config, out).run(progress=False)
    tokenizer.save(out / "tokenizer.json")
    return out, model, tokenizer


def test_a_run_s_folder_and_its_files(run):
    out, model, tokenizer = run
    for path in (out, str(out), out / "checkpoint.safetensors", out / "model.safetensors"):
        loaded = load(path)
        np.testing.assert_array_equal(loaded.model.parameters.flat, model.parameters.flat)
        assert loaded.tokenizer.merges == tokenizer.merges


def test_the_tokenizer_beside_the_file_by_its_name(run, tmp_path):
    out, _, tokenizer = run
    shutil.copy(out / "model.safetensors", tmp_path / "mine.safetensors")
    shutil.copy(out / "tokenizer.json", tmp_path / "mine-tokenizer.json")
    assert load(tmp_path / "mine.safetensors").tokenizer.merges == tokenizer.merges


def test_the_wrong_tokenizer_is_refused(run, tmp_path):
    out, *_ = run
    shutil.copy(out / "model.safetensors", tmp_path / "model.safetensors")
    BPE.train("other words", 280).save(tmp_path / "tokenizer.json")
    with pytest.raises(ValueError, match="trained with another tokenizer"):
        load(tmp_path)


def test_a_missing_tokenizer_is_said(run, tmp_path):
    out, *_ = run
    shutil.copy(out / "model.safetensors", tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match="no tokenizer 'bpe'"):
        load(tmp_path)


def test_formats_of_others_come_with_gpt2_s_vocabulary(tmp_path):
    small = GPT2(GPT2Config(50257, 8, 1, 1, 64), seed=1)
    save_huggingface(tmp_path / "hf", small)
    save_llmc(tmp_path / "small.bin", small)
    for path in (tmp_path / "hf", tmp_path / "hf" / "model.safetensors", tmp_path / "small.bin"):
        model, tokenizer = load(path)
        assert model.config == small.config
        np.testing.assert_array_equal(model.parameters.flat, small.parameters.flat)
        assert tokenizer.vocab_size == 50257


def test_a_small_vocabulary_needs_a_tokenizer_of_its_own(tmp_path):
    save_huggingface(tmp_path / "hf", GPT2(GPT2Config(300, 8, 1, 1, 8), seed=1))
    with pytest.raises(ValueError, match="vocabulary of 300 tokens, not GPT-2's"):
        load(tmp_path / "hf")


def test_nothing_there(tmp_path):
    with pytest.raises(FileNotFoundError):
        load(tmp_path / "nothing")
    with pytest.raises(FileNotFoundError, match="neither"):
        load(tmp_path)


def test_a_damaged_file_is_refused(run, tmp_path):
    _, model, tokenizer = run
    save_model(tmp_path / "model.safetensors", model, tokenizer_name="bpe")
    tokenizer.save(tmp_path / "tokenizer.json")
    load(tmp_path)
    data = bytearray((tmp_path / "model.safetensors").read_bytes())
    data[-5] ^= 4
    (tmp_path / "model.safetensors").write_bytes(data)
    with pytest.raises(ValueError, match="damaged in the tensor"):
        load(tmp_path)


def test_load_is_public():
    assert gpt2lib.load is load
